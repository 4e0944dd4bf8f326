"""Checks that all members of a group do the same: kind, shape and dtype of every collective.

MPI does not check this: swapped collectives give wrong numbers or wait forever. With checks on,
members first compare a checksum of the collective that they are about to call. If it differs, they
exchange descriptions, and all raise the same error. Checks are on while a compiled function is
recorded, and everywhere with TAPEGRAD_DEBUG=collectives. Called by `process_group.py`.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import deque
from typing import Any

import numpy as np

from ..core import source
from ..core.modes import capturing

#: bytes in which a member describes what it does and where
WORDS = 384


class CollectiveMismatch(RuntimeError):
    """Members of a group called different collectives at the same time."""


class _Local(threading.local):
    is_on = False  # set inside `RankQuorum.checking`
    #: the compiled function that this thread runs eagerly while others record it, and its call
    inside: tuple[str, int] | None = None


LOCAL = _Local()


def wanted() -> bool:
    """Whether checks are on; all members must decide the same."""
    debug = os.environ.get("TAPEGRAD_DEBUG", "")
    return capturing() or LOCAL.is_on or "collectives" in debug.split(",")


def inside(call: tuple[str, int] | None) -> str:
    """The words that name the call of a compiled function around a collective."""
    return "" if call is None else f" in call {call[1]} of the compiled function {call[0]}"


def compare(mpi: Any, comm: Any, ranks: tuple[int, ...], what: str, location: Any) -> None:
    """Raise on all members unless `what` is the same on all; locations may differ."""
    digest = hashlib.blake2b(what.encode(), digest_size=7).digest()
    number = int.from_bytes(digest, "little")
    extremes = np.array([number, -number], np.int64)
    comm.Allreduce(mpi.IN_PLACE, extremes, mpi.MIN)
    if extremes[0] == -extremes[1]:
        return
    raise differing(comm, ranks, what, location)


def differing(comm: Any, ranks: tuple[int, ...], what: str, location: Any) -> CollectiveMismatch:
    """The error of members that differ, with what each of them does; all members call this."""
    said = np.zeros((comm.size, WORDS), np.uint8)
    comm.Allgather(_words(what, location), said)
    return CollectiveMismatch(
        told([(rank, *_parts(bytes(row))) for rank, row in zip(ranks, said, strict=True)])
    )


#: requests of announcements that may not be sent yet, with their memory
_announced: deque[tuple[Any, Any]] = deque()


def announce(comm: Any, target: int, what: str, location: Any, tag: int) -> None:
    """Before a message, tell the receiver what it is and where it was sent."""
    words = _words(what, location)
    _announced.append((comm.Isend(words, target, tag), words))
    while _announced and _announced[0][0].Test():
        _announced.popleft()


def announcement() -> Any:
    """A buffer to receive an announcement."""
    return np.zeros(WORDS, np.uint8)


def compare_message(
    mpi: Any, comm: Any, ranks: Any, theirs: Any, sender: int, tag: int, what: str, location: Any
) -> None:
    """Raise in the receiver unless the announced message is the expected one."""
    if _parts(bytes(theirs))[0] == what:
        return
    status = mpi.Status()
    comm.Probe(sender, tag, status)  # receive it, so that the sender does not wait
    comm.Recv(bytearray(status.Get_count(mpi.BYTE)), sender, tag)
    mine = bytes(_words(what, location))
    said = sorted([(ranks[sender], *_parts(bytes(theirs))), (ranks[comm.rank], *_parts(mine))])
    raise CollectiveMismatch(told(said))


def _words(what: str, location: Any) -> Any:
    text = f"{what[: WORDS // 2]}\n{source.describe(location)[-WORDS // 2 + 2 :]}".encode()
    return np.frombuffer(text[:WORDS].ljust(WORDS, b"\0"), np.uint8).copy()


def _parts(words: bytes) -> tuple[str, str]:
    what, _, line = words.rstrip(b"\0").decode(errors="replace").partition("\n")
    return what, line


def told(said: list[tuple[int, str, str]]) -> str:
    """The error message: who did what, and where, with equal ranks on one line."""
    together: dict[tuple[str, str], list[int]] = {}
    for rank, what, line in said:
        together.setdefault((what, line), []).append(rank)
    lines = [
        f"  {'rank' if len(who) == 1 else 'ranks'} {', '.join(map(str, who))}: {what} at {line}"
        for (what, line), who in together.items()
    ]
    return "\n".join(["ranks called different collectives at the same time:", *lines])
