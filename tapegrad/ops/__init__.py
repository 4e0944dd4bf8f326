"""The operations. Importing this package fills the op table and attaches the Tensor methods.

Collectives enter the table with `tapegrad.distributed`: loading them takes 4 ms.
"""

from typing import Any

from . import (
    convert,
    creation,
    drawing,
    late,
    memory,
    numpy_protocol,
    ranges,
    sparsity,
    table,
)
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
from .nn import activation, piecewise, softmax
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

MODULES = (
    activation, arithmetic, bits, blends, comparing, complexes, convert, copies, creation,
    cumulative, diagonals, distance, drawing, einsum, expanding, exponentials, extremes,
    functions, gather, indexing, joining, largest, matmul, matrices, memory, numpy_protocol,
    padding, pieces, piecewise, products, ranges, reductions, reordering, reshaping, rounding,
    scans, search, shuffling, slicing, softmax, solving, sorting, sparsity, statistics,
)  # fmt: skip

__all__ = ["CREATION", "MODULES", "TABLE", "public_functions"]


def __getattr__(name: str) -> Any:
    """`TABLE`, with all operations: those that are imported late too."""
    if name != "TABLE":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    late.load_all()
    globals()[name] = table.TABLE
    return table.TABLE
