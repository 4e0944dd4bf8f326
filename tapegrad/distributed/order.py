"""Order: the numbers of the collectives that this rank has called, to compare with other ranks'.

Each group counts its collectives, and so does each quorum. Numbers are not sent along: only a rank
that waits long in one tells its neighbours which it is (`watch.py`). They know what they called
under that number, and in which order they called collectives of different groups.
"""

from __future__ import annotations

from typing import Any

#: how many of the latest collectives of a group are remembered
KEPT = 64


class Order:
    """The collectives of one group that this rank has called: how many, and the latest of them."""

    __slots__ = ("_latest", "count", "key")

    def __init__(self, key: str) -> None:
        #: what all members call the group
        self.key = key
        self.count = 0
        self._latest: list[tuple[int, str, Any] | None] = [None] * KEPT

    def enter(self, kind: str, location: Any) -> int:
        """This rank calls the next one; returns its number, from 1."""
        self.count = number = self.count + 1
        self._latest[number % KEPT] = (number, kind, location)
        return number

    def called(self, number: int) -> tuple[str, Any] | None:
        """What this rank has called under a number, and where; None if that is not known."""
        found = self._latest[number % KEPT]
        return None if found is None or found[0] != number else found[1:]
