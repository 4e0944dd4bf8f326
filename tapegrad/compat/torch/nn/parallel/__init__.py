"""`torch.nn.parallel`: names that `tapegrad.nn.parallel` lacks."""

from .. import DataParallel
from .scatter_gather import gather, scatter

__all__ = ["DataParallel", "gather", "scatter"]
