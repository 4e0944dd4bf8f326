"""Functions made from text, where a general function would take longer.

Comes in: the lines of one Python function and the names that it uses. Goes out: the function. The
short paths (`shortpaths.py`), autocast (`casting.py`) and the guards of compiled functions
(`replay/guards/conjunction.py`) make theirs here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .source import LIBRARY


def function_of(
    lines: Sequence[str], name: str, namespace: dict[str, Any], label: str | None = None
) -> Any:
    """The function of this name that the lines define.

    Its file is called a part of the library, so that a location in the user's code is that of its
    caller. The label is what a traceback shows as the file.
    """
    exec(compile("\n".join(lines), f"{LIBRARY}{label or name}", "exec"), namespace)
    return namespace[name]
