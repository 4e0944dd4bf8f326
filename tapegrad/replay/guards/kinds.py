"""Kinds of objects: what the walk finds out about an object without running its code.

Comes in: an object or a type. Goes out: whether it is closed or opaque, its slots, its items, its
path as text. Nothing here runs code of the objects, except for containers of Python's own types.
Called by `walk.py`, `attributes.py`, `reach.py` and `world.py`.
"""

from __future__ import annotations

import functools
import logging
import random
import threading
import types
from collections import defaultdict, deque
from collections.abc import Iterable
from operator import getitem, is_
from typing import Any, Generic

import numpy as np

from ...core.naming import home_of
from ...core.tensor import Tensor
from .references import Mark, Reference, dict_item, is_atom, items_of
from .scope import ANY

#: C functions that access attributes by computed names
REFLECTIVE = {"getattr", "hasattr", "setattr", "vars", "dir", "__getattribute__", "eval", "exec"}
#: methods of modules that iterate over all parameters, buffers or modules
TREE_WALKS = {
    *("parameters", "named_parameters", "buffers", "named_buffers", "state_dict", "modules"),
    *("named_modules", "children", "named_children", "apply", "_parameters", "_buffers"),
}
#: packages of the library whose objects hold what users set, and whose code reads it: attributes
#: of layers and distributions, hooks, datasets
_WATCHED = (
    *("tapegrad.nn", "tapegrad.data", "tapegrad.amp", "tapegrad.optim", "tapegrad.distributions"),
    *("tapegrad.parallel", "tapegrad.quasirandom", "tapegrad.dialects"),
    *("tapegrad.cpu.amp", "tapegrad.cuda.amp", "tapegrad.demos", "tapegrad.compat"),
)
#: modules inside them whose objects users do not see
_INTERNAL = tuple(f"tapegrad.parallel.{name}" for name in ("buckets", "bundles", "prefetch"))
#: packages whose modules and classes keep their attributes
CLOSED = (
    *("tapegrad", "numpy", "scipy", "llvmlite", "torch", "jax", "jaxlib", "builtins"),
    *("cupy", "cupyx"),
)
#: the flag of heap types, such as classes defined in Python
HEAP_TYPE = 1 << 9
#: C types whose subclasses the walk can visit
_TRANSPARENT = {
    *(dict, list, tuple, set, frozenset, deque, defaultdict, int, float, complex, str, bytes),
    *(threading.local, functools.partial, np.ndarray, types.SimpleNamespace, Generic),
}

#: the attributes through which objects of Python's own types refer to others
WRAPPERS: dict[type, tuple[str, ...]] = {
    types.MethodType: ("__self__", "__func__"),
    functools.partial: ("func", "args", "keywords"),
    functools.partialmethod: ("func", "args", "keywords"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    property: ("fget", "fset"),
    functools.cached_property: ("func",),
}


class Unguardable(Exception):
    """The walk has reached an object whose state cannot be compared; the message names it."""


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor, without reading its `__class__`."""
    return issubclass(type(value), Tensor)


def key_marks(keys: list[Any]) -> list[Any]:
    return [k if is_atom(k) else None for k in keys]


def same_items(a: Iterable[Any], b: Iterable[Any]) -> bool:
    first, second = list(a), list(b)
    return len(first) == len(second) and all(map(is_, first, second))


def same_items_but_tensors(value: Any, before: list[Any]) -> bool:
    now = items_of(value)
    return len(now) == len(before) and all(
        a is b or (is_tensor(a) and is_tensor(b)) for a, b in zip(now, before, strict=True)
    )


def is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def stands(reference: Reference, value: Any) -> bool:
    return reference.read() is value


def fits(container: Any, uses: Iterable[tuple[str, Any]]) -> bool:
    """Whether a container supports all uses by code that puts values into it."""
    get = dict_item if isinstance(container, dict) else getitem
    counted, stored = ({key for how, key in uses if how == use} for use in ("count", "store"))
    if counted and stored and (ANY in counted | stored or counted & stored):
        return False  # increases and stores of one item cannot be told apart
    for how, key in uses:
        if how == "append" and key is None:
            if not isinstance(container, (list, deque)):
                return False
        elif how == "append":
            inner = Reference(container, key, get).read()
            if type(inner) not in (list, deque):
                return False
        elif not isinstance(container, (list, dict)):
            return False
        elif how == "count":
            if key is not ANY:
                held = [Reference(container, key, get).read()]
            else:
                held = [*container.values()] if isinstance(container, dict) else [*container]
            if any(type(v) is not int for v in held):
                return False
    return True


def copied(container: Any) -> Any:
    return dict(container) if isinstance(container, dict) else list(container)


def is_watched(module: str) -> bool:
    """Whether a module of the library holds or reads what users set."""
    return module.startswith(_WATCHED) and not module.startswith(_INTERNAL)


def has_user_state(kind: type) -> bool:
    """Whether objects of a class of the library, or of a base class, hold what users set."""
    return any(is_watched(home_of(base)) for base in kind.__mro__)


def is_closed(value: Any) -> bool:
    """Whether a class or module belongs to a package whose attributes do not change."""
    name = value.__name__ if isinstance(value, types.ModuleType) else value.__module__
    return str(name).split(".", 1)[0] in CLOSED


def code_of(value: Any) -> Any:
    """The code of a function, or of the function inside a method, property or similar object."""
    for name in ("__func__", "fget", "func", "__wrapped__"):
        inner = getattr(value, name, None) if not isinstance(value, types.FunctionType) else None
        if isinstance(inner, types.FunctionType):
            return inner.__code__
    return value.__code__ if isinstance(value, types.FunctionType) else None


@functools.lru_cache(maxsize=4096)
def slots(kind: type) -> tuple[str, ...]:
    names = kind.__dict__["__slots__"]
    names = (names,) if isinstance(names, str) else tuple(names)
    private = f"_{kind.__name__.lstrip('_')}"
    return tuple(
        f"{private}{n}" if n.startswith("__") and not n.endswith("__") else n
        for n in names
        if n not in ("__dict__", "__weakref__")
    )


def state_of(value: Any) -> Any:
    """The hidden state of a random generator or of a running generator function."""
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, np.random.RandomState):
        return repr(value.get_state(legacy=False))
    return None if value.gi_frame is None else value.gi_frame.f_lasti


def lineage(logger: logging.Logger) -> list[logging.Logger]:
    """A logger and all its parents."""
    found: list[logging.Logger] = []
    at: logging.Logger | None = logger
    while at is not None:
        found.append(at)
        at = at.parent
    return found


def logger_state(logger: logging.Logger) -> list[Any]:
    """Everything that decides whether a logger writes, and to which handlers."""
    return [
        logger.manager.disable,
        *(
            (
                id(at),
                at.level,
                at.disabled,
                at.propagate,
                [*map(id, at.handlers)],
                [*map(id, at.filters)],
            )
            for at in lineage(logger)
        ),
    ]


def weak_items(value: Any) -> list[Any]:
    return [x for pair in value.items() for x in pair] if hasattr(value, "items") else [*value]


def weak_ids(value: Any) -> list[int]:
    """The sorted ids of the objects in a weak dictionary or set."""
    return sorted(map(id, weak_items(value)))


def is_opaque(kind: type) -> bool:
    """Whether objects of a type may have state that Python cannot see."""
    if kind in _TRANSPARENT:
        return False
    if not kind.__flags__ & HEAP_TYPE:
        return True
    if any("__dict__" in b.__dict__ or "__slots__" in b.__dict__ for b in kind.__mro__):
        # A class in Python, but a base class in C may have state of its own.
        return any(
            not b.__flags__ & HEAP_TYPE and b is not object and b not in _TRANSPARENT
            for b in kind.__mro__
        )
    return True


def path_of(marks: list[Mark], parent: int, step: str) -> str:
    """The path to an object that was found, as a user would write it."""
    steps = [step]
    while parent >= 0:
        steps.append(marks[parent].step)
        parent = marks[parent].parent
    text = "".join(s for s in reversed(steps) if s not in (".__class__", ".__func__"))
    return text.replace("__main__.", "").replace(".__self__", ".self").lstrip(".")
