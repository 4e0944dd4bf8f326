"""The signatures that a compiled function keeps: a cache that drops the least recently used one.

Comes in: the key of a call's arguments. Goes out: its `Signature` (`variant.py`), if it is kept.
A dropped signature frees its programs and their memory; the next call with it is recorded again. If
a function is called with too many signatures in turn, each is dropped before its programs are used.
A signature that was dropped so too often is not kept any more, and its calls run eagerly.
Called by `compiled.py` and `explain.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .variant import Signature

#: replays after which a recording has paid off: a signature with fewer was dropped too early
PAYING_REPLAYS = 16
#: how often a signature may be dropped too early before its calls run eagerly
MAX_EARLY_DROPS = 2
#: dropped signatures whose history is kept, for each signature that may be kept
HISTORY = 8


class Signatures:
    """Signatures by key, the most recently used last."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._kept: dict[Any, Signature] = {}
        #: by key of a dropped signature: how often it was dropped too early, and whether a
        #: recording of it met a collective
        self._history: dict[Any, tuple[int, bool]] = {}
        #: how many were dropped
        self.dropped = 0

    def __iter__(self) -> Iterator[Signature]:
        return iter(self._kept.values())

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, key: Any) -> Signature | None:
        """The signature of a key, if it is kept; it becomes the most recently used one."""
        found = self._kept.pop(key, None)
        if found is not None:
            self._kept[key] = found
        return found

    def add(self, signature: Signature) -> None:
        """Keep a new signature; past the limit, drop the least recently used one."""
        while len(self._kept) >= self.most:
            self._drop(next(iter(self._kept)))
        self._kept[signature.key] = signature

    def _drop(self, key: Any) -> None:
        signature = self._kept.pop(key)
        times, communicated = self._history.pop(key, (0, False))
        if sum(replay.count for replay in signature.replays) < PAYING_REPLAYS:
            times += 1
        self._history[key] = (times, communicated or signature.communicates)
        self.dropped += 1
        if len(self._history) > HISTORY * self.most:
            del self._history[next(iter(self._history))]

    def is_thrashing(self, key: Any) -> bool:
        """Whether a signature was dropped too early so often that its calls should run eagerly."""
        if len(self._kept) < self.most:
            return False
        return self._history.get(key, (0, False))[0] >= MAX_EARLY_DROPS

    def communicated(self, key: Any) -> bool:
        """Whether a recording of a dropped signature met a collective."""
        return self._history.get(key, (0, False))[1]

    @property
    def why_eager(self) -> str:
        """The reason to give for calls of a signature that was dropped too often."""
        return (
            f"it is called with more than {self.most} signatures in turn, so programs go before "
            "they are used; what varies should be a tensor, or raise max_signatures"
        )
