"""Memory of a device: how it is allocated, copied, compared and bounded.

Comes in: arrays of NumPy or CuPy, and devices. Goes out: arrays on the same device, and facts about
their memory. Kernels compute with `xp.py`; this is for code that records programs and runs them
(`replay/trace/`, `replay/guards/`, `replay/use/`), and must not know which library has the memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import device as devices
from .device import CPU, Device, device_of, to_device
from .storage import owner_of
from .xp import address, contiguous, module

#: by class of an array: whether its memory is a GPU's
_gpu_classes: dict[type, bool] = {np.ndarray: False}


def is_gpu_class(kind: type) -> bool:
    """Whether arrays of a class are in the memory of a GPU."""
    found = _gpu_classes.get(kind)
    if found is None:
        found = _gpu_classes[kind] = hasattr(kind, "__cuda_array_interface__")
    return found


def has_memory(array: Any) -> bool:
    """Whether an array is NumPy's own or on a GPU: others have no elements of their own."""
    return array.__class__ is np.ndarray or is_gpu_class(array.__class__)


def is_on_host(array: Any) -> bool:
    """Whether an array is in the computer's own memory."""
    return isinstance(array, np.ndarray)


# -- allocating ----------------------------------------------------------------------------------


def allocator(target: Device) -> Callable[[Any, Any], Any]:
    """A function that makes an array of a shape and a dtype on a device, with any elements."""
    if target.type == "cpu":
        return np.empty
    library, index = devices.cupy(), target.index or 0

    def empty(shape: Any, dtype: Any) -> Any:
        with library.cuda.Device(index):
            return library.empty(shape, dtype)

    return empty


def filled(target: Device, shape: Any, dtype: Any, number: float) -> Any:
    """An array on a device, all elements of which are one number."""
    array = allocator(target)(shape, dtype)
    array[...] = number
    return array


def over(array: Any, start: int, count: int) -> Any:
    """An array of one dimension over the memory of another, from an address on."""
    memory = flat(owner_of(array))
    first = start - address(memory)
    return memory[first : first + count * array.itemsize].view(array.dtype)


def flat(owner: Any) -> Any:
    """The memory of an array that owns it, as bytes; None if it has gaps."""
    order = sorted(range(owner.ndim), key=lambda d: -owner.strides[d])
    ordered = owner.transpose(order)
    return ordered.reshape(-1).view(np.uint8) if ordered.flags.c_contiguous else None


# -- copying -------------------------------------------------------------------------------------


def on_host(array: Any) -> Any:
    """The elements of an array in the computer's memory; the array itself if it is there."""
    return array if isinstance(array, np.ndarray) else to_device(array, CPU)


def host_copy(array: Any) -> Any:
    """A copy of an array in the computer's memory."""
    return np.array(array) if isinstance(array, np.ndarray) else to_device(array, CPU)


def copy_into(target: Any, value: Any) -> None:
    """Give an array the elements of another one, which may be on another device."""
    if target.__class__ is not value.__class__:
        value = to_device(value, device_of(target))
    target[...] = value


def constant_of(array: Any) -> Any:
    """A copy of an array; one element stands for all if they are equal, as in new state."""
    if array.size > 1:
        first = array.reshape(-1)[:1].copy()
        if array.tobytes() == first.tobytes() * array.size:
            return module(array).broadcast_to(first.reshape(()), array.shape)
    return array.copy("K") if array.__class__ is np.ndarray else array.copy()


def as_contiguous(array: Any, dtype: Any) -> Any:
    """An array with its elements in memory in order, of a dtype."""
    if array.__class__ is np.ndarray:
        return np.ascontiguousarray(array, dtype)
    return contiguous(array.astype(dtype, copy=False))


def as_array(value: Any, dtype: Any, target: Device) -> Any:
    """What a kernel has made, a NumPy scalar too, as an array of a dtype on a device."""
    if target.type == "cpu":
        return np.asarray(on_host(value) if is_gpu_class(value.__class__) else value, dtype)
    if not is_gpu_class(value.__class__):
        return to_device(np.asarray(value, dtype), target)
    return to_device(value, target).astype(dtype, copy=False)


# -- comparing -----------------------------------------------------------------------------------


def is_writable(array: Any) -> bool:
    """Whether memory can be written to; that of a GPU always can."""
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
    """Shape, dtype, strides and device: arrays in which these are equal can be exchanged."""
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
    """The addresses of an array's first byte and of the byte after its last one."""
    start = end = address(array)
    for size, step in zip(array.shape, array.strides, strict=True):
        start += min((size - 1) * step, 0)
        end += max((size - 1) * step, 0)
    return start, end + array.itemsize if array.size else start


def may_share(a: Any, b: Any) -> bool:
    """Whether the bytes from the first to the last of two arrays overlap."""
    (start, end), (first, last) = bounds(a), bounds(b)
    return start < last and first < end
