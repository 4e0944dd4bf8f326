"""Adadelta."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.tensor import Tensor
from ..ops.creation import zeros_like
from .optimizer import Group, Optimizer, ParamsT
from .options import check_not_negative, check_ways


class Adadelta(Optimizer):
    """v = rho v + (1 - rho) g²;  d = g sqrt(u + eps) / sqrt(v + eps);  p = p - lr d.

    Then u = rho u + (1 - rho) d². `weight_decay` adds weight_decay p to g. `foreach` and
    `capturable` are accepted as in PyTorch, without effect.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "rho": rho,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "capturable": capturable,
            "foreach": foreach,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    @staticmethod
    def check(options: Mapping[str, Any]) -> None:
        check_not_negative(options, lr="the learning rate", eps="eps", weight_decay="weight_decay")
        check_ways(options)
        if not 0.0 <= options["rho"] <= 1.0:
            raise ValueError(f"rho must lie between 0 and 1, got {options['rho']}")

    def update(self, parameter: Tensor, gradient: Tensor, group: Group) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = self.scalar()
            state["square_avg"] = zeros_like(parameter)
            state["acc_delta"] = zeros_like(parameter)
        state["step"] += 1
        rho, eps = self.number(group, "rho"), self.number(group, "eps")
        gradient = self.penalized(parameter, gradient, group)
        square, changes = state["square_avg"], state["acc_delta"]
        square *= rho
        square.add_(gradient * gradient, alpha=1 - rho)
        change = (changes + eps).sqrt() / (square + eps).sqrt() * gradient
        changes *= rho
        changes.add_(change * change, alpha=1 - rho)
        parameter.add_(change, alpha=-self.number(group, "lr"))
