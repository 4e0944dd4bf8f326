"""The available GPUs, their properties, and the current one.

Called through `tapegrad.cuda`. The runtime's functions come from CuPy.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..core.device import as_device, cupy


def device_count() -> int:
    """The number of GPUs that CuPy can use; 0 without CuPy."""
    try:
        return int(cupy().cuda.runtime.getDeviceCount())
    except RuntimeError:
        return 0


def is_available() -> bool:
    """Whether there is a GPU that CuPy can use."""
    return device_count() > 0


def current_device() -> int:
    """The index of the current GPU."""
    return int(cupy().cuda.runtime.getDevice())


class DeviceProperties(NamedTuple):
    """Properties of a GPU: name, compute capability, bytes of memory, multiprocessors."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int


def get_device_properties(device: Any = None) -> DeviceProperties:
    """The properties of a GPU, by default of the current one."""
    found = cupy().cuda.runtime.getDeviceProperties(_index(device))
    name = found["name"]
    return DeviceProperties(
        name.decode() if isinstance(name, bytes) else str(name),
        int(found["major"]),
        int(found["minor"]),
        int(found["totalGlobalMem"]),
        int(found["multiProcessorCount"]),
    )


def get_device_name(device: Any = None) -> str:
    """The name of a GPU."""
    return get_device_properties(device).name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The compute capability of a GPU."""
    about = get_device_properties(device)
    return about.major, about.minor


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether kernels and cuBLAS compute with bfloat16 on the current GPU."""
    return is_available() and get_device_capability()[0] >= 8


def is_initialized() -> bool:
    """Whether there is a GPU: no initialization is needed."""
    return is_available()


def init() -> None:
    """Do nothing: no initialization is needed."""


def set_device(device: Any) -> None:
    """Make a GPU the current one."""
    cupy().cuda.Device(_index(device)).use()


class CudaDevice:
    """A context in which a GPU is the current one; does nothing for None or without a GPU."""

    def __init__(self, device: Any) -> None:
        self._index = None if device is None or not is_available() else _index(device)
        self._before = 0

    def __enter__(self) -> None:
        if self._index is not None:
            self._before = current_device()
            set_device(self._index)

    def __exit__(self, *error: object) -> None:
        if self._index is not None:
            set_device(self._before)


device = CudaDevice


def _index(device: Any) -> int:
    if device is None:
        return current_device()
    return device if isinstance(device, int) else as_device(device).index or 0
