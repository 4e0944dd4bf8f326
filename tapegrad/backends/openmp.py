"""Switches of `torch.backends.openmp`: not used; threads come from `replay/cpu/pool.py`."""

from __future__ import annotations


def is_available() -> bool:
    """Always False: the library is not used."""
    return False
