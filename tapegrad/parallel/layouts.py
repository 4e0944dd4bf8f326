"""Layouts: how a tensor is distributed over the ranks of a group, and conversions between layouts.

Tensors stay ordinary tensors: a rank has its piece, or the whole. `redistributed` converts a tensor
that all ranks then use alike, so that gradients count once. `gather_summed` and `reduce_pieces`
begin and end a divided part of a model whose input and result are sharded. Names are PyTorch's:
`tapegrad.distributed.tensor`.
"""

from __future__ import annotations

from typing import Any

from ..core.tensor import Tensor
from ..ops.collective.conjugate import gather_from, reduce_from, split_to
from ..ops.collective.group import SUM
from ..ops.collective.moving import all_gather_
from ..ops.collective.reducing import reduce_scatter_


class Placement:
    """How a tensor is distributed over the ranks."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *sorted(vars(self).items())))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v}' for k, v in vars(self).items())})"

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether each rank has a piece, along dimension `dim` if given."""
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_replicate(self) -> bool:
        """Whether all ranks have the whole tensor."""
        return isinstance(self, Replicate)

    def is_partial(self) -> bool:
        """Whether the tensor is the sum of the ranks' tensors."""
        return isinstance(self, Partial)


class Replicate(Placement):
    """All ranks have the whole tensor."""


class Shard(Placement):
    """Each rank has its piece along one dimension."""

    def __init__(self, dim: int) -> None:
        self.dim = dim


class Partial(Placement):
    """The tensor is the sum of the ranks' tensors."""

    def __init__(self, reduce_op: str = SUM) -> None:
        if reduce_op != SUM:
            raise ValueError(f"Partial stands for sums, got {reduce_op!r}")


def redistributed(x: Tensor, before: Placement, after: Placement, group: Any) -> Tensor:
    """Convert a tensor to another layout, in which all ranks then use it alike."""
    if isinstance(before, Partial):
        if isinstance(after, Shard):
            return reduce_pieces(x, after.dim, group)
        return x if isinstance(after, Partial) else reduce_from(x, group)
    if isinstance(after, Partial):
        raise ValueError(f"a tensor that lies as {before!r} cannot be made a sum of parts")
    if isinstance(before, Shard):
        if isinstance(after, Shard) and before.dim % x.ndim == after.dim % x.ndim:
            return x
        x = gather_from(x, before.dim, group)
    return split_to(x, after.dim, group) if isinstance(after, Shard) else x


def gather_summed(x: Tensor, dim: int, group: Any) -> Tensor:
    """All ranks' pieces, joined, for different use by each rank: their gradients are summed."""
    dim %= x.ndim
    stacked: Any = all_gather_(x, group=group)
    joined: Tensor = stacked.movedim(0, dim).flatten(dim, dim + 1)
    return joined


def reduce_pieces(x: Tensor, dim: int, group: Any) -> Tensor:
    """This rank's piece of the sum of all ranks' tensors."""
    dim %= x.ndim
    if x.shape[dim] % group.size:
        raise RuntimeError(
            f"a dimension of size {x.shape[dim]} cannot be divided among {group.size} ranks"
        )
    rows: Any = x.unflatten(dim, (group.size, -1)).movedim(dim, 0)
    piece: Tensor = reduce_scatter_(rows, op=SUM, group=group)
    return piece
