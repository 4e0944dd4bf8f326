"""Half precision together with numbers that it cannot represent.

Comes in: the operands of a product or quotient. Goes out: operands in float32, and the dtype of the
result. Called by `bind` in `primitive.py`.
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
    """Two operands in float32 and the half-precision dtype of the result, or None if not needed.

    It is needed if the other operand is a 0-d floating tensor, or a Python number that half
    precision would round or turn into infinity: PyTorch rounds only the result.
    """
    half = None
    for i, x in enumerate(tensors):
        if isinstance(x, Tensor) and numeric.is_half(x._array.dtype):
            if half is not None:
                return None
            half = i
    if half is None:
        return None
    array, other = tensors[half]._array, tensors[1 - half]
    if isinstance(other, Tensor):
        if other._array.ndim or not array.ndim or not numeric.is_floating(other._array.dtype):
            return None
    elif (
        isinstance(other, complex)
        or other != other
        or float(np.asarray(other, array.dtype)) == other
    ):
        return None
    wide = list(tensors)
    wide[half] = cast_to(wide[half], dtypes.float32)
    return wide, dtypes.from_numpy_dtype(array.dtype)
