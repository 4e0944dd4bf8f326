"""Products as a BLAS takes them: column-major matrices with leading dimensions.

Comes in: a `Product`. Goes out: `MatrixProduct`s, each a strided batch, in the terms of cuBLASLt. A
row-major matrix is, read column-major, its transpose. So out = x @ y in row-major order is computed
as out.T = y.T @ x.T in column-major order. Called by devices.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from ..ir.program import Access, Product


@dataclass(frozen=True, slots=True)
class Matrix:
    """A column-major operand: its first element, whether it is transposed, and strides."""

    offset: int  # elements from the beginning of the value
    transposed: bool
    column: int  # stride of columns in memory, in elements: the leading dimension
    batch: int  # stride of matrices, in elements


@dataclass(frozen=True, slots=True)
class MatrixProduct:
    """out (rows x columns) = left @ right for each of a batch, all column-major."""

    rows: int
    columns: int
    inner: int
    count: int
    left: Matrix
    right: Matrix
    out: Matrix
    adds: bool


def by_columns(rows: int, columns: int, strides: tuple[int, int]) -> tuple[bool, int] | None:
    """Whether a matrix is transposed if read column-major, and its leading dimension; else None.

    None means that neither its rows nor its columns are contiguous.
    """
    down, across = strides
    if (down == 1 or rows == 1) and (across >= rows or columns == 1):
        return False, max(across, rows)
    if (across == 1 or columns == 1) and (down >= columns or rows == 1):
        return True, max(down, columns)
    return None


def matrix_products(product: Product) -> list[MatrixProduct]:
    """The calls of a BLAS: one if the batch dimensions have a common stride, else several."""
    rows, inner, columns = product.rows, product.inner, product.columns
    shapes = ((inner, columns), (rows, inner), (rows, columns))
    operands = (product.y, product.x, product.out)
    found = []
    for access, (down, across) in zip(operands, shapes, strict=True):
        told = by_columns(across, down, (access.strides[-1], access.strides[-2]))
        assert told is not None, "lowering copies operands that have neither rows nor columns"
        found.append(told)
    assert not found[2][0] or 1 in (rows, columns), "a result by columns"
    outer, count, distances = _batches(product, operands)
    calls = []
    for index in itertools.product(*(range(product.batch[d]) for d in outer)):
        starts = [
            access.offset + sum(i * access.strides[d] for i, d in zip(index, outer, strict=True))
            for access in operands
        ]
        left, right, out = (
            Matrix(start, transposed, column, distance)
            for start, (transposed, column), distance in zip(starts, found, distances, strict=True)
        )
        calls.append(MatrixProduct(columns, rows, inner, count, left, right, out, product.adds))
    return calls


def _batches(
    product: Product, operands: tuple[Access, ...]
) -> tuple[list[int], int, tuple[int, ...]]:
    """The batch dimensions that need a call per index, and the strided batch of the others."""
    batch = [d for d, n in enumerate(product.batch) if n != 1]
    count = 1
    distances: tuple[int, ...] = (0, 0, 0)
    while batch:
        d = batch[-1]
        steps = tuple(access.strides[d] for access in operands)
        if count > 1 and any(s != n * count for s, n in zip(steps, distances, strict=True)):
            break
        distances = steps if count == 1 else distances
        count *= product.batch[d]
        batch.pop()
    return batch, count, distances
