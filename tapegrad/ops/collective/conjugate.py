"""Pairs of conjugate operators, which divide layers among processes.

In tensor parallelism all members compute the same loss, which must count once, not once per member.
`copy_to` begins the divided part of a model: all members use the same input, whose gradient is the
sum of the members' gradients. `reduce_from` ends it: the result is the sum of the members' terms,
and each term gets the whole gradient. Each is the vjp rule of the other. `split_to` and
`gather_from` are such a pair for tensors of which each member has a piece.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.primitive import MOVEMENT, OPAQUE, PRIMITIVES, Primitive, define
from ...core.tensor import Tensor
from ..shape.joining import cat_in_loops
from ..table import Sample, op
from .group import AVG, SELF, SUM, Group
from .halves import wait_of
from .moving import all_gather_start_, gathered

MODULE = "distributed.functional"

copy_to_: Primitive = define(
    "copy_to",
    lambda x, *, group: x.copy(),
    kind=OPAQUE,
    abstract=lambda x, **params: x,
    vjp=lambda g, group: reduce_from_(g, group=group),
    lower=lambda b, out, x, *, group: b.copy(out, x),
)
reduce_from_: Primitive = define(
    "reduce_from",
    lambda x, *, group: group.all_reduce(x, SUM),
    kind=OPAQUE,
    collective=True,
    abstract=lambda x, **params: x,
    vjp=lambda g, group: copy_to_(g, group=group),
)


@op(module=MODULE, torch=None, samples=lambda: [Sample((3, 4)), Sample(())])
def copy_to(input: Tensor, group: Group = SELF) -> Tensor:
    """The tensor, equal on all members; its gradient is the sum of the members' gradients.

    >>> import tapegrad
    >>> tapegrad.distributed.functional.copy_to(tapegrad.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    return copy_to_(input, group=group)  # type: ignore[no-any-return]


@op(module=MODULE, torch=None, samples=lambda: [Sample((3, 4)), Sample(())])
def reduce_from(input: Tensor, group: Group = SELF) -> Tensor:
    """The sum of the members' tensors, which all must use alike; each tensor gets its gradient.

    >>> import tapegrad
    >>> tapegrad.distributed.functional.reduce_from(tapegrad.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    return reduce_from_(input, group=group)  # type: ignore[no-any-return]


def _piece(x: Any, dim: int, group: Group) -> Any:
    size = x.shape[dim] // group.size
    here = slice(group.rank * size, (group.rank + 1) * size)
    return x[(*(slice(None),) * dim, here)]


def _joined(x: Any, dim: int, group: Group) -> Any:
    parts = np.moveaxis(group.all_gather(x), 0, dim)
    return parts.reshape(*x.shape[:dim], group.size * x.shape[dim], *x.shape[dim + 1 :])


def _scaled(shape: Any, dim: int, size: int) -> Any:
    return (*shape[:dim], size, *shape[dim + 1 :])


split_to_: Primitive = define(
    "split_to",
    lambda x, *, dim, group: _piece(x, dim, group).copy(),
    kind=OPAQUE,
    abstract=lambda x, *, dim, group: (_scaled(x[0], dim, x[0][dim] // group.size), x[1]),
    vjp=lambda g, dim, group: gather_from_(g, dim=dim, group=group),
    lower=lambda b, out, x, *, dim, group: b.copy(out, _piece(x, dim, group)),
)
gather_from_: Primitive = define(
    "gather_from",
    lambda x, *, dim, group: _joined(x, dim, group),
    kind=OPAQUE,
    collective=True,
    abstract=lambda x, *, dim, group: (_scaled(x[0], dim, x[0][dim] * group.size), x[1]),
    vjp=lambda g, dim, group: split_to_(g, dim=dim, group=group),
)


@op(module=MODULE, torch=None, samples=lambda: [Sample((3, 4)), Sample((2, 3), 0)])
def split_to(input: Tensor, dim: int = -1, group: Group = SELF) -> Tensor:
    """This member's piece of a tensor that all have; backward joins the gradients of the pieces.

    >>> import tapegrad
    >>> tapegrad.distributed.functional.split_to(tapegrad.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    dim = _dim_of(input, dim)
    if input.shape[dim] % group.size:
        raise RuntimeError(
            f"a dimension of size {input.shape[dim]} cannot be split among {group.size} members"
        )
    return split_to_(input, dim=dim, group=group)  # type: ignore[no-any-return]


@op(module=MODULE, torch=None, samples=lambda: [Sample((3, 4)), Sample((2, 3), 0)])
def gather_from(input: Tensor, dim: int = -1, group: Group = SELF) -> Tensor:
    """The members' pieces, joined, which all must use alike; each gets its piece of the gradient.

    >>> import tapegrad
    >>> tapegrad.distributed.functional.gather_from(tapegrad.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    return gather_from_(input, dim=_dim_of(input, dim), group=group)  # type: ignore[no-any-return]


def _own_pieces(g: Any, shapes: Any, needs: Any) -> list[Any]:
    """Copies of the pieces, so that `.grad` does not keep the whole gradient alive."""
    pieces: list[Any] = []
    start = 0
    for (size,), needed in zip(shapes, needs, strict=True):
        piece = g[start : start + size] if needed else None
        pieces.append(piece.copy() if isinstance(piece, np.ndarray) else piece)
        start += size
    return pieces


#: 1-D shards, concatenated
join_shards_: Primitive = define(
    "join_shards",
    lambda *xs: np.concatenate(xs),
    kind=MOVEMENT,
    lower=lambda b, out, *xs: cat_in_loops(b, out, *xs, dim=0),
    joint=_own_pieces,
)


#: a copy whose gradient is cast to `dtype`, in which it is then averaged
gradient_as_: Primitive = define(
    "gradient_as",
    lambda x, *, dtype: x.copy(),
    kind=OPAQUE,
    abstract=lambda x, **params: x,
    vjp=lambda g, dtype: PRIMITIVES["cast"](g, dtype=dtype),
    lower=lambda b, out, x, *, dtype: b.copy(out, x),
)


def _average(g: Any, group: Group) -> Any:
    return PRIMITIVES["reduce_scatter"](g, op=AVG, group=group)


#: all members' pieces, stacked, which each member uses on its own data: a piece gets the average of
#: the members' gradients. For sharded parameters.
unshard_wait_ = wait_of("unshard", gathered, (_average,))
unshard_: Primitive = define(
    "unshard",
    lambda x, *, group: group.all_gather(x),
    kind=OPAQUE,
    collective=True,
    halves=(all_gather_start_, unshard_wait_),
    abstract=gathered,
    vjp=_average,
)


#: like `unshard`, but the gradient of the result is not reduced: it goes to `total`, a tensor of
#: that shape whose elements are never read
unshard_apart_wait_ = wait_of("unshard_apart", gathered, (None, lambda g: g), "x total")
unshard_apart_: Primitive = define(
    "unshard_apart",
    lambda x, total, *, group: group.all_gather(x),
    kind=OPAQUE,
    collective=True,
    halves=(all_gather_start_, unshard_apart_wait_),
    abstract=lambda x, total, *, group: gathered(x, group=group),
    vjp=(None, lambda g: g),
)


def _dim_of(x: Tensor, dim: int) -> int:
    if not -x.ndim <= dim < x.ndim:
        raise IndexError(f"dim {dim} is out of range for a tensor of shape {tuple(x.shape)}")
    return dim % x.ndim
