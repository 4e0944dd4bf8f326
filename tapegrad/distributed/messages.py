"""Messages from one rank to another: `send`, `recv`, and the same in the background.

`src` and `dst` are ranks in the whole job, as in PyTorch. Under a tape, messages are recorded
operations, and are done when the call returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.modes import LISTENING, STATE
from ..core.tensor import Tensor, refresh, wrap
from ..ops.collective import moving
from .background import Done, Work
from .calls import assign, changed, check_tensor, member, memory
from .process_group import resolved


def send(
    tensor: Tensor,
    dst: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> Tensor:
    """Send a tensor to a rank. Returns a zero; add it to a loss so that gradients come back."""
    group = resolved(group)
    check_tensor(tensor, "send")
    target = member(group, dst, group_dst)
    token: Tensor = moving.send_(tensor, target=target, tag=tag, group=group)
    return token


def recv(
    tensor: Tensor,
    src: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_src: int | None = None,
) -> int:
    """Receive into a tensor from a rank, or from any rank for None; returns the sender's rank.

    No gradient goes back to the sender; `functional.receive` sends one.
    """
    group = resolved(group)
    check_tensor(tensor, "recv")
    source = member(group, src, group_src, default=-1)
    if STATE.mode & LISTENING and source >= 0:
        token = wrap(np.zeros((), tensor._array.dtype))
        shape = tuple(tensor.shape)
        value = moving.receive_(token, shape=shape, source=source, tag=tag, group=group)
        assign(tensor, value, "recv")
        return int(group.ranks[source])
    array = memory(tensor, "recv")
    used = np.empty(array.shape, array.dtype) if not array.flags.c_contiguous else array
    sender = group.receive_into(used, source, tag)
    changed(array, used)
    return int(group.ranks[sender])


def isend(
    tensor: Tensor,
    dst: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> Work:
    """Start to send a tensor, which must not change until `wait()` returns."""
    group = resolved(group)
    check_tensor(tensor, "isend")
    target = member(group, dst, group_dst)
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
    """Start to receive into a tensor, which has its value when `wait()` returns."""
    group = resolved(group)
    check_tensor(tensor, "irecv")
    source = member(group, src, group_src, default=-1)
    if STATE.mode & LISTENING:
        recv(tensor, group=group, tag=tag, group_src=source)
        return Done()
    array = memory(tensor, "irecv")
    used = np.empty(array.shape, array.dtype) if not array.flags.c_contiguous else array
    receiving: Work = group.start_receive(used, source, tag, lambda _: changed(array, used))
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
    """Start several messages, in any order; returns their handles."""
    if not p2p_op_list:
        raise ValueError("batch_isend_irecv needs at least one message")
    # Sends come first, because under a tape each message is done before the next one starts.
    order = sorted(range(len(p2p_op_list)), key=lambda i: p2p_op_list[i].op is irecv)
    started: dict[int, Work] = {}
    for i in order:
        x = p2p_op_list[i]
        started[i] = x.op(x.tensor, x.peer, x.group, x.tag, x.group_peer)
    return [started[i] for i in range(len(p2p_op_list))]
