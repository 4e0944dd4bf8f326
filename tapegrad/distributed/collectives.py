"""The functions of torch.distributed: they change tensors in place, and may run in the background.

A tensor that nobody records is changed straight in its memory. One with a history, or on a tape,
goes through the operations of `ops/collective/`, so that its gradient flows; such a call is done
when it returns, also with `async_op=True`. A leaf that requires gradients is changed without a
record, as in PyTorch. Ranks such as `src` and `dst` count in the whole job, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core import inplace, storage
from ..core.modes import GRAD, LISTENING, STATE, no_grad
from ..core.tensor import Tensor, own, refresh, wrap
from ..ops.collective import moving, reducing
from ..ops.collective.group import AVG, BAND, BOR, BXOR, MAX, MIN, PRODUCT, SUM
from . import transport
from .background import Done, Requested, Work
from .process_group import NON_GROUP_MEMBER, get_group_rank, resolved


class ReduceOp:
    """Names of reductions."""

    SUM = SUM
    AVG = AVG
    PRODUCT = PRODUCT
    MIN = MIN
    MAX = MAX
    BAND = BAND
    BOR = BOR
    BXOR = BXOR


def _check(tensor: Any, what: str) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{what} expected a Tensor, got {type(tensor).__name__}")


def _is_recorded(*tensors: Tensor) -> bool:
    """Whether somebody sees what happens to tensors: a tape, or a history that they have."""
    mode = STATE.mode
    return bool(
        mode & LISTENING
        or (mode & GRAD and any(t._requires and t._edge is not None for t in tensors))
    )


def _memory(tensor: Tensor, what: str) -> Any:
    """The array of a tensor, to be changed."""
    if tensor._view is not None:
        refresh(tensor)
    with no_grad():
        inplace.check_writable(tensor, what)
    own(tensor)
    return tensor._array


def _whole(array: Any) -> Any:
    """Contiguous memory with the elements of an array, which must be copied back."""
    return transport.whole(array)


def _changed(array: Any, used: Any) -> None:
    if used is not array:
        array[...] = used
    storage.note(array)


def _assign(tensor: Tensor, value: Any, what: str) -> None:
    """Give a tensor a value with its history; a leaf that requires gradients gets the value."""
    if tensor._requires and tensor._edge is None:
        with no_grad():
            inplace.assign(tensor, value, what)
    else:
        inplace.assign(tensor, value, what)


def _change(
    tensor: Tensor,
    what: str,
    operation: Callable[[Tensor], Any],
    work: Callable[..., Any],
    group: Any,
    async_op: bool,
    *args: Any,
) -> Work | None:
    """Change one tensor by a collective: through the operation, or in its memory by `work`."""
    _check(tensor, what)
    if _is_recorded(tensor):
        _assign(tensor, operation(tensor), f"{what}_")
        return Done() if async_op else None
    array = _memory(tensor, what)
    used = _whole(array)
    if async_op:
        started: Work = group.start(what, used, work, *args, finish=lambda _: _changed(array, used))
        return started
    getattr(group, f"{what}_in_place")(used, *args)
    _changed(array, used)
    return None


def _outside(group: Any) -> bool:
    return group is NON_GROUP_MEMBER


def all_reduce(
    tensor: Tensor, op: str = SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Replace a tensor by the reduction of all ranks' tensors."""
    if _outside(group):
        return None
    group = resolved(group)
    _check(tensor, "all_reduce")
    reducing.check_reduction(op, tensor.dtype)
    return _change(
        tensor,
        "all_reduce",
        lambda t: reducing.all_reduce(t, op, group),
        transport.all_reduce_in_place,
        group,
        async_op,
        op,
    )


def broadcast(
    tensor: Tensor,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Replace a tensor by that of the rank `src`."""
    if _outside(group):
        return None
    group = resolved(group)
    source = _member(group, src, group_src)
    return _change(
        tensor,
        "broadcast",
        lambda t: moving.broadcast(t, source, group),
        transport.broadcast_in_place,
        group,
        async_op,
        source,
    )


def _member(group: Any, rank: int | None, member: int | None) -> int:
    """A rank within a group, of a rank in the whole job or of itself."""
    if (rank is None) == (member is None):
        raise ValueError("give either the rank in the whole job or the one within the group")
    return get_group_rank(group, rank) if rank is not None else int(member or 0)


def _run(
    what: str,
    group: Any,
    async_op: bool,
    given: Sequence[Tensor],
    operation: Callable[[], Any],
    work: Callable[..., Any],
    x: Any,
    args: tuple[Any, ...],
    take: Callable[[Any], None],
) -> Work | None:
    """A collective whose result is taken apart: recorded, in the background, or at once."""
    if _is_recorded(*given):
        take(operation())
        return Done() if async_op else None
    if async_op:
        started: Work = group.start(what, x._array, work, *args, finish=lambda out: take(wrap(out)))
        return started
    take(operation())
    return None


def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: str = SUM,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Replace the tensor of the rank `dst` by the reduction of all ranks' tensors."""
    if _outside(group):
        return None
    group = resolved(group)
    _check(tensor, "reduce")
    reducing.check_reduction(op, tensor.dtype)
    target = _member(group, dst, group_dst)

    def take(value: Any) -> None:
        if group.rank == target:
            _assign(tensor, value, "reduce_")

    return _run(
        "reduce",
        group,
        async_op,
        [tensor],
        lambda: reducing.reduce_(tensor, op=op, target=target, group=group),
        transport.reduce,
        tensor,
        (op, target),
        take,
    )


def _check_parts(parts: Sequence[Any], group: Any, like: Any, what: str) -> None:
    if len(parts) != group.size:
        raise ValueError(f"{what} needs {group.size} tensors, one for each rank, got {len(parts)}")
    for part in parts:
        _check(part, what)
        if part.shape != like.shape or part.dtype != like.dtype:
            raise ValueError(
                f"{what} needs tensors of one shape and dtype, got {part.dtype}"
                f"{tuple(part.shape)} beside {like.dtype}{tuple(like.shape)}"
            )


def all_gather(
    tensor_list: list[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """Fill a list of tensors with those of all ranks."""
    if _outside(group):
        return None
    group = resolved(group)
    _check(tensor, "all_gather")
    _check_parts(tensor_list, group, tensor, "all_gather")

    def take(stacked: Any) -> None:
        for i, part in enumerate(tensor_list):
            _assign(part, stacked[i], "all_gather")

    return _run(
        "all_gather",
        group,
        async_op,
        [tensor, *tensor_list],
        lambda: moving.all_gather_(tensor, group=group),
        transport.all_gather,
        tensor,
        (),
        take,
    )


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """Fill one tensor with those of all ranks, one after another along the first dimension."""
    if _outside(group):
        return None
    group = resolved(group)
    _check(input_tensor, "all_gather_into_tensor")
    _check(output_tensor, "all_gather_into_tensor")
    if output_tensor.numel() != group.size * input_tensor.numel():
        raise ValueError(
            f"all_gather_into_tensor needs room for {group.size} tensors of "
            f"{input_tensor.numel()} elements, got {output_tensor.numel()}"
        )
    return _run(
        "all_gather",
        group,
        async_op,
        [input_tensor, output_tensor],
        lambda: moving.all_gather_(input_tensor, group=group),
        transport.all_gather,
        input_tensor,
        (),
        lambda stacked: _assign(
            output_tensor, stacked.reshape(output_tensor.shape), "all_gather_into_tensor"
        ),
    )


def gather(
    tensor: Tensor,
    gather_list: list[Tensor] | None = None,
    dst: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Fill a list of tensors on the rank `dst` (0 by default) with those of all ranks."""
    if _outside(group):
        return None
    group = resolved(group)
    _check(tensor, "gather")
    target = 0 if dst is None and group_dst is None else _member(group, dst, group_dst)
    if group.rank == target:
        if gather_list is None:
            raise ValueError("gather needs gather_list on the rank that receives")
        _check_parts(gather_list, group, tensor, "gather")
    elif gather_list:
        raise ValueError("gather_list must be None on ranks that do not receive")

    def take(stacked: Any) -> None:
        for i, part in enumerate(gather_list or ()):
            _assign(part, stacked[i], "gather")

    return _run(
        "gather",
        group,
        async_op,
        [tensor],
        lambda: moving.gather_(tensor, target=target, group=group),
        transport.gather,
        tensor,
        (target,),
        take,
    )


def _stack(tensors: Sequence[Tensor]) -> Tensor:
    from ..ops.shape.joining import stack

    stacked: Tensor = stack(list(tensors))
    return stacked


def scatter(
    tensor: Tensor,
    scatter_list: list[Tensor] | None = None,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Give each rank one tensor of a list on the rank `src` (0 by default)."""
    if _outside(group):
        return None
    group = resolved(group)
    _check(tensor, "scatter")
    source = 0 if src is None and group_src is None else _member(group, src, group_src)
    if group.rank == source:
        if scatter_list is None:
            raise ValueError("scatter needs scatter_list on the rank that sends")
        _check_parts(scatter_list, group, tensor, "scatter")
        rows = _stack(scatter_list)
    else:
        rows = wrap(np.zeros((group.size, *tensor.shape), tensor._array.dtype))
    return _run(
        "scatter",
        group,
        async_op,
        [tensor, rows],
        lambda: moving.scatter_(rows, source=source, group=group),
        transport.scatter,
        rows,
        (source,),
        lambda row: _assign(tensor, row, "scatter"),
    )


def reduce_scatter(
    output: Tensor,
    input_list: list[Tensor],
    op: str = SUM,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Fill a tensor with the reduction of the tensors that all ranks have for this one."""
    if _outside(group):
        return None
    group = resolved(group)
    _check(output, "reduce_scatter")
    _check_parts(input_list, group, output, "reduce_scatter")
    return _reduce_scatter(output, _stack(input_list), op, group, async_op)


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: str = SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """As `reduce_scatter`, of one tensor that has the parts one after another."""
    if _outside(group):
        return None
    group = resolved(group)
    _check(output, "reduce_scatter_tensor")
    _check(input, "reduce_scatter_tensor")
    if input.numel() != group.size * output.numel():
        raise ValueError(
            f"reduce_scatter_tensor needs {group.size} parts of {output.numel()} elements, got "
            f"{input.numel()} elements"
        )
    return _reduce_scatter(output, input.reshape(group.size, *output.shape), op, group, async_op)


def _reduce_scatter(output: Tensor, rows: Any, op: str, group: Any, async_op: bool) -> Work | None:
    reducing.check_reduction(op, output.dtype)
    return _run(
        "reduce_scatter",
        group,
        async_op,
        [output, rows],
        lambda: reducing.reduce_scatter_(rows, op=op, group=group),
        transport.reduce_scatter,
        rows,
        (op,),
        lambda row: _assign(output, row, "reduce_scatter"),
    )


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Send rows of a tensor to every rank, and fill another one with those that come."""
    if _outside(group):
        return None
    group = resolved(group)
    _check(output, "all_to_all_single")
    _check(input, "all_to_all_single")
    sent = _splits(input_split_sizes, input, group)
    received = _splits(output_split_sizes, output, group)
    return _run(
        "all_to_all",
        group,
        async_op,
        [output, input],
        lambda: moving.all_to_all_(input, sent=sent, received=received, group=group),
        transport.all_to_all,
        input,
        (sent, received),
        lambda rows: _assign(output, rows, "all_to_all_single"),
    )


def _splits(sizes: Sequence[int] | None, tensor: Tensor, group: Any) -> tuple[int, ...]:
    rows: int = tensor.shape[0] if tensor.ndim else 0
    if not sizes:
        if rows % group.size:
            raise ValueError(
                f"{rows} rows cannot be divided evenly among {group.size} ranks; give split sizes"
            )
        return (rows // int(group.size),) * int(group.size)
    if len(sizes) != group.size or sum(sizes) != rows:
        raise ValueError(
            f"split sizes {list(sizes)} do not divide {rows} rows among {group.size} ranks"
        )
    return tuple(sizes)


def all_to_all(
    output_tensor_list: list[Tensor],
    input_tensor_list: list[Tensor],
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Send a tensor of a list to every rank, and fill another list with those that come."""
    if _outside(group):
        return None
    group = resolved(group)
    for name, parts in (("output", output_tensor_list), ("input", input_tensor_list)):
        if len(parts) != group.size:
            raise ValueError(f"all_to_all needs an {name} tensor for each of {group.size} ranks")
        for part in parts:
            _check(part, "all_to_all")
    from ..ops.shape.joining import cat

    flat = cat([t.reshape(-1) for t in input_tensor_list])
    sent = tuple(t.numel() for t in input_tensor_list)
    received = tuple(t.numel() for t in output_tensor_list)

    def take(rows: Any) -> None:
        at = 0
        for part in output_tensor_list:
            _assign(part, rows[at : at + part.numel()].reshape(part.shape), "all_to_all")
            at += part.numel()

    return _run(
        "all_to_all",
        group,
        async_op,
        [*output_tensor_list, flat],
        lambda: moving.all_to_all_(flat, sent=sent, received=received, group=group),
        transport.all_to_all,
        flat,
        (sent, received),
        take,
    )


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Work | None:
    """Wait until all ranks are here."""
    if _outside(group):
        return None
    group = resolved(group)
    if async_op:
        empty = np.zeros(0, np.uint8)
        started: Work = group.start("barrier", empty, lambda mpi, comm, x: comm.Barrier())
        return started
    group.barrier()
    return None


monitored_barrier = barrier


# -- messages ------------------------------------------------------------------------------------


def send(
    tensor: Tensor,
    dst: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> Tensor:
    """Send a tensor to a rank. Returns a zero; add it to a loss to let gradients come back."""
    group = resolved(group)
    _check(tensor, "send")
    target = _member(group, dst, group_dst)
    token: Tensor = moving.send_(tensor, target=target, tag=tag, group=group)
    return token


def recv(
    tensor: Tensor,
    src: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_src: int | None = None,
) -> int:
    """Fill a tensor with what a rank sends, or any rank for None; returns the sender's rank.

    No gradient goes back to the sender; `functional.receive` sends one.
    """
    group = resolved(group)
    _check(tensor, "recv")
    source = -1 if src is None and group_src is None else _member(group, src, group_src)
    if STATE.mode & LISTENING and source >= 0:
        token = wrap(np.zeros((), tensor._array.dtype))
        shape = tuple(tensor.shape)
        value = moving.receive_(token, shape=shape, source=source, tag=tag, group=group)
        _assign(tensor, value, "recv")
        return int(group.ranks[source])
    array = _memory(tensor, "recv")
    used = np.empty(array.shape, array.dtype) if not array.flags.c_contiguous else array
    sender = group.receive_into(used, source, tag)
    _changed(array, used)
    return int(group.ranks[sender])


def isend(
    tensor: Tensor,
    dst: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> Work:
    """Begin to send a tensor, which must not be changed until `wait()` returns."""
    group = resolved(group)
    _check(tensor, "isend")
    target = _member(group, dst, group_dst)
    if STATE.mode & LISTENING:
        return Done(moving.send_(tensor, target=target, tag=tag, group=group))
    if tensor._view is not None:
        refresh(tensor)
    sending: Work = group.start_send(tensor._array, target, tag)
    return sending


def irecv(
    tensor: Tensor,
    src: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_src: int | None = None,
) -> Work:
    """Begin to receive into a tensor, which has its value when `wait()` returns."""
    group = resolved(group)
    _check(tensor, "irecv")
    source = -1 if src is None and group_src is None else _member(group, src, group_src)
    if STATE.mode & LISTENING:
        recv(tensor, group=group, tag=tag, group_src=source)
        return Done()
    array = _memory(tensor, "irecv")
    used = np.empty(array.shape, array.dtype) if not array.flags.c_contiguous else array
    receiving: Work = group.start_receive(used, source, tag, lambda _: _changed(array, used))
    return receiving


class P2POp:
    """A message for `batch_isend_irecv`: `isend` or `irecv`, the tensor, and the other rank."""

    def __init__(
        self,
        op: Callable[..., Work],
        tensor: Tensor,
        peer: int | None = None,
        group: Any = None,
        tag: int = 0,
        group_peer: int | None = None,
    ) -> None:
        if op not in (isend, irecv):
            raise ValueError("op must be isend or irecv")
        self.op = op
        self.tensor = tensor
        self.peer = peer
        self.group = group
        self.tag = tag
        self.group_peer = group_peer


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Work]:
    """Begin several messages at once, in any order; returns their handles."""
    if not p2p_op_list:
        raise ValueError("batch_isend_irecv needs at least one message")
    # Sending first while a tape listens: those calls end before they return.
    order = sorted(range(len(p2p_op_list)), key=lambda i: p2p_op_list[i].op is irecv)
    started: dict[int, Work] = {}
    for i in order:
        x = p2p_op_list[i]
        started[i] = x.op(x.tensor, x.peer, x.group, x.tag, x.group_peer)
    return [started[i] for i in range(len(p2p_op_list))]


__all__ = [
    "P2POp",
    "ReduceOp",
    "Requested",
    "Work",
    "all_gather",
    "all_gather_into_tensor",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "batch_isend_irecv",
    "broadcast",
    "gather",
    "irecv",
    "isend",
    "monitored_barrier",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "send",
]
