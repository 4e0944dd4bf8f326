"""Data types of the standard: their names, limits, kinds, and conversions between them.

uint16, uint32 and uint64 are missing: as in PyTorch, tensors of them only store data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..core import dtypes
from ..core.dtypes import BOOL, COMPLEX, FLOAT, INTEGER, DType
from ..core.dtypes import bool_ as bool_
from ..core.dtypes import complex64 as complex64
from ..core.dtypes import complex128 as complex128
from ..core.dtypes import float32 as float32
from ..core.dtypes import float64 as float64
from ..core.dtypes import int8 as int8
from ..core.dtypes import int16 as int16
from ..core.dtypes import int32 as int32
from ..core.dtypes import int64 as int64
from ..core.dtypes import uint8 as uint8
from ..core.tensor import Tensor
from .operands import DEFAULTS, as_tensor, dtype_beside

DTYPES = {
    "bool": bool_,
    **{d.name: d for d in (int8, int16, int32, int64, uint8)},
    **{d.name: d for d in (float32, float64, complex64, complex128)},
}


class FloatLimits(NamedTuple):
    """The limits of a floating type, as Python numbers."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


class IntegerLimits(NamedTuple):
    """The limits of an integer type, as Python numbers."""

    bits: int
    max: int
    min: int
    dtype: DType


def _dtype(type_: Any) -> DType:
    return type_.dtype if isinstance(type_, Tensor) else dtypes.as_dtype(type_)


def finfo(type: DType | Tensor, /) -> FloatLimits:
    """The limits of a floating type, or of the parts of a complex one.

    >>> from tapegrad import array_api as xp
    >>> xp.finfo(xp.float32).eps
    1.1920928955078125e-07
    """
    dtype = _dtype(type).to_real()
    found = dtypes.finfo(dtype)
    return FloatLimits(
        found.bits, found.eps, found.max, found.min, float(found.smallest_normal), dtype
    )


def iinfo(type: DType | Tensor, /) -> IntegerLimits:
    """The limits of an integer type.

    >>> from tapegrad import array_api as xp
    >>> xp.iinfo(xp.int8).max
    127
    """
    found = dtypes.iinfo(_dtype(type))
    return IntegerLimits(found.bits, found.max, found.min, _dtype(type))


_KINDS: dict[str, Callable[[DType], bool]] = {
    "bool": lambda d: d.category == BOOL,
    "signed integer": lambda d: d.category == INTEGER and d.is_signed,
    "unsigned integer": lambda d: d.category == INTEGER and not d.is_signed,
    "integral": lambda d: d.category == INTEGER,
    "real floating": lambda d: d.category == FLOAT,
    "complex floating": lambda d: d.category == COMPLEX,
    "numeric": lambda d: d.category != BOOL,
}


def isdtype(dtype: DType, kind: DType | str | tuple[DType | str, ...]) -> bool:
    """Whether a dtype equals another one, or is of a named kind; a tuple means any of these.

    >>> from tapegrad import array_api as xp
    >>> xp.isdtype(xp.float32, "real floating"), xp.isdtype(xp.int8, (xp.bool, "unsigned integer"))
    (True, False)
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    if isinstance(kind, str):
        if kind not in _KINDS:
            raise ValueError(f"isdtype: {kind!r} is no kind; there are {', '.join(_KINDS)}")
        return _KINDS[kind](dtype)
    return dtype is dtypes.as_dtype(kind)


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype that operands are promoted to; a Python number counts only by its kind.

    >>> from tapegrad import array_api as xp
    >>> xp.result_type(xp.int8, xp.asarray([1.0]))
    tapegrad.float32
    """
    if not arrays_and_dtypes:
        raise ValueError("result_type needs at least one array or dtype")
    strong = [_dtype(x) for x in arrays_and_dtypes if isinstance(x, (Tensor, DType))]
    if not strong:
        raise ValueError("result_type needs an array or a dtype beside numbers")
    target = strong[0]
    for dtype in strong[1:]:
        target = dtypes.promote_types(target, dtype)
    for x in arrays_and_dtypes:
        if not isinstance(x, (Tensor, DType)):
            target = dtypes.promote_types(target, dtype_beside(x, target))
    return target


def can_cast(from_: DType | Tensor, to: DType, /) -> bool:
    """Whether promotion can convert one dtype to another.

    >>> from tapegrad import array_api as xp
    >>> xp.can_cast(xp.int32, xp.int64), xp.can_cast(xp.float64, xp.float32)
    (True, False)
    """
    source = _dtype(from_)
    return dtypes.promote_types(source, to) is to


def astype(x: Tensor, dtype: DType, /, *, copy: bool = True, device: Any = None) -> Tensor:
    """A tensor converted to another dtype; `copy=False` may return the tensor itself.

    >>> from tapegrad import array_api as xp
    >>> xp.astype(xp.asarray([1.7, 2.0]), xp.int64)
    tensor([1, 2])
    """
    x = as_tensor(x, "astype")
    if x.dtype.is_complex and dtype.category < COMPLEX:
        raise TypeError(f"astype: {x.dtype} does not become {dtype}; take real or imag first")
    out = x.to(dtype) if device is None else x.to(device, dtype)
    return out.clone() if copy and out is x else out


__all__ = ["DEFAULTS", "DTYPES", "astype", "can_cast", "finfo", "iinfo", "isdtype", "result_type"]
