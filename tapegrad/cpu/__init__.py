"""The CPU as a device, with PyTorch's names."""

from __future__ import annotations

from . import amp


def device_count() -> int:
    """1: the CPU is one device."""
    return 1


def is_available() -> bool:
    """True: there always is a CPU."""
    return True


def synchronize(device: object = None) -> None:
    """Do nothing: operations on the CPU have finished when they return."""


__all__ = ["amp", "device_count", "is_available", "synchronize"]
