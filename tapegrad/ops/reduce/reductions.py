"""Reductions: operations that fold dimensions. Primitives take `dims` as a sorted tuple."""

from __future__ import annotations

import builtins
import math
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from ...core import numeric, xp
from ...core.casting import ON_GPU
from ...core.dtypes import as_dtype, bool_, int64
from ...core.primitive import OPAQUE, REDUCE, Primitive, define
from ...core.tensor import Tensor, not_recorded, wrap
from ..elementwise import comparison as c
from ..elementwise import extremes
from ..index.gather import gather_
from ..precision import check_floating, rounded, widened
from ..shape.dims import normal_dim, normal_dims
from ..shape.expanding import expand_
from ..shape.padding import padded
from ..shape.reordering import flip_, permute_
from ..shape.reshaping import reshape_
from ..shape.slicing import slice_, unslice_
from ..table import In, Sample, op

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..annotations import Dims, DTypeLike


def spread(g: Any, shape: Any, dims: tuple[int, ...], keepdim: bool) -> Any:
    """Bring something reduced back to the shape it was reduced from."""
    if not keepdim:
        kept = tuple(1 if i in dims else n for i, n in enumerate(shape))
        if tuple(g.shape) != kept:
            g = reshape_(g, shape=kept)
    return expand_(g, shape=tuple(shape))


def count(shape: Any, dims: tuple[int, ...]) -> int:
    return math.prod(shape[d] for d in dims)


def _reduction_samples(**domain: Any) -> list[Sample]:
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
    wide = xp.widened(x)
    out = xp.contiguous(wide.sum(axis=dims, keepdims=keepdim, dtype=wide.dtype))
    return out if wide is x else out.astype(x.dtype)


sum_: Primitive = define(
    "sum",
    _sum,
    kind=REDUCE,
    vjp=lambda g, x_shape, dims, keepdim: spread(g, x_shape, dims, keepdim),
    expression="a + x",
)


def _as_sum_dtype(input: Any, dtype: Any) -> Any:
    if dtype is not None:
        return input.to(as_dtype(dtype))
    return input if numeric.is_floating(input._array.dtype) else input.to(int64)


@op(
    samples=lambda: [*_reduction_samples(), Sample(In(0, 3)), Sample(In(0, 3), 0)],
    autocast=ON_GPU,
)
def sum(
    input: Tensor, dim: Dims | None = None, keepdim: bool = False, *, dtype: DTypeLike | None = None
) -> Any:
    """The sum of all elements, or along dimensions.

    `dim` is one dimension or several, which disappear, or stay with size 1 with `keepdim=True`.
    Integers and booleans are added as int64, unless `dtype` says otherwise.

    >>> import tapegrad
    >>> x = tapegrad.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> x.sum(), x.sum(dim=0)
    (tensor(10.), tensor([4., 6.]))
    """
    x = _as_sum_dtype(input, dtype)
    return sum_(x, dims=normal_dims(dim, x._array.ndim), keepdim=bool(keepdim))


def _nansum(input: Any) -> Any:
    return c.where(c.isnan(input), 0.0, input) if numeric.is_floating(input._array.dtype) else input


@op(samples=lambda: [Sample(In(3, values=[1.0, math.nan, 2.0])), Sample((3, 4), 1)])
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
    return rounded(sum_(widened(x), dims=dims, keepdim=keepdim) / count(x.shape, dims), x)


mean_: Primitive = define(
    "mean",
    _mean,
    kind=OPAQUE,
    composite=True,
    vjp=lambda g, x_shape, dims, keepdim: spread(
        g / builtins.max(count(x_shape, dims), 1), x_shape, dims, keepdim
    ),
)


@op(samples=_reduction_samples)
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
    check_floating(x, "mean")
    return mean_(x, dims=normal_dims(dim, x._array.ndim), keepdim=bool(keepdim))


@op(samples=lambda: [Sample(In(3, values=[1.0, math.nan, 2.0])), Sample((3, 4), 1)])
def nanmean(
    input: Tensor, dim: Dims | None = None, keepdim: bool = False, *, dtype: DTypeLike | None = None
) -> Any:
    """The mean of what is not NaN.

    >>> import tapegrad
    >>> tapegrad.nanmean(tapegrad.tensor([1.0, tapegrad.nan, 2.0]))
    tensor(1.5000)
    """
    check_floating(input, "nanmean")
    there = c.logical_not(c.isnan(input)).to(input.dtype)
    return sum(_nansum(input), dim, keepdim, dtype=dtype) / sum(there, dim, keepdim)


# -- products ----------------------------------------------------------------------------------


def _prod(x: Any, *, dims: tuple[int, ...], keepdim: bool) -> Any:
    wide = xp.widened(x)
    out = xp.contiguous(wide.prod(axis=dims, keepdims=keepdim, dtype=wide.dtype))
    return out if wide is x else out.astype(x.dtype)


def _prod_gradient(g: Any, x: Any, dims: tuple[int, ...], keepdim: bool) -> Any:
    """g times the product of all others, by products from both sides: right also at zeros."""
    order = tuple(d for d in range(len(x.shape)) if d not in dims) + dims
    kept = tuple(x.shape[d] for d in order[: len(order) - len(dims)])
    flat = reshape_(permute_(x, dims=order), shape=(*kept, count(x.shape, dims)))
    before = _exclusive_product(flat)
    after = flip_(_exclusive_product(flip_(flat, dims=(len(kept),))), dims=(len(kept),))
    others = reshape_(before * after, shape=tuple(x.shape[d] for d in order))
    inverse = tuple(order.index(d) for d in range(len(order)))
    return spread(g, x.shape, dims, keepdim) * permute_(others, dims=inverse)


def _exclusive_product(x: Any) -> Any:
    """Along the last dimension: the product of everything before each element."""
    n = len(x.shape)
    size = x.shape[-1]
    whole: tuple[Any, ...] = (None,) * (n - 1)
    widths = ((0, 0),) * (n - 1) + ((1, 0),)
    shifted = padded(slice_(x, index=(*whole, (0, builtins.max(size - 1, 0), 1))), widths, 1.0)
    return cumprod_(slice_(shifted, index=(*whole, (0, size, 1))), dim=n - 1)


prod_: Primitive = define("prod", _prod, kind=REDUCE, vjp=_prod_gradient, expression="a * x")


@op(
    samples=lambda: [
        Sample((3, 4)),
        Sample((3, 4), 0),
        Sample((2, 3, 4), 1, True),
        Sample((2, 3), dim=-1, keepdim=True),
        Sample(()),
        Sample(In(values=[2.0, 0.0, 3.0])),
        Sample(In(values=[[2.0, 0.0, 0.0], [3.0, 4.0, 0.0]]), 1),
    ],
    autocast="full",
)
def prod(
    input: Tensor, dim: Dims | None = None, keepdim: bool = False, *, dtype: DTypeLike | None = None
) -> Any:
    """The product of all elements, or along a dimension.

    >>> import tapegrad
    >>> tapegrad.prod(tapegrad.tensor([[1.0, 2.0], [3.0, 4.0]]), dim=1)
    tensor([ 2., 12.])
    """
    x = _as_sum_dtype(input, dtype)
    return prod_(x, dims=normal_dims(dim, x._array.ndim), keepdim=bool(keepdim))


# -- running sums and products -----------------------------------------------------------------


def _cumsum(x: Any, *, dim: int, reverse: bool) -> Any:
    wide = xp.widened(x)
    out = np.flip(np.cumsum(np.flip(wide, dim), dim), dim) if reverse else np.cumsum(wide, dim)
    return xp.contiguous(out).astype(x.dtype, copy=False)


def scanned(b: Any, out: Any, x: Any, expression: str, dim: int, reverse: bool) -> None:
    """A loop that keeps running values along a dimension: in float32 for half precision."""
    wide = out if b.widest(out.dtype) == out.dtype else b.new(out.shape, b.widest(out.dtype))
    body = b.over(x.shape)
    node = body.compute("cast(x)", wide.dtype, x=body.read(x))
    body.scan(wide, node, expression, dim, reverse)
    if wide is not out:
        b.each(out, "cast(x)", x=wide)


cumsum_: Primitive = define(
    "cumsum",
    _cumsum,
    kind=OPAQUE,
    lower=lambda b, out, x, *, dim, reverse: scanned(b, out, x, "a + x", dim, reverse),
    vjp=lambda g, dim, reverse: cumsum_(g, dim=dim, reverse=not reverse),
)


@op(
    samples=lambda: [Sample((3, 4), 0), Sample((3, 4), -1), Sample((), 0)],
    inplace=True,
    autocast=ON_GPU,
)
def cumsum(input: Tensor, dim: int, *, dtype: DTypeLike | None = None) -> Any:
    """Running sums along a dimension.

    out[i] = x[0] + ... + x[i]

    >>> import tapegrad
    >>> tapegrad.cumsum(tapegrad.tensor([1.0, 2.0, 3.0]), dim=0)
    tensor([1., 3., 6.])
    """
    x = _as_sum_dtype(input, dtype)
    d = normal_dim(dim, x._array.ndim)
    return cumsum_(x, dim=d, reverse=False) if x._array.ndim else x.clone()


def _cumprod_gradient(g: Any, x: Any, dim: int) -> Any:
    """Sum over later outputs of g times the product without this element: O(n^2), no division."""
    n, size = len(x.shape), x.shape[dim]

    def part(v: Any, start: int, stop: int) -> Any:
        index = tuple((start, stop, 1) if d == dim else None for d in range(n))
        return slice_(v, index=index)

    widths = tuple((1, 0) if d == dim else (0, 0) for d in range(n))
    before = cumprod_(padded(part(x, 0, builtins.max(size - 1, 0)), widths, 1.0), dim=dim)
    total = None
    for k in range(size):
        after = cumprod_(padded(part(x, k + 1, size), widths, 1.0), dim=dim)
        term = sum_(part(g, k, size) * after, dims=(dim,), keepdim=True) * part(before, k, k + 1)
        index = tuple((k, k + 1, 1) if d == dim else None for d in range(n))
        placed = unslice_(term, shape=tuple(x.shape), index=index)
        total = placed if total is None else total + placed
    return g * 0 if total is None else total


def _cumprod(x: Any, *, dim: int) -> Any:
    return np.cumprod(xp.widened(x), dim).astype(x.dtype, copy=False)


cumprod_: Primitive = define(
    "cumprod",
    _cumprod,
    kind=OPAQUE,
    vjp=_cumprod_gradient,
    lower=lambda b, out, x, *, dim: scanned(b, out, x, "a * x", dim, False),
)


@op(
    samples=lambda: [Sample((3, 4), 0), Sample((3, 4), -1), Sample(In(values=[2.0, 0.0, 3.0]), 0)],
    inplace=True,
    autocast=ON_GPU,
)
def cumprod(input: Tensor, dim: int, *, dtype: DTypeLike | None = None) -> Any:
    """Running products along a dimension.

    out[i] = x[0] * ... * x[i]

    >>> import tapegrad
    >>> tapegrad.cumprod(tapegrad.tensor([1.0, 2.0, 3.0]), dim=0)
    tensor([1., 2., 6.])
    """
    x = _as_sum_dtype(input, dtype)
    d = normal_dim(dim, x._array.ndim)
    return cumprod_(x, dim=d) if x._array.ndim else x.clone()


# -- extremes ----------------------------------------------------------------------------------


def _not_empty(
    x: Any, dims: tuple[int, ...], what: str, error: type[Exception] = IndexError
) -> None:
    if count(x.shape, dims) == 0:
        raise error(
            f"{what} of no elements has no value: a tensor of shape {tuple(x.shape)} is empty "
            f"along {dims}"
        )


def _share_ties(g: Any, x: Any, out: Any, dims: tuple[int, ...], keepdim: bool) -> Any:
    """The gradient goes to the extreme element, in equal parts to several of them."""
    hit = c.equal(x, spread(out, x.shape, dims, keepdim))
    shares = c.where(hit, spread(g * 0 + 1, x.shape, dims, keepdim), 0.0)
    each = shares / sum_(shares, dims=dims, keepdim=True)
    return spread(g, x.shape, dims, keepdim) * each


amax_: Primitive = define(
    "amax",
    lambda x, *, dims, keepdim: xp.contiguous(x.max(axis=dims, keepdims=keepdim)),
    kind=REDUCE,
    vjp=_share_ties,
    expression="maximum(a, x)",
)
amin_: Primitive = define(
    "amin",
    lambda x, *, dims, keepdim: xp.contiguous(x.min(axis=dims, keepdims=keepdim)),
    kind=REDUCE,
    vjp=_share_ties,
    expression="minimum(a, x)",
)


def _share_with_nan(g: Any, x: Any, out: Any, dims: tuple[int, ...], keepdim: bool) -> Any:
    """The same, but if the extreme is NaN then to the elements that are NaN."""
    hit = c.logical_or(c.isnan(x), c.equal(x, spread(out, x.shape, dims, keepdim)))
    shares = c.where(hit, spread(g * 0 + 1, x.shape, dims, keepdim), 0.0)
    return spread(g, x.shape, dims, keepdim) * (shares / sum_(shares, dims=dims, keepdim=True))


max_: Primitive = define(
    "max", amax_.kernel, kind=REDUCE, vjp=_share_with_nan, expression="maximum(a, x)"
)
min_: Primitive = define(
    "min", amin_.kernel, kind=REDUCE, vjp=_share_with_nan, expression="minimum(a, x)"
)


def _extreme_samples() -> list[Sample]:
    return _reduction_samples(distinct=True)


@op(samples=_extreme_samples)
def amax(input: Tensor, dim: Dims = (), keepdim: bool = False) -> Any:
    """The largest element of all, or along dimensions; ties share the gradient.

    >>> import tapegrad
    >>> tapegrad.amax(tapegrad.tensor([[1.0, 5.0], [3.0, 4.0]]), dim=1)
    tensor([5., 4.])
    """
    dims = normal_dims(dim, input._array.ndim)
    _not_empty(input, dims, "amax")
    return amax_(input, dims=dims, keepdim=bool(keepdim))


@op(samples=_extreme_samples)
def amin(input: Tensor, dim: Dims = (), keepdim: bool = False) -> Any:
    """The smallest element of all, or along dimensions; ties share the gradient.

    >>> import tapegrad
    >>> tapegrad.amin(tapegrad.tensor([[1.0, 5.0], [3.0, 4.0]]), dim=1)
    tensor([1., 3.])
    """
    dims = normal_dims(dim, input._array.ndim)
    _not_empty(input, dims, "amin")
    return amin_(input, dims=dims, keepdim=bool(keepdim))


def _arg(extreme: Any) -> Any:
    def kernel(x: Any, *, dim: int | None, keepdim: bool) -> Any:
        if numeric.is_boolean(x.dtype):
            x = x.astype(np.uint8)
        out = extreme(x, axis=dim, keepdims=keepdim)
        return (
            out
            if isinstance(out, np.ndarray) or not isinstance(out, np.generic)
            else np.asarray(out)
        )

    return kernel


def _arg_in_loops(extreme: str) -> Any:
    """First the extreme value, then the first place that has it; NaN is extreme."""

    def lower(b: Any, out: Any, x: Any, *, dim: int | None, keepdim: bool) -> None:
        n = x.ndim
        dims = tuple(range(n)) if dim is None else (dim,)
        one = tuple(1 if d in dims else size for d, size in enumerate(x.shape))
        best = b.new(one, np.uint8 if x.dtype == np.bool_ else b.widest(x.dtype))
        body = b.over(x.shape)
        value = body.compute("cast(x)", best.dtype, x=body.read(x))
        body.fold(best, value, f"{extreme}(a, x)", dims)
        body = b.over(x.shape)
        value = body.compute("cast(x)", best.dtype, x=body.read(x))
        flat = [math.prod(x.shape[d + 1 :]) if dim is None else int(d == dim) for d in range(n)]
        place = body.compute(
            f"where(x == best or x != x, place, {x.size})",
            np.int64,
            x=value,
            best=body.read(best),
            place=body.position(tuple(flat)),
        )
        body.fold(out.reshape(one), place, "minimum(a, x)", dims)

    return lower


argmax_: Primitive = define(
    "argmax", _arg(np.argmax), kind=OPAQUE, inputs=("x",), lower=_arg_in_loops("maximum")
)
argmin_: Primitive = define(
    "argmin", _arg(np.argmin), kind=OPAQUE, inputs=("x",), lower=_arg_in_loops("minimum")
)


def _arg_op(primitive: Any, what: str, input: Any, dim: Any, keepdim: bool) -> Any:
    if dim is None:
        _not_empty(input, tuple(range(input._array.ndim)), what)
        return primitive(input, dim=None, keepdim=bool(keepdim))
    n = input._array.ndim
    d = normal_dim(dim, n)
    if n == 0:
        return primitive(input, dim=None, keepdim=False)
    _not_empty(input, (d,), what)
    return primitive(input, dim=d, keepdim=bool(keepdim))


def _arg_samples() -> list[Sample]:
    return [
        Sample(In(3, 4, distinct=True)),
        Sample(In(3, 4, distinct=True), 0),
        Sample(In(3, 4, distinct=True), -1, True),
        Sample(In()),
    ]


@op(samples=_arg_samples, differentiable=False)
def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The index of the largest element; without `dim`, in the tensor read as one row.

    >>> import tapegrad
    >>> tapegrad.argmax(tapegrad.tensor([[1.0, 5.0], [3.0, 2.0]]), dim=1)
    tensor([1, 0])
    """
    return _arg_op(argmax_, "argmax", input, dim, keepdim)


@op(samples=_arg_samples, differentiable=False)
def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The index of the smallest element; without `dim`, in the tensor read as one row.

    >>> import tapegrad
    >>> tapegrad.argmin(tapegrad.tensor([[1.0, 5.0], [3.0, 2.0]]), dim=1)
    tensor([0, 1])
    """
    return _arg_op(argmin_, "argmin", input, dim, keepdim)


class Extreme(NamedTuple):
    """Extreme elements, and where they are."""

    values: Tensor
    indices: Tensor


def along(input: Any, indices: Any, dim: int) -> Any:
    """The elements that `indices` name along a dimension."""
    return gather_(input, indices, dim=dim)


def _extreme(arg: Any, input: Any, dim: Any, keepdim: bool, what: str) -> Any:
    n = input._array.ndim
    d = normal_dim(dim, n)
    if n == 0:
        return Extreme(input.clone(), wrap(xp.module(input._array).zeros((), np.int64)))
    _not_empty(input, (d,), what)
    indices = arg(input, dim=d, keepdim=True)
    values = along(input, indices, d)
    return Extreme(values, indices) if keepdim else Extreme(values.squeeze(d), indices.squeeze(d))


@overload
def max(input: Tensor, dim: None = None, keepdim: bool = False) -> Tensor: ...
@overload
def max(input: Tensor, dim: int, keepdim: bool = False) -> Extreme: ...
@overload
def max(input: Tensor, dim: Tensor | Sequence[int], keepdim: bool = False) -> Tensor: ...
@op(
    samples=lambda: [
        Sample(In(3, 4, distinct=True)),
        Sample(In(3, 4, distinct=True), 1),
        Sample(In(3, 4, distinct=True), 0, True),
        Sample(In(3, 4, distinct=True), In(4, distinct=True)),
        Sample(In()),
    ]
)
def max(input: Tensor, dim: Dims | Tensor | None = None, keepdim: bool = False) -> Any:
    """The largest element; with `dim`, values and indices; with a tensor, the larger one.

    >>> import tapegrad
    >>> values, indices = tapegrad.max(tapegrad.tensor([[1.0, 5.0], [3.0, 4.0]]), dim=1)
    >>> values, indices
    (tensor([5., 4.]), tensor([1, 1]))
    """
    if isinstance(dim, Tensor):
        return extremes.maximum(input, dim)
    if dim is None:
        dims = tuple(range(input._array.ndim))
        _not_empty(input, dims, "max", RuntimeError)
        return max_(input, dims=dims, keepdim=False)
    if isinstance(dim, (tuple, list)):
        return amax(input, dim, keepdim)
    return _extreme(argmax_, input, dim, keepdim, "max")


@overload
def min(input: Tensor, dim: None = None, keepdim: bool = False) -> Tensor: ...
@overload
def min(input: Tensor, dim: int, keepdim: bool = False) -> Extreme: ...
@overload
def min(input: Tensor, dim: Tensor | Sequence[int], keepdim: bool = False) -> Tensor: ...
@op(
    samples=lambda: [
        Sample(In(3, 4, distinct=True)),
        Sample(In(3, 4, distinct=True), 1),
        Sample(In(3, 4, distinct=True), 0, True),
        Sample(In(3, 4, distinct=True), In(4, distinct=True)),
    ]
)
def min(input: Tensor, dim: Dims | Tensor | None = None, keepdim: bool = False) -> Any:
    """The smallest element; with `dim`, values and indices; with a tensor, the smaller one.

    >>> import tapegrad
    >>> values, indices = tapegrad.min(tapegrad.tensor([[1.0, 5.0], [3.0, 4.0]]), dim=1)
    >>> values, indices
    (tensor([1., 3.]), tensor([0, 0]))
    """
    if isinstance(dim, Tensor):
        return extremes.minimum(input, dim)
    if dim is None:
        dims = tuple(range(input._array.ndim))
        _not_empty(input, dims, "min", RuntimeError)
        return min_(input, dims=dims, keepdim=False)
    if isinstance(dim, (tuple, list)):
        return amin(input, dim, keepdim)
    return _extreme(argmin_, input, dim, keepdim, "min")


# -- truth -------------------------------------------------------------------------------------

any_: Primitive = define(
    "any",
    lambda x, *, dims, keepdim: xp.contiguous(x.any(axis=dims, keepdims=keepdim)),
    kind=REDUCE,
    expression="a or x",
)
all_: Primitive = define(
    "all",
    lambda x, *, dims, keepdim: xp.contiguous(x.all(axis=dims, keepdims=keepdim)),
    kind=REDUCE,
    expression="a and x",
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
    return any_(x, dims=normal_dims(dim, x._array.ndim), keepdim=bool(keepdim))


@op(samples=_truth_samples, differentiable=False)
def all(input: Tensor, dim: Dims | None = None, keepdim: bool = False) -> Any:
    """Whether all elements are true.

    >>> import tapegrad
    >>> tapegrad.all(tapegrad.tensor([[True, True], [True, False]]), dim=1)
    tensor([ True, False])
    """
    x = _as_bool(input)
    return all_(x, dims=normal_dims(dim, x._array.ndim), keepdim=bool(keepdim))


@op(
    samples=lambda: [Sample(In(3, 4, kind="int", low=0, high=2)), Sample(In(3, 4), 1)],
    differentiable=False,
)
def count_nonzero(input: Tensor, dim: Dims | None = None) -> Any:
    """How many elements are not zero.

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
