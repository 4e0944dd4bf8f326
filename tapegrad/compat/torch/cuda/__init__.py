"""`torch.cuda`: names that `tapegrad.cuda` lacks."""

from __future__ import annotations

from typing import Any

from ....core.exhaustion import OutOfMemoryError
from ....cuda import device_count
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
    """PyTorch's error for failed calls that waited for its initialization; not raised here."""


globals().update(TYPED)

#: one generator serves all devices
default_generators: tuple[Any, ...] = ()


def is_current_stream_capturing() -> bool:
    """False: there are no CUDA graphs."""
    return False


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
    """Does nothing: GPU memory is not shared between processes."""
