"""NAdam."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.tensor import Tensor
from ..ops.creation import zeros_like
from .optimizer import Group, Optimizer, ParamsT
from .options import check_adaptive, check_not_negative, rounded


class NAdam(Optimizer):
    """Adam with Nesterov's momentum.

    u(t) = b1 (1 - 0.96^(t momentum_decay) / 2), and U(t) is the product of all u up to t. The step
    is lr ((1 - u(t)) g / (1 - U(t)) + u(t + 1) m / (1 - U(t + 1))) / (sqrt(v') + eps), with Adam's
    m and v'. `weight_decay` adds weight_decay p to g or, with `decoupled_weight_decay`, subtracts
    lr weight_decay p from p. `foreach` and `capturable` are accepted as in PyTorch, without effect.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": tuple(betas),
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    @staticmethod
    def check(options: Mapping[str, Any]) -> None:
        check_adaptive(options)
        check_not_negative(options, momentum_decay="momentum_decay")

    def update(self, parameter: Tensor, gradient: Tensor, group: Group) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = self.scalar()
            state["mu_product"] = self.scalar(1.0)
            state["exp_avg"] = zeros_like(parameter)
            state["exp_avg_sq"] = zeros_like(parameter)
        lr = self.number(group, "lr")
        beta1, beta2 = self.number(group, "betas", 0), self.number(group, "betas", 1)
        step, decay = self.count(state), self.number(group, "momentum_decay")
        now = beta1 * (1 - 0.5 * 0.96 ** (step * decay))
        then = beta1 * (1 - 0.5 * 0.96 ** ((step + 1) * decay))
        state["mu_product"] *= rounded(now, state["mu_product"])
        product = self.value(state["mu_product"])
        decoupled = self.decides(group, "decoupled_weight_decay")
        gradient = self.penalized(parameter, gradient, group, decoupled)
        mean, square = state["exp_avg"], state["exp_avg_sq"]
        mean *= beta1
        mean.add_(gradient, alpha=1 - beta1)
        square *= beta2
        square.add_(gradient * gradient, alpha=1 - beta2)
        spread = (square / (1 - beta2**step)).sqrt() + self.number(group, "eps")
        parameter.add_(gradient / spread, alpha=-lr * (1 - now) / (1 - product))
        parameter.add_(mean / spread, alpha=-lr * then / (1 - product * then))
