"""Triangles and diagonals of matrices.

Comes in: a tensor of matrices, in the last two or two named dimensions. Goes out: a triangle with
zeros elsewhere, the diagonal as a view, or a matrix with a given diagonal. `einsum` uses diagonals
for repeated letters; the rules of decompositions use triangles.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import xp
from ...core.batch_rules import adapted, leading, shifted, sized
from ...core.complexes import OWN
from ...core.primitive import MOVEMENT, OPAQUE, Primitive, define
from ...core.tensor import Tensor
from ..precision import check_numbers
from ..shape.dims import normal_dim
from ..table import Sample, op


def _triangle_in_loops(b: Any, out: Any, x: Any, k: int, relation: str) -> None:
    """Elements where `column relation row + k`, zeros elsewhere."""
    body = b.over(out.shape)
    row, column = body.along(-2), body.along(-1)
    text = f"where(column {relation} row + {k}, x, 0)"
    body.store(out, body.compute(text, out.dtype, column=column, row=row, x=body.read(x)))
    body.done()


tril_: Primitive = define(
    "tril",
    lambda x, *, k: xp.contiguous(np.tril(x, k)),
    kind=OPAQUE,
    lower=lambda b, out, x, *, k: _triangle_in_loops(b, out, x, k, "<="),
    vjp=lambda g, k: tril_(g, k=k),
    batch=leading,
    linear=True,
    complex=OWN,
    stores=True,
)
triu_: Primitive = define(
    "triu",
    lambda x, *, k: xp.contiguous(np.triu(x, k)),
    kind=OPAQUE,
    lower=lambda b, out, x, *, k: _triangle_in_loops(b, out, x, k, ">="),
    vjp=lambda g, k: triu_(g, k=k),
    batch=leading,
    linear=True,
    complex=OWN,
    stores=True,
)


def _matrix(x: Any, what: str) -> None:
    if x._array.ndim < 2:
        raise RuntimeError(f"{what} needs at least 2 dimensions, got shape {tuple(x.shape)}")


@op(samples=lambda: [Sample((3, 4)), Sample((2, 3, 3), 1), Sample((3, 3), -1)], inplace=True)
def tril(input: Tensor, diagonal: int = 0) -> Any:
    """The lower triangle; zeros above the diagonal.

    `diagonal` moves the border: positive ones keep more, negative ones less.

    >>> import tapegrad
    >>> tapegrad.tril(tapegrad.ones(3, 3))
    tensor([[1., 0., 0.],
            [1., 1., 0.],
            [1., 1., 1.]])
    """
    _matrix(input, "tril")
    return tril_(input, k=int(diagonal))


@op(samples=lambda: [Sample((3, 4)), Sample((2, 3, 3), 1), Sample((3, 3), -1)], inplace=True)
def triu(input: Tensor, diagonal: int = 0) -> Any:
    """The upper triangle; zeros below the diagonal.

    `diagonal` moves the border: positive ones keep less, negative ones more.

    >>> import tapegrad
    >>> tapegrad.triu(tapegrad.ones(3, 3), diagonal=1)
    tensor([[0., 1., 1.],
            [0., 0., 1.],
            [0., 0., 0.]])
    """
    _matrix(input, "triu")
    return triu_(input, k=int(diagonal))


def _diagonal(x: Any, *, offset: int, dim1: int, dim2: int) -> Any:
    out = x.diagonal(offset, dim1, dim2)
    if isinstance(out, np.ndarray) and x.flags.writeable:
        out.flags.writeable = True  # NumPy shows diagonals read-only
    return out


def _undiagonal(x: Any, *, shape: Any, offset: int, dim1: int, dim2: int) -> Any:
    out = xp.module(x).zeros(shape, x.dtype)
    n = x.shape[-1]
    rows = np.arange(n) + max(-offset, 0)
    columns = np.arange(n) + max(offset, 0)
    moved = np.moveaxis(out, (dim1, dim2), (-2, -1))
    moved[..., rows, columns] = x
    return out


def _undiagonal_in_loops(
    b: Any, out: Any, x: Any, *, shape: Any, offset: int, dim1: int, dim2: int
) -> None:
    b.fill(out, 0)
    b.copy(out.diagonal(offset, dim1, dim2), x)


diagonal_: Primitive = define(
    "diagonal",
    _diagonal,
    kind=MOVEMENT,
    view=True,
    vjp=lambda g, x_shape, offset, dim1, dim2: undiagonal_(
        g, shape=tuple(x_shape), offset=offset, dim1=dim1, dim2=dim2
    ),
    batch=adapted(dim1=shifted, dim2=shifted),
)
undiagonal_: Primitive = define(
    "undiagonal",
    _undiagonal,
    kind=OPAQUE,
    lower=_undiagonal_in_loops,
    vjp=lambda g, offset, dim1, dim2: diagonal_(g, offset=offset, dim1=dim1, dim2=dim2),
    batch=adapted(shape=sized, dim1=shifted, dim2=shifted),
    linear=True,
    complex=OWN,
    stores=True,
)


@op(samples=lambda: [Sample((3, 4)), Sample((3, 4), 1), Sample((2, 3, 4), -1, 0, 2)])
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """The diagonal of two dimensions, as the last dimension: a view.

    `offset` is above the main diagonal if positive, below it if negative.

    >>> import tapegrad
    >>> tapegrad.diagonal(tapegrad.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([1., 4.])
    """
    n = input._array.ndim
    first, second = normal_dim(dim1, n), normal_dim(dim2, n)
    if first == second:
        raise RuntimeError("diagonal needs two different dims")
    return diagonal_(input, offset=int(offset), dim1=first, dim2=second)


@op(samples=lambda: [Sample((3,)), Sample((3,), 1), Sample((3, 4)), Sample((3, 4), -1)])
def diag(input: Tensor, diagonal: int = 0) -> Any:
    """A matrix with this vector on a diagonal, or the diagonal of a matrix.

    >>> import tapegrad
    >>> tapegrad.diag(tapegrad.tensor([1.0, 2.0]))
    tensor([[1., 0.],
            [0., 2.]])
    >>> tapegrad.diag(tapegrad.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([1., 4.])
    """
    if input._array.ndim == 2:
        return diagonal_(input, offset=int(diagonal), dim1=0, dim2=1).clone()
    if input._array.ndim != 1:
        raise RuntimeError(f"diag needs a vector or a matrix, got shape {tuple(input.shape)}")
    return diag_embed(input, diagonal)


@op(samples=lambda: [Sample((3,)), Sample((2, 3), 1)])
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    """Matrices with the last dimension on their diagonals: (..., n) gives (..., n, n).

    >>> import tapegrad
    >>> tapegrad.diag_embed(tapegrad.tensor([[1.0, 2.0], [3.0, 4.0]]))[1]
    tensor([[3., 0.],
            [0., 4.]])
    """
    n = input._array.ndim + 1
    size = input._array.shape[-1] + abs(offset)
    first, second = normal_dim(dim1, n), normal_dim(dim2, n)
    if first == second:
        raise RuntimeError(f"diag_embed needs two different dimensions, got {dim1} and {dim2}")
    shape = list(input._array.shape[:-1])
    for d in sorted((first, second)):
        shape.insert(d, size)
    return undiagonal_(input, shape=tuple(shape), offset=int(offset), dim1=first, dim2=second)


@op(
    samples=lambda: [Sample((3, 3)), Sample((3, 4))],
    autocast={"cpu": "full"},
)
def trace(input: Tensor) -> Any:
    """The sum of the diagonal of a matrix.

    >>> import tapegrad
    >>> tapegrad.trace(tapegrad.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor(5.)
    """
    if input._array.ndim != 2:
        raise RuntimeError(f"trace needs a matrix, got shape {tuple(input.shape)}")
    check_numbers(input, "trace")
    return diagonal(input).sum()
