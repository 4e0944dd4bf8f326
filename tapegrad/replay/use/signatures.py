"""The signatures that a compiled function remembers; past a limit, the one used longest ago goes.

Comes in: the key of a call's arguments. Goes out: its `Signature` (`variant.py`), if it is known.
A signature that goes takes its programs and their memory with it; if it comes back, it is recorded
again. If a function is called with too many signatures in turn, each would go before its programs
are used. One that has gone so too often is not remembered any more, and its calls run eagerly.
Called by `compiled.py` and `explain.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .variant import Signature

#: replays for which a recording has paid: a signature that goes after fewer has gone too early
PAYING_REPLAYS = 16
#: how often a signature may go too early before its calls run eagerly
MAX_EARLY_DROPS = 2
#: dropped signatures whose history is known, for each one that may be kept
HISTORY = 8


class Signatures:
    """Signatures by key, in the order of their latest use."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._kept: dict[Any, Signature] = {}
        #: by key of a dropped signature: how often it went too early, and whether it communicates
        self._history: dict[Any, tuple[int, bool]] = {}
        #: how many were dropped
        self.dropped = 0

    def __iter__(self) -> Iterator[Signature]:
        return iter(self._kept.values())

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, key: Any) -> Signature | None:
        """The signature of a key, which is then the one used last."""
        found = self._kept.pop(key, None)
        if found is not None:
            self._kept[key] = found
        return found

    def add(self, signature: Signature) -> None:
        """Remember a new signature; past the limit, the one used longest ago goes."""
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
        """Whether a signature went too early so often that its calls should run eagerly."""
        if len(self._kept) < self.most:
            return False
        return self._history.get(key, (0, False))[0] >= MAX_EARLY_DROPS

    def communicated(self, key: Any) -> bool:
        """Whether a recording of a dropped signature met a collective."""
        return self._history.get(key, (0, False))[1]

    @property
    def why_eager(self) -> str:
        """What to say about the calls of a signature that went too often."""
        return (
            f"it is called with more than {self.most} signatures in turn, so programs go before "
            "they are used; what varies should be a tensor, or raise max_signatures"
        )
