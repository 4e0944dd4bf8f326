"""Masked reductions: `masked.sum`, `masked.mean` and others.

Comes in: a tensor and a mask that broadcasts to it, True where an element counts. Other elements
are replaced by the neutral element of the reduction: 0 in a sum, -inf in a maximum. Where no
element counts, the result is the neutral element or NaN.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ...core import numeric
from ...core.dtypes import bool_, iinfo, int64
from ..elementwise import comparison as c
from ..elementwise.complexes import conjugate
from ..elementwise.extremes import clamp
from ..index.search import nanmedian
from ..linalg.solving import vector_norm
from ..reduce import largest, reductions
from ..reduce.cumulative import prod as _prod
from ..reduce.statistics import logsumexp as _logsumexp
from ..shape.dims import normal_dims
from ..table import In, Sample, op

if TYPE_CHECKING:
    from ...core.tensor import Tensor
    from ..annotations import Dims, DTypeLike, Number

M = "masked"
MASK = In(values=[[True, False, True, True], [False, True, True, False], [True] * 4], kind="bool")
ROW = In(values=[True, False, True, True], kind="bool")


def chosen(x: Any, mask: Any, otherwise: Any) -> Any:
    """`x` with `otherwise` in place of elements that do not count; without a mask all count."""
    return x if mask is None else c.where(_as_mask(x, mask), x, otherwise)


def _as_mask(x: Any, mask: Any) -> Any:
    if not numeric.is_boolean(mask._array.dtype):
        mask = mask.to(bool_)
    if mask._array.ndim > x._array.ndim:
        raise IndexError(
            f"a mask of shape {tuple(mask.shape)} has more dimensions than {tuple(x.shape)}"
        )
    return mask.expand(x.shape)


def converted(x: Any, dtype: Any, whole: bool = False) -> Any:
    """`x` cast to `dtype`; without one, `whole` casts integers and bool to int64."""
    if dtype is None and whole and numeric.is_exact(x._array.dtype):
        dtype = int64
    return x if dtype is None else x.to(dtype)


def lowest(x: Any) -> Any:
    """The neutral element of maxima, in the dtype of `x`."""
    if numeric.is_exact(x._array.dtype):
        return False if numeric.is_boolean(x._array.dtype) else iinfo(x.dtype).min
    return -math.inf


def highest(x: Any) -> Any:
    """The neutral element of minima, in the dtype of `x`."""
    if numeric.is_exact(x._array.dtype):
        return True if numeric.is_boolean(x._array.dtype) else iinfo(x.dtype).max
    return math.inf


def inexact(x: Any, what: str) -> Any:
    """`x`, cast to float32 if it has integers; raises for bool."""
    _check_numbers(what, x)
    return x.float() if numeric.is_exact(x._array.dtype) else x


def count(x: Any, dim: Any, keepdim: bool, mask: Any) -> Any:
    """The number of elements that count, along dimensions."""
    ones = x.new_ones(x.shape, dtype=int64)
    return reductions.sum(chosen(ones, mask, 0), dims_of(x, dim), keepdim)


def dims_of(x: Any, dim: Any) -> Any:
    """Dimensions as a tuple; all of them if none is given."""
    return normal_dims(() if dim is None else dim, x._array.ndim)


def _samples() -> list[Sample]:
    return [
        Sample((3, 4), mask=MASK),
        Sample((3, 4), 1, mask=MASK),
        Sample((2, 3, 4), [0, 2], keepdim=True, mask=ROW),
        Sample((3, 4), 0),
    ]


def _distinct() -> list[Sample]:
    return [
        Sample(In(3, 4, distinct=True), 1, mask=MASK),
        Sample(In(2, 3, 4, distinct=True), [0, 2], keepdim=True, mask=ROW),
        Sample(In(3, 4, distinct=True), 0),
    ]


@op(module=M, samples=_samples)
def sum(
    input: Tensor,
    dim: Dims | None = None,
    *,
    keepdim: bool | None = False,
    dtype: DTypeLike | None = None,
    mask: Tensor | None = None,
) -> Any:
    """The sum of the elements that count, over all or some dimensions.

    >>> import tapegrad
    >>> mask = tapegrad.tensor([True, False, True])
    >>> tapegrad.masked.sum(tapegrad.tensor([1.0, 2.0, 3.0]), mask=mask)
    tensor(4.)
    """
    x = chosen(converted(input, dtype, True), mask, 0)
    return reductions.sum(x, dims_of(x, dim), bool(keepdim))


@op(module=M, samples=_samples)
def prod(
    input: Tensor,
    dim: Dims | None = None,
    *,
    keepdim: bool | None = False,
    dtype: DTypeLike | None = None,
    mask: Tensor | None = None,
) -> Any:
    """The product of the elements that count, over all or some dimensions.

    >>> import tapegrad
    >>> mask = tapegrad.tensor([True, False, True])
    >>> tapegrad.masked.prod(tapegrad.tensor([1.0, 2.0, 3.0]), mask=mask)
    tensor(3.)
    """
    x = chosen(converted(input, dtype, True), mask, 1)
    for d in sorted(dims_of(x, dim), reverse=True):
        x = _prod(x, d, bool(keepdim))
    return x


@op(module=M, samples=_samples)
def mean(
    input: Tensor,
    dim: Dims | None = None,
    *,
    keepdim: bool | None = False,
    dtype: DTypeLike | None = None,
    mask: Tensor | None = None,
) -> Any:
    """The mean of the elements that count; NaN where none does.

    >>> import tapegrad
    >>> mask = tapegrad.tensor([True, False, True])
    >>> tapegrad.masked.mean(tapegrad.tensor([1.0, 2.0, 3.0]), mask=mask)
    tensor(2.)
    """
    x = converted(input, dtype)
    if mask is None:
        return reductions.mean(x, dims_of(x, dim), bool(keepdim))
    if numeric.is_exact(x._array.dtype):
        raise ValueError(f"masked.mean with a mask needs a floating tensor, got {x.dtype}")
    total = reductions.sum(chosen(x, mask, 0), dims_of(x, dim), bool(keepdim))
    return total / count(x, dim, bool(keepdim), mask)


@op(module=M, samples=_distinct)
def amax(
    input: Tensor,
    dim: Dims | None = None,
    *,
    keepdim: bool | None = False,
    dtype: DTypeLike | None = None,
    mask: Tensor | None = None,
) -> Any:
    """The largest element that counts.

    >>> import tapegrad
    >>> mask = tapegrad.tensor([True, True, False])
    >>> tapegrad.masked.amax(tapegrad.tensor([1.0, 2.0, 3.0]), mask=mask)
    tensor(2.)
    """
    x = converted(input, dtype)
    return largest.amax(chosen(x, mask, lowest(x)), dims_of(x, dim), bool(keepdim))


@op(module=M, samples=_distinct)
def amin(
    input: Tensor,
    dim: Dims | None = None,
    *,
    keepdim: bool | None = False,
    dtype: DTypeLike | None = None,
    mask: Tensor | None = None,
) -> Any:
    """The smallest element that counts.

    >>> import tapegrad
    >>> mask = tapegrad.tensor([False, True, True])
    >>> tapegrad.masked.amin(tapegrad.tensor([1.0, 2.0, 3.0]), mask=mask)
    tensor(2.)
    """
    x = converted(input, dtype)
    return largest.amin(chosen(x, mask, highest(x)), dims_of(x, dim), bool(keepdim))


def _check_numbers(what: str, x: Any) -> None:
    if numeric.is_boolean(x._array.dtype):
        raise RuntimeError(f"{what} needs numbers, got a bool tensor")


def _places() -> list[Sample]:
    return [Sample(In(3, 4, distinct=True), 1, mask=MASK), Sample(In(3, 4, distinct=True), 0)]


@op(module=M, differentiable=False, samples=_places)
def argmax(
    input: Tensor,
    dim: int | None = None,
    *,
    keepdim: bool | None = False,
    dtype: DTypeLike | None = None,
    mask: Tensor | None = None,
) -> Any:
    """The index of the largest element that counts, in the dtype of the input.

    >>> import tapegrad
    >>> mask = tapegrad.tensor([True, True, False])
    >>> tapegrad.masked.argmax(tapegrad.tensor([1.0, 2.0, 3.0]), 0, mask=mask)
    tensor(1.)
    """
    x = converted(input, dtype)
    _check_numbers("masked.argmax", x)
    place = largest.argmax(chosen(x, mask, lowest(x)), dim, bool(keepdim))
    return place.to(x.dtype)  # as in PyTorch


@op(module=M, differentiable=False, samples=_places)
def argmin(
    input: Tensor,
    dim: int | None = None,
    *,
    keepdim: bool | None = False,
    dtype: DTypeLike | None = None,
    mask: Tensor | None = None,
) -> Any:
    """The index of the smallest element that counts, in the dtype of the input.

    >>> import tapegrad
    >>> mask = tapegrad.tensor([False, True, True])
    >>> tapegrad.masked.argmin(tapegrad.tensor([1.0, 2.0, 3.0]), 0, mask=mask)
    tensor(1.)
    """
    x = converted(input, dtype)
    _check_numbers("masked.argmin", x)
    place = largest.argmin(chosen(x, mask, highest(x)), dim, bool(keepdim))
    return place.to(x.dtype)  # as in PyTorch


@op(module=M, samples=lambda: [Sample(In(3, 4, distinct=True), 1, mask=MASK)])
def median(
    input: Tensor,
    dim: int = -1,
    *,
    keepdim: bool = False,
    dtype: DTypeLike | None = None,
    mask: Tensor | None = None,
) -> Any:
    """The lower median of the elements that count; NaN where none does.

    >>> import tapegrad
    >>> mask = tapegrad.tensor([True, False, True])
    >>> tapegrad.masked.median(tapegrad.tensor([1.0, 2.0, 3.0]), mask=mask)
    tensor(1.)
    """
    x = converted(input, dtype)
    if mask is None:
        return x.median(dim, keepdim).values if x._array.ndim else x.clone()
    found = chosen(x.double() if numeric.is_exact(x._array.dtype) else x, mask, math.nan)
    found = nanmedian(found, dim, keepdim).values if x._array.ndim else found.clone()
    return found.to(x.dtype)


@op(module=M, samples=_samples)
def logsumexp(
    input: Tensor,
    dim: Dims | None = None,
    *,
    keepdim: bool = False,
    dtype: DTypeLike | None = None,
    mask: Tensor | None = None,
) -> Any:
    """The logarithm of the sum of e^x over the elements that count.

    >>> import tapegrad
    >>> mask = tapegrad.tensor([True, False, True])
    >>> tapegrad.masked.logsumexp(tapegrad.tensor([0.0, 9.0, 0.0]), mask=mask)
    tensor(0.6931)
    """
    x = converted(input, dtype)
    found = chosen(x, mask, lowest(x))
    wide = found.float() if numeric.is_exact(x._array.dtype) else found
    return _logsumexp(wide, dims_of(x, dim), keepdim).to(x.dtype)


@op(
    module=M,
    samples=lambda: [
        Sample((3, 4), 2.0, 1, mask=MASK),
        Sample((3, 4), 1, mask=MASK),
        Sample(In(3, 4, distinct=True), math.inf, 1, mask=MASK),
        Sample(In(3, 4, distinct=True), -math.inf, 1, mask=MASK),
    ],
)
def norm(
    input: Tensor,
    ord: Number | None = 2.0,
    dim: Dims | None = None,
    *,
    keepdim: bool | None = False,
    dtype: DTypeLike | None = None,
    mask: Tensor | None = None,
) -> Any:
    """The norm of the elements that count, as `linalg.vector_norm`.

    >>> import tapegrad
    >>> mask = tapegrad.tensor([True, False, True])
    >>> tapegrad.masked.norm(tapegrad.tensor([3.0, 9.0, 4.0]), mask=mask)
    tensor(5.)
    """
    x = converted(input, dtype)
    if numeric.is_exact(x._array.dtype):
        raise RuntimeError(f"masked.norm needs a floating tensor, got {x.dtype}")
    order = 2.0 if ord is None else ord
    if order < 0 and mask is not None and not x.dtype.is_floating_point:
        raise RuntimeError(f"masked.norm of order {order} needs a real tensor, got {x.dtype}")
    found = chosen(x, mask, math.inf if order < 0 else 0)
    return vector_norm(found, order, dims_of(x, dim), bool(keepdim))


def _variance(
    input: Any, dim: Any, unbiased: Any, correction: Any, keepdim: Any, dtype: Any, mask: Any
) -> Any:
    if correction is not None and unbiased is not None:
        raise RuntimeError("masked.var and masked.std take unbiased or correction, not both")
    if correction is None:
        correction = 1 if unbiased is None or unbiased else 0
    x = inexact(converted(input, dtype), "masked.var")
    dims = dims_of(x, dim)
    number = count(x, dims, True, mask)
    middle = reductions.sum(chosen(x, mask, 0), dims, True) / number
    apart = chosen(x - middle, mask, 0)
    total = reductions.sum(apart * conjugate(apart), dims, bool(keepdim))
    number = count(x, dims, bool(keepdim), mask)
    return total / clamp(number - correction, 0)


def _spreads() -> list[Sample]:
    return [
        Sample((3, 4), 1, mask=MASK),
        Sample((3, 4), 0, False, mask=MASK),
        Sample((3, 4), [0, 1], correction=2, keepdim=True, mask=ROW),
        Sample((3, 4)),
    ]


@op(module=M, samples=_spreads)
def var(
    input: Tensor,
    dim: Dims | None = None,
    unbiased: bool | None = None,
    *,
    correction: Number | None = None,
    keepdim: bool | None = False,
    dtype: DTypeLike | None = None,
    mask: Tensor | None = None,
) -> Any:
    """The variance of the elements that count.

    >>> import tapegrad
    >>> mask = tapegrad.tensor([True, False, True])
    >>> tapegrad.masked.var(tapegrad.tensor([1.0, 9.0, 3.0]), mask=mask)
    tensor(2.)
    """
    return _variance(input, dim, unbiased, correction, keepdim, dtype, mask)


@op(module=M, samples=_spreads)
def std(
    input: Tensor,
    dim: Dims | None = None,
    unbiased: bool | None = None,
    *,
    correction: Number | None = None,
    keepdim: bool | None = False,
    dtype: DTypeLike | None = None,
    mask: Tensor | None = None,
) -> Any:
    """The standard deviation of the elements that count.

    >>> import tapegrad
    >>> mask = tapegrad.tensor([True, False, True])
    >>> tapegrad.masked.std(tapegrad.tensor([1.0, 9.0, 3.0]), mask=mask)
    tensor(1.4142)
    """
    return _variance(input, dim, unbiased, correction, keepdim, dtype, mask).sqrt()
