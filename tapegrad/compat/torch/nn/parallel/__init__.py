"""`torch.nn.parallel`: what it has beside `tapegrad.nn.parallel`."""

from .. import DataParallel
from .scatter_gather import gather, scatter

__all__ = ["DataParallel", "gather", "scatter"]
