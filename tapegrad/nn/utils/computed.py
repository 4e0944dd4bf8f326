"""Attributes of single modules that are computed when they are read.

The older weight norm and spectral norm use it. A module gets a new class with properties; the
functions that compute them are stored in the module, so that copies and pickles have them too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def _read(name: str) -> property:
    return property(lambda self: self.__dict__["_computed"][name](self))


def _reduced(self: Any, protocol: Any) -> Any:
    """Copies and pickles name the class itself; `Module.__setstate__` adds the properties again."""
    return object.__new__, (type(self).__bases__[0],), self.__dict__


@functools.cache
def _with_properties(kind: type, names: tuple[str, ...]) -> type:
    body: dict[str, Any] = {name: _read(name) for name in names}
    body |= {
        "__module__": kind.__module__,
        "__doc__": kind.__doc__,
        "__qualname__": kind.__qualname__,
    }
    body |= {"__reduce_ex__": _reduced, "_computed_names": names}
    return type(kind.__name__, (kind,), body)


def settle(module: Any) -> None:
    """Give a module the class with its computed attributes."""
    kind = type(module)
    plain = kind.__bases__[0] if "_computed_names" in vars(kind) else kind
    names = tuple(sorted(module.__dict__.get("_computed", ())))
    module.__class__ = _with_properties(plain, names) if names else plain


def add(module: Any, name: str, function: Callable[[Any], Any]) -> None:
    """Compute an attribute with `function(module)` from now on."""
    module.__dict__.setdefault("_computed", {})[name] = function
    settle(module)


def remove(module: Any, name: str) -> None:
    """Remove a computed attribute."""
    del module.__dict__["_computed"][name]
    if not module.__dict__["_computed"]:
        del module.__dict__["_computed"]
    settle(module)
