"""A schedule that reacts to a metric."""

from __future__ import annotations

import math
from typing import Any

from ..optimizer import Optimizer
from .base import (
    LRScheduler,
    assign,
    check_not_captured,
    check_optimizer,
    one_for_each,
    values_of,
    warn_of_epoch,
)


class ReduceLROnPlateau(LRScheduler):
    """Times `factor` when a metric has not improved for more than `patience` epochs."""

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | list[float] = 0,
        eps: float = 1e-8,
    ) -> None:
        if factor >= 1.0:
            raise ValueError(f"factor must be below 1, got {factor}")
        if mode not in ("min", "max"):
            raise ValueError(f"mode must be 'min' or 'max', got {mode!r}")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"threshold_mode must be 'rel' or 'abs', got {threshold_mode!r}")
        check_optimizer(optimizer)
        self.min_lrs = one_for_each("min_lr", optimizer, min_lr)
        self.default_min_lr = None if isinstance(min_lr, (list, tuple)) else min_lr
        self.optimizer = optimizer
        self.mode = mode
        self.factor = factor
        self.patience = patience
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.cooldown = cooldown
        self.eps = eps
        self.mode_worse = math.inf if mode == "min" else -math.inf
        self.last_epoch = 0
        self._last_lr = values_of(optimizer, "lr")
        self._reset()

    def _reset(self) -> None:
        """Reset the metrics and counters."""
        self.best = self.mode_worse
        self.cooldown_counter = 0
        self.num_bad_epochs = 0

    @property
    def in_cooldown(self) -> bool:
        """Whether the rate was lowered so recently that bad epochs are not counted yet."""
        return self.cooldown_counter > 0

    def is_better(self, metric: float, best: float) -> bool:
        """Whether `metric` improves on `best` by more than the threshold."""
        sign = 1 if self.mode == "min" else -1
        relative = self.threshold_mode == "rel"
        bound = best * (1 - sign * self.threshold) if relative else best - sign * self.threshold
        return sign * metric < sign * bound

    def step(self, metrics: Any = None, epoch: Any = None) -> None:  # type: ignore[override]
        """Record this epoch's metric, a number or a tensor of one element, and adapt the rate."""
        check_not_captured(self)
        if metrics is None:
            raise TypeError("ReduceLROnPlateau.step needs the metric: scheduler.step(loss)")
        metric = float(metrics)
        if epoch is not None:
            warn_of_epoch()
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self.is_better(metric, self.best):
            self.best = metric
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce()
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = values_of(self.optimizer, "lr")

    def _reduce(self) -> None:
        groups = self.optimizer.param_groups
        if len(groups) != len(self.min_lrs):
            if self.default_min_lr is None:
                raise RuntimeError(
                    f"the optimizer has {len(groups)} groups now and had {len(self.min_lrs)} when "
                    "ReduceLROnPlateau was made; give its min_lrs a value for each"
                )
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, lowest in zip(groups, self.min_lrs, strict=True):
            rate = float(group["lr"])
            lower = max(rate * self.factor, lowest)
            if rate - lower > self.eps:
                assign(group, "lr", lower)
