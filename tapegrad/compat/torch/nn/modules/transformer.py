"""`torch.nn.modules.transformer`: helpers that packages import from there."""

from __future__ import annotations

from typing import Any

from ..... import relu
from .....nn.functional import gelu


def _get_activation_fn(activation: str) -> Any:
    """The activation function of a name."""
    if activation == "relu":
        return relu
    if activation == "gelu":
        return gelu
    raise RuntimeError(f"activation must be 'relu' or 'gelu', got {activation!r}")
