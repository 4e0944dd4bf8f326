"""`torch.accelerator`: functions for the GPU, if there is one."""

from __future__ import annotations

from typing import Any

from ... import cuda
from ...core.device import device


def is_available() -> bool:
    """Whether there is a GPU."""
    return cuda.is_available()


def device_count() -> int:
    """The number of GPUs."""
    return cuda.device_count()


def current_accelerator(check_available: bool = False) -> device | None:
    """The device `cuda`, or None if there is no GPU."""
    return device("cuda") if cuda.is_available() else None


def current_device_index() -> int:
    """The index of the current GPU."""
    return cuda.current_device()


current_device_idx = current_device_index


def set_device_index(device: Any) -> None:
    """Set the current GPU."""
    cuda.set_device(device)


def synchronize(device: Any = None) -> None:
    """Wait until the GPU has finished all enqueued work."""
    cuda.synchronize()


def empty_cache() -> None:
    """Return unused cached memory to the GPU."""
    cuda.empty_cache()


memory_allocated = cuda.memory_allocated
memory_reserved = cuda.memory_reserved
memory_stats = cuda.memory_stats
max_memory_allocated = cuda.max_memory_allocated
max_memory_reserved = cuda.max_memory_reserved
reset_peak_memory_stats = cuda.reset_peak_memory_stats
get_memory_info = cuda.mem_get_info
