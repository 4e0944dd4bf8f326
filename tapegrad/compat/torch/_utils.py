"""`torch._utils`: functions that pickles of tensors call, and helpers that packages use."""

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
    """Rebuild a tensor of a file as a view of its storage."""
    tensor = _rebuild_tensor(storage, storage_offset, size, stride)
    return tensor.requires_grad_() if requires_grad else tensor


def _rebuild_tensor(storage: Any, storage_offset: int, size: Any, stride: Any) -> Tensor:
    """Rebuild a tensor of an older file."""
    return wrap(strided_view(storage.array, storage_offset, tuple(size), tuple(stride)))


def _rebuild_sparse_tensor(layout: Any, data: tuple[Any, ...]) -> Tensor:
    """Rebuild a sparse tensor of a file."""
    if layout is not LAYOUTS["sparse_coo"]:
        raise NotImplementedError(f"the file has a tensor of layout {layout}; there is sparse_coo")
    indices, values, size, *unique = data
    return sparse_coo_tensor(indices, values, size, is_coalesced=bool(unique and unique[0]))


def _rebuild_parameter(data: Tensor, requires_grad: bool, backward_hooks: Any) -> Parameter:
    """Rebuild a parameter of a file."""
    parameter = wrap(data._array, Parameter)
    parameter.requires_grad_(requires_grad)
    assert isinstance(parameter, Parameter)
    return parameter


def _rebuild_parameter_with_state(
    data: Tensor, requires_grad: bool, backward_hooks: Any, state: Any
) -> Parameter:
    """Rebuild a parameter of a file and the attributes that were set on it."""
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
    """The device type of the available accelerator: "cuda" or None."""
    from ... import cuda

    return "cuda" if cuda.is_available() else None


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """The index of a device; -1 for the CPU if `allow_cpu`."""
    from ...core.device import as_device

    if isinstance(device, int):
        return device
    if device is None and optional:
        from ... import cuda

        return cuda.current_device() if cuda.is_available() else 0
    found = as_device(device)
    if found.type == "cpu":
        if allow_cpu:
            return -1
        raise ValueError(f"{device} is not a CUDA device")
    return found.index or 0


def _flatten_dense_tensors(tensors: Any) -> Tensor:
    """The elements of all tensors, concatenated into one 1-d tensor."""
    from ... import cat

    joined: Tensor = cat([x.reshape(-1) for x in tensors])
    return joined


def _unflatten_dense_tensors(flat: Tensor, tensors: Any) -> tuple[Tensor, ...]:
    """Split a flat tensor into parts with the shapes of `tensors`."""
    parts = flat.split([x.numel() for x in tensors])
    return tuple([part.reshape(x.shape) for part, x in zip(parts, tensors, strict=True)])


def _get_device_module(device_type: str) -> Any:
    """The module of a device type: `torch.cpu` or `torch.cuda`."""
    import importlib

    return importlib.import_module(f"torch.{device_type}")
