"""Results: the structure that a function returned, flattened and rebuilt.

Comes in: the result of a function. Goes out: a template: the same structure with a stand-in for
each tensor. Lists, tuples and dicts stay lists, tuples and dicts. An object that the function made,
such as a dataclass, becomes a `Record`, of which each replay makes a new object. Objects that
existed before get a stand-in too. Called by `capture.py`, `effects.py` and `use/replay.py`.
"""

from __future__ import annotations

import copy
import gc
import operator
import sys
import types
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Any

from ...core.tensor import Tensor
from ..guards.references import is_atom


class Record:
    """An object that a function made: a copy of it, its items and its attributes."""

    __slots__ = ("attributes", "items", "original")

    def __init__(self, original: Any, items: Any, attributes: dict[str, Any]) -> None:
        self.original = original
        self.items = items  # a dict if the object is one, else None
        self.attributes = attributes


class NotRepeatable(Exception):
    """A call has a result or an effect that a replay cannot repeat; the message says which."""


class Template:
    """Makes templates of structures: `leaf` is applied to tensors and plain values, `known` gives
    a stand-in for objects that existed before."""

    def __init__(self, leaf: Callable[[Any], Any], known: Callable[[Any], Any]) -> None:
        self.leaf = leaf
        self.known = known
        self._made: dict[int, Any] = {}
        self._kept: list[Any] = []

    def of(self, value: Any) -> Any:
        """The template of a value; an object that occurs twice has one template."""
        if isinstance(value, Tensor) or is_atom(value):
            return self.leaf(value)
        found = self._made.get(id(value))
        if found is None:
            self._kept.append(value)
            stand_in = self.known(value)
            found = self._new(value) if stand_in is None else stand_in
            self._made[id(value)] = found
        return found

    def _new(self, value: Any) -> Any:
        kind = type(value)
        if kind is list or kind is tuple:
            return kind([self.of(v) for v in value])
        if kind is dict:
            return {k: self.of(v) for k, v in value.items()}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return kind(*[self.of(v) for v in value])
        entries = attributes_of(value)
        odd = isinstance(value, (list, tuple, set, frozenset, deque, BaseException))
        if odd or (entries is None and not isinstance(value, dict)):
            raise NotRepeatable(
                f"it stores or returns an object of type {kind.__name__}, which a replay cannot "
                "make anew"
            )
        items = None
        if isinstance(value, dict):
            items = {k: self.of(v) for k, v in dict.items(value)}
        return Record(copy.copy(value), items, {k: self.of(v) for k, v in (entries or {}).items()})


def rebuilt(tree: Any, leaf: Callable[[Any], Any], made: dict[int, Any] | None = None) -> Any:
    """Rebuild the structure of a template."""
    made = {} if made is None else made
    found = made.get(id(tree))
    if found is not None:
        return found
    kind = tree.__class__
    result: Any
    if kind is list or kind is tuple:
        result = kind([rebuilt(v, leaf, made) for v in tree])
    elif kind is dict:
        result = {k: rebuilt(v, leaf, made) for k, v in tree.items()}
    elif kind is Record:
        result = copy.copy(tree.original)
        for key, value in (tree.items or {}).items():
            dict.__setitem__(result, key, rebuilt(value, leaf, made))
        for name, value in tree.attributes.items():
            object.__setattr__(result, name, rebuilt(value, leaf, made))
    elif isinstance(tree, tuple):
        result = kind(*[rebuilt(v, leaf, made) for v in tree])
    else:
        result = leaf(tree)
    made[id(tree)] = result
    return result


def matched(tree: Any, value: Any) -> Iterator[tuple[Any, Any]]:
    """The leaves of a template with their counterparts in a structure like it."""
    if isinstance(tree, (list, tuple)):
        for part, found in zip(tree, value, strict=True):
            yield from matched(part, found)
    elif isinstance(tree, dict):
        for key, part in tree.items():
            yield from matched(part, value[key])
    elif isinstance(tree, Record):
        for key, part in (tree.items or {}).items():
            yield from matched(part, dict.__getitem__(value, key))
        for name, part in tree.attributes.items():
            yield from matched(part, getattr(value, name))
    else:
        yield tree, value


def leaves(tree: Any) -> Iterator[Any]:
    """The leaves of a template, in order."""
    return (leaf for leaf, _ in matched(tree, rebuilt(tree, lambda leaf: leaf)))


def tensors_in(value: Any, depth: int = 0) -> Iterator[Tensor]:
    """All tensors in a returned structure, including those in attributes of objects."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item, depth)
    elif isinstance(value, dict):
        for item in dict.values(value):
            yield from tensors_in(item, depth)
    if depth < 4 and not isinstance(value, (list, tuple, Tensor)):
        for item in (attributes_of(value) or {}).values():
            yield from tensors_in(item, depth + 1)


def kept_elsewhere(result: Any, witness: Any, born: set[int]) -> bool:
    """Whether anything but the caller refers to a container of a result, or to a new tensor in it.

    `witness` is an object to which exactly the callers refer that refer to the result; `born` has
    the id() of each new tensor.
    """
    containers = _containers_in(result)
    known = _references(containers)
    changeable = [c for c in containers if not isinstance(c, tuple)]
    tensors = [tensor for tensor in tensors_in(result) if id(tensor) in born]
    parts = {id(part): part for part in (*changeable, *tensors)}
    del containers, changeable, tensors
    if not parts:
        return False
    inside: list[Any] = [object()]
    seen = [*parts.values(), inside[0], witness]
    *counts, of_child, of_result = map(sys.getrefcount, seen)
    # `parts` does not have the last two; one of their references is that of the containing list.
    expected = [known[key] + of_child for key in parts]
    if id(result) in parts:
        expected[list(parts).index(id(result))] += of_result + 1 - of_child
    if not any(map(operator.gt, counts, expected)):
        return False
    found = list(parts.values())
    del seen, parts
    return _has_referrers(found)


def _containers_in(result: Any) -> list[Any]:
    """The lists, tuples, dicts and objects of a returned structure."""
    found: list[Any] = []
    stack = [result]
    while stack:
        value = stack.pop()
        if isinstance(value, Tensor) or is_atom(value) or any(value is other for other in found):
            continue
        found.append(value)
        stack += _children(value)
    return found


def _references(containers: list[Any]) -> Counter[int]:
    """By id() of each child of the containers: how often they refer to it."""
    found: Counter[int] = Counter()
    for container in containers:
        found.update(map(id, _children(container)))
    return found


def _children(value: Any) -> list[Any]:
    """The items or attributes of a container."""
    if isinstance(value, (list, tuple)):
        return list(value)
    if isinstance(value, dict):
        return list(dict.values(value))
    return list((attributes_of(value) or {}).values())


def _has_referrers(parts: list[Any]) -> bool:
    """Whether any other object refers to one of `parts`: takes 10 ms per 100,000 objects."""
    if gc.get_freeze_count():
        return True  # the search skips objects that `gc.freeze` has set aside
    own = {id(c) for c in parts} | {id(getattr(c, "__dict__", None)) for c in parts}
    own.add(id(parts))
    for referrer in gc.get_referrers(*parts):
        if id(referrer) not in own and not isinstance(referrer, (types.FrameType, tuple)):
            return True
    return False


def attributes_of(value: Any) -> dict[str, Any] | None:
    """The attributes of an object that is only data; None for any other object."""
    kind = type(value)
    if isinstance(value, type) or callable(value) or hasattr(kind, "__next__"):
        return None
    entries = getattr(value, "__dict__", None)
    found = dict(entries) if type(entries) is dict else None
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(value, name) and name not in ("__dict__", "__weakref__"):
                found = {} if found is None else found
                found[name] = getattr(value, name)
    return found
