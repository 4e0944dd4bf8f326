"""Buckets: gradients that are reduced together, in one array.

A message with many small gradients costs as much as a message with one. Parameters are assigned to
buckets in reverse order, since backward reaches the last layers first; a bucket has one dtype.
`DistributedDataParallel` fills and reduces buckets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.tensor import Tensor, wrap

#: size of the first bucket in bytes, small so that the first message starts early
FIRST_BUCKET = 1 << 20
#: default size of the others in bytes. No computation is left to overlap with the last message, so
#: it should be short; and MPI starts a message within microseconds.
BUCKET = 4 << 20
#: a parameter of at least this many bytes has its own bucket: one more message costs less than to
#: copy its gradient into a shared bucket and the average out of it
ALONE = 1 << 20


class Bucket:
    """Some parameters, and the array that holds their gradients one after another."""

    def __init__(self, index: int, parameters: Sequence[Tensor]) -> None:
        self.index = index
        self.parameters = list(parameters)
        self.sizes = [p.numel() for p in parameters]
        self.offsets = [sum(self.sizes[:i]) for i in range(len(self.sizes))]
        self._array: Any = None

    @property
    def array(self) -> Any:
        """The memory, allocated at its first use."""
        if self._array is None:
            self._array = np.zeros(sum(self.sizes), self.parameters[0]._array.dtype)
        return self._array

    def part(self, at: int) -> Any:
        """The memory of one parameter's gradient, in its shape."""
        start, size = self.offsets[at], self.sizes[at]
        return self.array[start : start + size].reshape(self.parameters[at]._array.shape)


class GradBucket:
    """The argument of a communication hook: the gradients of a bucket, as tensors."""

    def __init__(self, bucket: Bucket, buffer: Tensor, is_last: bool) -> None:
        self._bucket = bucket
        self._buffer = buffer
        self._is_last = is_last

    def index(self) -> int:
        """The position in the order in which buckets are reduced."""
        return self._bucket.index

    def buffer(self) -> Tensor:
        """All gradients in one flat tensor."""
        return self._buffer

    def set_buffer(self, tensor: Tensor) -> None:
        """Replace the flat tensor."""
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
    """Divide parameters into buckets that are full at `limit` bytes, in the order of filling."""
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
    """A gradient that is a view of the bucket's memory."""
    return wrap(bucket.part(at))
