"""Functions that make sparse tensors from coordinates and elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.conversion import as_array
from ...core.dtypes import int64
from ...core.tensor import Tensor, not_recorded, wrap
from ..creation import tensor, valid_shape
from .tensor import SparseTensor, made

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..annotations import DeviceLike, DTypeLike

#: whether the coordinates of a new tensor are checked against its size
checks = True


def sparse_coo_tensor(
    indices: Any = None,
    values: Any = None,
    size: Sequence[int] | None = None,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
) -> Tensor:
    """A sparse tensor of coordinates (dimensions, count) and elements (count, ...).

    Elements with equal coordinates are added. The default `size` is the smallest that contains all
    coordinates. With only a size, the tensor has no elements. Coordinates out of range raise an
    error, unless `check_invariants` is False.

    >>> import tapegrad
    >>> x = tapegrad.sparse_coo_tensor([[0, 1, 1]], [3.0, 4.0, 5.0], (3,))
    >>> x.to_dense(), x.coalesce().values()
    (tensor([3., 9., 0.]), tensor([3., 9.]))
    """
    if values is None:
        shape = valid_shape((indices if size is None else size,))
        coordinates = wrap(np.zeros((len(shape), 0), np.int64))
        values = tensor([], dtype=dtype, device=device)
        is_coalesced = True
    else:
        given = indices if isinstance(indices, Tensor) else wrap(as_array(indices))
        not_recorded(given, "sparse_coo_tensor()")
        coordinates = given.detach().to(int64)
        values = _elements(values, dtype, device)
        shape = _shape(coordinates._array, values._array, size)
        if check_invariants or (checks and check_invariants is None):
            _check_range(coordinates._array, shape)
    out = made(coordinates, values, shape, bool(is_coalesced))
    return out.requires_grad_() if requires_grad else out


def _elements(values: Any, dtype: Any, device: Any) -> Tensor:
    if not isinstance(values, Tensor):
        return tensor(values, dtype=dtype, device=device)
    # A new tensor on the same memory, because requires_grad_() must not change `values` itself.
    found = values.view_as(values) if values.requires_grad else values.detach()
    out: Tensor = found.to(dtype=dtype, device=device)
    return out


def _shape(coordinates: Any, elements: Any, size: Any) -> tuple[int, ...]:
    if coordinates.ndim != 2:
        raise RuntimeError(f"indices must be (dimensions, count), got shape {coordinates.shape}")
    sparse, count = coordinates.shape
    if elements.ndim < 1 or len(elements) != count:
        found = len(elements) if elements.ndim else "none"
        raise RuntimeError(
            f"indices are of {count} elements and values of {found}; they need the same number"
        )
    if size is None:
        if not count and sparse:
            return (*[0] * sparse, *elements.shape[1:])
        return (*(coordinates.max(1) + 1).tolist(), *elements.shape[1:]) if sparse else ()
    shape = valid_shape((size,))
    if len(shape) != sparse + elements.ndim - 1:
        raise RuntimeError(
            f"size has {len(shape)} dimensions, but there are {sparse} rows of indices and values "
            f"with {elements.ndim - 1} more dimensions"
        )
    if shape[sparse:] != elements.shape[1:]:
        raise RuntimeError(
            f"values of shape {elements.shape} do not fit: size asks for {(count, *shape[sparse:])}"
        )
    return shape


def _check_range(coordinates: Any, shape: tuple[int, ...]) -> None:
    for dim, row in enumerate(coordinates):
        if row.size and row.min() < 0:
            raise RuntimeError(f"an index of dimension {dim} is negative: {row.min()}")
        if row.size and row.max() >= shape[dim]:
            raise RuntimeError(
                f"index {row.max()} is out of range for dimension {dim} of size {shape[dim]}"
            )


def as_rows(values: Any, tokens: Any, shape: tuple[int, ...]) -> SparseTensor:
    """The sparse gradient of a matrix after a lookup of rows: one element for each token.

    `values` and `tokens` are arrays or tensors, as gradient rules get them.
    """
    elements = values if isinstance(values, Tensor) else wrap(values)
    coordinates = tokens._array if isinstance(tokens, Tensor) else tokens
    return made(wrap(coordinates.reshape(1, -1).astype(np.int64)), elements, shape, False)
