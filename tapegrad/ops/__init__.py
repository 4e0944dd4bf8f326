"""The operations. Importing this package fills the op table and attaches the Tensor methods."""

from . import convert, creation, elementwise, index, linalg, movement, reduce
from .creation import CREATION
from .table import TABLE

__all__ = [
    "CREATION",
    "TABLE",
    "convert",
    "creation",
    "elementwise",
    "index",
    "linalg",
    "movement",
    "reduce",
]
