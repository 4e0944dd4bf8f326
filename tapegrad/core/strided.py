"""Views by offset and strides: the primitive `strided`.

Comes in: a one-dimensional tensor, a shape, and strides and an offset in elements. Goes out: a
view. Every other view can be written in this way. Called by `as_strided` (`ops/shape/pieces.py`),
and by `replay/trace/roots.py` for tensors that overlap in memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import xp
from .primitive import MOVEMENT, PRIMITIVES, Primitive, define
from .tensor import Tensor, wrap


def _strided(x: Any, *, shape: Any, strides: Any, offset: int) -> Any:
    """A view of 1-d memory; strides and offset count elements."""
    size = x.itemsize
    steps = tuple(s * size for s in strides)
    if xp.module(x) is not np:
        return xp.strided_on_gpu(x[offset:], shape, steps)
    memory = np.ascontiguousarray(x)  # a copy if `x` has gaps
    out: Any = np.ndarray(shape, x.dtype, memory, offset * size, steps)
    if not x.flags.writeable:
        out.flags.writeable = False
    return out


def _put_strided(g: Any, *, size: int, strides: Any, offset: int) -> Any:
    """1-d zeros with the elements of `g` added at the positions that the strides give."""
    positions = _strided(np.arange(size), shape=tuple(g.shape), strides=strides, offset=offset)
    is_tensor = isinstance(g, Tensor)
    index = xp.module(g._array if is_tensor else g).asarray(np.array(positions, order="C"))
    put_add = PRIMITIVES["index_put_add"]
    return put_add(g, wrap(index) if is_tensor else index, dims=(0,), shape=(size,))


def _strided_batch(p: Primitive, inputs: Any, batched: Any, params: dict[str, Any]) -> Any:
    """One view of all examples' memory in sequence; the batch stride is one example's length."""
    (x,) = inputs
    size, length = x.shape
    memory = PRIMITIVES["reshape"](x, shape=(size * length,))
    return p(
        memory,
        shape=(size, *params["shape"]),
        strides=(length, *params["strides"]),
        offset=params["offset"],
    )


strided_: Primitive = define(
    "strided",
    _strided,
    kind=MOVEMENT,
    vjp=lambda g, x_shape, strides, offset: _put_strided(
        g, size=x_shape[0], strides=strides, offset=offset
    ),
    view=True,
    batch=_strided_batch,
)
