"""Comparisons: what a world compares by identity before each replay.

Comes in: owners, keys and values that the walk (`walk.py`, `reach.py`) has found. Goes out: tests
that all of them are still the same objects (`write`). `world.py` compiles them into one function.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import WrapperDescriptorType
from typing import Any

from .conjunction import Conjunction
from .kinds import is_tensor, same_items_but_tensors
from .references import instance_dict

#: most items of a list that are each compared in the generated text
MOST_ITEMS_WRITTEN = 64


class Table:
    """Owners, keys, and the values stored there."""

    __slots__ = ("keys", "owners", "values")

    def __init__(self) -> None:
        self.owners: list[Any] = []
        self.keys: list[Any] = []
        self.values: list[Any] = []

    def add(self, owner: Any, key: Any, value: Any) -> None:
        self.owners.append(owner)
        self.keys.append(key)
        self.values.append(value)

    def __iter__(self) -> Iterator[tuple[Any, Any, Any]]:
        return zip(self.owners, self.keys, self.values, strict=True)

    def without(self, left_out: set[tuple[int, Any]]) -> Table:
        """A copy without some pairs of an owner's id and a key."""
        table = Table()
        for owner, key, value in self:
            if not isinstance(key, (str, int)) or (id(owner), key) not in left_out:
                table.add(owner, key, value)
        return table


class Comparisons:
    """The values that a world compares by identity."""

    def __init__(self) -> None:
        self.entries = Table()  # of dictionaries
        self.classes = Table()  # of classes
        self.parts = Table()  # read with getattr: slots, cells, parts of functions
        #: objects with their types and dictionaries
        self.objects: list[Any] = []
        self.types: list[Any] = []
        self.dicts: list[Any] = []
        #: dictionaries whose keys are compared, and those whose number of entries is
        self.named: list[Any] = []
        self.names: list[list[str]] = []
        self.sized: list[Any] = []
        self.sizes: list[int] = []
        #: lists with their lengths, and the items that are not tensors with their indices
        self.lists: list[tuple[list[Any], int, list[tuple[int, Any]]]] = []
        #: everything else, as functions that return whether a value is unchanged
        self.tests: list[Callable[[], bool]] = []

    def add_object(self, value: Any, entries: dict[str, Any]) -> None:
        """Compare an object's class, its dictionary, and the keys of that."""
        self.objects.append(value)
        self.types.append(type(value))
        self.dicts.append(entries)
        self.add_names(entries)

    def add_names(self, entries: Any) -> None:
        """Compare the keys of a dictionary and their order."""
        self.named.append(entries)
        self.names.append(list(entries))

    def add_size(self, entries: dict[str, Any]) -> None:
        """Compare the number of entries of a dictionary."""
        self.sized.append(entries)
        self.sizes.append(len(entries))

    def add_list(self, value: list[Any], items: list[Any]) -> None:
        """Compare the items of a list; tensors are left to `World.settle`."""
        plain = [(i, item) for i, item in enumerate(items) if not is_tensor(item)]
        if type(value) is list and len(plain) <= MOST_ITEMS_WRITTEN:
            self.lists.append((value, len(items), plain))
        else:
            self.tests.append(functools.partial(same_items_but_tensors, value, items))

    def write(self, tests: Conjunction) -> None:
        """Add all comparisons to `tests`."""
        name = tests.name
        for owner, key, value in self.entries:
            tests.add_entry(owner, key, value)
        for owner, key, value in self.parts:
            tests.add_is(f"{name(owner)}.{key}", value)
        for owner, key, value in self.classes:
            tests.add_is(f"{name(owner)}[{key!r}]", value)
        for value, entries, kind in zip(self.objects, self.dicts, self.types, strict=True):
            if isinstance(kind.__getattribute__, WrapperDescriptorType):  # not a method of the user
                tests.add_is(f"{name(value)}.__dict__", entries)
            else:
                tests.add_is(f"{name(instance_dict)}({name(value)})", entries)
            tests.add_is(f"type({name(value)})", kind)
        for entries, names in zip(self.named, self.names, strict=True):
            tests.add_names(entries, names)
        for entries, size in zip(self.sized, self.sizes, strict=True):
            tests.add_size(entries, size)
        for value, size, plain in self.lists:
            tests.add(f"len({name(value)}) == {size}")
            for i, item in plain:
                tests.add_is(f"{name(value)}[{i}]", item)
        for test in self.tests:
            tests.add(f"{name(test)}()")
