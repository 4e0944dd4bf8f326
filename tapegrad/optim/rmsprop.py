"""RMSprop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.tensor import Tensor
from ..ops.creation import zeros_like
from .optimizer import Group, Optimizer, ParamsT
from .options import check_not_negative, check_ways


class RMSprop(Optimizer):
    """v = alpha v + (1 - alpha) g²;  p = p - lr g / (sqrt(v) + eps).

    With `centered`, the square of the running mean of g is subtracted from v; with `momentum`, the
    steps g / (sqrt(v) + eps) are summed with that factor. `weight_decay` adds weight_decay p to g.
    `foreach` and `capturable` are accepted as in PyTorch, without effect.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "alpha": alpha,
            "eps": eps,
            "centered": centered,
            "weight_decay": weight_decay,
            "capturable": capturable,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    @staticmethod
    def check(options: Mapping[str, Any]) -> None:
        check_not_negative(
            options,
            lr="the learning rate",
            alpha="alpha",
            eps="eps",
            weight_decay="weight_decay",
            momentum="momentum",
        )
        check_ways(options)

    def update(self, parameter: Tensor, gradient: Tensor, group: Group) -> None:
        centered, moving = self.decides(group, "centered"), self.decides(group, "momentum")
        state = self.state[parameter]
        if not state:
            state["step"] = self.scalar()
            state["square_avg"] = zeros_like(parameter)
            if moving:
                state["momentum_buffer"] = zeros_like(parameter)
            if centered:
                state["grad_avg"] = zeros_like(parameter)
        state["step"] += 1
        gradient = self.penalized(parameter, gradient, group)
        alpha, square = self.number(group, "alpha"), state["square_avg"]
        square *= alpha
        square += gradient * gradient * (1 - alpha)
        variance = square
        if centered:
            mean = state["grad_avg"]
            mean *= alpha
            mean += gradient * (1 - alpha)
            variance = square - mean * mean
        change = gradient / (variance.sqrt() + self.number(group, "eps"))
        if moving:
            buffer = state["momentum_buffer"]
            buffer *= self.number(group, "momentum")
            buffer += change
            change = buffer
        parameter -= change * self.number(group, "lr")
