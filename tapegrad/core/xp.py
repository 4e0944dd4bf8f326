"""The array functions that kernels use, for NumPy and CuPy arrays alike.

Comes in: arrays of either kind. Goes out: arrays of the same kind. NumPy's functions dispatch CuPy
arrays to CuPy, so most kernels just call NumPy. This module has what NumPy does not dispatch
(creating an array of the same kind, scatter, special functions), and what differs: CuPy wraps
indices that are out of range, so `check_index` checks them first. Called by the kernels in `ops/`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import numeric
from .ghost import Ghost
from .sparse import SparseArray, refusal

F32, F64 = np.dtype(np.float32), np.dtype(np.float64)

#: largest index, in elements, for which Python's `min` and `max` are faster than NumPy's
FEW_INDICES = 64

#: most elements that a product with ones sums faster than NumPy, and as exactly
FEW_ADDED = 1024

_ONES32, _ONES64 = np.ones(FEW_ADDED, F32), np.ones(FEW_ADDED, F64)


def module(x: Any) -> Any:
    """NumPy or CuPy, whichever made `x`."""
    if isinstance(x, (np.ndarray, np.generic, int, float)):
        return np
    if x.__class__ is SparseArray:
        raise refusal("this operation")
    import cupy

    return cupy


def special(x: Any) -> Any:
    """SciPy's special functions for the library that made `x`."""
    if module(x) is np:
        import scipy.special as functions

        return functions
    return _SPECIAL_ON_GPU


class _SpecialOnGPU:
    """CuPy's special functions; SciPy computes missing ones, on copies in host memory."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        import cupyx.scipy.special as functions

        found = getattr(functions, name, None)
        if found is not None:
            return found
        import cupy
        import scipy.special as others

        function = getattr(others, name)

        def computed(*arguments: Any) -> Any:
            made = function(*[x.get() if isinstance(x, cupy.ndarray) else x for x in arguments])
            return tuple(map(cupy.asarray, made)) if isinstance(made, tuple) else cupy.asarray(made)

        return computed


_SPECIAL_ON_GPU = _SpecialOnGPU()

#: dtypes that CuPy's `add.at` supports
_ADDED_ON_GPU = frozenset(
    map(np.dtype, ("float16", "float32", "float64", "int32", "int64", "uint32", "uint64"))
)


def add_at(target: Any, index: Any, values: Any) -> None:
    """`target[index] += values`, where repeated indices accumulate."""
    add = module(target).add
    if target.__class__ is np.ndarray or target.dtype in _ADDED_ON_GPU:
        add.at(target, index, values)
    elif numeric.is_complex(target.dtype):
        add.at(target.real, index, values.real)
        add.at(target.imag, index, values.imag)
    else:
        wide = target.astype(np.int64 if numeric.is_exact(target.dtype) else F32)
        add.at(wide, index, values.astype(wide.dtype) if hasattr(values, "astype") else values)
        target[...] = wide.astype(target.dtype)


def ends(x: Any) -> tuple[Any, Any]:
    """The smallest and the largest element, as Python numbers; both are NaN if one is."""
    if x.size <= FEW_INDICES and x.__class__ is np.ndarray and numeric.is_integer(x.dtype):
        values = x.ravel().tolist()
        return min(values), max(values)
    if x.__class__ is not np.ndarray:
        return x.min().item(), x.max().item()
    flat = x.ravel()
    return flat[flat.argmin()].item(), flat[flat.argmax()].item()  # NumPy's min takes 0.8 µs longer


def check_index(index: Any, size: int, what: str, error: type[Exception] = IndexError) -> None:
    """Raise `error` unless all of `index` lie in -size..size-1."""
    if index.size and index.__class__ is not Ghost:  # for a batch, the kernel checks
        low, high = ends(index)
        if low < -size or high >= size:
            worst = low if low < -size else high
            raise error(f"{what}: index {worst} is out of range for a dimension of size {size}")


def windows(x: Any, size: tuple[int, ...], axes: tuple[int, ...]) -> Any:
    """All windows of `size` along `axes`, as a view with the window dimensions last."""
    return module(x).lib.stride_tricks.sliding_window_view(x, size, axis=axes)


def strided_on_gpu(x: Any, shape: Any, strides: Any) -> Any:
    """A view of a CuPy array with the given strides, in bytes.

    The base of CuPy's own `as_strided` is not the array that owns the memory.
    """
    view = x.view()
    view._set_shape_and_strides(shape, strides, True, True)
    return view


def address(x: Any) -> int:
    """The address of an array's first element in the memory of its device."""
    if isinstance(x, np.ndarray):
        first: int = x.__array_interface__["data"][0]
        return first
    return int(x.data.ptr)


def overlaps_itself(x: Any) -> bool:
    """Whether several elements of an array share an address."""
    reach = x.itemsize
    if x.ndim == 2:  # a short path: 0.2 instead of 2 µs
        (rows, columns), (down, across) = x.shape, x.strides
        if down >= across * columns >= reach * columns or across >= down * rows >= reach * rows:
            return False
    steps = sorted([(abs(s), n) for s, n in zip(x.strides, x.shape, strict=True) if n > 1])
    if not x.size or (steps and not steps[0][0]):
        return bool(x.size)
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
    """An array or NumPy scalar in C order, so that `view` works.

    NumPy's results keep the memory order of a permuted input; PyTorch's results of joins, sums and
    indexing can always be viewed.
    """
    return x if x.flags.c_contiguous else module(x).ascontiguousarray(x)


def reduced(ufunc: Any, x: Any, dims: tuple[int, ...], keepdim: bool) -> Any:
    """A reduction of a NumPy array, contiguous; `x.sum` and the like take 0.6 µs longer."""
    out = ufunc.reduce(x, dims, None, None, keepdim)
    return out if out.flags.c_contiguous else np.ascontiguousarray(out)


def summed(x: Any, dims: tuple[int, ...], keepdim: bool) -> Any:
    """The sum of a float32 or float64 NumPy array along dims, contiguous.

    A product with ones takes 0.4 µs for few elements, where `np.add.reduce` takes 1.1 µs.
    """
    n = x.ndim
    if x.size <= FEW_ADDED and n <= 2 and x.flags.c_contiguous:
        ones = _ONES32 if x.dtype is F32 else _ONES64
        if len(dims) == n:
            out = (x if n == 1 else x.ravel()).dot(ones[: x.size])
            return out.reshape((1,) * n) if keepdim else out
        if dims == (1,):
            out = x.dot(ones[: x.shape[1]])
            return out[:, None] if keepdim else out
        if dims == (0,):
            out = ones[: x.shape[0]].dot(x)
            return out[None] if keepdim else out
    return reduced(np.add, x, dims, keepdim)


def spread(x: Any, shape: tuple[int, ...]) -> Any:
    """A copy of a NumPy array, broadcast to a shape.

    Arithmetic with arrays of few elements takes 0.6 µs longer if it has to broadcast one of them;
    this takes 0.3 µs.
    """
    out = np.empty(shape, x.dtype)
    out[...] = x
    return out


def is_plain(x: Any) -> bool:
    """Whether `x` is a NumPy array of float32 or float64 with dimensions, and no Tensor."""
    return x.__class__ is np.ndarray and (x.dtype is F32 or x.dtype is F64) and x.ndim > 0


def widened(x: Any) -> Any:
    """Half precision cast to float32, for sums and products that round once at the end."""
    dtype = x.dtype
    if dtype is F32 or dtype is F64:
        return x
    if dtype.itemsize == 1 and numeric.is_foreign(dtype):
        raise NotImplementedError(f"nothing is computed with {dtype}; convert with .to() first")
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
