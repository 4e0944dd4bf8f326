"""Classifies NumPy dtypes by the numbers they hold.

Comes in: a NumPy dtype. Goes out: whether it is floating, complex, half precision, an integer or a
boolean. Only this file knows NumPy's letters for kinds. bfloat16 and the floats of one byte come
from another package, and NumPy reports most of them as raw bytes ("V"). Called wherever code
depends on a dtype.
"""

from __future__ import annotations

from typing import Any

#: kinds of dtypes that can have gradients, for hot code that cannot afford a function call (50 ns)
DIFFERENTIABLE = "fVc"
FLOATING = "fV"
COMPLEX = "c"


def is_differentiable(dtype: Any) -> bool:
    """Whether tensors of a dtype can have gradients."""
    return dtype.kind in DIFFERENTIABLE


def is_floating(dtype: Any) -> bool:
    """Whether a dtype is a float, bfloat16 included."""
    return dtype.kind in "fV"


def is_complex(dtype: Any) -> bool:
    return bool(dtype.kind == "c")


def is_inexact(dtype: Any) -> bool:
    """Whether a dtype is floating or complex."""
    return dtype.kind in "fVc"


def is_numpy_float(dtype: Any) -> bool:
    """Whether a dtype is one of NumPy's own floats, which bfloat16 is not."""
    return bool(dtype.kind == "f" and dtype.itemsize > 1)


def is_bfloat16(dtype: Any) -> bool:
    return bool(dtype.kind == "V" and dtype.itemsize == 2)


def is_foreign(dtype: Any) -> bool:
    """Whether a dtype is a float that NumPy does not have: bfloat16, or one of a single byte."""
    return bool(dtype.kind == "V" or (dtype.kind == "f" and dtype.itemsize == 1))


def is_half(dtype: Any) -> bool:
    """Whether a dtype is a float of two bytes."""
    return dtype.itemsize == 2 and dtype.kind in "fV"


def is_integer(dtype: Any) -> bool:
    """Whether a dtype is an integer, signed or unsigned, but not boolean."""
    return dtype.kind in "iu"


def is_unsigned(dtype: Any) -> bool:
    return bool(dtype.kind == "u")


def is_unsigned_or_boolean(dtype: Any) -> bool:
    return dtype.kind in "ub"


def is_signed_integer(dtype: Any) -> bool:
    return bool(dtype.kind == "i")


def is_boolean(dtype: Any) -> bool:
    return bool(dtype.kind == "b")


def is_exact(dtype: Any) -> bool:
    """Whether a dtype is an integer or boolean."""
    return dtype.kind in "iub"


def is_only_stored(dtype: Any) -> bool:
    """Whether a dtype is only for storage: wide unsigned integers, floats of one byte."""
    return bool(dtype.itemsize > 1 and dtype.kind == "u") or (
        dtype.itemsize == 1 and is_foreign(dtype)
    )


def check_numbers(array: Any) -> None:
    """Raise TypeError for text and objects: NumPy would convert None to NaN and "1" to 1."""
    if array.dtype.kind not in "OSU":
        return
    for value in array.flat:
        if isinstance(value, (str, bytes)) or not hasattr(value, "__float__"):
            python = value.item() if hasattr(value, "item") else value  # str, not NumPy's str_
            kind = type(python).__name__
            raise TypeError(
                f"cannot make a tensor of {kind}: give numbers, lists of them or arrays"
            )
