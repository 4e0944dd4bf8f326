"""Shapes and dtypes of a primitive's results, without running it.

`abstract` takes shapes and dtypes of inputs and returns those of the results. They follow from the
primitive's kind, unless it has its own rule. Called by `replay/use/eager.py`, and by the tests of
operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .dtypes import as_dtype
from .modes import unrecorded
from .primitive import CONTRACTION, ELEMENTWISE, REDUCE, Primitive, bind
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
    """The same rank with all sizes 1: enough to find the dtype."""
    return ((1,) * len(x[0]), x[1]) if isinstance(x, tuple) else x


def _folded(shape: tuple[int, ...], *, dims: tuple[int, ...], keepdim: bool) -> tuple[int, ...]:
    if keepdim:
        return tuple(1 if i in dims else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in dims)


def _run(
    primitive: Primitive, inputs: Sequence[Any], params: dict[str, Any], fill: int
) -> list[Spec]:
    """Run on arrays with a shape but one element of memory. The fill 0 is always a valid index."""
    ghosts = [_ghost(x, fill) if isinstance(x, tuple) else x for x in inputs]
    with unrecorded():
        out = bind(primitive, ghosts, params)
    return [(y._array.shape, y._array.dtype) for y in (out if isinstance(out, tuple) else (out,))]


def _ghost(spec: Any, fill: int) -> Tensor:
    shape, dtype = spec
    return wrap(np.broadcast_to(np.asarray(fill, as_dtype(dtype).numpy), shape))
