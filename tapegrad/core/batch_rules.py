"""Batch rules: how a primitive runs on inputs that have one more, leading dimension.

Comes in: a primitive, its inputs (Tensors or raw arrays), which of them have the batch as their
first dimension, and its parameters. Goes out: the results for the whole batch. Elementwise
primitives, reductions and contractions have a rule by their kind; others state one, mostly with
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
    """How many examples there are."""
    return int(next(x.shape[0] for x, b in zip(inputs, batched, strict=True) if b))


def has_shape(x: Any) -> bool:
    return hasattr(x, "shape")


def aligned(x: Any, rank: int) -> Any:
    """`x` with dimensions of size 1 behind the batch, so that the others line up from the right."""
    size, *rest = x.shape
    ones = (1,) * (rank - len(rest))
    return PRIMITIVES["reshape"](x, shape=(size, *ones, *rest)) if ones else x


def with_batch(x: Any, size: int) -> Any:
    """`x`, which has no batch, once for each example: a view."""
    return PRIMITIVES["expand"](x, shape=(size, *x.shape))


def spread(inputs: Sequence[Any], batched: Sequence[bool]) -> list[Any]:
    """The inputs, with the batch in all of them that are tensors."""
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
    """The same on the whole batch: the dimensions of examples line up from the right."""
    given = _lined_up(inputs, batched)
    out = p(*given, **params)
    shape = np.broadcast_shapes(*[tuple(x.shape) for x in given if has_shape(x)])
    if isinstance(out, tuple) or tuple(out.shape) == shape:
        return out
    return PRIMITIVES["expand"](out, shape=shape)  # it passes one of its inputs on


def contraction(
    p: Primitive, inputs: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]
) -> Any:
    """Products of the last two dimensions: all others broadcast, the batch with them."""
    return p(*_lined_up(inputs, batched), **params)


# -- by changing parameters --------------------------------------------------------------------


def shifted(value: Any, size: int) -> Any:
    """A dimension, or several, counted behind the batch."""
    return value + 1 if isinstance(value, int) else tuple([d + 1 for d in value])


def behind_batch(value: Any, size: int) -> Any:
    """An order of dimensions in which the batch stays first."""
    return (0, *[d + 1 for d in value])


def sized(value: Any, size: int) -> Any:
    """A shape with the batch in front."""
    return (size, *value)


def whole(value: Any, size: int) -> Any:
    """A static index that takes the whole batch."""
    return (None, *value)


def borderless(value: Any, size: int) -> Any:
    """Widths of borders, of which the batch has none."""
    return ((0, 0), *value)


def adapted(**changes: Callable[[Any, int], Any]) -> BatchRule:
    """The primitive itself, with the batch in all inputs and these parameters changed."""

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
    """For kernels that work on the last dimensions and take any number in front of them."""
    return p(*spread(inputs, batched), **params)


def expanded(
    p: Primitive, inputs: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]
) -> Any:
    """`expand`: new dimensions come behind the batch."""
    shape = params["shape"]
    (x,) = inputs
    return p(aligned(x, len(shape)), shape=(x.shape[0], *shape))


def joined(x: Any, at: int = 0) -> Any:
    """`x` with the batch, its first dimension, as a part of another one behind it."""
    size, rest = x.shape[0], tuple(x.shape[1:])
    if at:
        dims = (*range(1, at + 1), 0, *range(at + 1, len(rest) + 1))
        x = PRIMITIVES["permute"](x, dims=dims)
    return PRIMITIVES["reshape"](x, shape=(*rest[:at], size * rest[at], *rest[at + 1 :]))


def separated(x: Any, size: int, at: int = 0) -> Any:
    """The other way: the batch taken out of a dimension, in front."""
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
    """For kernels on images, (images, channels, ...): a batch of them is more images."""
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
    """A write through a view: through the same view of every example."""
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
    """The public results, as a tuple, of Tensors or of raw arrays."""
    outs = out if isinstance(out, tuple) else (out,)
    return tuple(
        np.asarray(o) if isinstance(o, np.generic) and not isinstance(o, Tensor) else o
        for o in outs[: len(p.outputs)]
    )
