"""What the functions of the namespace share: operations by name, and promotion of operands.

Comes in: Tensors and Python numbers. Goes out: Tensors of one dtype. The standard promotes by
dtypes alone, PyTorch also by dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core import dtypes
from ..core.dtypes import COMPLEX, FLOAT, INTEGER, DType
from ..core.tensor import Tensor
from ..ops import CREATION, late, table

#: the default dtypes of Python numbers, by kind
DEFAULTS = (dtypes.bool_, dtypes.int64, dtypes.float32, dtypes.complex64)


def operation(name: str) -> Callable[..., Any]:
    """A function of the main namespace."""
    if name in CREATION:
        return CREATION[name]
    if name in late.FILES:
        return late.function(name)
    return table.public_functions("")[name]


def computed(name: str, *args: Any, **options: Any) -> Tensor:
    """The result of an operation that returns one tensor."""
    out: Tensor = operation(name)(*args, **options)
    return out


def as_tensor(x: Any, what: str = "the function") -> Tensor:
    """`x`, checked to be a Tensor."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{what} needs a Tensor, got {type(x).__name__}; use asarray")
    return x


def category(number: Any) -> int:
    """The kind of a Python number."""
    if isinstance(number, bool):
        return dtypes.BOOL
    if isinstance(number, int):
        return INTEGER
    return FLOAT if isinstance(number, float) else COMPLEX


def dtype_beside(number: Any, dtype: DType) -> DType:
    """The dtype of a Python number beside a tensor: the tensor's, unless that has a lower kind."""
    kind = category(number)
    if kind <= dtype.category:
        return dtype
    return dtype.to_complex() if kind == COMPLEX and dtype.category == FLOAT else DEFAULTS[kind]


def same_dtype(*operands: Any) -> list[Any]:
    """Tensors of one dtype, from at least one Tensor and Python numbers."""
    tensors = [x for x in operands if isinstance(x, Tensor)]
    if not tensors:
        raise TypeError("expected at least one Tensor, got numbers alone")
    target = tensors[0].dtype
    for x in tensors[1:]:
        target = dtypes.promote_types(target, x.dtype)
    for x in operands:
        if not isinstance(x, Tensor):
            target = dtypes.promote_types(target, dtype_beside(x, target))
    tensor = CREATION["tensor"]
    return [
        (x if x.dtype is target else x.to(target))
        if isinstance(x, Tensor)
        else tensor(x, dtype=target)
        for x in operands
    ]


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """The axes that None (all), an integer or a tuple stands for, as numbers from 0."""
    if axis is None:
        return tuple(range(ndim))
    given = axis if isinstance(axis, tuple) else (axis,)
    found = []
    for a in given:
        if not -ndim <= a < ndim:
            raise IndexError(f"axis {a} is out of range for {ndim} dimensions")
        found.append(a % ndim)
    return tuple(found)
