"""Transport: collectives on arrays, as calls of MPI.

Comes in: NumPy arrays and communicators of mpi4py. Data that is only moved is sent as bytes, which
works for every dtype. Reductions in half precision run in float32 and round once, as sums do
elsewhere. Called by `process_group.py`, also in the background thread (`background.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core import numeric
from ..core.dtypes import float32, from_numpy_dtype
from ..core.primitive import PRIMITIVES
from ..ops.collective.group import AVG, BAND, BOR, BXOR, MAX, MIN, PRODUCT, SUM


def whole(x: Any) -> Any:
    """`x` as a contiguous array; `x` itself if it is contiguous."""
    if not isinstance(x, np.ndarray):
        raise TypeError(
            "collectives work on dense tensors in the computer's memory; move tensors there with "
            ".cpu(), and use to_dense() on sparse ones"
        )
    return x if x.flags.c_contiguous else np.ascontiguousarray(x).reshape(x.shape)


def as_bytes(x: Any) -> Any:
    """The memory of a contiguous array, as bytes."""
    return x.reshape(-1).view(np.uint8)


def _operation(mpi: Any, op: str) -> Any:
    return {
        SUM: mpi.SUM, AVG: mpi.SUM, MAX: mpi.MAX, MIN: mpi.MIN, PRODUCT: mpi.PROD,
        BAND: mpi.BAND, BOR: mpi.BOR, BXOR: mpi.BXOR,
    }[op]  # fmt: skip


def _is_half(dtype: Any) -> bool:
    return bool(numeric.is_floating(dtype) and dtype.itemsize == 2)


def _cast(x: Any, dtype: Any) -> Any:
    return PRIMITIVES["cast"](x, dtype=dtype)


def _summable(x: Any) -> Any:
    """`x` in a dtype that MPI can reduce: float32 for half precision, uint8 for bool."""
    if _is_half(x.dtype):
        return whole(_cast(x, float32))
    return x.astype(np.uint8) if x.dtype == np.bool_ else x


def _as_before(reduced: Any, dtype: Any) -> Any:
    if _is_half(dtype):
        return _cast(reduced, from_numpy_dtype(dtype))
    return reduced.astype(dtype, copy=False)


def all_reduce_in_place(mpi: Any, comm: Any, x: Any, op: str) -> None:
    """Reduce a contiguous array in place."""
    work = _summable(x)
    comm.Allreduce(mpi.IN_PLACE, work, _operation(mpi, op))
    if op == AVG:
        work /= comm.size
    if work is not x:
        x[...] = _as_before(work, x.dtype)


def all_reduce(mpi: Any, comm: Any, x: Any, op: str) -> Any:
    out = np.array(x, order="C")
    all_reduce_in_place(mpi, comm, out, op)
    return out


def reduce(mpi: Any, comm: Any, x: Any, op: str, target: int) -> Any:
    work = _summable(whole(x))
    here = comm.rank == target
    out = np.empty_like(work) if here else None
    comm.Reduce(work, out, _operation(mpi, op), target)
    if out is None:
        return np.zeros(x.shape, x.dtype)
    if op == AVG:
        out /= comm.size
    return _as_before(out, x.dtype)


def reduce_scatter(mpi: Any, comm: Any, x: Any, op: str) -> Any:
    work = _summable(whole(x))
    out = np.empty(work.shape[1:], work.dtype)
    comm.Reduce_scatter_block(work, out, _operation(mpi, op))
    if op == AVG:
        out /= comm.size
    return _as_before(out, x.dtype)


def all_gather(mpi: Any, comm: Any, x: Any) -> Any:
    out = np.empty((comm.size, *x.shape), x.dtype)
    comm.Allgather(as_bytes(whole(x)), as_bytes(out))
    return out


# -- in the background ---------------------------------------------------------------------------


def _copied(comm: Any, x: Any, in_place: bool) -> Any:
    return x if in_place else np.array(x, order="C")


def _with_room(comm: Any, x: Any, in_place: bool) -> Any:
    """A buffer for the arrays of all members, with that of this member filled in."""
    out = np.empty((comm.size, *x.shape), x.dtype)
    out[comm.rank] = x
    return out


def _reduce_there(mpi: Any, comm: Any, x: Any, op: str) -> Any:
    all_reduce_in_place(mpi, comm, x, op)
    return x


def _gather_there(mpi: Any, comm: Any, x: Any) -> Any:
    comm.Allgather(mpi.IN_PLACE, as_bytes(x))
    return x


#: collectives that can run in the background: a function that makes the buffer that they work on,
#: which nothing else uses, and the function that returns the result
IN_BACKGROUND: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "all_reduce": (_copied, _reduce_there),
    "all_gather": (_with_room, _gather_there),
    "reduce_scatter": (_copied, reduce_scatter),
}


# -- moving --------------------------------------------------------------------------------------


def broadcast_in_place(mpi: Any, comm: Any, x: Any, source: int) -> None:
    """Fill a contiguous array with that of the member `source`."""
    comm.Bcast(as_bytes(x), source)


def broadcast(mpi: Any, comm: Any, x: Any, source: int) -> Any:
    out = np.array(x, order="C")
    broadcast_in_place(mpi, comm, out, source)
    return out


def gather(mpi: Any, comm: Any, x: Any, target: int) -> Any:
    here = comm.rank == target
    out = (np.empty if here else np.zeros)((comm.size, *x.shape), x.dtype)
    comm.Gather(as_bytes(whole(x)), as_bytes(out) if here else None, target)
    return out


def scatter(mpi: Any, comm: Any, x: Any, source: int) -> Any:
    out = np.empty(x.shape[1:], x.dtype)
    comm.Scatter(as_bytes(whole(x)) if comm.rank == source else None, as_bytes(out), source)
    return out


def all_to_all(mpi: Any, comm: Any, x: Any, sent: Sequence[int], received: Sequence[int]) -> Any:
    x = whole(x)
    out = np.empty((sum(received), *x.shape[1:]), x.dtype)
    row = int(np.prod(x.shape[1:], dtype=np.int64)) * x.itemsize
    counts = [n * row for n in sent], [n * row for n in received]
    comm.Alltoallv((as_bytes(x), counts[0]), (as_bytes(out), counts[1]))
    return out


def permute(mpi: Any, comm: Any, x: Any, targets: Sequence[int]) -> Any:
    out = np.empty(x.shape, x.dtype)
    source = list(targets).index(comm.rank)
    comm.Sendrecv(as_bytes(whole(x)), targets[comm.rank], recvbuf=as_bytes(out), source=source)
    return out


def barrier(mpi: Any, comm: Any, timeout: float | None) -> None:
    """Wait for all members; raise if some are missing after `timeout` seconds."""
    if timeout is None:
        comm.Barrier()
        return
    request, end = comm.Ibarrier(), time.monotonic() + timeout
    while not request.Test():
        if time.monotonic() > end:
            raise RuntimeError(
                f"rank {comm.rank} of {comm.size} has waited for {timeout:g} s at a barrier, and "
                "not all ranks have come"
            )
        time.sleep(1e-3)


def send(mpi: Any, comm: Any, x: Any, target: int, tag: int) -> None:
    comm.Send(as_bytes(whole(x)), target, tag)


def receive(mpi: Any, comm: Any, x: Any, source: int, tag: int) -> int:
    """Receive a message into a contiguous array; returns the sender's rank in the group."""
    status = mpi.Status()
    comm.Recv(as_bytes(x), mpi.ANY_SOURCE if source < 0 else source, tag, status)
    check_size(mpi, x, status)
    return int(status.source)


def check_size(mpi: Any, x: Any, status: Any) -> None:
    """Raise unless a message has filled the whole array."""
    if status.Get_count(mpi.BYTE) != x.nbytes:
        raise RuntimeError(
            f"a tensor of {x.nbytes} bytes was expected from rank {status.source}, which sent "
            f"{status.Get_count(mpi.BYTE)}"
        )
