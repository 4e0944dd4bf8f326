"""Shapes, joins and matrix products, with the standard's names."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.tensor import Tensor
from .operands import as_tensor, axes_of, operation, same_dtype

# -- shapes ------------------------------------------------------------------------------------


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that shapes broadcast to."""
    return tuple(np.broadcast_shapes(*shapes))


def broadcast_arrays(*arrays: Tensor) -> tuple[Tensor, ...]:
    """Tensors expanded to their common shape."""
    return tuple(operation("broadcast_tensors")(*arrays))


def broadcast_to(x: Tensor, /, shape: tuple[int, ...]) -> Tensor:
    """A tensor expanded to a shape."""
    return as_tensor(x, "broadcast_to").expand(tuple(shape))


def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Tensor:
    """The same elements in another shape; with `copy=False`, in the same memory.

    >>> from tapegrad import array_api as xp
    >>> xp.reshape(xp.arange(6), (2, 3))
    tensor([[0, 1, 2],
            [3, 4, 5]])
    """
    x = as_tensor(x, "reshape")
    if copy is False:
        return x.view(tuple(shape))
    out = x.reshape(tuple(shape))
    return out.clone() if copy else out


def expand_dims(x: Tensor, /, axis: int | tuple[int, ...] = 0) -> Tensor:
    """Dimensions of size 1 inserted at axes of the result."""
    x = as_tensor(x, "expand_dims")
    axes = axis if isinstance(axis, tuple) else (axis,)
    n = x.ndim + len(axes)
    found = sorted(axes_of(axes, n))
    if len(set(found)) < len(found):
        raise ValueError(f"expand_dims: {axes} names an axis twice")
    for a in found:
        x = x.unsqueeze(a)
    return x


def squeeze(x: Tensor, /, axis: int | tuple[int, ...]) -> Tensor:
    """A tensor without the given axes, which must have size 1."""
    x = as_tensor(x, "squeeze")
    axes = axes_of(axis, x.ndim)
    if any(x.shape[a] != 1 for a in axes):
        raise ValueError(f"squeeze: axes {axes} of shape {tuple(x.shape)} are not all of size 1")
    return x.reshape([n for i, n in enumerate(x.shape) if i not in axes])


def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """The dimensions in another order."""
    return as_tensor(x, "permute_dims").permute(tuple(axes))


def moveaxis(x: Tensor, source: Any, destination: Any, /) -> Tensor:
    """Dimensions moved to new positions."""
    return as_tensor(x, "moveaxis").movedim(source, destination)


def matrix_transpose(x: Tensor, /) -> Tensor:
    """Matrices with rows and columns exchanged."""
    return as_tensor(x, "matrix_transpose").mT


def flip(x: Tensor, /, *, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """The elements in reverse order along axes."""
    x = as_tensor(x, "flip")
    axes = axes_of(axis, x.ndim)
    return x.flip(axes) if axes else x.clone()


def roll(
    x: Tensor,
    /,
    shift: int | tuple[int, ...],
    *,
    axis: int | tuple[int, ...] | None = None,
) -> Tensor:
    """Elements shifted along axes; those that leave at one end enter at the other."""
    x = as_tensor(x, "roll")
    if axis is None:
        return x.reshape(-1).roll(shift).reshape(tuple(x.shape))
    axes = axis if isinstance(axis, tuple) else (axis,)
    shifts = shift if isinstance(shift, tuple) else (shift,) * len(axes)
    for s, a in zip(shifts, axes, strict=True):
        x = x.roll(s, a)
    return x


def repeat(x: Tensor, repeats: int | Tensor, /, *, axis: int | None = None) -> Tensor:
    """Each element repeated `repeats` times."""
    found: Tensor = operation("repeat_interleave")(as_tensor(x, "repeat"), repeats, axis)
    return found


def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
    """The whole tensor repeated along its dimensions."""
    return as_tensor(x, "tile").tile(tuple(repetitions))


# -- joins -------------------------------------------------------------------------------------


def concat(arrays: Any, /, *, axis: int | None = 0) -> Tensor:
    """Tensors joined along an axis; they are flattened first if it is None.

    >>> from tapegrad import array_api as xp
    >>> xp.concat([xp.asarray([1, 2]), xp.asarray([3.0])])
    tensor([1., 2., 3.])
    """
    parts = same_dtype(*arrays)
    if axis is None:
        parts, axis = [x.reshape(-1) for x in parts], 0
    found: Tensor = operation("cat")(parts, axis)
    return found


def stack(arrays: Any, /, *, axis: int = 0) -> Tensor:
    """Tensors of one shape along a new axis."""
    found: Tensor = operation("stack")(same_dtype(*arrays), axis)
    return found


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices along an axis."""
    return tuple(as_tensor(x, "unstack").unbind(axis))


# -- products ----------------------------------------------------------------------------------


def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The product of matrices, vectors or batches of them."""
    a, b = same_dtype(as_tensor(x1, "matmul"), as_tensor(x2, "matmul"))
    found: Tensor = operation("matmul")(a, b)
    return found


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: Any = 2) -> Tensor:
    """Sums of products over axes of two tensors."""
    a, b = same_dtype(as_tensor(x1), as_tensor(x2))
    dims = axes if isinstance(axes, int) else tuple(list(part) for part in axes)
    found: Tensor = operation("tensordot")(a, b, dims)
    return found


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Sums of products along an axis; the first factor is conjugated."""
    a, b = same_dtype(as_tensor(x1), as_tensor(x2))
    if not -min(a.ndim, b.ndim) <= axis < 0 and (a.ndim, b.ndim) != (1, 1):
        raise IndexError(f"vecdot: axis {axis} is out of range")
    if a.shape[axis] != b.shape[axis]:
        raise ValueError(f"vecdot: sizes {a.shape[axis]} and {b.shape[axis]} differ")
    left = a.conj() if a.dtype.is_complex else a
    product = operation("movedim")(left, axis, -1) * operation("movedim")(b, axis, -1)
    found: Tensor = product.sum(-1).to(a.dtype)
    return found


__all__ = [
    *("broadcast_arrays", "broadcast_shapes", "broadcast_to", "concat", "expand_dims", "flip"),
    *("matmul", "matrix_transpose", "moveaxis", "permute_dims", "repeat", "reshape", "roll"),
    *("squeeze", "stack", "tensordot", "tile", "unstack", "vecdot"),
]
