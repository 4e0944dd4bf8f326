"""Functions that make tensors: from data, filled, or as ranges, with the standard's arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core import dtypes
from ..core.dtypes import DType
from ..core.tensor import Tensor
from .operands import as_tensor, computed, operation


def _tensor(data: Any, **options: Any) -> Tensor:
    return computed("tensor", data, **options)


def asarray(
    obj: Any, /, *, dtype: DType | None = None, device: Any = None, copy: bool | None = None
) -> Tensor:
    """A tensor of numbers, nested sequences, arrays or tensors.

    With `copy=None` memory is shared if possible; `copy=False` raises if it cannot be shared.

    >>> from tapegrad import array_api as xp
    >>> xp.asarray([[1, 2], [3, 4]])
    tensor([[1, 2],
            [3, 4]])
    """
    if copy:
        return _tensor(obj, dtype=dtype, device=device).detach()
    if isinstance(obj, Tensor):
        out = obj if dtype is None else obj.to(dtype)
        out = out if device is None else out.to(device)
    elif isinstance(obj, np.ndarray):
        out = computed("as_tensor", obj, dtype=dtype, device=device)
        if copy is False and not np.shares_memory(out._array, obj) and obj.size:
            raise ValueError("asarray with copy=False: this array has to be copied")
        return out
    elif hasattr(obj, "__dlpack__"):
        out = from_dlpack(obj)
        return out if dtype is None else out.to(dtype)
    else:
        if copy is False:
            raise ValueError("asarray with copy=False needs an array, numbers are copied")
        return _from_numbers(obj, dtype, device)
    if copy is False and out is not obj:
        raise ValueError("asarray with copy=False: this tensor has to be copied")
    return out


def _from_numbers(obj: Any, dtype: DType | None, device: Any) -> Tensor:
    if dtype is None and isinstance(obj, int) and not isinstance(obj, bool):
        limits = np.iinfo(np.int64)
        if not limits.min <= obj <= limits.max:
            raise OverflowError(f"asarray: {obj} does not fit into int64")
    return _tensor(obj, dtype=dtype, device=device)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor that shares the memory of an object that supports DLPack.

    >>> import numpy as np
    >>> from tapegrad import array_api as xp
    >>> xp.from_dlpack(np.ones(2))
    tensor([1., 1.], dtype=tapegrad.float64)
    """
    out = computed("from_dlpack", x._array if isinstance(x, Tensor) else x)
    if copy:
        out = out.clone()
    return out if device is None else out.to(device)


def arange(
    start: float,
    /,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: DType | None = None,
    device: Any = None,
) -> Tensor:
    """Numbers from start up to but not including stop; empty if stop cannot be reached.

    >>> from tapegrad import array_api as xp
    >>> xp.arange(1, 7, 2)
    tensor([1, 3, 5])
    """
    if stop is None:
        start, stop = 0, start
    if dtype is None:
        whole = all(isinstance(n, int) for n in (start, stop, step))
        dtype = dtypes.int64 if whole else dtypes.float32
    if (stop - start) * step <= 0:
        return computed("empty", 0, dtype=dtype, device=device)
    return computed("arange", start, stop, step, dtype=dtype, device=device)


def linspace(
    start: complex,
    stop: complex,
    /,
    num: int,
    *,
    dtype: DType | None = None,
    device: Any = None,
    endpoint: bool = True,
) -> Tensor:
    """`num` numbers evenly spaced from start to stop; stop itself is excluded if `endpoint=False`.

    >>> from tapegrad import array_api as xp
    >>> xp.linspace(0, 1, 4, endpoint=False)
    tensor([0.0000, 0.2500, 0.5000, 0.7500])
    """
    if dtype is None:
        complex_ = isinstance(start, complex) or isinstance(stop, complex)
        dtype = dtypes.complex64 if complex_ else dtypes.float32
    wide = np.complex128 if dtype.is_complex else np.float64
    values = np.linspace(start, stop, num, endpoint=endpoint, dtype=wide)
    return _tensor(values, dtype=dtype, device=device)


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: DType | None = None,
    device: Any = None,
) -> Tensor:
    """Ones on the k-th diagonal, zeros elsewhere.

    >>> from tapegrad import array_api as xp
    >>> xp.eye(2, 3, k=1)
    tensor([[0., 1., 0.],
            [0., 0., 1.]])
    """
    dtype = dtypes.float32 if dtype is None else dtype
    return _tensor(np.eye(n_rows, n_cols, k, dtype.numpy), device=device)


def _shape(shape: Any) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def zeros(shape: Any, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """A tensor of zeros."""
    return computed("zeros", _shape(shape), dtype=dtype or dtypes.float32, device=device)


def ones(shape: Any, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """A tensor of ones."""
    return computed("ones", _shape(shape), dtype=dtype or dtypes.float32, device=device)


def empty(shape: Any, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """An uninitialised tensor."""
    return computed("empty", _shape(shape), dtype=dtype or dtypes.float32, device=device)


def full(
    shape: Any, fill_value: complex, *, dtype: DType | None = None, device: Any = None
) -> Tensor:
    """A tensor filled with one value."""
    return computed("full", _shape(shape), fill_value, dtype=dtype, device=device)


def zeros_like(x: Tensor, /, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """Zeros with the shape, and by default the dtype, of a tensor."""
    return zeros(tuple(as_tensor(x).shape), dtype=dtype or x.dtype, device=device)


def ones_like(x: Tensor, /, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """Ones with the shape, and by default the dtype, of a tensor."""
    return ones(tuple(as_tensor(x).shape), dtype=dtype or x.dtype, device=device)


def empty_like(x: Tensor, /, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """An uninitialised tensor with the shape, and by default the dtype, of another."""
    return empty(tuple(as_tensor(x).shape), dtype=dtype or x.dtype, device=device)


def full_like(
    x: Tensor, /, fill_value: complex, *, dtype: DType | None = None, device: Any = None
) -> Tensor:
    """One value, with the shape, and by default the dtype, of a tensor."""
    return full(tuple(as_tensor(x).shape), fill_value, dtype=dtype or x.dtype, device=device)


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> tuple[Tensor, ...]:
    """The coordinates of a grid, one tensor for each dimension."""
    return tuple(operation("meshgrid")(*arrays, indexing=indexing)) if arrays else ()


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The lower triangle of matrices, zeros above the k-th diagonal."""
    return as_tensor(x).tril(k)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The upper triangle of matrices, zeros below the k-th diagonal."""
    return as_tensor(x).triu(k)


__all__ = [
    *("arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like"),
    *("linspace", "meshgrid", "ones", "ones_like", "tril", "triu", "zeros", "zeros_like"),
]
