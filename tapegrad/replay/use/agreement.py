"""Agreement: ranks of a job decide together whether a call of a compiled function is replayed.

While a function is recorded, ranks compare its collectives; a replay does not compare, and starts
collectives in another order than an eager call. So either all ranks replay a call, or none does.
Comes in: what this rank can do, as bits: bit n for a program that was recorded in the function's
recording n. Goes out: what all ranks do. If one rank records, or if their programs were never
recorded in the same call, all that can record do so; else, if one can only run eagerly, all do.

The ranks are those that the function's collectives connect (`Group.connected`). They exchange 24
bytes once per call: before a replay, and before the first collective of a recording, or at its end
if it has none. Functions without collectives exchange nothing. Nor do calls without gradients and
collectives: an evaluation may run on one rank alone. All other calls have numbers, which the
exchange compares, so a rank that has skipped a call or a collective is found in that call.
Called by `compiled.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import Enum
from typing import Any

from ...core import source
from ...core.modes import GRAD, STATE
from .replay import Replay

#: bits for recordings, which later ones reuse
BITS = 60
#: set by a rank that can replay or record; set by a rank that is not recording this call
_CAN, _HOLDS = 1 << BITS, 1 << BITS + 1
_RECORDINGS = _CAN - 1
NONE, ANYTHING = 0, -1


class Choice(Enum):
    """What all ranks do in a call."""

    REPLAY = "replay"
    RECORD = "record"
    EAGER = "run eagerly"


#: by name of a compiled function that has met no collective yet: the number and location of its
#: last recorded call; other ranks may wait in a collective of that call
SILENT: dict[str, tuple[int, Any]] = {}
#: how many compiled functions were made with each name: ranks know functions by their names
_named: Counter[str] = Counter()


class Agreement:
    """The state of one compiled function that all its ranks share."""

    def __init__(self, name: str) -> None:
        self._name = name
        _named[name] += 1
        #: the ranks that decide together; None until a recording has met a collective
        self.quorum: Any = None
        self._groups: dict[Any, None] = {}
        self._recordings = 0
        #: number of calls that all ranks have replayed
        self.replayed = 0
        #: number of calls that all ranks must have made
        self._calls = 0
        #: whether `decide` has made this call's exchange; whether the running recording has
        self._is_made = False
        self._is_joined = False
        #: whether the call being recorded has a number even if it has no collective
        self._counts = False

    def decide(self, replay: Replay) -> Choice:
        """What all ranks do in a call that this rank can replay."""
        if self.quorum is None:  # no recording has met a collective
            return Choice.REPLAY
        if not replay.groups and not STATE.mode & GRAD:
            return Choice.REPLAY
        choice = self._exchange(replay.recorded_in | _CAN | _HOLDS)
        self._is_made = choice is Choice.RECORD
        self.replayed += choice is Choice.REPLAY
        return choice

    def _exchange(self, bits: int) -> Choice:
        """Exchange bits for the next call; returns what all ranks do in it."""
        self._calls += 1
        quorum = self.quorum
        quorum.function, quorum.call = self._name, self._calls
        found: int = quorum.agree(bits)
        if not found & _HOLDS:
            return Choice.RECORD
        if not found & _CAN:
            return Choice.EAGER
        return Choice.REPLAY if found & _RECORDINGS else Choice.RECORD

    def eager_call(self, is_collective: bool) -> AbstractContextManager[Any]:
        """A context for a call that can only run eagerly, while other ranks may record it."""
        if self.quorum is None or not (is_collective or STATE.mode & GRAD):
            return nullcontext()
        choice = self._exchange(_RECORDINGS | _HOLDS)
        return self._eager_among_recorded() if choice is Choice.RECORD else nullcontext()

    @contextmanager
    def _eager_among_recorded(self) -> Iterator[None]:
        """Take part in the exchanges of a recording, because other ranks wait for them."""
        with self.quorum.checking():
            yield
        self._end([])
        self.all_can_replay(False)

    def begin(self) -> None:
        """Note that a recording begins."""
        self._is_joined, self._is_made = self._is_made, False
        self._counts = bool(STATE.mode & GRAD)

    def before_collective(self) -> tuple[str, int]:
        """Before a recording's first collective, tell the other ranks that this call records."""
        if not self._is_joined:
            self._is_joined = True
            if self.quorum is not None:
                self._exchange(_CAN)
            else:
                self._calls += 1
        return self._name, self._calls

    def end(self, groups: dict[Any, None], replays: list[Replay]) -> bool:
        """Note the end of a recording with collectives of `groups`; whether all ranks know it."""
        if not groups and self.quorum is None:
            if self._counts:
                self._calls += 1
                self._note_silent()
            return False
        if not groups and not self._is_joined:
            if not self._counts:
                return False
            self._exchange(_CAN)
        SILENT.pop(self._name, None)
        self._groups.update(groups)
        self._end(replays)
        return True

    def _note_silent(self) -> None:
        if _named[self._name] == 1:
            SILENT[self._name] = (self._calls, source.here())
        else:
            SILENT.pop(self._name, None)

    def _end(self, replays: list[Replay]) -> None:
        """End a recording on all ranks: they now have the same quorum and number."""
        self.quorum = next(iter(self._groups)).connected(list(self._groups))
        self.quorum.function, self.quorum.call = self._name, self._calls
        self._recordings += 1
        for replay in replays:  # an earlier recording may have used this bit
            replay.recorded_in &= ~self._bit()

    def all_can_replay(self, here: bool) -> bool:
        """Whether all ranks can undo what they have just recorded, and replay it."""
        return bool(self.quorum.agree(ANYTHING if here else NONE) != NONE)

    def _bit(self) -> int:
        return 1 << self._recordings % BITS

    def confirm(self, replay: Replay) -> None:
        """Note that a program agrees with the latest recording."""
        replay.recorded_in |= self._bit()
