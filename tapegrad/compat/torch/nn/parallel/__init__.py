"""`torch.nn.parallel`: what it has beside `tapegrad.nn.parallel`."""

from .. import DataParallel

__all__ = ["DataParallel"]
