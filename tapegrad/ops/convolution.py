"""Convolution: three primitives that are each other's gradients, so any order of derivative works.

`conv2d` is bilinear in its input and weight. Windows are gathered into columns and multiplied by
the weight as matrices, a few samples at a time, so that columns stay in the cache and take little
memory. Nothing but the input and the weight is kept for backward.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import xp
from ..primitive import OPAQUE, PRODUCT_SIZE, Primitive, define
from . import elementwise as e
from . import window as w
from .movement import padded as bordered
from .movement import reshape_
from .precision import check_same_dtype
from .reduce import sum_
from .table import Sample, op
from .window import Window, pair

# Bytes of columns at a time: beyond 2 MB the products slow down on a machine with 1 MB of L2 cache.
_CHUNK = 1 << 21


def _chunks(count: int, bytes_each: int) -> Iterator[slice]:
    """Slices of samples whose columns fit the chunk."""
    step = max(_CHUNK // max(bytes_each, 1), 1)
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))


def _conv2d(x: Any, weight: Any, bias: Any, *, window: Window, groups: int) -> Any:
    wide, kernel = xp.widened(x), xp.widened(weight)
    n, outs = len(x), len(weight)
    depth, places = math.prod(weight.shape[1:]), math.prod(window.outside)
    matrices = kernel.reshape(groups, outs // groups, depth)
    view = w.columns(w.padded(wide, window, 0), window)
    out = xp.module(x).empty((n, groups, outs // groups, places), wide.dtype)
    for part in _chunks(n, groups * depth * places * wide.itemsize):
        columns = view[part].reshape(-1, groups, depth, places)
        np.matmul(matrices, columns, out=out[part])
    out = out.reshape(n, outs, *window.outside)
    if bias is not None:
        out += bias.reshape(-1, 1, 1)
    return out.astype(x.dtype, copy=False)


def _conv2d_weight(grad: Any, x: Any, *, window: Window, groups: int) -> Any:
    """The gradient of the weight: products of columns and gradients, summed over samples."""
    wide, gradient = xp.widened(x), xp.widened(grad)
    (n, outs), channels = grad.shape[:2], x.shape[1] // groups
    depth, places = channels * math.prod(window.size), math.prod(window.outside)
    view = w.columns(w.padded(wide, window, 0), window)
    gradient = gradient.reshape(n, groups, outs // groups, places).swapaxes(-1, -2)
    total = xp.module(x).zeros((groups, depth, outs // groups), wide.dtype)
    for part in _chunks(n, groups * depth * max(places, outs) * wide.itemsize):
        columns = view[part].reshape(-1, groups, depth, places)
        total += np.matmul(columns, gradient[part]).sum(axis=0)
    weight = xp.contiguous(total.swapaxes(-1, -2)).reshape(outs, channels, *window.size)
    return weight.astype(grad.dtype, copy=False)


def _conv2d_input(grad: Any, weight: Any, *, window: Window, groups: int) -> Any:
    """The gradient of the input: the transpose of the convolution."""
    turned = _turned(window)
    outs, channels = len(weight), weight.shape[1]
    # Gathering gradients is 2.5 times faster than scattering columns for the same channels.
    if turned is not None and outs <= 2 * channels * groups:
        kernel = np.flip(weight, (2, 3)).reshape(groups, outs // groups, channels, *window.size)
        kernel = kernel.swapaxes(1, 2).reshape(groups * channels, outs // groups, *window.size)
        return _conv2d(grad, kernel, None, window=turned, groups=groups)
    gradient, kernel = xp.widened(grad), xp.widened(weight)
    n, depth, places = len(grad), math.prod(weight.shape[1:]), math.prod(window.outside)
    matrices = kernel.reshape(groups, outs // groups, depth).swapaxes(-1, -2)
    gradient = gradient.reshape(n, groups, outs // groups, places)
    out = xp.module(grad).zeros((n, groups * channels, *window.extents), gradient.dtype)
    for part in _chunks(n, groups * depth * places * gradient.itemsize):
        columns = np.matmul(matrices, gradient[part])
        _add_columns(out[part], columns, window)
    return xp.contiguous(w.cropped(out, window)).astype(grad.dtype, copy=False)


def _turned(window: Window) -> Window | None:
    """The geometry that takes output gradients to input gradients, for windows that move by 1."""
    first, second = (s - 1 - p for s, p in zip(window.spans, window.padding, strict=True))
    if window.stride != (1, 1) or min(first, second) < 0:
        return None
    return window._replace(padding=(first, second), inside=window.outside, outside=window.inside)


def _add_columns(target: Any, columns: Any, window: Window) -> None:
    """Add each column to the places of the padded `target` that it was gathered from."""
    n, channels = target.shape[:2]
    columns = columns.reshape(n, channels, -1, *window.outside)
    for i, tap in enumerate(w.taps(target, window)):
        tap += columns[:, :, i]


# -- in loops ------------------------------------------------------------------------------------


def _windows_in_loops(b: Any, x: Any, window: Window, groups: int) -> Any:
    """A view (batch, groups, channels, *window size, *output size) in which rows follow by 1."""
    x = b.ordered(w.padded_in_loops(b, x, window, 0))
    shape, strides = w.layout(x, window)
    if window.stride[1] > 1 and window.outside[1] > 1:
        # A copy of x for each column of the window: what follows in a row then lies side by side.
        (n, channels, row, column), height = x.strides, x.shape[2]
        wide = (*shape[:2], window.size[1], height, window.outside[1])
        x = b.ordered(b.strided(x, wide, (n, channels, strides[3], row, strides[5])))
        n, channels, place, row, column = x.strides
        (down, _), (gap, _) = window.stride, window.dilation
        strides = (n, channels, row * gap, place, row * down, column)
    view = b.strided(x, shape, strides)
    return _split(view, 1, groups)


def _split(x: Any, axis: int, groups: int) -> Any:
    """A dimension of channels as two: groups, and channels of each."""
    before, n, after = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    return x.reshape(*before, groups, n // groups, *after)


def _contracted(b: Any, out: Any, view: Any, kernel: Any) -> None:
    """The sum over channels and places: views n g c i j y x and kernels g o c i j."""
    b.contract(
        _split(out, 1, len(kernel))[..., None, None, None],
        view.transpose(0, 1, 5, 6, 2, 3, 4)[:, :, None],
        kernel[None, :, :, None, None],
    )


def _conv2d_in_loops(
    b: Any, out: Any, x: Any, weight: Any, bias: Any, *, window: Window, groups: int
) -> None:
    result = out if bias is None else b.new(out.shape, out.dtype)
    _contracted(b, result, _windows_in_loops(b, x, window, groups), _split(weight, 0, groups))
    if bias is not None:
        b.apply(out, e.add, result, bias.reshape(-1, 1, 1))


def _conv2d_weight_in_loops(
    b: Any, out: Any, grad: Any, x: Any, *, window: Window, groups: int
) -> None:
    view = _windows_in_loops(b, x, window, groups)  # n g c i j y x
    gradient = _split(b.ordered(grad), 1, groups)  # n g o y x
    b.contract(
        _split(out, 0, groups)[..., None, None, None],
        gradient.transpose(1, 2, 0, 3, 4)[:, :, None, None, None],
        view.transpose(1, 2, 3, 4, 0, 5, 6)[:, None],
    )


def _conv2d_input_in_loops(
    b: Any, out: Any, grad: Any, weight: Any, *, window: Window, groups: int
) -> None:
    """A convolution of gradients with the windows turned round.

    Windows that move by several elements meet every input element with a part of their places: each
    such part is a convolution of its own.
    """
    if window.stride == (1, 1) or window.dilation != (1, 1):
        _turned_in_loops(b, out, grad, weight, window, groups)
        return
    for row in range(window.stride[0]):
        for column in range(window.stride[1]):
            (top, high, down), (left, wide, across) = (
                _phase(window, axis, place) for axis, place in ((0, row), (1, column))
            )
            part = out[..., top :: window.stride[0], left :: window.stride[1]]
            kernel = weight[..., row :: window.stride[0], column :: window.stride[1]]
            if kernel.size == 0:
                b.fill(part, 0)
            elif part.size:
                inside, size = (part.shape[2], part.shape[3]), (high, wide)
                geometry = Window(size, (1, 1), (down, across), (1, 1), inside, window.outside)
                found = b.new(part.shape, out.dtype)
                _turned_in_loops(b, found, grad, kernel, geometry, groups)
                b.copy(part, found)


def _phase(window: Window, axis: int, place: int) -> tuple[int, int, int]:
    """Of the places that are `place` apart from a multiple of the stride: the first input element
    that they meet, how many there are, and how many windows begin before that element.
    """
    stride, padding = window.stride[axis], window.padding[axis]
    before = max(-((place - padding) // stride), 0)
    return place + before * stride - padding, len(range(place, window.size[axis], stride)), before


def _turned_in_loops(b: Any, out: Any, grad: Any, weight: Any, window: Window, groups: int) -> None:
    """Gradients spread out by the stride, with borders as wide as a window, convolved."""
    reach = tuple(n + s - 1 for n, s in zip(window.inside, window.spans, strict=True))
    spread = b.new((*grad.shape[:2], *reach), grad.dtype)
    places, taken = zip(*(_spread(window, axis, reach[axis]) for axis in (0, 1)), strict=True)
    b.fill(spread, 0)
    b.copy(spread[(..., *places)], grad[(..., *taken)])
    moves, size = (1, 1), (reach[0], reach[1])
    turned = Window(window.size, moves, (0, 0), window.dilation, size, window.inside)
    kernel = _split(np.flip(weight, (2, 3)), 0, groups).swapaxes(1, 2)
    _contracted(b, out, _windows_in_loops(b, spread, turned, groups), kernel)


def _spread(window: Window, axis: int, reach: int) -> tuple[slice, slice]:
    """Where outputs go among places that begin one window before the input, and which of them."""
    stride, padding = window.stride[axis], window.padding[axis]
    start = padding - window.spans[axis] + 1
    first = max(-(-start // stride), 0)
    last = min((start + reach - 1) // stride, window.outside[axis] - 1)
    if last < first:
        return slice(0, 0), slice(0, 0)
    begin = first * stride - start
    return slice(begin, begin + (last - first) * stride + 1, stride), slice(first, last + 1)


def _in_float32(lower: Any) -> Any:
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


conv2d_: Primitive = define(
    "conv2d",
    _conv2d,
    kind=OPAQUE,
    lower=_in_float32(_conv2d_in_loops),
    vjp=(
        lambda g, weight, window, groups: conv2d_input_(g, weight, window=window, groups=groups),
        lambda g, x, window, groups: conv2d_weight_(g, x, window=window, groups=groups),
        lambda g: sum_(g, dims=(0, 2, 3), keepdim=False),
    ),
)
conv2d_weight_: Primitive = define(
    "conv2d_weight",
    _conv2d_weight,
    kind=OPAQUE,
    lower=_in_float32(_conv2d_weight_in_loops),
    vjp=(
        lambda g, x, window, groups: conv2d_(x, g, None, window=window, groups=groups),
        lambda g, grad, window, groups: conv2d_input_(grad, g, window=window, groups=groups),
    ),
)
conv2d_input_: Primitive = define(
    "conv2d_input",
    _conv2d_input,
    kind=OPAQUE,
    lower=_in_float32(_conv2d_input_in_loops),
    vjp=(
        lambda g, weight, window, groups: conv2d_(g, weight, None, window=window, groups=groups),
        lambda g, grad, window, groups: conv2d_weight_(grad, g, window=window, groups=groups),
    ),
)


# Of 2304 elements, a convolution with its backward takes 219 µs in NumPy and 102 in native code.
for _primitive in (conv2d_, conv2d_weight_, conv2d_input_):
    _primitive.native_size = PRODUCT_SIZE


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


def _same_padding(
    input: Any, size: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> tuple[Any, tuple[int, int]]:
    """Borders for an output as large as the input; an odd one more goes to the end."""
    if max(stride) > 1:
        raise RuntimeError(f"padding='same' needs stride 1, got {stride}")
    total = [d * (k - 1) for k, d in zip(size, dilation, strict=True)]
    widths = ((0, 0), (0, 0), (0, total[0] % 2), (0, total[1] % 2))
    return bordered(input, widths), (total[0] // 2, total[1] // 2)


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
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """Cross-correlation of images (batch, channels, height, width) with a bank of filters."""
    _check_conv("conv2d", input, weight, bias, groups, 2)
    steps, gaps = pair(stride, "conv2d: stride", 1), pair(dilation, "conv2d: dilation", 1)
    size = (weight._array.shape[2], weight._array.shape[3])
    x = input if input._array.ndim == 4 else reshape_(input, shape=(1, *input._array.shape))
    if padding == "same":
        x, borders = _same_padding(x, size, steps, gaps)
    elif isinstance(padding, str):
        if padding != "valid":
            raise RuntimeError(f"conv2d: padding must be 'same', 'valid' or sizes, got {padding!r}")
        borders = (0, 0)
    else:
        borders = pair(padding, "conv2d: padding", 0)
    geometry = w.over("conv2d", x._array.shape, size, steps, borders, gaps)
    out = conv2d_(x, weight, bias, window=geometry, groups=groups)
    return out if input._array.ndim == 4 else reshape_(out, shape=out._array.shape[1:])


def _single(value: Any, what: str) -> Any:
    """A setting of one dimension, as it is or taken out of a sequence of one."""
    if isinstance(value, (tuple, list)):
        if len(value) != 1:
            raise RuntimeError(f"conv1d: {what} must be one integer, got {value!r}")
        return value[0]
    return value


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
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """Cross-correlation of sequences (batch, channels, length) with a bank of filters."""
    _check_conv("conv1d", input, weight, bias, groups, 1)
    shape, kernel = input._array.shape, weight._array.shape
    x = reshape_(input, shape=(*shape[:-1], 1, shape[-1]))
    filters = reshape_(weight, shape=(*kernel[:2], 1, kernel[2]))
    steps, gaps = (1, _single(stride, "stride")), (1, _single(dilation, "dilation"))
    borders = padding if isinstance(padding, str) else (0, _single(padding, "padding"))
    out = conv2d(x, filters, bias, steps, borders, gaps, groups)
    size = out._array.shape
    return reshape_(out, shape=(*size[:-2], size[-1]))


# -- windows as columns ------------------------------------------------------------------------


def _unfold(x: Any, *, window: Window) -> Any:
    view = w.columns(w.padded(x, window, 0), window)
    depth = x.shape[1] * math.prod(window.size)
    # reshape alone may return a view of x where windows do not overlap.
    return view.copy().reshape(len(x), depth, -1)


def _fold(x: Any, *, window: Window) -> Any:
    channels = x.shape[1] // math.prod(window.size)
    out = xp.module(x).zeros((len(x), channels, *window.extents), x.dtype)
    _add_columns(out, x, window)
    return xp.contiguous(w.cropped(out, window))


def _unfold_in_loops(b: Any, out: Any, x: Any, *, window: Window) -> None:
    x = w.padded_in_loops(b, x, window, 0)
    shape, strides = w.layout(x, window)
    b.copy(out.reshape(shape), b.strided(x, shape, strides))


def _fold_in_loops(b: Any, out: Any, x: Any, *, window: Window) -> None:
    whole = window.extents == window.inside
    target = out if whole else b.new((*out.shape[:2], *window.extents), out.dtype)
    columns = b.ordered(x).reshape(*out.shape[:2], math.prod(window.size), *window.outside)
    b.fill(target, 0)
    for i, tap in enumerate(w.taps(target, window)):
        b.add(tap, columns[:, :, i])
    if not whole:
        b.copy(out, w.cropped(target, window))


unfold_: Primitive = define(
    "unfold",
    _unfold,
    kind=OPAQUE,
    lower=_unfold_in_loops,
    vjp=lambda g, window: fold_(g, window=window),
)
fold_: Primitive = define(
    "fold",
    _fold,
    kind=OPAQUE,
    lower=_fold_in_loops,
    vjp=lambda g, window: unfold_(g, window=window),
)


@op(
    module="nn.functional",
    samples=lambda: [
        Sample((2, 3, 4, 5), 2),
        Sample((1, 2, 5, 5), [3, 2], dilation=2, padding=1, stride=2),
        Sample((2, 4, 4), 3, padding=1),
    ],
)
def unfold(
    input: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Any:
    """Every window as a column: (batch, channels * window, number of windows)."""
    if input._array.ndim not in (3, 4):
        raise RuntimeError(f"unfold needs 3 or 4 dimensions, got shape {tuple(input.shape)}")
    x = input if input._array.ndim == 4 else reshape_(input, shape=(1, *input._array.shape))
    geometry = w.over(
        "unfold",
        x._array.shape,
        pair(kernel_size, "unfold: kernel_size", 1),
        pair(stride, "unfold: stride", 1),
        pair(padding, "unfold: padding", 0),
        pair(dilation, "unfold: dilation", 1),
    )
    out = unfold_(x, window=geometry)
    return out if input._array.ndim == 4 else reshape_(out, shape=out._array.shape[1:])


@op(
    module="nn.functional",
    samples=lambda: [
        Sample((2, 12, 12), [4, 5], 2),
        Sample((8, 4), [5, 5], 2, dilation=2, padding=1, stride=3),
    ],
)
def fold(
    input: Any,
    output_size: Any,
    kernel_size: Any,
    dilation: Any = 1,
    padding: Any = 0,
    stride: Any = 1,
) -> Any:
    """Columns added up into images at the places of their windows: the transpose of `unfold`."""
    if input._array.ndim not in (2, 3):
        raise RuntimeError(f"fold needs 2 or 3 dimensions, got shape {tuple(input.shape)}")
    x = input if input._array.ndim == 3 else reshape_(input, shape=(1, *input._array.shape))
    size = pair(kernel_size, "fold: kernel_size", 1)
    geometry = w.over(
        "fold",
        pair(output_size, "fold: output_size", 1),
        size,
        pair(stride, "fold: stride", 1),
        pair(padding, "fold: padding", 0),
        pair(dilation, "fold: dilation", 1),
    )
    depth, places = x._array.shape[1:]
    if depth % math.prod(size) or places != math.prod(geometry.outside):
        raise RuntimeError(
            f"fold: an output of {output_size} has {math.prod(geometry.outside)} windows of "
            f"{math.prod(size)} elements for each channel; columns of shape "
            f"{tuple(input.shape)} do not fit"
        )
    out = fold_(x, window=geometry)
    return out if input._array.ndim == 3 else reshape_(out, shape=out._array.shape[1:])
