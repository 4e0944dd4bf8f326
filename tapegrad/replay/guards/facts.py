"""Facts: the properties of a tensor, other than its values, that a program depends on.

Comes in: tensors. Goes out: their shape, dtype, layout, device, writability, whether they require
gradients, and which of them overlap in memory. The same facts are compared for arguments, captured
tensors and gradients. Called by `reach.py`, `world.py`, `trace/` and `use/replay.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...core.arrays import bounds, is_gpu_class, memory_of
from ...core.device import device_of
from ...core.tensor import Tensor


def facts_of(tensor: Tensor) -> tuple[Any, ...]:
    """The facts that decide whether a recording fits a tensor, except overlaps with others."""
    array = tensor._array
    requires = tensor._requires and (1 if tensor._edge is None else 2)
    if type(array) is np.ndarray:
        writable = array.flags.writeable
        return array.shape, array.dtype, array.strides, type(tensor), requires, writable
    if is_gpu_class(type(array)):
        where = device_of(array)
        return array.shape, array.dtype, array.strides, type(tensor), requires, where
    return "elsewhere", array.shape, array.dtype, type(tensor), requires


def overlaps(arrays: Sequence[Any]) -> tuple[tuple[int, int, bool], ...]:
    """Pairs of arrays whose spans of memory overlap, and whether span and layout are equal."""
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
    """Groups of tensors that overlap, directly or through others; without empty tensors."""
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
