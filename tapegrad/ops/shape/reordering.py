"""The same elements in another order: dimensions exchanged, reversed or shifted.

Comes in: a tensor. Goes out: one with the same elements. Permutations are views on the memory of
the input; `flip` and `roll` copy. `swapped` transposes raw arrays and Tensors, in the rules of
every matrix product.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import xp
from ...core.batch_rules import adapted, behind_batch, shifted
from ...core.primitive import MOVEMENT, Primitive, define
from ...core.tensor import Tensor
from ..table import Sample, attach, op
from .dims import normal_dim, normal_dims
from .reshaping import reshape_, reshaped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..annotations import Dims


# -- permute -----------------------------------------------------------------------------------


def _inverse(dims: tuple[int, ...]) -> tuple[int, ...]:
    inverse = [0] * len(dims)
    for i, d in enumerate(dims):
        inverse[d] = i
    return tuple(inverse)


permute_: Primitive = define(
    "permute",
    lambda x, *, dims: x.transpose(dims),
    kind=MOVEMENT,
    vjp=lambda g, dims: permute_(g, dims=_inverse(dims)),
    view=True,
    batch=adapted(dims=behind_batch),
)


def swapped(x: Any, first: int = -2, second: int = -1) -> Any:
    """`x` (a Tensor or a raw array) with two dimensions exchanged."""
    if isinstance(x, np.ndarray):
        return x.swapaxes(first, second)  # a short path, for the rules of every product
    n = len(x.shape)
    dims = list(range(n))
    dims[first], dims[second] = dims[second], dims[first]
    return permute_(x, dims=tuple(dims))


@op(samples=lambda: [Sample((2, 3, 4), [2, 0, 1]), Sample((2, 3), [-1, 0]), Sample((), [])])
def permute(input: Tensor, *dims: int | Sequence[int]) -> Any:
    """Reorder the dimensions: dimension i of the result is dimension dims[i] of the input.

    >>> import tapegrad
    >>> tapegrad.zeros(2, 3, 4).permute(2, 0, 1).shape
    Size([4, 2, 3])
    """
    order = dims[0] if len(dims) == 1 and isinstance(dims[0], (tuple, list)) else dims
    n = input._array.ndim
    normal = tuple([normal_dim(d, n) for d in order])
    if sorted(normal) != list(range(n)):
        raise RuntimeError(
            f"permute needs each of the {n} dimensions of the tensor once, got {tuple(order)}"
        )
    return permute_.direct(input, {"dims": normal})


@op(
    samples=lambda: [Sample((2, 3, 4), 0, 2), Sample((2, 3), -1, -2)],
    aliases=("swapaxes", "swapdims"),
)
def transpose(input: Tensor, dim0: Dims | None = None, dim1: int | None = None) -> Any:
    """Exchange two dimensions; without arguments, reverse all of them.

    >>> import tapegrad
    >>> tapegrad.zeros(2, 3, 4).transpose(0, 2).shape
    Size([4, 3, 2])
    """
    n = input._array.ndim
    if dim0 is None:
        return permute_.direct(input, {"dims": normal_dims(None, n)[::-1]})
    if dim1 is None:
        if not isinstance(dim0, (tuple, list)):
            raise TypeError("transpose needs two dims, or one sequence of all of them")
        return permute(input, dim0)
    first, second = normal_dim(dim0, n), normal_dim(dim1, n)
    if n == 2 and first != second:
        return permute_.direct(input, {"dims": (1, 0)})
    return swapped(input, first, second) if n else input


@op(samples=lambda: [Sample((2, 3)), Sample((3,)), Sample(())])
def t(input: Tensor) -> Any:
    """The transpose of a matrix, out[i, j] = x[j, i]; vectors and numbers stay as they are.

    >>> import tapegrad
    >>> tapegrad.t(tapegrad.tensor([[1, 2], [3, 4]]))
    tensor([[1, 3],
            [2, 4]])
    """
    if input._array.ndim > 2:
        raise RuntimeError(f"t() needs at most 2 dimensions, got shape {tuple(input.shape)}")
    return transpose(input)


@op(
    samples=lambda: [Sample((2, 3, 4), 0, -1), Sample((2, 3, 4), [0, 1], [1, 2])],
    aliases=("moveaxis",),
)
def movedim(input: Tensor, source: Dims, destination: Dims) -> Any:
    """Move dimensions to new positions; the others keep their order.

    >>> import tapegrad
    >>> tapegrad.movedim(tapegrad.zeros(2, 3, 4), 0, -1).shape
    Size([3, 4, 2])
    """
    n = input._array.ndim
    sources = source if isinstance(source, (tuple, list)) else (source,)
    destinations = destination if isinstance(destination, (tuple, list)) else (destination,)
    if len(sources) != len(destinations):
        raise RuntimeError("movedim needs as many destinations as sources")
    for dims in (sources, destinations):
        if len({normal_dim(d, n) for d in dims}) < len(dims):
            raise RuntimeError(f"movedim: {tuple(dims)} names a dimension twice")
    positions = dict(
        zip(
            (normal_dim(d, n) for d in destinations),
            (normal_dim(s, n) for s in sources),
            strict=True,
        )
    )
    others = iter(d for d in range(n) if d not in positions.values())
    return permute_.direct(
        input, {"dims": tuple(positions[i] if i in positions else next(others) for i in range(n))}
    )


def _transposed(self: Tensor) -> Tensor:
    """The transposed matrix: dimensions in reverse order, as a view."""
    out: Tensor = transpose(self)
    return out


def _matrix_transposed(self: Tensor) -> Tensor:
    """The last two dimensions swapped, as a view."""
    if self._array.ndim == 0:
        return self
    if self._array.ndim < 2:
        raise RuntimeError(f".mT needs at least 2 dimensions, got shape {tuple(self.shape)}")
    out: Tensor = swapped(self)
    return out


attach(T=property(_transposed), mT=property(_matrix_transposed))


flip_: Primitive = define(
    "flip",
    lambda x, *, dims: np.flip(x, dims).copy(),
    kind=MOVEMENT,
    lower=lambda b, out, x, *, dims: b.copy(out, np.flip(x, dims)),
    vjp=lambda g, dims: flip_(g, dims=dims),
    batch=adapted(dims=shifted),
)


@op(
    samples=lambda: [
        Sample((3, 4), [0]),
        Sample((3, 4), [0, 1]),
        Sample((2, 3), [-1]),
        Sample((2, 3), []),
    ]
)
def flip(input: Tensor, *dims: int | Sequence[int], **named: int | Sequence[int]) -> Any:
    """Reverse the order along dimensions.

    >>> import tapegrad
    >>> tapegrad.flip(tapegrad.tensor([1, 2, 3]), [0])
    tensor([3, 2, 1])
    """
    if "dims" in named and not dims:
        dims = (named.pop("dims"),)
    if named:
        raise TypeError(f"flip() got an unexpected keyword argument {next(iter(named))!r}")
    given = dims[0] if len(dims) == 1 else dims
    # An empty list means no dimensions here; in reductions it means all.
    return flip_(
        input, dims=() if given == () or given == [] else normal_dims(given, input._array.ndim)
    )


@op(samples=lambda: [Sample((3, 4))])
def fliplr(input: Tensor) -> Any:
    """Reverse the second dimension.

    >>> import tapegrad
    >>> tapegrad.fliplr(tapegrad.tensor([[1, 2], [3, 4]]))
    tensor([[2, 1],
            [4, 3]])
    """
    if input._array.ndim < 2:
        raise RuntimeError("fliplr needs a tensor of at least two dimensions")
    return flip(input, 1)


@op(samples=lambda: [Sample((3, 4))])
def flipud(input: Tensor) -> Any:
    """Reverse the first dimension.

    >>> import tapegrad
    >>> tapegrad.flipud(tapegrad.tensor([[1, 2], [3, 4]]))
    tensor([[3, 4],
            [1, 2]])
    """
    if not input._array.ndim:
        raise RuntimeError("flipud needs a tensor of at least one dimension")
    return flip(input, 0)


def _roll_in_loops(b: Any, out: Any, x: Any, *, shifts: Any, dims: Any) -> None:
    """Copy the contiguous parts: two for each shifted dimension."""
    parts = [(out, x)]
    for shift, dim in zip(shifts, dims, strict=True):
        size = x.shape[dim]
        cut = shift % size if size else 0
        before, after = ([slice(None)] * x.ndim for _ in range(2))
        before[dim], after[dim] = slice(0, size - cut), slice(size - cut, size)
        begin, end = ([slice(None)] * x.ndim for _ in range(2))
        begin[dim], end[dim] = slice(0, cut), slice(cut, size)
        parts = [
            (o[tuple(to)], part[tuple(source)])
            for o, part in parts
            for to, source in ((end, before), (begin, after))
        ]
    for to, part in parts:
        b.copy(to, part)


roll_: Primitive = define(
    "roll",
    lambda x, *, shifts, dims: xp.contiguous(np.roll(x, shifts, dims)),
    kind=MOVEMENT,
    lower=_roll_in_loops,
    vjp=lambda g, shifts, dims: roll_(g, shifts=tuple(-s for s in shifts), dims=dims),
    batch=adapted(dims=shifted),
)


@op(samples=lambda: [Sample((3, 4), 1), Sample((3, 4), 1, 0), Sample((3, 4), [1, -2], [0, 1])])
def roll(input: Tensor, shifts: Dims, dims: Dims | None = None) -> Any:
    """Shift elements along dimensions; elements shifted out re-enter at the other end.

    >>> import tapegrad
    >>> tapegrad.roll(tapegrad.tensor([1, 2, 3, 4]), 1)
    tensor([4, 1, 2, 3])
    """
    moves = shifts if isinstance(shifts, (tuple, list)) else (shifts,)
    if not moves:
        raise RuntimeError("roll needs at least one shift")
    if dims is None:
        if len(moves) > 1:
            raise RuntimeError(f"roll got {len(moves)} shifts and no dims")
        shape = input._array.shape
        return reshape_(roll_(reshaped(input, (-1,)), shifts=tuple(moves), dims=(0,)), shape=shape)
    along = dims if isinstance(dims, (tuple, list)) else (dims,)
    if len(moves) != len(along):
        raise RuntimeError(f"roll got {len(moves)} shifts for {len(along)} dims")
    n = input._array.ndim
    return roll_(input, shifts=tuple(moves), dims=tuple(normal_dim(d, n) for d in along))
