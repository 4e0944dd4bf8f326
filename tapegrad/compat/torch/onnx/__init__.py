"""`torch.onnx`: programs are not exported."""

from __future__ import annotations

from typing import Any

from ...absent import absent

_INSTEAD = "save a state_dict() and export from PyTorch"

export = absent("torch.onnx.export", _INSTEAD)
dynamo_export = absent("torch.onnx.dynamo_export", _INSTEAD)


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Any, opset_version: int) -> None:
    """Does nothing: operations are never exported."""


def is_in_onnx_export() -> bool:
    """False: nothing is exported."""
    return False
