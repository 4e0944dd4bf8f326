"""The place where PyTorch keeps `checkpoint`."""

from ..autograd.checkpointing import checkpoint, checkpoint_sequential

__all__ = ["checkpoint", "checkpoint_sequential"]
