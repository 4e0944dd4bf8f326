"""Order: which steps of a program must wait for which, found from the memory that they use.

Comes in: for each step the ranges of addresses that it reads and writes. Goes out: the earlier
steps that it must wait for, without those that these already wait for. Independent steps may run at
the same time on a GPU: many are too small to fill it. Called by `executable.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

#: addresses from the first byte to the one after the last
Range = tuple[int, int]


class MemoryOrder:
    """The memory that the steps so far read and write."""

    def __init__(self) -> None:
        self._ranges = np.empty((64, 2), np.int64)
        self._steps = np.empty(64, np.int64)
        self._writes = np.empty(64, np.bool_)
        self._count = 0
        #: for each step: all steps that it waits for, also indirectly, as bits of a number
        self._before: list[int] = []

    def add(self, reads: Iterable[Range], writes: Iterable[Range]) -> list[int]:
        """Add a step; returns the earlier steps that it must wait for, counted from 0."""
        step = len(self._before)
        accesses = [(x, False) for x in reads] + [(x, True) for x in writes]
        found: set[int] = set()
        for (start, end), is_write in accesses:
            known = self._ranges[: self._count]
            meets = (known[:, 0] < end) & (known[:, 1] > start)
            if not is_write:
                meets &= self._writes[: self._count]
            found.update(self._steps[: self._count][meets].tolist())
        for given, is_write in accesses:
            self._note(given, step, is_write)
        before = 0
        chosen: list[int] = []
        for other in sorted(found, reverse=True):
            if not before >> other & 1:
                chosen.append(other)
                before |= self._before[other] | 1 << other
        self._before.append(before)
        return chosen[::-1]

    def _note(self, given: Range, step: int, is_write: bool) -> None:
        if self._count == len(self._steps):
            self._ranges = np.concatenate([self._ranges, np.empty_like(self._ranges)])
            self._steps = np.concatenate([self._steps, np.empty_like(self._steps)])
            self._writes = np.concatenate([self._writes, np.empty_like(self._writes)])
        self._ranges[self._count] = given
        self._steps[self._count] = step
        self._writes[self._count] = is_write
        self._count += 1
