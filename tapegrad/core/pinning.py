"""Pinned memory of the host: a GPU copies from it while Python goes on.

Comes in: arrays of NumPy. Goes out: copies of them in such memory, and whether an array is there.
Called by `ops/convert.py` and `data/iterate.py`; `device.py` asks before it copies.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

#: the arrays over whole pieces of pinned memory, by id()
_pinned: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def pinned_copy(array: Any) -> Any:
    """A copy of an array in pinned memory, with dimensions in the same order."""
    from .device import cupy

    memory = cupy().cuda.alloc_pinned_memory(max(array.nbytes, 1))
    whole = np.frombuffer(memory, np.uint8, array.nbytes)
    _pinned[id(whole)] = whole
    order = sorted(range(array.ndim), key=lambda d: -array.strides[d])
    shape = tuple(array.shape[d] for d in order)
    made = np.ndarray(shape, array.dtype, whole)
    made = made.transpose(sorted(range(array.ndim), key=order.__getitem__))
    made[...] = array
    return made


def is_pinned(array: Any) -> bool:
    """Whether an array is in pinned memory."""
    if not _pinned:
        return False
    base = array
    while isinstance(base, np.ndarray):
        if id(base) in _pinned and _pinned[id(base)] is base:
            return True
        base = base.base
    return False
