"""Where PyTorch keeps DistributedDataParallel."""

from ...parallel.data_parallel import DistributedDataParallel

__all__ = ["DistributedDataParallel"]
