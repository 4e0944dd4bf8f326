"""Arrays from what users give: numbers, nested lists, NumPy and CuPy arrays, tensors.

Comes in: the data of `tensor(...)`, with a dtype and a device if they are asked for. Goes out: an
array on that device. Called by `ops/creation.py`, and where a value may be given instead of a
tensor.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from . import dtypes
from .complexes import converted
from .device import ASKED, as_device, get_default_device, to_device
from .dtypes import DType
from .sparse import dense_array
from .tensor import Tensor, not_recorded
from .tree import first_of, holds_numbers, not_regular


def plain_array(array: Any) -> Any:
    """A plain NumPy array on the same memory, also for an array of a subclass such as `memmap`.

    Only the tensor has this object: attributes that the user sets later on the original, such as
    `flags.writeable`, do not change it. Replays check them only once.
    """
    return array.view(np.ndarray)


def as_array(data: Any, dtype: Any = None, device: Any = None) -> Any:
    """An array from anything array-like; Python floats become the default dtype."""
    if isinstance(data, Tensor):
        not_recorded(data, "making a tensor of another (use .detach().clone() or .to())")
        array = dense_array(data)
    elif isinstance(data, np.ndarray):
        array = plain_array(data)
    elif not (numbers_only := holds_numbers(data)) and hasattr(data, "__cuda_array_interface__"):
        array = data
    else:
        try:
            if not numbers_only and _is_mixed(data):
                data, promoted = _plain(data)
                dtype = promoted if dtype is None else dtype
            # Without the dtype, NumPy may choose float64 for integers beyond int64.
            array = np.asarray(data, np.uint64 if dtype is dtypes.uint64 else None)
        except (ValueError, RecursionError) as error:
            raise not_regular(data, error) from None
        if numbers_only or not isinstance(first_of(data), (np.generic, np.ndarray)):
            array = dtypes.of_numbers(array, None if dtype is None else dtypes.as_dtype(dtype))
    wanted = dtypes.from_numpy_dtype(array.dtype) if dtype is None else dtypes.as_dtype(dtype)
    if array.dtype is not wanted.numpy and array.dtype != wanted.numpy:
        array = converted(array, wanted)
    if device is None and (not ASKED or isinstance(data, Tensor)):
        return array
    return to_device(array, get_default_device() if device is None else as_device(device))


def _is_mixed(data: Any) -> bool:
    """Whether lists hold tensors, or NumPy scalars together with other types."""
    if not isinstance(data, (list, tuple)):
        return False
    kinds = set(map(type, data))
    looked_for = (Tensor, np.generic) if len(kinds) > 1 else Tensor
    if any(issubclass(kind, looked_for) for kind in kinds):
        return True
    return any(issubclass(kind, (list, tuple)) for kind in kinds) and any(map(_is_mixed, data))


def _plain(data: Any) -> tuple[Any, DType | None]:
    """Nested lists with one-element tensors replaced by numbers, and their common dtype."""
    if isinstance(data, (list, tuple)):
        parts = [_plain(item) for item in data]
        found = [dtype for _, dtype in parts if dtype is not None]
        common = functools.reduce(dtypes.promote_types, found) if found else None
        return [part for part, _ in parts], common
    if isinstance(data, Tensor):
        return data.item(), data.dtype
    return data, dtypes.from_numpy_dtype(data.dtype) if isinstance(
        data, np.generic
    ) else dtypes.number_dtype(data)
