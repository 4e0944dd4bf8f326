"""Loops that a lowering writes itself, node by node.

`Builder.over(shape)` makes a `Body`. Its methods take ghosts (arrays that stand for memory) and
return positions of nodes; `compute` takes an expression in the language of `expressions.py`.
`done`, `fold` or `scan` appends the loop. Called by the `lower` functions of operations.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.primitive import ELEMENTWISE, REDUCE, Primitive
from ..ir.expressions import NoLowering
from ..ir.program import Compute, Literal, Loop, LoopFold, Node, Position, Read, Scan, Shape, Store

if TYPE_CHECKING:
    from .builder import Builder


@functools.cache
def computing(expression: str, inputs: tuple[str, ...]) -> Primitive:
    """A primitive for one expression, named by all of it, because loops are compared by names."""
    name = f"({', '.join(inputs)} -> {expression})"
    return Primitive(name, _no_kernel, ELEMENTWISE, inputs, expression=expression)


@functools.cache
def folding(expression: str) -> Primitive:
    """A primitive that reduces with one expression."""
    return Primitive(expression, _no_kernel, REDUCE, ("x",), expression=expression)


def _no_kernel(*inputs: Any, **params: Any) -> Any:
    raise AssertionError("a part of a native loop was called")


class Body:
    """The nodes of one loop under construction."""

    def __init__(self, builder: Builder, shape: Shape) -> None:
        self._builder = builder
        self.shape = shape
        self.nodes: list[Node] = []
        self.stores: list[Store] = []

    def read(self, x: Any) -> Any:
        """An element of a ghost that broadcasts to the loop; a `Literal` if all are one number."""
        known = self._builder.number_in(x)
        if known is not None:
            return known
        return self._node(Read(self._builder.access(x, self.shape)))

    def position(self, strides: tuple[int, ...], offset: int = 0) -> int:
        """`offset` plus the sum of the loop's indices times `strides`, an int64."""
        return self._node(Position(offset, strides))

    def along(self, dim: int) -> int:
        """The loop's index along a dimension."""
        dim %= len(self.shape)
        return self.position(tuple(int(d == dim) for d in range(len(self.shape))))

    def compute(self, expression: str, dtype: Any, **operands: Any) -> int:
        """An expression on nodes (positions that the other methods gave) and `Literal` numbers."""
        primitive = computing(expression, tuple(operands))
        given = tuple(operands.values())
        types = [o.number if isinstance(o, Literal) else self.nodes[o].dtype for o in given]
        dtype = np.dtype(dtype)
        cost = self._builder.machine.examine(primitive, {}, types, dtype)
        return self._node(Compute(primitive, {}, given, dtype, cost.fails))

    def _node(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    # -- where nodes go ----------------------------------------------------------------------

    def store(self, out: Any, node: Any) -> None:
        """Store a node to a ghost of the loop's shape."""
        access = self._builder.access(out, self.shape)
        if isinstance(node, Literal):
            node = self.compute("x", access.value.dtype, x=node)
        if self.nodes[node].dtype != access.value.dtype:
            raise NoLowering(f"it puts {self.nodes[node].dtype} into {access.value.dtype}")
        self.stores.append(Store(access, node))

    def done(self) -> None:
        """Append the loop with the stores so far."""
        self._add(tuple(self.stores), (), None)

    def fold(self, out: Any, node: int, expression: str, dims: tuple[int, ...]) -> None:
        """Reduce a node over dimensions, where `out` has size 1, and append the loop."""
        access = self._builder.access(out, self.shape)
        self._add((), (LoopFold(access, node, folding(expression), dims),), None)

    def scan(self, out: Any, node: int, expression: str, dim: int, reverse: bool) -> None:
        """Store the running values of a node along a dimension, and append the loop."""
        access = self._builder.access(out, self.shape)
        self._add((), (), Scan(access, node, folding(expression), dim, reverse))

    def _add(
        self, stores: tuple[Store, ...], folds: tuple[LoopFold, ...], scan: Scan | None
    ) -> None:
        builder = self._builder
        builder.add_loop(Loop(self.shape, tuple(self.nodes), stores, folds, builder.origins, scan))
