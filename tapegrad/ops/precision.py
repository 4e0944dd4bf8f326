"""Half precision inside composites: computed in float32, rounded once at the end.

`widened` and `rounded` take raw arrays and Tensors; for float32 and float64 they do nothing. The
other functions check the dtypes of public functions' arguments.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core import numeric
from ..core.dtypes import as_dtype, float32, get_default_dtype
from ..core.xp import F32, F64
from .elementwise.copies import cast


def is_half(x: Any) -> bool:
    """Whether `x` is float16 or bfloat16."""
    dtype = x.dtype
    if isinstance(dtype, np.dtype):
        return numeric.is_half(dtype)
    return bool(dtype.itemsize == 2 and dtype.is_floating_point)


def widened(x: Any) -> Any:
    """`x`, cast to float32 if it is half precision."""
    dtype = x.dtype
    if dtype is F32 or dtype is F64:  # the common case of a raw array
        return x
    return cast(x, dtype=float32) if is_half(x) else x


def rounded(out: Any, like: Any) -> Any:
    """`out` in the dtype of `like`."""
    wanted = like.dtype
    return out if out.dtype is wanted or out.dtype == wanted else cast(out, dtype=wanted)


def in_dtype(out: Any, dtype: Any) -> Any:
    """`out` in a dtype; for rules that get the dtype as `x_dtype`."""
    target = as_dtype(dtype)
    return out if as_dtype(out.dtype) is target else cast(out, dtype=target)


def check_floating(
    x: Any, what: str, *, complex: bool = False, error: type[Exception] = NotImplementedError
) -> None:
    """Raise unless `x` is a floating tensor; with `complex`, it may be a complex one."""
    dtype = x._array.dtype
    if not numeric.is_floating(dtype) and not (complex and numeric.is_complex(dtype)):
        raise error(f"{what} needs a floating tensor, got {x.dtype}; use .float() first")


def check_numbers(x: Any, what: str) -> None:
    """Raise if `x` is a bool tensor."""
    if x._array.dtype == np.bool_:
        raise NotImplementedError(f"{what} takes no bool tensor; convert it to numbers first")


def as_floating(x: Any, what: str) -> Any:
    """A floating or complex tensor: integers become the default type, bool is refused."""
    if numeric.is_boolean(x._array.dtype):
        raise RuntimeError(f"{what} needs numbers, got a bool tensor; use .float() first")
    return x if numeric.is_inexact(x._array.dtype) else x.to(get_default_dtype())


def check_same_dtype(what: str, x: Any, **others: Any) -> None:
    """Raise unless all tensors have the dtype of `x`; None is skipped."""
    for name, other in others.items():
        if other is not None and other._array.dtype != x._array.dtype:
            raise RuntimeError(
                f"{what} needs tensors of one dtype: the input is {x.dtype} but the {name} is "
                f"{other.dtype}; convert one of them with .to(dtype)"
            )


def check_parameters(what: str, x: Any, **weights: Any) -> None:
    """Raise unless all weights have the dtype of `x`, or all are float32 beside half precision."""
    given = {name: w for name, w in weights.items() if w is not None}
    if not is_half(x._array) or any(w._array.dtype != np.float32 for w in given.values()):
        check_same_dtype(what, x, **given)
