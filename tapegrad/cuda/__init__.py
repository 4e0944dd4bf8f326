"""GPUs: are there any, which is in use, waiting for them; their streams and their memory."""

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
    """Seed the random numbers: one generator serves all devices."""
    random.manual_seed(seed)


manual_seed_all = manual_seed
seed = seed_all = random.seed
initial_seed = random.initial_seed


def get_rng_state(device: Any = None) -> Any:
    """The state of the generator, which serves all devices."""
    return random.get_rng_state()


def set_rng_state(new_state: Any, device: Any = None) -> None:
    """Bring the generator, which serves all devices, back to a state."""
    random.set_rng_state(new_state)


def get_rng_state_all() -> list[Any]:
    """The state of the generator, once for each GPU."""
    return [random.get_rng_state() for _ in range(device_count())]


def set_rng_state_all(new_states: Iterable[Any]) -> None:
    """Bring the generator back to the first of the states: it serves all GPUs."""
    for state in list(new_states)[:1]:
        random.set_rng_state(state)


def empty_cache() -> None:
    """Give memory that CuPy keeps for reuse back to the GPU; nothing to do without one."""
    if is_available():
        cupy().get_default_memory_pool().free_all_blocks()


def synchronize() -> None:
    """Wait until the GPU has finished what it was given; raises what a program found meanwhile."""
    cupy().cuda.runtime.deviceSynchronize()
    settle()
