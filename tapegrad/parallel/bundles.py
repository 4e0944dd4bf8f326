"""Bundles: parameters of one dtype in a flat array, of which each rank keeps an equal part.

Comes in: the whole parameters. A `Bundle` has this rank's shards of them, gathers the flat array
for `units.py`, and reduces gradients that were kept locally.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.modes import no_grad
from ..core.tensor import Tensor, wrap
from ..distributed.shards import FlatShard, mark
from ..nn.parameter import Parameter
from ..ops.collective.conjugate import (
    gradient_as_,
    join_shards_,
    unshard_,
    unshard_apart_,
    unshard_apart_wait_,
    unshard_wait_,
)
from ..ops.collective.group import AVG
from ..ops.collective.reducing import reduce_scatter_
from .mixed_precision import MixedPrecisionPolicy


class Bundle:
    """Parameters of one dtype, concatenated, and this rank's part of them."""

    def __init__(
        self, parameters: Sequence[Tensor], group: Any, precision: MixedPrecisionPolicy
    ) -> None:
        self.group = group
        is_float = parameters[0].dtype.is_floating_point
        #: the dtypes for gathering parameters and averaging gradients; None for no cast
        self.dtype = precision.param_dtype if is_float else None
        self.reduce_dtype = precision.reduce_dtype if is_float else None
        self.shapes = [tuple(p.shape) for p in parameters]
        sizes = [math.prod(shape) for shape in self.shapes]
        self.offsets = [sum(sizes[:i]) for i in range(len(sizes))]
        self.size = sum(sizes)
        #: number of elements of each rank's part; the last parts may have fewer and are padded
        self.part = -(-self.size // group.size) if self.size else 0
        begin, end = group.rank * self.part, (group.rank + 1) * self.part
        self.shards: list[Parameter] = []
        for p, offset, size in zip(parameters, self.offsets, sizes, strict=True):
            start = min(max(begin - offset, 0), size)
            stop = min(max(end - offset, 0), size)
            values = _first_rank_values(p, group).reshape(-1)[start:stop].copy()
            shard = Parameter(wrap(values), requires_grad=p.requires_grad)
            mark(shard, FlatShard(tuple(p.shape), start, stop, group))
            self.shards.append(shard)
        held = sum(shard.numel() for shard in self.shards)
        self.padding = wrap(np.zeros(self.part - held, parameters[0]._array.dtype))
        #: a placeholder for the gathered array: its `.grad` is this rank's local gradient
        self.total = self._total()

    def _total(self) -> Tensor:
        """A tensor with the shape of the gathered array, which takes no memory."""
        dtype = self.reduce_dtype or self.dtype or self.padding.dtype
        zero = np.zeros((), dtype.numpy)
        total = wrap(np.broadcast_to(zero, (self.group.size, self.part)))
        return total.requires_grad_() if self.trains else total

    def __deepcopy__(self, memo: dict[int, Any]) -> Bundle:
        """A copy, whose `total` takes no memory either and has no hooks."""
        made = memo[id(self)] = object.__new__(Bundle)
        for name, value in self.__dict__.items():
            if name != "total":
                setattr(made, name, copy.deepcopy(value, memo))
        made.total = made._total()
        if self.total.grad is not None:
            made.total.grad = self.total.grad.detach().clone()
        return made

    @property
    def trains(self) -> bool:
        """Whether its parameters get gradients."""
        return any(shard.requires_grad for shard in self.shards)

    # -- gathering -------------------------------------------------------------------------------

    def mine(self) -> Any:
        """This rank's part of the flat array, in the dtype in which it is gathered."""
        parts = [*self.shards, self.padding] if self.padding.numel() else self.shards
        joined = join_shards_(*parts)
        return joined if self.dtype is None else joined.to(self.dtype)

    def begin(self) -> int:
        """Start to gather; returns a handle for `flat`."""
        with no_grad():
            handle: int = self.group.begin("all_gather", self.mine()._array)
        return handle

    def flat(self, begun: int | None = None, apart: bool = False) -> Any:
        """The whole parameters in one flat tensor; `begun` is a handle from `begin`.

        With `apart` their gradient is not reduced: it goes to `total`.
        """
        given = [self.mine(), self.total] if apart else [self.mine()]
        if begun is None:
            gather = unshard_apart_ if apart else unshard_
        else:
            gather = unshard_apart_wait_ if apart else unshard_wait_
            given.insert(0, wrap(np.array(begun, np.int64)))
        whole = gather(*given, group=self.group)
        if self.reduce_dtype is not None:
            whole = gradient_as_(whole, dtype=self.reduce_dtype)
        return whole.reshape(-1)

    def wholes(self, flat: Any) -> list[Any]:
        """Each parameter in its shape, as a view of the flat tensor."""
        return [
            flat[offset : offset + math.prod(shape)].view(shape)
            for offset, shape in zip(self.offsets, self.shapes, strict=True)
        ]

    # -- local gradients -------------------------------------------------------------------------

    def send_total(self) -> None:
        """Average local gradients over the ranks; add this rank's part to `.grad` of the shards."""
        total = self.total.grad
        if total is None:
            return
        self.total.grad = None
        with no_grad():
            mine = reduce_scatter_(total, op=AVG, group=self.group)
            at = 0
            for shard in self.shards:
                piece = mine[at : at + shard.numel()].to(shard.dtype)
                at += shard.numel()
                if shard.grad is None:
                    shard.grad = piece.clone()
                else:
                    shard.grad.add_(piece)


def _first_rank_values(p: Tensor, group: Any) -> Any:
    return group.broadcast(p._array, 0) if group.size > 1 else p._array
