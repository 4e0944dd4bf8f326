"""Sparse arrays: the arrays of sparse tensors, and how primitives run on such tensors.

A `SparseArray` consists of coordinates and elements, which are ordinary tensors. It has a shape and
a dtype like any array, but reading it as one is an error. `bind` passes primitives with such an
operand to `run`, which calls the rule that `ops/sparse/` has registered in `RULES`, or refuses the
operation by name. Dense tensors pay nothing, because short paths and kernels tell arrays apart by
class and dtype.
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
    """An equal but distinct dtype object, so that short paths leave the operation to `bind`."""
    return np.dtype(dtype, metadata={"sparse": True}) if not numeric.is_foreign(dtype) else dtype


class SparseArray:
    """Coordinates (sparse dimensions, count), elements (count, ...) and the shape of the whole.

    `unique` means that coordinates are sorted and have no duplicates.
    """

    __slots__ = ("coordinates", "dtype", "elements", "shape", "unique")

    #: views and in-place operations use the memory of the two tensors
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
            raise AttributeError(name)  # a protocol that does not apply
        raise refusal(name)


def refusal(what: str) -> NotImplementedError:
    """The error for everything that sparse tensors do not support."""
    return NotImplementedError(
        f"{what} is not supported for sparse tensors; use to_dense() first, or work on values()"
    )


def dense_array(tensor: Tensor) -> Any:
    """The array of a dense tensor, for use in another tensor."""
    if tensor._array.__class__ is SparseArray:
        raise refusal("making a dense tensor or a parameter of one")
    return tensor._array


def refuse_capture(what: str) -> None:
    """Stop a capture: its program would fix the recorded number of elements, so run eagerly."""
    if capturing():
        for tape in STATE.tapes:
            tape.refuse_sparse(what)


def run(p: Primitive, inputs: Sequence[Any], params: dict[str, Any]) -> Any:
    """The result of a primitive with sparse operands, and maybe others."""
    refuse_capture(p.name)
    if p.name not in RULES:
        raise refusal(p.name)
    return RULES[p.name](inputs, params)
