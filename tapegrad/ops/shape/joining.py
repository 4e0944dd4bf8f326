"""Joining and splitting tensors."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core import xp
from ...core.batch_rules import adapted, shifted
from ...core.dtypes import promote_types
from ...core.primitive import MOVEMENT, Primitive, define
from ...core.tensor import Tensor
from ..table import In, Sample, attach, op
from .dims import normal_dim
from .slicing import piece_, slice_


def _split_gradient(g: Any, shapes: Any, dim: int, needs: Any) -> list[Any]:
    parts, start = [], 0
    for shape, needed in zip(shapes, needs, strict=True):
        stop = start + shape[dim]
        index = tuple((start, stop, 1) if d == dim else None for d in range(len(shape)))
        parts.append(slice_(g, index=index) if needed else None)
        start = stop
    return parts


def cat_in_loops(b: Any, out: Any, *xs: Any, dim: int) -> None:
    """Lower `cat`: one copy for each of its inputs."""
    start = 0
    for x in xs:
        stop = start + x.shape[dim]
        b.copy(out[(slice(None),) * dim + (slice(start, stop),)], x)
        start = stop


cat_: Primitive = define(
    "cat",
    lambda *xs, dim: xp.contiguous(np.concatenate(xs, axis=dim)),
    kind=MOVEMENT,
    lower=cat_in_loops,
    promote="same",
    joint=_split_gradient,
    batch=adapted(dim=shifted),
    stores=True,
)


def _unstack_gradient(g: Any, dim: int, needs: Any) -> list[Any]:
    rest = (None,) * (len(g.shape) - dim - 1)
    return [
        slice_(g, index=(None,) * dim + (i, *rest)) if needed else None
        for i, needed in enumerate(needs)
    ]


def _stack_in_loops(b: Any, out: Any, *xs: Any, dim: int) -> None:
    for i, x in enumerate(xs):
        b.copy(out[(slice(None),) * dim + (i, ...)], x)


def _stack(*xs: Any, dim: int) -> Any:
    first = xs[0]
    if first.__class__ is not np.ndarray or len(xs) > FEW_STACKED:
        return xp.contiguous(xp.module(first).stack(xs, axis=dim))
    shape = first.shape
    out = np.empty((*shape[:dim], len(xs), *shape[dim:]), first.dtype)
    before: Any = (slice(None),) * dim
    for i, x in enumerate(xs):
        out[(*before, i)] = x
    return out


#: most arrays for which copies one by one are faster than `np.stack`, which takes 2.5 µs more
FEW_STACKED = 8

stack_: Primitive = define(
    "stack",
    _stack,
    kind=MOVEMENT,
    lower=_stack_in_loops,
    promote="same",
    joint=_unstack_gradient,
    batch=adapted(dim=shifted),
    stores=True,
)


def _sequence(tensors: Any, what: str) -> list[Any]:
    if tensors.__class__ is list or tensors.__class__ is tuple:
        pass  # the common case
    elif isinstance(tensors, Tensor) or not isinstance(tensors, Sequence):
        tensors = list(tensors) if hasattr(tensors, "__iter__") else tensors
    if not isinstance(tensors, (list, tuple)):
        raise TypeError(f"{what} needs a sequence of tensors, got {type(tensors).__name__}")
    if not tensors:
        raise ValueError(f"{what} needs a non-empty sequence of tensors")
    for x in tensors:
        if not isinstance(x, Tensor):
            raise TypeError(f"{what} needs tensors, got {type(x).__name__}")
    return list(tensors)


@op(
    apart=True,
    casts=True,
    method=False,
    samples=lambda: [
        Sample([In(2, 3), In(4, 3)]),
        Sample([In(2, 3), In(2, 1), In(2, 2)], 1),
        Sample([In(2, 3), In(2, 3)], dim=-1),
        Sample([In(2, 0), In(2, 3)], dim=1),
    ],
    aliases=("concat", "concatenate"),
    autocast={"cpu": "widest"},
)
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Any:
    """Join tensors along an existing dimension.

    The sizes of all other dimensions must be equal.

    >>> import tapegrad
    >>> tapegrad.cat([tapegrad.zeros(1, 2), tapegrad.ones(2, 2)], dim=0)
    tensor([[0., 0.],
            [1., 1.],
            [1., 1.]])
    """
    parts = _sequence(tensors, "cat")
    # PyTorch accepts empty vectors with any other shapes.
    solid = [x for x in parts if x._array.shape != (0,)] or parts[:1]
    shape = solid[0]._array.shape
    if not shape:
        raise RuntimeError("cat needs tensors with dimensions; use stack for 0-d tensors")
    if len(solid) < len(parts):  # the omitted ones still affect the dtype
        dtype = functools.reduce(promote_types, [x.dtype for x in parts])
        solid = [x if x.dtype is dtype else x.to(dtype) for x in solid]
    d = 0 if shape == (0,) else normal_dim(dim, len(shape))
    for x in solid:
        other = x._array.shape
        if other == shape:
            continue
        if len(other) != len(shape) or other[:d] + other[d + 1 :] != shape[:d] + shape[d + 1 :]:
            raise RuntimeError(
                f"cat along dim {d}: shapes {tuple(shape)} and {tuple(other)} differ elsewhere"
            )
    return cat_.direct(*solid, {"dim": d})


@op(
    casts=True,
    method=False,
    samples=lambda: [
        Sample([In(2, 3), In(2, 3)]),
        Sample([In(3), In(3)], dim=-1),
        Sample([In(), In()]),
    ],
    autocast={"cpu": "widest"},
)
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Any:
    """Join tensors of one shape along a new dimension.

    >>> import tapegrad
    >>> tapegrad.stack([tapegrad.tensor([1, 2]), tapegrad.tensor([3, 4])], dim=1)
    tensor([[1, 3],
            [2, 4]])
    """
    parts = _sequence(tensors, "stack")
    shape = parts[0]._array.shape
    for x in parts:
        if x._array.shape != shape:
            raise RuntimeError(
                f"stack needs tensors of one shape, got {tuple(shape)} and {tuple(x.shape)}"
            )
    d = normal_dim(dim, len(shape) + 1)
    return stack_.direct(*parts, {"dim": d})


@op(
    method=False,
    samples=lambda: [
        Sample((7, 2), 3),
        Sample((7, 2), [2, 5]),
        Sample((2, 6), 2, dim=1),
    ],
)
def split(
    tensor: Tensor, split_size_or_sections: int | Sequence[int], dim: int = 0
) -> tuple[Tensor, ...]:
    """Pieces of a size (the last may be smaller), or of the given sizes.

    >>> import tapegrad
    >>> tapegrad.split(tapegrad.arange(5), 2)
    (tensor([0, 1]), tensor([2, 3]), tensor([4]))
    >>> tapegrad.split(tapegrad.arange(5), [1, 4])
    (tensor([0]), tensor([1, 2, 3, 4]))
    """
    return _split(tensor, split_size_or_sections, dim)


def _split(self: Tensor, split_size: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Pieces of a size (the last may be smaller), or of the given sizes."""
    shape = self._array.shape
    if not shape:
        raise RuntimeError("a tensor without dimensions cannot be split")
    d = normal_dim(dim, len(shape))
    size = split_size
    if isinstance(size, int):
        if size < 0 or (size == 0 and shape[d]):
            raise RuntimeError(f"split needs a positive size, got {size}")
        if size and shape[d] and shape[d] % size == 0:
            sizes = [size] * (shape[d] // size)
        else:
            sizes = [min(size, shape[d] - i) for i in range(0, max(shape[d], 1), max(size, 1))]
    else:
        sizes = [operator.index(n) for n in size]
        if sum(sizes) != shape[d]:
            raise RuntimeError(f"split sizes {sizes} do not add up to dimension {d} of {shape[d]}")
    before, after = (None,) * d, (None,) * (len(shape) - d - 1)
    parts, start = [], 0
    for n in sizes:
        if n < 0:
            raise RuntimeError(f"split needs sizes of 0 or more, got {n}")
        parts.append(piece_.direct(self, {"index": (*before, (start, start + n, 1), *after)}))
        start += n
    return tuple(parts)


attach(split=_split)  # its argument has another name in PyTorch


@op(samples=lambda: [Sample((7, 2), 3), Sample((2, 6), 2, dim=1)], result="tuple[Tensor, ...]")
def chunk(input: Tensor, chunks: int, dim: int = 0) -> Any:
    """At most `chunks` pieces of equal size; the last may be smaller.

    >>> import tapegrad
    >>> tapegrad.chunk(tapegrad.arange(5), 2)
    (tensor([0, 1, 2]), tensor([3, 4]))
    """
    if chunks <= 0:
        raise RuntimeError(f"chunk needs a positive number of pieces, got {chunks}")
    shape = input._array.shape
    size = shape[normal_dim(dim, len(shape))] if shape else 1
    if size == 0:
        return _split(input, [0] * chunks, dim)
    return _split(input, -(-size // chunks), dim)


@op(samples=lambda: [Sample((3, 2)), Sample((2, 3), 1)], result="tuple[Tensor, ...]")
def unbind(input: Tensor, dim: int = 0) -> Any:
    """All slices along a dimension, which disappears.

    >>> import tapegrad
    >>> tapegrad.unbind(tapegrad.tensor([[1, 2], [3, 4]]), dim=1)
    (tensor([1, 3]), tensor([2, 4]))
    """
    d = normal_dim(dim, input._array.ndim)
    before, after = (None,) * d, (None,) * (input._array.ndim - d - 1)
    places = range(input._array.shape[d])
    return tuple([piece_.direct(input, {"index": (*before, i, *after)}) for i in places])
