"""Queries about dtypes: the result of an operation of two operands, and allowed casts.

Comes in: tensors, numbers or dtypes. Goes out: a dtype, or whether a cast is allowed. Both are
functions of the main namespace; operations promote by `dtypes.result_type`.
"""

from __future__ import annotations

from typing import Any

from . import dtypes
from .dtypes import DType
from .tensor import Tensor


def result_type(tensor1: Any, tensor2: Any) -> DType:
    """The dtype that an operation of two tensors or numbers computes in.

    >>> import tapegrad
    >>> tapegrad.result_type(tapegrad.tensor([1, 2], dtype=tapegrad.int32), 1.0)
    tapegrad.float32
    """
    return dtypes.result_type(_operand(tensor1), _operand(tensor2))


def _operand(x: Any) -> tuple[DType, int]:
    number: Any = x
    if isinstance(x, Tensor):
        return x.dtype, 2 if x._array.ndim else 1
    if isinstance(x, (bool, int, float, complex)):
        return dtypes.number_dtype(number), 0
    raise TypeError(f"result_type needs tensors or numbers, got {type(x).__name__}")


def can_cast(from_: Any, to: Any) -> bool:
    """Whether a result of one dtype may be written to a tensor of another, by `out=` or in place.

    >>> import tapegrad
    >>> tapegrad.can_cast(tapegrad.int64, tapegrad.float32)
    True
    >>> tapegrad.can_cast(tapegrad.float32, tapegrad.int64)
    False
    """
    return dtypes.as_dtype(from_).category <= dtypes.as_dtype(to).category
