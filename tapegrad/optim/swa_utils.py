"""Averages of a model's weights over training: SWA, EMA, or any other.

`AveragedModel` keeps the averages, `SWALR` moves the learning rate to a constant one, and
`update_bn` recomputes the statistics of batch norms for averaged weights. An average is a function
of tensors, so a compiled training step may contain `update_parameters`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

from ..core.dtypes import int64
from ..core.modes import STATE, TAPE, no_grad
from ..core.tensor import Tensor
from ..nn.module import Module
from ..nn.norm import _BatchNorm
from ..ops.creation import zeros
from .lr_scheduler.base import LRScheduler, check_optimizer, one_for_each
from .optimizer import Optimizer
from .options import choose

__all__ = [
    "SWALR",
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]

Average = Callable[[Tensor, Tensor, Any], Tensor]
MultiAverage = Callable[[list[Tensor], list[Tensor], Any], None]


def _check_decay(decay: float) -> None:
    if not 0.0 <= decay <= 1.0:
        raise ValueError(f"decay must lie between 0 and 1, got {decay}")


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """The exponential moving average: decay times the old one, the rest from the new weights."""
    _check_decay(decay)

    def ema_update(averaged: Tensor, current: Tensor, num_averaged: Any) -> Tensor:
        with no_grad():
            return averaged * decay + current * (1 - decay)

    return ema_update


def get_ema_multi_avg_fn(decay: float = 0.999) -> MultiAverage:
    """`get_ema_avg_fn` for lists of tensors, which are changed in place."""
    return _for_lists(get_ema_avg_fn(decay))


def get_swa_avg_fn() -> Average:
    """The mean of all weights so far."""

    def swa_update(averaged: Tensor, current: Tensor, num_averaged: Any) -> Tensor:
        with no_grad():
            mean: Tensor = averaged + (current - averaged) / (num_averaged + 1)
        return mean

    return swa_update


def get_swa_multi_avg_fn() -> MultiAverage:
    """`get_swa_avg_fn` for lists of tensors, which are changed in place."""
    return _for_lists(get_swa_avg_fn())


def _for_lists(average: Average) -> MultiAverage:
    def update(averaged: list[Tensor], current: list[Tensor], num_averaged: Any) -> None:
        with no_grad():
            for mean, new in zip(averaged, current, strict=True):
                mean.copy_(average(mean, new, num_averaged))

    return update


class AveragedModel(Module):
    """A copy of a model whose parameters are averages of the model's over training.

    `avg_fn(averaged, current, num_averaged)` gives one new average; `multi_avg_fn` changes lists of
    averages of one dtype in place. Without either it is the mean of all. Buffers are copied or,
    with `use_buffers`, averaged too.

    >>> import tapegrad
    >>> model = tapegrad.nn.Linear(1, 1, bias=False)
    >>> averaged = AveragedModel(model)
    >>> for value in (1.0, 2.0, 6.0):
    ...     filled = tapegrad.nn.init.constant_(model.weight, value)
    ...     averaged.update_parameters(model)
    >>> averaged.module.weight.item()
    3.0
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Average | None = None,
        multi_avg_fn: MultiAverage | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("give one of avg_fn and multi_avg_fn, not both")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", zeros((), dtype=int64, device=device))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Include the model's current weights in the averages."""
        buffers = list(zip(self.module.buffers(), model.buffers(), strict=True))
        pairs: list[tuple[Tensor, Tensor]] = list(
            zip(self.module.parameters(), model.parameters(), strict=True)
        )
        if self.use_buffers:
            pairs, buffers = pairs + buffers, []
        with no_grad():
            new = [current.detach().to(mean.device) for mean, current in pairs]
            self._average([mean for mean, _ in pairs], new)
            for mean, current in buffers:
                mean.copy_(current.detach().to(mean.device))
            self.n_averaged += 1

    def _average(self, averaged: list[Tensor], current: list[Tensor]) -> None:
        """Update the averages; the first weights are copied.

        On a tape the count is not read: a replay must be right at any count.
        """
        first: Any = self.n_averaged == 0
        if not STATE.mode & TAPE:
            first = bool(first)
            if first:
                for mean, new in zip(averaged, current, strict=True):
                    mean.copy_(new)
                return
        if self.multi_avg_fn is not None:
            for means, news in _by_kind(averaged, current):
                self.multi_avg_fn(means, news, self.n_averaged)
                for mean, new in zip(means, news, strict=True):
                    if first is not False:
                        mean.copy_(choose(first, new, mean))
            return
        average = self.avg_fn or get_swa_avg_fn()
        for mean, new in zip(averaged, current, strict=True):
            mean.copy_(choose(first, new, average(mean.detach(), new, self.n_averaged)))


def _by_kind(
    averaged: list[Tensor], current: list[Tensor]
) -> Iterable[tuple[list[Tensor], list[Tensor]]]:
    """The pairs in groups of one device and dtype."""
    groups: dict[Any, tuple[list[Tensor], list[Tensor]]] = {}
    for mean, new in zip(averaged, current, strict=True):
        means, news = groups.setdefault((str(mean.device), mean.dtype), ([], []))
        means.append(mean.detach())
        news.append(new)
    return groups.values()


def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Recompute the running statistics of all batch norms, as means over the loader's batches.

    A batch is the model's input, or a list or tuple that begins with it.
    """
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    if not norms:
        return
    momenta, was_training = [norm.momentum for norm in norms], model.training
    model.train()
    try:
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # a mean of all batches
        with no_grad():
            for batch in loader:
                x = batch[0] if isinstance(batch, (list, tuple)) else batch
                model(x if device is None else x.to(device))
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        model.train(was_training)


class SWALR(LRScheduler):
    """From the current rates to `swa_lr` in `anneal_epochs` epochs, then constant."""

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | list[float],
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        check_optimizer(optimizer)
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be 'cos' or 'linear', got {anneal_strategy!r}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be an integer of at least 0, got {anneal_epochs}")
        rates = one_for_each("swa_lr", optimizer, swa_lr)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["swa_lr"] = rate
        self._anneal_strategy = anneal_strategy
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def anneal_func(self, t: float) -> float:
        """The share of `swa_lr` in the rate, after a share `t` of the epochs."""
        return t if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def _share(self, step: int) -> float:
        return self.anneal_func(max(0.0, min(1.0, step / max(1, self.anneal_epochs))))

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._share(step - 1), self._share(step)
        rates = []
        for group in self.optimizer.param_groups:
            rate, goal = group["lr"], group["swa_lr"]
            start = goal if before == 1 else (rate - before * goal) / (1 - before)
            rates.append(goal * now + start * (1 - now))
        return rates
