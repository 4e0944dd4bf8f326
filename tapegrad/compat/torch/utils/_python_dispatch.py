"""`torch.utils._python_dispatch`: names for intercepting PyTorch's dispatcher."""

from __future__ import annotations

from typing import Any

from ...absent import absent_class

TorchDispatchMode = absent_class(
    "torch.utils._python_dispatch.TorchDispatchMode",
    "use torch.overrides.TorchFunctionMode, or read a tape (tapegrad.Tape)",
)


def is_traceable_wrapper_subclass(t: Any) -> bool:
    """False: tensors do not wrap other tensors."""
    return False
