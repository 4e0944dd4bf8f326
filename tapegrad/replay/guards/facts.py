"""Facts of memory: what decides whether a program fits a tensor, other than its values.

Comes in: tensors. Goes out: their shape, dtype, layout, writability, whether they want gradients,
and which of them show the same bytes. The same facts are compared for arguments, captured tensors
and gradients. Called by `reach.py`, `world.py`, `trace/` and `use/replay.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...core.tensor import Tensor
from ...core.xp import address


def facts_of(tensor: Tensor) -> tuple[Any, ...]:
    """What of a tensor decides whether a recording fits it, but for overlaps with others."""
    array = tensor._array
    requires = tensor._requires and (1 if tensor._edge is None else 2)
    if type(array) is np.ndarray:
        writable = array.flags.writeable
        return array.shape, array.dtype, array.strides, type(tensor), requires, writable
    return "elsewhere", array.shape, array.dtype, type(tensor), requires


def memory_of(array: Any) -> Any:
    """The object that owns the memory of an array."""
    base = array.base
    while isinstance(base, np.ndarray):
        array, base = base, base.base
    return array if base is None else base


def bounds(array: Any) -> tuple[int, int]:
    """The addresses of an array's first byte and of the byte after its last one."""
    start = end = address(array)
    for size, step in zip(array.shape, array.strides, strict=True):
        start += min((size - 1) * step, 0)
        end += max((size - 1) * step, 0)
    return start, end + array.itemsize if array.size else start


def overlaps(arrays: Sequence[Any]) -> tuple[tuple[int, int, bool], ...]:
    """The pairs of arrays that show common bytes, and whether they show the very same ones."""
    owners = [id(memory_of(a)) for a in arrays]
    if len(set(owners)) == len(owners) and all(
        memory_of(a) is a or a.base is not None for a in arrays
    ):
        return ()
    found = []
    spans = [bounds(a) for a in arrays]
    for j, b in enumerate(arrays):
        for i in range(j):
            a = arrays[i]
            if spans[i][0] < spans[j][1] and spans[j][0] < spans[i][1]:
                same = spans[i] == spans[j] and (a.shape, a.strides) == (b.shape, b.strides)
                found.append((i, j, same))
    return tuple(found)


def overlapping(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Tensors in groups: those that overlap, directly or through others, are in one."""
    known = {tensor.id: tensor for tensor in tensors if tensor._array.size}
    order = sorted((*bounds(t._array), t.id) for t in known.values())
    group: list[Tensor] = []
    reach = 0
    for start, end, tensor_id in order:
        if start >= reach and group:
            yield group
            group = []
        group.append(known[tensor_id])
        reach = max(reach, end)
    if group:
        yield group


def steps_of(array: Any) -> tuple[int, ...]:
    """The strides of an array, in elements."""
    return tuple(s // array.itemsize for s in array.strides)


def constant_of(array: Any) -> Any:
    """A copy of an array; one element stands for all if they are equal, as in new state."""
    if array.size > 1:
        first = array.reshape(-1)[:1].copy()
        if array.tobytes() == first.tobytes() * array.size:
            return np.broadcast_to(first.reshape(()), array.shape)
    return np.array(array)
