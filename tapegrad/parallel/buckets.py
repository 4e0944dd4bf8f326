"""Buckets: gradients that are reduced together, in one array.

One message for many small gradients costs what one for a single gradient does. Parameters are put
into buckets in reverse order, since backward reaches the last layers first; a bucket has one dtype.
`DistributedDataParallel` fills and sends them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.tensor import Tensor, wrap

#: bytes of the first bucket, at most: the first message should start early
FIRST_BUCKET = 1 << 20


class Bucket:
    """Some parameters, and the array in which their gradients lie one after another."""

    def __init__(self, index: int, parameters: Sequence[Tensor]) -> None:
        self.index = index
        self.parameters = list(parameters)
        self.sizes = [p.numel() for p in parameters]
        self.offsets = [sum(self.sizes[:i]) for i in range(len(self.sizes))]
        self._array: Any = None

    @property
    def array(self) -> Any:
        """The memory, which is there from the first use on."""
        if self._array is None:
            self._array = np.zeros(sum(self.sizes), self.parameters[0]._array.dtype)
        return self._array

    def part(self, at: int) -> Any:
        """The memory of one parameter's gradient, in its shape."""
        start, size = self.offsets[at], self.sizes[at]
        return self.array[start : start + size].reshape(self.parameters[at]._array.shape)


class GradBucket:
    """What a communication hook gets: the gradients of a bucket, as tensors."""

    def __init__(self, bucket: Bucket, buffer: Tensor, is_last: bool) -> None:
        self._bucket = bucket
        self._buffer = buffer
        self._is_last = is_last

    def index(self) -> int:
        """Its place in the order in which buckets are sent."""
        return self._bucket.index

    def buffer(self) -> Tensor:
        """All gradients in one flat tensor."""
        return self._buffer

    def set_buffer(self, tensor: Tensor) -> None:
        """Use another flat tensor."""
        self._buffer = tensor

    def gradients(self) -> list[Tensor]:
        """Each parameter's gradient, as a view of the buffer."""
        b = self._bucket
        return [
            self._buffer[o : o + n].view(p.shape)
            for o, n, p in zip(b.offsets, b.sizes, b.parameters, strict=True)
        ]

    def parameters(self) -> list[Tensor]:
        return list(self._bucket.parameters)

    def is_last(self) -> bool:
        """Whether this is the last bucket of a backward pass."""
        return self._is_last


def divided(parameters: Sequence[Tensor], limit: int) -> list[Bucket]:
    """Buckets of at most `limit` bytes (or of one larger parameter), in the order of sending."""
    groups: list[list[Tensor]] = []
    open_: dict[Any, list[Tensor]] = {}
    filled: dict[Any, int] = {}
    for p in reversed(parameters):
        dtype, size = p._array.dtype, p._array.nbytes
        room = min(FIRST_BUCKET, limit) if not groups or groups[0] is open_.get(dtype) else limit
        if dtype in open_ and filled[dtype] + size <= room:
            open_[dtype].append(p)
            filled[dtype] += size
        else:
            open_[dtype] = [p]
            filled[dtype] = size
            groups.append(open_[dtype])
    return [Bucket(i, group) for i, group in enumerate(groups)]


def view_of(bucket: Bucket, at: int) -> Tensor:
    """A gradient that shows the bucket's memory."""
    return wrap(bucket.part(at))
