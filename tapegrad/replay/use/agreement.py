"""Agreement: ranks of a job decide together whether a call of a compiled function is replayed.

While a function is recorded its collectives are compared with those of the other ranks; a replay
does not compare. So either all ranks record a call, or all replay it. Comes in: what this rank
would do, as bits: bit n for a program that was recorded in the function's recording n. Goes out:
what all of them do. If the ranks' programs were never recorded in the same call, all record.

The ranks are those that the function's collectives connect (`Group.connected`). One exchange of
eight bytes is made for each call: before a replay, and before the first collective of a recording.
Functions without collectives exchange nothing. Called by `compiled.py`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from .replay import Replay

#: bits for recordings: later ones use them again
BITS = 62
RECORD, ANYTHING = 0, -1


class Agreement:
    """What ranks know together about one compiled function."""

    def __init__(self) -> None:
        #: the ranks that decide together; None until a recording has met a collective
        self.quorum: Any = None
        self._groups: dict[Any, None] = {}
        self._recordings = 0
        #: calls that all ranks have replayed
        self.replayed = 0
        #: whether this call's exchange has been made
        self._is_made = False
        self._is_joined = False

    def allows(self, replay: Replay) -> bool:
        """Whether all ranks replay this call; if not, this one records it too."""
        if not replay.groups or self.quorum is None:  # this process alone runs its collectives
            return True
        replays = bool(self.quorum.agree(replay.recorded_in) != RECORD)
        self._is_made = not replays
        self.replayed += replays
        return replays

    def eager_call(self, is_collective: bool) -> AbstractContextManager[Any]:
        """A call that can only run eagerly: entered around it, for others may record theirs."""
        if not is_collective or self.quorum is None or self.quorum.agree(ANYTHING) != RECORD:
            return nullcontext()
        checking: AbstractContextManager[Any] = self.quorum.checking()
        return checking

    def begin(self) -> None:
        """A recording begins."""
        self._is_joined, self._is_made = self._is_made, False

    def before_collective(self) -> None:
        """The recording meets a collective: tell the others that it is one, if they wait."""
        if not self._is_joined:
            self._is_joined = True
            if self.quorum is not None:
                self.quorum.agree(RECORD)

    def end(self, groups: dict[Any, None], replays: list[Replay]) -> None:
        """A recording with collectives of these groups has ended, on all of their members."""
        if not groups:
            return
        self._groups.update(groups)
        self.quorum = next(iter(groups)).connected(list(self._groups))
        self._recordings += 1
        for replay in replays:  # the bit stood for an earlier recording
            replay.recorded_in &= ~self._bit()

    def all_can_replay(self, here: bool) -> bool:
        """Whether all ranks can go back and replay what they have just recorded."""
        return bool(self.quorum.agree(ANYTHING if here else RECORD) != RECORD)

    def _bit(self) -> int:
        return 1 << self._recordings % BITS

    def confirm(self, replay: Replay) -> None:
        """A program agrees with the latest recording."""
        replay.recorded_in |= self._bit()
