"""Memory that a GPU uses asynchronously: pinned host memory, and arrays that streams still read.

Comes in: arrays. Goes out: copies of NumPy arrays in pinned memory, from which a GPU copies
asynchronously, and whether an array is pinned. Called by `ops/convert.py` and `device.py`.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any

import numpy as np

#: by id(), the arrays that cover whole pinned allocations
_pinned: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def pinned_copy(array: Any) -> Any:
    """A copy of an array in pinned memory, with dimensions in the same memory order."""
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


#: arrays that streams may still use, each with an event after that use
_kept: deque[tuple[Any, Any]] = deque()


def keep_for(stream: Any, array: Any) -> None:
    """Keep an array alive until the work now queued on a stream is done."""
    while _kept and _kept[0][0].query():
        _kept.popleft()
    _kept.append((stream.record_event(), array))
