"""Collectives that only move arrays between the members of a group.

Each vjp rule moves the gradient back; the gradients of an array sent to several members are summed.
"""

from __future__ import annotations

from typing import Any

from ...core.modes import GRAD, STATE
from ...core.primitive import OPAQUE, PRIMITIVES, Primitive, define
from ...core.tensor import Tensor
from ..table import Sample, op
from .group import SELF, SUM, Group
from .halves import start_of, wait_of

MODULE = "distributed.functional"


def check_member(rank: int, group: Group) -> None:
    """Raise unless a group has a member with this rank, counted within the group."""
    if not isinstance(rank, int) or not 0 <= rank < group.size:
        raise ValueError(f"there is no member {rank!r} among the {group.size} of {group!r}")


# -- all_gather --------------------------------------------------------------------------------


def gathered(x: Any, *, group: Group) -> Any:
    """Shape and dtype of the result of `all_gather`."""
    return (group.size, *x[0]), x[1]


all_gather_start_ = start_of("all_gather")
all_gather_: Primitive = define(
    "all_gather",
    lambda x, *, group: group.all_gather(x),
    kind=OPAQUE,
    collective=True,
    halves=(all_gather_start_, wait_of("all_gather", gathered)),
    abstract=gathered,
    vjp=lambda g, group: PRIMITIVES["reduce_scatter"](g, op=SUM, group=group),
)


@op(module=MODULE, torch=None, samples=lambda: [Sample((3, 4)), Sample(()), Sample((0, 3))])
def all_gather(input: Tensor, group: Group = SELF) -> Tensor:
    """The tensors of all members, stacked along a new first dimension in the order of ranks.

    >>> import tapegrad
    >>> tapegrad.distributed.functional.all_gather(tapegrad.tensor([1.0, 2.0]))
    tensor([[1., 2.]])
    """
    return all_gather_(input, group=group)  # type: ignore[no-any-return]


# -- broadcast ---------------------------------------------------------------------------------

broadcast_: Primitive = define(
    "broadcast",
    lambda x, *, source, group: group.broadcast(x, source),
    kind=OPAQUE,
    collective=True,
    abstract=lambda x, **params: x,
    vjp=lambda g, source, group: PRIMITIVES["reduce"](g, op=SUM, target=source, group=group),
)


@op(module=MODULE, torch=None, samples=lambda: [Sample((3, 4)), Sample((), 0)])
def broadcast(input: Tensor, src: int = 0, group: Group = SELF) -> Tensor:
    """The tensor of member `src`; the tensors of the others only give shape and dtype.

    >>> import tapegrad
    >>> tapegrad.distributed.functional.broadcast(tapegrad.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    check_member(src, group)
    return broadcast_(input, source=src, group=group)  # type: ignore[no-any-return]


# -- gather and scatter ------------------------------------------------------------------------

gather_: Primitive = define(
    "gather_to",
    lambda x, *, target, group: group.gather(x, target),
    kind=OPAQUE,
    collective=True,
    abstract=lambda x, *, target, group: ((group.size, *x[0]), x[1]),
    vjp=lambda g, target, group: scatter_(g, source=target, group=group),
)
scatter_: Primitive = define(
    "scatter_from",
    lambda x, *, source, group: group.scatter(x, source),
    kind=OPAQUE,
    collective=True,
    abstract=lambda x, **params: (x[0][1:], x[1]),
    vjp=lambda g, source, group: gather_(g, target=source, group=group),
)


@op(
    "gather", apart=True, module=MODULE, torch=None, samples=lambda: [Sample((3, 4)), Sample((), 0)]
)
def gather(input: Tensor, dst: int = 0, group: Group = SELF) -> Tensor:
    """The stacked tensors of all members on member `dst`; zeros on the others.

    >>> import tapegrad
    >>> tapegrad.distributed.functional.gather(tapegrad.tensor([1.0, 2.0]))
    tensor([[1., 2.]])
    """
    check_member(dst, group)
    return gather_(input, target=dst, group=group)  # type: ignore[no-any-return]


@op(
    "scatter",
    apart=True,
    module=MODULE,
    torch=None,
    samples=lambda: [Sample((1, 4)), Sample((1, 2, 3), 0)],
)
def scatter(input: Tensor, src: int = 0, group: Group = SELF) -> Tensor:
    """Row `rank` of member `src`'s tensor; the tensors of the others only give shape and dtype.

    >>> import tapegrad
    >>> tapegrad.distributed.functional.scatter(tapegrad.tensor([[1.0, 2.0]]))
    tensor([1., 2.])
    """
    check_member(src, group)
    if input.ndim == 0 or input.shape[0] != group.size:
        raise RuntimeError(
            f"scatter needs a row for each of {group.size} members, got shape {tuple(input.shape)}"
        )
    return scatter_(input, source=src, group=group)  # type: ignore[no-any-return]


# -- all_to_all and permute --------------------------------------------------------------------

all_to_all_: Primitive = define(
    "all_to_all",
    lambda x, *, sent, received, group: group.all_to_all(x, sent, received),
    kind=OPAQUE,
    collective=True,
    abstract=lambda x, *, sent, received, group: ((sum(received), *x[0][1:]), x[1]),
    vjp=lambda g, sent, received, group: all_to_all_(g, sent=received, received=sent, group=group),
)


@op(module=MODULE, torch=None, samples=lambda: [Sample((4, 3)), Sample((3, 2), [3], [3])])
def all_to_all(
    input: Tensor,
    sent: tuple[int, ...] | None = None,
    received: tuple[int, ...] | None = None,
    group: Group = SELF,
) -> Tensor:
    """Exchange rows: `sent[i]` rows go to member i, in order, and `received[i]` come from it.

    By default all these numbers are equal.

    >>> import tapegrad
    >>> tapegrad.distributed.functional.all_to_all(tapegrad.tensor([[1.0], [2.0]]))
    tensor([[1.],
            [2.]])
    """
    rows = input.shape[0] if input.ndim else 0
    even = (rows // group.size,) * group.size
    sent = even if sent is None else tuple(sent)
    received = even if received is None else tuple(received)
    if input.ndim == 0 or sum(sent) != rows or not len(sent) == len(received) == group.size:
        raise RuntimeError(
            f"all_to_all cannot divide a tensor of shape {tuple(input.shape)} among {group.size} "
            f"members as {sent}, to receive {received}"
        )
    return all_to_all_(  # type: ignore[no-any-return]
        input, sent=sent, received=received, group=group
    )


def _back(targets: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(range(len(targets)), key=targets.__getitem__))


permute_: Primitive = define(
    "permute_ranks",
    lambda x, *, targets, group: group.permute(x, targets),
    kind=OPAQUE,
    collective=True,
    abstract=lambda x, **params: x,
    vjp=lambda g, targets, group: permute_(g, targets=_back(targets), group=group),
)


@op(module=MODULE, torch=None, samples=lambda: [Sample((3, 4), [0]), Sample((), [0])])
def permute_ranks(input: Tensor, targets: tuple[int, ...], group: Group = SELF) -> Tensor:
    """Each member i sends its tensor to member `targets[i]`; returns the tensor that arrives.

    >>> import tapegrad
    >>> tapegrad.distributed.functional.permute_ranks(tapegrad.tensor([1.0, 2.0]), (0,))
    tensor([1., 2.])
    """
    targets = tuple(targets)
    if sorted(targets) != list(range(group.size)):
        raise ValueError(
            f"targets must name each of {group.size} members once, got {targets}; use send and "
            "receive for other patterns"
        )
    return permute_(input, targets=targets, group=group)  # type: ignore[no-any-return]


# -- send and receive --------------------------------------------------------------------------


def _send(x: Any, *, target: int, tag: int, group: Group) -> Any:
    group.send(x, target, tag)
    return x.ravel()[:0].sum(dtype=x.dtype)


def _receive(token: Any, *, shape: Any, source: int, tag: int, group: Group) -> Any:
    return group.receive(shape, token.dtype, source, tag)


def _once(g: Any) -> Any:
    """The gradient; raises if it is recorded, since no graph edge leads to the other rank."""
    if isinstance(g, Tensor) and STATE.mode & GRAD:
        raise RuntimeError(
            "send and receive have first derivatives only, since a rank's graph does not show what "
            "the other rank does with a message; use permute_ranks for create_graph=True"
        )
    return g


send_: Primitive = define(
    "send",
    _send,
    kind=OPAQUE,
    collective=True,
    abstract=lambda x, **params: ((), x[1]),
    vjp=lambda g, x_shape, target, tag, group: receive_(
        _once(g), shape=x_shape, source=target, tag=tag, group=group
    ),
)
receive_: Primitive = define(
    "receive",
    _receive,
    kind=OPAQUE,
    collective=True,
    abstract=lambda token, *, shape, **params: (shape, token[1]),
    vjp=lambda g, source, tag, group: send_(_once(g), target=source, tag=tag, group=group),
)
