"""Entries: the keys and values of many dictionaries, compared in one native call.

Most values that a world compares are entries of small dictionaries: attributes of modules, the
state of optimizers. `conjunction.py` keeps a `Row` for each dictionary, with the texts of its
tests, and lists the entries of all of them in a table. A native function (`cpu/entries.py`)
compares the table: 10 ns per entry, where a test takes 35 ns. If it returns 0, the tests decide. So
it may be stricter than they are: it requires the same key objects in the same order.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

#: compares the table at an address: 1 if the dictionaries have the listed entries, else 0
Walk = Callable[[int], int]
#: a dictionary with its keys and values
Listed = tuple[Any, list[tuple[Any, Any]]]
#: placeholder for a value that is not compared
ANYTHING = object()


class Row:
    """One dictionary, its tests, and the values that they compare."""

    __slots__ = ("clauses", "owner", "values", "whole")

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self.clauses: dict[str, None] = {}
        self.values: list[tuple[Any, Any]] = []
        self.whole = False  # whether a test compares all keys or their number

    def entries(self) -> list[tuple[Any, Any]] | None:
        """All keys in order, each with the value to compare or `ANYTHING`.

        None for a dictionary in which few entries are compared, such as a module's namespace.
        """
        if not self.whole and dict.__len__(self.owner) > 2 * len(self.values) + 2:
            return None
        named = {k: v for k, v in self.values if type(k) in (str, int)}
        others = {id(k): v for k, v in self.values if type(k) not in (str, int)}
        return [
            (
                key,
                named.get(key, ANYTHING)
                if type(key) in (str, int)
                else others.get(id(key), ANYTHING),
            )
            for key in dict.keys(self.owner)
        ]


def keeps_order_in_itself(owner: Any) -> bool:
    """Whether iterating over a dictionary gives its keys as they are stored."""
    kind = type(owner)
    return kind is dict or (
        not issubclass(kind, OrderedDict)
        and kind.__iter__ is dict.__iter__
        and kind.__len__ is dict.__len__
        and not hasattr(kind, "__bool__")
    )


def table_of(rows: list[Listed]) -> Any:
    """For each dictionary: its address, its size, the addresses of keys and values; at the end 0.

    A value that is not compared is 0. The caller must keep dictionaries, keys and values alive.
    """
    words = []
    for owner, entries in rows:
        words += [id(owner), len(entries)]
        for key, value in entries:
            words += [id(key), 0 if value is ANYTHING else id(value)]
    return np.array([*words, 0], np.int64)
