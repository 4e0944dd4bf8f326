"""Methods of dense tensors for conversion to and from sparse ones.

Comes in: a dense tensor. `to_sparse` returns a sparse tensor of the elements that are not 0, and
`sparse_mask` one of those at given coordinates. Methods that only sparse tensors support raise an
error here. The sparse ones are in `ops/sparse/`, which is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.layouts import LAYOUTS
from ..core.tensor import Tensor, not_recorded, wrap
from .index.indexing import take_
from .table import attach

if TYPE_CHECKING:
    from .annotations import DTypeLike


def _to_dense(
    self: Tensor, dtype: DTypeLike | None = None, *, masked_grad: bool | None = None
) -> Tensor:
    """The tensor itself, or cast to another dtype: it is dense."""
    return self if dtype is None else self.to(dtype)


def _to_sparse(
    self: Tensor,
    sparse_dim: int | None = None,
    *,
    layout: object = None,
    blocksize: object = None,
    dense_dim: int | None = None,
) -> Tensor:
    """A sparse tensor of the elements that are not 0.

    Coordinates index the first `sparse_dim` dimensions, by default all; elements have the others.

    >>> import tapegrad
    >>> tapegrad.tensor([[0.0, 2.0], [0.0, 0.0]]).to_sparse()
    tensor(indices=tensor([[0],
                           [1]]),
           values=tensor([2.]),
           size=(2, 2), nnz=1, layout=tapegrad.sparse_coo)
    """
    from .sparse.tensor import made

    if layout not in (None, LAYOUTS["sparse_coo"]) or blocksize is not None:
        raise NotImplementedError(f"to_sparse: tensors cannot be {layout}; there is sparse_coo")
    ndim = self._array.ndim
    dims = ndim - (dense_dim or 0) if sparse_dim is None else int(sparse_dim)
    if not (0 if ndim == 0 else 1) <= dims <= ndim:
        raise RuntimeError(f"to_sparse: sparse_dim must be from 1 to {ndim}, got {dims}")
    not_recorded(self, "to_sparse()")
    array = self._array
    if not dims:
        return made(wrap(np.zeros((0, 1), np.int64)), self.reshape(1), (), True)
    there = array != 0
    if dims < ndim:
        there = there.any(tuple(range(dims, ndim)))
    rows = [wrap(row) for row in np.nonzero(there)]
    coordinates = wrap(np.stack([row._array for row in rows]).astype(np.int64, copy=False))
    return made(coordinates, take_(self, *rows, dims=tuple(range(dims))), array.shape, True)


def _sparse_mask(self: Tensor, mask: Tensor) -> Tensor:
    """The elements at the coordinates of a sparse tensor."""
    from .sparse.rules import check_shapes, like, picked

    if not mask.is_sparse:
        raise RuntimeError("sparse_mask needs a sparse tensor; use mask.to_sparse()")
    check_shapes("sparse_mask", self, mask)
    return like(mask, picked(self, mask))  # type: ignore[arg-type]  # it is sparse


def _sparse_dim(self: Tensor) -> int:
    """0: a dense tensor has no sparse dimensions."""
    return 0


def _dense_dim(self: Tensor) -> int:
    """The number of dimensions."""
    return int(self._array.ndim)


def _only_sparse(name: str, result: str) -> Any:
    def method(self: Tensor) -> Any:
        raise RuntimeError(
            f"{name}() is for sparse tensors, and this one is dense; use to_sparse() first"
        )

    method.__name__ = name
    method.__doc__ = "What sparse tensors have; an error for dense ones."
    method.__annotations__["return"] = result
    return method


attach(
    to_dense=_to_dense,
    to_sparse=_to_sparse,
    to_sparse_coo=_to_sparse,
    sparse_mask=_sparse_mask,
    sparse_dim=_sparse_dim,
    dense_dim=_dense_dim,
    _dimI=_sparse_dim,
    _dimV=_dense_dim,
    is_coalesced=_only_sparse("is_coalesced", "bool"),
    _nnz=_only_sparse("_nnz", "int"),
    **{
        name: _only_sparse(name, "Tensor")
        for name in ("coalesce", "indices", "_indices", "_values", "values")
    },
)
