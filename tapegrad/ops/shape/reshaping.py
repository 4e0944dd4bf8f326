"""The same elements, in the same order, in another shape.

Comes in: a tensor. Goes out: a view of its memory where strides allow it, else a copy. Also
`view(dtype)`, which reads the same bits as another dtype, and `contiguous`. All shapes that reach
`reshape_` are plain tuples of non-negative integers. Used by most operations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core import dtypes, xp
from ...core.batch_rules import adapted, leading, sized
from ...core.complexes import OWN
from ...core.primitive import MOVEMENT, NO_PARAMS, OPAQUE, Primitive, define
from ...core.tensor import Tensor
from ..elementwise.copies import clone_
from ..table import In, Sample, op
from .dims import as_shape, normal_dim, normal_dims

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..annotations import Dims


reshape_: Primitive = define(
    "reshape",
    lambda x, *, shape: x.reshape(shape),
    kind=MOVEMENT,
    vjp=lambda g, x_shape: reshape_(g, shape=x_shape),
    view=True,
    batch=adapted(shape=sized),
)


def resolve_shape(shape: tuple[int, ...], size: int, old: tuple[int, ...]) -> tuple[int, ...]:
    """Fill in a -1 and check that the number of elements stays."""
    known, free = 1, 0
    for n in shape:
        if n >= 0:
            known *= n
        else:
            free += 1 if n == -1 else 2
    if free > 1:
        raise RuntimeError(f"shape {shape} may have one -1 and no other negative size")
    if free:
        if known == 0 or size % known:
            raise RuntimeError(f"shape {shape} does not fit a tensor of shape {tuple(old)}")
        shape = tuple([size // known if n == -1 else n for n in shape])
    elif known != size:
        raise RuntimeError(
            f"shape {shape} has {known} elements, but a tensor of shape {tuple(old)} has {size}"
        )
    return shape


def reshaped(input: Any, shape: tuple[int, ...]) -> Any:
    array = input._array
    return reshape_.direct(input, {"shape": resolve_shape(shape, array.size, array.shape)})


@op(
    samples=lambda: [
        Sample((3, 4), [2, 6]),
        Sample((3, 4), [-1]),
        Sample((), [1, 1]),
        Sample((0, 3), [3, 0]),
    ]
)
def reshape(input: Tensor, *shape: int | Sequence[int]) -> Any:
    """The same elements in another shape; one size may be -1.

    >>> import tapegrad
    >>> tapegrad.arange(6).reshape(2, -1)
    tensor([[0, 1, 2],
            [3, 4, 5]])
    """
    array = input._array
    wanted = resolve_shape(as_shape(shape), array.size, array.shape)
    return reshape_.direct(input, {"shape": wanted})


def _bits(x: Any, *, dtype: dtypes.DType) -> Any:
    wanted = dtype.numpy
    if x.itemsize != wanted.itemsize and x.ndim and x.strides[-1] != x.itemsize:
        x = xp.contiguous(x)
    return x.view(wanted)


#: the same bits, read as elements of another dtype
bits_: Primitive = define(
    "view_dtype",
    _bits,
    kind=OPAQUE,
    lower=lambda b, out, x, *, dtype: b.each(out, "same_bits(x)", x=x),
    batch=leading,
    complex=OWN,
    stores=True,
)


def _check_bits(x: Tensor, dtype: dtypes.DType) -> None:
    """Refuse to read bits as elements of another size where PyTorch does."""
    size, wanted, array = x._array.itemsize, dtype.numpy.itemsize, x._array
    if size == wanted:
        return
    if not array.ndim:
        raise RuntimeError(
            f"view: a tensor without dimensions cannot be viewed as {dtype}, whose elements have "
            f"{wanted} bytes and not {size}"
        )
    if array.strides[-1] != size or array.shape[-1] * size % wanted:
        raise RuntimeError(
            f"view: to be viewed as {dtype}, the last dimension must lie in one piece, and its "
            f"{array.shape[-1] * size} bytes must be a multiple of {wanted}"
        )


@op(
    function=False,
    samples=lambda: [
        Sample((3, 4), [2, 6]),
        Sample((3, 4), 12),
        Sample(In(3, 4, grad=False), dtypes.int32),
    ],
    torch="Tensor.view",
)
def view(
    input: Tensor,
    *shape: int | Sequence[int] | dtypes.DType,
    size: Sequence[int] | None = None,
    dtype: dtypes.DType | None = None,
) -> Any:
    """A view in another shape; an error where that would need a copy. Also `view(dtype)`.

    >>> import tapegrad
    >>> tapegrad.zeros(3, 4).view(2, 6).shape
    Size([2, 6])
    """
    if not shape:
        given = dtype if size is None else size
        shape = () if given is None else (given,)
    if len(shape) == 1 and isinstance(shape[0], dtypes.DType):
        if shape[0] is input.dtype:
            return reshaped(input, tuple(input._array.shape))
        _check_bits(input, shape[0])
        return bits_(input, dtype=shape[0])
    out = reshaped(input, as_shape(shape))
    if out._view is None and input._array.size:
        raise RuntimeError(
            f"view: this tensor's memory does not allow the shape {tuple(out.shape)} without a "
            "copy; use reshape() or contiguous().view()"
        )
    return out


@op(function=False, samples=lambda: [Sample((3, 4), In(2, 6, grad=False))], torch="Tensor.view_as")
def view_as(input: Tensor, other: Tensor) -> Any:
    """A view in the shape of another tensor; an error where that would need a copy.

    >>> import tapegrad
    >>> tapegrad.zeros(3, 4).view_as(tapegrad.zeros(2, 6)).shape
    Size([2, 6])
    """
    return view(input, other._array.shape)


@op(
    function=False,
    samples=lambda: [Sample((3, 4), In(2, 6, grad=False))],
    torch="Tensor.reshape_as",
)
def reshape_as(input: Tensor, other: Tensor) -> Any:
    """The same elements in the shape of another tensor.

    >>> import tapegrad
    >>> tapegrad.arange(4).reshape_as(tapegrad.zeros(2, 2))
    tensor([[0, 1],
            [2, 3]])
    """
    return reshaped(input, other._array.shape)


@op(
    samples=lambda: [
        Sample((2, 3, 4)),
        Sample((2, 3, 4), 1),
        Sample((2, 3, 4), 0, 1),
        Sample(()),
    ],
    aliases=(),
)
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Any:
    """Join the dimensions from start_dim to end_dim.

    >>> import tapegrad
    >>> tapegrad.flatten(tapegrad.zeros(2, 3, 4), start_dim=1).shape
    Size([2, 12])
    """
    shape = input._array.shape
    if not shape:
        return reshaped(input, (1,))
    start, end = normal_dim(start_dim, len(shape)), normal_dim(end_dim, len(shape))
    if start > end:
        raise RuntimeError(f"flatten: start_dim {start_dim} lies after end_dim {end_dim}")
    joined = 1
    for n in shape[start : end + 1]:
        joined *= n
    return reshape_.direct(input, {"shape": (*shape[:start], joined, *shape[end + 1 :])})


@op(samples=lambda: [Sample((2, 6), 1, [2, 3]), Sample((2, 6), -1, [-1, 2])])
def unflatten(input: Tensor, dim: int, sizes: Sequence[int]) -> Any:
    """Split one dimension into several; one of the sizes may be -1.

    >>> import tapegrad
    >>> tapegrad.unflatten(tapegrad.zeros(2, 6), 1, (2, -1)).shape
    Size([2, 2, 3])
    """
    shape = input._array.shape
    d = normal_dim(dim, len(shape))
    inner = resolve_shape(as_shape((sizes,)), shape[d], (shape[d],))
    return reshape_.direct(input, {"shape": (*shape[:d], *inner, *shape[d + 1 :])})


@op(samples=lambda: [Sample((3, 4)), Sample((2, 1, 2))])
def ravel(input: Tensor) -> Any:
    """All elements in one dimension.

    >>> import tapegrad
    >>> tapegrad.ravel(tapegrad.tensor([[1, 2], [3, 4]]))
    tensor([1, 2, 3, 4])
    """
    return reshaped(input, (-1,))


@op(
    samples=lambda: [
        Sample((1, 3, 1, 2)),
        Sample((1, 3, 1), 0),
        Sample((1, 3, 1), [0, -1]),
        Sample((2, 3), 0),
        Sample(()),
    ],
    inplace=False,
)
def squeeze(input: Tensor, dim: Dims | None = None) -> Any:
    """Remove dimensions of size 1: all of them, or those named.

    >>> import tapegrad
    >>> tapegrad.zeros(1, 3, 1).squeeze().shape, tapegrad.zeros(1, 3, 1).squeeze(0).shape
    (Size([3]), Size([3, 1]))
    """
    shape = input._array.shape
    none = dim.__class__ in (tuple, list) and not dim
    dims = () if none else normal_dims(dim, len(shape))
    kept = tuple([n for i, n in enumerate(shape) if n != 1 or i not in dims])
    return reshape_.direct(input, {"shape": kept})


@op(samples=lambda: [Sample((3, 4), 0), Sample((3, 4), -1), Sample((), 0)], inplace=False)
def unsqueeze(input: Tensor, dim: int) -> Any:
    """Insert a dimension of size 1.

    >>> import tapegrad
    >>> tapegrad.zeros(3).unsqueeze(0).shape, tapegrad.zeros(3).unsqueeze(-1).shape
    (Size([1, 3]), Size([3, 1]))
    """
    shape = input._array.shape
    d = normal_dim(dim, len(shape) + 1)
    return reshape_.direct(input, {"shape": (*shape[:d], 1, *shape[d:])})


@op(samples=lambda: [Sample((3, 4))], function=False, torch=None)
def contiguous(input: Tensor, memory_format: object = None) -> Any:
    """This tensor if it is contiguous, else a contiguous copy.

    >>> import tapegrad
    >>> x = tapegrad.zeros(2, 3).t()
    >>> x.is_contiguous(), x.contiguous().is_contiguous()
    (False, True)
    """
    return input if input._array.flags.c_contiguous else clone_.direct(input, NO_PARAMS)
