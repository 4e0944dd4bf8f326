"""Where PyTorch keeps ZeroRedundancyOptimizer."""

from ..parallel.zero import ZeroRedundancyOptimizer

__all__ = ["ZeroRedundancyOptimizer"]
