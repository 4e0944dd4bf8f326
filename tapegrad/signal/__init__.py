"""`tapegrad.signal`: windows for signals, with PyTorch's names."""

from . import windows

__all__ = ["windows"]
