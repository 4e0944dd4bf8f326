"""Checks of operands before a kernel runs, and of its results after.

Comes in: the arrays of an operation. Goes out: an error that says what to do, arrays on one device,
or whether they need no promotion. `bind` in `primitive.py` calls these where the operands differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import dtypes, numeric, source
from .device import device_of, to_device
from .modes import GRAD
from .unset import UnsetArray, refusal

if TYPE_CHECKING:
    from .dtypes import DType
    from .primitive import Primitive


I64 = np.dtype(np.int64)
BOOL = np.dtype(np.bool_)
#: a Python integer of smaller magnitude fits into int64
_FAR = 1 << 62


def is_settled(p: Primitive, operands: Sequence[Any], dtype: Any, mode: int) -> bool:
    """Whether operands of one dtype, int64 or bool, need no promotion for the kernel.

    NumPy's own functions also take Python integers beside int64. Under a tape, always promote.
    """
    if (dtype is not I64 and dtype is not BOOL) or mode > GRAD:
        return False
    if p.promote == "float" or p.promote == "floats":
        return False
    if p.promote is not None:
        refused = p.promote == "numbers"  # `bind` refuses bool with an error
        if refused and dtype is BOOL:
            return False
        for x in operands:
            if x.__class__ is float or (refused and x.__class__ is bool):
                return False
            if x.__class__ is int:
                plain = dtype is I64 and -_FAR < x < _FAR
                if not plain or p.kernel.__class__ is not np.ufunc:
                    return False
    return True


def check_kinds(p: Primitive, operands: Sequence[DType], target: DType) -> None:
    """Refuse booleans where the primitive takes only numbers, integers where only floats."""
    if p.promote == "numbers" and dtypes.bool_ in operands:
        raise RuntimeError(
            f"{p.name} does not take bool operands; use logical_xor (^), logical_and (&) or "
            "logical_not (~), or convert them to numbers first"
        )
    if p.promote == "floats" and target.category < dtypes.FLOAT:
        raise NotImplementedError(f"{p.name} takes floating tensors; use .float() first")


def on_one_device(p: Primitive, arrays: list[Any]) -> list[Any]:
    """Check that all arrays are on one device; 0-d CPU tensors may join any device."""
    if any(a.__class__ is UnsetArray for a in arrays):
        raise refusal(p.name)
    there = [a for a in arrays if hasattr(a, "ndim")]
    devices = {device_of(a) for a in there if a.ndim}
    if not devices:  # all arrays are 0-d: one on a GPU moves the others there
        devices = {device_of(a) for a in there if not isinstance(a, (np.ndarray, np.generic))}
    if len(devices) > 1:
        shown = " and ".join(sorted(str(device) for device in devices))
        raise RuntimeError(
            f"{p.name} got tensors on different devices: {shown}; move them to one with .to(device)"
        )
    for device in devices:
        if device.type != "cpu":
            return [
                to_device(a, device) if isinstance(a, np.ndarray) and a.ndim == 0 else a
                for a in arrays
            ]
    return arrays


def check_broadcast(p: Primitive, arrays: Sequence[Any]) -> None:
    shapes = [a.shape for a in arrays if hasattr(a, "shape")]
    if len(set(shapes)) > 1:
        try:
            np.broadcast_shapes(*shapes)
        except ValueError:
            shown = " and ".join(str(tuple(s)) for s in shapes)
            raise RuntimeError(
                f"{p.name}: shapes {shown} do not broadcast together: from the right, each pair "
                "of sizes must be equal or one of them 1; use reshape, unsqueeze or transpose"
            ) from None


def check_nan(p: Primitive, arrays: Sequence[Any], outs: tuple[Any, ...]) -> None:
    def has_nan(values: Sequence[Any]) -> bool:
        return any(
            hasattr(v, "dtype") and numeric.is_inexact(v.dtype) and bool(np.isnan(v).any())
            for v in values
        )

    if has_nan(outs) and not has_nan(arrays):
        raise RuntimeError(
            f"{p.name} made the first NaN of the forward pass, at {source.describe(source.here())}"
        )
