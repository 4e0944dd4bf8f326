"""Memory of a device: allocate, copy, compare and bound it.

Comes in: arrays of NumPy or CuPy, and devices. Goes out: arrays on the same device, and facts about
their memory. Kernels compute with `xp.py`; this is for code that records programs and runs them
(`replay/trace/`, `replay/guards/`, `replay/use/`), which works for both libraries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import device as devices
from .device import CPU, Device, device_of, to_device
from .storage import owner_of
from .xp import address, contiguous, module

#: for each class of arrays, whether its memory is on a GPU
_gpu_classes: dict[type, bool] = {np.ndarray: False}


def is_gpu_class(kind: type) -> bool:
    """Whether arrays of a class have their memory on a GPU."""
    found = _gpu_classes.get(kind)
    if found is None:
        found = _gpu_classes[kind] = hasattr(kind, "__cuda_array_interface__")
    return found


def has_memory(array: Any) -> bool:
    """Whether an array is a plain NumPy array or on a GPU; other classes have no elements."""
    return array.__class__ is np.ndarray or is_gpu_class(array.__class__)


def is_on_host(array: Any) -> bool:
    """Whether an array is in host memory."""
    return isinstance(array, np.ndarray)


# -- allocating ----------------------------------------------------------------------------------


def allocator(target: Device) -> Callable[[Any, Any], Any]:
    """A function that allocates an uninitialized array on a device, given shape and dtype."""
    if target.type == "cpu":
        return np.empty
    library, index = devices.cupy(), target.index or 0

    def empty(shape: Any, dtype: Any) -> Any:
        with library.cuda.Device(index):
            return library.empty(shape, dtype)

    return empty


def filled(target: Device, shape: Any, dtype: Any, number: float) -> Any:
    """An array on a device, filled with one number."""
    array = allocator(target)(shape, dtype)
    array[...] = number
    return array


def over(array: Any, start: int, count: int) -> Any:
    """A 1-d view of `count` elements in another array's memory, from the address `start`."""
    memory = flat(owner_of(array))
    first = start - address(memory)
    return memory[first : first + count * array.itemsize].view(array.dtype)


def flat(owner: Any) -> Any:
    """The memory of an owning array, as bytes; None if it has gaps."""
    order = sorted(range(owner.ndim), key=lambda d: -owner.strides[d])
    ordered = owner.transpose(order)
    return ordered.reshape(-1).view(np.uint8) if ordered.flags.c_contiguous else None


# -- copying -------------------------------------------------------------------------------------


def on_host(array: Any) -> Any:
    """The array in host memory; the array itself if it is there already."""
    return array if isinstance(array, np.ndarray) else to_device(array, CPU)


def host_copy(array: Any) -> Any:
    """A copy of an array in host memory."""
    return np.array(array) if isinstance(array, np.ndarray) else to_device(array, CPU)


def copy_into(target: Any, value: Any) -> None:
    """Copy the elements of an array into another one, possibly on another device."""
    if target.__class__ is not value.__class__:
        value = to_device(value, device_of(target))
    target[...] = value


def constant_of(array: Any) -> Any:
    """A copy of an array; one broadcast element if all are equal, as in new optimizer state."""
    if array.size > 1:
        first = array.reshape(-1)[:1].copy()
        if array.tobytes() == first.tobytes() * array.size:
            return module(array).broadcast_to(first.reshape(()), array.shape)
    return array.copy("K") if array.__class__ is np.ndarray else array.copy()


def as_contiguous(array: Any, dtype: Any) -> Any:
    """The array, C-contiguous and in a dtype."""
    if array.__class__ is np.ndarray:
        return np.ascontiguousarray(array, dtype)
    return contiguous(array.astype(dtype, copy=False))


def as_array(value: Any, dtype: Any, target: Device) -> Any:
    """The result of a kernel, possibly a NumPy scalar, as an array of a dtype on a device."""
    if target.type == "cpu":
        return np.asarray(on_host(value) if is_gpu_class(value.__class__) else value, dtype)
    if not is_gpu_class(value.__class__):
        return to_device(np.asarray(value, dtype), target)
    return to_device(value, target).astype(dtype, copy=False)


# -- comparing -----------------------------------------------------------------------------------


def is_writable(array: Any) -> bool:
    """Whether the memory of an array is writable; on a GPU it always is."""
    return array.__class__ is not np.ndarray or bool(array.flags.writeable)


def why_unusual(array: Any) -> str | None:
    """Why programs cannot read the memory of an array; None if they can."""
    aligned = not isinstance(array, np.ndarray) or array.flags.aligned
    if not aligned or any(s % array.itemsize for s in array.strides):
        return "it reads a tensor whose memory is not aligned to its elements"
    if not array.dtype.isnative:
        return "it reads a tensor in the byte order of another machine"
    return None


def layout_of(array: Any) -> tuple[Any, ...]:
    """Shape, dtype, strides and device: arrays with equal layouts are interchangeable."""
    place = np.ndarray if array.__class__ is np.ndarray else device_of(array)
    return array.shape, array.dtype, array.strides, place


def memory_of(array: Any) -> Any:
    """The object that owns the memory of an array."""
    kind = np.ndarray if isinstance(array, np.ndarray) else array.__class__
    base = array.base
    while isinstance(base, kind):
        array, base = base, base.base
    return array if base is None else base


def bounds(array: Any) -> tuple[int, int]:
    """The addresses of an array's first byte and of the byte after its last."""
    start = end = address(array)
    for size, step in zip(array.shape, array.strides, strict=True):
        start += min((size - 1) * step, 0)
        end += max((size - 1) * step, 0)
    return start, end + array.itemsize if array.size else start


def may_share(a: Any, b: Any) -> bool:
    """Whether two arrays' address ranges, from first to last byte, overlap."""
    (start, end), (first, last) = bounds(a), bounds(b)
    return start < last and first < end
