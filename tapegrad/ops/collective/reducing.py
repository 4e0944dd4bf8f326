"""Collectives that reduce the arrays of all members of a group, for example to their sum.

Each process has its own loss, and the objective is the sum of the losses. So the gradient of a sum
over the members is the sum of their gradients: `all_reduce` is its own vjp rule, the rule of
`reduce` is `broadcast`, and that of `reduce_scatter` is `all_gather`.
"""

from __future__ import annotations

from typing import Any

from ...core.primitive import OPAQUE, Primitive, define
from ...core.tensor import Tensor
from ..elementwise.comparison import equal
from ..table import Sample, op
from .group import AVG, BAND, BOR, BXOR, MAX, MIN, PRODUCT, REDUCTIONS, SELF, SUM, Group
from .halves import start_of, wait_of
from .moving import all_gather_, broadcast_, check_member

MODULE = "distributed.functional"


def check_reduction(op: str, dtype: Any) -> None:
    """Raise unless `op` is a reduction that supports a dtype."""
    if op not in REDUCTIONS:
        raise ValueError(f"op must be one of {', '.join(REDUCTIONS)}, got {op!r}")
    if op in (BAND, BOR, BXOR) and dtype.is_floating_point:
        raise TypeError(f"op={op!r} works on the bits of integers, got {dtype}")
    if op == AVG and not dtype.is_floating_point:
        raise TypeError(f"op='avg' needs floating-point numbers, got {dtype}; use 'sum'")


# -- all_reduce --------------------------------------------------------------------------------


all_reduce_start_ = start_of("all_reduce")
all_reduce_wait_ = wait_of("all_reduce", lambda x, *, group: x)
all_reduce_: Primitive = define(
    "all_reduce",
    lambda x, *, op, group: group.all_reduce(x, op),
    kind=OPAQUE,
    collective=True,
    halves=(all_reduce_start_, all_reduce_wait_),
    abstract=lambda x, **params: x,
    vjp=lambda g, op, group: all_reduce_(g, op=op, group=group) if op in (SUM, AVG) else None,
)


def _extreme_vjp(g: Any, x: Any, out: Any, group: Group) -> Any:
    """The members that hold the extreme get the gradient; ties share it, as in `amax`."""
    mine = _as(equal(x, out), g)
    holders = all_reduce_(mine, op=SUM, group=group)
    return all_reduce_(g, op=SUM, group=group) * mine / holders


def _as(x: Any, like: Any) -> Any:
    return x.to(like.dtype) if isinstance(x, Tensor) else x.astype(like.dtype)


all_extreme_: Primitive = define(
    "all_extreme",
    lambda x, *, op, group: group.all_reduce(x, op),
    kind=OPAQUE,
    collective=True,
    abstract=lambda x, **params: x,
    vjp=lambda g, x, out, group: _extreme_vjp(g, x, out, group),
)


@op(
    module=MODULE,
    torch=None,
    samples=lambda: [Sample((3, 4)), Sample((), "avg"), Sample((2, 3), "max"), Sample((0, 3))],
)
def all_reduce(input: Tensor, op: str = SUM, group: Group = SELF) -> Tensor:
    """The elementwise reduction of the tensors of all members of a group.

    `op` is "sum", "avg", "max", "min" or "product"; for integers also "band", "bor" or "bxor". The
    gradient of a sum is the sum of the members' gradients. The gradient of a maximum or minimum is
    shared by the members that hold it.

    >>> import tapegrad
    >>> tapegrad.distributed.functional.all_reduce(tapegrad.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    check_reduction(op, input.dtype)
    if op in (MAX, MIN):
        return all_extreme_(input, op=op, group=group)  # type: ignore[no-any-return]
    if op == PRODUCT and input.requires_grad:
        return all_gather_(input, group=group).prod(0)  # type: ignore[no-any-return]
    return all_reduce_(input, op=op, group=group)  # type: ignore[no-any-return]


# -- reduce ------------------------------------------------------------------------------------

reduce_: Primitive = define(
    "reduce",
    lambda x, *, op, target, group: group.reduce(x, op, target),
    kind=OPAQUE,
    collective=True,
    abstract=lambda x, **params: x,
    vjp=lambda g, op, target, group: _reduce_vjp(g, op, target, group),
)


def _reduce_vjp(g: Any, op: str, target: int, group: Group) -> Any:
    if op not in (SUM, AVG):
        return None
    back = broadcast_(g, source=target, group=group)
    return back if op == SUM else back / group.size


@op(module=MODULE, torch=None, samples=lambda: [Sample((3, 4)), Sample((), 0, "avg")])
def reduce(input: Tensor, dst: int = 0, op: str = SUM, group: Group = SELF) -> Tensor:
    """The reduction of all members' tensors on member `dst`; zeros on the others.

    >>> import tapegrad
    >>> tapegrad.distributed.functional.reduce(tapegrad.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    check_reduction(op, input.dtype)
    if op not in (SUM, AVG) and input.requires_grad:
        raise ValueError(f"reduce with op={op!r} has no gradient; use all_reduce")
    check_member(dst, group)
    return reduce_(input, op=op, target=dst, group=group)  # type: ignore[no-any-return]


# -- reduce_scatter ----------------------------------------------------------------------------

reduce_scatter_: Primitive = define(
    "reduce_scatter",
    lambda x, *, op, group: group.reduce_scatter(x, op),
    kind=OPAQUE,
    collective=True,
    halves=(
        start_of("reduce_scatter"),
        wait_of("reduce_scatter", lambda x, *, group: (x[0][1:], x[1])),
    ),
    abstract=lambda x, **params: (x[0][1:], x[1]),
    vjp=lambda g, op, group: _reduce_scatter_vjp(g, op, group),
)


def _reduce_scatter_vjp(g: Any, op: str, group: Group) -> Any:
    if op not in (SUM, AVG):
        return None
    whole = all_gather_(g, group=group)
    return whole if op == SUM else whole / group.size


@op(module=MODULE, torch=None, samples=lambda: [Sample((1, 4)), Sample((1, 2, 3), "avg")])
def reduce_scatter(input: Tensor, op: str = SUM, group: Group = SELF) -> Tensor:
    """Row `rank` of the reduction of all members' tensors, which have one row per member.

    >>> import tapegrad
    >>> tapegrad.distributed.functional.reduce_scatter(tapegrad.tensor([[1.0, 2.0]]))
    tensor([1., 2.])
    """
    check_reduction(op, input.dtype)
    if input.ndim == 0 or input.shape[0] != group.size:
        raise RuntimeError(
            f"reduce_scatter needs a row for each of {group.size} members, got shape "
            f"{tuple(input.shape)}"
        )
    if op not in (SUM, AVG) and input.requires_grad:
        raise ValueError(f"reduce_scatter with op={op!r} has no gradient; use all_reduce")
    return reduce_scatter_(input, op=op, group=group)  # type: ignore[no-any-return]
