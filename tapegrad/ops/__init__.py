"""The operations. Importing this package fills the op table and attaches the Tensor methods."""

from . import convert, creation
from .collective import conjugate, moving, reducing
from .creation import CREATION
from .elementwise import arithmetic, bits, blends, extremes, functions
from .index import gather, indexing, search
from .linalg import distance, matmul, matrices, products, solving
from .loss import classification, ctc, margin, regression
from .nn import (
    activation,
    attention,
    bags,
    embedding,
    multihead,
    normalization,
    recurrent,
    sequence,
)
from .reduce import reductions, scans, sorting, statistics
from .shape import comparing, joining, movement, padding, pieces, shuffling
from .table import TABLE, public_functions
from .window import adaptive, averaging, columns, convolution, pooling, resampling, sampling

MODULES = (
    activation, adaptive, arithmetic, attention, averaging, bags, bits, blends, classification,
    columns, comparing, conjugate, convert, convolution, creation, ctc, distance, embedding, extremes,
    functions, gather, indexing, joining, margin, matmul, matrices, movement, moving, multihead,
    normalization, padding, pieces, pooling, products, recurrent, reducing, reductions, regression,
    resampling, sampling, scans, search, sequence, shuffling, solving, sorting, statistics,
)  # fmt: skip

__all__ = ["CREATION", "MODULES", "TABLE", "public_functions"]
