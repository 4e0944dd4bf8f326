"""`tapegrad.linalg`: the op table's functions for this namespace, with PyTorch's names.

Loaded at first use.
"""

from __future__ import annotations

from typing import Any

from .ops import late, public_functions
from .ops.linalg.matrices import LinAlgError as LinAlgError

late.load_all("factors.")
_FUNCTIONS = {**public_functions("linalg"), "matrix_exp": public_functions("")["matrix_exp"]}
globals().update(_FUNCTIONS)

__all__ = sorted(("LinAlgError", *_FUNCTIONS))  # the names are those of the table


def __getattr__(name: str) -> Any:
    from .core.missing import missing

    raise missing(__name__, name, __all__)
