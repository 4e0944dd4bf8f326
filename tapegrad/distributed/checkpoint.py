"""Where PyTorch keeps `save` and `load` of states that are divided among ranks."""

from ..saving.job import load, save

__all__ = ["load", "save"]
