"""Averaged stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.tensor import Tensor
from ..ops.creation import zeros_like
from .optimizer import Group, Optimizer, ParamsT
from .options import check_not_negative, check_ways, choose, largest


class ASGD(Optimizer):
    """p = p (1 - lambd eta) - eta g, with the mean of the parameters as `ax` in the state.

    The rate eta is lr / (1 + lambd lr t)^alpha; the mean begins after `t0` steps and equals the
    latest parameter until then. `weight_decay` adds weight_decay p to g. `foreach` and `capturable`
    are accepted as in PyTorch, without effect.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "lambd": lambd,
            "alpha": alpha,
            "t0": t0,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    @staticmethod
    def check(options: Mapping[str, Any]) -> None:
        check_not_negative(options, lr="the learning rate", weight_decay="weight_decay")
        check_ways(options)

    def update(self, parameter: Tensor, gradient: Tensor, group: Group) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = self.scalar()
            state["eta"] = self.scalar()
            state["eta"].fill_(self.number(group, "lr"))
            state["mu"] = self.scalar(1.0)
            state["ax"] = zeros_like(parameter)
        step, lr = self.count(state), self.number(group, "lr")
        lambd, alpha = self.number(group, "lambd"), self.number(group, "alpha")
        gradient = self.penalized(parameter, gradient, group)
        eta, mu, mean = self.value(state["eta"]), self.value(state["mu"]), state["ax"]
        parameter *= 1 - lambd * eta
        parameter.add_(gradient, alpha=-eta)
        mean.copy_(choose(mu == 1, parameter, mean + (parameter - mean) * mu))
        state["eta"].fill_(lr / (1 + lambd * lr * step) ** alpha)
        state["mu"].fill_(1 / largest(1.0, step - self.number(group, "t0")))
