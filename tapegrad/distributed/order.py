"""Order: the numbers of the collectives that this rank has called, to compare with other ranks'.

Each group and each quorum counts its collectives. The numbers are not sent with messages: only a
rank that waits long in a collective tells its neighbours the number (`watch.py`). They know what
they called under that number, and in which order they called collectives of different groups.
"""

from __future__ import annotations

from typing import Any

#: the number of latest collectives that an order remembers
KEPT = 64


class Order:
    """The number of collectives of one group that this rank has called, and the latest ones."""

    __slots__ = ("_latest", "count", "key")

    def __init__(self, key: str) -> None:
        #: the name of the group, the same on all members
        self.key = key
        self.count = 0
        self._latest: list[tuple[int, str, Any] | None] = [None] * KEPT

    def enter(self, kind: str, location: Any) -> int:
        """Add the collective that this rank calls now; returns its number, from 1."""
        self.count = number = self.count + 1
        self._latest[number % KEPT] = (number, kind, location)
        return number

    def called(self, number: int) -> tuple[str, Any] | None:
        """The collective that this rank called under a number, and where; None if not known."""
        found = self._latest[number % KEPT]
        return None if found is None or found[0] != number else found[1:]
