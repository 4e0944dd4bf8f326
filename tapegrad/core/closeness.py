"""Whether two results are equal up to rounding: `testing.assert_close`.

Comes in: the actual and the expected result, tensors or structures of tensors. Goes out: nothing,
or an AssertionError that names the first difference. Called by `testing.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from . import numeric
from .device import as_device, to_device
from .tensor import Tensor, wrap

#: by dtype: relative and absolute differences that rounding explains
TOLERANCES = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
}


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: Any = None,
) -> None:
    """Raise AssertionError unless |actual - expected| <= atol + rtol |expected| everywhere.

    Compares tensors, arrays, numbers, and sequences and mappings of them; shapes, dtypes and
    devices have to be the same. Without `rtol` and `atol` they follow from the dtypes. `msg` is the
    message, or makes one from the usual message.

    >>> import tapegrad
    >>> tapegrad.testing.assert_close(
    ...     tapegrad.tensor([1.0, 2.0]) / 3 * 3, tapegrad.tensor([1.0, 2.0])
    ... )
    >>> tapegrad.testing.assert_close({"a": 1}, {"a": 2})
    Traceback (most recent call last):
    AssertionError: at ['a']: 1 is not 2
    """
    if (rtol is None) != (atol is None):
        raise ValueError("assert_close needs both rtol and atol, or neither")
    pairs = _Closeness(
        rtol, atol, equal_nan, check_device, check_dtype, check_stride, allow_subclasses
    )
    wrong = pairs.difference(actual, expected, "")
    if wrong is not None:
        raise AssertionError(wrong if msg is None else msg(wrong) if callable(msg) else msg)


class _Closeness:
    """What counts as equal, and the first thing that does not."""

    def __init__(
        self,
        rtol: float | None,
        atol: float | None,
        equal_nan: bool,
        device: bool,
        dtype: bool,
        stride: bool,
        subclasses: bool,
    ) -> None:
        self.given = None if rtol is None or atol is None else (float(rtol), float(atol))
        self.equal_nan = equal_nan
        self.device, self.dtype, self.stride, self.subclasses = device, dtype, stride, subclasses

    def difference(self, x: Any, y: Any, where: str) -> str | None:
        """How the first pair that differs does, or None."""
        at = f"at {where}: " if where else ""
        if isinstance(x, Mapping) and isinstance(y, Mapping):
            if x.keys() != y.keys():
                return f"{at}the keys {sorted(map(repr, x))} are not {sorted(map(repr, y))}"
            return self._first((x[k], y[k], f"{where}[{k!r}]") for k in y)
        if _is_sequence(x) and _is_sequence(y):
            if len(x) != len(y):
                return f"{at}a sequence of {len(x)} is not one of {len(y)}"
            return self._first((x[i], y[i], f"{where}[{i}]") for i in range(len(y)))
        if isinstance(x, _NUMBERS) and isinstance(y, _NUMBERS):
            return self._numbers(x, y, at)
        if not self.subclasses and type(x) is not type(y):
            return f"{at}a {type(x).__name__} is not a {type(y).__name__}"
        if x is None and y is None:
            return None
        arrays = [v._array if isinstance(v, Tensor) else v for v in (x, y)]
        if type(x) is not type(y) and not isinstance(x, type(y)) and not isinstance(y, type(x)):
            return f"{at}a {type(x).__name__} is not a {type(y).__name__}"
        if not all(hasattr(a, "shape") and hasattr(a, "dtype") for a in arrays):
            raise TypeError(
                f"{at}assert_close compares tensors, arrays, numbers, and sequences and mappings "
                f"of them, got {type(x).__name__} and {type(y).__name__}"
            )
        return self._tensors(_as_tensor(x), _as_tensor(y), at)

    def _first(self, pairs: Iterable[tuple[Any, Any, str]]) -> str | None:
        return next((w for w in (self.difference(*pair) for pair in pairs) if w is not None), None)

    def _numbers(self, x: Any, y: Any, at: str) -> str | None:
        if self.dtype and type(x) is not type(y):
            return f"{at}a {type(x).__name__} is not a {type(y).__name__}: {x!r}, {y!r}"
        inexact = any(isinstance(v, (float, complex)) for v in (x, y))
        rtol, atol = self.given or (TOLERANCES["float64"] if inexact else (0.0, 0.0))
        if x == y or (self.equal_nan and x != x and y != y):
            return None
        if abs(x - y) <= atol + rtol * abs(y) and math.isfinite(abs(y)):
            return None
        return f"{at}{x!r} is not {y!r}"

    def _tensors(self, x: Tensor, y: Tensor, at: str) -> str | None:
        for what, wanted in (
            ("shape", True), ("device", self.device), ("dtype", self.dtype),
        ):  # fmt: skip
            a, b = getattr(x, what), getattr(y, what)
            if wanted and a != b:
                return f"{at}a tensor of {what} {a} is not one of {what} {b}"
        if self.stride and x.stride() != y.stride():
            return f"{at}a tensor of strides {x.stride()} is not one of strides {y.stride()}"
        each = [TOLERANCES.get(t.dtype.name, (0.0, 0.0)) for t in (x, y)]
        rtol, atol = self.given or (max(t[0] for t in each), max(t[1] for t in each))
        a, b = (np.asarray(to_device(t._array, as_device("cpu"))) for t in (x, y))
        if numeric.is_complex(a.dtype) or numeric.is_complex(b.dtype):
            a, b = a.astype(np.complex128), b.astype(np.complex128)
        elif numeric.is_floating(a.dtype) or numeric.is_floating(b.dtype):
            a, b = a.astype(np.float64), b.astype(np.float64)
        elif a.dtype != b.dtype:
            a, b = a.astype(np.int64), b.astype(np.int64)
        return _far(a, b, rtol, atol, self.equal_nan, at)


_NUMBERS = (bool, int, float, complex)


def _is_sequence(x: Any) -> bool:
    return isinstance(x, Sequence) and not isinstance(x, (str, bytes))


def _as_tensor(x: Any) -> Tensor:
    return x if isinstance(x, Tensor) else wrap(np.asarray(x))


def _far(a: Any, b: Any, rtol: float, atol: float, equal_nan: bool, at: str) -> str | None:
    """Where two arrays of one shape differ by more than is allowed, or None."""
    inexact = numeric.is_inexact(a.dtype)
    if not inexact:
        apart = np.abs(a.astype(object) - b.astype(object)).astype(np.float64)
        size = np.abs(b.astype(np.float64))
    else:
        apart, size = np.abs(a - b), np.abs(b)
    near = (a == b) | ((apart <= atol + rtol * size) & np.isfinite(size))
    if equal_nan and inexact:
        near |= np.isnan(a) & np.isnan(b)
    if near.all():
        return None
    count = int((~near).sum())
    worst = np.unravel_index(
        int(np.where(near, -1.0, np.nan_to_num(apart, nan=np.inf)).argmax()), a.shape
    )
    index = tuple(map(int, worst))
    return (
        f"{at}{count} of {a.size} elements differ by more than {atol:g} + {rtol:g} * |expected|, "
        f"most at {index}: {a[index].item()!r} is not {b[index].item()!r}"
    )
