"""The names of `torch.autograd.graph`, which other modules define.

Used by programs written for PyTorch. The library itself imports them from where they are defined.
"""

from .checkpointing import saved_tensors_hooks

__all__ = ["saved_tensors_hooks"]
