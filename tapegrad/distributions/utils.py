"""Helpers of distributions: broadcasting parameters, probabilities and logits, lazy attributes.

Comes in: parameters as numbers or tensors. Goes out: tensors of one shape. All distributions use
them, as do programs that define their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .. import (
    Size,
    Tensor,
    arange,
    broadcast_tensors,
    enable_grad,
    finfo,
    get_default_dtype,
    lgamma,
    log,
    log1p,
    logsumexp,
    randn,
    sigmoid,
    softmax,
    tensor,
    tril_indices,
)
from ..ops.shape.dims import as_shape

__all__ = [
    "broadcast_all",
    "clamp_probs",
    "lazy_property",
    "logits_to_probs",
    "probs_to_logits",
    "tril_matrix_to_vec",
    "vec_to_tril_matrix",
]

euler_constant = 0.57721566490153286060

_Number = (int, float, complex, bool)


def as_size(shape: Any) -> Size:
    """A shape, given as a number, a tuple, a list or a Size."""
    return Size(as_shape((shape,)))


def broadcast_all(*values: Any) -> tuple[Any, ...]:
    """Tensors of one shape; numbers get the dtype and device of the first tensor."""
    for value in values:
        if not isinstance(value, (Tensor, *_Number)):
            raise ValueError(
                "expected numbers, tensors or objects with __torch_function__, got "
                f"{type(value).__name__}"
            )
    like = next((v for v in values if isinstance(v, Tensor)), None)
    dtype = get_default_dtype() if like is None else like.dtype
    device = None if like is None else like.device
    tensors = [
        v if isinstance(v, Tensor) else tensor(v, dtype=dtype, device=device) for v in values
    ]
    return tuple(broadcast_tensors(*tensors))


def _standard_normal(shape: Any, dtype: Any, device: Any) -> Tensor:
    """Samples of the standard normal distribution."""
    return randn(as_size(shape), dtype=dtype, device=device)


def _sum_rightmost(value: Any, dim: int) -> Any:
    """The sum over the last `dim` dimensions."""
    if dim == 0:
        return value
    return value.reshape((*value.shape[: value.dim() - dim], -1)).sum(-1)


def logits_to_probs(logits: Any, is_binary: bool = False) -> Any:
    """Probabilities of logits: log odds if binary, else log weights along the last dimension."""
    return sigmoid(logits) if is_binary else softmax(logits, -1)


def clamp_probs(probs: Any) -> Any:
    """Probabilities clamped to [eps, 1 - eps], with the eps of their dtype."""
    eps = finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs: Any, is_binary: bool = False) -> Any:
    """Logits of probabilities: log odds if binary, else logarithms."""
    clamped = clamp_probs(probs)
    if is_binary:
        return log(clamped) - log1p(-clamped)
    return log(clamped)


def normalized_logits(logits: Any) -> Any:
    """Logarithms of probabilities that sum to 1 along the last dimension."""
    return logits - logsumexp(logits, -1, keepdim=True)


def log_multigamma(x: Any, p: int) -> Any:
    """The logarithm of the multivariate gamma function."""
    halves = arange(p, dtype=x.dtype, device=x.device) / 2
    return lgamma(x.unsqueeze(-1) - halves).sum(-1) + p * (p - 1) / 4 * math.log(math.pi)


class lazy_property:
    """An attribute that is computed when first read, and cached."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped = wrapped
        self.__doc__ = wrapped.__doc__
        self.__name__ = wrapped.__name__

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        with enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


def tril_matrix_to_vec(mat: Any, diag: int = 0) -> Any:
    """The lower triangles of matrices, row by row, as vectors."""
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    rows, columns = tril_indices(n, n, diag)
    return mat[..., rows, columns]


def vec_to_tril_matrix(vec: Any, diag: int = 0) -> Any:
    """Lower triangular matrices filled row by row with the elements of vectors."""
    count = vec.shape[-1]
    # solve n (n + 1) / 2 = count, adjusted for `diag` further diagonals
    shift = 1 + 2 * diag
    n = (-shift + (shift**2 + 8 * count + 4 * abs(diag) * (diag + 1)) ** 0.5) / 2
    if round(n) - n > finfo(vec.dtype).eps:
        raise ValueError(f"{count} elements do not fill the lower triangle of a square matrix")
    size = round(n)
    matrix = vec.new_zeros((*vec.shape[:-1], size, size))
    rows, columns = tril_indices(size, size, diag)
    matrix[..., rows, columns] = vec
    return matrix
