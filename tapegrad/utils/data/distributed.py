"""The place where PyTorch keeps the DistributedSampler."""

from ...data import DistributedSampler

__all__ = ["DistributedSampler"]
