"""Weights divided by their largest singular value (Miyato et al., 2018).

`parametrizations.spectral_norm` does the same; this is the older form, whose parameter is
`weight_orig`. Both find the singular value by power iteration.
"""

from __future__ import annotations

from typing import Any

from ...core.modes import no_grad
from .. import functional as F
from ..parameter import Parameter
from ..state import SavedByParts
from ..uninitialized import check_initialized
from . import computed


def as_matrix(weight: Any, dim: int) -> Any:
    """A weight as a matrix whose rows belong to one of its dimensions."""
    if dim != 0:
        weight = weight.permute(dim, *(d for d in range(weight.ndim) if d != dim))
    return weight.reshape(weight.shape[0], -1)


def output_dim(module: Any) -> int:
    """The dimension of a layer's weight that its outputs belong to."""
    kinds = [kind.__name__ for kind in type(module).__mro__]
    return int(any(name.startswith("ConvTranspose") for name in kinds))


def random_direction(weight: Any, size: int, eps: float) -> Any:
    """A random vector of length 1, with the dtype and device of a weight."""
    return F.normalize(weight.detach().new_empty(size).normal_(0, 1), dim=0, eps=eps)


class SpectralNorm(SavedByParts):
    """Computes a weight from its original and two singular vectors, updated in training."""

    def __init__(
        self, name: str = "weight", n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        if n_power_iterations <= 0:
            raise ValueError(f"n_power_iterations must be above 0, got {n_power_iterations}")
        self.name = name
        self.dim = dim
        self.n_power_iterations = n_power_iterations
        self.eps = eps

    def __call__(self, module: Any) -> Any:
        """The weight, computed with the current singular vectors."""
        weight, u, v = (getattr(module, f"{self.name}_{end}") for end in ("orig", "u", "v"))
        # The next call changes them, but backward may still need the current values.
        u, v = u.clone(), v.clone()
        return weight / u.dot(as_matrix(weight, self.dim).mv(v))

    def iterate(self, module: Any) -> None:
        """A step of power iteration."""
        weight, u, v = (getattr(module, f"{self.name}_{end}") for end in ("orig", "u", "v"))
        with no_grad():
            matrix = as_matrix(weight, self.dim)
            for _ in range(self.n_power_iterations):
                F.normalize(matrix.t().mv(u), dim=0, eps=self.eps, out=v)
                F.normalize(matrix.mv(v), dim=0, eps=self.eps, out=u)


class PowerIteration(SavedByParts):
    """The hook before each call of a module with a spectral norm: a step in training."""

    def __init__(self, norm: SpectralNorm) -> None:
        self.norm = norm

    def __call__(self, module: Any, inputs: Any) -> None:
        if module.training:
            self.norm.iterate(module)


def spectral_norm(
    module: Any,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Any:
    """Divide a parameter, which becomes `name_orig`, by its largest singular value."""
    if isinstance(module.__dict__.get("_computed", {}).get(name), SpectralNorm):
        raise RuntimeError(f"{name!r} has a spectral norm already")
    weight = module._parameters.get(name)
    if weight is None:
        raise ValueError(f"{type(module).__name__} has no parameter {name!r}")
    check_initialized(weight)
    hook = SpectralNorm(name, n_power_iterations, output_dim(module) if dim is None else dim, eps)
    rows, columns = as_matrix(weight.detach(), hook.dim).shape
    u, v = random_direction(weight, rows, eps), random_direction(weight, columns, eps)
    delattr(module, name)
    module.register_parameter(f"{name}_orig", weight)
    module.register_buffer(f"{name}_u", u)
    module.register_buffer(f"{name}_v", v)
    computed.add(module, name, hook)
    module.register_forward_pre_hook(PowerIteration(hook))
    return module


def remove_spectral_norm(module: Any, name: str = "weight") -> Any:
    """Make the weight a parameter again, with its current value."""
    made = module.__dict__.get("_computed", {}).get(name)
    if not isinstance(made, SpectralNorm):
        raise ValueError(f"{name!r} of {type(module).__name__} has no spectral norm")
    weight = made(module).detach()
    computed.remove(module, name)
    for end in ("_u", "_v", "_orig"):
        delattr(module, name + end)
    module.register_parameter(name, Parameter(weight))
    for key, hook in list(module._forward_pre_hooks.items()):
        if getattr(hook, "norm", None) is made:
            del module._forward_pre_hooks[key]
    return module
