"""Members: the processes that divide a layer, and each one's piece of a tensor.

Comes in: a group as users pass it, or None. Called by the layers of this folder.
"""

from __future__ import annotations

from typing import Any

from ..core.modes import no_grad
from ..core.tensor import Tensor
from ..distributed.process_group import is_initialized, resolved
from ..ops.collective.group import SELF


def group_or_self(group: Any) -> Any:
    """The group that was passed; for None all ranks, or only this process if there is no job.

    For a device mesh, the group of the mesh.
    """
    if hasattr(group, "get_group"):
        group = group.get_group()
    if group is None and not is_initialized():
        return SELF
    return resolved(group)


def piece_size(size: int, group: Any, what: str) -> int:
    """The size of each member's piece of a dimension, which must divide evenly."""
    if size % group.size:
        raise ValueError(f"{what} = {size} cannot be divided among {group.size} ranks evenly")
    return int(size // group.size)


def own_piece(whole: Tensor, dim: int, group: Any, what: str) -> Tensor:
    """A copy of this member's piece of a tensor that all members have."""
    size = piece_size(whole.shape[dim], group, what)
    with no_grad():
        return whole.detach().narrow(dim, group.rank * size, size).clone()
