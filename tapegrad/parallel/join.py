"""Join: ranks with different numbers of batches train together.

A rank that has run out of data takes part in the others' collectives, with zeros, until all ranks
have. Before each step every rank says whether it still has data.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import numpy as np

from ..ops.collective.group import MAX, SUM


class Joinable:
    """What can be trained with uneven inputs. Subclasses have `_shadow` and a process group."""

    process_group: Any
    _join: Join | None = None

    def _notify_join(self) -> None:
        """Before a step: tell the others that this rank has data."""
        if self._join is not None and self._join.first is self:
            self._join.step()

    def _shadow(self) -> None:
        """Take part in what the others do in a step."""
        raise NotImplementedError

    def _take_over(self, member: int) -> None:
        """At the end: take what a member has that has made the most steps."""


class Join:
    """A context in which ranks may have different numbers of batches.

    With `divide_by_initial_world_size` gradients are divided by the number of all ranks, otherwise
    by the number of those that still have data. With `throw_on_early_termination` all ranks raise
    as soon as one has run out.
    """

    def __init__(
        self,
        joinables: Sequence[Joinable],
        enable: bool = True,
        throw_on_early_termination: bool = False,
        **kwargs: Any,
    ) -> None:
        if not joinables:
            raise ValueError("Join needs something to join")
        self.joinables = list(joinables)
        self.first = self.joinables[0]
        self.enable = enable
        self.throws = throw_on_early_termination
        self.by_all = kwargs.get("divide_by_initial_world_size", True)
        self.group = self.first.process_group
        self._steps = 0

    def __enter__(self) -> Join:
        if self.enable:
            for joinable in self.joinables:
                joinable._join = self
        return self

    def _active(self, here: bool) -> int:
        """How many ranks have data."""
        count = self.group.all_reduce(np.array([int(here)], np.int64), SUM)
        return int(count[0])

    def step(self) -> None:
        """This rank has data for another step."""
        active = self._active(True)
        self._steps += 1
        if active < self.group.size and self.throws:
            raise RuntimeError("a rank has run out of data; throw_on_early_termination is on")
        self._divide(active)

    def _divide(self, active: int) -> None:
        for joinable in self.joinables:
            reducer = getattr(joinable, "_reducer", None)
            if reducer is not None:
                reducer.divisor = None if self.by_all or active == self.group.size else active

    def _finish(self) -> None:
        """Ranks without data made no updates: all take the state of one that made the most."""
        size = self.group.size
        longest = self.group.all_reduce(np.array([self._steps * size - self.group.rank]), MAX)
        member = int(-longest[0] % size)
        for joinable in self.joinables:
            joinable._take_over(member)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self.enable:
            return
        try:
            steps = 0
            while kind is None:
                active = self._active(False)
                if active == 0:
                    break
                if self.throws:
                    raise RuntimeError("a rank still has data; throw_on_early_termination is on")
                self._divide(active)
                for joinable in self.joinables:
                    joinable._shadow()
                steps += 1
                if steps == 1000:
                    warnings.warn(
                        "this rank has waited for 1000 steps of ranks with more data",
                        stacklevel=2,
                    )
            if kind is None:
                self._finish()
        finally:
            for joinable in self.joinables:
                joinable._join = None
            self._divide(self.group.size)
