"""Switches of `torch.backends.mkl`: the library is not used here."""

from __future__ import annotations


def is_available() -> bool:
    """Always False: the library is not used."""
    return False
