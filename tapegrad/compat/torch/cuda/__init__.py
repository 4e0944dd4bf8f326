"""`torch.cuda`: what it has beside `tapegrad.cuda`."""

from __future__ import annotations

from typing import Any, NamedTuple

from ....core.device import as_device, cupy
from ....core.exhaustion import OutOfMemoryError
from ....cuda import current_device, device_count, is_available
from ...absent import absent, absent_class
from .. import random
from .typed import TYPED

__all__ = ["OutOfMemoryError"]

_GRAPHS = "use torch.compile"

CUDAGraph = absent_class("torch.cuda.CUDAGraph", _GRAPHS)
graph = absent_class("torch.cuda.graph", _GRAPHS)
graph_pool_handle = absent("torch.cuda.graph_pool_handle", _GRAPHS)
make_graphed_callables = absent("torch.cuda.make_graphed_callables", _GRAPHS)


class DeferredCudaCallError(Exception):
    """What PyTorch raises if a call fails that waited for its initialization; none waits here."""


globals().update(TYPED)

#: one generator serves all devices
default_generators: tuple[Any, ...] = ()


class DeviceProperties(NamedTuple):
    """What a GPU is."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int


def get_device_properties(device: Any = None) -> DeviceProperties:
    """What a GPU is."""
    found = cupy().cuda.runtime.getDeviceProperties(_index(device))
    name = found["name"]
    return DeviceProperties(
        name.decode() if isinstance(name, bytes) else str(name),
        int(found["major"]),
        int(found["minor"]),
        int(found["totalGlobalMem"]),
        int(found["multiProcessorCount"]),
    )


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The compute capability of a GPU."""
    about = get_device_properties(device)
    return about.major, about.minor


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether kernels and cuBLAS compute with bfloat16 on this GPU."""
    return is_available() and get_device_capability()[0] >= 8


def is_initialized() -> bool:
    """Whether there is a GPU: nothing has to be initialized."""
    return is_available()


def init() -> None:
    """Nothing to do: nothing has to be initialized."""


def is_current_stream_capturing() -> bool:
    """False: there are no CUDA graphs."""
    return False


def set_device(device: Any) -> None:
    """Make a GPU the current one."""
    cupy().cuda.Device(_index(device)).use()


class CudaDevice:
    """A context in which a GPU is the current one; nothing changes for None and without a GPU."""

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


def get_rng_state(device: Any = "cuda") -> Any:
    """The state of the generator, which serves all devices."""
    return random.get_rng_state()


def set_rng_state(new_state: Any, device: Any = "cuda") -> None:
    """Set the state of the generator, which serves all devices."""
    random.set_rng_state(new_state)


def get_rng_state_all() -> list[Any]:
    """The state of the generator, once for each GPU."""
    return [random.get_rng_state() for _ in range(device_count())]


def set_rng_state_all(new_states: Any) -> None:
    """Set the state of the generator, which serves all devices."""
    for state in list(new_states)[:1]:
        random.set_rng_state(state)


def ipc_collect() -> None:
    """Nothing to collect: memory of GPUs is not shared between processes."""


def _index(device: Any) -> int:
    if device is None:
        return current_device()
    return device if isinstance(device, int) else as_device(device).index or 0
