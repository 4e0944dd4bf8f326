"""Comparisons of whole tensors, and broadcasting of several to one shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import numeric
from ...core.device import as_device, to_device
from ...core.tensor import Size, Tensor, not_recorded
from ..creation import CREATION, creation
from ..elementwise import comparison as c
from ..elementwise.rounding import abs
from ..precision import widened
from ..table import In, Sample, op
from .dims import as_shape, check_sequence
from .joining import cat
from .reshaping import reshape_

if TYPE_CHECKING:
    from collections.abc import Sequence


def _raw(x: Tensor) -> Any:
    not_recorded(x, "equal()")
    array = to_device(x._array, as_device("cpu"))
    return array.astype(np.float32) if numeric.is_foreign(array.dtype) else array


@op(
    samples=lambda: [
        Sample(In(values=[1.0, 2.0]), In(values=[1.0, 2.0 + 1e-9])),
        Sample(In(values=[1.0, 2.0]), In(values=[1.0, 2.1])),
    ],
    differentiable=False,
)
def allclose(
    input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> bool:
    """Whether all |a - b| <= atol + rtol * |b|.

    >>> import tapegrad
    >>> tapegrad.allclose(tapegrad.tensor([1.0, 2.0]), tapegrad.tensor([1.0, 2.000001]))
    True
    """
    return bool(isclose(input, other, rtol, atol, equal_nan).all())


@op(samples=lambda: [Sample(In(values=[1.0, 2.0]), In(values=[1.0, 2.1]))], differentiable=False)
def isclose(
    input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Tensor:
    """Where |a - b| <= atol + rtol * |b|.

    >>> import tapegrad
    >>> tapegrad.isclose(tapegrad.tensor([1.0, 2.0]), tapegrad.tensor([1.0, 2.1]))
    tensor([ True, False])
    """
    if input._array.dtype != other._array.dtype:
        raise RuntimeError(f"isclose needs one dtype, got {input.dtype} and {other.dtype}")
    if rtol < 0 or atol < 0:
        raise RuntimeError(f"isclose: tolerances must not be negative, got {rtol} and {atol}")
    a, b = (_floating(x.detach()) for x in (input, other))
    near = c.less_equal(abs(a - b), abs(b) * rtol + atol)
    found: Tensor = c.logical_or(c.logical_and(near, c.isfinite(b)), c.equal(a, b))
    if equal_nan:
        found = c.logical_or(found, c.logical_and(c.isnan(a), c.isnan(b)))
    return found


def _floating(x: Any) -> Any:
    """A tensor in a dtype in which differences are not rounded to half precision or integers."""
    if x.dtype.is_complex:
        return x
    if not x.dtype.is_floating_point:
        return x.double()
    return widened(x)


@op(samples=lambda: [Sample(In(values=[1.0, 2.0]), In(values=[1.0, 2.0]))], differentiable=False)
def equal(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape and elements.

    >>> import tapegrad
    >>> tapegrad.equal(tapegrad.tensor([1, 2]), tapegrad.tensor([1, 2]))
    True
    """
    if not isinstance(other, Tensor):
        raise TypeError(f"equal compares two tensors, got {type(other).__name__}")
    a, b = _raw(input), _raw(other)
    return a.shape == b.shape and bool((a == b).all())


@creation
def is_tensor(obj: object) -> bool:
    """Whether an object is a Tensor."""
    return isinstance(obj, Tensor)


@creation
def is_floating_point(input: Tensor) -> bool:
    """Whether a tensor has a floating dtype."""
    return input.dtype.is_floating_point


@creation
def is_complex(input: Tensor) -> bool:
    """Whether a tensor has a complex dtype."""
    return input.dtype.is_complex


@creation
def is_signed(input: Tensor) -> bool:
    """Whether a tensor's dtype has negative numbers."""
    return input.dtype.is_signed


@creation
def is_nonzero(input: Tensor) -> bool:
    """Whether the only element of a tensor is not 0."""
    return bool(input)


@creation
def detach(input: Tensor) -> Tensor:
    """A tensor that shares the memory of another and has no history."""
    return input.detach()


@creation
def numel(input: Tensor) -> int:
    """The number of elements of a tensor."""
    return int(input._array.size)


@creation
def broadcast_shapes(*shapes: int | Sequence[int]) -> Size:
    """The shape that shapes broadcast to."""
    try:
        return Size(np.broadcast_shapes(*[as_shape((s,)) for s in shapes]))
    except ValueError:
        raise RuntimeError(f"shapes {shapes} do not broadcast together") from None


@creation
def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Tensors expanded to their common shape."""
    shape = broadcast_shapes(*[t._array.shape for t in tensors])
    return tuple(t.expand(shape) for t in tensors)


def _at_least(n: int, tensors: tuple[Any, ...]) -> Any:
    nested = len(tensors) == 1 and isinstance(tensors[0], (list, tuple))
    if nested:
        tensors = tuple(tensors[0])
    out = []
    for t in tensors:
        shape = t._array.shape
        if len(shape) < n:
            if n == 3 and len(shape) == 2:
                shape = (*shape, 1)
            else:
                shape = (1,) * (min(n, 2) - len(shape)) + shape + (1,) * (n - 2 if n == 3 else 0)
            t = reshape_(t, shape=shape)
        out.append(t)
    return out[0] if len(out) == 1 and not nested else tuple(out)


def _several(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple) else [value]


@creation
def atleast_1d(*tensors: Tensor | Sequence[Tensor]) -> Any:
    """Tensors with at least one dimension."""
    return _at_least(1, tensors)


@creation
def atleast_2d(*tensors: Tensor | Sequence[Tensor]) -> Any:
    """Tensors with at least two dimensions, new ones in front."""
    return _at_least(2, tensors)


@creation
def atleast_3d(*tensors: Tensor | Sequence[Tensor]) -> Any:
    """Tensors with at least three dimensions."""
    return _at_least(3, tensors)


@op(
    casts=True, method=False, samples=lambda: [Sample([In(2, 3), In(2, 1)]), Sample([In(2), In(3)])]
)
def hstack(tensors: Sequence[Tensor]) -> Any:
    """Join side by side: along the second dimension, vectors along the first.

    >>> import tapegrad
    >>> tapegrad.hstack([tapegrad.tensor([1, 2]), tapegrad.tensor([3])])
    tensor([1, 2, 3])
    """
    check_sequence(tensors, "hstack")
    parts = _several(_at_least(1, tuple(tensors)))
    return cat(parts, 0 if parts[0]._array.ndim == 1 else 1)


@op(
    casts=True, method=False, samples=lambda: [Sample([In(2, 3), In(1, 3)]), Sample([In(3), In(3)])]
)
def vstack(tensors: Sequence[Tensor]) -> Any:
    """Join on top of each other.

    >>> import tapegrad
    >>> tapegrad.vstack([tapegrad.tensor([1, 2]), tapegrad.tensor([3, 4])])
    tensor([[1, 2],
            [3, 4]])
    """
    check_sequence(tensors, "vstack")
    return cat(_several(_at_least(2, tuple(tensors))), 0)


CREATION["row_stack"] = vstack
