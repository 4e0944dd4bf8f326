"""Devices: where a tensor's array is stored. `cpu` means a NumPy array, `cuda` a CuPy array.

Comes in: names such as "cuda:1", and arrays. Goes out: `device` objects, and arrays moved to a
device. CuPy is imported only when a CUDA device is first asked for. Called wherever tensors are
made or moved: `tensor.py`, `ops/creation.py`, `ops/convert.py`, `nn/module.py`, `saving/`.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from .deferred import settle
from .exhaustion import watched
from .pinning import is_pinned

_INSTALL = (
    "device 'cuda' needs CuPy and an NVIDIA GPU: install tapegrad with its 'cuda' extra "
    "(pip install 'tapegrad[cuda]') on a machine with a working driver, or use device='cpu'"
)


#: device types of PyTorch that exist here as names only: they compare, but hold no tensors
NAMES = (
    *("meta", "mps", "xpu", "xla", "hpu", "mtia", "ipu", "hip", "vulkan", "mkldnn", "lazy", "maia"),
    *("fpga", "privateuseone"),
)


_KNOWN = frozenset(("cpu", "cuda", *NAMES))


class device:
    """Where tensors are stored: `device('cpu')`, `device('cuda')`, `device('cuda', 1)`.

    >>> import tapegrad
    >>> tapegrad.device("cpu")
    device(type='cpu')
    """

    __slots__ = ("index", "type")

    type: str
    index: int | None

    def __init__(self, type: Any, index: int | None = None) -> None:
        if isinstance(type, device):
            index = type.index if index is None else index
            type = type.type
        elif isinstance(type, int) and not isinstance(type, bool):
            type, index = "cuda", type
        if not isinstance(type, str):
            raise TypeError(f"expected a device name such as 'cpu' or 'cuda:0', got {type!r}")
        name, _, ordinal = type.partition(":")
        if name not in _KNOWN or (ordinal and not ordinal.isdigit()):
            raise RuntimeError(f"unknown device {type!r}: expected 'cpu', 'cuda' or 'cuda:N'")
        if index is not None and index < 0:
            raise RuntimeError(f"the index of a device must not be negative, got {index}")
        self.type = name
        self.index = int(ordinal) if ordinal else index

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, device):
            return NotImplemented
        return (self.type, self.index or 0) == (other.type, other.index or 0)

    def __hash__(self) -> int:
        return hash((self.type, self.index or 0))

    def __repr__(self) -> str:
        index = "" if self.index is None else f", index={self.index}"
        return f"device(type={self.type!r}{index})"

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __reduce__(self) -> tuple[Any, ...]:
        return device, (str(self),)

    def __enter__(self) -> device:
        """Inside `with device:`, tensors are made there unless another device is given."""
        _DEFAULT.contexts = (*_DEFAULT.contexts, self)
        ASKED[:] = [True]
        return self

    def __exit__(self, *exc: object) -> None:
        _DEFAULT.contexts = _DEFAULT.contexts[:-1]

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A decorator: the function runs inside `with device:`."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return call


Device = device
CPU = device("cpu")
META = device("meta")


#: array classes with memory on a GPU: CuPy's, once it is in use
GPU_CLASSES: set[Any] = set()


class MetaArray(np.ndarray[Any, Any]):
    """The array of a tensor on the device "meta": a shape and a dtype over one element."""


class _Default(threading.local):
    """The default device that a thread has set, and the devices of its open contexts."""

    own: device | None = None
    contexts: tuple[device, ...] = ()


_DEFAULT = _Default()

#: empty until a thread sets a default device, so that until then checks are skipped
ASKED: list[bool] = []


def set_default_device(device: Any) -> None:
    """Set the device on which tensors are made by default; None means the CPU again."""
    _DEFAULT.own = None if device is None else as_device(device)
    ASKED[:] = [True]


def get_default_device() -> device:
    """The device where tensors are made if no other is given.

    >>> import tapegrad
    >>> tapegrad.get_default_device()
    device(type='cpu')
    """
    if _DEFAULT.contexts:
        return _DEFAULT.contexts[-1]
    return CPU if _DEFAULT.own is None else _DEFAULT.own


def as_device(value: Any) -> device:
    """Accept a device, a name, or None for the CPU."""
    if isinstance(value, device):
        return value
    return CPU if value is None or value == "cpu" else device(value)


def cupy() -> Any:
    """The CuPy module, or RuntimeError that says what to install."""
    try:
        import cupy as module

        if module.cuda.runtime.getDeviceCount() == 0:
            raise RuntimeError(_INSTALL)
    except ImportError:
        raise RuntimeError(_INSTALL) from None
    except Exception as error:
        if type(error).__name__ == "CUDARuntimeError":
            raise RuntimeError(f"{_INSTALL} ({error})") from None
        raise
    if module.ndarray not in GPU_CLASSES:
        GPU_CLASSES.add(module.ndarray)
        watched(module)
    return module


def device_of(array: Any) -> device:
    """The device that holds `array`."""
    if isinstance(array, (np.ndarray, np.generic)):
        return CPU
    return device("cuda", int(array.device.id))


def to_device(array: Any, target: device, waits: bool = True) -> Any:
    """`array` on `target`, copied only when it is elsewhere.

    With `waits`, a copy from pinned memory is complete on return; without it, the array must not
    change before the copy ends.
    """
    on_cpu = isinstance(array, np.ndarray)
    if target.type == "cpu":
        if on_cpu:
            return array
        settle()
        return array.get()
    if target.type == "meta":
        return np.broadcast_to(np.zeros((), array.dtype), array.shape).view(MetaArray)
    if target.type != "cuda":
        raise NotImplementedError(
            f"device {str(target)!r} is a name only: tapegrad has no tensors there; "
            "use 'cpu' or 'cuda'"
        )
    module = cupy()
    index = target.index or 0
    if not on_cpu and int(array.device.id) == index:
        return array
    with module.cuda.Device(index):
        made = module.asarray(array)
        if on_cpu and waits and is_pinned(array):
            module.cuda.get_current_stream().synchronize()
        return made
