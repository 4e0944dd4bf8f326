"""Running extremes, splits along fixed dimensions, and tests for infinities and signs.

Made of other operations, except for the indices of running extremes, which NumPy computes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...core import inplace, numeric, xp
from ...core.batch_rules import adapted, shifted
from ...core.primitive import OPAQUE, Primitive, define
from ...core.tensor import Tensor, wrap
from ...transforms.batching import with_batches_of
from ..checks import checked
from ..elementwise.comparison import equal, less, where
from ..elementwise.complexes import is_complex, refuse_complex
from ..elementwise.copies import clone_
from ..elementwise.functions import copysign
from ..index.indexing import setitem, take_
from ..shape.dims import normal_dim
from ..shape.joining import split
from ..shape.pieces import tensor_split
from ..shape.reshaping import reshape_
from ..table import In, Sample, attach, op
from .cumulative import cumsum
from .largest import Extreme, along, amax, amin
from .sorting import sort

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..annotations import Number

# -- extremes ----------------------------------------------------------------------------------


def _running_places(x: Any, *, dim: int, largest: bool) -> Any:
    """The latest index of the extreme so far along a dimension; NaN stays extreme."""
    module = xp.module(x)
    if module is not np:  # CuPy has no running extremes
        return module.asarray(_running_places(x.get(), dim=dim, largest=largest))
    values = (np.maximum if largest else np.minimum).accumulate(x, axis=dim)
    here = (x == values) | (x != x)
    shape = [1] * x.ndim
    shape[dim] = x.shape[dim]
    places = np.arange(x.shape[dim]).reshape(shape)
    return np.maximum.accumulate(np.where(here, places, 0), axis=dim).astype(np.int64)


running_places_: Primitive = define(
    "running_places",
    _running_places,
    kind=OPAQUE,
    abstract=lambda x, *, dim, largest: (x[0], np.dtype(np.int64)),
    batch=adapted(dim=shifted),
)


def _running(input: Any, dim: int, largest: bool) -> Extreme:
    d = normal_dim(dim, input._array.ndim)
    if not input._array.ndim:
        return Extreme(input.clone(), wrap(np.zeros((), np.int64)))
    places = running_places_(input.detach(), dim=d, largest=largest)
    return Extreme(along(input, places, d), places)


@op(samples=lambda: [Sample(In(3, 4, distinct=True), 0), Sample(In(3, 4, distinct=True), -1)])
def cummax(input: Tensor, dim: int) -> Extreme:
    """The largest element so far along a dimension, and its index.

    >>> import tapegrad
    >>> values, indices = tapegrad.cummax(tapegrad.tensor([1.0, 3.0, 2.0]), dim=0)
    >>> values, indices
    (tensor([1., 3., 3.]), tensor([0, 1, 1]))
    """
    return _running(input, dim, True)


@op(samples=lambda: [Sample(In(3, 4, distinct=True), 0), Sample(In(3, 4, distinct=True), -1)])
def cummin(input: Tensor, dim: int) -> Extreme:
    """The smallest element so far along a dimension, and its index.

    >>> import tapegrad
    >>> values, indices = tapegrad.cummin(tapegrad.tensor([3.0, 1.0, 2.0]), dim=0)
    >>> values, indices
    (tensor([3., 1., 1.]), tensor([0, 1, 1]))
    """
    return _running(input, dim, False)


class Bounds(NamedTuple):
    """The smallest and the largest element."""

    min: Tensor
    max: Tensor


@op(samples=lambda: [Sample(In(3, 4, distinct=True)), Sample(In(3, 4, distinct=True), dim=1)])
def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> Bounds:
    """The smallest and the largest element, of all or along a dimension.

    >>> import tapegrad
    >>> low, high = tapegrad.aminmax(tapegrad.tensor([[1.0, 5.0], [3.0, 4.0]]), dim=1)
    >>> low, high
    (tensor([1., 3.]), tensor([5., 4.]))
    """
    dims = () if dim is None else dim
    return Bounds(amin(input, dims, keepdim), amax(input, dims, keepdim))


@op(samples=lambda: [Sample(In(4, 3, distinct=True))])
def msort(input: Tensor) -> Any:
    """Sorted along the first dimension.

    >>> import tapegrad
    >>> tapegrad.msort(tapegrad.tensor([3.0, 1.0, 2.0]))
    tensor([1., 2., 3.])
    """
    return sort(input, 0)[0]


# -- cuts --------------------------------------------------------------------------------------


def _cut(name: str, least: int, input: Any, given: Any, dim: int) -> Any:
    n = input._array.ndim
    if n < least:
        raise RuntimeError(f"{name} needs at least {least} dimensions, got {n}")
    if isinstance(given, int) and (given <= 0 or input._array.shape[dim] % given):
        size = input._array.shape[dim]
        raise RuntimeError(
            f"{name}: {given} equal pieces do not fit dimension {dim} of size {size}"
        )
    return tensor_split(input, given, dim)


@op(samples=lambda: [Sample((4, 6), 3), Sample((4,), [1, 3])], result="tuple[Tensor, ...]")
def hsplit(input: Tensor, indices_or_sections: int | Sequence[int] | Tensor) -> Any:
    """Pieces along the second dimension, or the only one.

    `indices_or_sections` is the number of equal pieces, or the indices before which to cut.

    >>> import tapegrad
    >>> [piece.shape for piece in tapegrad.hsplit(tapegrad.zeros(4, 6), 3)]
    [Size([4, 2]), Size([4, 2]), Size([4, 2])]
    """
    return _cut("hsplit", 1, input, indices_or_sections, 1 if input._array.ndim > 1 else 0)


@op(samples=lambda: [Sample((4, 6), 2), Sample((4, 2), [1, 3])], result="tuple[Tensor, ...]")
def vsplit(input: Tensor, indices_or_sections: int | Sequence[int] | Tensor) -> Any:
    """Pieces along the first dimension.

    `indices_or_sections` is the number of equal pieces, or the indices before which to cut.

    >>> import tapegrad
    >>> [piece.shape for piece in tapegrad.vsplit(tapegrad.zeros(4, 6), [1, 3])]
    [Size([1, 6]), Size([2, 6]), Size([1, 6])]
    """
    return _cut("vsplit", 2, input, indices_or_sections, 0)


@op(samples=lambda: [Sample((2, 2, 6), 3), Sample((2, 2, 4), [1, 3])], result="tuple[Tensor, ...]")
def dsplit(input: Tensor, indices_or_sections: int | Sequence[int] | Tensor) -> Any:
    """Pieces along the third dimension.

    `indices_or_sections` is the number of equal pieces, or the indices before which to cut.

    >>> import tapegrad
    >>> [piece.shape for piece in tapegrad.dsplit(tapegrad.zeros(2, 2, 6), 3)]
    [Size([2, 2, 2]), Size([2, 2, 2]), Size([2, 2, 2])]
    """
    return _cut("dsplit", 3, input, indices_or_sections, 2)


@op(
    samples=lambda: [Sample((5, 2), [1, 4]), Sample((2, 5), [2, 3], 1)], result="tuple[Tensor, ...]"
)
def split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> Any:
    """Pieces of the given sizes along a dimension.

    >>> import tapegrad
    >>> tapegrad.split_with_sizes(tapegrad.arange(4), [1, 3])
    (tensor([0]), tensor([1, 2, 3]))
    """
    return split(input, list(split_sizes), dim)


# -- parts replaced ----------------------------------------------------------------------------


@op(
    apart=True,
    samples=lambda: [
        Sample((3, 4), In(3, 4, kind="bool"), (12,)),
        Sample((3, 4), In(4, kind="bool"), (3, 5)),
    ],
    inplace=True,
)
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Any:
    """The elements of `source`, in order, where the mask holds.

    `mask` has a shape that broadcasts to that of `input`.

    >>> import tapegrad
    >>> mask = tapegrad.tensor([True, False, True])
    >>> tapegrad.masked_scatter(tapegrad.zeros(3), mask, tapegrad.tensor([1.0, 2.0]))
    tensor([1., 0., 2.])
    """
    if not numeric.is_boolean(mask._array.dtype):
        raise RuntimeError(f"masked_scatter needs a bool tensor as its mask, got {mask.dtype}")
    if source._array.dtype != input._array.dtype:
        raise RuntimeError(
            f"masked_scatter needs tensors of one dtype, got {input.dtype} and {source.dtype}"
        )
    shape = np.broadcast_shapes(input._array.shape, mask._array.shape)
    chosen = reshape_(mask.expand(shape).contiguous(), shape=(math.prod(shape),))
    places = where(chosen, cumsum(chosen.long(), 0) - 1, 0)
    flat = reshape_(source, shape=(source._array.size,))
    if not flat._array.size:
        raise RuntimeError("masked_scatter needs a source with elements")
    message = f"masked_scatter needs more than the {flat._array.size} elements of its source"
    places = checked(places, high=flat._array.size - 1, message=message)
    values = take_(flat, places, dims=(0,))
    return where(mask, reshape_(values, shape=shape), input)


@op(samples=lambda: [Sample((3, 4), (4,), 0, 1), Sample((3, 4), (3,), -1, -2)])
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Any:
    """A copy with the slice at one index of a dimension replaced.

    `src` has the shape of `input` without the dimension `dim`.

    >>> import tapegrad
    >>> tapegrad.select_scatter(tapegrad.zeros(2, 3), tapegrad.ones(3), dim=0, index=1)
    tensor([[0., 0., 0.],
            [1., 1., 1.]])
    """
    return replaced(input, lambda x: x.select(dim, index), src, "select_scatter")


@op(samples=lambda: [Sample((4, 3), (2, 3), 0, 1, 3), Sample((3, 4), (3, 2), 1, 0, None, 2)])
def slice_scatter(
    input: Tensor,
    src: Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Any:
    """A copy with a range of a dimension replaced.

    `src` has the shape of the range: input[start:end:step] for dim 0.

    >>> import tapegrad
    >>> tapegrad.slice_scatter(tapegrad.zeros(4), tapegrad.ones(2), start=1, end=3)
    tensor([0., 1., 1., 0.])
    """
    d = normal_dim(dim, input._array.ndim)
    key = (slice(None),) * d + (slice(start, end, step),)
    return replaced(input, lambda x: x[key], src, "slice_scatter")


@op(samples=lambda: [Sample((3, 4), (3,)), Sample((3, 4), (2,), -1)])
def diagonal_scatter(
    input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Any:
    """A copy with a diagonal replaced.

    >>> import tapegrad
    >>> tapegrad.diagonal_scatter(tapegrad.zeros(2, 2), tapegrad.tensor([1.0, 2.0]))
    tensor([[1., 0.],
            [0., 2.]])
    """
    return replaced(input, lambda x: x.diagonal(offset, dim1, dim2), src, "diagonal_scatter")


def replaced(input: Any, part_of: Any, src: Any, what: str) -> Any:
    """A copy of a tensor in which a part, a view made by `part_of`, is replaced."""
    out = clone_(with_batches_of(input, src))
    part = part_of(out)
    if part._array.shape != src._array.shape:
        raise RuntimeError(
            f"{what}: the part has shape {tuple(part.shape)}, its replacement {tuple(src.shape)}"
        )
    part.copy_(src)
    return out


def _fill_diagonal(self: Tensor, fill_value: Number, wrap: bool = False) -> Tensor:
    """Fill the main diagonal, in place; with `wrap`, start again below the square of a matrix."""
    inplace.check_writable(self, "fill_diagonal_")
    shape = self._array.shape
    if len(shape) < 2 or (len(shape) > 2 and len(set(shape)) > 1):
        raise RuntimeError(
            f"fill_diagonal_ needs a matrix, or more dimensions of one size, got {tuple(shape)}"
        )
    rows = np.arange(shape[0]) if wrap and len(shape) == 2 else np.arange(min(shape))
    columns = rows % (shape[1] + 1) if wrap and len(shape) == 2 else rows
    kept = columns < shape[1]
    setitem(self, (rows[kept], *[columns[kept]] * (len(shape) - 1)), fill_value)
    return self


attach(fill_diagonal_=_fill_diagonal)

# -- signs and infinities ----------------------------------------------------------------------


_EDGES = In(values=[-math.inf, -1.0, 0.0, 2.0, math.inf], grad=False)


@op(samples=lambda: [Sample(_EDGES)], differentiable=False)
def isposinf(input: Tensor) -> Any:
    """Where elements are infinity.

    >>> import tapegrad
    >>> tapegrad.isposinf(tapegrad.tensor([1.0, tapegrad.inf, -tapegrad.inf]))
    tensor([False,  True, False])
    """
    refuse_complex(input, "isposinf")
    return equal(input, math.inf)


@op(samples=lambda: [Sample(_EDGES)], differentiable=False)
def isneginf(input: Tensor) -> Any:
    """Where elements are minus infinity.

    >>> import tapegrad
    >>> tapegrad.isneginf(tapegrad.tensor([1.0, tapegrad.inf, -tapegrad.inf]))
    tensor([False, False,  True])
    """
    refuse_complex(input, "isneginf")
    return equal(input, -math.inf)


@op(samples=lambda: [Sample(_EDGES)], differentiable=False)
def isreal(input: Tensor) -> Any:
    """Where elements are real: everywhere, or where the imaginary part is 0.

    >>> import tapegrad
    >>> tapegrad.isreal(tapegrad.tensor([1.0, 2.0]))
    tensor([True, True])
    """
    if is_complex(input):
        return equal(input.detach().imag, 0)
    return equal(equal(input, input), equal(input, input))


@op(
    samples=lambda: [Sample(_EDGES), Sample(In(values=[-0.0, 0.0], grad=False))],
    differentiable=False,
)
def signbit(input: Tensor) -> Any:
    """Where elements have a minus sign, -0.0 too.

    >>> import tapegrad
    >>> tapegrad.signbit(tapegrad.tensor([1.0, -0.0, -2.0]))
    tensor([False,  True,  True])
    """
    x = input.detach()
    if not numeric.is_floating(x._array.dtype):
        return less(x, 0)
    return less(copysign(x.new_ones(()), x), 0)
