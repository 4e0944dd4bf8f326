"""`torch.utils`: names that `tapegrad.utils` lacks."""

from __future__ import annotations

from typing import Any

from ....core.tensor import Tensor


def set_module(obj: Any, mod: str) -> None:
    """Set the `__module__` of an object."""
    if not isinstance(mod, str):
        raise TypeError(f"set_module takes the name of a module, got {type(mod).__name__}")
    obj.__module__ = mod


def swap_tensors(t1: Tensor, t2: Tensor) -> None:
    """Raises: tensors keep their identity."""
    raise NotImplementedError(
        "torch.utils.swap_tensors does not exist in tapegrad; assign t1.data = t2.data instead"
    )


def rename_privateuse1_backend(backend_name: str) -> None:
    """Raises: there are no extension devices."""
    raise NotImplementedError("tapegrad has no devices of extensions; use 'cpu' or 'cuda'")
