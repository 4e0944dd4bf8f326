"""Functions along axes: statistics, running sums, truth of elements, search, order, sets."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..core import dtypes
from ..core.dtypes import DType
from ..core.tensor import Tensor
from .operands import as_tensor, axes_of, operation, same_dtype

Axis = int | tuple[int, ...] | None

# -- statistics --------------------------------------------------------------------------------


def _sum_dtype(x: Tensor, dtype: DType | None) -> DType:
    if dtype is not None:
        return dtype
    return dtypes.int64 if x.dtype.category <= dtypes.INTEGER else x.dtype


def sum(
    x: Tensor, /, *, axis: Axis = None, dtype: DType | None = None, keepdims: bool = False
) -> Tensor:
    """The sum along axes; by default, integers and booleans are added as int64.

    >>> from tapegrad import array_api as xp
    >>> xp.sum(xp.asarray([[1, 2], [3, 4]]), axis=0)
    tensor([4, 6])
    """
    x = as_tensor(x, "sum")
    axes = axes_of(axis, x.ndim)
    wide = x.to(_sum_dtype(x, dtype))
    return wide.sum(axes, keepdim=keepdims).to(wide.dtype) if axes else wide.clone()


def prod(
    x: Tensor, /, *, axis: Axis = None, dtype: DType | None = None, keepdims: bool = False
) -> Tensor:
    """The product along axes; by default, integers and booleans are multiplied as int64."""
    x = as_tensor(x, "prod")
    wide = x.to(_sum_dtype(x, dtype))
    axes = axes_of(axis, x.ndim)
    return wide.prod(axes, keepdim=keepdims).to(wide.dtype) if axes else wide.clone()


def mean(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The mean along axes."""
    x = as_tensor(x, "mean")
    axes = axes_of(axis, x.ndim)
    return x.mean(axes, keepdim=keepdims) if axes else x.clone()


def var(
    x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False
) -> Tensor:
    """The variance along axes, with the divisor n - correction."""
    x = as_tensor(x, "var")
    axes = axes_of(axis, x.ndim)
    if not axes:
        return x * 0 if correction < 1 else x * 0 / 0
    return x.var(axes, correction=correction, keepdim=keepdims)


def std(
    x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False
) -> Tensor:
    """The standard deviation along axes: the square root of `var`."""
    return var(x, axis=axis, correction=correction, keepdims=keepdims).sqrt()


def max(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The largest element along axes."""
    return _extreme("amax", x, axis, keepdims)


def min(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The smallest element along axes."""
    return _extreme("amin", x, axis, keepdims)


def _extreme(name: str, x: Tensor, axis: Axis, keepdims: bool) -> Tensor:
    x = as_tensor(x, name)
    axes = axes_of(axis, x.ndim)
    found: Tensor = operation(name)(x, axes, keepdims) if axes else x.clone()
    return found


def cumulative_sum(
    x: Tensor,
    /,
    *,
    axis: int | None = None,
    dtype: DType | None = None,
    include_initial: bool = False,
) -> Tensor:
    """Running sums along an axis, which begin with 0 if `include_initial`."""
    return _cumulative("cumsum", 0, x, axis, dtype, include_initial)


def cumulative_prod(
    x: Tensor,
    /,
    *,
    axis: int | None = None,
    dtype: DType | None = None,
    include_initial: bool = False,
) -> Tensor:
    """Running products along an axis, which begin with 1 if `include_initial`."""
    return _cumulative("cumprod", 1, x, axis, dtype, include_initial)


def _cumulative(
    name: str, first: int, x: Any, axis: int | None, dtype: DType | None, include_initial: bool
) -> Tensor:
    x = as_tensor(x, name)
    if axis is None:
        if x.ndim > 1:
            raise ValueError(f"{name} of {x.ndim} dimensions needs an axis")
        axis = 0
    wide = x.to(_sum_dtype(x, dtype))
    out: Tensor = operation(name)(wide, axis).to(wide.dtype)
    if include_initial:
        (a,) = axes_of(axis, x.ndim)
        shape = [1 if i == a else n for i, n in enumerate(x.shape)]
        out = operation("cat")([wide.new_full(shape, first), out], axis)
    return out


# -- truth -------------------------------------------------------------------------------------


def all(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Whether all elements along axes are true."""
    x = as_tensor(x, "all")
    axes = axes_of(axis, x.ndim)
    truth = x != 0
    return truth.all(axes, keepdim=keepdims) if axes else truth


def any(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Whether any element along axes is true."""
    x = as_tensor(x, "any")
    axes = axes_of(axis, x.ndim)
    truth = x != 0
    return truth.any(axes, keepdim=keepdims) if axes else truth


def diff(
    x: Tensor,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    """The differences of adjacent elements along an axis, taken n times."""
    found: Tensor = operation("diff")(as_tensor(x, "diff"), n, axis, prepend, append)
    return found


# -- search ------------------------------------------------------------------------------------


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the largest element."""
    return _place("argmax", x, axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the smallest element."""
    return _place("argmin", x, axis, keepdims)


def _place(name: str, x: Tensor, axis: int | None, keepdims: bool) -> Tensor:
    x = as_tensor(x, name)
    out: Tensor = operation(name)(
        x.reshape(-1) if axis is None else x, -1 if axis is None else axis
    )
    if keepdims:
        shape = [1] * x.ndim if axis is None else list(x.shape)
        if axis is not None and shape:
            shape[axis] = 1
        out = out.reshape(shape)
    return out


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """The indices of nonzero elements, one tensor for each dimension."""
    x = as_tensor(x, "nonzero")
    if not x.ndim:
        raise ValueError("nonzero needs an array of at least one dimension")
    return tuple(x.nonzero().unbind(1))


def count_nonzero(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The number of nonzero elements along axes."""
    return sum((as_tensor(x, "count_nonzero") != 0), axis=axis, keepdims=keepdims)


def searchsorted(
    x1: Tensor, x2: Any, /, *, side: str = "left", sorter: Tensor | None = None
) -> Tensor:
    """The indices at which the values `x2` must be inserted to keep `x1` sorted."""
    if side not in ("left", "right"):
        raise ValueError(f"searchsorted: side must be 'left' or 'right', got {side!r}")
    edges, values = same_dtype(x1, x2)
    ordered = edges if sorter is None else take(edges, sorter)
    found: Tensor = operation("searchsorted")(ordered, values, side=side)
    return found


def where(condition: Tensor, x1: Any, x2: Any, /) -> Tensor:
    """The elements of `x1` where the condition is true, else those of `x2`."""
    if not isinstance(x1, Tensor) and not isinstance(x2, Tensor):
        target = dtypes.promote_types(dtypes.number_dtype(x1), dtypes.number_dtype(x2))
        x1, x2 = (operation("tensor")(v, dtype=target) for v in (x1, x2))
    a, b = same_dtype(x1, x2)
    found: Tensor = operation("where")(condition, a, b)
    return found


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """The slices along an axis at `indices`, which may have several dimensions.

    Negative indices count from the end.
    """
    x, indices = as_tensor(x, "take"), as_tensor(indices, "take")
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"take of {x.ndim} dimensions needs an axis")
        axis = 0
    (a,) = axes_of(axis, x.ndim)
    flat = indices.reshape(-1).long()
    from_zero = operation("where")(flat < 0, flat + x.shape[a], flat)
    found = operation("index_select")(x, a, from_zero)
    out: Tensor = found.reshape((*x.shape[:a], *indices.shape, *x.shape[a + 1 :]))
    return out


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """The elements at `indices` along an axis."""
    found: Tensor = operation("take_along_dim")(as_tensor(x), indices.long(), axis)
    return found


# -- order -------------------------------------------------------------------------------------


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The values sorted along an axis."""
    return as_tensor(x, "sort").sort(axis, descending)[0]


def argsort(
    x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> Tensor:
    """The indices that sort an axis."""
    return as_tensor(x, "argsort").argsort(axis, descending)


# -- sets --------------------------------------------------------------------------------------


class AllUnique(NamedTuple):
    """The unique values, their first indices, the index of each element's value, and counts."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """The unique values, and how often each occurs."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """The unique values, and the index of each element's value among them."""

    values: Tensor
    inverse_indices: Tensor


def _unique(x: Tensor) -> AllUnique:
    import numpy as np

    x = as_tensor(x, "unique").detach()
    values, indices, inverse, counts = np.unique(
        x.numpy(), return_index=True, return_inverse=True, return_counts=True, equal_nan=False
    )
    parts = [operation("from_numpy")(np.ascontiguousarray(p)) for p in (values, indices)]
    parts += [operation("from_numpy")(p) for p in (inverse.reshape(tuple(x.shape)), counts)]
    return AllUnique(*parts)


def unique_all(x: Tensor, /) -> AllUnique:
    """The unique values, their first indices, the index of each element's value, and counts."""
    return _unique(x)


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """The unique values, and how often each occurs."""
    found = _unique(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """The unique values, and the index of each element's value among them."""
    found = _unique(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: Tensor, /) -> Tensor:
    """The unique values. NaNs differ from each other.

    >>> from tapegrad import array_api as xp
    >>> xp.unique_values(xp.asarray([3, 1, 3]))
    tensor([1, 3])
    """
    return _unique(x).values


def isin(x1: Any, x2: Any, /, *, invert: bool = False) -> Tensor:
    """Whether each element of `x1` is among those of `x2`."""
    a, b = same_dtype(x1, x2)
    found: Tensor = operation("isin")(a, b, invert=invert)
    return found


__all__ = [
    *("all", "any", "argmax", "argmin", "argsort", "count_nonzero", "cumulative_prod"),
    *("cumulative_sum", "diff", "isin", "max", "mean", "min", "nonzero", "prod", "searchsorted"),
    *("sort", "std", "sum", "take", "take_along_axis", "unique_all", "unique_counts"),
    *("unique_inverse", "unique_values", "var", "where"),
]
