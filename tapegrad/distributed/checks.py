"""Checks that all members of a group do the same: kind, shape and dtype of every collective.

MPI does not compare: swapped operations give wrong numbers or wait forever. With checks on, members
first compare a checksum of what they are about to do. If it differs, each gets everybody's words,
and all raise the same error. Checks are on while a compiled function is recorded, and everywhere
with TAPEGRAD_DEBUG=collectives. Called by `process_group.py`.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ..core import source
from ..core.modes import capturing

#: bytes in which a member says what it does and where
WORDS = 384


class CollectiveMismatch(RuntimeError):
    """Members of a group called different collectives at the same time."""


class _Local(threading.local):
    is_on = False  # in this thread, for a while


LOCAL = _Local()


def wanted() -> bool:
    """Whether members compare what they do, as all of them must decide alike."""
    return capturing() or LOCAL.is_on or "collectives" in os.environ.get("TAPEGRAD_DEBUG", "").split(",")


def compare(mpi: Any, comm: Any, ranks: tuple[int, ...], what: str, location: Any) -> None:
    """Raise on all members unless all say the same; locations may differ."""
    digest = hashlib.blake2b(what.encode(), digest_size=7).digest()
    number = int.from_bytes(digest, "little")
    extremes = np.array([number, -number], np.int64)
    comm.Allreduce(mpi.IN_PLACE, extremes, mpi.MIN)
    if extremes[0] == -extremes[1]:
        return
    said = np.zeros((comm.size, WORDS), np.uint8)
    comm.Allgather(_words(what, location), said)
    raise CollectiveMismatch(_told([bytes(row) for row in said], ranks))


def compare_pair(mpi: Any, comm: Any, other: int, what: str, location: Any, tag: int) -> None:
    """As `compare`, for a sender and a receiver, who both say what the message is."""
    start_pair(mpi, comm, other, what, location, tag)()


def start_pair(
    mpi: Any, comm: Any, other: int, what: str, location: Any, tag: int
) -> Callable[[], None]:
    """Begin to compare with a sender or receiver; the function returned ends it, or raises."""
    mine, theirs = _words(what, location), np.zeros(WORDS, np.uint8)
    requests = [comm.Irecv(theirs, other, tag), comm.Isend(mine, other, tag)]

    def finish() -> None:
        mpi.Request.Waitall(requests)
        if _parts(bytes(theirs))[0] != what:
            both = [(comm.rank, bytes(mine)), (other, bytes(theirs))]
            ranks = sorted([comm.rank, other])
            raise CollectiveMismatch(_told([w for _, w in sorted(both)], ranks))

    return finish


def _words(what: str, location: Any) -> Any:
    text = f"{what[: WORDS // 2]}\n{source.describe(location)[-WORDS // 2 + 2 :]}".encode()
    return np.frombuffer(text[:WORDS].ljust(WORDS, b"\0"), np.uint8).copy()


def _parts(words: bytes) -> tuple[str, str]:
    what, _, line = words.rstrip(b"\0").decode(errors="replace").partition("\n")
    return what, line


def _told(said: list[bytes], ranks: Any) -> str:
    """Who did what, with those that did the same together."""
    together: dict[tuple[str, str], list[int]] = {}
    for rank, words in zip(ranks, said, strict=True):
        together.setdefault(_parts(words), []).append(rank)
    lines = [
        f"  {'rank' if len(who) == 1 else 'ranks'} {', '.join(map(str, who))}: {what} at {line}"
        for (what, line), who in together.items()
    ]
    return "\n".join(["ranks called different collectives at the same time:", *lines])
