"""Sparse arrays: what a sparse tensor has as its array, and how primitives run on such tensors.

A `SparseArray` has coordinates and elements, which are ordinary tensors. It has a shape and a dtype
like any array, and refuses to be read as one. `bind` hands over primitives with such an operand:
`ops/sparse/` enters here what they do (`RULES`). All other operations are refused by their name.
Dense tensors pay nothing for this, because short paths and kernels know other arrays by their class
and dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from . import numeric
from .modes import STATE, capturing

if TYPE_CHECKING:
    from .primitive import Primitive
    from .tensor import Tensor

#: by the name of a primitive: (inputs, params) -> its result, where an input is sparse
RULES: dict[str, Callable[[Sequence[Any], dict[str, Any]], Any]] = {}


@cache
def _marked(dtype: Any) -> Any:
    """An equal dtype that is another object, so that short paths leave the operation to `bind`."""
    return np.dtype(dtype, metadata={"sparse": True}) if not numeric.is_foreign(dtype) else dtype


class SparseArray:
    """Coordinates (sparse dimensions, count), elements (count, ...) and the shape of the whole.

    `unique` says that coordinates are sorted and none is there twice.
    """

    __slots__ = ("coordinates", "dtype", "elements", "shape", "unique")

    #: the memory that views and in-place operations ask for is that of the two tensors
    base = None

    def __init__(
        self, coordinates: Tensor, elements: Tensor, shape: tuple[int, ...], unique: bool
    ) -> None:
        self.coordinates = coordinates
        self.elements = elements
        self.shape = shape
        self.unique = unique
        self.dtype = _marked(elements._array.dtype)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        return int(self.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        return (0,) * len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        raise refusal("reading the elements")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> NoReturn:
        raise refusal(ufunc.__name__)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> NoReturn:
        raise refusal(function.__name__)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # of a protocol that somebody asks for
        raise refusal(name)


def refusal(what: str) -> NotImplementedError:
    """What is raised for everything that sparse tensors do not have."""
    return NotImplementedError(
        f"{what} is not supported for sparse tensors; use to_dense() first, or work on values()"
    )


def dense_array(tensor: Tensor) -> Any:
    """The array of a tensor, for another one to have."""
    if tensor._array.__class__ is SparseArray:
        raise refusal("making a dense tensor or a parameter of one")
    return tensor._array


def refuse_capture(what: str) -> None:
    """A program would keep the number of elements of its recording: let it run eagerly instead."""
    if capturing():
        for tape in STATE.tapes:
            tape.refuse_sparse(what)


def run(p: Primitive, inputs: Sequence[Any], params: dict[str, Any]) -> Any:
    """What a primitive makes of sparse operands, and of others beside them."""
    refuse_capture(p.name)
    if p.name not in RULES:
        raise refusal(p.name)
    return RULES[p.name](inputs, params)
