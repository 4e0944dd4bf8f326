"""Batch rules: how a primitive runs on inputs that have one more, leading dimension.

Comes in: a primitive, its inputs (Tensors or raw arrays), which of them have the batch as their
first dimension, and its parameters. Goes out: the results for the whole batch. The kind gives the
rule of elementwise primitives, reductions and contractions; others declare one, mostly with
`adapted`, which changes the parameters and calls the primitive itself. Composites need none:
`transforms/batching.py` runs their parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .modes import unrecorded
from .primitive import CONTRACTION, ELEMENTWISE, PRIMITIVES, REDUCE, Primitive
from .tensor import Tensor, wrap

#: (primitive, inputs, batched, params) -> the result, or a tuple of results
BatchRule = Callable[[Primitive, Sequence[Any], Sequence[bool], dict[str, Any]], Any]


def rule_of(p: Primitive) -> BatchRule | None:
    """The batch rule of a primitive: its own, or that of its kind; None if it has none."""
    if p.batch is not None:
        return p.batch
    if p.kind == ELEMENTWISE:
        return elementwise
    if p.kind == REDUCE:
        return adapted(dims=shifted)
    return contraction if p.kind == CONTRACTION else None


def size_of(inputs: Sequence[Any], batched: Sequence[bool]) -> int:
    """The number of examples."""
    return int(next(x.shape[0] for x, b in zip(inputs, batched, strict=True) if b))


def has_shape(x: Any) -> bool:
    return hasattr(x, "shape")


def aligned(x: Any, rank: int) -> Any:
    """`x` with dimensions of size 1 after the batch, so that the rest aligns from the right."""
    size, *rest = x.shape
    ones = (1,) * (rank - len(rest))
    return PRIMITIVES["reshape"](x, shape=(size, *ones, *rest)) if ones else x


def with_batch(x: Any, size: int) -> Any:
    """`x`, which has no batch, expanded over the batch: a view."""
    return PRIMITIVES["expand"](x, shape=(size, *x.shape))


def spread(inputs: Sequence[Any], batched: Sequence[bool]) -> list[Any]:
    """The inputs; those with a shape all get the batch dimension."""
    size = size_of(inputs, batched)
    return [
        with_batch(x, size) if has_shape(x) and not b else x
        for x, b in zip(inputs, batched, strict=True)
    ]


# -- by kind -----------------------------------------------------------------------------------


def _lined_up(inputs: Sequence[Any], batched: Sequence[bool]) -> list[Any]:
    rank = max(len(x.shape) - b for x, b in zip(inputs, batched, strict=True) if has_shape(x))
    return [aligned(x, rank) if b else x for x, b in zip(inputs, batched, strict=True)]


def elementwise(
    p: Primitive, inputs: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]
) -> Any:
    """Run on the whole batch; the dimensions of examples are aligned from the right."""
    given = _lined_up(inputs, batched)
    out = p(*given, **params)
    shape = np.broadcast_shapes(*[tuple(x.shape) for x in given if has_shape(x)])
    if isinstance(out, tuple) or tuple(out.shape) == shape:
        return out
    return PRIMITIVES["expand"](out, shape=shape)  # the primitive returned an input unchanged


def contraction(
    p: Primitive, inputs: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]
) -> Any:
    """Multiply over the last two dimensions; all others, and the batch, broadcast."""
    return p(*_lined_up(inputs, batched), **params)


# -- by changing parameters --------------------------------------------------------------------


def shifted(value: Any, size: int) -> Any:
    """One dimension or several, shifted by the batch dimension."""
    return value + 1 if isinstance(value, int) else tuple([d + 1 for d in value])


def behind_batch(value: Any, size: int) -> Any:
    """A permutation of dimensions that keeps the batch first."""
    return (0, *[d + 1 for d in value])


def sized(value: Any, size: int) -> Any:
    """A shape with the batch in front."""
    return (size, *value)


def whole(value: Any, size: int) -> Any:
    """A static index, with None in front for the whole batch."""
    return (None, *value)


def borderless(value: Any, size: int) -> Any:
    """Widths of borders, with no border for the batch."""
    return ((0, 0), *value)


def adapted(**changes: Callable[[Any, int], Any]) -> BatchRule:
    """A rule that adds the batch to all inputs, changes parameters and calls the primitive."""

    def rule(
        p: Primitive, inputs: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]
    ) -> Any:
        size = size_of(inputs, batched)
        changed = {name: change(params[name], size) for name, change in changes.items()}
        return p(*spread(inputs, batched), **{**params, **changed})

    return rule


def leading(
    p: Primitive, inputs: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]
) -> Any:
    """For kernels that work on the last dimensions and take any number of leading ones."""
    return p(*spread(inputs, batched), **params)


def expanded(
    p: Primitive, inputs: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]
) -> Any:
    """For `expand`: new dimensions come after the batch."""
    shape = params["shape"]
    (x,) = inputs
    return p(aligned(x, len(shape)), shape=(x.shape[0], *shape))


def joined(x: Any, at: int = 0) -> Any:
    """Merge the batch, the first dimension of `x`, into dimension `at` of the examples."""
    size, rest = x.shape[0], tuple(x.shape[1:])
    if at:
        dims = (*range(1, at + 1), 0, *range(at + 1, len(rest) + 1))
        x = PRIMITIVES["permute"](x, dims=dims)
    return PRIMITIVES["reshape"](x, shape=(*rest[:at], size * rest[at], *rest[at + 1 :]))


def separated(x: Any, size: int, at: int = 0) -> Any:
    """The inverse of `joined`: split the batch from dimension `at` and move it to the front."""
    shape = tuple(x.shape)
    each = shape[at] // size if size else shape[at]
    x = PRIMITIVES["reshape"](x, shape=(*shape[:at], size, each, *shape[at + 1 :]))
    if at:
        dims = (at, *[d for d in range(len(shape) + 1) if d != at])
        x = PRIMITIVES["permute"](x, dims=dims)
    return x


def flattened(
    p: Primitive, inputs: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]
) -> Any:
    """For kernels on images, (images, channels, ...): merge the batch into the images."""
    size = size_of(inputs, batched)
    given = [joined(x) if has_shape(x) else x for x in spread(inputs, batched)]
    out = p(*given, **params)
    if isinstance(out, tuple):
        return tuple([separated(y, size) for y in out])
    return separated(out, size)


# -- writes ------------------------------------------------------------------------------------


def write(
    p: Primitive, inputs: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]
) -> Any:
    """Write through the same view of every example."""
    base, value = inputs
    size = size_of(inputs, batched)
    if not batched[0]:
        base = with_batch(base, size)
    ghost = wrap(np.empty(tuple(base.shape), np.int8))
    view: Any = ghost
    with unrecorded():
        for movement, given in params["chain"]:
            rule = rule_of(movement)
            assert rule is not None, movement.name
            view = rule(movement, [view], [True], given)
    if batched[1]:
        value = aligned(value, len(view.shape) - 1)
    chain = () if view is ghost else view._view[1]
    return p(base, value, chain=chain)


def results(p: Primitive, out: Any) -> tuple[Any, ...]:
    """The public results as a tuple, of Tensors or raw arrays."""
    outs = out if isinstance(out, tuple) else (out,)
    return tuple(
        np.asarray(o) if isinstance(o, np.generic) and not isinstance(o, Tensor) else o
        for o in outs[: len(p.outputs)]
    )
