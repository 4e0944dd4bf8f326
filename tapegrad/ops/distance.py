"""Functions of two sets of vectors: cosine similarity, distances, bilinear forms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..casting import ON_GPU
from . import elementwise as e
from .linalg import einsum
from .movement import expand_, normal_dim
from .reduce import sum_
from .statistics import norm
from .table import Sample, op


def _common_shape(what: str, x1: Any, x2: Any) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(x1._array.shape, x2._array.shape)
    except ValueError:
        raise RuntimeError(
            f"{what}: shapes {tuple(x1.shape)} and {tuple(x2.shape)} do not broadcast together"
        ) from None


@op(
    method=False,
    samples=lambda: [
        Sample((3, 4), (3, 4)),
        Sample((3, 4), (4,), dim=-1),
        Sample((2, 3, 4), (2, 1, 4), 1),
    ],
    autocast=ON_GPU,
)
def cosine_similarity(x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> Any:
    """x1 . x2 / (max(|x1|, eps) max(|x2|, eps)) along a dimension."""
    shape = _common_shape("cosine_similarity", x1, x2)
    d = normal_dim(dim, len(shape))
    a, b = (x if x._array.shape == shape else expand_(x, shape=shape) for x in (x1, x2))
    first, second = (e.reciprocal(_at_least(norm(x, 2, d, True), float(eps))) for x in (a, b))
    return sum_((a * first) * (b * second), dims=(d,), keepdim=False)


def _at_least(x: Any, low: float) -> Any:
    """`x` raised to `low` where it is smaller; the gradient passes as if not, as in PyTorch."""
    value = x.detach()
    return x + (e.clamp_numbers(value, low=low, high=math.inf) - value)


@op(
    module="nn.functional",
    samples=lambda: [
        Sample((3, 4), (3, 4)),
        Sample((3, 4), (4,), p=1.0, keepdim=True),
        Sample((4,), (4,), 3.0),
    ],
)
def pairwise_distance(
    x1: Any, x2: Any, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Any:
    """The p-norm of x1 - x2 + eps along the last dimension."""
    _common_shape("pairwise_distance", x1, x2)
    return norm(x1 - x2 + eps, p, -1, keepdim)


@op(
    module="nn.functional",
    samples=lambda: [
        Sample((3, 4), (3, 2), (5, 4, 2), (5,)),
        Sample((2, 3, 4), (2, 3, 2), (5, 4, 2)),
        Sample((4,), (2,), (5, 4, 2)),
    ],
    autocast={"cpu": "keep", "cuda": "widest"},
)
def bilinear(input1: Any, input2: Any, weight: Any, bias: Any = None) -> Any:
    """x1 @ weight[k] @ x2 for each k, plus bias."""
    first, second, kernel = (tuple(x._array.shape) for x in (input1, input2, weight))
    fits = len(kernel) == 3 and first[:-1] == second[:-1] and first and second
    if not fits or first[-1:] != kernel[1:2] or second[-1:] != kernel[2:]:
        raise RuntimeError(
            f"bilinear: inputs of shapes {first} and {second} do not fit a weight of shape "
            f"{kernel}: it needs (outputs, features of the first, features of the second)"
        )
    out = einsum("...i,kij,...j->...k", input1, weight, input2)
    return out if bias is None else out + bias
