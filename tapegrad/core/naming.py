"""Under which names the library's own types are shown: `tapegrad`, or `torch` behind the facade.

`shown` is asked by the `repr` of dtypes and sizes. `rename` gives a class the module and name that
PyTorch has for it, when `tapegrad.compat` is installed as `torch`; `home_of` still says where the
class was defined, for code that asks which part of the library a class belongs to.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any


class Shown:
    """The name of the package in texts, and what stands before the name of `Size`."""

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
    """Make types of a class's annotations: `typing` would look their names up in the new module."""
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
    """The module that defines a class, under whatever name it is shown."""
    return _HOMES.get(kind) or kind.__module__ or ""
