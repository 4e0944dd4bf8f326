"""Half precision beside numbers that it cannot hold.

In come the operands of a product or a quotient, out come those to compute with in float32. Called
by `bind` in `primitive.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import dtypes, numeric
from .dtypes import DType
from .tensor import Tensor


def widened(
    tensors: list[Any], cast_to: Callable[[Tensor, DType], Tensor]
) -> tuple[list[Any], DType] | None:
    """Operands in float32, and the half precision of the result, where they differ.

    That is beside a Python number or a 0-d tensor of another floating type which half precision
    would round, or take for infinity: PyTorch rounds the result alone.
    """
    found = [x for x in tensors if isinstance(x, Tensor) and numeric.is_half(x._array.dtype)]
    others = [x for x in tensors if not any(x is y for y in found)]
    if len(found) != 1 or len(others) != 1:
        return None
    array, other = found[0]._array, others[0]
    if isinstance(other, Tensor):
        if other._array.ndim or not array.ndim or not numeric.is_floating(other._array.dtype):
            return None
    elif (
        isinstance(other, complex)
        or other != other
        or float(np.asarray(other, array.dtype)) == other
    ):
        return None
    wide = [cast_to(x, dtypes.float32) if x is found[0] else x for x in tensors]
    return wide, dtypes.from_numpy_dtype(array.dtype)
