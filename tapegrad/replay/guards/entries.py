"""Entries: dictionaries whose keys and values are compared in one native call.

Most of what a world compares are entries of small dictionaries: attributes of modules, the state of
optimizers. `conjunction.py` keeps a `Row` for each dictionary, with the texts of its tests, and
lists what all of them hold now in a table. A native function compares the table (`cpu/entries.py`):
10 ns for each entry, where a test takes 35 ns. If it says no, the tests decide. So it may ask for
more than they do: the very same keys, in the same order.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

#: walks through the table at an address: 1 if the dictionaries have what it lists, else 0
Walk = Callable[[int], int]
#: a dictionary with its keys and values
Listed = tuple[Any, list[tuple[Any, Any]]]
#: instead of a value that nobody compares
ANYTHING = object()


class Row:
    """One dictionary, the tests of it, and the values that they compare."""

    __slots__ = ("clauses", "owner", "values", "whole")

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self.clauses: dict[str, None] = {}
        self.values: list[tuple[Any, Any]] = []
        self.whole = False  # whether tests speak of all names, or of their number

    def entries(self) -> list[tuple[Any, Any]] | None:
        """All keys in their order, with the values that are compared; `ANYTHING` for the others.

        None for dictionaries with many entries that nobody compares, such as a module's names.
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
    """Whether a dictionary's names, as iterating gives them, are those of its memory."""
    kind = type(owner)
    return kind is dict or (
        not issubclass(kind, OrderedDict)
        and kind.__iter__ is dict.__iter__
        and kind.__len__ is dict.__len__
        and not hasattr(kind, "__bool__")
    )


def table_of(rows: list[Listed]) -> Any:
    """For each dictionary its address, its number of entries, and the addresses of these; then 0.

    A value that nobody compares is 0. Who uses it keeps the dictionaries and what they have alive.
    """
    words = []
    for owner, entries in rows:
        words += [id(owner), len(entries)]
        for key, value in entries:
            words += [id(key), 0 if value is ANYTHING else id(value)]
    return np.array([*words, 0], np.int64)
