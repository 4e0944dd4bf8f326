"""PyTorch's import path of the DistributedSampler."""

from ...data import DistributedSampler

__all__ = ["DistributedSampler"]
