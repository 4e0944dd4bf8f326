"""Join: ranks with different numbers of batches train together.

A rank that has run out of data contributes zeros to the others' collectives until all ranks have
run out. Before each step the ranks count how many of them still have data.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import numpy as np

from ..core.device import device
from ..distributed.process_group import resolved
from ..ops.collective.group import MAX, SUM


class JoinHook:
    """What a rank without data does for a `Joinable`: in the others' steps, and at the end."""

    def main_hook(self) -> None:
        """Take part in the others' collectives of one step."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Called when no rank has data; `is_last_joiner`: whether this one was among the last."""


class Joinable:
    """Base of what can be trained with uneven inputs; subclasses provide a hook and a group."""

    process_group: Any
    _join: Join | None = None

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """The hook of this rank for when it has no data; `kwargs` are those of `Join`."""
        return _Shadowing(self)

    @property
    def join_process_group(self) -> Any:
        """The ranks that train together."""
        return self.process_group

    @property
    def join_device(self) -> Any:
        """The device of the messages of `Join`: the CPU."""
        return device("cpu")

    def _notify_join(self) -> None:
        Join.notify_join_context(self)

    def _shadow(self) -> None:
        """Take part in the others' collectives of one step."""
        raise NotImplementedError

    def _take_over(self, member: int) -> None:
        """At the end, take over the state of a member that has made the most steps."""


class _Shadowing(JoinHook):
    """The hook of this package's classes."""

    def __init__(self, joinable: Joinable) -> None:
        self._joinable = joinable

    def main_hook(self) -> None:
        self._joinable._shadow()

    def post_hook(self, is_last_joiner: bool) -> None:
        # Ranks made different numbers of updates: all take the state of one that made the most.
        group = self._joinable.join_process_group
        mine = group.rank if is_last_joiner else -1
        self._joinable._take_over(int(group.all_reduce(np.array([mine]), MAX)[0]))


class Join:
    """A context in which ranks may have different numbers of batches.

    With `divide_by_initial_world_size` gradients are divided by the number of all ranks, otherwise
    by the number of those that still have data. With `throw_on_early_termination` all ranks raise
    as soon as one has run out of data.
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
        self.group = resolved(self.first.join_process_group)
        #: the last rank with data in this step, which sends buffers
        self.last = 0
        self.hooks = [joinable.join_hook(**kwargs) for joinable in self.joinables]

    def __enter__(self) -> Join:
        if self.enable:
            for joinable in self.joinables:
                joinable._join = self
        return self

    @staticmethod
    def notify_join_context(joinable: Joinable) -> None:
        """Before the collectives of a step, tell the other ranks that this one has data.

        Only the call for the first joinable sends a message.
        """
        if joinable._join is not None and joinable._join.first is joinable:
            joinable._join.step()

    def _active(self, here: bool) -> int:
        """The number of ranks that have data; the last of them is `self.last`."""
        ranks = np.zeros(self.group.size, np.int64)
        ranks[self.group.rank] = here
        active = np.flatnonzero(self.group.all_reduce(ranks, SUM))
        if len(active):
            self.last = int(active[-1])
        return len(active)

    def step(self) -> None:
        """Begin a step of this rank, which has data: count the ranks that do."""
        if self.group.size > 1 and self.group._tell() is not None:
            raise RuntimeError(
                "a compiled function cannot train in Join: ranks without data take part in "
                "single collectives, not in compiled functions; call the function uncompiled"
            )
        active = self._active(True)
        if active < self.group.size and self.throws:
            raise RuntimeError("a rank has run out of data; throw_on_early_termination is on")
        self._divide(active)

    def _divide(self, active: int) -> None:
        for joinable in self.joinables:
            reducer = getattr(joinable, "_reducer", None)
            if reducer is not None:
                reducer.divisor = None if self.by_all or active == self.group.size else active

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
                for hook in self.hooks:
                    hook.main_hook()
                steps += 1
                if steps == 1000:
                    warnings.warn(
                        "this rank has waited for 1000 steps of ranks with more data",
                        stacklevel=2,
                    )
            if kind is None:
                for hook in self.hooks:
                    hook.post_hook(steps == 0)
        finally:
            for joinable in self.joinables:
                joinable._join = None
            self._divide(self.group.size)
