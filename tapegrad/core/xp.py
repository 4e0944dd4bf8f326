"""The array functions that kernels use, for NumPy and CuPy arrays alike.

Comes in: arrays of either kind. Goes out: arrays of the same kind. NumPy's own functions pass CuPy
arrays on to CuPy, so most kernels just call NumPy. Here is what NumPy cannot pass on (creating an
array of the same kind, scatter, special functions), and where the two differ: CuPy wraps indices
that are out of range, so `check_index` checks them first. Called by the kernels in `ops/`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import numeric

F32, F64 = np.dtype(np.float32), np.dtype(np.float64)

#: elements of an index up to which Python's `min` and `max` are faster than NumPy's
FEW_INDICES = 64


def module(x: Any) -> Any:
    """NumPy or CuPy, whichever made `x`."""
    if isinstance(x, (np.ndarray, np.generic, int, float)):
        return np
    import cupy

    return cupy


def special(x: Any) -> Any:
    """SciPy's special functions for the library that made `x`."""
    if module(x) is np:
        import scipy.special as functions
    else:
        import cupyx.scipy.special as functions
    return functions


def add_at(target: Any, index: Any, values: Any) -> None:
    """`target[index] += values`, counting every repetition of an index."""
    module(target).add.at(target, index, values)


def check_index(index: Any, size: int, what: str, error: type[Exception] = IndexError) -> None:
    """Raise `error` unless all of `index` lie in -size..size-1."""
    if index.size:
        if index.size <= FEW_INDICES and index.__class__ is np.ndarray:
            values = index.ravel().tolist()
            low, high = min(values), max(values)
        else:
            low, high = int(index.min()), int(index.max())
        if low < -size or high >= size:
            worst = low if low < -size else high
            raise error(f"{what}: index {worst} is out of range for a dimension of size {size}")


def windows(x: Any, size: tuple[int, ...], axes: tuple[int, ...]) -> Any:
    """All windows of `size` along `axes`, as a view with the window dimensions last."""
    return module(x).lib.stride_tricks.sliding_window_view(x, size, axis=axes)


def address(x: Any) -> int:
    """Where the first element of an array lies in the memory of its device."""
    if isinstance(x, np.ndarray):
        first: int = x.__array_interface__["data"][0]
        return first
    return int(x.data.ptr)


def overlaps_itself(x: Any) -> bool:
    """Whether several elements of an array share an address."""
    reach = x.itemsize
    if x.ndim == 2:  # the short way: 0.2 instead of 2 µs
        (rows, columns), (down, across) = x.shape, x.strides
        if down >= across * columns >= reach * columns or across >= down * rows >= reach * rows:
            return False
    steps = sorted([(abs(s), n) for s, n in zip(x.strides, x.shape, strict=True) if n > 1])
    for stride, n in steps:
        if stride < reach:
            break
        reach += stride * (n - 1)
    else:
        return False
    offsets = np.zeros(1, np.int64)
    for stride, n in steps:
        offsets = (offsets[:, None] + stride * np.arange(n)).reshape(-1)
    offsets.sort()
    return bool((np.diff(offsets) < x.itemsize).any())


def contiguous(x: Any) -> Any:
    """With the elements in memory in order, where `view` finds them; arrays and NumPy scalars.

    NumPy keeps the order of a permuted input, where PyTorch's results of joins, sums and indexing
    can always be viewed.
    """
    return x if x.flags.c_contiguous else module(x).ascontiguousarray(x)


def reduced(ufunc: Any, x: Any, dims: tuple[int, ...], keepdim: bool) -> Any:
    """A NumPy array folded, contiguous; `x.sum` and its like take 0.6 µs longer."""
    out = ufunc.reduce(x, dims, None, None, keepdim)
    return out if out.flags.c_contiguous else np.ascontiguousarray(out)


def widened(x: Any) -> Any:
    """Half precision as float32, for sums and products that round once at the end."""
    dtype = x.dtype
    if dtype is F32 or dtype is F64:
        return x
    return x.astype(np.float32) if numeric.is_half(dtype) else x


def rounded_once(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel of several steps that computes half precision in float32 and rounds at the end."""

    def run(*operands: Any) -> Any:
        for x in operands:
            if hasattr(x, "dtype") and numeric.is_half(x.dtype):
                wide = [widened(y) if hasattr(y, "dtype") else y for y in operands]
                return kernel(*wide).astype(x.dtype)
        return kernel(*operands)

    return run
