"""What a primitive gives without running it, and how it runs on a whole batch at once.

`abstract` takes shapes and dtypes of inputs and returns those of the results. `batch` runs a
primitive on inputs that have one more, leading dimension. Both follow from the primitive's kind,
unless it has a rule of its own. `replay/use/eager.py` calls `abstract`; the tests of operations
call both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .dtypes import as_dtype
from .modes import unrecorded
from .primitive import CONTRACTION, ELEMENTWISE, PRIMITIVES, REDUCE, Primitive, bind
from .tensor import Tensor, wrap

#: a shape and a NumPy dtype
Spec = tuple[tuple[int, ...], Any]

# -- shapes and dtypes -------------------------------------------------------------------------


def abstract(primitive: Primitive, *inputs: Any, **params: Any) -> Spec | tuple[Spec, ...]:
    """The (shape, dtype) of each result; inputs are such pairs, numbers or None.

    >>> import numpy as np
    >>> from tapegrad.core.primitive import PRIMITIVES
    >>> abstract(PRIMITIVES["add"], ((3, 1), np.dtype("int64")), ((4,), np.dtype("float32")))
    ((3, 4), dtype('float32'))
    """
    if primitive.abstract is not None:
        spec: Spec | tuple[Spec, ...] = primitive.abstract(*inputs, **params)
        return spec
    shapes = [x[0] for x in inputs if isinstance(x, tuple)]
    if primitive.kind == ELEMENTWISE:
        found = _run(primitive, [_shrunk(x) for x in inputs], params, fill=1)
        results = [(np.broadcast_shapes(*shapes), dtype) for _, dtype in found]
    elif primitive.kind == REDUCE:
        found = _run(primitive, [_shrunk(x) for x in inputs], params, fill=1)
        results = [(_folded(shapes[0], **params), dtype) for _, dtype in found]
    elif primitive.kind == CONTRACTION:
        found = _run(primitive, [_shrunk(x) for x in inputs], params, fill=1)
        x, y = shapes
        lead = np.broadcast_shapes(x[:-2], y[:-2])
        results = [((*lead, x[-2], y[-1]), dtype) for _, dtype in found]
    else:
        results = _run(primitive, inputs, params, fill=0)
    return results[0] if len(results) == 1 else tuple(results)


def _shrunk(x: Any) -> Any:
    """The same rank with all sizes 1: enough to learn a dtype."""
    return ((1,) * len(x[0]), x[1]) if isinstance(x, tuple) else x


def _folded(shape: tuple[int, ...], *, dims: tuple[int, ...], keepdim: bool) -> tuple[int, ...]:
    if keepdim:
        return tuple(1 if i in dims else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in dims)


def _run(
    primitive: Primitive, inputs: Sequence[Any], params: dict[str, Any], fill: int
) -> list[Spec]:
    """Run on arrays that have a shape and one element of memory. 0 is a valid index anywhere."""
    ghosts = [_ghost(x, fill) if isinstance(x, tuple) else x for x in inputs]
    with unrecorded():
        out = bind(primitive, ghosts, params)
    return [(y._array.shape, y._array.dtype) for y in (out if isinstance(out, tuple) else (out,))]


def _ghost(spec: Any, fill: int) -> Tensor:
    shape, dtype = spec
    return wrap(np.broadcast_to(np.asarray(fill, as_dtype(dtype).numpy), shape))


# -- batches -----------------------------------------------------------------------------------


def batch(
    primitive: Primitive, inputs: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]
) -> Any:
    """Run on Tensors or raw arrays, of which the `batched` ones have a leading batch dimension.

    All results have it too. At least one input must be batched.
    """
    if primitive.batch is not None:
        return primitive.batch(inputs, batched, **params)
    if primitive.kind == REDUCE:
        dims = tuple(d + 1 for d in params["dims"])
        return _results(primitive, inputs, {**params, "dims": dims})[0]
    if primitive.kind in (ELEMENTWISE, CONTRACTION):
        rank = max(len(x.shape) - b for x, b in zip(inputs, batched, strict=True) if _has_shape(x))
        lined_up = [_aligned(x, rank) if b else x for x, b in zip(inputs, batched, strict=True)]
        return _results(primitive, lined_up, params)[0]
    return _one_by_one(primitive, inputs, batched, params)


def _has_shape(x: Any) -> bool:
    return hasattr(x, "shape")


def _aligned(x: Any, rank: int) -> Any:
    """`x` with dimensions of size 1 behind the batch, so that the others line up from the right."""
    size, *rest = x.shape
    ones = (1,) * (rank - len(rest))
    return PRIMITIVES["reshape"](x, shape=(size, *ones, *rest)) if ones else x


def _results(
    primitive: Primitive, inputs: Sequence[Any], params: dict[str, Any]
) -> tuple[Any, ...]:
    """The public results, as a tuple, of Tensors or of raw arrays."""
    out = primitive(*inputs, **params)
    outs = out if isinstance(out, tuple) else (out,)
    return tuple(
        np.asarray(o) if isinstance(o, np.generic) else o for o in outs[: len(primitive.outputs)]
    )


def _one_by_one(
    primitive: Primitive, inputs: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]
) -> Any:
    """The default for everything else: a loop, and the results stacked."""
    size = next(x.shape[0] for x, b in zip(inputs, batched, strict=True) if b)

    def example(i: int) -> list[Any]:
        return [_taken(x, i) if b else x for x, b in zip(inputs, batched, strict=True)]

    if size == 0:
        return _empty(primitive, inputs, batched, params)
    rows = [_results(primitive, example(i), params) for i in range(size)]
    stacked = tuple(_stacked([row[k] for row in rows]) for k in range(len(primitive.outputs)))
    return stacked[0] if len(stacked) == 1 else stacked


def _empty(
    primitive: Primitive, inputs: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]
) -> Any:
    """The results of a batch of no examples."""
    arrays = [x._array if isinstance(x, Tensor) else x for x in inputs]
    specs = [
        (a.shape[1:] if b else a.shape, a.dtype) if _has_shape(a) else a
        for a, b in zip(arrays, batched, strict=True)
    ]
    found: Any = abstract(primitive, *specs, **params)
    several = len(primitive.outputs) > 1
    empty: list[Any] = [np.zeros((0, *s), dtype) for s, dtype in (found if several else (found,))]
    if any(isinstance(x, Tensor) for x in inputs):
        empty = [wrap(a) for a in empty]
    return tuple(empty) if several else empty[0]


def _taken(x: Any, i: int) -> Any:
    return PRIMITIVES["slice"](x, index=(i, *[None] * (len(x.shape) - 1)))


def _stacked(parts: list[Any]) -> Any:
    shape = (1, *parts[0].shape)
    return PRIMITIVES["cat"](*[PRIMITIVES["reshape"](x, shape=shape) for x in parts], dim=0)
