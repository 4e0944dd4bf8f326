"""The base of all schedules: steps, saving, and writing rates into groups.

Comes in: an optimizer. `step` writes the rates that `get_lr` gives into its groups. All other
modules of this folder build on it, and so do users' own schedules.
"""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ...core.source import describe, here
from ...core.tensor import Tensor
from ...replay.trace.options import innermost_capture
from ..optimizer import Group, Optimizer


class LRScheduler:
    """Base of the schedules: subclasses define `get_lr`, the rates at `last_epoch`.

    A subclass may also define `_get_closed_form_lr`, for an epoch that is passed to `step`.
    """

    _get_lr_called_within_step: bool = False
    _is_initial: bool = False

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        """`last_epoch` other than -1 continues a schedule whose optimizer state was loaded."""
        check_optimizer(optimizer)
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", own(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param_groups[{i}] has no 'initial_lr', which a schedule that goes on at "
                    f"epoch {last_epoch} needs; load the optimizer's state first"
                )
        self.optimizer = optimizer
        self.base_lrs: list[Any] = values_of(optimizer, "initial_lr")
        self.last_epoch = last_epoch
        self._initial_step()

    def _initial_step(self) -> None:
        """Set the rates of the first epoch."""
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def get_lr(self) -> list[Any]:
        """The learning rate of each group at `last_epoch`."""
        raise NotImplementedError(f"{type(self).__name__} does not define get_lr()")

    def get_last_lr(self) -> list[Any]:
        """The learning rates that this schedule last set."""
        return self._last_lr

    def step(self, epoch: Any = None) -> None:
        """Advance by one epoch (or iteration); call it after the optimizer's step.

        With an epoch as the argument, which PyTorch advises against, jump there.
        """
        check_not_captured(self)
        if self._step_count == 1 and not self.optimizer._opt_called:
            warnings.warn(
                "lr_scheduler.step() was called before optimizer.step(), so the first learning "
                "rate of the schedule is never used; call optimizer.step() first",
                UserWarning,
                stacklevel=2,
            )
        self._step_count += 1
        if epoch is not None:
            warn_of_epoch()
        self._update_lr(epoch)

    def _update_lr(self, epoch: Any = None) -> None:
        with self._computing():
            closed = getattr(self, "_get_closed_form_lr", None)
            self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
            rates = self.get_lr() if epoch is None or closed is None else closed()
        self._set(rates)

    def _set(self, rates: Iterable[Any]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            assign(group, "lr", rate)
        self._last_lr: list[Any] = values_of(self.optimizer, "lr")

    @contextmanager
    def _computing(self) -> Iterator[None]:
        """A context in which `get_lr` may be called without a warning."""
        self._get_lr_called_within_step = True
        try:
            yield
        finally:
            self._get_lr_called_within_step = False

    def _warn_outside_step(self) -> None:
        if not self._get_lr_called_within_step:
            warnings.warn(
                "get_lr() computes the next learning rates; to get the last ones, please use "
                "`get_last_lr()`",
                UserWarning,
                stacklevel=3,
            )

    def _rates(self) -> list[Any]:
        """The current rates."""
        return values_of(self.optimizer, "lr")

    def _scaled(self, factor: float) -> list[Any]:
        """The rates times a factor."""
        return [group["lr"] * factor for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state from `state_dict`."""
        self.__dict__.update(state_dict)


class _LRScheduler(LRScheduler):
    """The former name of `LRScheduler`."""


# -- values of groups ----------------------------------------------------------------------------


def own(value: Any) -> Any:
    """The value; a tensor is copied."""
    return value.clone() if isinstance(value, Tensor) else value


def values_of(optimizer: Optimizer, key: str) -> list[Any]:
    """One option of all groups."""
    return [own(group[key]) for group in optimizer.param_groups]


def assign(group: Group, key: str, value: Any) -> None:
    """Set an option; a tensor is changed in place, because compiled code reads its memory."""
    if isinstance(group[key], Tensor):
        group[key].fill_(float(value))
    else:
        group[key] = value


def one_for_each(name: str, optimizer: Optimizer, value: Any) -> list[Any]:
    """A value for each group, from a list of them or one for all."""
    count = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [own(value) for _ in range(count)]
    if len(value) != count:
        raise ValueError(f"{name} needs one value for each of {count} groups, got {len(value)}")
    return [own(v) for v in value]


# -- checks --------------------------------------------------------------------------------------


def check_optimizer(optimizer: Any) -> None:
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"a schedule needs an Optimizer, got {type(optimizer).__name__}")


def check_not_captured(scheduler: Any) -> None:
    capture = innermost_capture()
    if capture is not None:
        capture.refuse(
            f"{type(scheduler).__name__}.step() at {describe(here())} sets numbers in Python, "
            "which does not happen when a compiled function is replayed; call it outside, after "
            "the compiled function, which reads the learning rates in every call"
        )


EPOCH_DEPRECATION_WARNING = (
    "The epoch parameter in `scheduler.step()` is deprecated: call `step()` once each epoch"
)


def warn_of_epoch() -> None:
    warnings.warn(EPOCH_DEPRECATION_WARNING, UserWarning, stacklevel=3)


# -- functions in state dicts --------------------------------------------------------------------


def saved_function(function: Callable[..., Any] | None) -> Any:
    """The saved form of a function: the attributes of a callable object, None for others."""
    plain = function is None or isinstance(function, types.FunctionType)
    return None if plain else dict(function.__dict__)
