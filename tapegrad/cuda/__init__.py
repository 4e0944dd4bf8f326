"""GPUs: are there any, which is in use, waiting for them; their streams and their memory."""

from __future__ import annotations

from typing import Any

from .. import random
from ..core.deferred import settle
from ..core.device import cupy
from ..core.exhaustion import OutOfMemoryError
from .memory import (
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_stats,
    memory_summary,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_memory_stats,
)
from .streams import (
    Event,
    ExternalStream,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    set_stream,
    stream,
)

__all__ = [
    "Event",
    "ExternalStream",
    "OutOfMemoryError",
    "Stream",
    "StreamContext",
    "current_device",
    "current_stream",
    "default_stream",
    "device_count",
    "empty_cache",
    "get_device_name",
    "is_available",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_memory_stats",
    "set_stream",
    "stream",
    "synchronize",
]


def device_count() -> int:
    """How many GPUs CuPy can use; 0 without CuPy."""
    try:
        return int(cupy().cuda.runtime.getDeviceCount())
    except RuntimeError:
        return 0


def is_available() -> bool:
    """Whether tensors can live on a GPU here."""
    return device_count() > 0


def current_device() -> int:
    """The index of the GPU in use."""
    return int(cupy().cuda.runtime.getDevice())


def get_device_name(index: int = 0) -> str:
    """The name of a GPU."""
    name: Any = cupy().cuda.runtime.getDeviceProperties(index)["name"]
    return name.decode() if isinstance(name, bytes) else str(name)


def manual_seed(seed: int) -> None:
    """Seed the random numbers: one generator serves all devices."""
    random.manual_seed(seed)


manual_seed_all = manual_seed


def empty_cache() -> None:
    """Give memory that CuPy keeps for reuse back to the GPU; nothing to do without one."""
    if is_available():
        cupy().get_default_memory_pool().free_all_blocks()


def synchronize() -> None:
    """Wait until the GPU has finished what it was given; raises what a program found meanwhile."""
    cupy().cuda.runtime.deviceSynchronize()
    settle()
