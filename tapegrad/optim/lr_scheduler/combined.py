"""Schedules made of others: one after another, or all together."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from ..optimizer import Optimizer
from .base import LRScheduler, assign, check_not_captured, values_of
from .plateau import ReduceLROnPlateau


class _Combined(LRScheduler):
    """A schedule that consists of others."""

    _schedulers: Sequence[LRScheduler]

    def _check(self, schedulers: Sequence[LRScheduler], optimizer: Any) -> Optimizer:
        """The optimizer of all the schedules."""
        name = type(self).__name__
        if len(schedulers) < 1:
            raise ValueError(f"{name} needs at least one schedule, got none")
        for i, scheduler in enumerate(schedulers):
            if not hasattr(scheduler, "optimizer"):
                raise TypeError(
                    f"{name} needs schedules, but number {i} is a {type(scheduler).__name__}"
                )
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ValueError(
                    f"{name} cannot step ReduceLROnPlateau (number {i}), which needs a metric; "
                    "step it beside the others"
                )
            optimizer = optimizer or scheduler.optimizer
            if scheduler.optimizer is not optimizer:
                raise ValueError(f"{name}: schedule number {i} belongs to another optimizer")
        assert isinstance(optimizer, Optimizer)
        return optimizer

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer, with the state dicts of the schedules."""
        saved = super().state_dict()
        saved["_schedulers"] = [scheduler.state_dict() for scheduler in self._schedulers]
        return saved

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state from `state_dict`."""
        self.__dict__.update({k: v for k, v in state_dict.items() if k != "_schedulers"})
        for scheduler, saved in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(saved)


class SequentialLR(_Combined):
    """Schedules one after another: the next one begins at each of the `milestones`."""

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: list[LRScheduler],
        milestones: list[int],
        last_epoch: int = -1,
    ) -> None:
        self.optimizer = self._check(schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                f"{len(schedulers)} schedules need {len(schedulers) - 1} milestones between them, "
                f"got {len(milestones)}"
            )
        self._schedulers = schedulers
        self._milestones = milestones
        self.last_epoch = last_epoch + 1
        # Each schedule took its first step when it was made: undo these steps.
        for group in optimizer.param_groups:
            assign(group, "lr", group["initial_lr"])
        _undo(self)
        first = schedulers[bisect_right(milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def step(self, epoch: Any = None) -> None:
        """Go on by one epoch."""
        check_not_captured(self)
        if epoch is not None:
            raise TypeError("SequentialLR.step takes no epoch")
        self.last_epoch += 1
        index = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[index]
        if index > 0 and self._milestones[index - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


def _undo(scheduler: Any) -> None:
    """Undo the first step of the schedules inside another one."""
    for part in scheduler._schedulers:
        if isinstance(part, _Combined):
            _undo(part)
        else:
            part.last_epoch -= 1


class ChainedScheduler(_Combined):
    """Several schedules of one optimizer, all of which step at each step."""

    def __init__(
        self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None
    ) -> None:
        self.optimizer = self._check(schedulers, optimizer)
        self._schedulers = schedulers
        self._last_lr = values_of(self.optimizer, "lr")

    def step(self, epoch: Any = None) -> None:
        """Go on by one epoch."""
        if epoch is not None:
            raise TypeError("ChainedScheduler.step takes no epoch")
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = values_of(self.optimizer, "lr")
