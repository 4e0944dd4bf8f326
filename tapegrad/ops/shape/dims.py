"""Normalizes dims and shapes as users give them.

Comes in: one or several dims, which may count from the end; sizes, as separate integers or as a
sequence. Goes out: non-negative integers and tuples of them, or an error that says what was
expected. Called by public functions before they call a primitive.
"""

from __future__ import annotations

import operator
from typing import Any

from ...core.tensor import Size, Tensor

#: by number of dimensions, the tuple of all dims
ALL_DIMS = tuple([tuple(range(n)) for n in range(6)])


def normal_dim(dim: Any, ndim: int, what: str = "dim") -> int:
    """`dim` counted from the front, or IndexError when it is out of range."""
    if dim.__class__ is int and -ndim <= dim < ndim:
        return dim % ndim
    if isinstance(dim, bool) or not hasattr(dim, "__index__"):
        raise TypeError(f"{what} must be an integer, got {type(dim).__name__}")
    index: int = operator.index(dim)
    limit = max(ndim, 1)
    if not -limit <= index < limit:
        raise IndexError(
            f"{what} {dim} is out of range for a tensor of {ndim} dimensions: "
            f"expected {-limit} to {limit - 1}"
        )
    return index % limit


def normal_dims(dim: Any, ndim: int) -> tuple[int, ...]:
    """One dim, several, or None for all, as a sorted tuple."""
    if dim is None:
        return ALL_DIMS[ndim] if ndim < len(ALL_DIMS) else tuple(range(ndim))
    if dim.__class__ is int and -ndim <= dim < ndim:
        return (dim % ndim,)
    if isinstance(dim, (tuple, list)):
        if not dim:
            return tuple(range(ndim))
        dims = [normal_dim(d, ndim) for d in dim]
        if len(set(dims)) < len(dims):
            raise RuntimeError(f"dim {tuple(dim)} names a dimension twice")
        return tuple(sorted(dims)) if ndim else ()
    found = normal_dim(dim, ndim)
    return (found,) if ndim else ()


def as_shape(sizes: tuple[Any, ...]) -> tuple[int, ...]:
    """Sizes given as separate integers or as one sequence."""
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list, Size)):
        sizes = tuple(sizes[0])
    for n in sizes:
        if n.__class__ is not int:
            break
    else:
        return sizes
    try:
        return tuple(operator.index(n) for n in sizes)
    except TypeError:
        raise TypeError(f"a shape must be made of integers, got {sizes}") from None


def check_sequence(tensors: Any, what: str) -> None:
    """Raise an error unless tensors are given as a sequence of them."""
    if isinstance(tensors, Tensor):
        raise TypeError(f"{what}() takes a sequence of tensors, got a Tensor")
