"""Memory that a GPU still uses while Python goes on: pinned memory, and what other streams need.

Comes in: arrays. Goes out: copies of NumPy's in pinned memory, from which a GPU copies by itself,
and whether an array is there. Called by `ops/convert.py`; `device.py` asks before it copies.
"""

from __future__ import annotations

import weakref
from collections import deque
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


#: memory that streams may still use: an event after that use, and the array
_kept: deque[tuple[Any, Any]] = deque()


def keep_for(stream: Any, array: Any) -> None:
    """Keep an array until what a stream has to do now is done."""
    while _kept and _kept[0][0].query():
        _kept.popleft()
    _kept.append((stream.record_event(), array))
