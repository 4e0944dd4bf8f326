"""Effects: changes of a recorded call to plain Python objects, which each replay repeats.

Comes in: the world before a recorded call, and the same objects after it (`effects_of`). Goes out:
`Effect`s: a result that was stored (an attribute, an item, an element appended to a list), or a
counter that went up. Any other change raises `NotRepeatable`. The values to store are part of the
structure that the recording returns. Called by `use/compiled.py` and `use/variant.py`.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from ..guards.references import (
    MISSING,
    Mark,
    Reference,
    context_value,
    dict_item,
    instance_dict,
    is_atom,
    items_of,
    itself,
    same_atom,
)
from ..guards.scope import ANY
from ..guards.world import World
from .results import NotRepeatable

STORE, ADD, EXTEND, FILL, DELETE = "store", "add", "extend", "fill", "delete"


@dataclass(frozen=True, slots=True)
class Effect:
    """One change to repeat after a replay."""

    kind: str
    path: str
    mark: Mark | None  # the object that is changed, or that contains it; None for an argument
    keys: tuple[Any, ...]  # the path from the mark to a container inside
    key: Any  # the entry of the container; MISSING for the reference of the mark itself
    argument: int = -1  # the index of the container among the arguments
    amount: int = 0
    attribute: bool = False  # whether the key is an attribute of the mark's object

    def do(self, value: Any, containers: Sequence[Any]) -> None:
        """Repeat the change, with the value that this replay has made."""
        reference = self._target(containers)
        if self.kind == STORE:
            reference.write(value)
        elif self.kind == DELETE:
            reference.write(MISSING)
        elif self.kind == ADD:
            reference.write(reference.read() + self.amount)
        elif self.kind == EXTEND:
            reference.read().extend(value)
        else:
            _fill(reference.read(), value)

    def undo(self, before: Any, containers: Sequence[Any]) -> None:
        """Restore the state before the change."""
        reference = self._target(containers)
        if self.kind in (EXTEND, FILL):
            _fill(reference.read(), before)
        else:
            reference.write(before)

    def _target(self, containers: Sequence[Any]) -> Reference:
        if self.mark is None:
            owner = containers[self.argument]
        else:
            if self.key is MISSING and not self.keys:
                return self.mark.reference
            owner = self.mark.reference.read()
            for key in self.keys:
                owner = owner[key]
        if self.key is MISSING:
            return Reference(owner, None, itself)
        if self.attribute:
            return Reference(instance_dict(owner), self.key, dict_item)
        if isinstance(owner, dict):
            return Reference(owner, self.key, dict_item)
        if isinstance(owner, (list, deque)):
            return Reference(owner, self.key, operator.getitem)
        raise TypeError(f"nothing is kept under {self.key!r} in a {type(owner).__name__}")


def _fill(container: Any, items: Any) -> None:
    """Replace the contents of a list, a deque or a set."""
    kept = list(items)
    container.clear()
    (container.extend if hasattr(container, "extend") else container.update)(kept)


class Effects:
    """The effects of one recorded call, and the values that they store."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.values: list[Any] = []
        self._before: list[Any] = []

    def add(self, effect: Effect, before: Any, value: Any = None) -> None:
        self.effects.append(effect)
        self._before.append(before)
        if effect.kind in (STORE, EXTEND, FILL):
            self.values.append(value)

    def do(self, values: Sequence[Any], containers: Sequence[Any]) -> None:
        """Repeat all effects, with the values that a replay has made."""
        following = iter(values)
        for effect in self.effects:
            stores = effect.kind in (STORE, EXTEND, FILL)
            effect.do(next(following) if stores else None, containers)

    def undo(self, containers: Sequence[Any], besides: Collection[str] = ()) -> None:
        """Restore the state before the call, except at the paths in `besides`."""
        for effect, before in zip(self.effects, self._before, strict=True):
            if effect.path not in besides:
                effect.undo(before, containers)


def effects_of(world: World, containers: Sequence[Any], copies: Sequence[Any]) -> Effects:
    """The effects of a call on a world, and on containers in its arguments, copied before the call.

    Raises `NotRepeatable`.
    """
    found = Effects()
    moved = world.moved()
    if moved is not None:
        raise NotRepeatable(f"it advances {moved}, which a replay would not do")
    _marks(world, found)
    _members(world, found)
    done: set[int] = set()
    for at, keys, container, copy in world.reach.containers:
        mark = world.marks[at]
        contents = mark.kind == "collected"
        if id(container) not in done:
            counted = world.reach.counted.get(id(container), ())
            path = world.path(at)
            _container(found, container, copy, contents, path, mark, keys, counted=counted)
        done.add(id(container))
    seen: set[int] = set()
    for i, (container, copy) in enumerate(zip(containers, copies, strict=True)):
        before = len(found.effects)
        if id(container) in seen:
            continue
        seen.add(id(container))
        _container(found, container, copy, True, f"argument container {i}", None, (), i)
        if len(found.effects) > before and id(container) in done:
            raise NotRepeatable(f"it changes an argument that it also reaches otherwise ({i})")
    for variables, name in world.reach.absent:
        if name in variables:
            raise NotRepeatable(f"it defines the global variable {name}")
    for at, entries, name in world.reach.unset:
        if name in entries:
            raise NotRepeatable(f"it sets {world.path(at)}.{name}, which was not there before")
    return found


def shown_key(key: Any) -> str:
    """A key as text, without reading a tensor."""
    return repr(key) if is_atom(key) else "..."


def bytes_of(data: Any) -> bytes:
    """The contents of an array or a buffer."""
    return bytes(data.tobytes() if hasattr(data, "tobytes") else data)


def _marks(world: World, found: Effects) -> None:
    """Find references whose value has changed."""
    done: set[tuple[int, Any]] = set()  # two objects may have one dictionary of attributes
    for at, mark in enumerate(world.marks):
        reference = mark.reference
        if mark.kind == "array" and bytes_of(mark.raw) != mark.detail[2]:
            raise NotRepeatable(f"it writes into the NumPy array {world.path(at)}")
        if mark.kind == "cache" and mark.raw.cache_info().currsize != mark.detail:
            raise NotRepeatable(f"it fills the cache of {world.path(at)}")
        if reference.get is context_value and reference.read() is not mark.raw:
            raise NotRepeatable(f"it sets the context variable {world.path(at)}")
        if not reference.is_stored() or isinstance(reference.owner, (list, deque)):
            continue
        if mark.parent >= 0 and world.marks[mark.parent].kind == "collected":
            continue  # `_container` compares it
        if reference.get is dict_item and (id(reference.owner), reference.key) in done:
            continue
        done.add((id(reference.owner), reference.key))
        now = reference.read()
        if now is mark.raw or (is_atom(now) and is_atom(mark.raw) and same_atom(now, mark.raw)):
            continue
        path = world.path(at)
        if mark.kind == "counted" and type(now) is int:
            amount = now - mark.raw
            found.add(Effect(ADD, path, mark, (), MISSING, amount=amount), mark.raw)
        elif mark.kind == "counted":
            raise NotRepeatable(f"it changes {path} by a number that is not whole")
        else:
            kind = DELETE if now is MISSING else STORE
            stored = None if now is MISSING else now
            found.add(Effect(kind, path, mark, (), MISSING), mark.raw, stored)


def _members(world: World, found: Effects) -> None:
    """Find new attributes, and deleted attributes that no reference compares."""
    known = {
        (id(m.reference.owner), m.reference.key) for m in world.marks if m.reference.is_stored()
    }
    for at, entries, names in world.members():
        mark = world.marks[at]
        path = world.path(at)
        for name in [n for n in entries if n not in names]:
            effect = Effect(STORE, f"{path}.{name}", mark, (), name, attribute=True)
            found.add(effect, MISSING, entries[name])
        for name in set(names) - entries.keys():
            if (id(entries), name) not in known:
                raise NotRepeatable(f"it deletes {path}.{name}")


def _container(
    found: Effects,
    container: Any,
    copy: Any,
    contents: bool,
    path: str,
    mark: Mark | None,
    keys: tuple[Any, ...],
    argument: int = -1,
    counted: Collection[Any] = (),
) -> None:
    """Find items that were added, changed or deleted in a list, dict, set or deque."""
    if isinstance(container, dict):
        pairs, earlier = [*dict.items(container)], [*copy.items()]
        if len(pairs) == len(earlier) and all(
            a is c and b is d for (a, b), (c, d) in zip(pairs, earlier, strict=True)
        ):
            return
        kept = [key for key in dict.keys(container) if key in copy]
        before_it = [key for key in copy if dict.__contains__(container, key)]
        if not all(map(operator.is_, kept, before_it)):
            raise NotRepeatable(f"it changes the order of {path}")
        for key, value in dict.items(container):
            before = copy.get(key, MISSING)
            if before is value or (before is not MISSING and not contents):
                continue
            where = f"{path}[{shown_key(key)}]"
            if is_atom(before) and is_atom(value) and same_atom(before, value):
                continue
            if type(before) is int and type(value) is int and _counts(counted, key):
                amount = value - before
                found.add(Effect(ADD, where, mark, keys, key, argument, amount), before)
            else:
                found.add(Effect(STORE, where, mark, keys, key, argument), before, value)
        for key in copy:
            if key not in container and (contents or mark is None):
                where = f"{path}[{shown_key(key)}]"
                found.add(Effect(DELETE, where, mark, keys, key, argument), copy[key])
        return
    now = items_of(container)
    if isinstance(container, (set, frozenset)):
        if {*map(id, container)} != {*map(id, copy)}:
            found.add(Effect(FILL, path, mark, keys, MISSING, argument), copy, now)
        return
    if len(now) == len(copy) and all(map(operator.is_, now, copy)):
        return
    if contents and len(now) == len(copy) and isinstance(container, list):
        for i, (value, before) in enumerate(zip(now, copy, strict=True)):
            if value is not before:
                kind = ADD if type(value) is type(before) is int and _counts(counted, i) else STORE
                amount = value - before if kind == ADD else 0
                effect = Effect(kind, f"{path}[{i}]", mark, keys, i, argument, amount)
                found.add(effect, before, value)
        return
    added = _added(now, copy, getattr(container, "maxlen", None))
    kind = FILL if added is None else EXTEND
    stored = now if added is None else added
    found.add(Effect(kind, path, mark, keys, MISSING, argument), copy, stored)


def _counts(counted: Collection[Any], key: Any) -> bool:
    """Whether the item under a key is a counter."""
    return key in counted or ANY in counted


def _added(now: list[Any], copy: list[Any], limit: int | None) -> list[Any] | None:
    """The items that were appended, if nothing else changed; else None."""
    for count in range(1, min(len(now), 64) + 1):
        expected = [*copy, *now[-count:]]
        expected = expected if limit is None else expected[-limit:] if limit else []
        if len(expected) == len(now) and all(map(operator.is_, expected, now)):
            return now[-count:]
    longer = len(now) > len(copy) and all(map(operator.is_, now, copy))
    return now[len(copy) :] if longer and limit is None else None
