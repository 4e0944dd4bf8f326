"""Parametrizations: weight norm, spectral norm and orthogonal matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.modes import no_grad
from ...core.tensor import Tensor, wrap
from ...ops.creation import CREATION
from ...ops.linalg.matrices import inverse, matrix_exp
from ...ops.shape.joining import cat
from .. import functional as F
from ..module import Module
from . import parametrize
from .spectral_norm import as_matrix, output_dim, random_direction
from .weight_norm import norm_except_dim, scaled

# -- norms -------------------------------------------------------------------------------------


class _WeightNorm(Module):
    """A weight as norms times directions."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Any, weight_v: Any) -> Any:
        return scaled(weight_g, weight_v, self.dim)

    def right_inverse(self, weight: Any) -> tuple[Any, Any]:
        return norm_except_dim(weight, 2, self.dim), weight


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """Compute a weight from its norms along `dim`, `original0`, and its direction, `original1`."""
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def load_older(state_dict: Any, prefix: str, *rest: Any) -> None:
        """Load a state dict with the names of `nn.utils.weight_norm`."""
        older = [f"{prefix}{name}_{end}" for end in "gv"]
        if all(key in state_dict for key in older):
            for i, key in enumerate(older):
                state_dict[f"{prefix}parametrizations.{name}.original{i}"] = state_dict.pop(key)

    module._register_load_state_dict_pre_hook(load_older)
    return module


class _SpectralNorm(Module):
    """A weight divided by its largest singular value, which power iteration tracks."""

    _u: Any
    _v: Any

    def __init__(
        self, weight: Any, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        super().__init__()
        if not -weight.ndim <= dim < weight.ndim:
            raise IndexError(f"dim {dim} is out of range for a weight of {weight.ndim} dimensions")
        if n_power_iterations <= 0:
            raise ValueError(f"n_power_iterations must be above 0, got {n_power_iterations}")
        self.dim = dim % weight.ndim
        self.eps = eps
        if weight.ndim > 1:
            self.n_power_iterations = n_power_iterations
            matrix = as_matrix(weight.detach(), self.dim)
            rows, columns = matrix.shape
            self.register_buffer("_u", random_direction(weight, rows, eps))
            self.register_buffer("_v", random_direction(weight, columns, eps))
            self._iterate(matrix, 15)

    def _iterate(self, matrix: Any, times: int) -> None:
        with no_grad():
            for _ in range(times):
                F.normalize(matrix.mv(self._v), dim=0, eps=self.eps, out=self._u)
                F.normalize(matrix.t().mv(self._u), dim=0, eps=self.eps, out=self._v)

    def forward(self, weight: Any) -> Any:
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = as_matrix(weight, self.dim)
        if self.training:
            self._iterate(matrix, self.n_power_iterations)
        # The next call changes them, but backward may still need the current values.
        u, v = self._u.clone(), self._v.clone()
        return weight / u.dot(matrix.mv(v))

    def right_inverse(self, value: Any) -> Any:
        return value


def _tensor_of(module: Any, name: str) -> Any:
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"{type(module).__name__} has no parameter or buffer {name!r}")
    return weight


def spectral_norm(
    module: Any,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Any:
    """Divide a weight by its largest singular value."""
    weight = _tensor_of(module, name)
    rows = output_dim(module) if dim is None else dim
    made = _SpectralNorm(weight, n_power_iterations, rows, eps)
    return parametrize.register_parametrization(module, name, made)


# -- orthogonal matrices -----------------------------------------------------------------------

MAPS = ("matrix_exp", "cayley", "householder")


def _eye(x: Any, n: int) -> Any:
    return CREATION["eye"](n, dtype=x.dtype, device=x.device)


def _reflected(vectors: Any, scales: Any) -> Any:
    """The first columns of a product of reflections I - scale v v', with 1 on v's diagonal."""
    n, k = vectors.shape[-2:]
    eye = _eye(vectors, n)[:, :k]
    units = vectors.tril(-1) + eye
    out = eye.expand(vectors.shape)
    for i in range(k - 1, -1, -1):
        v = units[..., i : i + 1]
        out = out - scales[..., i].unsqueeze(-1).unsqueeze(-1) * (v @ (v.mT @ out))
    return out


def _reflections(q: Any) -> tuple[Any, Any]:
    """LAPACK's reflections of a QR decomposition: vectors below the diagonal of R, and scales."""
    raw, scales = np.linalg.qr(q.detach().cpu().numpy(), mode="raw")
    vectors = np.ascontiguousarray(np.swapaxes(raw, -1, -2))
    return tuple(wrap(x).to(q.dtype, device=q.device) for x in (vectors, scales))  # type: ignore[return-value]


def _orthogonalized(a: Any) -> Any:
    """The orthogonal factor of a matrix, with signs that make the other's diagonal positive."""
    vectors, scales = _reflections(a)
    return _reflected(vectors, scales) * vectors.diagonal(0, -2, -1).sign().unsqueeze(-2)


class _Orthogonal(Module):
    """A matrix with orthonormal columns, or rows if it is wide, from any matrix of its shape."""

    base: Any

    def __init__(self, weight: Any, orthogonal_map: str, use_trivialization: bool = True) -> None:
        super().__init__()
        self.shape = tuple(weight.shape)
        self.orthogonal_map = orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, x: Any) -> Any:
        wide = x.shape[-2] < x.shape[-1]
        x = x.mT if wide else x
        q = self._by_reflections(x) if self.orthogonal_map == "householder" else self._by_skew(x)
        if "base" in self._buffers:
            q = self.base @ q
        return q.mT if wide else q

    def _by_skew(self, x: Any) -> Any:
        n, k = x.shape[-2:]
        x = x.tril()
        if n != k:
            x = cat([x, x.new_zeros(n, n - k).expand(*x.shape[:-2], n, n - k)], -1)
        skew = x - x.mT
        if self.orthogonal_map == "matrix_exp":
            q = matrix_exp(skew)
        else:
            eye = _eye(skew, n)
            q = inverse(eye - 0.5 * skew) @ (eye + 0.5 * skew)
        return q[..., :k]

    def _by_reflections(self, x: Any) -> Any:
        below = x.tril(-1)
        q = _reflected(below, 2.0 / (1.0 + (below * below).sum(-2)))
        # The diagonal holds signs, which are not trained.
        return q * x.detach().diagonal(0, -2, -1).trunc().unsqueeze(-2)

    def right_inverse(self, q: Any) -> Any:
        with no_grad():
            return self._originals_of(q.detach())

    def _originals_of(self, q: Any) -> Any:
        if tuple(q.shape) != self.shape:
            raise ValueError(f"expected shape {self.shape}, got {tuple(q.shape)}")
        wide = q.shape[-2] < q.shape[-1]
        tall = q.mT if wide else q
        n, k = tall.shape[-2:]
        if "base" not in self._buffers:
            if self.orthogonal_map != "householder":
                raise NotImplementedError(
                    f"{self.orthogonal_map} without use_trivialization cannot be set to a value"
                )
            vectors, scales = _reflections(tall)
            signs = vectors.diagonal(0, -2, -1).sign() * (1.0 - 2.0 * (scales == 0))
            out = vectors - _on_diagonal(vectors, vectors.diagonal(0, -2, -1) - signs)
            return (out.mT if wide else out).to(q.dtype)
        if n == k:
            self.base = tall.clone() if _is_orthogonal(tall) else _orthogonalized(tall)
        else:
            more = CREATION["randn"](*tall.shape[:-2], n, n - k, dtype=q.dtype, device=q.device)
            self.base = _orthogonalized(cat([tall, more], -1))
        # All maps map minus the identity to the identity.
        return -_eye(q, max(n, k))[: q.shape[-2], : q.shape[-1]].expand(q.shape)


def _on_diagonal(like: Any, values: Any) -> Any:
    n, k = like.shape[-2:]
    return _eye(like, n)[:, :k] * values.unsqueeze(-2)


def _is_orthogonal(q: Any) -> bool:
    n, k = q.shape[-2:]
    small = 10.0 * n * float(np.finfo(q.detach().cpu().numpy().dtype).eps)
    return bool(((q.mT @ q - _eye(q, k)).abs() <= small).all())


def orthogonal(
    module: Any,
    name: str = "weight",
    orthogonal_map: str | None = None,
    *,
    use_trivialization: bool = True,
) -> Any:
    """Keep a weight orthogonal: its columns, or rows if it is wide, are orthonormal.

    `orthogonal_map` is "matrix_exp", "cayley" or "householder".
    """
    weight = _tensor_of(module, name)
    if weight.ndim < 2:
        raise ValueError(f"orthogonal needs a matrix or a batch of them, got {tuple(weight.shape)}")
    if orthogonal_map is None:
        square = weight.shape[-2] == weight.shape[-1]
        orthogonal_map = "matrix_exp" if square else "householder"
    if orthogonal_map not in MAPS:
        raise ValueError(f"orthogonal_map must be one of {MAPS}, got {orthogonal_map!r}")
    made = _Orthogonal(weight, orthogonal_map, use_trivialization)
    return parametrize.register_parametrization(module, name, made, unsafe=True)


__all__ = ["orthogonal", "spectral_norm", "weight_norm"]
