"""Quorums: ranks that collectives connect, which decide together about compiled functions.

Two ranks belong together if a function uses a group with both, or if others connect them. Each
rank knows only the groups that it uses itself, so they tell each other, along those groups.
Made by `ProcessGroup.connected`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..core import source
from ..ops.collective.group import Quorum
from . import checks

#: what ranks wait in: a call that all of them replay or record, and the end of a recording
_CALL = "the call of a compiled function with collectives"
_END = "the end of a compiled function that was recorded"

_quorums: dict[tuple[int, ...], RankQuorum] = {}


class RankQuorum(Quorum):
    """Some ranks of the job, with a communicator of their own."""

    def __init__(self, comm: Any, job: Any, ranks: tuple[int, ...]) -> None:
        self._comm = comm
        self._mpi = job.mpi
        self._running = job.watch.running
        self._ranks = ranks
        self._word = np.zeros(1, np.int64)

    def agree(self, bits: int) -> int:
        """The bits that all ranks have given."""
        if self._comm.size == 1:
            return bits
        self._word[0] = bits
        thread = threading.get_ident()
        self._running[thread] = (_CALL, source.here(), time.monotonic(), self._ranks)
        self._comm.Allreduce(self._mpi.IN_PLACE, self._word, self._mpi.BAND)
        self._running.pop(thread, None)
        return int(self._word[0])

    @contextmanager
    def checking(self) -> Iterator[None]:
        """Inside, collectives of this thread are compared with those of the others."""
        before, checks.LOCAL.is_on = checks.LOCAL.is_on, True
        try:
            yield
        finally:
            checks.LOCAL.is_on = before


def connected(job: Any, groups: list[Any], made: int, location: Any) -> RankQuorum:
    """The quorum of the ranks that groups connect, which each rank says of its own.

    `made` is how many groups the job has: word travels through all of them in as many rounds.
    Members that are still recording raise `CollectiveMismatch`: they call more collectives.
    """
    ordered = sorted(groups, key=lambda group: group.index)
    for group in ordered:
        with job.watch.during(_END, location, group.ranks):
            checks.compare(job.mpi, group.comm, group.ranks, _END, location)
    known = np.zeros(job.size, np.uint8)
    for group in groups:
        known[list(group.ranks)] = 1
    for _ in range(min(made, 16)):
        for group in ordered:
            group.comm.Allreduce(job.mpi.IN_PLACE, known, job.mpi.MAX)
    ranks = tuple(int(r) for r in np.flatnonzero(known))
    if ranks not in _quorums:
        members = job.world.group.Incl(ranks)
        _quorums[ranks] = RankQuorum(job.world.Create_group(members, 1), job, ranks)
    return _quorums[ranks]
