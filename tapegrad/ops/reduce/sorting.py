"""Sorting: sort, argsort and topk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...core import numeric, xp
from ...core.batch_rules import adapted, shifted
from ...core.primitive import OPAQUE, Primitive, define
from ...core.tensor import wrap
from ..elementwise.complexes import refuse_complex
from ..index.gather import gather_
from ..precision import check_numbers
from ..shape.dims import normal_dim
from ..table import In, Sample, op

if TYPE_CHECKING:
    from ...core.tensor import Tensor


def _argsort(x: Any, *, dim: int, descending: bool) -> Any:
    if numeric.is_bfloat16(x.dtype):
        x = xp.widened(x)  # NumPy does not sort NaN last in bfloat16
    if descending:
        order = np.argsort(np.flip(x, dim), axis=dim, kind="stable")
        return np.flip(x.shape[dim] - 1 - order, dim).copy()
    return np.argsort(x, axis=dim, kind="stable")


argsort_: Primitive = define(
    "argsort",
    _argsort,
    kind=OPAQUE,
    batch=adapted(dim=shifted),
)


class Sorted(NamedTuple):
    """Sorted values, and the index of each in the input."""

    values: Tensor
    indices: Tensor


def _order_samples() -> list[Sample]:
    return [
        Sample(In(3, 4, distinct=True)),
        Sample(In(3, 4, distinct=True), 0),
        Sample(In(3, 4, distinct=True), -1, True),
        Sample(In(), -1),
    ]


@op(samples=_order_samples)
def sort(input: Tensor, dim: int = -1, descending: bool = False, *, stable: bool = True) -> Sorted:
    """Values sorted along a dimension, and their indices in the input.

    values = input.gather(dim, indices).

    >>> import tapegrad
    >>> values, indices = tapegrad.sort(tapegrad.tensor([3.0, 1.0, 2.0]))
    >>> values, indices
    (tensor([1., 2., 3.]), tensor([1, 2, 0]))
    """
    indices = argsort(input, dim, descending)
    refuse_complex(input, "sort")
    if input._array.ndim == 0:
        return Sorted(input.clone(), indices)
    d = normal_dim(dim, input._array.ndim)
    return Sorted(gather_(input, indices, dim=d), indices)


@op(samples=_order_samples, differentiable=False)
def argsort(input: Tensor, dim: int = -1, descending: bool = False, *, stable: bool = True) -> Any:
    """The indices that sort a dimension.

    >>> import tapegrad
    >>> tapegrad.argsort(tapegrad.tensor([3.0, 1.0, 2.0]), descending=True)
    tensor([0, 2, 1])
    """
    refuse_complex(input, "argsort")
    d = normal_dim(dim, input._array.ndim)
    if input._array.ndim == 0:
        return wrap(xp.module(input._array).zeros((), np.int64))
    return argsort_(input, dim=d, descending=bool(descending))


@op(
    samples=lambda: [
        Sample(In(3, 5, distinct=True), 2),
        Sample(In(5, 3, distinct=True), 2, 0),
        Sample(In(3, 5, distinct=True), 2, -1, False),
    ]
)
def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Sorted:
    """The k largest (or smallest) values along a dimension, in order, and their indices.

    >>> import tapegrad
    >>> values, indices = tapegrad.topk(tapegrad.tensor([3.0, 1.0, 2.0]), k=2)
    >>> values, indices
    (tensor([3., 2.]), tensor([0, 2]))
    """
    check_numbers(input, "topk")
    n = input._array.ndim
    d = normal_dim(dim, n)
    size = input._array.shape[d] if n else 1
    if not 0 <= k <= size:
        raise RuntimeError(f"topk: k = {k} is out of range for a dimension of size {size}")
    values, indices = sort(input, d, largest)
    if n == 0:
        return Sorted(values, indices)
    return Sorted(values.narrow(d, 0, k).contiguous(), indices.narrow(d, 0, k).contiguous())
