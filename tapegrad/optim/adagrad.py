"""Adagrad."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.tensor import Tensor
from ..ops.creation import full_like
from .optimizer import Group, Optimizer, ParamsT
from .options import check_not_negative, check_ways


class Adagrad(Optimizer):
    """s = s + g²;  p = p - lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + eps).

    Sparse gradients change only the rows that they have, and exclude `weight_decay`. The sum s
    begins at `initial_accumulator_value`. `weight_decay` adds weight_decay p to g. `foreach` and
    `fused` are accepted as in PyTorch, without effect.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        defaults = {
            "lr": lr,
            "lr_decay": lr_decay,
            "eps": eps,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)

    @staticmethod
    def check(options: Mapping[str, Any]) -> None:
        check_not_negative(
            options,
            lr="the learning rate",
            lr_decay="lr_decay",
            weight_decay="weight_decay",
            initial_accumulator_value="initial_accumulator_value",
            eps="eps",
        )
        check_ways(options)

    def add_param_group(self, param_group: Group) -> None:
        super().add_param_group(param_group)
        # As in PyTorch, the sums exist before the first step.
        for parameter in self.param_groups[-1]["params"]:
            self._begin(parameter, self.param_groups[-1])

    def _begin(self, parameter: Tensor, group: Group) -> None:
        start = group["initial_accumulator_value"]
        self.state[parameter]["step"] = self.scalar()
        self.state[parameter]["sum"] = full_like(parameter, start, dtype=parameter.dtype)

    def update(self, parameter: Tensor, gradient: Tensor, group: Group) -> None:
        state = self.state[parameter]
        if not state:
            self._begin(parameter, group)
        step = self.count(state)
        gradient = self.penalized(parameter, gradient, group)
        total = state["sum"]
        total += gradient * gradient
        rate = self.number(group, "lr") / (1 + (step - 1) * self.number(group, "lr_decay"))
        change = gradient / (total.sqrt() + self.number(group, "eps"))
        parameter.add_(change, alpha=-rate)

    def check_gradient(self, gradient: Tensor, group: Group) -> None:
        if self.decides(group, "weight_decay"):
            raise RuntimeError("Adagrad: weight_decay does not go with sparse gradients")

    def update_sparse(self, parameter: Tensor, gradient: Any, group: Group) -> None:
        from ..ops.sparse.updates import add_into, like, picked

        state = self.state[parameter]
        if not state:
            self._begin(parameter, group)
        step = self.count(state)
        gradient = (-gradient if self.decides(group, "maximize") else gradient).coalesce()
        values = gradient.values()
        add_into(state["sum"], like(gradient, values * values))
        rate = self.number(group, "lr") / (1 + (step - 1) * self.number(group, "lr_decay"))
        root = picked(state["sum"], gradient).sqrt() + self.number(group, "eps")
        add_into(parameter, like(gradient, values / root), -rate)

    def share_memory(self) -> None:
        """Does nothing: tensors of one process have no other memory to move to."""
