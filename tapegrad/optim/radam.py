"""RAdam."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.tensor import Tensor
from ..ops.creation import zeros_like
from .optimizer import Group, Optimizer, ParamsT
from .options import check_adaptive, choose


class RAdam(Optimizer):
    """Adam that divides by the running mean of squares only once its variance is known.

    With r = 2 / (1 - b2) - 1 and r(t) = r - 2 t b2^t / (1 - b2^t), the step is lr m' while r(t) is
    at most 5, and then lr m' / (sqrt(v') + eps) times sqrt((r(t) - 4) (r(t) - 2) r / ((r - 4) (r -
    2) r(t))). `weight_decay` adds weight_decay p to g or, with `decoupled_weight_decay`, subtracts
    lr weight_decay p from p. `foreach` and `capturable` are accepted as in PyTorch, without effect.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
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
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "decoupled_weight_decay": decoupled_weight_decay,
            "differentiable": differentiable,
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
            state["exp_avg_sq"] = zeros_like(parameter)
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
        enough, rectified = _rectification(beta2, step)
        scale = rectified * (1 - beta2**step) ** 0.5
        factor = choose(enough, scale / (square.sqrt() + self.number(group, "eps")), 1.0)
        parameter.add_(mean * factor, alpha=-lr / (1 - beta1**step))


def _rectification(beta2: Any, step: Any) -> tuple[Any, Any]:
    """Whether this step divides by the mean of squares, and its factor if so."""
    limit = 2 / (1 - beta2) - 1
    power = beta2**step
    length = limit - 2 * step * power / (1 - power)
    enough = length > 5
    # Both sides of a choice are computed: use 1 where the root would not exist.
    above = choose(enough, (length - 4) * (length - 2) * limit, 1.0)
    below = choose(enough, (limit - 4) * (limit - 2) * length, 1.0)
    return enough, (above / below) ** 0.5
