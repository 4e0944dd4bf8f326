"""PyTorch's `utils`: checkpointing, data loading."""

from . import checkpoint, data

__all__ = ["checkpoint", "data"]
