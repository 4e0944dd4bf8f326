"""Effects: what a recorded call did to plain Python objects, done again by each replay.

`effects_of` compares the world before a recorded call with what is there afterwards. A result that
was stored (an attribute, an item, an element appended to a list) and a counter that went up become
`Effect`s; what cannot be done again raises `NotRepeatable`. The values to store are part of the
structure that the recording returns.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .results import NotRepeatable
from .world import MISSING, Mark, Place, World, is_atom, same_atom

STORE, ADD, EXTEND, FILL, DELETE = "store", "add", "extend", "fill", "delete"


@dataclass(frozen=True, slots=True)
class Effect:
    """One thing to do after a replay."""

    kind: str
    path: str
    mark: Mark | None  # what is changed, or holds what is changed; None for an argument
    keys: tuple[Any, ...]  # lead from there to a container within
    key: Any  # the entry of the container; MISSING for the place of the mark itself
    argument: int = -1  # which container among the arguments
    amount: int = 0

    def do(self, value: Any, containers: Sequence[Any]) -> None:
        """Repeat it, with the value that this replay has made."""
        place = self._place(containers)
        if self.kind == STORE:
            place.write(value)
        elif self.kind == DELETE:
            place.write(MISSING)
        elif self.kind == ADD:
            place.write(place.read() + self.amount)
        elif self.kind == EXTEND:
            place.read().extend(value)
        else:
            _fill(place.read(), value)

    def undo(self, before: Any, containers: Sequence[Any]) -> None:
        """Put back what was there."""
        place = self._place(containers)
        if self.kind in (EXTEND, FILL):
            _fill(place.read(), before)
        else:
            place.write(before)

    def _place(self, containers: Sequence[Any]) -> Place:
        if self.mark is None:
            owner = containers[self.argument]
        else:
            if self.key is MISSING and not self.keys:
                return self.mark.place
            owner = self.mark.place.read()
            for key in self.keys:
                owner = owner[key]
        if self.key is MISSING:
            return Place(owner, None, lambda owner, _: owner)
        if isinstance(owner, dict):
            return Place(owner, self.key, dict.__getitem__)
        if isinstance(owner, (list, deque)):
            return Place(owner, self.key, operator.getitem)
        return Place(owner.__dict__, self.key, dict.__getitem__)


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
        """Repeat all, with the values that a replay has made."""
        following = iter(values)
        for effect in self.effects:
            stores = effect.kind in (STORE, EXTEND, FILL)
            effect.do(next(following) if stores else None, containers)

    def undo(self, containers: Sequence[Any]) -> None:
        """Put back what was there before the call."""
        for effect, before in zip(self.effects, self._before, strict=True):
            effect.undo(before, containers)


def effects_of(world: World, containers: Sequence[Any], copies: Sequence[Any]) -> Effects:
    """What a call did to a world, and to containers among its arguments, of which copies are given.

    Raises `NotRepeatable`.
    """
    found = Effects()
    moved = world.moved()
    if moved is not None:
        raise NotRepeatable(f"it advances {moved}, which a replay would not do")
    _marks(world, found)
    _members(world, found)
    for at, keys, container, copy in world.containers:
        mark = world.marks[at]
        contents = mark.kind == "collected"
        _container(found, container, copy, contents, world.path(at), mark, keys)
    for i, (container, copy) in enumerate(zip(containers, copies, strict=True)):
        _container(found, container, copy, True, f"argument container {i}", None, (), i)
    for variables, name in world.absent:
        if name in variables:
            raise NotRepeatable(f"it defines the global variable {name}")
    return found


def bytes_of(data: Any) -> bytes:
    """The contents of an array or a buffer."""
    return bytes(data.tobytes() if hasattr(data, "tobytes") else data)


def _marks(world: World, found: Effects) -> None:
    """Places whose value is another one now."""
    for at, mark in enumerate(world.marks):
        place = mark.place
        if mark.kind == "array" and bytes_of(mark.raw) != mark.detail[2]:
            raise NotRepeatable(f"it writes into the NumPy array {world.path(at)}")
        if not place.is_stored() or isinstance(place.owner, (list, deque)):
            continue
        now = place.read()
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
    """Attributes that are new, and attributes that are gone and were not compared."""
    known = {(id(m.place.owner), m.place.key) for m in world.marks if m.place.is_stored()}
    for at, entries, names in world.members():
        mark = world.marks[at]
        path = world.path(at)
        for name in entries.keys() - set(names):
            effect = Effect(STORE, f"{path}.{name}", mark, (), name)
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
) -> None:
    """What is new, other or gone in a list, a dict or the like."""
    if isinstance(container, dict):
        for key, value in dict.items(container):
            before = copy.get(key, MISSING)
            if before is value or (before is not MISSING and not contents):
                continue
            where = f"{path}[{key!r}]"
            if is_atom(before) and is_atom(value) and same_atom(before, value):
                continue
            if type(before) is int and type(value) is int and contents and mark is not None:
                amount = value - before
                found.add(Effect(ADD, where, mark, keys, key, argument, amount), before)
            else:
                found.add(Effect(STORE, where, mark, keys, key, argument), before, value)
        for key in copy:
            if key not in container and (contents or mark is None):
                where = f"{path}[{key!r}]"
                found.add(Effect(DELETE, where, mark, keys, key, argument), copy[key])
        return
    now = list(container)
    if isinstance(container, (set, frozenset)):
        if container != copy:
            found.add(Effect(FILL, path, mark, keys, MISSING, argument), copy, now)
        return
    if len(now) == len(copy) and all(map(operator.is_, now, copy)):
        return
    added = _added(now, copy, getattr(container, "maxlen", None))
    kind = FILL if added is None else EXTEND
    stored = now if added is None else added
    found.add(Effect(kind, path, mark, keys, MISSING, argument), copy, stored)


def _added(now: list[Any], copy: list[Any], limit: int | None) -> list[Any] | None:
    """What was appended, if nothing else happened."""
    for count in range(1, min(len(now), 64) + 1):
        expected = [*copy, *now[-count:]]
        expected = expected if limit is None else expected[-limit:] if limit else []
        if len(expected) == len(now) and all(map(operator.is_, expected, now)):
            return now[-count:]
    longer = len(now) > len(copy) and all(map(operator.is_, now, copy))
    return now[len(copy) :] if longer and limit is None else None
