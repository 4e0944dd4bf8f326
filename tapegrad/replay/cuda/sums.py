"""Sums of products as loops, if no library of the GPU computes them.

Comes in: a `Contraction`, or a `Product` whose dtype or sizes no library supports. Goes out: a
`Loop` that multiplies elements and folds the products. Other loops here do parts of products that
libraries lack: triangles, and addition to old values. Called by `emit.py`.
"""

from __future__ import annotations

import numpy as np

from ..ir.program import (
    Access,
    Compute,
    Contraction,
    Literal,
    Loop,
    LoopFold,
    Node,
    Origin,
    Position,
    Product,
    Read,
    Shape,
    Store,
)
from ..passes.loops import computing, folding


def loop_of_contraction(instruction: Contraction) -> Loop:
    """Every index of the shape: x * y, summed over `dims`."""
    dtype = instruction.out.value.dtype
    nodes: list[Node] = [Read(instruction.x), Read(instruction.y)]
    nodes.append(Compute(computing("x * y", ("x", "y")), {}, (0, 1), dtype))
    fold = LoopFold(instruction.out, 2, folding("a + x"), instruction.dims)
    return Loop(instruction.shape, tuple(nodes), (), (fold,), instruction.origins)


#: the condition on row i, column j and step k of a sum for a term to count
_COUNTING = {"out": "(j <= i)", "lower": "(k <= i)", "upper": "(k >= i)"}


def loop_of_product(product: Product) -> Loop:
    """A product; terms outside a triangle become zeros."""
    batch = len(product.batch)
    shape = (*product.batch, product.rows, product.columns, product.inner)

    def access(given: Access, first: int, second: int) -> Access:
        strides = [*given.strides[:batch], 0, 0, 0]
        strides[batch + first], strides[batch + second] = given.strides[-2:]
        return Access(given.value, given.offset, tuple(strides), given.picks)

    dtype = product.out.value.dtype
    nodes: list[Node] = [Read(access(product.x, 0, 2)), Read(access(product.y, 2, 1))]
    if product.triangle:
        for i in range(3):
            nodes.append(Position(0, tuple(int(d == batch + i) for d in range(batch + 3))))
        counting = computing(_COUNTING[product.triangle], ("i", "j", "k"))
        nodes.append(Compute(counting, {}, (2, 3, 4), np.dtype(np.bool_)))
        chosen = computing("where(c, x * y, zero)", ("c", "x", "y", "zero"))
        nodes.append(Compute(chosen, {}, (5, 0, 1, Literal(0.0)), dtype))
    else:
        nodes.append(Compute(computing("x * y", ("x", "y")), {}, (0, 1), dtype))
    fold = LoopFold(access(product.out, 0, 1), len(nodes) - 1, folding("a + x"), (batch + 2,))
    return Loop(shape, tuple(nodes), (), (fold,), product.origins)


#: the condition on row i and column j for an element of a matrix to count
_KEPT = {"out": "(j <= i)", "lower": "(j <= i)", "upper": "(j >= i)"}


def triangle_of(
    to: Access, given: Access, shape: Shape, triangle: str, origins: tuple[Origin, ...]
) -> Loop:
    """A copy of matrices with zeros outside a triangle."""
    last = len(shape) - 1
    nodes: list[Node] = [Read(given)]
    for d in (last - 1, last):
        nodes.append(Position(0, tuple(int(d == e) for e in range(last + 1))))
    nodes.append(Compute(computing(_KEPT[triangle], ("i", "j")), {}, (1, 2), np.dtype(np.bool_)))
    chosen = computing("where(c, x, zero)", ("c", "x", "zero"))
    nodes.append(Compute(chosen, {}, (3, 0, Literal(0.0)), to.value.dtype))
    return Loop(shape, tuple(nodes), (Store(to, 4),), (), origins)


def added(to: Access, given: Access, shape: Shape, origins: tuple[Origin, ...]) -> Loop:
    """Every index of a shape: to += given."""
    add = Compute(computing("x + y", ("x", "y")), {}, (0, 1), to.value.dtype)
    return Loop(shape, (Read(to), Read(given), add), (Store(to, 2),), (), origins)
