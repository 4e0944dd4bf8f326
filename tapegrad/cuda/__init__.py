"""GPUs: devices, streams, memory, random numbers and synchronisation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .. import random
from ..core.deferred import settle
from ..core.device import cupy
from ..core.exhaustion import OutOfMemoryError
from .devices import (
    current_device,
    device,
    device_count,
    get_device_capability,
    get_device_name,
    get_device_properties,
    init,
    is_available,
    is_bf16_supported,
    is_initialized,
    set_device,
)
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
    "device",
    "device_count",
    "empty_cache",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
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
    "seed",
    "seed_all",
    "set_device",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
]


def manual_seed(seed: int) -> None:
    """Seed the random number generator, which all devices share."""
    random.manual_seed(seed)


manual_seed_all = manual_seed
seed = seed_all = random.seed
initial_seed = random.initial_seed


def get_rng_state(device: Any = None) -> Any:
    """The state of the random number generator, which all devices share."""
    return random.get_rng_state()


def set_rng_state(new_state: Any, device: Any = None) -> None:
    """Set the state of the random number generator, which all devices share."""
    random.set_rng_state(new_state)


def get_rng_state_all() -> list[Any]:
    """The state of the random number generator, once for each GPU."""
    return [random.get_rng_state() for _ in range(device_count())]


def set_rng_state_all(new_states: Iterable[Any]) -> None:
    """Set the state of the generator to the first of the states: all GPUs share it."""
    for state in list(new_states)[:1]:
        random.set_rng_state(state)


def empty_cache() -> None:
    """Return the memory that CuPy caches for reuse to the GPU; does nothing without one."""
    if is_available():
        cupy().get_default_memory_pool().free_all_blocks()


def synchronize() -> None:
    """Wait until the current GPU has finished its work; raises errors that programs found."""
    cupy().cuda.runtime.deviceSynchronize()
    settle()
