"""The names of `torch.autograd.graph`."""

from .checkpointing import saved_tensors_hooks

__all__ = ["saved_tensors_hooks"]
