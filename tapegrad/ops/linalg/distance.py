"""Functions of two sets of vectors: cosine similarity, distances, bilinear forms."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import xp
from ...core.casting import ON_GPU
from ...core.tensor import wrap
from ..checks import constant
from ..elementwise import comparison as c
from ..elementwise import exponentials as e
from ..elementwise import extremes
from ..elementwise.arithmetic import reciprocal
from ..elementwise.complexes import refuse_complex
from ..elementwise.rounding import abs
from ..index.indexing import take_
from ..precision import check_floating, check_same_dtype, rounded, widened
from ..reduce.largest import amax_
from ..reduce.reductions import sum_
from ..reduce.statistics import norm
from ..shape.dims import normal_dim
from ..shape.expanding import expand_
from ..shape.reshaping import reshape_
from ..table import In, Sample, op
from .einsum import einsum

if TYPE_CHECKING:
    from ...core.tensor import Tensor


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
        Sample((), (), dim=0),
    ],
    autocast=ON_GPU,
)
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Any:
    """x1 . x2 / (max(|x1|, eps) max(|x2|, eps)) along a dimension.

    `x1` and `x2` broadcast together; the result has their shape without `dim`.

    >>> import tapegrad
    >>> x = tapegrad.tensor([[1.0, 0.0], [1.0, 1.0]])
    >>> tapegrad.cosine_similarity(x, tapegrad.tensor([1.0, 0.0]), dim=1)
    tensor([1.0000, 0.7071])
    """
    for x in (x1, x2):
        refuse_complex(x, "cosine_similarity")
    dtype = c.result_dtype(x1, x2)
    if not dtype.is_floating_point:
        raise RuntimeError(f"cosine_similarity needs floating tensors, got {dtype}")
    x1, x2 = x1.to(dtype), x2.to(dtype)
    shape = _common_shape("cosine_similarity", x1, x2)
    d = normal_dim(dim, len(shape))
    if not shape:
        x1, x2, shape = reshape_(x1, shape=(1,)), reshape_(x2, shape=(1,)), (1,)
    a, b = (x if x._array.shape == shape else expand_(x, shape=shape) for x in (x1, x2))
    low = constant(eps, "cosine_similarity: eps")
    first, second = (reciprocal(_at_least(norm(x, 2, d, True), low)) for x in (a, b))
    return sum_((a * first) * (b * second), dims=(d,), keepdim=False)


def _at_least(x: Any, low: float) -> Any:
    """max(x, low), with the gradient of x everywhere, as in PyTorch."""
    value = x.detach()
    return x + (extremes.clamp_numbers(value, low=low, high=math.inf) - value)


@op(
    method=False,
    samples=lambda: [
        Sample((3, 4), (3, 4)),
        Sample((3, 4), (4,), p=1.0, keepdim=True),
        Sample((4,), (4,), 3.0),
    ],
)
def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Any:
    """The p-norm of x1 - x2 + eps along the last dimension.

    `x1` and `x2` broadcast together: (..., n) gives (...).

    >>> import tapegrad
    >>> a, b = tapegrad.tensor([[0.0, 0.0], [1.0, 1.0]]), tapegrad.tensor([[3.0, 4.0], [1.0, 2.0]])
    >>> tapegrad.nn.functional.pairwise_distance(a, b)
    tensor([5.0000, 1.0000])
    """
    _common_shape("pairwise_distance", x1, x2)
    return norm(x1 - x2 + eps, p, -1, keepdim)


def _lengths(difference: Any, p: float) -> Any:
    """p-norms along the last dimension; each of several equal largest parts gets all of g."""
    if p == 0:
        # The count of nonzero differences, with a gradient of 0 instead of none.
        different = c.not_equal(difference, 0).to(difference.dtype)
        terms = c.where(c.less(different, 0), difference, different)
        return sum_(terms, dims=(terms._array.ndim - 1,), keepdim=False)
    if p != math.inf:
        return norm(difference, p, -1)
    sizes = abs(difference)
    fixed = sizes.detach()
    largest = amax_(fixed, dims=(fixed._array.ndim - 1,), keepdim=True)
    changes = c.where(c.equal(fixed, largest), sizes - fixed, 0.0)
    dims = (fixed._array.ndim - 1,)
    return sum_(changes, dims=dims, keepdim=False) + sum_(largest, dims=dims, keepdim=False)


def _check_norm(what: str, p: float) -> float:
    p = constant(p, f"{what}: p")
    if not p >= 0:
        raise RuntimeError(f"{what}: p must be at least 0, got {p}")
    return p


def _distance_samples(*shapes: tuple[int, ...]) -> list[Sample]:
    inputs = [In(*shape) for shape in shapes]
    return [Sample(*inputs), *(Sample(*inputs, p) for p in (0.0, 1.0, 1.5, 3.0, math.inf))]


@op("pdist", method=False, samples=lambda: _distance_samples((5, 3)), autocast=ON_GPU)
def pdist(input: Tensor, p: float = 2.0) -> Any:
    """The p-norm distances of all pairs of rows: (0, 1), (0, 2), ..., (1, 2), ...

    A matrix (n, m) gives a vector of n * (n - 1) / 2 distances.

    >>> import tapegrad
    >>> tapegrad.pdist(tapegrad.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]]))
    tensor([5.0000, 1.0000, 4.2426])
    """
    check_floating(input, "pdist")
    if input._array.ndim != 2:
        raise RuntimeError(f"pdist needs a matrix, got shape {tuple(input.shape)}")
    p = _check_norm("pdist", p)
    module = xp.module(input._array)
    first, second = (wrap(i) for i in module.triu_indices(input._array.shape[0], 1))
    difference = take_(input, first, dims=(0,)) - take_(input, second, dims=(0,))
    if not difference._array.size:
        return sum_(difference, dims=(1,), keepdim=False)
    return _lengths(difference, p)


#: most rows for which PyTorch computes Euclidean distances without a matrix product
_MANY_ROWS = 25
_COMPUTE_MODES = (
    "use_mm_for_euclid_dist_if_necessary",
    "use_mm_for_euclid_dist",
    "donot_use_mm_for_euclid_dist",
)


@op(
    method=False,
    samples=lambda: [
        *_distance_samples((3, 4), (5, 4)),
        Sample((2, 1, 3, 4), (3, 5, 4)),
        Sample((3, 4), (5, 4), compute_mode=_COMPUTE_MODES[1]),
        Sample(In(0, 4), (5, 4)),
    ],
    autocast="full",
)
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str = _COMPUTE_MODES[0]) -> Any:
    """The p-norm distances of each row of x1 to each row of x2, for batches of matrices.

    (..., n, m) and (..., k, m) give (..., n, k). `compute_mode` decides whether Euclidean distances
    use a matrix product, which is faster and less accurate: by default from 26 rows on.

    >>> import tapegrad
    >>> a, b = tapegrad.tensor([[0.0, 0.0], [1.0, 0.0]]), tapegrad.tensor([[3.0, 4.0]])
    >>> tapegrad.cdist(a, b)
    tensor([[5.0000],
            [4.4721]])
    """
    check_floating(x1, "cdist")
    check_same_dtype("cdist", x1, x2=x2)
    first, second = x1._array.shape, x2._array.shape
    if min(len(first), len(second)) < 2 or first[-1] != second[-1]:
        raise RuntimeError(
            f"cdist needs matrices with as many columns, got shapes {tuple(first)} and "
            f"{tuple(second)}"
        )
    p = _check_norm("cdist", p)
    mode = _COMPUTE_MODES[0] if compute_mode is None else compute_mode
    if mode not in _COMPUTE_MODES:
        raise ValueError(f"cdist: compute_mode must be one of {_COMPUTE_MODES}, got {mode!r}")
    many = max(first[-2], second[-2]) > _MANY_ROWS
    if p == 2 and (mode == _COMPUTE_MODES[1] or (many and mode == _COMPUTE_MODES[0])):
        return _euclidean(x1, x2)
    return _lengths(x1.unsqueeze(-2) - x2.unsqueeze(-3), p)


def _euclidean(x1: Any, x2: Any) -> Any:
    """Distances by |a|^2 - 2 a.b + |b|^2; the gradient is 0 where the distance is 0."""
    first, second = widened(x1), widened(x2)
    a, b = ((x * x).sum(-1, keepdim=True) for x in (first, second))
    squared = a - 2.0 * (first @ second.transpose(-1, -2)) + b.transpose(-1, -2)
    apart = c.greater(squared, 0)
    return rounded(c.where(apart, e.sqrt(c.where(apart, squared, 1.0)), 0.0), x1)


@op(
    module="nn.functional",
    samples=lambda: [
        Sample((3, 4), (3, 2), (5, 4, 2), (5,)),
        Sample((2, 3, 4), (2, 3, 2), (5, 4, 2)),
        Sample((4,), (2,), (5, 4, 2)),
        Sample(In(0, 4), In(0, 2), (5, 4, 2), (5,)),
    ],
    autocast={"cpu": "keep", "cuda": "widest"},
)
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    """x1 @ weight[k] @ x2 for each k, plus bias.

    out[..., k] = sum over i, j of input1[..., i] * weight[k, i, j] * input2[..., j]. `weight` is
    (outputs, features of the first, features of the second), `bias` is (outputs,).

    >>> import tapegrad
    >>> x, y = tapegrad.tensor([1.0, 2.0]), tapegrad.tensor([3.0, 4.0])
    >>> tapegrad.nn.functional.bilinear(x, y, tapegrad.ones(1, 2, 2))
    tensor([21.])
    """
    first, second, kernel = (tuple(x._array.shape) for x in (input1, input2, weight))
    fits = len(kernel) == 3 and first[:-1] == second[:-1] and first and second
    if not fits or first[-1:] != kernel[1:2] or second[-1:] != kernel[2:]:
        raise RuntimeError(
            f"bilinear: inputs of shapes {first} and {second} do not fit a weight of shape "
            f"{kernel}: it needs (outputs, features of the first, features of the second)"
        )
    out = einsum("...i,kij,...j->...k", input1, weight, input2)
    return out if bias is None else out + bias
