"""`torch.nn.parallel.data_parallel`: a path to `DataParallel`."""

from .. import DataParallel

__all__ = ["DataParallel"]
