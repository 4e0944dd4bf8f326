"""The error for a name that a module does not have, with the closest name that it has.

Comes in: a module, the missing name, and the names that exist. Goes out: an AttributeError. Called
by `__getattr__` of the public modules.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def missing(module: str, name: str, known: Iterable[str]) -> AttributeError:
    """An error to raise from a module's `__getattr__`; `known` are the names that there are."""
    text = f"module {module!r} has no attribute {name!r}"
    close = [] if name.startswith("_") else difflib.get_close_matches(name, list(known), 1, 0.75)
    return AttributeError(f"{text}; did you mean {close[0]!r}?" if close else text)
