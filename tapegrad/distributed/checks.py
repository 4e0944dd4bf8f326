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
from collections import deque
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
    debug = os.environ.get("TAPEGRAD_DEBUG", "")
    return capturing() or LOCAL.is_on or "collectives" in debug.split(",")


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


#: announcements on their way, with their memory
_announced: deque[tuple[Any, Any]] = deque()


def announce(comm: Any, target: int, what: str, location: Any, tag: int) -> None:
    """Before a message: tell the receiver what it is and where it was sent."""
    words = _words(what, location)
    _announced.append((comm.Isend(words, target, tag), words))
    while _announced and _announced[0][0].Test():
        _announced.popleft()


def announcement() -> Any:
    """Memory for what the sender of a message announces."""
    return np.zeros(WORDS, np.uint8)


def compare_message(
    mpi: Any, comm: Any, ranks: Any, theirs: Any, sender: int, tag: int, what: str, location: Any
) -> None:
    """Raise in the receiver of a message unless it is the one that was announced."""
    if _parts(bytes(theirs))[0] == what:
        return
    status = mpi.Status()
    comm.Probe(sender, tag, status)  # take the message itself, so that the sender does not wait
    comm.Recv(bytearray(status.Get_count(mpi.BYTE)), sender, tag)
    said = sorted([(sender, bytes(theirs)), (int(comm.rank), bytes(_words(what, location)))])
    raise CollectiveMismatch(
        _told([words for _, words in said], [ranks[member] for member, _ in said])
    )


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
