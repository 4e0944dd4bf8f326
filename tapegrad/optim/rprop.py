"""Resilient propagation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.tensor import Tensor
from ..ops.creation import zeros_like
from ..ops.elementwise.comparison import where_
from .optimizer import Group, Optimizer, ParamsT
from .options import check_not_negative, check_ways


class Rprop(Optimizer):
    """Steps that use only the sign of the gradient; each element has its own step size.

    A size begins at `lr`. It is multiplied by etas[1] if two gradients in a row have the same sign
    and by etas[0] if their signs differ, within `step_sizes`. An element whose sign changed pauses
    for one step. `foreach` and `capturable` are accepted as in PyTorch, without effect.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "etas": tuple(etas),
            "step_sizes": tuple(step_sizes),
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    @staticmethod
    def check(options: Mapping[str, Any]) -> None:
        check_not_negative(options, lr="the learning rate")
        check_ways(options)
        shrink, grow = options["etas"]
        if not 0.0 < shrink < 1.0 < grow:
            raise ValueError(
                f"etas must be a factor between 0 and 1 and one above 1, got {shrink} and {grow}"
            )

    def update(self, parameter: Tensor, gradient: Tensor, group: Group) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = self.scalar()
            state["prev"] = zeros_like(parameter)
            state["step_size"] = zeros_like(parameter)
            state["step_size"] += self.number(group, "lr")
        state["step"] += 1
        if self.decides(group, "maximize"):
            gradient = -gradient
        shrink, grow = self.number(group, "etas", 0), self.number(group, "etas", 1)
        smallest, largest = (self.number(group, "step_sizes", i) for i in (0, 1))
        # Detach: a sign has no derivative, and its operand is changed below.
        size, sign = state["step_size"], (gradient.detach() * state["prev"].detach()).sign()
        sign_changed = sign < 0
        # The factor is 1 where the sign is 0, and NaN where the gradient is.
        factor = where_(sign_changed, shrink, where_(sign > 0, grow, sign + 1))
        size *= factor
        size.clamp_(smallest, largest)
        gradient = where_(sign_changed, 0.0, gradient)
        parameter -= gradient.sign() * size
        state["prev"].copy_(gradient)
