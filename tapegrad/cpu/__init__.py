"""The processor: PyTorch's names for asking about it."""

from __future__ import annotations

from . import amp


def device_count() -> int:
    """The processor counts as one device."""
    return 1


def is_available() -> bool:
    """There always is a processor."""
    return True


def synchronize(device: object = None) -> None:
    """Nothing to wait for: operations on the processor have run when they return."""


__all__ = ["amp", "device_count", "is_available", "synchronize"]
