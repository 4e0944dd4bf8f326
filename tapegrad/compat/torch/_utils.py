"""`torch._utils`: what pickles of tensors call."""

from __future__ import annotations

from typing import Any

from ...core.layouts import LAYOUTS
from ...core.tensor import Tensor, wrap
from ...nn.parameter import Parameter
from ...ops.sparse.creation import sparse_coo_tensor
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


def _rebuild_sparse_tensor(layout: Any, data: tuple[Any, ...]) -> Tensor:
    """A sparse tensor of a file."""
    if layout is not LAYOUTS["sparse_coo"]:
        raise NotImplementedError(f"the file has a tensor of layout {layout}; there is sparse_coo")
    indices, values, size, *unique = data
    return sparse_coo_tensor(indices, values, size, is_coalesced=bool(unique and unique[0]))


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
    _rebuild_sparse_tensor,
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
        raise ValueError(f"{device} is not a CUDA device")
    return found.index or 0


def _flatten_dense_tensors(tensors: Any) -> Tensor:
    """All elements of tensors, one after another."""
    from ... import cat

    joined: Tensor = cat([x.reshape(-1) for x in tensors])
    return joined


def _unflatten_dense_tensors(flat: Tensor, tensors: Any) -> tuple[Tensor, ...]:
    """Parts of a flat tensor that have the shapes of tensors."""
    parts = flat.split([x.numel() for x in tensors])
    return tuple([part.reshape(x.shape) for part, x in zip(parts, tensors, strict=True)])


def _get_device_module(device_type: str) -> Any:
    """The module of a kind of device: `torch.cpu` or `torch.cuda`."""
    import importlib

    return importlib.import_module(f"torch.{device_type}")
