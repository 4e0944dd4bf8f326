"""Movement: operations that rearrange elements and compute nothing.

Most of them are views: the result shows the memory of its input. All shapes and dims that reach a
primitive are plain tuples of non-negative integers.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import dtypes, xp
from ...core.primitive import MOVEMENT, OPAQUE, Primitive, define
from ...core.tensor import Size, Tensor
from ..elementwise.arithmetic import clone_
from ..table import In, Sample, attach, op

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..annotations import Dims


def normal_dim(dim: Any, ndim: int, what: str = "dim") -> int:
    """`dim` counted from the front, or IndexError when it is out of range."""
    if isinstance(dim, bool) or not hasattr(dim, "__index__"):
        raise TypeError(f"{what} must be an integer, got {type(dim).__name__}")
    place: int = operator.index(dim)
    limit = max(ndim, 1)
    if not -limit <= place < limit:
        raise IndexError(
            f"{what} {dim} is out of range for a tensor of {ndim} dimensions: "
            f"expected {-limit} to {limit - 1}"
        )
    return place % limit


def normal_dims(dim: Any, ndim: int) -> tuple[int, ...]:
    """One dim, several, or None for all, as a sorted tuple."""
    if dim is None:
        return tuple(range(ndim))
    if isinstance(dim, (tuple, list)):
        if not dim:
            return tuple(range(ndim))
        dims = [normal_dim(d, ndim) for d in dim]
        if len(set(dims)) < len(dims):
            raise RuntimeError(f"dim {tuple(dim)} names a dimension twice")
        return tuple(sorted(dims)) if ndim else ()
    return (normal_dim(dim, ndim),) if ndim else ()


def as_shape(sizes: tuple[Any, ...]) -> tuple[int, ...]:
    """Sizes given as separate integers or as one sequence."""
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list, Size)):
        sizes = tuple(sizes[0])
    try:
        return tuple(operator.index(n) for n in sizes)
    except TypeError:
        raise TypeError(f"a shape must be made of integers, got {sizes}") from None


# -- reshape -----------------------------------------------------------------------------------

reshape_: Primitive = define(
    "reshape",
    lambda x, *, shape: x.reshape(shape),
    kind=MOVEMENT,
    vjp=lambda g, x_shape: reshape_(g, shape=x_shape),
    view=True,
)


def resolve_shape(shape: tuple[int, ...], size: int, old: tuple[int, ...]) -> tuple[int, ...]:
    """Fill in a -1 and check that the number of elements stays."""
    known = 1
    for n in shape:
        if n != -1:
            known *= n
    free = shape.count(-1)
    if free > 1 or any(n < -1 for n in shape):
        raise RuntimeError(f"shape {shape} may have one -1 and no other negative size")
    if free:
        if known == 0 or size % known:
            raise RuntimeError(f"shape {shape} does not fit a tensor of shape {tuple(old)}")
        shape = tuple(size // known if n == -1 else n for n in shape)
    elif known != size:
        raise RuntimeError(
            f"shape {shape} has {known} elements, but a tensor of shape {tuple(old)} has {size}"
        )
    return shape


def _reshape(input: Any, shape: tuple[int, ...]) -> Any:
    array = input._array
    return reshape_(input, shape=resolve_shape(shape, array.size, array.shape))


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
    return _reshape(input, as_shape(shape))


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
def view(input: Tensor, *shape: int | Sequence[int] | dtypes.DType) -> Any:
    """A view in another shape; an error where that would need a copy. Also `view(dtype)`.

    >>> import tapegrad
    >>> tapegrad.zeros(3, 4).view(2, 6).shape
    Size([2, 6])
    """
    if len(shape) == 1 and isinstance(shape[0], dtypes.DType):
        if shape[0] is input.dtype:
            return _reshape(input, tuple(input._array.shape))
        _check_bits(input, shape[0])
        return bits_(input, dtype=shape[0])
    out = _reshape(input, as_shape(shape))
    if out._view is None and input._array.size:
        raise RuntimeError(
            f"view: this tensor's memory does not allow the shape {tuple(out.shape)} without a "
            "copy; use reshape() or contiguous().view()"
        )
    return out


@op(function=False, samples=lambda: [Sample((3, 4), In(2, 6, grad=False))], torch="Tensor.view_as")
def view_as(input: Tensor, other: Tensor) -> Any:
    """A view in the shape of another tensor."""
    return view(input, other._array.shape)


@op(
    function=False,
    samples=lambda: [Sample((3, 4), In(2, 6, grad=False))],
    torch="Tensor.reshape_as",
)
def reshape_as(input: Tensor, other: Tensor) -> Any:
    """The shape of another tensor."""
    return _reshape(input, other._array.shape)


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
        return _reshape(input, (1,))
    start, end = normal_dim(start_dim, len(shape)), normal_dim(end_dim, len(shape))
    if start > end:
        raise RuntimeError(f"flatten: start_dim {start_dim} lies after end_dim {end_dim}")
    joined = 1
    for n in shape[start : end + 1]:
        joined *= n
    return reshape_(input, shape=(*shape[:start], joined, *shape[end + 1 :]))


@op(samples=lambda: [Sample((2, 6), 1, [2, 3]), Sample((2, 6), -1, [-1, 2])])
def unflatten(input: Tensor, dim: int, sizes: Sequence[int]) -> Any:
    """Split one dimension into several: (2, 6) with dim 1 and sizes (2, 3) becomes (2, 2, 3)."""
    shape = input._array.shape
    d = normal_dim(dim, len(shape))
    inner = resolve_shape(as_shape((sizes,)), shape[d], (shape[d],))
    return reshape_(input, shape=(*shape[:d], *inner, *shape[d + 1 :]))


@op(samples=lambda: [Sample((3, 4)), Sample((2, 1, 2))])
def ravel(input: Tensor) -> Any:
    """All elements in one dimension."""
    return _reshape(input, (-1,))


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
    dims = normal_dims(dim, len(shape))
    kept = tuple(n for i, n in enumerate(shape) if n != 1 or i not in dims)
    return reshape_(input, shape=kept)


@op(samples=lambda: [Sample((3, 4), 0), Sample((3, 4), -1), Sample((), 0)], inplace=False)
def unsqueeze(input: Tensor, dim: int) -> Any:
    """Insert a dimension of size 1.

    >>> import tapegrad
    >>> tapegrad.zeros(3).unsqueeze(0).shape, tapegrad.zeros(3).unsqueeze(-1).shape
    (Size([1, 3]), Size([3, 1]))
    """
    shape = input._array.shape
    d = normal_dim(dim, len(shape) + 1)
    return reshape_(input, shape=(*shape[:d], 1, *shape[d:]))


# -- permute -----------------------------------------------------------------------------------


def _inverse(dims: tuple[int, ...]) -> tuple[int, ...]:
    inverse = [0] * len(dims)
    for i, d in enumerate(dims):
        inverse[d] = i
    return tuple(inverse)


permute_: Primitive = define(
    "permute",
    lambda x, *, dims: x.transpose(dims),
    kind=MOVEMENT,
    vjp=lambda g, dims: permute_(g, dims=_inverse(dims)),
    view=True,
)


def swapped(x: Any, first: int = -2, second: int = -1) -> Any:
    """`x` (a Tensor or a raw array) with two dimensions exchanged."""
    if isinstance(x, np.ndarray):
        return x.swapaxes(first, second)  # the short way, in the rules of every product
    n = len(x.shape)
    dims = list(range(n))
    dims[first], dims[second] = dims[second], dims[first]
    return permute_(x, dims=tuple(dims))


@op(samples=lambda: [Sample((2, 3, 4), [2, 0, 1]), Sample((2, 3), [-1, 0]), Sample((), [])])
def permute(input: Tensor, *dims: int | Sequence[int]) -> Any:
    """Reorder the dimensions: dimension i of the result is dimension dims[i] of the input.

    >>> import tapegrad
    >>> tapegrad.zeros(2, 3, 4).permute(2, 0, 1).shape
    Size([4, 2, 3])
    """
    order = dims[0] if len(dims) == 1 and isinstance(dims[0], (tuple, list)) else dims
    n = input._array.ndim
    normal = tuple(normal_dim(d, n) for d in order)
    if sorted(normal) != list(range(n)):
        raise RuntimeError(
            f"permute needs each of the {n} dimensions of the tensor once, got {tuple(order)}"
        )
    return permute_(input, dims=normal)


@op(
    samples=lambda: [Sample((2, 3, 4), 0, 2), Sample((2, 3), -1, -2)],
    aliases=("swapaxes", "swapdims"),
)
def transpose(input: Tensor, dim0: Dims | None = None, dim1: int | None = None) -> Any:
    """Exchange two dimensions; without arguments, reverse all of them.

    >>> import tapegrad
    >>> tapegrad.zeros(2, 3, 4).transpose(0, 2).shape
    Size([4, 3, 2])
    """
    n = input._array.ndim
    if dim0 is None:
        return permute_(input, dims=tuple(reversed(range(n))))
    if dim1 is None:
        if not isinstance(dim0, (tuple, list)):
            raise TypeError("transpose needs two dims, or one sequence of all of them")
        return permute(input, dim0)
    first, second = normal_dim(dim0, n), normal_dim(dim1, n)
    return swapped(input, first, second) if n else input


@op(samples=lambda: [Sample((2, 3)), Sample((3,)), Sample(())])
def t(input: Tensor) -> Any:
    """The transpose of a matrix; vectors and numbers stay as they are."""
    if input._array.ndim > 2:
        raise RuntimeError(f"t() needs at most 2 dimensions, got shape {tuple(input.shape)}")
    return transpose(input)


@op(
    samples=lambda: [Sample((2, 3, 4), 0, -1), Sample((2, 3, 4), [0, 1], [1, 2])],
    aliases=("moveaxis",),
)
def movedim(input: Tensor, source: Dims, destination: Dims) -> Any:
    """Move dimensions to new places; the others keep their order.

    >>> import tapegrad
    >>> tapegrad.movedim(tapegrad.zeros(2, 3, 4), 0, -1).shape
    Size([3, 4, 2])
    """
    n = input._array.ndim
    sources = source if isinstance(source, (tuple, list)) else (source,)
    destinations = destination if isinstance(destination, (tuple, list)) else (destination,)
    if len(sources) != len(destinations):
        raise RuntimeError("movedim needs as many destinations as sources")
    places = dict(
        zip(
            (normal_dim(d, n) for d in destinations),
            (normal_dim(s, n) for s in sources),
            strict=True,
        )
    )
    others = iter(d for d in range(n) if d not in places.values())
    return permute_(input, dims=tuple(places[i] if i in places else next(others) for i in range(n)))


def _transposed(self: Tensor) -> Tensor:
    """The transposed matrix: dimensions in reverse order, as a view."""
    out: Tensor = transpose(self)
    return out


def _matrix_transposed(self: Tensor) -> Tensor:
    """The last two dimensions swapped, as a view."""
    if self._array.ndim < 2:
        raise RuntimeError(f".mT needs at least 2 dimensions, got shape {tuple(self.shape)}")
    out: Tensor = swapped(self)
    return out


attach(T=property(_transposed), mT=property(_matrix_transposed))

# -- expand ------------------------------------------------------------------------------------


def _sum_to(g: Any, x_shape: Any) -> Any:
    from ...autograd.engine import unbroadcast

    return unbroadcast(g, x_shape)


expand_: Primitive = define(
    "expand",
    lambda x, *, shape: np.broadcast_to(x, shape),
    kind=MOVEMENT,
    vjp=_sum_to,
    view=True,
)


@op(
    samples=lambda: [
        Sample((3, 1), [3, 4]),
        Sample((3,), [2, 3]),
        Sample((1, 3), [2, -1]),
        Sample((), [2]),
    ],
    torch="Tensor.expand",
)
def expand(input: Tensor, *sizes: int | Sequence[int]) -> Any:
    """Repeat dimensions of size 1 without copying; -1 keeps a size.

    >>> import tapegrad
    >>> tapegrad.zeros(3, 1).expand(2, -1, 4).shape
    Size([2, 3, 4])
    """
    wanted = as_shape(sizes)
    shape = input._array.shape
    extra = len(wanted) - len(shape)
    resolved = tuple(
        shape[i - extra] if n == -1 and i >= extra else n for i, n in enumerate(wanted)
    )
    return _expanded(input, resolved)


def _expanded(input: Any, shape: tuple[int, ...]) -> Any:
    old = input._array.shape
    extra = len(shape) - len(old)
    if extra < 0 or any(n != 1 and n != shape[i + extra] for i, n in enumerate(old)):
        raise RuntimeError(
            f"a tensor of shape {tuple(old)} cannot be expanded to {shape}: only dimensions of "
            "size 1 can grow, and new ones come in front"
        )
    return input if old == shape else expand_(input, shape=shape)


@op(samples=lambda: [Sample((3, 1), [2, 3, 4])])
def broadcast_to(input: Tensor, shape: Sequence[int]) -> Any:
    """Expand to a shape, without copying: (3, 1) to (2, 3, 4)."""
    return expand(input, shape)


@op(
    function=False, samples=lambda: [Sample((3, 1), In(3, 4, grad=False))], torch="Tensor.expand_as"
)
def expand_as(input: Tensor, other: Tensor) -> Any:
    """Expand to the shape of another tensor."""
    return _expanded(input, other._array.shape)


# -- copies of parts ---------------------------------------------------------------------------

flip_: Primitive = define(
    "flip",
    lambda x, *, dims: np.flip(x, dims).copy(),
    kind=MOVEMENT,
    lower=lambda b, out, x, *, dims: b.copy(out, np.flip(x, dims)),
    vjp=lambda g, dims: flip_(g, dims=dims),
)


@op(samples=lambda: [Sample((3, 4), [0]), Sample((3, 4), [0, 1]), Sample((2, 3), [-1])])
def flip(input: Tensor, *dims: int | Sequence[int]) -> Any:
    """Reverse the order along dimensions.

    >>> import tapegrad
    >>> tapegrad.flip(tapegrad.tensor([1, 2, 3]), [0])
    tensor([3, 2, 1])
    """
    return flip_(input, dims=normal_dims(dims[0] if len(dims) == 1 else dims, input._array.ndim))


@op(samples=lambda: [Sample((3, 4))])
def fliplr(input: Tensor) -> Any:
    """Reverse the second dimension."""
    return flip(input, 1)


@op(samples=lambda: [Sample((3, 4))])
def flipud(input: Tensor) -> Any:
    """Reverse the first dimension."""
    return flip(input, 0)


def _roll_in_loops(b: Any, out: Any, x: Any, *, shifts: Any, dims: Any) -> None:
    """Copies of the parts that stay together: two for each dimension that is shifted."""
    parts = [(out, x)]
    for shift, dim in zip(shifts, dims, strict=True):
        size = x.shape[dim]
        cut = shift % size if size else 0
        before, after = ([slice(None)] * x.ndim for _ in range(2))
        before[dim], after[dim] = slice(0, size - cut), slice(size - cut, size)
        begin, end = ([slice(None)] * x.ndim for _ in range(2))
        begin[dim], end[dim] = slice(0, cut), slice(cut, size)
        parts = [
            (o[tuple(to)], part[tuple(source)])
            for o, part in parts
            for to, source in ((end, before), (begin, after))
        ]
    for to, part in parts:
        b.copy(to, part)


roll_: Primitive = define(
    "roll",
    lambda x, *, shifts, dims: xp.contiguous(np.roll(x, shifts, dims)),
    kind=MOVEMENT,
    lower=_roll_in_loops,
    vjp=lambda g, shifts, dims: roll_(g, shifts=tuple(-s for s in shifts), dims=dims),
)


@op(samples=lambda: [Sample((3, 4), 1), Sample((3, 4), 1, 0), Sample((3, 4), [1, -2], [0, 1])])
def roll(input: Tensor, shifts: Dims, dims: Dims | None = None) -> Any:
    """Shift elements along dimensions, those that fall off come in again.

    >>> import tapegrad
    >>> tapegrad.roll(tapegrad.tensor([1, 2, 3, 4]), 1)
    tensor([4, 1, 2, 3])
    """
    moves = shifts if isinstance(shifts, (tuple, list)) else (shifts,)
    if dims is None:
        shape = input._array.shape
        return reshape_(roll_(_reshape(input, (-1,)), shifts=tuple(moves), dims=(0,)), shape=shape)
    along = dims if isinstance(dims, (tuple, list)) else (dims,)
    if len(moves) != len(along):
        raise RuntimeError(f"roll got {len(moves)} shifts for {len(along)} dims")
    n = input._array.ndim
    return roll_(input, shifts=tuple(moves), dims=tuple(normal_dim(d, n) for d in along))


def _pad_in_loops(b: Any, out: Any, x: Any, *, widths: Any, value: Any) -> None:
    b.fill(out, value)
    b.copy(out[tuple(slice(a, a + n) for (a, _), n in zip(widths, x.shape, strict=True))], x)


pad_: Primitive = define(
    "pad",
    lambda x, *, widths, value: np.pad(x, widths, constant_values=value),
    kind=MOVEMENT,
    lower=_pad_in_loops,
    vjp=lambda g, widths: unpad_(g, widths=widths),
)
unpad_: Primitive = define(
    "unpad",
    lambda x, *, widths: x[
        tuple(slice(a, n - b) for (a, b), n in zip(widths, x.shape, strict=True))
    ],
    kind=MOVEMENT,
    vjp=lambda g, widths: pad_(g, widths=widths, value=0),
    view=True,
)


def padded(x: Any, widths: tuple[tuple[int, int], ...], value: float = 0) -> Any:
    """`x` with constant borders; negative widths cut."""
    if any(a < 0 or b < 0 for a, b in widths):
        cut = tuple((max(-a, 0), max(-b, 0)) for a, b in widths)
        x = unpad_(x, widths=cut)
        if isinstance(x, Tensor):
            x = clone_(x)
        widths = tuple((max(a, 0), max(b, 0)) for a, b in widths)
    return pad_(x, widths=widths, value=value) if any(a or b for a, b in widths) else x


@op(
    samples=lambda: [Sample((2, 3), 2, 2), Sample((3,), [2, 2]), Sample((2, 1), [1, 3, 2])],
    torch="Tensor.repeat",
)
def repeat(input: Tensor, *repeats: int | Sequence[int]) -> Any:
    """Copies of the tensor side by side: one number for each dimension.

    >>> import tapegrad
    >>> tapegrad.tensor([1, 2]).repeat(2), tapegrad.zeros(2, 3).repeat(4, 2).shape
    (tensor([1, 2, 1, 2]), Size([8, 6]))
    """
    times = as_shape(repeats)
    shape = input._array.shape
    if len(times) < len(shape):
        raise RuntimeError(
            f"repeat needs a number for each of the {len(shape)} dimensions, got {times}"
        )
    shape = (1,) * (len(times) - len(shape)) + shape
    spread = tuple(n for pair in zip(times, shape, strict=True) for n in pair)
    ones = tuple(n for size in shape for n in (1, size))
    joined = tuple(a * b for a, b in zip(times, shape, strict=True))
    out = reshape_(expand_(reshape_(input, shape=ones), shape=spread), shape=joined)
    return out if out._view is None else clone_(out)


@op(samples=lambda: [Sample((2, 3), [2]), Sample((2, 3), [2, 1, 2])])
def tile(input: Tensor, *dims: int | Sequence[int]) -> Any:
    """Like `repeat`, with missing numbers taken as 1 from the left: (2, 3) by [2] is (2, 6)."""
    times = as_shape(dims)
    return repeat(input, (1,) * (input._array.ndim - len(times)) + times)


# -- slices ------------------------------------------------------------------------------------


def _add_slice(total: Any, g: Any, *, index: Any) -> None:
    total[_slices(index)] += g


slice_: Primitive = define(
    "slice",
    lambda x, *, index: x[_slices(index)],
    kind=MOVEMENT,
    vjp=lambda g, x_shape, index: unslice_(g, shape=tuple(x_shape), index=index),
    view=True,
    into=_add_slice,
)


def _unslice(x: Any, *, shape: tuple[int, ...], index: Any) -> Any:
    out = xp.module(x).zeros(shape, x.dtype)
    out[_slices(index)] = x
    return out


def _unslice_in_loops(b: Any, out: Any, x: Any, *, shape: tuple[int, ...], index: Any) -> None:
    b.fill(out, 0)
    b.copy(out[_slices(index)], x)


unslice_: Primitive = define(
    "unslice",
    _unslice,
    kind=MOVEMENT,
    lower=_unslice_in_loops,
    vjp=lambda g, index: slice_(g, index=index),
)


_WHOLE = slice(None)


def _slices(index: tuple[Any, ...]) -> tuple[Any, ...]:
    """Static indices are an integer, (start, stop, step), or None for a whole dimension."""
    # The Ellipsis makes NumPy return a view, and not a scalar, when all indices are integers.
    return (
        *[_WHOLE if i is None else slice(*i) if isinstance(i, tuple) else i for i in index],
        ...,
    )


@op(samples=lambda: [Sample((3, 4), 1, 1, 2), Sample((3, 4), -2, 0, 1)])
def narrow(input: Tensor, dim: int, start: int | Tensor, length: int) -> Any:
    """The part of a dimension that begins at `start` and has `length` elements.

    >>> import tapegrad
    >>> tapegrad.narrow(tapegrad.arange(5), dim=0, start=1, length=3)
    tensor([1, 2, 3])
    """
    shape = input._array.shape
    if not shape:
        raise RuntimeError("narrow needs a tensor with dimensions, got a 0-d one")
    d = normal_dim(dim, len(shape))
    start = int(start)
    start = start + shape[d] if start < 0 else start
    if length < 0 or start < 0 or start + length > shape[d]:
        raise RuntimeError(
            f"narrow: {start}..{start + length} does not lie in dimension {d} of size {shape[d]}"
        )
    index = tuple((start, start + length, 1) if i == d else None for i in range(len(shape)))
    return slice_(input, index=index)


@op(samples=lambda: [Sample((3, 4), 0, 1), Sample((3, 4), 1, -1)])
def select(input: Tensor, dim: int, index: int) -> Any:
    """One element of a dimension, which disappears: `select(0, 1)` is `x[1]`."""
    shape = input._array.shape
    d = normal_dim(dim, len(shape))
    i = operator.index(index)
    if not shape or not -shape[d] <= i < shape[d]:
        raise IndexError(f"select: index {i} is out of range for dimension {d} of {tuple(shape)}")
    return slice_(input, index=tuple(i % shape[d] if k == d else None for k in range(len(shape))))


@op(samples=lambda: [Sample((3, 4))], function=False, torch=None)
def contiguous(input: Tensor, memory_format: object = None) -> Any:
    """This tensor if its memory is in order, else a copy that is."""
    return input if input._array.flags.c_contiguous else clone_(input)
