"""`torch.accelerator`: the GPU, if there is one, whatever its kind."""

from __future__ import annotations

from typing import Any

from ... import cuda
from ...core.device import device


def is_available() -> bool:
    """Whether there is a GPU."""
    return cuda.is_available()


def device_count() -> int:
    """How many GPUs there are."""
    return cuda.device_count()


def current_accelerator(check_available: bool = False) -> device | None:
    """The kind of GPU: `cuda`, or None where there is none."""
    return device("cuda") if cuda.is_available() else None


def current_device_index() -> int:
    """The number of the GPU in use."""
    return cuda.current_device()


current_device_idx = current_device_index


def set_device_index(device: Any) -> None:
    """Make the GPU of a number the one in use."""
    cuda.set_device(device)


def synchronize(device: Any = None) -> None:
    """Wait until the GPU has finished what it was given."""
    cuda.synchronize()


def empty_cache() -> None:
    """Give memory that is kept for reuse back to the GPU."""
    cuda.empty_cache()


memory_allocated = cuda.memory_allocated
memory_reserved = cuda.memory_reserved
memory_stats = cuda.memory_stats
max_memory_allocated = cuda.max_memory_allocated
max_memory_reserved = cuda.max_memory_reserved
reset_peak_memory_stats = cuda.reset_peak_memory_stats
get_memory_info = cuda.mem_get_info
