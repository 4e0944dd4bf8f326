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
from .device_mesh import DeviceMesh, init_device_mesh
from .messages import P2POp, batch_isend_irecv, irecv, isend, recv, send
from .objects import (
    all_gather_object,
    broadcast_object_list,
    gather_object,
    recv_object_list,
    scatter_object_list,
    send_object_list,
)
from .process_group import (
    NON_GROUP_MEMBER,
    TIMEOUT,
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
    resolved,
)
from .spans import Timeline, timeline
from .stores import FileStore, HashStore, PrefixStore, Store, TCPStore
from .subgroups import (
    Backend,
    get_default_backend_for_device,
    get_node_local_rank,
    get_pg_count,
    is_backend_available,
    new_subgroups,
    new_subgroups_by_enumeration,
)


class _Named(type):
    """The metaclass of classes with `WORLD`, the group of all ranks."""

    @property
    def WORLD(cls) -> Any:  # PyTorch's name
        """The group of all ranks; None if there is no process group."""
        return resolved(None) if is_initialized() else None


class GroupMember(metaclass=_Named):
    """Has `WORLD`, and what ranks get in place of a group that they are not in."""

    NON_GROUP_MEMBER = NON_GROUP_MEMBER


class group(metaclass=_Named):
    """Has `WORLD`, the group of all ranks, under PyTorch's name."""


#: the older name of ReduceOp
reduce_op = ReduceOp
#: the default timeout of collectives, a timedelta
default_pg_timeout = TIMEOUT


def is_mpi_available() -> bool:
    """Whether ranks can be connected by MPI."""
    return is_available()


def is_gloo_available() -> bool:
    """False: ranks are connected by MPI."""
    return False


def is_nccl_available() -> bool:
    """False: ranks are connected by MPI."""
    return False


def is_ucc_available() -> bool:
    """False: ranks are connected by MPI."""
    return False


def is_xccl_available() -> bool:
    """False: ranks are connected by MPI."""
    return False


def is_torchelastic_launched() -> bool:
    """False: `tapegrad launch` starts ranks."""
    return False


__all__ = [
    "Backend",
    "CollectiveMismatch",
    "DeviceMesh",
    "FileStore",
    "GradBucket",
    "GroupMember",
    "HashStore",
    "P2POp",
    "PrefixStore",
    "ProcessGroup",
    "ReduceOp",
    "Store",
    "TCPStore",
    "Timeline",
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
    "default_pg_timeout",
    "destroy_process_group",
    "functional",
    "gather",
    "gather_object",
    "get_backend",
    "get_default_backend_for_device",
    "get_global_rank",
    "get_group_rank",
    "get_node_local_rank",
    "get_pg_count",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "group",
    "init_device_mesh",
    "init_process_group",
    "irecv",
    "is_available",
    "is_backend_available",
    "is_gloo_available",
    "is_initialized",
    "is_mpi_available",
    "is_nccl_available",
    "is_torchelastic_launched",
    "is_ucc_available",
    "is_xccl_available",
    "isend",
    "monitored_barrier",
    "new_group",
    "new_subgroups",
    "new_subgroups_by_enumeration",
    "recv",
    "recv_object_list",
    "reduce",
    "reduce_op",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
    "send",
    "send_object_list",
    "timeline",
]


def __getattr__(name: str) -> Any:
    if name == "GradBucket":  # from a package that is built on this one
        from ..parallel.buckets import GradBucket

        return GradBucket
    from ..core.missing import missing

    raise missing(__name__, name, __all__)
