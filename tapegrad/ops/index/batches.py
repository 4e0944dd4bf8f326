"""Batch rules of indexing: indexed tensors, index tensors and values may have a leading batch.

NumPy puts the dimensions of index tensors in place of the indexed dimensions if those are adjacent,
else in front of all others. If the indexed tensor has a batch and an index tensor too, one more
index tensor counts the examples. The primitives in `indexing.py` use these rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.batch_rules import aligned, has_shape, size_of, with_batch
from ...core.primitive import PRIMITIVES, Primitive
from ...core.tensor import Tensor, wrap

Order = tuple[int, ...]


class _Plan:
    """The index tensors for a batch, and the order in which NumPy returns the dimensions."""

    def __init__(
        self, size: int, whole: bool, indices: Sequence[Any], flags: Sequence[bool], dims: Order
    ) -> None:
        """`whole`: whether the indexed tensor has the batch too."""
        rank = max(len(i.shape) - b for i, b in zip(indices, flags, strict=True))
        together = dims == tuple(range(dims[0], dims[0] + len(dims)))
        self.size, self.at = size, dims[0] if together else 0
        shapes = [tuple(i.shape[1:] if b else i.shape) for i, b in zip(indices, flags, strict=True)]
        self.picked = np.broadcast_shapes(*shapes)
        self.indexed = dims
        self.indices = [aligned(i, rank) if b else i for i, b in zip(indices, flags, strict=True)]
        self.dims = tuple([d + whole for d in dims])
        first = dims[0] if together else 0
        #: (from, to): the move of the batch dimension to the front in NumPy's result
        self.moved: tuple[int, int] | None = None
        self.block: tuple[int, int] | None = None
        if not any(flags):
            if not together:
                self.moved = (rank, 0)  # the batch comes after the indices
        elif whole:
            count = np.arange(size).reshape(size, *[1] * rank)
            is_tensor = any(isinstance(i, Tensor) for i in indices)
            self.indices.insert(0, wrap(count) if is_tensor else count)
            self.dims = (0, *self.dims)
            if together and first:
                self.block = (rank, first)  # the indices come before the `first` dimensions
        elif together and first:
            self.moved = (first, 0)

    def order(self, n: int) -> list[int]:
        """The permutation that puts the batch first, and the rest in the order of one example."""
        order = list(range(n))
        if self.moved is not None:
            order.insert(self.moved[1], order.pop(self.moved[0]))
        elif self.block is not None:
            rank, first = self.block
            before = list(range(1 + rank, 1 + rank + first))
            order = [0, *before, *range(1, 1 + rank), *range(1 + rank + first, n)]
        return order

    def forward(self, x: Any) -> Any:
        return _permuted(x, self.order(len(x.shape)))

    def backward(self, x: Any) -> Any:
        order = self.order(len(x.shape))
        return _permuted(x, [order.index(d) for d in range(len(order))])

    def values(self, x: Any, has_batch: bool, shape: Any) -> Any:
        """Values for the indexed elements of examples of this shape, in NumPy's order."""
        rest = [n for d, n in enumerate(shape) if d not in self.indexed]
        whole = (*rest[: self.at], *self.picked, *rest[self.at :])
        x = aligned(x, len(whole)) if has_batch else x
        return self.backward(PRIMITIVES["expand"](x, shape=(self.size, *whole)))


def _permuted(x: Any, order: list[int]) -> Any:
    return x if order == list(range(len(order))) else PRIMITIVES["permute"](x, dims=tuple(order))


def take_batch(p: Primitive, inputs: Any, batched: Any, params: dict[str, Any]) -> Any:
    """`x[indices]` of each example."""
    x, *indices = inputs
    plan = _Plan(size_of(inputs, batched), batched[0], indices, batched[1:], params["dims"])
    return plan.forward(p(x, *plan.indices, dims=plan.dims))


def put_add_batch(p: Primitive, inputs: Any, batched: Any, params: dict[str, Any]) -> Any:
    """Zeros with values added at indices, for each example."""
    x, *indices = inputs
    size, shape = size_of(inputs, batched), params["shape"]
    plan = _Plan(size, True, indices, batched[1:], params["dims"])
    values = plan.values(x, batched[0], shape)
    return p(values, *plan.indices, dims=plan.dims, shape=(size, *shape))


def put_batch(p: Primitive, inputs: Any, batched: Any, params: dict[str, Any]) -> Any:
    """`x` with values at indices, for each example."""
    x, value, *indices = inputs
    size = size_of(inputs, batched)
    x = x if batched[0] else with_batch(x, size)
    plan = _Plan(size, True, indices, batched[2:], params["dims"])
    if has_shape(value):
        value = plan.values(value, batched[1], x.shape[1:])
    return p(x, value, *plan.indices, dims=plan.dims, accumulate=params["accumulate"])


def pick_batch(p: Primitive, inputs: Any, batched: Any, params: dict[str, Any]) -> Any:
    """Elements where a mask is True; a mask per example would give different numbers of them."""
    x, mask = inputs
    if batched[1]:
        raise RuntimeError(
            "vmap: indexing with a mask gives a number of elements that depends on data, which "
            "may differ between examples; use where() or masked_fill()"
        )
    n = len(x.shape)
    last = PRIMITIVES["permute"](x, dims=(*range(1, n), 0))
    if "shape" in params:
        params = {"shape": (*params["shape"], x.shape[0])}
    out = p(last, mask, **params)
    n = len(out.shape)
    return PRIMITIVES["permute"](out, dims=(n - 1, *range(n - 1)))
