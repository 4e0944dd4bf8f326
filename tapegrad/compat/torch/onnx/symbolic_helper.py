"""`torch.onnx.symbolic_helper`: names that packages use in code for exporting."""

from __future__ import annotations

from typing import Any

from ...absent import absent

_INSTEAD = "save a state_dict() and export from PyTorch"


def parse_args(*descriptors: str) -> Any:
    """The function itself: nothing is exported."""
    return lambda function: function


_get_tensor_dim_size = absent("torch.onnx.symbolic_helper._get_tensor_dim_size", _INSTEAD)
_get_tensor_sizes = absent("torch.onnx.symbolic_helper._get_tensor_sizes", _INSTEAD)
_maybe_get_const = absent("torch.onnx.symbolic_helper._maybe_get_const", _INSTEAD)
