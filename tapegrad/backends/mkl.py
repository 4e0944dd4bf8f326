"""Switches of `torch.backends.mkl`: the library is not used here."""

from __future__ import annotations


def is_available() -> bool:
    """Whether the library does the work here: never."""
    return False
