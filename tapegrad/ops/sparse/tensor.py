"""Sparse tensors in coordinate format (COO), as in PyTorch.

Comes in: coordinates and elements. Goes out: a `SparseTensor`. Its history is that of its elements:
operations consist of operations on dense tensors, so gradients of all orders work. Coordinates may
be repeated, which means the sum of their elements; `coalesce()` adds them. `rules.py` has the rules
of operations on sparse tensors, and `core/sparse.py` calls them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np

from ...core.device import device
from ...core.layouts import LAYOUTS, layout
from ...core.modes import GRAD, STATE, no_grad
from ...core.overriding import disabled_torch_function
from ...core.sparse import SparseArray, refusal, refuse_capture
from ...core.tensor import Tensor, wrap
from ..index.indexing import put_add_

COO = LAYOUTS["sparse_coo"]


class SparseTensor(Tensor):
    """A tensor that stores some elements with their coordinates; all others are 0."""

    __slots__ = ()
    __torch_function__ = disabled_torch_function  # type: ignore[assignment]
    _array: SparseArray

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("sparse tensors are made by sparse_coo_tensor() or to_sparse()")

    # -- properties --------------------------------------------------------------------------

    @property
    def parts(self) -> SparseArray:
        """Its coordinates and elements. Reading them stops a capture."""
        refuse_capture("reading the parts")
        return self._array

    @property
    def device(self) -> device:
        """The device of the elements."""
        return self._array.elements.device

    @property
    def is_cuda(self) -> bool:
        """Whether the elements are on a GPU."""
        return self._array.elements.is_cuda

    @property
    def is_sparse(self) -> bool:
        """True"""
        return True

    @property
    def layout(self) -> layout:
        """`sparse_coo`"""
        return COO

    def _indices(self) -> Tensor:
        """The coordinates, (sparse dimensions, count), coalesced or not."""
        return self.parts.coordinates

    def _values(self) -> Tensor:
        """The elements at the coordinates, (count, ...)."""
        return self.parts.elements

    def indices(self) -> Tensor:
        """The coordinates of a coalesced tensor, (sparse dimensions, count)."""
        return self._checked("indices").coordinates

    def values(self) -> Tensor:
        """The elements of a coalesced tensor, (count, ...)."""
        return self._checked("values").elements

    def _checked(self, what: str) -> SparseArray:
        if not self.parts.unique:
            raise RuntimeError(
                f"{what}() needs a coalesced tensor, in which no coordinates are there twice; call "
                f"coalesce() first, or take _{what}()"
            )
        return self._array

    def _nnz(self) -> int:
        """The number of stored elements."""
        return len(self.parts.elements._array)

    def sparse_dim(self) -> int:
        """The number of sparse dimensions, which come first."""
        return len(self._array.coordinates._array)

    def dense_dim(self) -> int:
        """The number of dimensions of an element."""
        return self._array.elements.ndim - 1

    _dimI, _dimV = sparse_dim, dense_dim

    def is_coalesced(self) -> bool:
        """Whether the coordinates are sorted and unique."""
        return self.parts.unique

    def _coalesced_(self, coalesced: bool) -> SparseTensor:
        """Set whether the coordinates are sorted and unique, without a check."""
        parts = self.parts
        self._array = SparseArray(parts.coordinates, parts.elements, parts.shape, bool(coalesced))
        return self

    # -- other forms -------------------------------------------------------------------------

    def coalesce(self) -> SparseTensor:
        """An equal tensor with sorted, unique coordinates; elements with equal ones are added."""
        parts = self.parts
        if parts.unique:
            return self
        coordinates = parts.coordinates._array
        if coordinates.shape[1] < 2:
            return made(parts.coordinates, parts.elements, parts.shape, True)
        keys = flat_keys(coordinates, parts.shape)
        _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        shape = (len(first), *parts.elements._array.shape[1:])
        added = put_add_(parts.elements, wrap(inverse.reshape(-1)), dims=(0,), shape=shape)
        return made(wrap(coordinates[:, first]), added, parts.shape, True)

    def to_dense(self, dtype: Any = None, *, masked_grad: Any = None) -> Tensor:
        """A dense tensor, with 0 where no element is stored."""
        parts = self.parts
        elements = parts.elements if dtype is None else parts.elements.to(dtype)
        count = len(parts.coordinates._array)
        if not count:
            return elements.sum(0)
        dims = tuple(range(count))
        dense: Tensor = put_add_(elements, *rows_of(parts), dims=dims, shape=parts.shape)
        return dense

    def to_sparse(self, *args: Any, **options: Any) -> SparseTensor:
        """The tensor itself."""
        if args and args[0] not in (self.sparse_dim(), None, COO):
            raise refusal(f"to_sparse({args[0]})")
        return self

    to_sparse_coo = to_sparse

    def detach(self) -> Tensor:
        """A tensor that shares this one's data and has no history."""
        return made(self._array.coordinates, self._array.elements.detach(), *self._about())

    def clone(self, *, memory_format: Any = None) -> SparseTensor:
        """A copy, whose history leads to this tensor."""
        parts = self.parts
        return made(parts.coordinates.clone(), parts.elements.clone(), *self._about())

    def contiguous(self, memory_format: Any = None) -> NoReturn:
        """Not supported: sparse tensors have no order in memory."""
        raise refusal("contiguous")

    def _about(self) -> tuple[tuple[int, ...], bool]:
        return self._array.shape, self._array.unique

    # -- gradients ---------------------------------------------------------------------------

    @property
    def requires_grad(self) -> bool:
        """Whether the elements require gradients."""
        return self._array.elements.requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Ask for gradients of this leaf (or no longer ask); returns the tensor itself."""
        self._array.elements.requires_grad_(requires_grad)
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether the elements are not the result of a recorded operation."""
        return self._array.elements.is_leaf

    @property
    def grad_fn(self) -> Any:
        """The entry that made the elements; None for a leaf."""
        return self._array.elements.grad_fn

    @property
    def grad(self) -> Any:
        """The gradient of a leaf, at the same coordinates."""
        grad = self._array.elements.grad
        return None if grad is None else made(self._array.coordinates, grad, *self._about())

    @grad.setter
    def grad(self, value: Any) -> None:
        if value is not None:
            if not isinstance(value, SparseTensor) or value.shape != self.shape:
                raise RuntimeError(
                    f"the gradient of a sparse tensor must be a sparse tensor of its shape "
                    f"{tuple(self.shape)}, got {value!r}"
                )
            mine, theirs = self._array.coordinates._array, value._array.coordinates._array
            if not np.array_equal(mine, theirs):
                raise RuntimeError(
                    "the gradient of a sparse tensor must have its coordinates, in their order"
                )
            value = value._array.elements
        self._array.elements.grad = value

    def detach_(self) -> Tensor:
        """Cut this tensor from its history, in place."""
        parts = self._array
        self._array = SparseArray(parts.coordinates, parts.elements.detach(), *self._about())
        return self

    @property
    def data(self) -> Tensor:
        """The same data without history."""
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        raise refusal("setting .data")

    def backward(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not supported: losses are dense."""
        raise refusal("backward")

    def register_hook(self, hook: Any) -> Any:
        """Not supported: hooks belong to the elements."""
        raise refusal("register_hook")

    register_post_accumulate_grad_hook = register_hook

    def retain_grad(self) -> None:
        """Does nothing for a leaf; not supported for other tensors."""
        if not self.is_leaf:
            raise refusal("retain_grad")

    # -- changes in place --------------------------------------------------------------------

    def become(self, value: Any, what: str) -> SparseTensor:
        """Take the coordinates and elements of another sparse tensor; `what` is the operation."""
        parts, leaf = self.parts, self._check_leaf(what)
        if not isinstance(value, SparseTensor):
            raise refusal(f"{what} with a dense result")
        if value._array.shape != parts.shape:
            raise RuntimeError(f"{what}: shape {tuple(parts.shape)} cannot become {value.shape}")
        if value.dtype.category > self.dtype.category:
            raise RuntimeError(f"{what}: a result of {value.dtype} does not fit into {self.dtype}")
        self._array = value.to(self.dtype)._array
        if leaf:
            self._array.elements.requires_grad_()
        return self

    def _check_leaf(self, what: str) -> bool:
        """Whether this is a leaf that requires gradients; if so, raise outside of no_grad()."""
        leaf = self.is_leaf and self.requires_grad
        if leaf and STATE.mode & GRAD:
            raise RuntimeError(
                f"{what} would change a leaf that requires gradients; do it inside of no_grad()"
            )
        return leaf

    def zero_(self) -> Any:
        """Remove all elements, in place."""
        parts, leaf = self.parts, self._check_leaf("zero_")
        with no_grad():
            coordinates, elements = parts.coordinates[:, :0], parts.elements[:0]
            self._array = SparseArray(coordinates.clone(), elements.clone(), parts.shape, True)
        if leaf:
            self._array.elements.requires_grad_()
        return self

    def copy_(self, src: Any, non_blocking: bool = False) -> Any:
        """Copy the coordinates and elements of another sparse tensor, in place."""
        if not isinstance(src, SparseTensor):
            raise RuntimeError("copy_() of a dense tensor into a sparse one; use to_sparse() on it")
        return self.become(src.clone(), "copy_")

    def add_(self, other: Any, scaled: Any = None, *, alpha: Any = 1) -> Any:
        """Add alpha * other, in place."""
        if scaled is not None:  # the older order: alpha, other
            other, alpha = scaled, other
        return self.become(self + (other if alpha == 1 else other * alpha), "add_")

    def sub_(self, other: Any, scaled: Any = None, *, alpha: Any = 1) -> Any:
        """Subtract alpha * other, in place."""
        if scaled is not None:  # the older order: alpha, other
            other, alpha = scaled, other
        return self.become(self - (other if alpha == 1 else other * alpha), "sub_")

    def mul_(self, other: Any) -> Any:
        """Multiply, in place."""
        return self.become(self * other, "mul_")

    def div_(self, other: Any, *, rounding_mode: Any = None) -> Any:
        """Divide, in place; a number divides in the memory of the elements, as in PyTorch."""
        plain = not isinstance(other, Tensor) or not other.ndim
        if plain and rounding_mode is None:
            self._check_leaf("div_")
            self.parts.elements.div_(other)
            return self
        return self.become(self.div(other, rounding_mode=rounding_mode), "div_")

    def neg_(self) -> Any:
        """Change the sign, in place, in the memory of the elements, as in PyTorch."""
        self._check_leaf("neg_")
        self.parts.elements.neg_()
        return self

    def resize_(self, *sizes: Any, memory_format: Any = None) -> NoReturn:
        """Not supported: sparse tensors keep their shape."""
        raise refusal("resize_")

    def resize_as_(self, the_template: Tensor, *, memory_format: Any = None) -> NoReturn:
        """Not supported: sparse tensors keep their shape."""
        raise refusal("resize_as_")

    def set_(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not supported: sparse tensors have no single storage."""
        raise refusal("set_")

    def untyped_storage(self) -> NoReturn:
        """Not supported: sparse tensors have no single storage."""
        raise refusal("untyped_storage")

    storage = _typed_storage = untyped_storage

    def as_subclass(self, cls: Any) -> NoReturn:
        """Not supported: tensors of other classes are dense."""
        raise refusal("as_subclass")

    __iadd__, __isub__, __imul__, __itruediv__ = add_, sub_, mul_, div_

    # -- elements and memory -----------------------------------------------------------------

    def numpy(self, *, force: bool = False) -> NoReturn:
        """Not supported: NumPy has no sparse arrays."""
        raise TypeError("numpy() of a sparse tensor: NumPy has none; use to_dense() first")

    def item(self) -> Any:
        """The number in a tensor of one element."""
        if math.prod(self._array.shape) != 1:
            raise RuntimeError(
                f"item() needs a tensor of one element, this one has shape {tuple(self.shape)}"
            )
        return self.to_dense().item()

    def tolist(self) -> NoReturn:
        """Not supported: lists are dense."""
        raise refusal("tolist")

    def __iter__(self) -> Iterator[Tensor]:
        return iter([self[number] for number in range(len(self))])

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise refusal("setting elements")

    def __contains__(self, value: Any) -> NoReturn:
        raise refusal("`in`")

    def has_nan(self) -> bool:
        """Whether any element is NaN."""
        return self.parts.elements.has_nan()

    def has_inf(self) -> bool:
        """Whether any element is infinite."""
        return self.parts.elements.has_inf()

    def data_ptr(self) -> NoReturn:
        """Not supported: sparse tensors have no single address."""
        raise refusal("data_ptr")

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """False, because sparse tensors have no order in memory."""
        return False

    def stride(self, dim: Any = None) -> Any:
        """Zeros, because sparse tensors have no order in memory."""
        return (0,) * len(self._array.shape) if dim is None else 0

    def __dlpack__(self, **kwargs: Any) -> NoReturn:
        raise refusal("__dlpack__")

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if not self.is_leaf:
            raise RuntimeError("only leaves can be deep-copied; use tensor.detach().clone()")
        memo[id(self)] = copy = self.detach().clone().requires_grad_(self.requires_grad)
        return copy

    def __copy__(self) -> Tensor:
        return made(self._array.coordinates, self._array.elements, *self._about())

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        parts = self.parts
        return made, (parts.coordinates, parts.elements, *self._about())


def made(
    coordinates: Tensor, elements: Tensor, shape: tuple[int, ...], unique: bool
) -> SparseTensor:
    """A sparse tensor of parts, which are not checked."""
    return wrap(SparseArray(coordinates, elements, tuple(shape), unique), SparseTensor)


def rows_of(parts: SparseArray) -> list[Tensor]:
    """The coordinates of each sparse dimension."""
    return [wrap(row) for row in parts.coordinates._array]


def flat_keys(coordinates: Any, shape: tuple[int, ...]) -> Any:
    """The coordinates of each element as one flat index."""
    if len(coordinates) == 1:
        return coordinates[0]
    if not len(coordinates):
        return np.zeros(coordinates.shape[1], np.int64)
    return np.ravel_multi_index(tuple(coordinates), shape[: len(coordinates)])
