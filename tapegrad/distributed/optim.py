"""PyTorch's import path of ZeroRedundancyOptimizer."""

from ..parallel.zero import ZeroRedundancyOptimizer

__all__ = ["ZeroRedundancyOptimizer"]
