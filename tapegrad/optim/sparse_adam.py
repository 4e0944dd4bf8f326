"""Adam for sparse gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.tensor import Tensor
from ..ops.creation import zeros_like
from .optimizer import Group, Optimizer, ParamsT
from .options import check_adaptive


class SparseAdam(Optimizer):
    """Adam that updates only the elements of a sparse gradient.

    m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g²;  p = p - lr m' / (sqrt(v) + eps), where m' is m
    with both bias corrections: m sqrt(1 - b2^t) / (1 - b1^t). Parameters, m and v are dense.
    Elements without a gradient keep their values, in m and v too, and t counts all steps.

    >>> import tapegrad
    >>> layer = tapegrad.nn.Embedding(10, 3, sparse=True)
    >>> optimizer = tapegrad.optim.SparseAdam(layer.parameters(), lr=0.1)
    >>> before = layer.weight.detach().clone()
    >>> grads = layer(tapegrad.tensor([1, 1, 4])).sum().backward()
    >>> optimizer.step()
    >>> (layer.weight != before).any(1).nonzero().tolist()
    [[1], [4]]
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        defaults = {"lr": lr, "betas": tuple(betas), "eps": eps, "maximize": maximize}
        super().__init__(params, defaults)

    @staticmethod
    def check(options: Mapping[str, Any]) -> None:
        check_adaptive({"weight_decay": 0.0, **options})
        if not options["eps"] > 0:
            raise ValueError(f"eps must be above 0, got {options['eps']}")

    def check_parameter(self, parameter: Tensor) -> None:
        if parameter.is_sparse:
            raise ValueError(
                "SparseAdam changes dense parameters, and one is sparse; use to_dense()"
            )

    takes_dense = False

    def check_gradient(self, gradient: Tensor, group: Group) -> None:
        if not gradient.is_sparse:
            raise RuntimeError(
                "SparseAdam takes sparse gradients only, and one is dense; use Adam for it"
            )

    def update_sparse(self, parameter: Tensor, gradient: Any, group: Group) -> None:
        from ..ops.sparse.updates import add_into, like, picked

        state = self.state[parameter]
        if not state:
            state["step"] = 0
            state["exp_avg"] = zeros_like(parameter)
            state["exp_avg_sq"] = zeros_like(parameter)
        state["step"] += 1
        step = state["step"]
        gradient = (-gradient if self.decides(group, "maximize") else gradient).coalesce()
        values = gradient.values()
        if not values.numel():
            return
        beta1, beta2 = self.number(group, "betas", 0), self.number(group, "betas", 1)
        old, old_square = picked(state["exp_avg"], gradient), picked(state["exp_avg_sq"], gradient)
        change = (values - old) * (1 - beta1)
        change_square = (values * values - old_square) * (1 - beta2)
        add_into(state["exp_avg"], like(gradient, change))
        add_into(state["exp_avg_sq"], like(gradient, change_square))
        rate = self.number(group, "lr") * (1 - beta2**step) ** 0.5 / (1 - beta1**step)
        root = (old_square + change_square).sqrt() + self.number(group, "eps")
        add_into(parameter, like(gradient, (old + change) / root * -rate))

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load state and options from `state_dict`; tensors are copied."""
        super().load_state_dict(state_dict)
        for state in self.state.values():
            if isinstance(state, dict) and "step" in state:  # hooks may keep their own values here
                state["step"] = int(state["step"])
