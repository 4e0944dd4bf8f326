"""The names under which the library's types are shown: `tapegrad`, or `torch` behind the facade.

The `repr` of dtypes and sizes reads `shown`. `rename` gives a class PyTorch's module and name for
it, when `tapegrad.compat` is installed as `torch`; `home_of` still returns the module that defines
the class, for code that needs to know which part of the library it belongs to.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any


class Shown:
    """The name of the package in texts, and the prefix of `Size`."""

    __slots__ = ("package", "prefix")

    def __init__(self) -> None:
        self.package = "tapegrad"
        self.prefix = ""


shown = Shown()
_HOMES: dict[type, str] = {}


def rename(kind: type, module: str, name: str | None = None) -> None:
    """Show a class under another module, and maybe another name."""
    if kind not in _HOMES:
        _HOMES[kind] = kind.__module__
        _evaluate_annotations(kind)
    kind.__module__ = module
    if name is not None:
        kind.__name__ = kind.__qualname__ = name


def _evaluate_annotations(kind: type) -> None:
    """Evaluate a class's annotations: later, `typing` would look them up in the new module."""
    annotations = inspect.get_annotations(kind)
    names = vars(sys.modules[kind.__module__])
    for name, text in annotations.items():
        if isinstance(text, str):
            try:
                annotations[name] = eval(text, names)
            except NameError:  # a name that only type checkers import
                annotations[name] = Any
    if annotations:
        kind.__annotations__ = annotations


def home_of(kind: type) -> str:
    """The module that defines a class, even after `rename`."""
    return _HOMES.get(kind) or kind.__module__ or ""
