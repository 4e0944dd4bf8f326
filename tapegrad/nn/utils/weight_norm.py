"""Weights as a norm times a direction (Salimans and Kingma, 2016).

`parametrizations.weight_norm` does the same; this is the older form, whose parameters are
`weight_g` and `weight_v`.
"""

from __future__ import annotations

from typing import Any

from ...ops.reduce.statistics import norm
from ..parameter import Parameter
from ..state import SavedByParts
from ..uninitialized import check_initialized
from . import computed


def norm_except_dim(v: Any, p: float = 2, dim: int = 0) -> Any:
    """Norms over all dimensions but one, with size 1 in the result; -1 for all dimensions."""
    if dim == -1:
        return norm(v, p)
    kept = dim % v.ndim
    return norm(v, p, tuple(d for d in range(v.ndim) if d != kept), True)


def scaled(g: Any, v: Any, dim: int) -> Any:
    """v with norms of g."""
    return v * (g / norm_except_dim(v, 2, dim))


class WeightNorm(SavedByParts):
    """Computes a weight from its two parts."""

    def __init__(self, name: str, dim: int) -> None:
        self.name = name
        self.dim = dim

    def __call__(self, module: Any) -> Any:
        length, direction = (getattr(module, f"{self.name}_{end}") for end in "gv")
        return scaled(length, direction, self.dim)


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """Split a parameter into `name_g`, its norms along `dim`, and `name_v`, its direction."""
    if isinstance(module.__dict__.get("_computed", {}).get(name), WeightNorm):
        raise RuntimeError(f"{name!r} has a weight norm already")
    weight = module._parameters.get(name)
    if weight is None:
        raise RuntimeError(f"{name!r} of {type(module).__name__} is not a parameter")
    check_initialized(weight)
    made = WeightNorm(name, -1 if dim is None else dim)
    lengths = norm_except_dim(weight.detach(), 2, made.dim)
    delattr(module, name)
    module.register_parameter(f"{name}_g", Parameter(lengths))
    module.register_parameter(f"{name}_v", Parameter(weight.detach()))
    computed.add(module, name, made)
    return module


def remove_weight_norm(module: Any, name: str = "weight") -> Any:
    """Make the weight a parameter again, with its current value."""
    made = module.__dict__.get("_computed", {}).get(name)
    if not isinstance(made, WeightNorm):
        raise ValueError(f"{name!r} of {type(module).__name__} has no weight norm")
    weight = made(module).detach()
    computed.remove(module, name)
    for end in "gv":
        delattr(module, f"{name}_{end}")
    module.register_parameter(name, Parameter(weight))
    return module
