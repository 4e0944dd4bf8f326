"""The functions of torch.distributed: they change tensors in place, and may run in the background.

If a tensor has a history, or a tape is active, the operations of `ops/collective/` run, so that
gradients flow; such a call is done when it returns, even with `async_op=True`. Otherwise the memory
of the tensor is changed directly. A leaf that requires gradients is changed without being recorded,
as in PyTorch. `src` and `dst` are ranks in the whole job, as in PyTorch. Each function says what is
sent and where the result goes; `calls.py` does the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np

from ..core.tensor import Tensor, wrap
from ..ops.collective import reducing
from ..ops.collective.group import AVG, BAND, BOR, BXOR, MAX, MIN, PRODUCT, SUM
from ..ops.shape.joining import cat, stack
from .background import Work
from .calls import Call, assign, assign_each, check_parts, check_tensor, collective, member
from .process_group import NON_GROUP_MEMBER, resolved


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


# -- reductions ----------------------------------------------------------------------------------


@collective
def all_reduce(tensor: Tensor, op: str = SUM, group: Any = None, async_op: bool = False) -> Call:
    """Replace a tensor by the reduction of all ranks' tensors."""
    reducing.check_reduction(op, tensor.dtype)
    return Call("all_reduce", tensor, {"op": op})


@collective
def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: str = SUM,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Call:
    """Replace the tensor of the rank `dst` by the reduction of all ranks' tensors."""
    reducing.check_reduction(op, tensor.dtype)
    target = member(group, dst, group_dst)

    def take(value: Any) -> None:
        if group.rank == target:
            assign(tensor, value, "reduce_")

    return Call("reduce", tensor, {"op": op, "target": target}, take)


@collective
def reduce_scatter(
    output: Tensor,
    input_list: list[Tensor],
    op: str = SUM,
    group: Any = None,
    async_op: bool = False,
) -> Call:
    """Reduce the lists of all ranks item by item; `output` gets the item of this rank."""
    check_parts(input_list, group, output, "reduce_scatter")
    return _reduce_scatter(output, stack(list(input_list)), op)


@collective
def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: str = SUM, group: Any = None, async_op: bool = False
) -> Call:
    """As `reduce_scatter`, with the parts concatenated in one tensor."""
    if input.numel() != group.size * output.numel():
        raise ValueError(
            f"reduce_scatter_tensor needs {group.size} parts of {output.numel()} elements, got "
            f"{input.numel()} elements"
        )
    return _reduce_scatter(output, input.reshape(group.size, *output.shape), op)


def _reduce_scatter(output: Tensor, rows: Any, op: str) -> Call:
    reducing.check_reduction(op, output.dtype)
    return _into(output, "reduce_scatter", rows, {"op": op})


def _into(output: Tensor, kind: str, x: Tensor, params: dict[str, Any]) -> Call:
    """A call whose result is reshaped and assigned to `output`."""

    def take(value: Any) -> None:
        assign(output, value.reshape(output.shape), kind)

    return Call(kind, x, params, take, seen=[output], outputs=[output])


# -- from one rank to all, from all to one -------------------------------------------------------


@collective
def broadcast(
    tensor: Tensor,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Call:
    """Replace a tensor by the one of the rank `src`."""
    return Call("broadcast", tensor, {"source": member(group, src, group_src)})


@collective
def gather(
    tensor: Tensor,
    gather_list: list[Tensor] | None = None,
    dst: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Call:
    """Copy the tensors of all ranks into a list of tensors on the rank `dst` (0 by default)."""
    target = member(group, dst, group_dst, default=0)
    if group.rank == target:
        if gather_list is None:
            raise ValueError("gather needs gather_list on the rank that receives")
        check_parts(gather_list, group, tensor, "gather")
    elif gather_list:
        raise ValueError("gather_list must be None on ranks that do not receive")
    rows = gather_list or []
    take = assign_each(rows, "gather")
    return Call("gather", tensor, {"target": target}, take, outputs=rows)


@collective
def scatter(
    tensor: Tensor,
    scatter_list: list[Tensor] | None = None,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Call:
    """Send each rank one tensor of a list on the rank `src` (0 by default)."""
    source = member(group, src, group_src, default=0)
    if group.rank == source:
        if scatter_list is None:
            raise ValueError("scatter needs scatter_list on the rank that sends")
        check_parts(scatter_list, group, tensor, "scatter")
        rows = stack(list(scatter_list))
    else:
        rows = wrap(np.zeros((group.size, *tensor.shape), tensor._array.dtype))
    return _into(tensor, "scatter", rows, {"source": source})


# -- from all ranks to all -----------------------------------------------------------------------


@collective
def all_gather(
    tensor_list: list[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False
) -> Call:
    """Copy the tensors of all ranks into a list of tensors."""
    check_parts(tensor_list, group, tensor, "all_gather")
    take = assign_each(tensor_list, "all_gather")
    return Call("all_gather", tensor, {}, take, seen=tensor_list, outputs=tensor_list)


@collective
def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> Call:
    """Fill a tensor with those of all ranks, concatenated along the first dimension."""
    if output_tensor.numel() != group.size * input_tensor.numel():
        raise ValueError(
            f"all_gather_into_tensor needs room for {group.size} tensors of "
            f"{input_tensor.numel()} elements, got {output_tensor.numel()}"
        )
    return _into(output_tensor, "all_gather", input_tensor, {})


@collective
def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Any = None,
    async_op: bool = False,
) -> Call:
    """Send rows of `input` to every rank, and fill `output` with the received rows."""
    sent = _splits(input_split_sizes, input, group)
    received = _splits(output_split_sizes, output, group)
    return _into(output, "all_to_all", input, {"sent": sent, "received": received})


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


@collective
def all_to_all(
    output_tensor_list: list[Tensor],
    input_tensor_list: list[Tensor],
    group: Any = None,
    async_op: bool = False,
) -> Call:
    """Send each rank one tensor of a list; receive one of each rank into another list."""
    for name, parts in (("output", output_tensor_list), ("input", input_tensor_list)):
        if len(parts) != group.size:
            raise ValueError(f"all_to_all needs an {name} tensor for each of {group.size} ranks")
        for part in parts:
            check_tensor(part, "all_to_all")
    flat = cat([t.reshape(-1) for t in input_tensor_list])
    params = {
        "sent": tuple(t.numel() for t in input_tensor_list),
        "received": tuple(t.numel() for t in output_tensor_list),
    }

    def take(rows: Any) -> None:
        at = 0
        for part in output_tensor_list:
            assign(part, rows[at : at + part.numel()].reshape(part.shape), "all_to_all")
            at += part.numel()

    outputs = output_tensor_list
    return Call("all_to_all", flat, params, take, seen=outputs, outputs=outputs)


# -- waiting -------------------------------------------------------------------------------------


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Work | None:
    """Wait until all ranks of the group have called this."""
    if group is NON_GROUP_MEMBER:
        return None
    group = resolved(group)
    if async_op:
        empty = np.zeros(0, np.uint8)
        started: Work = group.start("barrier", empty, lambda mpi, comm, x: comm.Barrier())
        return started
    group.barrier()
    return None


def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
    """As `barrier`, but raise if ranks are missing after `timeout` (a timedelta, or seconds).

    Without `timeout`, the timeout of the job ends the job and says where each rank waits.
    `wait_all_ranks` has no effect: a rank does not know which ranks are missing.
    """
    if group is NON_GROUP_MEMBER:
        return
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    resolved(group).barrier(seconds)
