"""Switches of `torch.backends.mps`: there are no tensors on GPUs of Apple here."""

from __future__ import annotations


def is_available() -> bool:
    """Whether the library does the work here: never."""
    return False


def is_built() -> bool:
    """Whether tensors can live there: never."""
    return False
