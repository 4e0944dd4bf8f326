"""The place where PyTorch keeps `checkpoint`."""

from ..recompute import checkpoint, checkpoint_sequential

__all__ = ["checkpoint", "checkpoint_sequential"]
