"""Members: which processes divide a layer, and which piece of a tensor each of them has.

Comes in: a group as users give it, or None. Used by the layers of this folder.
"""

from __future__ import annotations

from typing import Any

from ..core.modes import no_grad
from ..core.tensor import Tensor
from ..distributed.process_group import is_initialized, resolved
from ..ops.collective.group import SELF


def group_or_self(group: Any) -> Any:
    """A group that was given; for None all ranks, or this process alone if there is no job.

    A device mesh stands for its group.
    """
    if hasattr(group, "get_group"):
        group = group.get_group()
    if group is None and not is_initialized():
        return SELF
    return resolved(group)


def piece_size(size: int, group: Any, what: str) -> int:
    """The size of each member's piece of a dimension, which must have equal pieces."""
    if size % group.size:
        raise ValueError(f"{what} = {size} cannot be divided among {group.size} ranks evenly")
    return int(size // group.size)


def own_piece(whole: Tensor, dim: int, group: Any, what: str) -> Tensor:
    """A copy of this member's piece of a tensor that all members have."""
    size = piece_size(whole.shape[dim], group, what)
    with no_grad():
        return whole.detach().narrow(dim, group.rank * size, size).clone()
