"""The operations. Importing this package fills the op table and attaches the Tensor methods.

Collectives enter the table with `tapegrad.distributed`: loading them takes 4 ms.
"""

from typing import Any

from . import convert, creation, drawing, late, memory, numpy_protocol, ranges, table
from .creation import CREATION
from .elementwise import (
    arithmetic,
    bits,
    blends,
    complexes,
    copies,
    exponentials,
    extremes,
    functions,
    rounding,
)
from .index import gather, indexing, search
from .linalg import diagonals, distance, einsum, matmul, matrices, products, solving
from .loss import classification, ctc, margin, regression
from .nn import (
    activation,
    attention,
    attention_rewrite,
    bags,
    embedding,
    multihead,
    normalization,
    piecewise,
    recurrent,
    sequence,
    softmax,
)
from .reduce import cumulative, largest, reductions, scans, sorting, statistics
from .shape import (
    comparing,
    expanding,
    joining,
    padding,
    pieces,
    reordering,
    reshaping,
    shuffling,
    slicing,
)
from .table import public_functions
from .window import (
    adaptive,
    averaging,
    columns,
    convolution,
    pooling,
    resampling,
    sampling,
    transposed_convolution,
)

MODULES = (
    activation, adaptive, arithmetic, attention, attention_rewrite, averaging, bags, bits, blends,
    classification, columns, comparing, complexes, convert, convolution, copies, creation, ctc,
    cumulative, diagonals, distance, drawing, einsum, embedding, expanding, exponentials,
    extremes, functions, gather, indexing, joining, largest, margin, matmul, matrices, memory,
    multihead, normalization, numpy_protocol, padding, pieces, piecewise, pooling, products,
    ranges, recurrent, reductions, regression, reordering, resampling, reshaping, rounding,
    sampling, scans, search, sequence, shuffling, slicing, softmax, solving, sorting, statistics,
    transposed_convolution,
)  # fmt: skip

__all__ = ["CREATION", "MODULES", "TABLE", "public_functions"]


def __getattr__(name: str) -> Any:
    """`TABLE`, with all operations: those that are imported late too."""
    if name != "TABLE":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    late.load_all()
    globals()[name] = table.TABLE
    return table.TABLE
