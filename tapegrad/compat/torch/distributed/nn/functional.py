"""`torch.distributed.nn.functional`: `tapegrad.distributed.functional` with PyTorch's arguments.

PyTorch's functions take and return one tensor for each rank; tapegrad's stack them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..... import cat, stack
from .....core.tensor import Tensor
from .....distributed import functional as own
from .....distributed.collectives import ReduceOp

__all__ = [
    "all_gather",
    "all_reduce",
    "all_to_all",
    "broadcast",
    "gather",
    "reduce",
    "reduce_scatter",
    "scatter",
]

_own: Any = own


def broadcast(tensor: Tensor, src: int, group: Any = None) -> Tensor:
    """The tensor of the member `src`."""
    out: Tensor = _own.broadcast(tensor, src, group=group)
    return out


def gather(tensor: Tensor, dst: int = 0, group: Any = None) -> tuple[Tensor, ...]:
    """The tensors of all members for the member `dst`; zeros for the others."""
    return tuple(_own.gather(tensor, dst, group=group).unbind(0))


def scatter(tensors: Sequence[Tensor], src: int = 0, group: Any = None) -> Tensor:
    """This member's tensor from the list of the member `src`."""
    out: Tensor = _own.scatter(stack(list(tensors)), src, group=group)
    return out


def reduce(tensor: Tensor, dst: int, op: str = ReduceOp.SUM, group: Any = None) -> Tensor:
    """The reduction of all members' tensors for the member `dst`."""
    out: Tensor = _own.reduce(tensor, dst, op=op, group=group)
    return out


def reduce_scatter(
    output: Tensor, input_list: Sequence[Tensor], op: str = ReduceOp.SUM, group: Any = None
) -> Tensor:
    """The reduction of all members' tensors for this member; `output` is not used."""
    out: Tensor = _own.reduce_scatter(stack(list(input_list)), op=op, group=group)
    return out


def all_gather(tensor: Tensor, group: Any = None) -> tuple[Tensor, ...]:
    """The tensors of all members, in the order of ranks."""
    return tuple(_own.all_gather(tensor, group=group).unbind(0))


def all_to_all(
    output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: Any = None
) -> tuple[Tensor, ...]:
    """Send a tensor to, and get one from, each member; the given outputs only set shapes."""
    sent = tuple(x.numel() for x in input_tensor_list)
    shapes = [tuple(x.shape) for x in output_tensor_list]
    received = tuple(math.prod(shape) for shape in shapes)
    flat = cat([x.reshape(-1) for x in input_tensor_list])
    out = _own.all_to_all(flat, sent, received, group=group)
    return tuple(x.reshape(s) for x, s in zip(out.split(list(received)), shapes, strict=True))


def all_reduce(tensor: Tensor, op: str = ReduceOp.SUM, group: Any = None) -> Tensor:
    """The reduction of all members' tensors."""
    out: Tensor = _own.all_reduce(tensor, op=op, group=group)
    return out
