"""Modules of device types that tapegrad does not support: `torch.xpu`, `torch.mps`, ...

They report that there is no such device. Functions that do nothing in PyTorch without such a device
do nothing here; all others raise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .absent import absent


def absent_device(kind: str) -> dict[str, Callable[..., Any]]:
    """The functions in the module of an unsupported device type."""

    def is_available() -> bool:
        """False: there is no such device."""
        return False

    def device_count() -> int:
        """0: there is no such device."""
        return 0

    def nothing(*args: Any, **kwargs: Any) -> None:
        """Does nothing without such a device, as in PyTorch."""

    quiet = ("empty_cache", "manual_seed", "manual_seed_all")
    loud = ("current_device", "synchronize", "set_device", "get_rng_state", "set_rng_state")
    use = "tensors are on 'cpu' or 'cuda'"
    return {
        "is_available": is_available,
        "is_initialized": is_available,
        "device_count": device_count,
        **dict.fromkeys(quiet, nothing),
        **{name: absent(f"torch.{kind}.{name}", use) for name in loud},
    }
