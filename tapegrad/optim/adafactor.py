"""Adafactor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.dtypes import finfo
from ..core.tensor import Tensor
from ..ops.creation import zeros_like
from .optimizer import Group, Optimizer, ParamsT
from .options import check_not_negative, largest, smallest


class Adafactor(Optimizer):
    """Steps scaled by a running mean of squares, which matrices store as one row and one column.

    b = t^beta2_decay is the weight of the newest squares. The change u = g / max(sqrt(v), eps[0])
    is divided by max(1, rms(u) / d), and p = p - min(lr, 1 / sqrt(t)) max(eps[1], rms(p)) u. For a
    matrix v is row column / mean(row). `weight_decay` subtracts lr weight_decay p from p. eps[0] is
    the precision of the parameter's dtype if it is None. `foreach` is accepted as in PyTorch,
    without effect.
    """

    shapes_of_their_own = ("row_var", "col_var")

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "beta2_decay": beta2_decay,
            "eps": tuple(eps),
            "d": d,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    @staticmethod
    def check(options: Mapping[str, Any]) -> None:
        check_not_negative(options, lr="the learning rate", weight_decay="weight_decay")
        if not options["beta2_decay"] <= 0:
            raise ValueError(f"beta2_decay must be 0 or less, got {options['beta2_decay']}")
        for i, value in enumerate(options["eps"]):
            if not (value is None and i == 0) and not value >= 0:
                raise ValueError(f"eps[{i}] must be 0 or more, got {value}")
        if not options["d"] >= 1:
            raise ValueError(f"d, the threshold of clipping, must be 1 or more, got {options['d']}")

    def update(self, parameter: Tensor, gradient: Tensor, group: Group) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = self.scalar()
            if parameter.ndim > 1:
                state["row_var"] = zeros_like(parameter[..., :1])
                state["col_var"] = zeros_like(parameter[..., :1, :])
            else:
                state["variance"] = zeros_like(parameter)
        step, lr = self.count(state), self.number(group, "lr")
        tiny = finfo(parameter.dtype).eps
        if self.given(group, "eps", 0):
            tiny = self.number(group, "eps", 0)
        if self.decides(group, "maximize"):
            gradient = -gradient
        weight = step ** self.number(group, "beta2_decay")
        rate = largest(_size(parameter), self.number(group, "eps", 1))
        rate = rate * smallest(lr, 1 / step**0.5)
        if self.decides(group, "weight_decay"):
            parameter *= 1 - lr * self.number(group, "weight_decay")
        change = gradient * _variance(state, gradient, weight, tiny).clamp(min=tiny * tiny).rsqrt()
        change = change / largest(_size(change) / self.number(group, "d"), 1.0)
        parameter -= change * rate


def _size(x: Tensor) -> Any:
    """The root of the mean square."""
    return (x * x).mean().sqrt()


def _variance(state: dict[str, Any], gradient: Tensor, weight: Any, tiny: Any) -> Tensor:
    """Update and return the estimate of the mean square of every element."""
    squares = gradient * gradient
    if gradient.ndim < 2:
        variance: Tensor = state["variance"]
        variance += (squares - variance) * weight
        return variance
    rows: Tensor = state["row_var"]
    columns: Tensor = state["col_var"]
    rows += (squares.mean(-1, keepdim=True) - rows) * weight
    columns += (squares.mean(-2, keepdim=True) - columns) * weight
    return rows * columns / rows.mean(-2, keepdim=True).clamp(min=tiny)
