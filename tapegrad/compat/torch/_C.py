"""`torch._C`: the few names of PyTorch's C++ extension that packages use needlessly."""

from __future__ import annotations

import enum
from typing import Any

from ...core.overriding import (
    LOCAL,
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
        """Parse arguments of `Module.to` into device, dtype, non_blocking, memory format."""
        from ...core.device import as_device
        from ...nn.module import _parse_to

        place, dtype = _parse_to(args, dict(kwargs))
        blocking = bool(kwargs.get("non_blocking", False))
        place = None if place is None else as_device(place)
        return place, dtype, blocking, kwargs.get("memory_format")


def _log_api_usage_once(name: str) -> None:
    """Does nothing, as in PyTorch unless a program has set a logger."""


def _get_tracing_state() -> None:
    """None: nothing is traced."""
    return


def _is_tracing() -> bool:
    """False: nothing is traced."""
    return False


def _is_torch_function_enabled() -> bool:
    """Whether the `__torch_function__` of subclasses is called now."""
    return not LOCAL.disabled


def _get_privateuse1_backend_name() -> str:
    """PyTorch's name of the device type for extensions; it is never renamed here."""
    return "privateuseone"


def _has_storage(x: Any) -> bool:
    """True: every tensor has memory."""
    return True


class DispatchKey(enum.Enum):
    """PyTorch's dispatch keys; tables in packages refer to them."""

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
    """A set of dispatch keys."""

    def __init__(self, *keys: DispatchKey) -> None:
        self._keys = frozenset(keys)

    def __or__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(*self._keys, *other._keys)

    def has(self, key: DispatchKey) -> bool:
        """Whether a key is in the set."""
        return key in self._keys


_ExcludeDispatchKeyGuard = absent_class(
    "torch._C._ExcludeDispatchKeyGuard", "operations are not dispatched by keys"
)
