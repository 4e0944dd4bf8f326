"""`torch._C`: the few names of PyTorch's C++ part that packages call without need."""

from __future__ import annotations

import enum
from typing import Any

from ...core.overriding import (
    DisableTorchFunction,
    DisableTorchFunctionSubclass,
    disabled_torch_function,
)
from ...core.tensor import Tensor
from ...ops.linalg.matrices import LinAlgError as _LinAlgError  # noqa: F401
from ..absent import absent_class

__all__ = ["DisableTorchFunction", "DisableTorchFunctionSubclass", "DispatchKey", "DispatchKeySet"]

_disabled_torch_function_impl = disabled_torch_function
_TensorMeta = type(Tensor)

_GRAPHS = "a tapegrad.Tape records operations"
Graph = absent_class("torch._C.Graph", _GRAPHS)
Node = absent_class("torch._C.Node", _GRAPHS)
Value = absent_class("torch._C.Value", _GRAPHS)


class _nn:
    """Functions of layers."""

    @staticmethod
    def _parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
        """What the arguments of `Module.to` mean: device, dtype, non_blocking, memory format."""
        from ...core.device import as_device
        from ...nn.module import _parse_to

        place, dtype = _parse_to(args, dict(kwargs))
        blocking = bool(kwargs.get("non_blocking", False))
        place = None if place is None else as_device(place)
        return place, dtype, blocking, kwargs.get("memory_format")


def _log_api_usage_once(name: str) -> None:
    """Nothing to do: as in PyTorch, unless a program has set a logger."""


def _get_tracing_state() -> None:
    """None: nothing is traced."""
    return


def _is_tracing() -> bool:
    """False: nothing is traced."""
    return False


def _is_torch_function_enabled() -> bool:
    """Whether `__torch_function__` is asked: only of classes that have one."""
    return True


def _get_privateuse1_backend_name() -> str:
    """The name of PyTorch's device for extensions, which nothing has renamed."""
    return "privateuseone"


def _has_storage(x: Any) -> bool:
    """True: every tensor has memory."""
    return True


class DispatchKey(enum.Enum):
    """Names of PyTorch's kinds of kernels; tables of packages name them."""

    Undefined = enum.auto()
    CPU = enum.auto()
    CUDA = enum.auto()
    Meta = enum.auto()
    Autograd = enum.auto()
    AutogradCPU = enum.auto()
    AutogradCUDA = enum.auto()
    AutocastCPU = enum.auto()
    AutocastCUDA = enum.auto()
    AutocastXPU = enum.auto()
    CompositeImplicitAutograd = enum.auto()
    CompositeExplicitAutograd = enum.auto()


class DispatchKeySet:
    """A set of such names."""

    def __init__(self, *keys: DispatchKey) -> None:
        self._keys = frozenset(keys)

    def __or__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(*self._keys, *other._keys)

    def has(self, key: DispatchKey) -> bool:
        """Whether a name is in the set."""
        return key in self._keys


_ExcludeDispatchKeyGuard = absent_class(
    "torch._C._ExcludeDispatchKeyGuard", "operations are not dispatched by keys"
)
