"""`tapegrad.distributed`: training with many processes, connected by MPI.

The names are those of torch.distributed. mpi4py is loaded by `init_process_group`.
"""

from __future__ import annotations

from typing import Any

from . import functional
from .background import Work
from .checks import CollectiveMismatch
from .collectives import (
    ReduceOp,
    all_gather,
    all_gather_into_tensor,
    all_reduce,
    all_to_all,
    all_to_all_single,
    barrier,
    broadcast,
    gather,
    monitored_barrier,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
)
from .messages import P2POp, batch_isend_irecv, irecv, isend, recv, send
from .objects import (
    all_gather_object,
    broadcast_object_list,
    gather_object,
    scatter_object_list,
)
from .process_group import (
    NON_GROUP_MEMBER,
    ProcessGroup,
    destroy_process_group,
    get_backend,
    get_global_rank,
    get_group_rank,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    init_process_group,
    is_available,
    is_initialized,
    new_group,
)


class GroupMember:
    """Groups that stand for others: of all ranks, and of none of this rank's."""

    WORLD = None
    NON_GROUP_MEMBER = NON_GROUP_MEMBER


class group:
    """The group of all ranks, under PyTorch's name."""

    WORLD = None


def is_mpi_available() -> bool:
    """Whether ranks can be connected by MPI."""
    return is_available()


def is_gloo_available() -> bool:
    """False: ranks are connected by MPI."""
    return False


def is_nccl_available() -> bool:
    """False: ranks are connected by MPI."""
    return False


def is_torchelastic_launched() -> bool:
    """False: `tapegrad launch` starts ranks."""
    return False


__all__ = [
    "CollectiveMismatch",
    "GroupMember",
    "P2POp",
    "ProcessGroup",
    "ReduceOp",
    "Work",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "batch_isend_irecv",
    "broadcast",
    "broadcast_object_list",
    "destroy_process_group",
    "functional",
    "gather",
    "gather_object",
    "get_backend",
    "get_global_rank",
    "get_group_rank",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "group",
    "init_process_group",
    "irecv",
    "is_available",
    "is_gloo_available",
    "is_initialized",
    "is_mpi_available",
    "is_nccl_available",
    "is_torchelastic_launched",
    "isend",
    "monitored_barrier",
    "new_group",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
    "send",
]


def __getattr__(name: str) -> Any:
    from ..core.missing import missing

    raise missing(__name__, name, __all__)
