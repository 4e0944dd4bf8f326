"""Parts of sparse tensors: `x[0]`, `x[:, 1:3]`, `index_select`, `split`; `stack` and `unsqueeze`.

Comes in: the operands of a primitive, as in `rules.py`. Parts are copies, because sparse tensors
have no memory layout for views. If no sparse dimension is left, the result is dense.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.sparse import refusal
from ...core.tensor import wrap
from ..index.indexing import take_
from ..shape.joining import cat
from ..shape.slicing import slice_
from .rules import rule, same_dtype
from .tensor import SparseTensor, flat_keys, made


@rule("slice", "piece")
def _slice(x: Any, index: Any) -> Any:
    """Slice with static indices: an integer, (start, stop, step), or None for a whole dimension."""
    parts, sparse = x.parts, x.sparse_dim()
    coordinates = parts.coordinates._array
    inside = np.ones(coordinates.shape[1], bool)
    rows, sizes = [], []
    for dim, size in enumerate(parts.shape[:sparse]):
        chosen, row = index[dim] if dim < len(index) else None, coordinates[dim]
        if chosen is None:
            chosen = (0, size, 1)
        if not isinstance(chosen, tuple):
            inside &= row == chosen
            continue
        start, stop, step = chosen
        inside &= (row >= start) & (row < stop) & ((row - start) % step == 0)
        rows.append((row - start) // step)
        sizes.append(len(range(start, stop, step)))
    kept = np.flatnonzero(inside)
    elements = take_(parts.elements, wrap(kept), dims=(0,))
    if any(i is not None for i in index[sparse:]):
        elements = slice_(elements, index=(None, *index[sparse:])).clone()
    if not rows:
        return elements.sum(0)
    shape = (*sizes, *elements._array.shape[1:])
    return made(wrap(np.stack(rows)[:, kept]), elements, shape, parts.unique)


@rule("index")
def _index(x: Any, *indices: Any, dims: Any) -> Any:
    """The elements whose coordinate equals an index, once for each index."""
    parts = x.parts if isinstance(x, SparseTensor) else None
    if parts is None or len(indices) != 1 or indices[0].ndim != 1:
        raise refusal("indexing by more than one tensor of one dimension")
    (dim,), chosen = dims, indices[0]
    if chosen.is_sparse:
        raise refusal("indexing by a sparse tensor")
    wanted = np.where(chosen._array < 0, chosen._array + parts.shape[dim], chosen._array)
    if wanted.size and not (wanted.min() >= 0 and wanted.max() < parts.shape[dim]):
        raise IndexError(f"an index is out of range for dimension {dim} of {parts.shape[dim]}")
    shape = (*parts.shape[:dim], wanted.size, *parts.shape[dim + 1 :])
    if dim >= x.sparse_dim():
        picked = take_(parts.elements, wrap(wanted), dims=(dim - x.sparse_dim() + 1,))
        return made(parts.coordinates, picked, shape, parts.unique)
    order = np.argsort(parts.coordinates._array[dim], kind="stable")
    row = parts.coordinates._array[dim][order]
    first = np.searchsorted(row, wanted)
    counts = np.searchsorted(row, wanted, side="right") - first
    # Elements with one coordinate are adjacent in `order`: count from the first of them.
    place = np.repeat(np.arange(wanted.size), counts)
    at = order[np.arange(len(place)) + np.repeat(first - np.cumsum(counts) + counts, counts)]
    coordinates = parts.coordinates._array[:, at].copy()
    coordinates[dim] = place
    return made(wrap(coordinates), take_(parts.elements, wrap(at), dims=(0,)), shape, False)


@rule("reshape")
def _reshape(x: Any, shape: Any) -> Any:
    """Reshape only sparse dimensions, as unsqueeze and squeeze do, or only dense ones."""
    parts, sparse = x.parts, x.sparse_dim()
    before, inner = parts.shape[:sparse], parts.shape[sparse:]
    count = len(shape) - len(inner)
    if count > 0 and tuple(shape[count:]) == inner:
        keys = flat_keys(parts.coordinates._array, before)
        rows = np.unravel_index(keys, shape[:count]) if keys.size else [keys] * count
        return made(wrap(np.stack(rows)), parts.elements, shape, parts.unique)
    if tuple(shape[:sparse]) == before:
        elements = parts.elements.reshape(x._nnz(), *shape[sparse:])
        return made(parts.coordinates, elements, shape, parts.unique)
    raise refusal("reshape across sparse and dense dimensions")


@rule("stack")
def _stack(*tensors: Any, dim: int) -> Any:
    first = tensors[0]
    if not all(isinstance(t, SparseTensor) for t in tensors) or dim > first.sparse_dim():
        raise refusal("stack with dense tensors, or at a dense dimension,")
    if any(t.sparse_dim() != first.sparse_dim() for t in tensors):
        raise refusal("stack of tensors with other numbers of sparse dimensions")
    coordinates = [
        np.insert(t.parts.coordinates._array, dim, number, axis=0)
        for number, t in enumerate(tensors)
    ]
    shape = (*first._array.shape[:dim], len(tensors), *first._array.shape[dim:])
    elements = cat(same_dtype(*[t.parts.elements for t in tensors]))
    return made(wrap(np.concatenate(coordinates, 1)), elements, shape, False)
