"""A stand-in for a GPU: memory, one device, and the driver's calls about it.

A part of the stand-in for CuPy (`stand_in_cupy.py`). The memory is the host's.
"""

from __future__ import annotations

import time
import types
from typing import Any, ClassVar

__name__ = "cupy.cuda"  # see `stand_in_cupy.py`


class Memory:
    """An allocation."""

    def __init__(self, host: Any) -> None:
        self.host = host
        self.ptr: int = host.__array_interface__["data"][0]
        self.size: int = host.nbytes
        self.device = Device(0)


class MemoryPointer:
    """An address in an allocation."""

    def __init__(self, mem: Memory, offset: int) -> None:
        self.mem = mem
        self.ptr = mem.ptr + offset
        self.device = mem.device
        self.device_id = 0

    def __add__(self, offset: int) -> MemoryPointer:
        return MemoryPointer(self.mem, self.ptr - self.mem.ptr + offset)

    def __int__(self) -> int:
        return self.ptr


class Device:
    """The only device."""

    def __init__(self, device: Any = 0) -> None:
        self.id = int(device)
        if self.id:
            raise CUDARuntimeError("cudaErrorInvalidDevice: invalid device ordinal")

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def __int__(self) -> int:
        return self.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.id == self.id

    def __hash__(self) -> int:
        return self.id

    def use(self) -> None:
        pass

    def synchronize(self) -> None:
        pass


class Event:
    """A point in a stream; all work before it is already done when it is recorded."""

    ptr = 7

    def __init__(self, block: bool = False, disable_timing: bool = False) -> None:
        self.is_timed = not disable_timing
        self.time = 0.0
        self.done = True

    def record(self, stream: Any = None) -> None:
        self.time = time.perf_counter()

    def synchronize(self) -> None:
        pass


def get_elapsed_time(start: Event, end: Event) -> float:
    assert start.is_timed
    assert end.is_timed
    return 1e3 * (end.time - start.time)


class Stream:
    """A stream whose work runs immediately."""

    null: Stream
    current: ClassVar[list[Stream]] = []
    done = True

    def __init__(self, non_blocking: bool = False, priority: Any = None, ptr: int = 0) -> None:
        self.ptr = ptr or id(self)
        self.waited: list[Event] = []

    def use(self) -> Stream:
        self.current[:] = [self]
        return self

    def wait_event(self, event: Event) -> None:
        self.waited.append(event)

    def synchronize(self) -> None:
        pass


Stream.null = Stream()
Stream.null.ptr = 0


def get_current_stream(device_id: int = -1) -> Stream:
    return Stream.current[0] if Stream.current else Stream.null


class MemoryHook:
    """A hook of allocations; the stand-in does not call it."""

    active: ClassVar[list[MemoryHook]] = []

    def __enter__(self) -> MemoryHook:
        self.active.append(self)
        return self


class OutOfMemoryError(Exception):
    """Raised by the pool."""


class Allocator:
    """Holds the allocation function; arrays of the stand-in do not call it."""

    def __init__(self) -> None:
        self.function: Any = self._refuse

    @staticmethod
    def _refuse(size: int) -> Any:
        raise OutOfMemoryError(f"Out of memory allocating {size} bytes")

    def get(self) -> Any:
        return self.function

    def set(self, function: Any) -> None:
        self.function = function


ALLOCATOR = Allocator()


class CUDARuntimeError(RuntimeError):
    """Raised by calls of the driver."""


class Pool:
    """The memory pool; it does not count the bytes in use, tests set them."""

    used, total = 1 << 20, 1 << 21

    def used_bytes(self) -> int:
        return self.used

    def total_bytes(self) -> int:
        return self.total

    def free_all_blocks(self) -> None:
        pass


def runtime() -> types.ModuleType:
    """The module `cupy.cuda.runtime`."""
    found = types.ModuleType("cupy.cuda.runtime")
    properties = {
        "name": b"stand-in for a GPU",
        "totalGlobalMem": 1 << 34,
        "multiProcessorCount": 1,
        "major": 9,
        "minor": 0,
    }
    found.getDeviceCount = lambda: 1  # type: ignore[attr-defined]
    found.getDevice = lambda: 0  # type: ignore[attr-defined]
    found.getDeviceProperties = lambda index: properties  # type: ignore[attr-defined]
    found.deviceSynchronize = lambda: None  # type: ignore[attr-defined]
    found.memGetInfo = lambda: (1 << 33, 1 << 34)  # type: ignore[attr-defined]
    found.CUDARuntimeError = CUDARuntimeError  # type: ignore[attr-defined]
    return found
