"""Subgroups, and queries about backends and ranks, with the names of torch.distributed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from .job import is_started, job
from .process_group import (
    NON_GROUP_MEMBER,
    get_process_group_ranks,
    is_available,
    is_initialized,
    new_group,
    resolved,
)


class Backend(str):
    """The name of a backend in lower case; only "mpi" is available."""

    MPI = "mpi"
    GLOO = "gloo"
    NCCL = "nccl"
    UCC = "ucc"
    XCCL = "xccl"
    UNDEFINED = "undefined"

    def __new__(cls, name: str) -> Backend:
        if not isinstance(name, str):
            raise ValueError(f"the name of a backend is a string, got {name!r}")
        return super().__new__(cls, name.lower())


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: Sequence[Sequence[int]],
    timeout: Any = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Any, list[Any]]:
    """Make a group of each list of ranks; returns this rank's group, or None, and all groups.

    A rank may be in at most one list. All ranks of the job call this.
    """
    if not ranks_per_subgroup_list:
        raise ValueError("new_subgroups_by_enumeration needs lists of ranks, got none")
    together = [rank for ranks in ranks_per_subgroup_list for rank in ranks]
    if len(set(together)) != len(together):
        raise ValueError(f"a rank is in several of the groups {list(ranks_per_subgroup_list)}")
    made = [
        new_group(ranks, timeout, backend, pg_options, group_desc=group_desc)
        for ranks in ranks_per_subgroup_list
    ]
    mine = next((group for group in made if group is not NON_GROUP_MEMBER), None)
    return mine, made


def new_subgroups(
    group_size: int | None = None,
    group: Any = None,
    timeout: Any = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Any, list[Any]]:
    """Cut a group (all ranks for None) into groups of `group_size` consecutive ranks.

    The default size is the number of ranks on this machine. Returns this rank's group, and all.
    """
    ranks = get_process_group_ranks(group)
    size = resolved(None).job.local_size if group_size is None else int(group_size)
    if not 0 < size <= len(ranks) or len(ranks) % size:
        raise ValueError(f"{len(ranks)} ranks cannot be cut into groups of {size}")
    cut = [ranks[i : i + size] for i in range(0, len(ranks), size)]
    return new_subgroups_by_enumeration(cut, timeout, backend, pg_options, group_desc)


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """The number of this rank among those on the same machine."""
    if is_started():
        return job().local_rank
    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    if fallback_rank is not None:
        return int(fallback_rank)
    raise RuntimeError(
        "LOCAL_RANK is not in the environment: start the program with `tapegrad launch`, or call "
        "init_process_group() first"
    )


def get_default_backend_for_device(device: Any) -> str:
    """The backend for tensors on a device: always MPI."""
    return Backend.MPI


def is_backend_available(backend: str) -> bool:
    """Whether a backend can connect ranks."""
    return backend.lower() == Backend.MPI and is_available()


def get_pg_count() -> int:
    """The number of groups that this rank is in."""
    from . import process_group

    return len(process_group._groups) if is_initialized() else 0
