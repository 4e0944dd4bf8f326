"""PyTorch's import path of `checkpoint`.

PyTorch warns if `use_reentrant` is not given; here both values mean the same.
"""

from ..autograd.checkpointing import (
    checkpoint,
    checkpoint_sequential,
    set_checkpoint_debug_enabled,
    set_checkpoint_early_stop,
)

__all__ = [
    "checkpoint",
    "checkpoint_sequential",
    "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop",
]
