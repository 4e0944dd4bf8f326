"""Repeating, splitting and joining: windows, differences, rotated and stacked tensors.

Except for windows, everything here consists of views, joins and lookups by constant indices, so it
differentiates and replays through those.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import numeric, xp
from ...core.batch_rules import adapted, shifted, sized
from ...core.dtypes import int64
from ...core.primitive import MOVEMENT, Primitive, define
from ...core.storage import owner_of
from ...core.strided import strided_
from ...core.tensor import Tensor, not_recorded, wrap
from ..index.indexing import take_
from ..table import In, Sample, op
from .dims import check_sequence, normal_dim
from .joining import cat, cat_
from .reordering import flip, permute_, transpose
from .reshaping import reshape_
from .slicing import narrow

if TYPE_CHECKING:
    from collections.abc import Sequence


def _constant_index(x: Any, values: Any) -> Any:
    """An index tensor on the device of `x`."""
    return wrap(xp.module(x._array).asarray(np.ascontiguousarray(values, np.int64)))


def _sliding(x: Any, dim: int, size: int, step: int) -> Any:
    """Windows of one dimension, with their elements last: a view whose base is the owner of `x`.

    NumPy's own windows do not lead to the array that owns the memory. Memory that NumPy did not
    allocate is copied.
    """
    count = (x.shape[dim] - size) // step + 1
    shape = (*x.shape[:dim], count, *x.shape[dim + 1 :], size)
    if 0 in shape:
        return xp.module(x).empty(shape, x.dtype)
    last = x.strides[dim]
    strides = (*x.strides[:dim], last * step, *x.strides[dim + 1 :], last)
    if xp.module(x) is not np:
        return xp.strided_on_gpu(x, shape, strides)
    owner = owner_of(x)
    largest_first = sorted(range(owner.ndim), key=lambda d: -owner.strides[d])
    memory = owner.transpose(largest_first).reshape(-1)
    if owner_of(memory) is not owner:
        return _sliding(np.array(x, order="C"), dim, size, step)
    offset = xp.address(x) - xp.address(memory)
    out: Any = np.ndarray(shape, x.dtype, memory.view(np.uint8), offset, strides)
    if not x.flags.writeable:
        out.flags.writeable = False
    return out


def _parts(size: int, step: int) -> list[slice]:
    """Groups of windows that do not overlap, so that each can be added at once."""
    every = -(-size // step) or 1
    return [slice(first, None, every) for first in range(every)]


def _unwindow(x: Any, *, shape: Any, dim: int, size: int, step: int) -> Any:
    wide = xp.widened(x)
    out = xp.module(x).zeros(shape, wide.dtype)
    windows = _sliding(out, dim, size, step).swapaxes(0, dim)
    added = wide.swapaxes(0, dim)
    for part in _parts(size, step):
        windows[part] += added[part]
    return out.astype(x.dtype, copy=False)


def _unwindow_in_loops(
    b: Any, out: Any, x: Any, *, shape: Any, dim: int, size: int, step: int
) -> None:
    total = b.new(out.shape, b.widest(out.dtype))
    b.fill(total, 0)
    windows = _sliding(total, dim, size, step).swapaxes(0, dim)
    added = b.widened(x).swapaxes(0, dim)
    for part in _parts(size, step):
        b.add(windows[part], added[part])
    b.rounded(out, total)


window_: Primitive = define(
    "window",
    lambda x, *, dim, size, step: _sliding(x, dim, size, step),
    kind=MOVEMENT,
    vjp=lambda g, x_shape, dim, size, step: unwindow_(
        g, shape=tuple(x_shape), dim=dim, size=size, step=step
    ),
    view=True,
    batch=adapted(dim=shifted),
)
unwindow_: Primitive = define(
    "unwindow",
    _unwindow,
    kind=MOVEMENT,
    lower=_unwindow_in_loops,
    vjp=lambda g, dim, size, step: window_(g, dim=dim, size=size, step=step),
    batch=adapted(shape=sized, dim=shifted),
)


@op(
    samples=lambda: [
        Sample((7, 2), 0, 3, 2),
        Sample((2, 6), 1, 2, 2),
        Sample((2, 7), -1, 2, 3),
        Sample((2, 7, 3), 1, 4, 1),
        Sample((), 0, 1, 1),
    ],
    function=False,
    torch="Tensor.unfold",
)
def unfold(input: Tensor, dimension: int, size: int, step: int) -> Any:
    """Windows of a dimension, each `step` after the one before, in a new last dimension: a view.

    The dimension gets the size (n - size) // step + 1.

    >>> import tapegrad
    >>> tapegrad.arange(5).unfold(0, size=3, step=2)
    tensor([[0, 1, 2],
            [2, 3, 4]])
    """
    x = input if input._array.ndim else reshape_(input, shape=(1,))
    d = normal_dim(dimension, x._array.ndim)
    length = x._array.shape[d]
    if step <= 0:
        raise RuntimeError(f"unfold: step must be above 0, got {step}")
    if not 0 <= size <= length:
        raise RuntimeError(f"unfold: windows of {size} do not fit dimension {d} of size {length}")
    out = window_(x, dim=d, size=int(size), step=int(step))
    return out if input._array.ndim else reshape_(out, shape=(size,))


@op(
    samples=lambda: [
        Sample((3, 4), [2, 3], [4, 1], 5),
        Sample((3, 4), [4, 3], [1, 4]),
        Sample((7,), [3, 3], [2, 1], 0),
        Sample((5,), [], [], 3),
    ],
)
def as_strided(
    input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Any:
    """A view of a tensor's memory with the given shape and strides.

    Offset and strides count elements. The memory is that of `input` alone, in memory order, and
    must have no gaps.

    >>> import tapegrad
    >>> tapegrad.as_strided(tapegrad.arange(4), size=[3, 2], stride=[1, 1])
    tensor([[0, 1],
            [1, 2],
            [2, 3]])
    """
    array = input._array
    shape, steps = tuple(map(operator.index, size)), tuple(map(operator.index, stride))
    if len(shape) != len(steps):
        raise RuntimeError(f"as_strided: {len(shape)} sizes, but {len(steps)} strides")
    if min((*shape, *steps, storage_offset or 0), default=0) < 0:
        raise RuntimeError("as_strided: sizes, strides and offset must not be negative")
    order = sorted(range(array.ndim), key=lambda d: -array.strides[d])
    if not array.transpose(order).flags.c_contiguous:
        raise RuntimeError("as_strided: the memory of this tensor has gaps; use contiguous() first")
    first = 0 if storage_offset is None else storage_offset - input.storage_offset()
    last = first + sum((n - 1) * s for n, s in zip(shape, steps, strict=True))
    if 0 not in shape and not 0 <= first <= last < array.size:
        raise RuntimeError(
            f"as_strided: elements {first} to {last} are wanted of a tensor that has {array.size}"
        )
    if 0 in shape:
        first = 0  # an empty view: any offset will do
    x = input if order == [*range(array.ndim)] else permute_(input, dims=tuple(order))
    return strided_(reshape_(x, shape=(array.size,)), shape=shape, strides=steps, offset=first)


_TIMES = In(values=[1, 0, 3], kind="int")


@op(
    samples=lambda: [
        Sample((3, 2), 2),
        Sample((3, 2), 2, 0),
        Sample((2, 3), 3, dim=-1),
        Sample((3, 2), _TIMES, 0),
        Sample((3,), _TIMES),
    ]
)
def repeat_interleave(
    input: Tensor,
    repeats: int | Tensor | None = None,
    dim: int | None = None,
    *,
    output_size: int | None = None,
) -> Any:
    """Repeat each element along a dimension; without a dim, of the flattened tensor.

    `repeats` is a number, or a tensor with one number for each element.

    >>> import tapegrad
    >>> tapegrad.repeat_interleave(tapegrad.tensor([1, 2]), tapegrad.tensor([1, 3]))
    tensor([1, 2, 2, 2])
    """
    if repeats is None:
        positions = np.repeat(np.arange(input._array.size), _counts(input))
        return _constant_index(input, positions)
    x = reshape_(input, shape=(input._array.size,)) if dim is None else input
    d = 0 if dim is None else normal_dim(dim, x._array.ndim)
    length = x._array.shape[d] if x._array.ndim else 1
    if not isinstance(repeats, Tensor):
        times: Any = operator.index(repeats)
        if times < 0:
            raise RuntimeError(f"repeat_interleave: repeats must not be negative, got {times}")
    else:
        times = _counts(repeats)
        if times.size not in (1, length):
            raise RuntimeError(
                f"repeat_interleave: {times.size} repeats do not fit dimension {d} of size {length}"
            )
    positions = np.repeat(np.arange(length), times)
    if output_size is not None and output_size != positions.size:
        raise RuntimeError(f"repeat_interleave gives {positions.size} elements, not {output_size}")
    x = x if x._array.ndim else reshape_(x, shape=(1,))
    return take_(x, _constant_index(x, positions), dims=(d,))


def _counts(repeats: Any) -> Any:
    if not numeric.is_integer(repeats._array.dtype) or repeats._array.ndim > 1:
        raise NotImplementedError("repeat_interleave needs repeats as integers in one dimension")
    not_recorded(repeats, "repeat_interleave with a tensor of repeats")
    counts = np.asarray(repeats.cpu()._array)
    if counts.size and counts.min() < 0:
        raise RuntimeError("repeat_interleave: repeats must not be negative")
    return counts


@op(
    samples=lambda: [Sample((7, 2), 3), Sample((7, 2), [1, 4]), Sample((2, 5), 2, dim=1)],
    result="tuple[Tensor, ...]",
)
def tensor_split(
    input: Tensor,
    indices_or_sections: int | Sequence[int] | Tensor | None = None,
    dim: int = 0,
    *,
    indices: Sequence[int] | None = None,
    sections: int | None = None,
    tensor_indices_or_sections: Tensor | None = None,
) -> Any:
    """Pieces of nearly equal sizes, or cut before the given indices.

    Four names are accepted for the number of pieces or the indices.

    >>> import tapegrad
    >>> tapegrad.tensor_split(tapegrad.arange(5), 2)
    (tensor([0, 1, 2]), tensor([3, 4]))
    >>> tapegrad.tensor_split(tapegrad.arange(5), [1, 4])
    (tensor([0]), tensor([1, 2, 3]), tensor([4]))
    """
    named = (indices_or_sections, indices, sections, tensor_indices_or_sections)
    chosen = [x for x in named if x is not None]
    if len(chosen) != 1:
        raise TypeError(f"tensor_split needs the indices or the number of pieces once, got {named}")
    given = chosen[0]
    if isinstance(given, Tensor):
        if given.dtype is not int64 or given._array.ndim > 1:
            raise RuntimeError(
                "tensor_split needs an int64 tensor of at most one dimension, got "
                f"{given.dtype} of shape {tuple(given.shape)}"
            )
        given = given.tolist()
    if not input._array.ndim:
        raise RuntimeError("tensor_split needs a tensor of at least one dimension")
    d = normal_dim(dim, input._array.ndim)
    length = input._array.shape[d]
    if isinstance(given, int):
        if given <= 0:
            raise RuntimeError(f"tensor_split needs a positive number of pieces, got {given}")
        small, larger = divmod(length, given)
        cuts = [i * small + min(i, larger) for i in range(1, given)]
    else:
        cuts = [slice(operator.index(i)).indices(length)[1] for i in given]
    starts, stops = [0, *cuts], [*cuts, length]
    pairs = zip(starts, stops, strict=True)
    return tuple(narrow(input, d, a, max(b - a, 0)) for a, b in pairs)


@op(
    casts=True,
    method=False,
    samples=lambda: [Sample([In(3), In(3)]), Sample([In(2, 3), In(2, 3)]), Sample([In(), In()])],
)
def dstack(tensors: Sequence[Tensor]) -> Any:
    """Join along the third dimension, which is added to tensors of fewer dimensions.

    >>> import tapegrad
    >>> tapegrad.dstack([tapegrad.zeros(3), tapegrad.ones(3)]).shape
    Size([1, 3, 2])
    """
    check_sequence(tensors, "dstack")
    return cat([_with_three_dimensions(x) for x in tensors], 2)


def _with_three_dimensions(x: Any) -> Any:
    shape = tuple(x._array.shape)
    wide = {0: (1, 1, 1), 1: (1, *shape, 1), 2: (*shape, 1)}.get(len(shape))
    return x if wide is None else reshape_(x, shape=wide)


@op(
    casts=True,
    method=False,
    samples=lambda: [Sample([In(3), In(3, 2)]), Sample([In(2, 3), In(2, 1)]), Sample([In(), In()])],
)
def column_stack(tensors: Sequence[Tensor]) -> Any:
    """Join as columns: vectors become one column each.

    >>> import tapegrad
    >>> tapegrad.column_stack([tapegrad.tensor([1, 2]), tapegrad.tensor([3, 4])])
    tensor([[1, 3],
            [2, 4]])
    """
    check_sequence(tensors, "column_stack")
    columns = [reshape_(x, shape=(x._array.size, 1)) if x._array.ndim < 2 else x for x in tensors]
    return cat(columns, 1)


@op(samples=lambda: [Sample((2, 3)), Sample((2, 3), 2), Sample((2, 3, 2), -1, [1, 2])])
def rot90(input: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Any:
    """Rotate by k quarter turns, from the first of two dimensions towards the second.

    >>> import tapegrad
    >>> tapegrad.rot90(tapegrad.tensor([[1, 2], [3, 4]]))
    tensor([[2, 4],
            [1, 3]])
    """
    if len(dims) != 2 or input._array.ndim < 2:
        raise RuntimeError(
            f"rot90 needs two dimensions, got {list(dims)} for a tensor of {input._array.ndim}"
        )
    a, b = (normal_dim(d, input._array.ndim) for d in dims)
    if a == b:
        raise RuntimeError(f"rot90 needs two different dimensions, got {list(dims)}")
    turns = k % 4
    if turns == 0:
        return input.clone()
    if turns == 2:
        return flip(input, a, b)
    return transpose(flip(input, b if turns == 1 else a), a, b)


@op(
    casts=True,
    samples=lambda: [
        Sample((2, 5)),
        Sample((5, 2), 2, 0),
        Sample((2, 3), prepend=In(2, 1), append=In(2, 2)),
        Sample((2, 1)),
    ],
)
def diff(
    input: Tensor,
    n: int = 1,
    dim: int = -1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Any:
    """The differences of neighbours along a dimension, taken n times.

    out[i] = x[i + 1] - x[i]; `prepend` and `append` are joined to x before.

    >>> import tapegrad
    >>> tapegrad.diff(tapegrad.tensor([1, 4, 9]))
    tensor([3, 5])
    """
    if n < 0:
        raise RuntimeError(f"diff: n must not be negative, got {n}")
    if not input._array.ndim:
        raise RuntimeError("diff needs a tensor of at least one dimension")
    d = normal_dim(dim, input._array.ndim)
    if n == 0:
        return input.clone()
    parts = [x for x in (prepend, input, append) if x is not None]
    for x in parts:
        if x._array.ndim != input._array.ndim:
            raise RuntimeError(
                f"diff needs prepend and append of {input._array.ndim} dimensions, got shape "
                f"{tuple(x.shape)}"
            )
    x = parts[0] if len(parts) == 1 else cat_(*parts, dim=d)
    for _ in range(n):
        length = max(x._array.shape[d] - 1, 0)
        first = narrow(x, d, 0, length)
        second = narrow(x, d, x._array.shape[d] - length, length)
        x = second ^ first if numeric.is_boolean(x._array.dtype) else second - first
    return x


@op(
    apart=True,
    samples=lambda: [
        Sample((3, 4), In(values=[[0, 5], [11, 5]], kind="int")),
        Sample((3,), In(values=2, kind="int")),
    ],
)
def take(input: Tensor, index: Tensor) -> Any:
    """Elements by their index in the flattened tensor.

    >>> import tapegrad
    >>> tapegrad.take(tapegrad.tensor([[1, 2], [3, 4]]), tapegrad.tensor([0, 3]))
    tensor([1, 4])
    """
    if index._array.dtype != np.int64:
        raise RuntimeError(f"take needs integer indices, of int64, got {index.dtype}; use .long()")
    flat = reshape_(input, shape=(input._array.size,))
    xp.check_index(index._array, input._array.size, "take")
    return take_(flat, index, dims=(0,))
