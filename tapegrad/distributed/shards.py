"""Shards: the part of a whole tensor that a parameter of this rank holds.

A shard holds the elements from `start` to `stop` of the flattened whole. `parallel/fully_shard.py`
makes such parameters; `saving/` reads the ranges, to assemble tensors from the files of all ranks.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ..core.tensor import Tensor, wrap
from .objects import exchange

_ATTRIBUTE = "_shard"


class FlatShard(NamedTuple):
    """The shape of the whole, and the range of its flattened elements in the shard."""

    shape: tuple[int, ...]
    start: int
    stop: int
    #: the group whose ranks hold the whole, in order
    group: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        return FlatShard, self[:3]  # a group belongs to this process

    def __deepcopy__(self, memo: Any) -> FlatShard:
        return self

    @property
    def whole_size(self) -> int:
        """The number of elements of the whole."""
        return math.prod(self.shape)


def whole_of(tensor: Tensor, shard: FlatShard | None = None) -> Tensor:
    """The whole tensor from the shards of all ranks of a group, which all call this.

    `shard` describes a tensor that is not marked itself.
    """
    shard = shard or shard_of(tensor)
    assert shard is not None
    parts = exchange(shard.group, tensor._array.tobytes())
    array = np.frombuffer(b"".join(parts), tensor._array.dtype)
    return wrap(array.reshape(shard.shape).copy())


def mark(tensor: Any, shard: FlatShard) -> None:
    """Mark a parameter as a shard."""
    setattr(tensor, _ATTRIBUTE, shard)


def shard_of(tensor: Tensor) -> FlatShard | None:
    """The mark of a shard; None for a tensor that is whole itself."""
    found: FlatShard | None = getattr(tensor, _ATTRIBUTE, None)
    return found
