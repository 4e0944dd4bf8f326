"""Checks of operands before a kernel runs, and of its results after.

Comes in: the arrays of an operation. Goes out: an error that says what to do, or arrays on one
device. `bind` in `primitive.py` calls these where operands are not all alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import numeric, source
from .device import device_of, to_device

if TYPE_CHECKING:
    from .primitive import Primitive


def on_one_device(p: Primitive, arrays: list[Any]) -> list[Any]:
    """Check that all arrays are on one device; numbers in 0-d CPU tensors may join any."""
    devices = {device_of(a) for a in arrays if hasattr(a, "ndim") and a.ndim}
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
