"""Adamax."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.tensor import Tensor
from ..ops.creation import zeros_like
from .optimizer import Group, Optimizer, ParamsT
from .options import check_adaptive


class Adamax(Optimizer):
    """Adam with the largest recent gradient in place of a running mean of squares.

    m = b1 m + (1 - b1) g;  u = max(b2 u, |g| + eps);  p = p - lr m / ((1 - b1^t) u). `weight_decay`
    adds weight_decay p to g. `foreach` and `capturable` are accepted as in PyTorch, without effect.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": tuple(betas),
            "eps": eps,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    @staticmethod
    def check(options: Mapping[str, Any]) -> None:
        check_adaptive(options)

    def update(self, parameter: Tensor, gradient: Tensor, group: Group) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = self.scalar()
            state["exp_avg"] = zeros_like(parameter)
            state["exp_inf"] = zeros_like(parameter)
        beta1, beta2 = self.number(group, "betas", 0), self.number(group, "betas", 1)
        step = self.count(state)
        gradient = self.penalized(parameter, gradient, group)
        mean, peak = state["exp_avg"], state["exp_inf"]
        mean *= beta1
        mean.add_(gradient, alpha=1 - beta1)
        peak.copy_((peak * beta2).maximum(gradient.abs() + self.number(group, "eps")))
        parameter.add_(mean / peak, alpha=-self.number(group, "lr") / (1 - beta1**step))
