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

#: bytes at which the first bucket is full: the first message should start early
FIRST_BUCKET = 1 << 20
#: bytes of the others, unless somebody says otherwise. Nothing is left to compute beside the last
#: message, so it should be short; and MPI begins a message within microseconds.
BUCKET = 4 << 20
#: bytes of a parameter that has a bucket of its own: one message more costs less than to copy its
#: gradient between others, and to copy the average out again
ALONE = 1 << 20


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
    """Buckets that are full at `limit` bytes, in the order in which they become full."""
    groups: list[list[Tensor]] = []
    unfilled: dict[Any, list[Tensor]] = {}  # by dtype
    for p in reversed(parameters):
        if p._array.nbytes >= ALONE:
            groups.append([p])
            continue
        group = unfilled.setdefault(p._array.dtype, [])
        group.append(p)
        full = limit if groups else min(FIRST_BUCKET, limit)
        if sum(q._array.nbytes for q in group) >= full:
            groups.append(unfilled.pop(p._array.dtype))
    groups += unfilled.values()
    return [Bucket(i, group) for i, group in enumerate(groups)]


def view_of(bucket: Bucket, at: int) -> Tensor:
    """A gradient that shows the bucket's memory."""
    return wrap(bucket.part(at))
