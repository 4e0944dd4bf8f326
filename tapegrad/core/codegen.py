"""Generates Python functions from text, where a general function would be slower.

Comes in: the lines of one Python function and the names that it uses. Goes out: the function.
Called by the short paths (`shortpaths.py`), autocast (`casting.py`), NumPy's parameter names
(`ops/table.py`) and the guards of compiled functions (`replay/guards/conjunction.py`).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from .source import LIBRARY


def function_of(
    lines: Sequence[str], name: str, namespace: dict[str, Any], label: str | None = None
) -> Any:
    """The function of this name that the lines define.

    Its file name starts with the library's path, so that a search for the user's line skips it. A
    traceback shows the label as the file.
    """
    exec(_compiled("\n".join(lines), f"{LIBRARY}{label or name}"), namespace)
    return namespace[name]


@functools.cache
def _compiled(text: str, file: str) -> CodeType:
    """The code of a text, cached: many operations have the same text, and import must be fast."""
    return compile(text, file, "exec")


class Parameters(NamedTuple):
    """The parameters of a function, for the text of a wrapper."""

    positional: tuple[str, ...]
    rest: tuple[str, ...]
    keywords: tuple[str, ...]

    @property
    def declared(self) -> str:
        """The parameters as written in a definition, without defaults."""
        separate = ("*",) if self.keywords and not self.rest else ()
        return ", ".join((*self.given, *separate, *self.keywords))

    @property
    def given(self) -> tuple[str, ...]:
        """The positional arguments as written in a call."""
        return (*self.positional, *[f"*{name}" for name in self.rest])

    @property
    def named(self) -> tuple[str, ...]:
        """The keyword arguments as written in a call."""
        return tuple(f"{name}={name}" for name in self.keywords)

    @property
    def passed(self) -> str:
        """All arguments as written in a call."""
        return ", ".join((*self.given, *self.named))


def parameters_of(function: Any) -> Parameters | None:
    """The parameters of a Python function; None if it takes keywords of any name."""
    code = getattr(function, "__code__", None)
    if code is None or code.co_flags & inspect.CO_VARKEYWORDS:
        return None
    count, last = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    names = code.co_varnames
    rest = names[last : last + bool(code.co_flags & inspect.CO_VARARGS)]
    return Parameters(names[:count], rest, names[count:last])


def in_front(
    function: Any, lines: Sequence[str], namespace: dict[str, Any], label: str
) -> Callable[..., Any]:
    """A wrapper of `function` with the same parameters: the function `call` that the lines define.

    Packing and unpacking arguments would cost a small operation 0.2 µs more. The wrapper is
    compiled at its first call: compiling those of all operations would take 10 ms of the import.
    """
    made: Any = functools.update_wrapper(FunctionType(_first_call, namespace), function)
    made.__defaults__, made.__kwdefaults__ = function.__defaults__, function.__kwdefaults__

    def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        made.__code__ = function_of(lines, "call", {}, label).__code__
        return made(*args, **kwargs)

    namespace["begin"] = begin
    return made  # type: ignore[no-any-return]


def _begin(*args: Any, **kwargs: Any) -> Any:
    return globals()["begin"](args, kwargs)


#: the code of a wrapper before its first call; it finds `begin` in the wrapper's globals
_first_call = _begin.__code__
