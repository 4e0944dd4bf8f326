"""`torch._utils`: what pickles of tensors call."""

from __future__ import annotations

from typing import Any

from ...core.tensor import Tensor, wrap
from ...nn.parameter import Parameter
from ...saving.pytorch import strided_view


def _rebuild_tensor_v2(
    storage: Any,
    storage_offset: int,
    size: Any,
    stride: Any,
    requires_grad: bool = False,
    backward_hooks: Any = None,
    metadata: Any = None,
) -> Tensor:
    """A tensor of a file, over the memory of its storage."""
    tensor = _rebuild_tensor(storage, storage_offset, size, stride)
    return tensor.requires_grad_() if requires_grad else tensor


def _rebuild_tensor(storage: Any, storage_offset: int, size: Any, stride: Any) -> Tensor:
    """A tensor of an older file."""
    return wrap(strided_view(storage.array, storage_offset, tuple(size), tuple(stride)))


def _rebuild_parameter(data: Tensor, requires_grad: bool, backward_hooks: Any) -> Parameter:
    """A parameter of a file."""
    parameter = wrap(data._array, Parameter)
    parameter.requires_grad_(requires_grad)
    assert isinstance(parameter, Parameter)
    return parameter


def _rebuild_parameter_with_state(
    data: Tensor, requires_grad: bool, backward_hooks: Any, state: Any
) -> Parameter:
    """A parameter of a file, with attributes that were set on it."""
    parameter = _rebuild_parameter(data, requires_grad, backward_hooks)
    for name, value in (state if isinstance(state, dict) else {}).items():
        setattr(parameter, name, value)
    return parameter


for _function in (
    *(_rebuild_tensor_v2, _rebuild_tensor, _rebuild_parameter, _rebuild_parameter_with_state),
):
    _function.__module__ = "torch._utils"  # the name in pickles


def _get_available_device_type() -> str | None:
    """The kind of accelerator that can be used here: "cuda" or None."""
    from ... import cuda

    return "cuda" if cuda.is_available() else None


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """The number of a device; -1 for the CPU where that is allowed."""
    from ...core.device import as_device

    if isinstance(device, int):
        return device
    if device is None and optional:
        return 0
    found = as_device(device)
    if found.type == "cpu":
        if allow_cpu:
            return -1
        raise ValueError(f"expected a cuda device, but got: {device}")
    return found.index or 0
