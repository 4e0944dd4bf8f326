"""The names of `torch.autograd.graph`. Used by programs written for PyTorch."""

from .checkpointing import saved_tensors_hooks

__all__ = ["saved_tensors_hooks"]
