"""Schedules that go up and down; the momentum moves in the opposite direction."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..optimizer import Group, Optimizer
from .base import LRScheduler, assign, check_optimizer, one_for_each, saved_function


class _WithMomentum(LRScheduler):
    """A schedule that can also change the momentum, or Adam's first beta."""

    cycle_momentum: bool
    use_beta1: bool

    def _begin_momentum(
        self, lowest: list[float] | float, highest: list[float] | float, first: bool
    ) -> tuple[list[Any], list[Any]]:
        """Check the bounds of the momentum, and set it to the upper one in a first epoch."""
        options = self.optimizer.defaults
        if "momentum" not in options and "betas" not in options:
            raise ValueError(
                f"cycle_momentum needs an optimizer with momentum or betas, which "
                f"{type(self.optimizer).__name__} has not; use cycle_momentum=False"
            )
        self.use_beta1 = "betas" in options
        lows = one_for_each("base_momentum", self.optimizer, lowest)
        highs = one_for_each("max_momentum", self.optimizer, highest)
        if first:
            for group, low, high in zip(self.optimizer.param_groups, lows, highs, strict=True):
                self._set_momentum(group, high)
                group["max_momentum"] = high
                group["base_momentum"] = low
        return lows, highs

    def _set_momentum(self, group: Group, value: Any) -> None:
        if self.use_beta1:
            group["betas"] = (value, *group["betas"][1:])
        else:
            group["momentum"] = value


class CyclicLR(_WithMomentum):
    """From `base_lr` up to `max_lr` and down again, over and over, in straight lines.

    `mode` says how high the later cycles go: "triangular", always the same; "triangular2", half as
    high each time; "exp_range", times gamma^iteration. `scale_fn`, a function of the cycle or with
    scale_mode="iterations" of the iteration, replaces the mode. Momentum moves in the opposite
    direction, unless `cycle_momentum` is False.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | list[float],
        max_lr: float | list[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.8,
        max_momentum: float | list[float] = 0.9,
        last_epoch: int = -1,
    ) -> None:
        check_optimizer(optimizer)
        if scale_fn is None and mode not in ("triangular", "triangular2", "exp_range"):
            raise ValueError(
                f"mode must be 'triangular', 'triangular2' or 'exp_range', got {mode!r}; or give "
                "scale_fn"
            )
        self.optimizer = optimizer
        bases = one_for_each("base_lr", optimizer, base_lr)
        self.max_lrs = one_for_each("max_lr", optimizer, max_lr)
        up = float(step_size_up)
        self.total_size = up + (up if step_size_down is None else float(step_size_down))
        self.step_ratio = up / self.total_size
        self.mode = mode
        self.gamma = gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode = scale_mode
        if scale_fn is None:
            self.scale_mode = "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        first = last_epoch == -1
        if cycle_momentum:
            bounds = self._begin_momentum(base_momentum, max_momentum, first)
            self.base_momentums, self.max_momentums = bounds
        if first:
            for group, base in zip(optimizer.param_groups, bases, strict=True):
                assign(group, "lr", base)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = bases

    def scale_fn(self, x: float) -> float:
        """How high a cycle goes."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "triangular":
            return 1.0
        return float(2.0 ** (1 - x) if self.mode == "triangular2" else self.gamma**x)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        phase = 1.0 + self.last_epoch / self.total_size - cycle
        rising = phase <= self.step_ratio
        height = phase / self.step_ratio if rising else (phase - 1) / (self.step_ratio - 1)
        height *= self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for group, low, high in zip(
                self.optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True
            ):
                self._set_momentum(group, high - (high - low) * height)
        bounds = zip(self.base_lrs, self.max_lrs, strict=True)
        return [low + (high - low) * height for low, high in bounds]

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer; of `scale_fn`, the attributes of a callable object."""
        saved = super().state_dict()
        saved["_scale_fn_custom"] = saved_function(self._scale_fn_custom)
        return saved

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state from `state_dict`."""
        attributes = state_dict["_scale_fn_custom"]
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "_scale_fn_custom"})
        if attributes is not None and self._scale_fn_custom is not None:
            self._scale_fn_custom.__dict__.update(attributes)


class OneCycleLR(_WithMomentum):
    """Up from max_lr / div_factor to `max_lr`, then down far below, in all steps of a training.

    `pct_start` is the share of steps that go up. The last rate is the first one divided by
    `final_div_factor`. `three_phase` goes down to the first rate as fast as it went up, and only
    then to the last one. Momentum moves in the opposite direction, unless `cycle_momentum` is
    False.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        check_optimizer(optimizer)
        self.optimizer = optimizer
        self.total_steps = _total(total_steps, epochs, steps_per_epoch)
        if not isinstance(pct_start, float) or not 0 <= pct_start <= 1:
            raise ValueError(f"pct_start must be a float between 0 and 1, got {pct_start!r}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be 'cos' or 'linear', got {anneal_strategy!r}")
        self._schedule_phases = _phases(self.total_steps, pct_start, three_phase)
        self._anneal_func_type = anneal_strategy
        highest = one_for_each("max_lr", optimizer, max_lr)
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._begin_momentum(base_momentum, max_momentum, last_epoch == -1)
        if last_epoch == -1:
            for group, high in zip(optimizer.param_groups, highest, strict=True):
                group["initial_lr"] = high / div_factor
                group["max_lr"] = high
                group["min_lr"] = group["initial_lr"] / final_div_factor
        super().__init__(optimizer, last_epoch)

    def _between(self, start: Any, end: Any, share: float) -> Any:
        if self._anneal_func_type == "linear":
            return start + (end - start) * share
        return end + (start - end) * (1 + math.cos(math.pi * share)) / 2

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        if self.last_epoch > self.total_steps:
            raise ValueError(
                f"OneCycleLR was made for {self.total_steps} steps, and this is step "
                f"{self.last_epoch}; give it a larger total_steps"
            )
        start = 0.0
        for phase in self._schedule_phases:
            if self.last_epoch <= phase["end_step"] or phase is self._schedule_phases[-1]:
                break
            start = phase["end_step"]
        share = (self.last_epoch - start) / (phase["end_step"] - start)
        rates = []
        for group in self.optimizer.param_groups:
            rates.append(self._between(group[phase["start_lr"]], group[phase["end_lr"]], share))
            if self.cycle_momentum:
                ends = group[phase["start_momentum"]], group[phase["end_momentum"]]
                self._set_momentum(group, self._between(*ends, share))
        return rates


def _total(total: Any, epochs: Any, steps_per_epoch: Any) -> int:
    """The number of steps, from one of the two ways to give it."""
    given: Sequence[tuple[str, Any]] = [("total_steps", total)]
    if total is None:
        if epochs is None or steps_per_epoch is None:
            raise ValueError("OneCycleLR needs total_steps, or both epochs and steps_per_epoch")
        given = [("epochs", epochs), ("steps_per_epoch", steps_per_epoch)]
    for name, value in given:
        if not isinstance(value, int) or value <= 0:
            raise ValueError(f"{name} must be an integer above 0, got {value!r}")
    return math.prod(value for _, value in given)


def _phases(total: int, share: float, three: bool) -> list[dict[str, Any]]:
    """The phases of the cycle: where each ends, and the group keys of its first and last values."""

    def phase(end: float, rates: tuple[str, str], momentum: tuple[str, str]) -> dict[str, Any]:
        names = (("lr", rates), ("momentum", momentum))
        ends = {
            f"{at}_{key}": pair[i] for key, pair in names for i, at in ((0, "start"), (1, "end"))
        }
        return {"end_step": end, **ends}

    top, bottom = "max_momentum", "base_momentum"
    rise = phase(float(share * total) - 1, ("initial_lr", "max_lr"), (top, bottom))
    if not three:
        return [rise, phase(total - 1, ("max_lr", "min_lr"), (bottom, top))]
    return [
        rise,
        phase(float(2 * share * total) - 2, ("max_lr", "initial_lr"), (bottom, top)),
        phase(total - 1, ("initial_lr", "min_lr"), (top, top)),
    ]
