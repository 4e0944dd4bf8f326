"""`torch.nn.parallel.data_parallel`: re-exports `DataParallel`."""

from .. import DataParallel

__all__ = ["DataParallel"]
