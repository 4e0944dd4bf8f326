"""Comparisons: the `is` tests of a world, kept in lists so that most of them run in C.

A walk enters what it finds; `hold` says whether all of it is still the same objects. A thousand of
these tests take some 60 µs.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter, getitem, is_
from typing import Any

from .places import dict_item

_dict_of = attrgetter("__dict__")


class Table:
    """Owners, keys, and what stands there."""

    __slots__ = ("keys", "owners", "values")

    def __init__(self) -> None:
        self.owners: list[Any] = []
        self.keys: list[Any] = []
        self.values: list[Any] = []

    def add(self, owner: Any, key: Any, value: Any) -> None:
        self.owners.append(owner)
        self.keys.append(key)
        self.values.append(value)

    def holds(self, get: Callable[[Any, Any], Any]) -> bool:
        return all(map(is_, map(get, self.owners, self.keys), self.values))

    def without(self, left_out: set[tuple[int, Any]]) -> Table:
        """The table without some pairs of an owner's id and a key."""
        table = Table()
        for owner, key, value in zip(self.owners, self.keys, self.values, strict=True):
            if not isinstance(key, (str, int)) or (id(owner), key) not in left_out:
                table.add(owner, key, value)
        return table


class Comparisons:
    """What a world compares by identity."""

    def __init__(self) -> None:
        self.entries = Table()  # of dictionaries
        self.classes = Table()  # of classes
        self.parts = Table()  # read with getattr: slots, cells, parts of functions
        #: objects with their types and dictionaries
        self.objects: list[Any] = []
        self.types: list[Any] = []
        self.dicts: list[Any] = []
        #: dictionaries whose names are compared, and those whose number of entries is
        self.named: list[Any] = []
        self.names: list[list[str]] = []
        self.sized: list[Any] = []
        self.sizes: list[int] = []
        #: everything else, as functions that say whether something is as it was
        self.tests: list[Callable[[], bool]] = []

    def add_object(self, value: Any, entries: dict[str, Any]) -> None:
        """An object keeps its class, its dictionary, and the names in it."""
        self.objects.append(value)
        self.types.append(type(value))
        self.dicts.append(entries)
        self.add_names(entries)

    def add_names(self, entries: Any) -> None:
        """A dictionary keeps its names, in their order."""
        self.named.append(entries)
        self.names.append(list(entries))

    def add_size(self, entries: dict[str, Any]) -> None:
        """A dictionary keeps its number of entries."""
        self.sized.append(entries)
        self.sizes.append(len(entries))

    def hold(self) -> bool:
        """Whether everything is the same object as it was. May raise where something is gone."""
        return (
            self.entries.holds(dict_item)
            and self.parts.holds(getattr)
            and self.classes.holds(getitem)
            and all(map(is_, map(_dict_of, self.objects), self.dicts))
            and all(map(is_, map(type, self.objects), self.types))
            and list(map(list, self.named)) == self.names
            and list(map(len, self.sized)) == self.sizes
            and all([test() for test in self.tests])  # noqa: C419  # a generator takes longer
        )
