"""The operations. Importing this package fills the op table and attaches the Tensor methods."""

from . import compare, convert, creation, elementwise, index, linalg, movement, reduce
from .creation import CREATION
from .table import TABLE, public_functions

__all__ = [
    "CREATION",
    "TABLE",
    "compare",
    "convert",
    "creation",
    "elementwise",
    "index",
    "linalg",
    "movement",
    "public_functions",
    "reduce",
]
