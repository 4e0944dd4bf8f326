"""Tracks which memory was overwritten, when, and by which line.

A storage is the array that owns memory; every view of it leads there through `.base`. In-place
operations call `note`, so tensors that are never changed in place cost nothing. A saved value is
stale if its storage was changed after the entry that saved it: the engine calls `changed_since`
before it uses the value.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np

from . import locks, numeric
from .modes import numbers
from .source import Location, here


class Mutation:
    """The latest change of one storage."""

    __slots__ = ("count", "location", "number", "owner")

    def __init__(self, owner: weakref.ref[Any]) -> None:
        self.owner = owner
        self.count = 0
        self.number = 0
        self.location: Location | None = None


_mutations: dict[int, Mutation] = {}

_counting = locks.new()

# The sequence number of the newest change of any storage. Backward does not check newer entries.
latest = 0


def _next_change() -> int:
    global latest
    with _counting:
        latest = number = next(numbers)
    return number


def owner_of(array: Any) -> Any:
    """The array that owns the memory of `array`."""
    kind = type(array)
    base = array.base
    while type(base) is kind:
        array = base
        base = array.base
    return array if base is None or kind is np.ndarray else _owner_of_shown(array)


def writable(array: Any) -> Any:
    """The same elements as an array that can be written to; None if their memory cannot.

    NumPy makes arrays with repeated elements read-only, and then every part of them.
    """
    owner = owner_of(array)
    if array.flags.writeable or not owner.flags.writeable or not owner.flags.forc:
        return array if array.flags.writeable else None
    memory = owner.reshape(-1, order="A").view(np.uint8)
    start = array.__array_interface__["data"][0] - memory.__array_interface__["data"][0]
    return np.ndarray(array.shape, array.dtype, memory, start, array.strides)


def shared_copy(array: Any) -> Any:
    """A copy in memory that forked processes share with this one."""
    import mmap

    memory = np.frombuffer(mmap.mmap(-1, max(array.nbytes, 1)), np.uint8, array.nbytes)
    copy = memory.view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _owner_of_shown(array: Any) -> Any:
    """The owner for an array whose base has another class: follow NumPy arrays to their root."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def apart(array: Any) -> Any:
    """An array on the same memory whose changes do not count as changes of `array`."""
    if array.dtype.isbuiltin != 1:  # the buffer protocol cannot describe dtypes of other packages
        raw = f"u{array.dtype.itemsize}"
        return np.asarray(array.view(raw).data).view(array.dtype)
    return np.asarray(array.data)


def rejoined(array: Any) -> Any:
    """The array that `apart` was given, if it made `array`; else `array` itself."""
    if array.base is None:
        return array
    memory = getattr(array.base, "base", None) if numeric.is_foreign(array.dtype) else array.base
    if not isinstance(memory, memoryview) or not isinstance(memory.obj, np.ndarray):
        return array
    given = memory.obj
    return given if given.dtype == array.dtype else given.view(array.dtype)


def find(array: Any) -> Mutation | None:
    """The latest change of the memory of `array`, or None if it was never changed."""
    return _mutations.get(id(owner_of(array)))


def note(array: Any) -> int:
    """Record that the memory of `array` was just overwritten; returns the change's number."""
    number = _next_change()
    mutation = _change_of(owner_of(array))
    mutation.count += 1
    mutation.number = number
    mutation.location = here()
    return number


def changes_of(arrays: Iterable[Any]) -> list[Mutation]:
    """The `Mutation` of each storage of the arrays, for `note_changes`; valid while they live."""
    found = {id(owner): owner for owner in map(owner_of, arrays)}
    return [_change_of(owner) for owner in found.values()]


def note_changes(changes: Iterable[Mutation]) -> int:
    """Record that all these storages were just overwritten, by one line."""
    number = _next_change()
    location = here()
    for mutation in changes:
        mutation.count += 1
        mutation.number = number
        mutation.location = location
    return number


def _change_of(owner: Any) -> Mutation:
    key = id(owner)
    mutation = _mutations.get(key)
    if mutation is None:
        forget = _mutations.pop
        mutation = Mutation(weakref.ref(owner, lambda _: forget(key, None)))
        _mutations[key] = mutation
    return mutation


def version(array: Any) -> int:
    """How many times the memory of `array` was changed in place."""
    mutation = find(array)
    return 0 if mutation is None else mutation.count


def count_from(array: Any, earlier: int) -> None:
    """Continue the count of changes from that of the memory which this array replaces."""
    mutation = _change_of(owner_of(array))
    mutation.count = max(mutation.count, earlier + 1)


def changed_since(array: Any, number: float) -> Mutation | None:
    """The latest change of the memory of `array`, if its sequence number is above `number`."""
    mutation = find(array)
    return mutation if mutation is not None and mutation.number > number else None
