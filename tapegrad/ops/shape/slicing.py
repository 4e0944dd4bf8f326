"""Indexing by integers and slices: views.

Comes in: a tensor and a static index, which has for each dimension an integer, (start, stop, step)
or None for all of it. Goes out: a view. `unslice_` writes the gradient of a part into zeros, or it
is added to the gradient of the whole. Called by `x[...]`, `split` and other operations on parts.
"""

from __future__ import annotations

import operator
from typing import Any

from ...core import numeric, xp
from ...core.batch_rules import adapted, sized, whole
from ...core.primitive import MOVEMENT, Primitive, define
from ...core.tensor import Tensor
from ..table import Sample, op
from .dims import normal_dim


def _add_slice(total: Any, g: Any, *, index: Any) -> None:
    total[_slices(index)] += g


slice_: Primitive = define(
    "slice",
    lambda x, *, index: x[_slices(index)],
    kind=MOVEMENT,
    vjp=lambda g, x_shape, index: unslice_(g, shape=tuple(x_shape), index=index),
    view=True,
    into=_add_slice,
    batch=adapted(index=whole),
)


#: one of several parts that `split`, `unbind` and the like return: while gradients are recorded it
#: cannot be changed in place, because the history of the others would not include the change
piece_: Primitive = define(
    "piece",
    slice_.kernel,
    kind=MOVEMENT,
    vjp=lambda g, x_shape, index: unslice_(g, shape=tuple(x_shape), index=index),
    view=True,
    batch=adapted(index=whole),
    into=_add_slice,
    sibling=True,
)


def _unslice(x: Any, *, shape: tuple[int, ...], index: Any) -> Any:
    out = xp.module(x).zeros(shape, x.dtype)
    out[_slices(index)] = x
    return out


def _unslice_in_loops(b: Any, out: Any, x: Any, *, shape: tuple[int, ...], index: Any) -> None:
    b.fill(out, 0)
    b.copy(out[_slices(index)], x)


unslice_: Primitive = define(
    "unslice",
    _unslice,
    kind=MOVEMENT,
    lower=_unslice_in_loops,
    vjp=lambda g, index: slice_(g, index=index),
    batch=adapted(shape=sized, index=whole),
)


_WHOLE = slice(None)


def _slices(index: tuple[Any, ...]) -> tuple[Any, ...]:
    """Static indices are an integer, (start, stop, step), or None for a whole dimension."""
    # The Ellipsis makes NumPy return a view, and not a scalar, when all indices are integers.
    return (
        *[_WHOLE if i is None else slice(*i) if i.__class__ is tuple else i for i in index],
        ...,
    )


@op(samples=lambda: [Sample((3, 4), 1, 1, 2), Sample((3, 4), -2, 0, 1)])
def narrow(input: Tensor, dim: int, start: int | Tensor, length: int) -> Any:
    """The part of a dimension that begins at `start` and has `length` elements.

    >>> import tapegrad
    >>> tapegrad.narrow(tapegrad.arange(5), dim=0, start=1, length=3)
    tensor([1, 2, 3])
    """
    shape = input._array.shape
    if not shape:
        raise RuntimeError("narrow needs a tensor with dimensions, got a 0-d one")
    d = normal_dim(dim, len(shape))
    if isinstance(start, Tensor) and not (
        numeric.is_integer(start._array.dtype) and not start._array.ndim
    ):
        raise RuntimeError(
            f"narrow needs an integer as start, got {start.dtype} of shape {tuple(start.shape)}"
        )
    start = int(start)
    if not -shape[d] <= start <= shape[d]:
        raise IndexError(f"narrow: {start} is no start in dimension {d} of size {shape[d]}")
    start = start + shape[d] if start < 0 else start
    if length < 0 or start < 0 or start + length > shape[d]:
        raise RuntimeError(
            f"narrow: {start}..{start + length} does not lie in dimension {d} of size {shape[d]}"
        )
    index = tuple((start, start + length, 1) if i == d else None for i in range(len(shape)))
    return slice_.direct(input, {"index": index})


@op(samples=lambda: [Sample((3, 4), 0, 1), Sample((3, 4), 1, -1)])
def select(input: Tensor, dim: int, index: int) -> Any:
    """One element of a dimension, which disappears: `select(0, 1)` is `x[1]`.

    >>> import tapegrad
    >>> tapegrad.select(tapegrad.tensor([[1, 2], [3, 4]]), dim=1, index=0)
    tensor([1, 3])
    """
    shape = input._array.shape
    d = normal_dim(dim, len(shape))
    i = operator.index(index)
    if not shape or not -shape[d] <= i < shape[d]:
        raise IndexError(f"select: index {i} is out of range for dimension {d} of {tuple(shape)}")
    return slice_.direct(
        input, {"index": tuple(i % shape[d] if k == d else None for k in range(len(shape)))}
    )
