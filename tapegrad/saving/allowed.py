"""Which classes files may hold, and how a class is found by its name in a file.

A file holds only names of classes, and nothing that it names is imported. `class_named` finds the
library's own classes, those registered with `add_safe_globals` and, if the caller trusts the file,
any module class that the program has defined. Called by `objects.py`, and by users as
`tapegrad.serialization`.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from ..core.naming import home_of
from ..nn.module import Module
from ..nn.state import SavedByParts
from .errors import SavingError

_LIBRARY = "tapegrad."

#: modules with more such classes, imported when a class is not found at once
_MORE = (
    "tapegrad.nn.utils.prune",
    "tapegrad.nn.utils.spectral_norm",
    "tapegrad.nn.utils.weight_norm",
    "tapegrad.optim.swa_utils",
)

_safe: dict[str, Any] = {}


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Let files hold objects of these classes; `(class, name)` gives one another name.

    >>> import io, tapegrad
    >>> class Scale(tapegrad.nn.Module):
    ...     def __init__(self, factor):
    ...         super().__init__()
    ...         self.factor = factor
    ...
    ...     def forward(self, x):
    ...         return self.factor * x
    >>> file = io.BytesIO()
    >>> tapegrad.save(Scale(3), file)
    >>> with tapegrad.serialization.safe_globals([Scale]):
    ...     tapegrad.load(io.BytesIO(file.getvalue()))(tapegrad.ones(2))
    tensor([3., 3.])
    """
    for item in safe_globals:
        value, name = item if isinstance(item, tuple) else (item, full_name(item))
        _safe[name] = value


def clear_safe_globals() -> None:
    """Forget all classes registered with `add_safe_globals`."""
    _safe.clear()


def get_safe_globals() -> list[Any]:
    """What `add_safe_globals` was given."""
    return list(_safe.values())


@contextmanager
def safe_globals(safe_globals: list[Any]) -> Iterator[None]:
    """`add_safe_globals` while the block runs."""
    before = dict(_safe)
    add_safe_globals(safe_globals)
    try:
        yield
    finally:
        _safe.clear()
        _safe.update(before)


def safe_global(name: str) -> Any:
    """The class or function registered under a name, or None."""
    return _safe.get(name)


def full_name(kind: Any) -> str:
    """The name of a class or function, qualified with its module."""
    return f"{kind.__module__}.{kind.__qualname__}"


def saved_name(kind: type) -> str:
    """The name of a class in files: its defining module and its own name."""
    known = next((name for name, value in _safe.items() if value is kind), None)
    return known or f"{home_of(kind)}.{kind.__qualname__}"


def may_be_saved(kind: type) -> bool:
    """Whether files may hold objects of a class."""
    return issubclass(kind, SavedByParts) or any(value is kind for value in _safe.values())


def class_named(name: str, trusted: bool) -> type:
    """The class that a file names; if `trusted`, also module classes that the program defined."""
    found = _safe.get(name)
    if found is None and name.startswith(_LIBRARY):
        found = _defined(SavedByParts, name) or _defined_in_library(name)
    if found is None and trusted:
        found = _defined(Module, name)
    if isinstance(found, type):
        return found
    short = name.rpartition(".")[2][:80]
    raise SavingError(
        f"the file holds an object of {name[:200]!r}, a class that load does not know: import it, "
        f"and allow it with tapegrad.serialization.add_safe_globals([{short}]) or, if it is a "
        "module, with load(..., weights_only=False)"
    )


def _defined_in_library(name: str) -> type | None:
    from .. import nn

    for file in _MORE:
        import_module(file)
    assert nn.SyncBatchNorm is not None  # `nn` imports it on first access
    return _defined(SavedByParts, name)


def _defined(base: type, name: str) -> type | None:
    """The class derived from `base` with a name, if it exists already; nothing is imported."""
    found: list[type] = []
    waiting, seen = deque([base]), {base}
    while waiting:  # in the order of definition
        kind = waiting.popleft()
        derived: Any
        for derived in type.__subclasses__(kind):
            if derived not in seen:
                seen.add(derived)
                waiting.append(derived)
        # Weight norm and `compile` make classes for single objects, with the name of their base.
        made_for_one = kind.__bases__ and _named(kind) in map(_named, kind.__bases__)
        if _named(kind) == name and not made_for_one:
            found.append(kind)
    # A class that was defined again: the one that its module shows now, or the latest.
    return next((kind for kind in found if _shown(kind)), found[-1] if found else None)


def _named(kind: type) -> str:
    return f"{home_of(kind)}.{kind.__qualname__}"


def _shown(kind: type) -> bool:
    shown: Any = sys.modules.get(kind.__module__)
    for part in kind.__qualname__.split("."):
        shown = vars(shown).get(part) if hasattr(shown, "__dict__") else None
    return shown is kind
