"""Counting values: histograms, the most frequent value; writing and reducing by index.

Comes in: a tensor, with bins, or with indices and a source. Histograms have no gradient.
Imported at first use (`late.py`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...core import numeric, xp
from ...core.batch_rules import adapted, leading, shifted
from ...core.dtypes import finfo
from ...core.primitive import OPAQUE, Primitive, define
from ...core.tensor import Tensor
from ..checks import checked
from ..elementwise.comparison import where
from ..shape.dims import normal_dim
from ..shape.reshaping import reshape_, squeeze
from ..table import In, Sample, op
from .gather import _check_index_tensor, _check_same_dtype, _check_slices, gather_
from .indexing import put_
from .search import Indexed, scatter_reduce

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..annotations import Number


class Histogram(NamedTuple):
    """The number of elements in each bin, and the edges of the bins."""

    hist: Tensor
    bin_edges: Any


# -- histograms --------------------------------------------------------------------------------


def _bin_counts(x: Any, weight: Any, *edges: Any) -> Any:
    """The number of points (..., count, dimensions) in each bin between edges (..., bins + 1)."""
    if x.ndim > 2:
        rows = [
            _bin_counts(p, None if weight is None else weight[i], *[e[i] for e in edges])
            for i, p in enumerate(x)
        ]
        return xp.module(x).stack(rows)
    module = xp.module(x)
    shape = tuple(len(e) - 1 for e in edges)
    place = module.zeros(len(x), np.int64)
    inside = module.ones(len(x), bool)
    for d, bounds in enumerate(edges):
        values = x[:, d]
        bins = module.searchsorted(bounds, values, side="right") - 1
        bins = module.where(values == bounds[-1], shape[d] - 1, bins)  # the last bin is closed
        inside &= (bins >= 0) & (bins < shape[d]) & ~module.isnan(values)
        place = place * shape[d] + module.where(inside, bins, 0)
    given = None if weight is None else weight[inside].astype(np.float64)
    counts = module.bincount(place[inside], given, math.prod(shape))
    return counts.reshape(shape).astype(x.dtype)


def _counts_shape(x: Any, weight: Any, *edges: Any) -> Any:
    (shape, dtype), bounds = x, [e[0] for e in edges]
    return (*shape[:-2], *[n[-1] - 1 for n in bounds]), dtype


bin_counts_: Primitive = define(
    "bin_counts", _bin_counts, kind=OPAQUE, batch=leading, abstract=_counts_shape
)


def _edges_of(
    x: Any, bins: int, bounds: tuple[float, float] | None, margin: float, what: str
) -> Any:
    """The edges of bins of equal width over `bounds`, or over the range of the data."""
    if bins <= 0:
        raise RuntimeError(f"{what}: bins must be at least 1, got {bins}")
    if bounds is None:
        if not x._array.size:
            low, high = x.new_zeros(()), x.new_ones(())
        else:
            low, high = x.amin(), x.amax()
            most = finfo(x.dtype).max
            message = f"{what}: the range of the data is not finite, it has {{}}"
            low = checked(low, low=-most, high=most, message=message)
            high = checked(high, low=-most, high=most, message=message)
    else:
        if not (math.isfinite(bounds[0]) and math.isfinite(bounds[1])):
            raise RuntimeError(f"{what}: range of {list(bounds)} is not finite")
        if bounds[0] > bounds[1]:
            raise RuntimeError(f"{what}: max must be larger than min, got {list(bounds)}")
        low, high = (x.new_full((), float(b)) for b in bounds)
    one = low == high
    low, high = where(one, low - margin, low), where(one, high + margin, high)
    steps = x.new_tensor(np.arange(bins + 1) / bins)
    edges = low + (high - low) * steps
    last = x.new_tensor(np.arange(bins + 1) == bins).bool()
    return where(last, high, edges)


def _points(input: Tensor, what: str) -> Any:
    """The elements without their history; half precision becomes float32."""
    if not numeric.is_floating(input._array.dtype):
        raise NotImplementedError(f"{what} needs a floating dtype, got {input.dtype}")
    x = input.detach()
    return x.float() if numeric.is_half(input._array.dtype) else x


@op(
    samples=lambda: [
        Sample(In(3, 4, grad=False), 5),
        Sample(In(7, grad=False), bins=4, min=-1, max=1),
        Sample(In(values=[2.0, 2.0], grad=False), 4),
        Sample(In(0, grad=False), 3),
    ],
    differentiable=False,
)
def histc(input: Tensor, bins: int = 100, min: Number = 0, max: Number = 0) -> Any:
    """The number of elements in each of `bins` bins of equal width between min and max.

    If min and max are equal, the bins cover the range of the elements. Elements outside the bins
    are not counted.

    >>> import tapegrad
    >>> tapegrad.histc(tapegrad.tensor([1.0, 2.0, 1.0]), bins=4, min=0, max=3)
    tensor([0., 2., 1., 0.])
    """
    x = reshape_(_points(input, "histc"), shape=(input._array.size, 1))
    bounds = None if min == max else (float(min), float(max))
    return bin_counts_(x, None, _edges_of(x, int(bins), bounds, 1.0, "histc")).to(input.dtype)


def _density(hist: Any, edges: Sequence[Any]) -> Any:
    """Counts divided by their sum and by the widths of the bins."""
    hist = hist / hist.sum()
    for d, bounds in enumerate(edges):
        width = bounds[1:] - bounds[:-1]
        hist = hist / width.reshape([-1 if k == d else 1 for k in range(len(edges))])
    return hist


def _weights(x: Any, weight: Tensor | None, shape: tuple[int, ...], what: str) -> Any:
    if weight is None:
        return None
    if weight._array.shape != shape:
        raise RuntimeError(
            f"{what}: a weight for each point is needed, of shape {shape}, got "
            f"{tuple(weight.shape)}"
        )
    if weight.dtype is not x.dtype:
        raise RuntimeError(f"{what}: weights are {weight.dtype}, the points are {x.dtype}")
    return reshape_(weight.detach(), shape=(weight._array.size,))


@op(
    samples=lambda: [
        Sample(In(7, grad=False), 4),
        Sample(In(3, 4, grad=False), 3, range=(-1.0, 1.0), density=True),
        Sample(In(5, grad=False), In(values=[-1.0, 0.0, 0.5, 2.0], grad=False)),
        Sample(In(5, grad=False), 3, weight=In(5, grad=False)),
    ],
    differentiable=False,
    result="Histogram",
)
def histogram(
    input: Tensor,
    bins: int | Tensor,
    *,
    range: tuple[float, float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Any:
    """The number of elements in each bin, and the edges of the bins.

    `bins` is a number of bins of equal width, or a tensor of edges. `weight` has a weight for each
    element; with `density` the integral over all bins is 1.

    >>> import tapegrad
    >>> hist, edges = tapegrad.histogram(tapegrad.tensor([1.0, 2.0, 1.0]), bins=2)
    >>> hist, edges
    (tensor([2., 1.]), tensor([1.0000, 1.5000, 2.0000]))
    """
    x = reshape_(_points(input, "histogram"), shape=(input._array.size, 1))
    weight = _weights(input, weight, input._array.shape, "histogram")
    if isinstance(bins, Tensor):
        if range is not None:
            raise TypeError("histogram takes either the bounds of bins or a range")
        if bins.dtype is not input.dtype or bins._array.ndim != 1 or not bins._array.size:
            raise RuntimeError(
                f"histogram needs the bounds of bins in one dimension, of {input.dtype}, got "
                f"{tuple(bins.shape)} of {bins.dtype}"
            )
    edges = bins if isinstance(bins, Tensor) else _edges_of(x, int(bins), range, 0.5, "histogram")
    hist = bin_counts_(x, weight, edges)
    hist = _density(hist, [edges]) if density else hist
    return Histogram(hist.to(input.dtype), edges.to(input.dtype))


@op(
    samples=lambda: [
        Sample(In(6, 2, grad=False), [3, 2]),
        Sample(In(6, 2, grad=False), 2, weight=In(6, grad=False), density=True),
        Sample(In(5, 2, grad=False), [2, 2], range=[-1.0, 1.0, 0.0, 1.0]),
    ],
    method=False,
    differentiable=False,
    result="Histogram",
)
def histogramdd(
    input: Tensor,
    bins: int | Sequence[Any],
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Any:
    """The number of points in each bin of several dimensions, and the edges along each dimension.

    The last dimension of `input` has the coordinates. `bins` is a number for all dimensions, or
    a number or the edges for each; `range` has the smallest and the largest value of each.

    >>> import tapegrad
    >>> points = tapegrad.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    >>> tapegrad.histogramdd(points, bins=[2, 2]).hist
    tensor([[0., 1.],
            [1., 1.]])
    """
    if input._array.ndim < 2:
        raise RuntimeError("histogramdd needs an input of at least 2 dimensions")
    *points, n = input._array.shape
    x = reshape_(_points(input, "histogramdd"), shape=(math.prod(points), n))
    weight = _weights(input, weight, tuple(points), "histogramdd")
    given: list[Any] = list(bins) if isinstance(bins, (list, tuple)) else [bins] * n
    if len(given) != n or (range is not None and len(range) != 2 * n):
        raise RuntimeError(f"histogramdd: bins and a range for each of {n} dimensions are needed")
    bounds: list[Any] = [None] * n
    if range is not None:
        bounds = [(range[2 * d], range[2 * d + 1]) for d, _ in enumerate(given)]
    edges = [
        b if isinstance(b, Tensor) else _edges_of(x[:, d], int(b), bounds[d], 0.5, "histogramdd")
        for d, b in enumerate(given)
    ]
    hist = bin_counts_(x, weight, *edges)
    hist = _density(hist, edges) if density else hist
    return Histogram(hist.to(input.dtype), tuple([e.to(input.dtype) for e in edges]))


# -- the most frequent value -------------------------------------------------------------------


def _mode_places(x: Any, *, dim: int) -> Any:
    """The last index of the most frequent value; of several such values, of the smallest."""
    module = xp.module(x)
    rows = module.moveaxis(x, dim, -1)
    order = module.argsort(rows, axis=-1, kind="stable")
    ordered = module.take_along_axis(rows, order, axis=-1)
    count = module.arange(rows.shape[-1])
    new = module.ones(rows.shape, bool)
    new[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    first = module.where(new, count, 0)
    if module is np:
        start = np.maximum.accumulate(first, axis=-1)
    else:  # CuPy has no running extremes
        start = module.asarray(np.maximum.accumulate(first.get(), axis=-1))
    place = module.argmax(count - start, axis=-1)[..., None]  # the end of the first longest run
    found = module.take_along_axis(order, place, axis=-1)
    return module.moveaxis(found, -1, dim).astype(np.int64)


mode_places_: Primitive = define(
    "mode_places", _mode_places, kind=OPAQUE, batch=adapted(dim=shifted)
)


@op(
    samples=lambda: [
        Sample(In(values=[[1.0, 2.0, 2.0, 1.0], [3.0, 1.0, 2.0, 3.0]], grad=False)),
        Sample(In(values=[[1.0, 2.0], [2.0, 2.0], [1.0, 3.0]], grad=False), 0, True),
        Sample(In(2, 5, kind="int", low=0, high=3), 1),
    ],
    result="Indexed",
)
def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """The most frequent value along a dimension (the smallest of several), and its last index.

    >>> import tapegrad
    >>> values, indices = tapegrad.mode(tapegrad.tensor([3, 1, 2, 3, 2]))
    >>> values, indices
    (tensor(2), tensor(4))
    """
    n = input._array.ndim
    d = normal_dim(dim, n)
    if n == 0:
        return Indexed(input.clone(), input.new_zeros((), dtype=int))
    if input._array.shape[d] == 0:
        raise IndexError(f"mode: dimension {d} is empty")
    places = mode_places_(input.detach(), dim=d)
    values = gather_(input, places, dim=d)
    return Indexed(*(x if keepdim else squeeze(x, d) for x in (values, places)))


# -- by index ----------------------------------------------------------------------------------


@op(
    apart=True,
    samples=lambda: [
        Sample((2, 3), In(values=[4, 0], kind="int"), (2,)),
        Sample((2, 3), In(values=[[1, 1, -1]], kind="int"), (1, 3), accumulate=True),
    ],
    inplace=True,
)
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Any:
    """`input` with values put (or with `accumulate` added) at indices of the flattened tensor.

    >>> import tapegrad
    >>> at, values = tapegrad.tensor([0, 3]), tapegrad.tensor([8.0, 9.0])
    >>> tapegrad.put(tapegrad.zeros(2, 2), at, values)
    tensor([[8., 0.],
            [0., 9.]])
    """
    _check_index_tensor(index, "put")
    _check_same_dtype(input, source, "put")
    if index._array.size != source._array.size:
        raise IndexError(
            f"put: expected as many values as places, got {source._array.size} and "
            f"{index._array.size}"
        )
    shape, size = input._array.shape, input._array.size
    places = reshape_(index, shape=(index._array.size,))
    if index._array.size:
        xp.check_index(index._array, size, "put")
    values = reshape_(source, shape=(source._array.size,))
    flat = reshape_(input, shape=(size,))
    out = put_(flat, values, places, dims=(0,), accumulate=bool(accumulate))
    return reshape_(out, shape=shape)


_ROWS = In(values=[2, 0, 2], kind="int")


@op(
    apart=True,
    samples=lambda: [
        Sample((3, 4), 0, _ROWS, (3, 4), "mean"),
        Sample((2, 3), 1, _ROWS, (2, 3), "prod", include_self=False),
        Sample(In(3, 2, distinct=True), 0, _ROWS, In(3, 2, distinct=True), "amax"),
        Sample((3, 2), 0, _ROWS, In(3, 2, distinct=True), "amin", include_self=False),
    ],
    inplace=True,
)
def index_reduce(
    input: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Any:
    """`input` reduced with the slices of `source` for each index: by prod, mean, amax or amin.

    With `include_self=False` the previous values at these indices are ignored.

    >>> import tapegrad
    >>> index, source = tapegrad.tensor([0, 0, 2]), tapegrad.tensor([2.0, 3.0, 5.0])
    >>> tapegrad.index_reduce(tapegrad.ones(3), 0, index, source, "prod")
    tensor([6., 1., 5.])
    """
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise RuntimeError(
            f"index_reduce: reduce must be 'prod', 'mean', 'amax' or 'amin', got {reduce!r}"
        )
    _check_index_tensor(index, "index_reduce")
    d = normal_dim(dim, input._array.ndim)
    if source.dtype is not input.dtype:
        raise RuntimeError(f"index_reduce: source is {source.dtype}, the tensor is {input.dtype}")
    if not input._array.ndim:
        given = [reshape_(x, shape=(1,)) for x in (input, index, source)]
        out = index_reduce(given[0], 0, *given[1:], reduce, include_self=include_self)
        return reshape_(out, shape=())
    index = _check_slices(input, d, index, source, "index_reduce")
    shape = [-1 if k == d else 1 for k in range(source._array.ndim)]
    places = index.reshape(shape).expand(source._array.shape)
    return scatter_reduce(input, d, places, source, reduce, include_self=include_self)
