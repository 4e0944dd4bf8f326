"""Quorums: ranks that collectives connect, which decide together about compiled functions.

Two ranks are in one quorum if a function uses a group with both, or if other ranks connect them.
Each rank knows only the groups that it uses itself, so ranks tell each other, along those groups.
Made by `ProcessGroup.connected`.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..core import source
from ..ops.collective.group import Quorum
from . import checks

#: the operation in which ranks wait at the end of a recording
_END = "the end of a compiled function that was recorded"

_quorums: dict[tuple[int, ...], RankQuorum] = {}


class RankQuorum(Quorum):
    """Some ranks of the job, with a communicator of their own."""

    def __init__(self, comm: Any, job: Any, ranks: tuple[int, ...]) -> None:
        self._comm = comm
        self._mpi = job.mpi
        self._watch = job.watch
        self._ranks = ranks
        self._order = job.watch.order(f"quorum {ranks}")
        #: bits, the number of the call, which must be the same on all ranks, and its complement
        self._words = np.zeros(3, np.int64)
        self._digests: dict[str, int] = {}
        #: the compiled function whose call is decided about, and the number of that call
        self.function = ""
        self.call = 0

    def agree(self, bits: int) -> int:
        """The bits that all ranks set; raises unless all are in the same call of a function."""
        if self._comm.size == 1:
            return bits
        name, words = self.function, self._words
        number = self._digests.get(name)
        if number is None:
            number = self._digests[name] = _digest(name)
        number += self.call
        words[0], words[1], words[2] = bits, number, ~number
        location, thread, watch = source.here(), threading.get_ident(), self._watch
        if thread != watch.caller:
            watch.called_by(thread)
        what = f"the call of the compiled function {name}"
        order, before = self._order, watch.running.get(thread)
        watch.running[thread] = (
            what, location, time.monotonic(), self._ranks,
            order, order.enter(what, location), True, (name, self.call),
        )  # fmt: skip
        try:
            self._comm.Allreduce(self._mpi.IN_PLACE, words, self._mpi.BAND)
            if words[1] != ~words[2]:
                what = f"call {self.call} of the compiled function {name}"
                raise checks.differing(self._comm, self._ranks, what, location)
        finally:
            if before is None:
                watch.running.pop(thread, None)
            else:
                watch.running[thread] = before
        return int(words[0])

    @contextmanager
    def checking(self) -> Iterator[None]:
        """Inside, collectives of this thread are compared with those of other ranks."""
        local = checks.LOCAL
        before = local.is_on, local.inside
        local.is_on, local.inside = True, local.inside or (self.function, self.call)
        try:
            yield
        finally:
            local.is_on, local.inside = before


def _digest(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=7).digest(), "little")


def connected(job: Any, groups: list[Any], made: int, location: Any) -> RankQuorum:
    """The quorum of the ranks that groups connect; each rank gives the groups that it uses.

    `made` is the number of groups in the job: news travels through all of them in as many rounds.
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
