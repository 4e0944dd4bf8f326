"""Convolution: three primitives that are each other's gradients, so any order of derivative works.

Over one, two or three dimensions, `convolution` is bilinear in its input and weight. Windows are
gathered into columns and multiplied by the weight as matrices, a few samples at a time, so that
columns stay in the cache and take little memory. Nothing but the input and the weight is kept for
backward. A transposed convolution is the gradient of the input, called forwards.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import xp
from ...core.primitive import OPAQUE, PRODUCT_SIZE, Primitive, define
from ..elementwise.arithmetic import add
from ..precision import check_same_dtype
from ..reduce.reductions import sum_
from ..shape.padding import padded as bordered
from ..shape.reshaping import reshape_
from ..table import Sample, op
from . import geometry as w
from .geometry import Sizes, Window

if TYPE_CHECKING:
    from ...core.tensor import Tensor
    from ..annotations import Ints

# Bytes of columns at a time: beyond 2 MB the products slow down on a machine with 1 MB of L2 cache.
_CHUNK = 1 << 21


def _chunks(count: int, bytes_each: int) -> Iterator[slice]:
    """Slices of samples whose columns fit the chunk."""
    step = max(_CHUNK // max(bytes_each, 1), 1)
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))


def _convolution(x: Any, weight: Any, bias: Any, *, window: Window, groups: int) -> Any:
    wide, kernel = xp.widened(x), xp.widened(weight)
    n, outs = len(x), len(weight)
    depth, positions = math.prod(weight.shape[1:]), math.prod(window.outside)
    matrices = kernel.reshape(groups, outs // groups, depth)
    view = w.columns(w.padded(wide, window, 0), window)
    out = xp.module(x).empty((n, groups, outs // groups, positions), wide.dtype)
    for part in _chunks(n, groups * depth * positions * wide.itemsize):
        columns = view[part].reshape(-1, groups, depth, positions)
        np.matmul(matrices, columns, out=out[part])
    out = out.reshape(n, outs, *window.outside)
    if bias is not None:
        out += bias.reshape(-1, *[1] * window.dims)
    return out.astype(x.dtype, copy=False)


def _convolution_weight(grad: Any, x: Any, *, window: Window, groups: int) -> Any:
    """The gradient of the weight: products of columns and gradients, summed over samples."""
    wide, gradient = xp.widened(x), xp.widened(grad)
    (n, outs), channels = grad.shape[:2], x.shape[1] // groups
    depth, positions = channels * math.prod(window.size), math.prod(window.outside)
    view = w.columns(w.padded(wide, window, 0), window)
    gradient = gradient.reshape(n, groups, outs // groups, positions).swapaxes(-1, -2)
    total = xp.module(x).zeros((groups, depth, outs // groups), wide.dtype)
    for part in _chunks(n, groups * depth * max(positions, outs) * wide.itemsize):
        columns = view[part].reshape(-1, groups, depth, positions)
        total += np.matmul(columns, gradient[part]).sum(axis=0)
    weight = xp.contiguous(total.swapaxes(-1, -2)).reshape(outs, channels, *window.size)
    return weight.astype(grad.dtype, copy=False)


def _convolution_input(grad: Any, weight: Any, *, window: Window, groups: int) -> Any:
    """The gradient of the input: the transpose of the convolution."""
    turned = _turned(window)
    outs, channels = len(weight), weight.shape[1]
    # Gathering gradients is 2.5 times faster than scattering columns for the same channels.
    if turned is not None and outs <= 2 * channels * groups:
        kernel = _flipped(weight).reshape(groups, outs // groups, channels, *window.size)
        kernel = kernel.swapaxes(1, 2).reshape(groups * channels, outs // groups, *window.size)
        return _convolution(grad, kernel, None, window=turned, groups=groups)
    gradient, kernel = xp.widened(grad), xp.widened(weight)
    n, depth, positions = len(grad), math.prod(weight.shape[1:]), math.prod(window.outside)
    matrices = kernel.reshape(groups, outs // groups, depth).swapaxes(-1, -2)
    gradient = gradient.reshape(n, groups, outs // groups, positions)
    out = xp.module(grad).zeros((n, groups * channels, *window.extents), gradient.dtype)
    for part in _chunks(n, groups * depth * positions * gradient.itemsize):
        columns = np.matmul(matrices, gradient[part])
        add_columns(out[part], columns, window)
    return xp.contiguous(w.cropped(out, window)).astype(grad.dtype, copy=False)


def _turned(window: Window) -> Window | None:
    """The geometry that takes output gradients to input gradients, for windows that move by 1."""
    borders = tuple(s - 1 - p for s, p in zip(window.spans, window.padding, strict=True))
    if max(window.stride) > 1 or min(borders) < 0:
        return None
    return window._replace(padding=borders, inside=window.outside, outside=window.inside)


def _flipped(weight: Any) -> Any:
    """Filters turned round along all dimensions of the window."""
    return np.flip(weight, tuple(range(2, weight.ndim)))


def add_columns(target: Any, columns: Any, window: Window) -> None:
    """Add each column to the positions of the padded `target` that it was gathered from."""
    n, channels = target.shape[:2]
    columns = columns.reshape(n, channels, math.prod(window.size), *window.outside)
    for i, tap in enumerate(w.taps(target, window)):
        tap += columns[:, :, i]


# -- in loops ------------------------------------------------------------------------------------


def _windows_in_loops(b: Any, x: Any, window: Window, groups: int) -> Any:
    """A view (batch, groups, channels, *window size, *output size) in which rows follow by 1."""
    x = b.ordered(w.padded_in_loops(b, x, window, 0))
    shape, strides = w.layout(x, window)
    if window.stride[-1] > 1 and window.outside[-1] > 1:
        # A copy of x for each column of the window: what follows in a row then lies side by side.
        (n, channels), rows = x.strides[:2], x.strides[2:-1]
        wide = (*shape[:2], window.size[-1], *x.shape[2:-1], window.outside[-1])
        step = strides[1 + window.dims]
        x = b.ordered(b.strided(x, wide, (n, channels, step, *rows, strides[-1])))
        n, channels, position, *inner, column = x.strides
        gaps = (row * d for row, d in zip(inner, window.dilation[:-1], strict=True))
        moves = (row * s for row, s in zip(inner, window.stride[:-1], strict=True))
        strides = (n, channels, *gaps, position, *moves, column)
    view = b.strided(x, shape, strides)
    return _split(view, 1, groups)


def _split(x: Any, axis: int, groups: int) -> Any:
    """A dimension of channels as two: groups, and channels of each."""
    before, n, after = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    return x.reshape(*before, groups, n // groups, *after)


def _contracted(b: Any, out: Any, view: Any, kernel: Any) -> None:
    """The sum over channels and positions: views n g c i j y x and kernels g o c i j."""
    dims = kernel.ndim - 3
    inner, outer = range(2, 3 + dims), range(3 + dims, 3 + 2 * dims)
    b.contract(
        _split(out, 1, len(kernel))[(..., *[None] * (1 + dims))],
        view.transpose(0, 1, *outer, *inner)[:, :, None],
        kernel[(None, slice(None), slice(None), *[None] * dims)],
    )


def _convolution_in_loops(
    b: Any, out: Any, x: Any, weight: Any, bias: Any, *, window: Window, groups: int
) -> None:
    result = out if bias is None else b.new(out.shape, out.dtype)
    _contracted(b, result, _windows_in_loops(b, x, window, groups), _split(weight, 0, groups))
    if bias is not None:
        b.apply(out, add, result, bias.reshape(-1, *[1] * window.dims))


def _convolution_weight_in_loops(
    b: Any, out: Any, grad: Any, x: Any, *, window: Window, groups: int
) -> None:
    view = _windows_in_loops(b, x, window, groups)  # n g c i j y x
    gradient = _split(b.ordered(grad), 1, groups)  # n g o y x
    dims, new = window.dims, [None] * (1 + window.dims)
    inner, outer = range(2, 3 + dims), range(3 + dims, 3 + 2 * dims)
    b.contract(
        _split(out, 0, groups)[(..., *new)],
        gradient.transpose(1, 2, 0, *range(3, 3 + dims))[(slice(None), slice(None), *new)],
        view.transpose(1, *inner, 0, *outer)[:, None],
    )


def _convolution_input_in_loops(
    b: Any, out: Any, grad: Any, weight: Any, *, window: Window, groups: int
) -> None:
    """A convolution of gradients with the windows turned round.

    Windows that move by several elements meet every input element with a part of their positions:
    each such part is a convolution of its own.
    """
    if max(window.stride) == 1:
        _turned_in_loops(b, out, grad, weight, window, groups)
        return
    once = (1,) * window.dims
    for remainders in itertools.product(*map(range, window.stride)):
        phases = [_phase(window, axis, r) for axis, r in enumerate(remainders)]
        firsts, taps, dilation, before = zip(*phases, strict=True)
        part = out[(..., *map(_every, firsts, window.stride))]
        kernel = weight[(..., *taps)]
        if kernel.size == 0:
            b.fill(part, 0)
        elif part.size:
            inside, size = tuple(part.shape[2:]), tuple(kernel.shape[2:])
            geometry = Window(size, once, before, dilation, inside, window.outside)
            found = b.new(part.shape, out.dtype)
            _turned_in_loops(b, found, grad, kernel, geometry, groups)
            b.copy(part, found)


def _every(first: int, step: int) -> slice:
    return slice(first, None, step)


def _phase(window: Window, axis: int, remainder: int) -> tuple[int, slice, int, int]:
    """The part of one axis whose positions, borders included, leave `remainder` by the stride.

    Returns its first input element, the taps of the window that ever stand on it, and the dilation
    and the border of a window of those taps alone, which moves by 1 over that part.
    """
    stride, dilation = window.stride[axis], window.dilation[axis]
    before = -((remainder - window.padding[axis]) // stride)  # positions of it inside the border
    first = remainder + before * stride - window.padding[axis]
    taps = [k for k in range(window.size[axis]) if k * dilation % stride == remainder]
    if not taps:
        return first, slice(0, 0), 1, 0
    common = math.gcd(stride, dilation)
    border = before - (taps[0] * dilation - remainder) // stride
    return first, slice(taps[0], None, stride // common), dilation // common, border


def _turned_in_loops(b: Any, out: Any, grad: Any, weight: Any, window: Window, groups: int) -> None:
    """Gradients spread out by the stride, with borders as wide as a window, convolved."""
    reach = tuple(n + s - 1 for n, s in zip(window.inside, window.spans, strict=True))
    spread = b.new((*grad.shape[:2], *reach), grad.dtype)
    found = (_spread(window, axis, n) for axis, n in enumerate(reach))
    positions, taken = zip(*found, strict=True)
    b.fill(spread, 0)
    b.copy(spread[(..., *positions)], grad[(..., *taken)])
    once, none = (1,) * window.dims, (0,) * window.dims
    turned = Window(window.size, once, none, window.dilation, reach, window.inside)
    kernel = _split(_flipped(weight), 0, groups).swapaxes(1, 2)
    _contracted(b, out, _windows_in_loops(b, spread, turned, groups), kernel)


def _spread(window: Window, axis: int, reach: int) -> tuple[slice, slice]:
    """Where outputs go among positions from one window before the input on, and which of them."""
    stride, padding = window.stride[axis], window.padding[axis]
    start = padding - window.spans[axis] + 1
    first = max(-(-start // stride), 0)
    last = min((start + reach - 1) // stride, window.outside[axis] - 1)
    if last < first:
        return slice(0, 0), slice(0, 0)
    begin = first * stride - start
    return slice(begin, begin + (last - first) * stride + 1, stride), slice(first, last + 1)


def in_float32(lower: Any) -> Any:
    """A lowering that computes half precision in float32 and rounds once."""

    def wide(b: Any, out: Any, *inputs: Any, **params: Any) -> None:
        wide_inputs = [None if x is None else b.widened(x) for x in inputs]
        if b.widest(out.dtype) == out.dtype:
            lower(b, out, *wide_inputs, **params)
            return
        total = b.new(out.shape, b.widest(out.dtype))
        lower(b, total, *wide_inputs, **params)
        b.each(out, "cast(x)", x=total)

    return wide


# Of 2304 elements, a convolution with its backward takes 219 µs in NumPy and 102 in native code.
convolution_: Primitive = define(
    "convolution",
    _convolution,
    kind=OPAQUE,
    native_size=PRODUCT_SIZE,
    lower=in_float32(_convolution_in_loops),
    abstract=lambda x, weight, bias, *, window, groups: (
        (x[0][0], weight[0][0], *window.outside),
        x[1],
    ),
    vjp=(
        lambda g, weight, window, groups: convolution_input_(
            g, weight, window=window, groups=groups
        ),
        lambda g, x, window, groups: convolution_weight_(g, x, window=window, groups=groups),
        lambda g, window: sum_(g, dims=(0, *range(2, 2 + window.dims)), keepdim=False),
    ),
)
convolution_weight_: Primitive = define(
    "convolution_weight",
    _convolution_weight,
    kind=OPAQUE,
    native_size=PRODUCT_SIZE,
    lower=in_float32(_convolution_weight_in_loops),
    abstract=lambda grad, x, *, window, groups: (
        (grad[0][1], x[0][1] // groups, *window.size),
        grad[1],
    ),
    vjp=(
        lambda g, x, window, groups: convolution_(x, g, None, window=window, groups=groups),
        lambda g, grad, window, groups: convolution_input_(grad, g, window=window, groups=groups),
    ),
)
convolution_input_: Primitive = define(
    "convolution_input",
    _convolution_input,
    kind=OPAQUE,
    native_size=PRODUCT_SIZE,
    lower=in_float32(_convolution_input_in_loops),
    abstract=lambda grad, weight, *, window, groups: (
        (grad[0][0], groups * weight[0][1], *window.inside),
        grad[1],
    ),
    vjp=(
        lambda g, weight, window, groups: convolution_(
            g, weight, None, window=window, groups=groups
        ),
        lambda g, grad, window, groups: convolution_weight_(grad, g, window=window, groups=groups),
    ),
)


def _check_conv(what: str, input: Any, weight: Any, bias: Any, groups: int, dims: int) -> None:
    """Shapes and dtypes of a convolution over `dims` dimensions."""
    shape, kernel = tuple(input._array.shape), tuple(weight._array.shape)
    if len(kernel) != dims + 2 or 0 in kernel:
        raise RuntimeError(
            f"{what} needs a weight of {dims + 2} dimensions (out channels, in channels / groups, "
            f"window), none of them empty, got {kernel}"
        )
    if len(shape) not in (dims + 1, dims + 2):
        raise RuntimeError(
            f"{what} needs an input of {dims + 2} dimensions (batch, channels, ...), or "
            f"{dims + 1} without a batch, got shape {shape}"
        )
    if groups < 1 or kernel[0] % groups:
        raise RuntimeError(
            f"{what}: groups = {groups} must be positive and divide the {kernel[0]} out channels"
        )
    channels = shape[-dims - 1]
    if channels != kernel[1] * groups:
        raise RuntimeError(
            f"{what}: a weight of shape {kernel} with groups = {groups} expects an input with "
            f"{kernel[1] * groups} channels, got {channels} (input shape {shape})"
        )
    if bias is not None and bias._array.shape != kernel[:1]:
        raise RuntimeError(
            f"{what}: the bias needs one value for each of the {kernel[0]} out channels, got shape "
            f"{tuple(bias.shape)}"
        )
    check_same_dtype(what, input, weight=weight, bias=bias)


def _same_padding(input: Any, size: Sizes, stride: Sizes, dilation: Sizes) -> tuple[Any, Sizes]:
    """Borders for an output as large as the input; an odd one more goes to the end."""
    if max(stride) > 1:
        raise RuntimeError(f"padding='same' needs stride 1, got {stride}")
    total = [d * (k - 1) for k, d in zip(size, dilation, strict=True)]
    widths = ((0, 0), (0, 0), *((0, n % 2) for n in total))
    return bordered(input, widths), tuple(n // 2 for n in total)


def _convolved(
    dims: int,
    input: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Any:
    """A convolution over some dimensions."""
    what = f"conv{dims}d"
    _check_conv(what, input, weight, bias, groups, dims)
    steps = w.sizes(stride, f"{what}: stride", 1, dims)
    gaps = w.sizes(dilation, f"{what}: dilation", 1, dims)
    size = tuple(weight._array.shape[2:])
    x = w.batched(input, what, dims)
    if padding == "same":
        x, borders = _same_padding(x, size, steps, gaps)
    elif isinstance(padding, str):
        if padding != "valid":
            raise RuntimeError(f"{what}: padding must be 'same', 'valid' or sizes, got {padding!r}")
        borders = (0,) * dims
    else:
        borders = w.sizes(padding, f"{what}: padding", 0, dims)
    geometry = w.over(what, x._array.shape, size, steps, borders, gaps)
    out = convolution_(x, weight, bias, window=geometry, groups=groups)
    return w.like_input(out, input)


@op(
    method=False,
    samples=lambda: [
        Sample((2, 3, 7), (4, 3, 3), (4,)),
        Sample((2, 4, 8), (4, 2, 3), stride=2, padding=1, groups=2),
        Sample((3, 9), (2, 3, 3), (2,), dilation=2, padding="same"),
    ],
    autocast="lower",
)
def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints | str = 0,
    dilation: Ints = 1,
    groups: int = 1,
) -> Any:
    """Cross-correlation of sequences (batch, channels, length) with a bank of filters.

    out[n, o, t] = bias[o] + sum over c, k of weight[o, c, k] * input[n, c, t + k], for stride and
    dilation 1.

    `weight` is (out channels, channels / groups, kernel length), `bias` (out channels,). `padding`
    is a number of zeros at both ends, "valid" (none) or "same" (the length is kept; stride 1 only).

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.conv1d(tapegrad.tensor([[[1.0, 2.0, 4.0]]]), tapegrad.tensor([[[-1.0, 1.0]]]))
    tensor([[[1., 2.]]])
    """
    return _convolved(1, input, weight, bias, stride, padding, dilation, groups)


@op(
    method=False,
    samples=lambda: [
        Sample((2, 3, 5, 6), (4, 3, 3, 2), (4,)),
        Sample((2, 2, 5, 5), (3, 2, 3, 3), padding=1),
        Sample((1, 4, 6, 5), (4, 2, 3, 3), (4,), stride=[2, 1], padding=[1, 2], groups=2),
        Sample((2, 1, 7, 7), (2, 1, 2, 3), dilation=2, stride=2, padding=1),
        Sample((2, 3, 4, 4), (3, 1, 3, 3), padding="same", groups=3),
        Sample((3, 5, 5), (2, 3, 3, 3), (2,), padding="valid"),
        Sample((2, 3, 4, 4), (5, 3, 1, 1)),
        Sample((0, 2, 4, 4), (3, 2, 3, 3)),
    ],
    autocast="lower",
)
def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints | str = 0,
    dilation: Ints = 1,
    groups: int = 1,
) -> Any:
    """Cross-correlation of images (batch, channels, height, width) with a bank of filters.

    out[n, o, y, x] = bias[o] + sum over c, i, j of weight[o, c, i, j] * input[n, c, y + i, x + j],
    for stride and dilation 1.

    `weight` is (out channels, channels / groups, kernel height, kernel width), `bias` (out
    channels,). `stride`, `padding` and `dilation` are one number or (height, width); `padding` may
    be "valid" (none) or "same" (the size is kept; stride 1 only).

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> image = tapegrad.arange(9.0).reshape(1, 1, 3, 3)
    >>> F.conv2d(image, tapegrad.ones(1, 1, 2, 2))
    tensor([[[[ 8., 12.],
              [20., 24.]]]])
    """
    return _convolved(2, input, weight, bias, stride, padding, dilation, groups)


@op(
    method=False,
    samples=lambda: [
        Sample((2, 2, 3, 4, 3), (3, 2, 2, 3, 2), (3,)),
        Sample((1, 2, 4, 4, 5), (2, 1, 3, 2, 2), stride=[2, 1, 2], padding=[1, 0, 1], groups=2),
        Sample((1, 3, 4, 3), (2, 1, 3, 2, 1), dilation=[1, 2, 1], padding="same"),
    ],
    autocast="lower",
)
def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints | str = 0,
    dilation: Ints = 1,
    groups: int = 1,
) -> Any:
    """Cross-correlation of volumes (batch, channels, depth, height, width) with filters.

    `weight` is (out channels, channels / groups, kernel depth, kernel height, kernel width); the
    other arguments are those of `conv2d`.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.conv3d(tapegrad.ones(1, 2, 4, 4, 4), tapegrad.ones(5, 2, 3, 3, 3), padding=1).shape
    Size([1, 5, 4, 4, 4])
    """
    return _convolved(3, input, weight, bias, stride, padding, dilation, groups)


# -- transposed ----------------------------------------------------------------------------------


def _check_transposed(what: str, input: Any, weight: Any, bias: Any, groups: int, d: int) -> None:
    shape, kernel = tuple(input._array.shape), tuple(weight._array.shape)
    if len(kernel) != d + 2 or 0 in kernel:
        raise RuntimeError(
            f"{what} needs a weight of {d + 2} dimensions (in channels, out channels / groups, "
            f"window), none of them empty, got {kernel}"
        )
    if groups < 1 or kernel[0] % groups:
        raise RuntimeError(
            f"{what}: groups = {groups} must be positive and divide the {kernel[0]} in channels"
        )
    if shape[-d - 1] != kernel[0]:
        raise RuntimeError(
            f"{what}: a weight of shape {kernel} expects an input with {kernel[0]} channels, got "
            f"{shape[-d - 1]} (input shape {shape})"
        )
    outs = kernel[1] * groups
    if bias is not None and tuple(bias._array.shape) != (outs,):
        raise RuntimeError(
            f"{what}: the bias needs one value for each of the {outs} out channels, got shape "
            f"{tuple(bias.shape)}"
        )
    check_same_dtype(what, input, weight=weight, bias=bias)


def _transposed(
    dims: int,
    input: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
) -> Any:
    """The gradient of a convolution's input, with the window's geometry read backwards."""
    what = f"conv_transpose{dims}d"
    x = w.batched(input, what, dims)
    _check_transposed(what, input, weight, bias, groups, dims)
    steps = w.sizes(stride, f"{what}: stride", 1, dims)
    borders = w.sizes(padding, f"{what}: padding", 0, dims)
    more = w.sizes(output_padding, f"{what}: output_padding", 0, dims)
    gaps = w.sizes(dilation, f"{what}: dilation", 1, dims)
    if any(m >= max(s, d) for m, s, d in zip(more, steps, gaps, strict=True)):
        raise RuntimeError(
            f"{what}: output_padding {more} must be smaller than the stride {steps} or the "
            f"dilation {gaps}"
        )
    size, given = tuple(weight._array.shape[2:]), tuple(x._array.shape[2:])
    wanted = tuple(
        (n - 1) * s - 2 * p + d * (k - 1) + 1 + m
        for n, s, p, d, k, m in zip(given, steps, borders, gaps, size, more, strict=True)
    )
    if min(given) < 1 or min(wanted) < 1:
        raise RuntimeError(
            f"{what}: an input of size {given} with padding {borders} would give an output of "
            f"size {wanted}"
        )
    geometry = Window(size, steps, borders, gaps, wanted, given)
    out = convolution_input_(x, weight, window=geometry, groups=groups)
    if bias is not None:
        out = out + reshape_(bias, shape=(bias._array.shape[0], *[1] * dims))
    return w.like_input(out, input)


@op(
    method=False,
    samples=lambda: [
        Sample((2, 3, 4), (3, 2, 3), (2,)),
        Sample((2, 4, 3), (4, 2, 3), stride=2, padding=1, output_padding=1, groups=2),
        Sample((3, 4), (3, 2, 2), (2,), 3, 2, dilation=4),
    ],
    autocast="lower",
)
def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: int = 1,
    dilation: Ints = 1,
) -> Any:
    """The transpose of a convolution of sequences: its output is as long as that one's input.

    `weight` is (channels, out channels / groups, kernel length). The output has (length - 1) *
    stride - 2 * padding + dilation * (kernel length - 1) + output_padding + 1 elements.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.conv_transpose1d(tapegrad.tensor([[[1.0, 2.0]]]), tapegrad.ones(1, 1, 2), stride=2)
    tensor([[[1., 1., 2., 2.]]])
    """
    return _transposed(1, input, weight, bias, stride, padding, output_padding, groups, dilation)


@op(
    method=False,
    samples=lambda: [
        Sample((2, 3, 3, 4), (3, 2, 3, 2), (2,)),
        Sample((1, 4, 3, 2), (4, 2, 3, 3), (4,), [2, 3], 1, [1, 2], 2),
        Sample((2, 3, 3), (2, 1, 2, 3), padding=[0, 2], dilation=[2, 1], output_padding=[1, 0]),
        Sample((0, 2, 3, 3), (2, 1, 2, 2)),
    ],
    autocast="lower",
)
def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: int = 1,
    dilation: Ints = 1,
) -> Any:
    """The transpose of a convolution of images: its output is as large as that one's input.

    `input` is (batch, channels, height, width), `weight` (channels, out channels / groups, kernel
    height, kernel width). Each dimension of the output has
    (size - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1 elements.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.conv_transpose2d(tapegrad.ones(1, 1, 2, 2), tapegrad.ones(1, 1, 2, 2))
    tensor([[[[1., 2., 1.],
              [2., 4., 2.],
              [1., 2., 1.]]]])
    """
    return _transposed(2, input, weight, bias, stride, padding, output_padding, groups, dilation)


@op(
    method=False,
    samples=lambda: [
        Sample((1, 2, 2, 3, 2), (2, 3, 2, 2, 3), (3,)),
        Sample((2, 2, 2, 2), (2, 1, 2, 3, 2), None, [2, 1, 3], [0, 1, 0], [1, 0, 2], 2),
    ],
    autocast="lower",
)
def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: int = 1,
    dilation: Ints = 1,
) -> Any:
    """The transpose of a convolution of volumes: its output is as large as that one's input.

    `weight` is (channels, out channels / groups, kernel depth, kernel height, kernel width).

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> weight = tapegrad.ones(2, 5, 2, 2, 2)
    >>> F.conv_transpose3d(tapegrad.ones(1, 2, 3, 3, 3), weight, stride=2).shape
    Size([1, 5, 6, 6, 6])
    """
    return _transposed(3, input, weight, bias, stride, padding, output_padding, groups, dilation)
