"""Stochastic gradient descent, with momentum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.tensor import Tensor
from .optimizer import Group, Optimizer, ParamsT
from .options import check_not_negative, check_ways


class SGD(Optimizer):
    """b = momentum b + (1 - dampening) g;  p = p - lr b, with g as b in the first step.

    With `nesterov`, p = p - lr (g + momentum b). `weight_decay` adds weight_decay p to g. Sparse
    gradients, which exclude `weight_decay`, change only the elements that they have. `foreach` and
    `fused` are accepted as in PyTorch, without effect.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            "foreach": foreach,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)

    @staticmethod
    def check(options: Mapping[str, Any]) -> None:
        check_not_negative(
            options, lr="the learning rate", momentum="momentum", weight_decay="weight_decay"
        )
        check_ways(options)
        if options["nesterov"] and (options["momentum"] <= 0 or options["dampening"] != 0):
            raise ValueError("nesterov needs a momentum above 0 and no dampening")

    def update(self, parameter: Tensor, gradient: Tensor, group: Group) -> None:
        gradient = self.penalized(parameter, gradient, group)
        if self.decides(group, "momentum"):
            gradient = self._with_momentum(parameter, gradient, group)
        parameter.add_(gradient, alpha=-self.number(group, "lr"))

    def check_gradient(self, gradient: Tensor, group: Group) -> None:
        if self.decides(group, "weight_decay"):
            raise RuntimeError("SGD: weight_decay does not go with sparse gradients")

    def update_sparse(self, parameter: Tensor, gradient: Any, group: Group) -> None:
        from ..ops.sparse.updates import add_into

        if self.decides(group, "maximize"):
            gradient = -gradient
        if self.decides(group, "momentum"):
            gradient = self._with_momentum(parameter, gradient, group)
        rate = -self.number(group, "lr")
        if gradient.is_sparse:
            add_into(parameter, gradient, rate)
        else:  # earlier dense gradients made the momentum dense
            parameter.add_(gradient, alpha=rate)

    def _with_momentum(self, parameter: Tensor, gradient: Tensor, group: Group) -> Tensor:
        momentum = self.number(group, "momentum")
        state = self.state[parameter]
        buffer: Tensor | None = state.get("momentum_buffer")
        if buffer is None:
            state["momentum_buffer"] = buffer = gradient.detach().clone()
        else:
            buffer *= momentum
            if self.decides(group, "dampening"):
                buffer.add_(gradient, alpha=1 - self.number(group, "dampening"))
            else:
                buffer += gradient
        return gradient + buffer * momentum if self.decides(group, "nesterov") else buffer
