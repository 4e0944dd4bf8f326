"""Source locations: which line of the user's program called an operation.

Comes in: a frame. Goes out: a location, as (code, instruction); a frame would keep the caller's
variables alive. The line number is computed only when it is read. Called when an entry is made, and
by everything that prints or raises an error.
"""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType
from typing import Any

LIBRARY = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

Location = tuple[CodeType, int]

#: files that were found to be tapegrad's own
_inside: set[str] = set()


def outside(frame: FrameType | None) -> Location | None:
    """The innermost location from `frame` outwards that is not in tapegrad itself."""
    while frame is not None:
        code = frame.f_code
        name = code.co_filename
        if name not in _inside:  # half the time of `startswith`
            if not name.startswith(LIBRARY):
                return code, frame.f_lasti
            _inside.add(name)
        frame = frame.f_back
    return None


def here() -> Location | None:
    """The user's line that led to this call."""
    return outside(sys._getframe(1))


def stacklevel() -> int:
    """The `stacklevel` with which the caller's warning points at the user's line."""
    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None and frame.f_code.co_filename.startswith(LIBRARY):
        frame, level = frame.f_back, level + 1
    return level


def code_of(function: Any) -> CodeType | None:
    """The code object that a call of `function` runs, if it is Python."""
    for found in (function, getattr(function, "func", None), type(function).__call__):
        code = getattr(found, "__code__", None)
        if code is not None:
            return code  # type: ignore[no-any-return]  # any `__code__` is a code object
    return None


def is_of_library(function: Any) -> bool:
    """Whether a function is code of tapegrad, Python's builtins or NumPy, or is None."""
    while hasattr(function, "func"):
        function = function.func
    code = getattr(function, "__code__", None)
    if code is None:
        return function is None or type(function).__module__ in ("builtins", "numpy")
    return bool(code.co_filename.startswith(LIBRARY))


def line_of(location: Location) -> tuple[str, int]:
    """File name and line number of a location."""
    code, instruction = location
    for start, stop, line in code.co_lines():
        if line is not None and start <= instruction < stop:
            return code.co_filename, line
    return code.co_filename, code.co_firstlineno


def describe(location: Location | None) -> str:
    """`file:line, in function`, with the line's text where it can be read."""
    if location is None:
        return "an unknown line"
    import linecache

    name, line = line_of(location)
    text = linecache.getline(name, line).strip()
    shown = f"{name}:{line}, in {location[0].co_name}"
    return f"{shown}: {text}" if text else shown
