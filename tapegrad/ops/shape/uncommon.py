"""Shape operations under names that few programs use, and places counted in one row.

Made of other operations. Imported at first use (`late.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import numeric, xp
from ...core.complexes import OWN
from ...core.primitive import ELEMENTWISE, OPAQUE, Primitive, define
from ...core.tensor import Tensor
from ..checks import checked
from ..elementwise.arithmetic import floor_divide, remainder
from ..elementwise.blends import number_for
from ..elementwise.rounding import zero
from ..reduce.reductions import as_sum_dtype
from ..table import In, Sample, op
from .dims import as_shape, normal_dim
from .expanding import sum_to
from .joining import cat, chunk, split
from .padding import pad
from .reshaping import reshape_

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..annotations import Number

# -- borders and sums --------------------------------------------------------------------------


@op(method=False, samples=lambda: [Sample((3, 4), [1, 2]), Sample((3, 4), [-1, 2, 1, 0], 1.5)])
def constant_pad_nd(input: Tensor, pad: Sequence[int], value: Number = 0) -> Any:
    """Borders of a number: `nn.functional.pad` in its constant mode.

    >>> import tapegrad
    >>> tapegrad.constant_pad_nd(tapegrad.tensor([1.0, 2.0]), [1, 1])
    tensor([0., 1., 2., 0.])
    """
    return _padded(input, pad, "constant", value)


_padded = pad


@op(
    function=False,
    samples=lambda: [Sample((2, 3, 4), [3, 1]), Sample((3, 4), [3, 4]), Sample((2, 3), [])],
    torch="Tensor.sum_to_size",
)
def sum_to_size(input: Tensor, *size: int | Sequence[int]) -> Any:
    """Summed over dimensions so that the result has this size, which broadcasts to the tensor's.

    >>> import tapegrad
    >>> tapegrad.ones(2, 3).sum_to_size(1, 3)
    tensor([[2., 2., 2.]])
    """
    shape, own = as_shape(size), tuple(input._array.shape)
    fits = len(shape) <= len(own) and all(
        n in (m, 1) for n, m in zip(shape[::-1], own[::-1], strict=False)
    )
    if not fits:
        raise RuntimeError(f"sum_to_size: {shape} does not broadcast to {own}")
    return input if shape == own else sum_to(as_sum_dtype(input, None), shape)


#: zeros that have a history, along which the gradient is 0
blank_: Primitive = define(
    "blank",
    lambda x: np.zeros_like(x),
    kind=ELEMENTWISE,
    expression="0",
    vjp=lambda g: zero(g),
    complex=OWN,
    stores=True,
)


@op(method=False, samples=lambda: [Sample((3, 4), 2.5), Sample((3, 4), In())])
def fill(input: Tensor, value: Number | Tensor) -> Any:
    """A tensor of the same shape and dtype with one value.

    >>> import tapegrad
    >>> tapegrad.fill(tapegrad.zeros(2), 3.0)
    tensor([3., 3.])
    """
    if isinstance(value, Tensor):
        if value._array.ndim:
            raise RuntimeError(
                f"fill needs a number or a tensor of no dimensions, got shape {tuple(value.shape)}"
            )
        return blank_(input) + value.to(input.dtype)
    return blank_(input) + number_for(input, value)


# -- pieces ------------------------------------------------------------------------------------


@op(samples=lambda: [Sample((7, 2), 3), Sample((2, 6), 2, dim=1)], result="tuple[Tensor, ...]")
def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0) -> Any:
    """`chunk`, whose pieces PyTorch lets in-place operations change.

    >>> import tapegrad
    >>> tapegrad.unsafe_chunk(tapegrad.arange(4), 2)
    (tensor([0, 1]), tensor([2, 3]))
    """
    return tuple([piece.clone() for piece in chunk(input, chunks, dim)])


@op(samples=lambda: [Sample((7, 2), 3), Sample((2, 6), 2, dim=1)], result="tuple[Tensor, ...]")
def unsafe_split(input: Tensor, split_size: int, dim: int = 0) -> Any:
    """`split`, whose pieces PyTorch lets in-place operations change.

    >>> import tapegrad
    >>> tapegrad.unsafe_split(tapegrad.arange(4), 3)
    (tensor([0, 1, 2]), tensor([3]))
    """
    return tuple([piece.clone() for piece in split(input, split_size, dim)])


@op(samples=lambda: [Sample((6, 2), [1, 2, 3])], result="tuple[Tensor, ...]")
def unsafe_split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> Any:
    """`split` into pieces of given sizes, which PyTorch lets in-place operations change.

    >>> import tapegrad
    >>> tapegrad.unsafe_split_with_sizes(tapegrad.arange(4), [1, 3])
    (tensor([0]), tensor([1, 2, 3]))
    """
    return tuple([piece.clone() for piece in split(input, list(split_sizes), dim)])


def _part(*shape: int) -> In:
    return In(*shape, grad=False)  # PyTorch has no gradient here


@op(
    casts=True,
    method=False,
    samples=lambda: [
        Sample([_part(3, 2), _part(4, 2)], 0, 2),
        Sample([_part(2, 5), _part(2, 4)], 1, 2),
    ],
)
def _chunk_cat(tensors: Sequence[Tensor], dim: int, num_chunks: int) -> Any:
    """Each tensor cut into so many pieces, padded with zeros and read as rows, joined.

    >>> import tapegrad
    >>> tapegrad._chunk_cat([tapegrad.tensor([1, 2, 3]), tapegrad.tensor([4, 5])], 0, 2)
    tensor([[1, 2, 4],
            [3, 0, 5]])
    """
    if not tensors:
        raise RuntimeError("_chunk_cat needs at least one tensor")
    if any(not x._array.size for x in tensors):
        raise RuntimeError("_chunk_cat needs tensors that are not empty")
    if num_chunks < 1:
        raise RuntimeError(f"_chunk_cat needs a positive number of chunks, got {num_chunks}")
    rows = []
    lead = normal_dim(dim, tensors[0]._array.ndim)
    for x in tensors:
        shape = tuple(x._array.shape)
        if shape[:lead] != tuple(tensors[0]._array.shape[:lead]):
            raise RuntimeError("_chunk_cat needs tensors of the same sizes before `dim`")
        missing = -shape[lead] % num_chunks
        if missing:
            x = _padded(x, [0, 0] * (len(shape) - lead - 1) + [0, missing])
        rows.append(reshape_(x, shape=(*shape[:lead], num_chunks, _rest(x, lead) // num_chunks)))
    return cat(rows, lead + 1)


def _rest(x: Any, lead: int) -> int:
    return int(np.prod(x._array.shape[lead:]))


# -- places ------------------------------------------------------------------------------------


@op(
    method=False,
    samples=lambda: [Sample(In(values=[[0, 5], [11, 3]], kind="int"), [3, 4])],
    differentiable=False,
    result="tuple[Tensor, ...]",
)
def unravel_index(indices: Tensor, shape: int | Sequence[int]) -> Any:
    """Places in a tensor of `shape`, one tensor for each dimension, from places in one row.

    >>> import tapegrad
    >>> tapegrad.unravel_index(tapegrad.tensor([1, 5]), (2, 3))
    (tensor([0, 1]), tensor([1, 2]))
    """
    if not numeric.is_integer(indices._array.dtype):
        raise TypeError(f"unravel_index needs integer indices, got {indices.dtype}")
    if isinstance(shape, Tensor):
        raise TypeError("unravel_index needs an int or a sequence of ints as its shape, got Tensor")
    sizes = as_shape((shape,) if isinstance(shape, int) else (tuple(shape),))
    if any(n < 0 for n in sizes):
        raise ValueError(f"unravel_index: sizes must not be negative, got {sizes}")
    total = int(np.prod(sizes, dtype=np.int64))
    message = f"unravel_index: {{}} is no place in a tensor of shape {sizes}"
    left = checked(indices, low=-total, high=total - 1, message=message, error=ValueError)
    out: list[Any] = []
    for n in sizes[::-1]:
        out.append(remainder(left, n))
        left = floor_divide(left, n)
    return tuple(out[::-1])


def _nonzero_static(x: Any, *, size: int, fill_value: int) -> Any:
    module = xp.module(x)
    out = module.full((size, x.ndim), fill_value, np.int64)
    found = module.stack(module.nonzero(x), 1) if x.ndim else module.zeros((int(bool(x)), 0))
    out[: len(found)] = found[:size]
    return out


nonzero_static_: Primitive = define(
    "nonzero_static",
    _nonzero_static,
    kind=OPAQUE,
    abstract=lambda x, *, size, fill_value: ((size, len(x[0])), np.dtype(np.int64)),
    complex=OWN,
    stores=True,
)


@op(
    samples=lambda: [Sample(In(values=[[0, 2], [3, 0]], kind="int"), size=3)],
    differentiable=False,
)
def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Any:
    """The places of the first `size` elements that are not zero, as rows; `fill_value` beyond.

    >>> import tapegrad
    >>> tapegrad.nonzero_static(tapegrad.tensor([0, 5, 7]), size=3)
    tensor([[ 1],
            [ 2],
            [-1]])
    """
    if size < 0:
        raise RuntimeError(f"nonzero_static: size must not be negative, got {size}")
    return nonzero_static_(input.detach(), size=int(size), fill_value=int(fill_value))
