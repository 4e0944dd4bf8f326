"""Reductions of dimensions: sums, means, `any` and `all`.

Comes in: a tensor and the dimensions to reduce, for primitives as a sorted tuple, `dims`. Goes out:
a tensor without them or, with `keepdim`, with size 1 there. The rules of all reductions use
`spread` and `count`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import numeric, xp
from ...core.batch_rules import adapted, shifted
from ...core.casting import ON_GPU
from ...core.complexes import OWN
from ...core.dtypes import as_dtype, bool_, int64
from ...core.primitive import ARRAY_SIZE, OPAQUE, REDUCE, Primitive, define
from ...core.tensor import Tensor, not_recorded
from ..elementwise import comparison as c
from ..elementwise.complexes import refuse_complex
from ..precision import check_floating, rounded, widened
from ..shape.dims import normal_dims
from ..shape.expanding import expand_
from ..shape.reshaping import reshape_
from ..table import In, Sample, op

if TYPE_CHECKING:
    from ..annotations import Dims, DTypeLike

_BYTES = np.dtype(np.uint8)


def spread(g: Any, shape: Any, dims: tuple[int, ...], keepdim: bool) -> Any:
    """Expand a reduced gradient to the shape before the reduction."""
    if not keepdim:
        kept = tuple([1 if i in dims else n for i, n in enumerate(shape)])
        if tuple(g.shape) != kept:
            g = reshape_(g, shape=kept)
    if g.__class__ is np.ndarray and math.prod(shape) < ARRAY_SIZE:
        return xp.spread(g, shape)  # for a small array, a view takes 2 µs longer
    return expand_(g, shape=tuple(shape))


def count(shape: Any, dims: tuple[int, ...]) -> int:
    return math.prod([shape[d] for d in dims])


def reduction_samples(**domain: Any) -> list[Sample]:
    return [
        Sample(In(3, 4, **domain)),
        Sample(In(3, 4, **domain), 0),
        Sample(In(2, 3, 4, **domain), [0, -1]),
        Sample(In(2, 3, 4, **domain), 1, True),
        Sample(In(2, 3, **domain), dim=-1, keepdim=True),
        Sample(In(**domain)),
    ]


# -- sums --------------------------------------------------------------------------------------


def _sum(x: Any, *, dims: tuple[int, ...], keepdim: bool) -> Any:
    if x.__class__ is np.ndarray and (x.dtype is xp.F32 or x.dtype is xp.F64):
        return xp.summed(x, dims, keepdim)
    wide = xp.widened(x)
    out = xp.contiguous(wide.sum(axis=dims, keepdims=keepdim, dtype=wide.dtype))
    return out if wide is x else out.astype(x.dtype)


sum_: Primitive = define(
    "sum",
    _sum,
    kind=REDUCE,
    vjp=lambda g, x_shape, dims, keepdim: spread(g, x_shape, dims, keepdim),
    expression="a + x",
    complex=OWN,
    linear=True,
    stores=True,
)


def as_sum_dtype(input: Any, dtype: Any) -> Any:
    if dtype is not None:
        return input.to(as_dtype(dtype))
    return input if numeric.is_inexact(input._array.dtype) else input.to(int64)


@op(
    casts=True,
    samples=lambda: [*reduction_samples(), Sample(In(0, 3)), Sample(In(0, 3), 0)],
    autocast=ON_GPU,
)
def sum(
    input: Tensor, dim: Dims | None = None, keepdim: bool = False, *, dtype: DTypeLike | None = None
) -> Any:
    """The sum of all elements, or along dimensions.

    `dim` is one dimension or several, which disappear, or stay with size 1 with `keepdim=True`.
    Integers and booleans are summed as int64, unless `dtype` is given.

    >>> import tapegrad
    >>> x = tapegrad.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> x.sum(), x.sum(dim=0)
    (tensor(10.), tensor([4., 6.]))
    """
    x = as_sum_dtype(input, dtype)
    return sum_.direct(x, {"dims": normal_dims(dim, x._array.ndim), "keepdim": bool(keepdim)})


def _nansum(input: Any) -> Any:
    refuse_complex(input, "nansum")
    return c.where(c.isnan(input), 0.0, input) if numeric.is_floating(input._array.dtype) else input


@op(casts=True, samples=lambda: [Sample(In(3, values=[1.0, math.nan, 2.0])), Sample((3, 4), 1)])
def nansum(
    input: Tensor, dim: Dims | None = None, keepdim: bool = False, *, dtype: DTypeLike | None = None
) -> Any:
    """The sum, with NaN taken as zero.

    >>> import tapegrad
    >>> tapegrad.nansum(tapegrad.tensor([1.0, tapegrad.nan, 2.0]))
    tensor(3.)
    """
    return sum(_nansum(input), dim, keepdim, dtype=dtype)


def _mean(x: Any, *, dims: tuple[int, ...], keepdim: bool) -> Any:
    if xp.is_plain(x):
        return xp.summed(x, dims, keepdim) / count(x.shape, dims)
    return rounded(sum_(widened(x), dims=dims, keepdim=keepdim) / count(x.shape, dims), x)


mean_: Primitive = define(
    "mean",
    _mean,
    kind=OPAQUE,
    composite=True,
    complex=OWN,
    vjp=lambda g, x_shape, dims, keepdim: spread(
        g / max(count(x_shape, dims), 1), x_shape, dims, keepdim
    ),
    batch=adapted(dims=shifted),
    linear=True,
    stores=True,
)


@op(casts=True, samples=reduction_samples)
def mean(
    input: Tensor, dim: Dims | None = None, keepdim: bool = False, *, dtype: DTypeLike | None = None
) -> Any:
    """The mean of all elements, or along dimensions.

    sum(x) / n, with n the number of elements. `dim` and `keepdim` are as for `sum`.

    >>> import tapegrad
    >>> tapegrad.mean(tapegrad.tensor([[1.0, 2.0], [3.0, 4.0]]), dim=1)
    tensor([1.5000, 3.5000])
    """
    x = input if dtype is None else input.to(as_dtype(dtype))
    check_floating(x, "mean", complex=True, error=RuntimeError)
    return mean_.direct(x, {"dims": normal_dims(dim, x._array.ndim), "keepdim": bool(keepdim)})


@op(casts=True, samples=lambda: [Sample(In(3, values=[1.0, math.nan, 2.0])), Sample((3, 4), 1)])
def nanmean(
    input: Tensor, dim: Dims | None = None, keepdim: bool = False, *, dtype: DTypeLike | None = None
) -> Any:
    """The mean of the elements that are not NaN.

    >>> import tapegrad
    >>> tapegrad.nanmean(tapegrad.tensor([1.0, tapegrad.nan, 2.0]))
    tensor(1.5000)
    """
    check_floating(input, "nanmean", error=RuntimeError)
    there = c.logical_not(c.isnan(input)).to(input.dtype)
    return sum(_nansum(input), dim, keepdim, dtype=dtype) / sum(there, dim, keepdim)


# -- truth -------------------------------------------------------------------------------------

any_: Primitive = define(
    "any",
    lambda x, *, dims, keepdim: xp.contiguous(x.any(axis=dims, keepdims=keepdim)),
    kind=REDUCE,
    expression="a or x",
    stores=True,
    complex=OWN,
)
all_: Primitive = define(
    "all",
    lambda x, *, dims, keepdim: xp.contiguous(x.all(axis=dims, keepdims=keepdim)),
    kind=REDUCE,
    expression="a and x",
    stores=True,
    complex=OWN,
)


def _as_bool(x: Any) -> Any:
    return x if numeric.is_boolean(x._array.dtype) else x.to(bool_)


def _truth_samples() -> list[Sample]:
    return [
        Sample(In(3, 4, kind="bool")),
        Sample(In(3, 4, kind="bool"), 0),
        Sample(In(3, 4, kind="bool"), 1, True),
        Sample(In(3, kind="int", low=0, high=2)),
    ]


@op(samples=_truth_samples, differentiable=False)
def any(input: Tensor, dim: Dims | None = None, keepdim: bool = False) -> Any:
    """Whether any element is true.

    >>> import tapegrad
    >>> tapegrad.any(tapegrad.tensor([[True, False], [False, False]]), dim=1)
    tensor([ True, False])
    """
    x = _as_bool(input)
    out = any_.direct(x, {"dims": normal_dims(dim, x._array.ndim), "keepdim": bool(keepdim)})
    return out.to(input.dtype) if input._array.dtype == _BYTES else out  # as PyTorch has it


@op(samples=_truth_samples, differentiable=False)
def all(input: Tensor, dim: Dims | None = None, keepdim: bool = False) -> Any:
    """Whether all elements are true.

    >>> import tapegrad
    >>> tapegrad.all(tapegrad.tensor([[True, True], [True, False]]), dim=1)
    tensor([ True, False])
    """
    x = _as_bool(input)
    out = all_.direct(x, {"dims": normal_dims(dim, x._array.ndim), "keepdim": bool(keepdim)})
    return out.to(input.dtype) if input._array.dtype == _BYTES else out


@op(
    samples=lambda: [Sample(In(3, 4, kind="int", low=0, high=2)), Sample(In(3, 4), 1)],
    differentiable=False,
)
def count_nonzero(input: Tensor, dim: Dims | None = None) -> Any:
    """The number of elements that are not zero.

    >>> import tapegrad
    >>> tapegrad.count_nonzero(tapegrad.tensor([[1, 0], [2, 3]]), dim=1)
    tensor([1, 2])
    """
    return sum(c.not_equal(input, 0), dim)


# -- numbers of a tensor -----------------------------------------------------------------------


@op(samples=lambda: [Sample((3, 4))], function=False, differentiable=False, torch=None)
def has_nan(input: Tensor) -> bool:
    """Whether any element is NaN.

    >>> import tapegrad
    >>> tapegrad.tensor([1.0, tapegrad.nan]).has_nan()
    True
    """
    not_recorded(input, "has_nan()")
    return bool(np.isnan(input._array).any())


@op(samples=lambda: [Sample((3, 4))], function=False, differentiable=False, torch=None)
def has_inf(input: Tensor) -> bool:
    """Whether any element is infinite.

    >>> import tapegrad
    >>> tapegrad.tensor([1.0, tapegrad.inf]).has_inf()
    True
    """
    not_recorded(input, "has_inf()")
    return bool(np.isinf(input._array).any())
