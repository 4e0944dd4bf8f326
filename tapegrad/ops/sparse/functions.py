"""Functions of `tapegrad.sparse` other than products and sums: softmax and `spdiags`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import dtypes, numeric
from ...core.layouts import LAYOUTS
from ...core.sparse import refusal
from ...core.tensor import Tensor, not_recorded, wrap
from ..index.indexing import put_add_, take_
from ..nn.softmax import log_softmax as dense_log_softmax
from ..shape.dims import normal_dim
from .creation import sparse_coo_tensor
from .rules import like
from .tensor import SparseTensor, flat_keys


def softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """exp(x) / sum(exp(x)) along a dimension, over the stored elements.

    Elements that are not stored count as minus infinity, not as 0.

    >>> import tapegrad
    >>> x = tapegrad.sparse_coo_tensor([[0, 0, 1], [0, 2, 1]], [1.0, 1.0, 5.0], (2, 3))
    >>> tapegrad.sparse.softmax(x, 1).to_dense()
    tensor([[0.5000, 0.0000, 0.5000],
            [0.0000, 1.0000, 0.0000]])
    """
    x, logarithms = _logarithms("softmax", input, dim, dtype)
    return like(x, logarithms.exp().to(x.dtype))


def log_softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """The logarithm of `softmax`."""
    x, logarithms = _logarithms("log_softmax", input, dim, dtype)
    return like(x, logarithms.to(x.dtype))


def _logarithms(what: str, input: Any, dim: int, dtype: Any) -> tuple[SparseTensor, Any]:
    """The coalesced tensor, and log_softmax of its elements, at least in float32."""
    if not isinstance(input, SparseTensor):
        raise NotImplementedError(f"sparse.{what} needs a sparse tensor; use to_sparse() first")
    x: Any = (input if dtype is None else input.to(dtypes.as_dtype(dtype))).coalesce()
    if not numeric.is_floating(x._array.dtype):
        raise refusal(f"{what} of {x.dtype}")
    parts, sparse = x.parts, x.sparse_dim()
    elements = parts.elements.float() if x.dtype.itemsize < 4 else parts.elements
    dim = normal_dim(dim, x.ndim)
    if dim >= sparse:
        return x, dense_log_softmax(elements, dim - sparse + 1)
    others = [d for d in range(sparse) if d != dim]
    keys = flat_keys(parts.coordinates._array[others], tuple(parts.shape[d] for d in others))
    found, inverse = np.unique(keys, return_inverse=True)
    group = wrap(inverse.reshape(-1))
    shape = (len(found), *elements._array.shape[1:])
    peaks = np.full(shape, -np.inf, elements._array.dtype)
    np.maximum.at(peaks, group._array, elements._array)
    apart = elements - take_(wrap(peaks), group, dims=(0,))
    total = put_add_(apart.exp(), group, dims=(0,), shape=shape)
    return x, apart - take_(total.log(), group, dims=(0,))


def spdiags(
    diagonals: Tensor, offsets: Tensor, shape: tuple[int, int], layout: object = None
) -> Tensor:
    """A sparse matrix with the rows of a matrix on its diagonals.

    Row i is the diagonal that is `offsets[i]` columns to the right of the main one. Its element j
    is in column j of the matrix; elements that lie outside of the matrix are left out.

    >>> import tapegrad
    >>> rows, places = tapegrad.tensor([[1.0, 2.0], [3.0, 4.0]]), tapegrad.tensor([0, 1])
    >>> tapegrad.sparse.spdiags(rows, places, (2, 2)).to_dense()
    tensor([[1., 4.],
            [0., 2.]])
    """
    if layout not in (None, LAYOUTS["sparse_coo"]):
        raise NotImplementedError(f"spdiags: tensors cannot be {layout}; there is sparse_coo")
    rows = diagonals.reshape(1, -1) if diagonals.ndim == 1 else diagonals
    not_recorded(offsets, "spdiags()")
    places = offsets._array.reshape(-1)
    if rows.ndim != 2 or len(places) != len(rows._array):
        raise RuntimeError(
            f"spdiags needs a row for each of {len(places)} offsets, got {tuple(diagonals.shape)}"
        )
    if len(np.unique(places)) < len(places):
        raise RuntimeError("spdiags: an offset is there twice; each diagonal has one row")
    height, width = shape
    columns = np.arange(rows._array.shape[1])[None, :]
    lines = columns - places[:, None]
    inside = (lines >= 0) & (lines < height) & (columns < width)
    which = np.nonzero(inside)
    coordinates = np.stack([lines[inside], which[1]]).astype(np.int64)
    elements = take_(rows, *map(wrap, which), dims=(0, 1))
    return sparse_coo_tensor(wrap(coordinates), elements, (height, width))
