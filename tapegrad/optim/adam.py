"""Adam."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.tensor import Tensor
from ..ops.creation import zeros_like
from .optimizer import Group, Optimizer, ParamsT
from .options import check_adaptive


class Adam(Optimizer):
    """Steps scaled by running means of the gradient and of its square.

    m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g²;  p = p - lr m' / (sqrt(v') + eps), with m' = m /
    (1 - b1^t) and v' = v / (1 - b2^t); `amsgrad` uses the largest v so far. `weight_decay` adds
    weight_decay p to g or, with `decoupled_weight_decay`, subtracts lr weight_decay p from p.
    `foreach`, `fused` and `capturable` are accepted as in PyTorch, without effect.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": tuple(betas),
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
            "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, defaults)

    @staticmethod
    def check(options: Mapping[str, Any]) -> None:
        check_adaptive(options)
        tensors = [isinstance(beta, Tensor) for beta in options["betas"]]
        if any(tensors) != all(tensors):
            raise ValueError("give both betas as numbers or both as tensors")
        given = isinstance(options["lr"], Tensor) or any(tensors)
        if given and options.get("foreach") and not options.get("capturable"):
            raise ValueError(
                "tensors as learning rate or betas need capturable=True where foreach is True"
            )

    def update(self, parameter: Tensor, gradient: Tensor, group: Group) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = self.scalar()
            state["exp_avg"] = zeros_like(parameter)
            state["exp_avg_sq"] = zeros_like(parameter)
            if self.decides(group, "amsgrad"):
                state["max_exp_avg_sq"] = zeros_like(parameter)
        lr = self.number(group, "lr")
        beta1, beta2 = self.number(group, "betas", 0), self.number(group, "betas", 1)
        step = self.count(state)
        decoupled = self.decides(group, "decoupled_weight_decay")
        gradient = self.penalized(parameter, gradient, group, decoupled)
        mean, square = state["exp_avg"], state["exp_avg_sq"]
        mean *= beta1
        mean.add_(gradient, alpha=1 - beta1)
        square *= beta2
        square.add_(gradient * gradient, alpha=1 - beta2)
        if self.decides(group, "amsgrad"):
            largest = state["max_exp_avg_sq"]
            largest.copy_(self.kept(largest).maximum(square))
            square = largest
        # The corrections are numbers: folding them into lr and eps saves a pass over the tensor.
        root = (1 - beta2**step) ** 0.5
        change = mean / (square.sqrt() + root * self.number(group, "eps"))
        parameter.add_(change, alpha=-(root * lr / (1 - beta1**step)))
