"""`torch.utils.dlpack`: exchange of arrays with other libraries without copies."""

from __future__ import annotations

from typing import Any

from .... import from_dlpack
from ....core.tensor import Tensor

__all__ = ["from_dlpack", "to_dlpack"]


def to_dlpack(tensor: Tensor) -> Any:
    """A DLPack capsule of a tensor's memory."""
    return tensor.__dlpack__()
