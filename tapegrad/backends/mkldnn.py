"""Switches of `torch.backends.mkldnn`: they only store their value."""

from __future__ import annotations

enabled = False


def is_available() -> bool:
    """Always False: the library is not used."""
    return False
