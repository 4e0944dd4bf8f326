"""Searching and counting: sorted sequences, sets, order statistics, reductions by index."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from ...core import numeric, xp
from ...core.batch_rules import adapted, leading, shifted, spread
from ...core.dtypes import as_dtype, float32, int32, int64
from ...core.modes import is_grad_enabled
from ...core.primitive import MIXED_SIZE, OPAQUE, Primitive, define
from ...core.tensor import Tensor, not_recorded, wrap
from ..creation import tensor as _tensor
from ..elementwise import comparison as c
from ..elementwise import extremes
from ..elementwise.arithmetic import floor_divide
from ..elementwise.complexes import refuse_complex
from ..elementwise.copies import cast
from ..precision import check_numbers
from ..reduce.reductions import any_, sum_
from ..reduce.sorting import argsort_, sort
from ..shape.dims import normal_dim
from ..shape.expanding import expand_
from ..shape.joining import cat_
from ..shape.padding import pad_
from ..shape.reshaping import reshape_, squeeze, unsqueeze
from ..shape.slicing import select
from ..table import In, Sample, op
from .gather import _check_gather, _check_source, from_zero, gather_, scatter_, scatter_add_

if TYPE_CHECKING:
    from ..annotations import Operand


class Indexed(NamedTuple):
    """Values, and their indices."""

    values: Tensor
    indices: Tensor


# -- positions in sorted sequences -------------------------------------------------------------


def _searchsorted(x: Any, values: Any, *, right: bool) -> Any:
    side: Any = "right" if right else "left"
    module = xp.module(x)
    if x.ndim == 1:
        return module.asarray(module.searchsorted(x, values, side=side), np.int64)
    if not values.size:
        return module.zeros(values.shape, np.int64)
    rows, wanted = x.reshape(-1, x.shape[-1]), values.reshape(-1, values.shape[-1])
    pairs = zip(rows, wanted, strict=True)
    found = [module.searchsorted(row, value, side=side) for row, value in pairs]
    return module.asarray(module.stack(found), np.int64).reshape(values.shape)


def _searchsorted_batch(p: Primitive, inputs: Any, batched: Any, params: dict[str, Any]) -> Any:
    """A sequence without a batch is used for all values, else each example uses its own."""
    x, values = inputs
    if not batched[0] and len(x.shape) == 1:
        return p(x, values, **params)
    if len(x.shape) - batched[0] > 1:
        return leading(p, inputs, batched, params)
    x, values = spread(inputs, batched)
    rows = reshape_(values, shape=(len(x), math.prod(values.shape[1:])))
    return reshape_(p(x, rows, **params), shape=tuple(values.shape))


searchsorted_: Primitive = define(
    "searchsorted",
    _searchsorted,
    kind=OPAQUE,
    batch=_searchsorted_batch,
)

_EDGES = In(values=[-1.0, 0.0, 0.5, 2.0], grad=False)


@op(
    method=False,
    samples=lambda: [
        Sample(_EDGES, In(3, 2, grad=False)),
        Sample(_EDGES, _EDGES, right=True),
        Sample(In(values=[[0.0, 1.0], [-1.0, 3.0]], grad=False), In(2, 3, grad=False)),
    ],
    differentiable=False,
)
def searchsorted(
    sorted_sequence: Tensor,
    input: Operand,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Any:
    """The positions where values can be inserted while the last dimension stays sorted.

    With `right=True` (or `side="right"`) a value goes after elements equal to it, else before.

    >>> import tapegrad
    >>> tapegrad.searchsorted(tapegrad.tensor([1.0, 3.0, 5.0]), tapegrad.tensor([0.0, 3.0, 6.0]))
    tensor([0, 1, 3])
    """
    if side not in (None, "left", "right") or (side == "left" and right):
        raise RuntimeError(f"searchsorted: side {side!r} and right={right} do not fit together")
    if sorter is not None and (
        sorter.dtype is not int64 or sorter._array.shape != sorted_sequence._array.shape
    ):
        raise RuntimeError(
            f"searchsorted needs a sorter of int64 and of shape {tuple(sorted_sequence.shape)}, "
            f"got {sorter.dtype} and {tuple(sorter.shape)}"
        )
    check_numbers(sorted_sequence, "searchsorted")
    if not sorted_sequence._array.ndim:
        raise RuntimeError("searchsorted needs a sequence of at least one dimension, got a number")
    edges = sorted_sequence if sorter is None else sorted_sequence.gather(-1, sorter)
    values: Any = input if isinstance(input, Tensor) else _tensor(input, device=edges.device)
    lead = edges._array.shape[:-1]
    if edges._array.ndim != 1 and lead != values._array.shape[:-1]:
        raise RuntimeError(
            f"searchsorted: sequences of shape {tuple(edges.shape)} need values whose leading "
            f"dimensions are {tuple(lead)}, got {tuple(values.shape)}"
        )
    found = searchsorted_(edges, values, right=bool(right or side == "right"))
    return found.to(int32) if out_int32 else found


@op(
    samples=lambda: [Sample(In(3, 2, grad=False), _EDGES), Sample(_EDGES, _EDGES, right=True)],
    differentiable=False,
    method=False,
)
def bucketize(
    input: Operand, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Any:
    """The index i of the interval between boundaries in which each value x lies.

    With `right=False`, boundaries[i - 1] < x <= boundaries[i]; with `right=True`,
    boundaries[i - 1] <= x < boundaries[i].

    >>> import tapegrad
    >>> tapegrad.bucketize(tapegrad.tensor([0.0, 3.0, 6.0]), tapegrad.tensor([1.0, 3.0, 5.0]))
    tensor([0, 1, 3])
    """
    if boundaries._array.ndim != 1:
        raise RuntimeError(f"bucketize needs boundaries in one dimension, got {boundaries.shape}")
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


# -- sets and counts ---------------------------------------------------------------------------


@op(
    method=False,
    samples=lambda: [
        Sample(In(values=[[1, 2], [3, 4]], kind="int"), In(values=[2, 3, 9], kind="int")),
        Sample(In(values=[1, 2], kind="int"), In(values=[2], kind="int"), invert=True),
    ],
    differentiable=False,
)
def isin(
    elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False
) -> Any:
    """Whether each element is one of the test elements.

    >>> import tapegrad
    >>> tapegrad.isin(tapegrad.tensor([1, 2, 3]), tapegrad.tensor([2, 3]))
    tensor([False,  True,  True])
    """
    if not isinstance(elements, Tensor):
        elements = test_elements.new_tensor(elements)
    if not isinstance(test_elements, Tensor):
        test_elements = elements.new_tensor(test_elements)
    for x in (elements, test_elements):
        refuse_complex(x, "isin")
        check_numbers(x, "isin")
    tests = reshape_(test_elements, shape=(test_elements._array.size,))
    equal = c.equal(unsqueeze(elements, -1), tests)
    found = any_(equal, dims=(equal._array.ndim - 1,), keepdim=False)
    return c.logical_not(found) if invert else found


@op(
    samples=lambda: [
        Sample(In(values=[0, 3, 1, 3], kind="int")),
        Sample(In(values=[0, 1, 1], kind="int"), None, 5),
    ],
    differentiable=False,
)
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Any:
    """The number of occurrences of each integer from 0 on, or the sum of its weights.

    >>> import tapegrad
    >>> tapegrad.bincount(tapegrad.tensor([0, 3, 1, 3]))
    tensor([1, 1, 0, 2])
    """
    if not numeric.is_integer(input._array.dtype) or input._array.ndim != 1:
        raise RuntimeError("bincount needs non-negative integers in one dimension")
    if minlength < 0:
        raise RuntimeError(f"bincount needs a minlength of at least 0, got {minlength}")
    if weights is not None and weights._array.shape != input._array.shape:
        raise RuntimeError(
            f"bincount needs a weight for each number: got {tuple(weights.shape)} for "
            f"{tuple(input.shape)}"
        )
    not_recorded(input, "bincount() (use scatter_add)")
    if input._array.size and int(input._array.min()) < 0:
        raise RuntimeError("bincount needs non-negative integers in one dimension")
    if weights is None:
        return wrap(xp.module(input._array).bincount(input._array, minlength=minlength))
    not_recorded(weights, "bincount() (use scatter_add)")
    counts = xp.module(input._array).bincount(input._array, weights._array, minlength)
    return wrap(counts.astype(np.float32) if weights.dtype is float32 else counts)


def _without_history(input: Tensor, values: Tensor, what: str) -> Tensor:
    """Values that require a gradient if the input does, but raise in backward, as in PyTorch."""
    if not input.requires_grad or not is_grad_enabled():
        return values
    from ...autograd.function import Function

    class Different(Function):
        """Distinct elements of the input."""

        @staticmethod
        def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
            return args[1].clone()

        @staticmethod
        def backward(ctx: Any, *grad_outputs: Any) -> Any:
            raise NotImplementedError(f"{what} has no gradient; use it on x.detach()")

    different: Tensor = Different.apply(input, values)
    return different


@overload
def unique(input: Tensor, sorted: bool = True, *, dim: int | None = None) -> Tensor: ...
@overload
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> tuple[Tensor, ...]: ...
@op(
    samples=lambda: [
        Sample(In(values=[3, 1, 3, 2], kind="int")),
        Sample(In(values=[[3, 1], [3, 2]], kind="int"), True, True, True),
        Sample(In(values=[[3, 1], [3, 2], [3, 1]], kind="int"), dim=0, return_counts=True),
    ],
    differentiable=False,
)
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The distinct elements, sorted; optionally the position of each input in them, and counts.

    >>> import tapegrad
    >>> values, counts = tapegrad.unique(tapegrad.tensor([3, 1, 3]), return_counts=True)
    >>> values, counts
    (tensor([1, 3]), tensor([1, 2]))
    """
    not_recorded(input, "unique() (call it outside)")
    refuse_complex(input, "unique")
    axis = None if dim is None else normal_dim(dim, input._array.ndim)
    shape = input._array.shape
    if axis is not None and shape.count(0) > (not shape[axis] if shape else 0):
        raise RuntimeError(f"unique: slices of shape {tuple(input.shape)} along {dim} are empty")
    module = xp.module(input._array)
    half = numeric.is_bfloat16(input._array.dtype)  # NumPy cannot sort bfloat16 with NaN
    values, inverse, counts = module.unique(
        xp.widened(input._array) if half else input._array,
        return_inverse=True,
        return_counts=True,
        axis=axis,
        equal_nan=False,
    )
    values = values.astype(input._array.dtype) if half else values
    shape = input._array.shape if axis is None else (input._array.shape[axis],)
    results = [_without_history(input, wrap(module.ascontiguousarray(values)), "unique")]
    if return_inverse:
        results.append(wrap(inverse.reshape(shape).astype(np.int64)))
    if return_counts:
        results.append(wrap(counts.astype(np.int64)))
    return results[0] if len(results) == 1 else tuple(results)


@overload
def unique_consecutive(input: Tensor, *, dim: int | None = None) -> Tensor: ...
@overload
def unique_consecutive(
    input: Tensor,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> tuple[Tensor, ...]: ...
@op(
    samples=lambda: [
        Sample(In(values=[3, 3, 1, 1, 1, 3], kind="int")),
        Sample(In(values=[[3, 3], [1, 1]], kind="int"), True, True),
        Sample(In(values=[[3, 1], [3, 1], [2, 1]], kind="int"), dim=0, return_counts=True),
    ],
    differentiable=False,
)
def unique_consecutive(
    input: Tensor,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The first element of each run of equal ones; optionally each input's run, and run lengths.

    >>> import tapegrad
    >>> tapegrad.unique_consecutive(tapegrad.tensor([3, 3, 1, 1, 3]))
    tensor([3, 1, 3])
    """
    refuse_complex(input, "unique_consecutive")
    not_recorded(input, "unique_consecutive() (call it outside)")
    array = input._array
    module = xp.module(array)
    rows = array.reshape(-1) if dim is None else array
    axis = 0 if dim is None else normal_dim(dim, array.ndim)
    rows = module.moveaxis(rows, axis, 0)
    n = len(rows)
    new = module.ones(n, bool)
    new[1:] = (rows[1:] != rows[:-1]).any(axis=tuple(range(1, rows.ndim)))
    values = wrap(module.ascontiguousarray(module.moveaxis(rows[new], 0, axis)))
    results = [_without_history(input, values, "unique_consecutive")]
    if return_inverse:
        runs = module.cumsum(new) - 1
        results.append(wrap(runs.reshape(array.shape if dim is None else (n,)).astype(np.int64)))
    if return_counts:
        starts = module.flatnonzero(new)
        results.append(wrap(module.diff(starts, append=n).astype(np.int64)))
    return results[0] if len(results) == 1 else tuple(results)


# -- order statistics --------------------------------------------------------------------------


@op(
    apart=True,
    samples=lambda: [
        Sample(In(3, 5, distinct=True), 2),
        Sample(In(5, 3, distinct=True), 4, 0, True),
    ],
)
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Indexed:
    """The k-th smallest value along a dimension, with k counted from 1, and its index.

    >>> import tapegrad
    >>> values, indices = tapegrad.kthvalue(tapegrad.tensor([3.0, 1.0, 2.0]), k=2)
    >>> values, indices
    (tensor(2.), tensor(2))
    """
    check_numbers(input, "kthvalue")
    n = input._array.ndim
    d = normal_dim(dim, n)
    size = input._array.shape[d] if n else 1
    if not size:
        raise IndexError(f"kthvalue of no elements has no value: dimension {d} is empty")
    if not 1 <= k <= size:
        raise RuntimeError(f"kthvalue: k = {k} is out of range for a dimension of size {size}")
    values, indices = sort(input, d)
    if not n:
        return Indexed(values, indices)
    values, indices = select(values, d, k - 1), select(indices, d, k - 1)
    return (
        Indexed(unsqueeze(values, d), unsqueeze(indices, d))
        if keepdim
        else Indexed(values, indices)
    )


def _middle_places(x: Any, d: int, skips_nan: bool) -> Any:
    """The index of the median along a dimension, or of the first NaN unless `skips_nan`."""
    size = x.shape[d]
    known = sum_(cast(c.equal(x, x), dtype=int64), dims=(d,), keepdim=True)  # NaN comes last
    if skips_nan:
        rank = extremes.clamp_low(floor_divide(known - 1, 2), 0)
    else:
        rank = c.where(c.equal(known, size), (size - 1) // 2, known)
    return gather_(argsort_(x, dim=d, descending=False), rank, dim=d)


def _median(x: Any, *, skips_nan: bool) -> Any:
    flat = reshape_(x, shape=(math.prod(x.shape),))
    return reshape_(gather_(flat, _middle_places(flat, 0, skips_nan), dim=0), shape=())


def _median_gradient(g: Any, x: Any, out: Any) -> Any:
    """The gradient in equal shares for all elements equal to the median, or NaN if it is NaN."""
    hit = c.where(c.isnan(out), c.isnan(x), c.equal(x, out))
    shares = cast(hit, dtype=as_dtype(g.dtype))
    return g * (shares / sum_(shares, dims=tuple(range(len(x.shape))), keepdim=False))


median_: Primitive = define(
    "median", _median, kind=OPAQUE, composite=True, native_size=MIXED_SIZE, vjp=_median_gradient
)


def _median_of(input: Any, dim: int | None, keepdim: bool, skips_nan: bool) -> Any:
    check_numbers(input, "median")
    if dim is None:
        if input._array.size:
            return median_(input, skips_nan=skips_nan)
        if numeric.is_exact(input._array.dtype):
            return input.new_full((), np.iinfo(input._array.dtype).min)  # NaN, converted
        return input.sum() * np.nan
    x = input if input._array.ndim else reshape_(input, shape=(1,))
    d = normal_dim(dim, x._array.ndim)
    if not x._array.shape[d]:
        raise IndexError(f"the median along dimension {d}, which is empty, has no value")
    indices = _middle_places(x, d, skips_nan)
    values = gather_(x, indices, dim=d)
    if keepdim and input._array.ndim:
        return Indexed(values, indices)
    return Indexed(squeeze(values, d), squeeze(indices, d))


def _median_samples() -> list[Sample]:
    return [
        Sample(In(3, 5, distinct=True)),
        Sample(In(3, 4, distinct=True), 1),
        Sample(In(4, 3, distinct=True), 0, True),
        Sample(In(), 0),
    ]


@overload
def median(input: Tensor, dim: None = None, keepdim: bool = False) -> Tensor: ...
@overload
def median(input: Tensor, dim: int, keepdim: bool = False) -> Indexed: ...
@op(samples=_median_samples)
def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The middle value, the lower one of two; with a dim also its index.

    Without a dim, equal values share the gradient.

    >>> import tapegrad
    >>> tapegrad.median(tapegrad.tensor([3.0, 1.0, 2.0, 4.0]))
    tensor(2.)
    """
    return _median_of(input, dim, keepdim, skips_nan=False)


@overload
def nanmedian(input: Tensor, dim: None = None, keepdim: bool = False) -> Tensor: ...
@overload
def nanmedian(input: Tensor, dim: int, keepdim: bool = False) -> Indexed: ...
@op(samples=_median_samples)
def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The median of the values that are not NaN, if there are any.

    >>> import tapegrad
    >>> tapegrad.nanmedian(tapegrad.tensor([3.0, tapegrad.nan, 1.0]))
    tensor(1.)
    """
    return _median_of(input, dim, keepdim, skips_nan=True)


# -- reductions by index -----------------------------------------------------------------------


def _scatter_extreme(x: Any, index: Any, src: Any, *, dim: int, largest: bool) -> Any:
    module = xp.module(x)
    if module is not np:
        # CuPy's `maximum.at` loses digits of float64, so the host computes it.
        given = (array.get() for array in (x, index, src))
        return module.asarray(_scatter_extreme(*given, dim=dim, largest=largest))
    xp.check_index(index, x.shape[dim], "scatter_reduce", RuntimeError)
    out = x.copy()
    grid = list(np.ogrid[tuple(slice(n) for n in index.shape)])
    grid[dim] = index
    values = src[tuple(slice(n) for n in index.shape)]
    function = np.maximum if largest else np.minimum
    function.at(out, tuple(grid), values)
    return out


def _scatter_extreme_gradient(
    g: Any, x: Any, index: Any, src: Any, out: Any, dim: int, largest: bool, needs: list[bool]
) -> tuple[Any, ...]:
    """Equal extremes share the gradient."""
    own = cast(c.equal(x, out), dtype=g.dtype)
    theirs = cast(c.equal(src, gather_(out, index, dim=dim)), dtype=g.dtype)
    share = g / scatter_add_(own, index, theirs, dim=dim)
    return own * share, None, theirs * gather_(share, index, dim=dim)


scatter_extreme_: Primitive = define(
    "scatter_extreme",
    _scatter_extreme,
    kind=OPAQUE,
    joint=_scatter_extreme_gradient,
    batch=adapted(dim=shifted),
)


def _bound(x: Any, largest: bool) -> Any:
    """The largest, or the smallest, value of a tensor's dtype."""
    if numeric.is_integer(x._array.dtype):
        limits = np.iinfo(x._array.dtype)
        return int(limits.max if largest else limits.min)
    return np.inf if largest else -np.inf


def _grouped_product(x: Any, index: Any, src: Any, d: int) -> Any:
    """`x` times the product of the values of `src` for each index.

    The factors of one index are sorted next to each other and multiplied pairwise in log2(n)
    rounds. Zeros among them give exact derivatives of all orders.
    """
    shape = x._array.shape
    if not shape:
        single = [v.reshape(1) for v in (x, index, src)]
        return reshape_(_grouped_product(single[0], single[1], single[2], 0), shape=())
    # Where other dimensions of the index are smaller than those of `x`, add factors of 1.
    wide = (*shape[:d], index._array.shape[d], *shape[d + 1 :])
    if wide != index._array.shape:
        widths = tuple((0, n - m) for n, m in zip(wide, index._array.shape, strict=True))
        index, src = pad_(index, widths=widths, value=0), pad_(src, widths=widths, value=1)
    count, one = shape[d], x.new_ones(())
    own = index.new_tensor(np.arange(count)).reshape([-1 if k == d else 1 for k in range(x.ndim)])
    keys = cat_(expand_(own, shape=shape), index, dim=d)
    values = cat_(x, src, dim=d)
    order = argsort_(keys, dim=d, descending=False)
    keys, values = gather_(keys, order, dim=d), gather_(values, order, dim=d)
    n, step = keys._array.shape[d], 1
    while step < n:
        same = c.equal(keys.narrow(d, step, n - step), keys.narrow(d, 0, n - step))
        before = c.where(same, values.narrow(d, 0, n - step), one)
        later = values.narrow(d, step, n - step) * before
        values = cat_(values.narrow(d, 0, step), later, dim=d)
        step *= 2
    sizes = scatter_add_(index.new_ones(shape), index, index.new_ones(wide), dim=d)
    return gather_(values, sizes.cumsum(d) - 1, dim=d)


_PLACES = In(values=[[0, 1, 2], [2, 0, 0]], kind="int")


@op(
    apart=True,
    samples=lambda: [
        Sample((3, 4), 0, _PLACES, (2, 3), "sum"),
        Sample((2, 4), 1, _PLACES, (2, 3), "sum", include_self=False),
        Sample((2, 4), 1, _PLACES, (2, 3), "prod"),
        Sample((2, 4), 1, _PLACES, (2, 3), "mean", include_self=False),
        Sample(In(2, 4, distinct=True), 1, _PLACES, In(2, 3, distinct=True), "amax"),
        Sample((2, 4), 1, _PLACES, In(2, 3, distinct=True), "amin", include_self=False),
        Sample((2, 4), 1, _PLACES, (2, 3), "mean"),
        Sample((3, 4), 0, _PLACES, (2, 3), "prod", include_self=False),
    ],
    inplace=True,
)
def scatter_reduce(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Any:
    """`input` reduced with the values of `src` for each index.

    `reduce` is sum, prod, mean, amax or amin.

    With `include_self=False` the previous values at these indices are ignored.

    >>> import tapegrad
    >>> index, src = tapegrad.tensor([0, 0, 2]), tapegrad.tensor([1.0, 2.0, 3.0])
    >>> tapegrad.scatter_reduce(tapegrad.zeros(3), 0, index, src, "amax")
    tensor([2., 0., 3.])
    """
    if reduce not in ("sum", "prod", "mean", "amax", "amin"):
        raise RuntimeError(
            f"scatter_reduce supports sum, prod, mean, amax and amin, got {reduce!r}"
        )
    d = normal_dim(dim, input._array.ndim)
    if not input._array.ndim or not index._array.ndim:
        parts = [x if x._array.ndim else reshape_(x, shape=(1,)) for x in (input, index, src)]
        out = scatter_reduce(parts[0], 0, *parts[1:], reduce, include_self=include_self)
        return reshape_(out, shape=tuple(input._array.shape))
    _check_gather(input, index, d, "scatter_reduce")
    if not index._array.size:
        return input.clone()
    size = input._array.shape[d] if input._array.ndim else 1
    index = from_zero(index, size, "scatter_reduce")
    _check_source(index, src, "scatter_reduce")
    values = src[tuple(slice(n) for n in index._array.shape)]
    if src.dtype is not input.dtype:
        raise RuntimeError(f"scatter_reduce: source is {src.dtype}, the tensor is {input.dtype}")
    if reduce in ("amax", "amin"):
        first = input
        if not include_self:
            bound = _bound(input, reduce == "amin")
            first = scatter_(input, index, bound, dim=d)
        return scatter_extreme_(first, index, values, dim=d, largest=reduce == "amax")
    if reduce == "prod":
        ones = input.new_ones(index._array.shape)
        first = input if include_self else scatter_(input, index, ones, dim=d)
        return _grouped_product(first, index, values, d)
    first = input if include_self else scatter_(input, index, 0.0, dim=d)
    total = scatter_add_(first, index, values, dim=d)
    if reduce == "sum":
        return total
    ones = cast(c.equal(index, index), dtype=input.dtype)
    begin = input.new_ones(input.shape)
    if not include_self:
        begin = scatter_(begin, index, 0.0, dim=d)
    count = scatter_add_(begin, index, ones, dim=d)
    exact = numeric.is_exact(input._array.dtype)
    return total // count if exact else total / count
