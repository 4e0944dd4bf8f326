"""Hypothesis strategies: shapes, arrays, and index expressions with their meaning in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tapegrad.core.tensor import wrap

Index = tuple[Any, ...]


def shapes(min_dims: int = 0, max_dims: int = 4, max_side: int = 4, min_side: int = 0) -> Any:
    return hnp.array_shapes(
        min_dims=min_dims, max_dims=max_dims, min_side=min_side, max_side=max_side
    ) | (st.just(()) if min_dims == 0 else st.nothing())


def numbered(shape: tuple[int, ...]) -> Any:
    """Distinct float64 values, so that a misplaced element is noticed."""
    return np.arange(1.0, 1.0 + np.prod(shape, dtype=int)).reshape(shape)


@st.composite
def slices(draw: Any, size: int) -> slice:
    bound = st.none() | st.integers(-size - 2, size + 2)
    return slice(draw(bound), draw(bound), draw(st.none() | st.integers(1, 3)))


@st.composite
def index_arrays(draw: Any, size: int, shape: tuple[int, ...]) -> Any:
    """Integers in -size..size-1, of a shape that broadcasts to `shape`."""
    own = tuple(draw(st.sampled_from([1, n])) for n in shape[draw(st.integers(0, len(shape))) :])
    return draw(hnp.arrays(np.int64, own, elements=st.integers(-size, size - 1)))


@st.composite
def indices(draw: Any, shape: tuple[int, ...]) -> Index:
    """An index for a tensor of `shape`: integers, slices, None, Ellipsis, arrays and masks."""
    common = draw(hnp.array_shapes(min_dims=0, max_dims=2, max_side=3)) if shape else ()
    items: list[Any] = []
    dim = 0
    masked = False
    while dim < len(shape):
        size = shape[dim]
        kinds = ["slice", "slice", "none", "stop"]
        if size:
            kinds += ["integer", "array", "array"]
        if not masked:
            kinds.append("mask")
        kind = draw(st.sampled_from(kinds))
        if kind == "stop":
            break
        if kind == "none":
            items.append(None)
            if len(items) > 6:
                break
            continue
        if kind == "slice":
            items.append(draw(slices(size)))
        elif kind == "integer":
            items.append(draw(st.integers(-size, size - 1)))
        elif kind == "array":
            items.append(draw(index_arrays(size, common)))
        else:
            # At most one mask; its number of True must broadcast with the other arrays, if any.
            masked = True
            span = draw(st.integers(1, min(2, len(shape) - dim)))
            items.append(draw(hnp.arrays(np.bool_, shape[dim : dim + span])))
            dim += span - 1
        dim += 1
    if draw(st.booleans()):
        # An ellipsis before the last items, which then index the last dimensions.
        tail = _tail(draw, shape, dim)
        items.append(Ellipsis)
        items += tail
    return tuple(items)


def _tail(draw: Any, shape: tuple[int, ...], used: int) -> list[Any]:
    rest = shape[used:]
    count = draw(st.integers(0, len(rest)))
    tail: list[Any] = []
    for size in rest[len(rest) - count :]:
        tail.append(draw(slices(size)))
    return tail


def for_tapegrad(index: Index) -> Index:
    """The index with arrays as tensors."""
    return tuple(wrap(i) if isinstance(i, np.ndarray) else i for i in index)


def is_plain(index: Index) -> bool:
    """Whether NumPy and PyTorch interpret the index alike.

    With index arrays, NumPy treats an integer as one more; PyTorch selects by the integer first.
    """
    whole = any(isinstance(i, int) or (isinstance(i, np.ndarray) and not i.ndim) for i in index)
    return not (whole and has_arrays(index))


def has_arrays(index: Index) -> bool:
    """Whether arrays are among the indices; a 0-d array counts as an integer."""
    return any(isinstance(i, np.ndarray) and i.ndim for i in index)


def has_repeats(array: Any, index: Index) -> bool:
    """Whether the index selects an element twice."""
    numbers = np.arange(array.size).reshape(array.shape)[index]
    return len(np.unique(numbers)) < numbers.size
