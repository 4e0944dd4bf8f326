"""Schedules that follow a cosine."""

from __future__ import annotations

import math
from typing import Any

from ..optimizer import Optimizer
from .base import LRScheduler, check_not_captured


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the initial rate down to `eta_min` in `T_max` epochs, and back up."""

    def __init__(
        self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def _height(self, epoch: int) -> float:
        return 1 + math.cos(math.pi * epoch / self.T_max)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        low, epoch, period, rates = self.eta_min, self.last_epoch, self.T_max, self._rates()
        if self._is_initial:
            return rates
        if self._step_count == 1 and epoch > 0:
            return self._get_closed_form_lr()
        if (epoch - 1 - period) % (2 * period) == 0:
            # The rate was at its minimum, so the next one cannot be computed from it.
            rise = (1 - math.cos(math.pi / period)) / 2
            pairs = zip(rates, self.base_lrs, strict=True)
            return [rate + (base - low) * rise for rate, base in pairs]
        ratio = self._height(epoch) / self._height(epoch - 1)
        return [low + (rate - low) * ratio for rate in rates]

    def _get_closed_form_lr(self) -> list[Any]:
        low, height = self.eta_min, self._height(self.last_epoch) / 2
        return [low + (base - low) * height for base in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a cosine down to `eta_min` in `T_0` epochs, then the next, `T_mult` times as long."""

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        if not isinstance(T_0, int) or T_0 <= 0:
            raise ValueError(f"T_0 must be an integer above 0, got {T_0!r}")
        if not isinstance(T_mult, int) or T_mult < 1:
            raise ValueError(f"T_mult must be an integer of at least 1, got {T_mult!r}")
        if not isinstance(eta_min, (int, float)):
            raise ValueError(f"eta_min must be a number, got {type(eta_min).__name__}")
        self.T_0 = T_0
        self.T_i = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        low, height = self.eta_min, (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [low + (base - low) * height for base in self.base_lrs]

    def step(self, epoch: Any = None) -> None:
        """Advance by one epoch, or to the given one, which may be a fraction."""
        check_not_captured(self)
        if epoch is None and self.last_epoch >= 0:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur %= self.T_i
                self.T_i *= self.T_mult
        else:
            self._jump(0 if epoch is None else epoch)
            epoch = 0 if epoch is None else epoch
        self.last_epoch = math.floor(epoch)
        with self._computing():
            rates = self.get_lr()
        self._set(rates)

    def _jump(self, epoch: float) -> None:
        """Find the period of an epoch, and the position within it."""
        if epoch < 0:
            raise ValueError(f"the epoch must be 0 or more, got {epoch}")
        if epoch < self.T_0:
            self.T_i, self.T_cur = self.T_0, epoch
        elif self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        else:
            growth = self.T_mult - 1
            periods = int(math.log(epoch / self.T_0 * growth + 1, self.T_mult))
            self.T_cur = epoch - self.T_0 * (self.T_mult**periods - 1) / growth
            self.T_i = self.T_0 * self.T_mult**periods
