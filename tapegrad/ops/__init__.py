"""The operations. Importing this package fills the op table and attaches the Tensor methods."""

from . import (
    activation,
    attention,
    compare,
    convert,
    convolution,
    creation,
    distance,
    elementwise,
    embedding,
    index,
    linalg,
    loss,
    movement,
    normalization,
    padding,
    pooling,
    reduce,
)
from .creation import CREATION
from .table import TABLE, public_functions

__all__ = [
    "CREATION",
    "TABLE",
    "activation",
    "attention",
    "compare",
    "convert",
    "convolution",
    "creation",
    "distance",
    "elementwise",
    "embedding",
    "index",
    "linalg",
    "loss",
    "movement",
    "normalization",
    "padding",
    "pooling",
    "public_functions",
    "reduce",
]
