"""`torch.onnx`: programs are not exported."""

from __future__ import annotations

from ...absent import absent

_INSTEAD = "save a state_dict() and export from PyTorch"

export = absent("torch.onnx.export", _INSTEAD)
dynamo_export = absent("torch.onnx.dynamo_export", _INSTEAD)
register_custom_op_symbolic = absent("torch.onnx.register_custom_op_symbolic", _INSTEAD)


def is_in_onnx_export() -> bool:
    """False: nothing is exported."""
    return False
