"""Pairs of conjugate operators, with which layers are divided among processes.

In tensor parallelism all members compute the same loss, so that it must count once and not once for
each member. `copy_to` begins the divided part of a model: every member uses the same input there,
and its gradient is the sum of theirs. `reduce_from` ends it: the result is the sum of the members'
parts, and each part gets the whole gradient. Each is the rule of the other. `split_to` and
`gather_from` are such a pair for tensors of which each member has a piece.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.primitive import OPAQUE, PRIMITIVES, Primitive, define
from ...core.tensor import Tensor
from ..table import Sample, op
from .group import AVG, SELF, SUM, Group

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
    """The tensor, which all members have; its gradient is the sum of theirs.

    >>> import tapegrad
    >>> tapegrad.distributed.functional.copy_to(tapegrad.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    return copy_to_(input, group=group)  # type: ignore[no-any-return]


@op(module=MODULE, torch=None, samples=lambda: [Sample((3, 4)), Sample(())])
def reduce_from(input: Tensor, group: Group = SELF) -> Tensor:
    """The sum of the members' tensors, with which all go on alike; each gets the gradient of it.

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
    """This member's piece of a tensor that all members have; its gradient is all their pieces'.

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
    """The members' pieces, joined, with which all go on alike; each gets its gradient's piece.

    >>> import tapegrad
    >>> tapegrad.distributed.functional.gather_from(tapegrad.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    return gather_from_(input, dim=_dim_of(input, dim), group=group)  # type: ignore[no-any-return]


def _cast(x: Any, dtype: Any) -> Any:
    return x if dtype is None else PRIMITIVES["cast"](x, dtype=dtype)


def _unshard_vjp(g: Any, x_dtype: Any, group: Group, reduce_dtype: Any) -> Any:
    averaged = PRIMITIVES["reduce_scatter"](_cast(g, reduce_dtype), op=AVG, group=group)
    return averaged if averaged.dtype is x_dtype else _cast(averaged, x_dtype)


#: every member's piece for all of them, where each uses the whole on its own data: a piece gets the
#: average of the members' gradients. For parameters that are kept in shards. They are sent as
#: `dtype`, and gradients are averaged as `reduce_dtype`; None leaves either as it is.
unshard_: Primitive = define(
    "unshard",
    lambda x, *, group, dtype=None, reduce_dtype=None: group.all_gather(_cast(x, dtype)),
    kind=OPAQUE,
    collective=True,
    abstract=lambda x, *, group, dtype=None, **params: (
        (group.size, *x[0]),
        x[1] if dtype is None else dtype.numpy,
    ),
    vjp=_unshard_vjp,
)


def _dim_of(x: Tensor, dim: int) -> int:
    if not -x.ndim <= dim < x.ndim:
        raise IndexError(f"dim {dim} is out of range for a tensor of shape {tuple(x.shape)}")
    return dim % x.ndim
