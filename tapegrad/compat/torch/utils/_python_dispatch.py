"""`torch.utils._python_dispatch`: names of classes that would see every call of PyTorch's C++."""

from __future__ import annotations

from typing import Any

from ...absent import absent_class

TorchDispatchMode = absent_class(
    "torch.utils._python_dispatch.TorchDispatchMode",
    "use torch.overrides.TorchFunctionMode, or read a tape (tapegrad.Tape)",
)


def is_traceable_wrapper_subclass(t: Any) -> bool:
    """False: a tensor is no wrapper around others."""
    return False
