"""Shards: which part of a whole tensor a parameter of this rank is.

A shard holds the elements from `start` to `stop` of the flattened whole. `parallel/fully_shard.py`
makes such parameters; `saving/` asks for them, to put a whole together from the files of all ranks.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ..core.tensor import Tensor

_ATTRIBUTE = "_shard"


class FlatShard(NamedTuple):
    """The shape of the whole, and the range of its flattened elements that is here."""

    shape: tuple[int, ...]
    start: int
    stop: int

    @property
    def whole_size(self) -> int:
        """How many elements the whole has."""
        return math.prod(self.shape)


def mark(tensor: Any, shard: FlatShard) -> None:
    """Say that a parameter is a shard."""
    setattr(tensor, _ATTRIBUTE, shard)


def shard_of(tensor: Tensor) -> FlatShard | None:
    """Which part of a whole a tensor is; None for a tensor that is whole itself."""
    found: FlatShard | None = getattr(tensor, _ATTRIBUTE, None)
    return found
