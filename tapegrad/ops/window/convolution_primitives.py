"""Convolution: three primitives that are each other's gradients, so derivatives of any order work.

Over one, two or three dimensions, `convolution` is bilinear in its input and weight. Kernels gather
windows into columns and multiply them by the weight as matrices, a few samples at a time, so that
columns stay in the cache and use little memory. Only the input and the weight are saved for
backward. Called by `convolution.py` and `transposed_convolution.py`, which check the arguments.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...core import xp
from ...core.batch_rules import joined, separated, size_of, spread, with_batch
from ...core.complexes import HOLOMORPHIC
from ...core.primitive import OPAQUE, Primitive, define
from ..elementwise.arithmetic import add
from ..reduce.reductions import sum_
from ..shape.reshaping import reshape_
from . import geometry as w
from .geometry import Window

# Bytes of columns at a time: above 2 MB, products are slower on a machine with 1 MB of L2 cache.
_CHUNK = 1 << 21
# Largest stride, in elements, at which native code reads vectors.
_MAX_STEP = 4
# From this many channels of a group, native code copies patches of an image. With fewer it reads
# them in place; then strided data is made contiguous before, and scattered again after.
_MIN_CHANNELS_COPIED = 48
# Most parts of a gradient of the input: one for each position within a stride, each with its own
# loops. One pass over 4096 parts (a stride of 16 in three dimensions) took more than 20 s; NumPy
# computes the result in 0.2 s.
_MAX_PARTS = 512
# From this many channels of a group, a contiguous copy pays for the gradient of a filter: with
# fewer, few multiplications read the copy (depthwise, 256 channels of 28x28, stride 2: 0.7 instead
# of 1.4 ms).
_MIN_CHANNELS_TOGETHER = 4
# Below this many positions of an image, the gradients of a channel are made contiguous over all
# samples, because sums over one image would be short.
_MIN_SUMMED_POSITIONS = 256


def _chunks(count: int, bytes_each: int) -> Iterator[slice]:
    """Slices of samples whose columns fit into `_CHUNK` bytes."""
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
    transposed = _transposed_window(window)
    outs, channels = len(weight), weight.shape[1]
    # Gathering gradients is 2.5 times faster than scattering columns for the same channels.
    if transposed is not None and outs <= 2 * channels * groups:
        kernel = _flipped(weight).reshape(groups, outs // groups, channels, *window.size)
        kernel = kernel.swapaxes(1, 2).reshape(groups * channels, outs // groups, *window.size)
        return _convolution(grad, kernel, None, window=transposed, groups=groups)
    gradient, kernel = xp.widened(grad), xp.widened(weight)
    n, depth, positions = len(grad), math.prod(weight.shape[1:]), math.prod(window.outside)
    matrices = kernel.reshape(groups, outs // groups, depth).swapaxes(-1, -2)
    gradient = gradient.reshape(n, groups, outs // groups, positions)
    out = xp.module(grad).zeros((n, groups * channels, *window.extents), gradient.dtype)
    for part in _chunks(n, groups * depth * positions * gradient.itemsize):
        columns = np.matmul(matrices, gradient[part])
        add_columns(out[part], columns, window)
    return xp.contiguous(w.cropped(out, window)).astype(grad.dtype, copy=False)


def _transposed_window(window: Window) -> Window | None:
    """The window that maps output gradients to input gradients, for stride 1; else None."""
    borders = tuple(s - 1 - p for s, p in zip(window.spans, window.padding, strict=True))
    if max(window.stride) > 1 or min(borders) < 0:
        return None
    return window._replace(padding=borders, inside=window.outside, outside=window.inside)


def _flipped(weight: Any) -> Any:
    """Filters flipped along all dimensions of the window."""
    return np.flip(weight, tuple(range(2, weight.ndim)))


def add_columns(target: Any, columns: Any, window: Window) -> None:
    """Add each column to the positions of the padded `target` that it was gathered from."""
    n, channels = target.shape[:2]
    columns = columns.reshape(n, channels, math.prod(window.size), *window.outside)
    for i, tap in enumerate(w.taps(target, window)):
        tap += columns[:, :, i]


# -- in loops ------------------------------------------------------------------------------------


def _windows_in_loops(
    b: Any, x: Any, window: Window, groups: int, most_apart: int = _MAX_STEP
) -> Any:
    """A view (batch, groups, channels, *window size, *output size) with a small last stride."""
    x = b.ordered(w.padded_in_loops(b, x, window, 0))
    shape, strides = w.layout(x, window)
    if window.stride[-1] > most_apart and window.outside[-1] > 1:
        # Copy x once for each column of the window, so that each row of positions is contiguous.
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
    """Split a dimension of channels in two: groups, and channels per group."""
    before, n, after = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    return x.reshape(*before, groups, n // groups, *after)


def _contracted(b: Any, out: Any, view: Any, kernel: Any) -> None:
    """Contract a view n g c i j y x with kernels g o c i j, over channels and positions."""
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
    copied = grad.shape[1] >= groups * _MIN_CHANNELS_COPIED
    apart = copied or grad.shape[1] < groups * _MIN_CHANNELS_TOGETHER
    view = _windows_in_loops(b, x, window, groups, _MAX_STEP if apart else 1)  # n g c i j y x
    if copied and len(grad) > 1 and math.prod(window.outside) < _MIN_SUMMED_POSITIONS:
        gradient = b.ordered(grad.swapaxes(0, 1)).swapaxes(0, 1)
    else:
        gradient = b.ordered(grad)
    gradient = _split(gradient, 1, groups)  # n g o y x
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
    """A convolution of gradients with the windows flipped.

    With a stride above 1, only some positions of the window meet a given input element, depending
    on its remainder modulo the stride: each remainder is a convolution of its own.
    """
    if max(window.stride) == 1:
        _transposed_in_loops(b, out, grad, weight, window, groups)
        return
    if math.prod(window.stride) > _MAX_PARTS:
        b.refuse(f"windows that move by {window.stride} make too many parts")
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
            if kernel.shape[1] >= _MIN_CHANNELS_COPIED:
                _transposed_in_loops(b, part, grad, kernel, geometry, groups)
                continue
            found = b.new(part.shape, out.dtype)
            _transposed_in_loops(b, found, grad, kernel, geometry, groups)
            b.copy(part, found)


def _every(first: int, step: int) -> slice:
    return slice(first, None, step)


def _phase(window: Window, axis: int, remainder: int) -> tuple[int, slice, int, int]:
    """The positions of one axis, padding included, that equal `remainder` modulo the stride.

    Returns the first such input element, the taps of the window that meet these positions, and the
    dilation and padding of a window of only those taps, which has stride 1 over these positions.
    """
    stride, dilation = window.stride[axis], window.dilation[axis]
    before = -((remainder - window.padding[axis]) // stride)  # such positions in the padding
    first = remainder + before * stride - window.padding[axis]
    taps = [k for k in range(window.size[axis]) if k * dilation % stride == remainder]
    if not taps:
        return first, slice(0, 0), 1, 0
    common = math.gcd(stride, dilation)
    border = before - (taps[0] * dilation - remainder) // stride
    return first, slice(taps[0], None, stride // common), dilation // common, border


def _transposed_in_loops(
    b: Any, out: Any, grad: Any, weight: Any, window: Window, groups: int
) -> None:
    """Convolve gradients of windows with stride 1, padded to `inside` + span - 1 positions."""
    reach = tuple(n + s - 1 for n, s in zip(window.inside, window.spans, strict=True))
    starts, firsts, counts = zip(*(_met(window, axis) for axis in range(window.dims)), strict=True)
    some = grad[(..., *(slice(f, f + n) for f, n in zip(firsts, counts, strict=True)))]
    spread = some
    if counts != reach:
        spread = b.new((*grad.shape[:2], *reach), grad.dtype)
        w.fill_borders(b, spread, starts, counts, 0)
        b.copy(spread[(..., *(slice(s, s + n) for s, n in zip(starts, counts, strict=True)))], some)
    once, none = (1,) * window.dims, (0,) * window.dims
    transposed = Window(window.size, once, none, window.dilation, reach, window.inside)
    # Flip the windows rather than the filters: filters are copied, and a copy in order takes a
    # third of the time of a copy that flips each filter.
    turned = tuple(range(3, 3 + window.dims))
    view = np.flip(_windows_in_loops(b, spread, transposed, groups), turned)
    _contracted(b, out, view, b.ordered(_split(weight, 0, groups).swapaxes(1, 2)))


def _met(window: Window, axis: int) -> tuple[int, int, int]:
    """The outputs that exist among the `inside` + span - 1 positions of the padded gradients.

    Returns the offset of the first one among these positions, its index, and their number.
    """
    start = window.padding[axis] - window.spans[axis] + 1
    first = max(start, 0)
    last = min(start + window.inside[axis] + window.spans[axis] - 2, window.outside[axis] - 1)
    return (0, 0, 0) if last < first else (first - start, first, last - first + 1)


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


# -- batches -------------------------------------------------------------------------------------


def _grouped(p: Primitive, x: Any, weight: Any, batched: Any, window: Window, groups: int) -> Any:
    """Batch a convolution, or its transpose; examples with filters of their own become groups."""
    size = size_of((x, weight), batched)
    if not batched[1]:
        bias = (None,) if p is convolution_ else ()
        return separated(p(joined(x), weight, *bias, window=window, groups=groups), size)
    shared = groups == 1 and not batched[0] and p is convolution_
    images = x if shared else joined(x if batched[0] else with_batch(x, size), 1)
    filters = joined(weight)
    options = {"window": window, "groups": 1 if shared else size * groups}
    bias = (None,) if p is convolution_ else ()
    return separated(p(images, filters, *bias, **options), size, 1)


def _convolution_batch(p: Primitive, inputs: Any, batched: Any, params: dict[str, Any]) -> Any:
    x, weight, bias = inputs
    if not any(batched[1:]):
        out = p(joined(x), weight, bias, **params)
        return separated(out, x.shape[0])
    if any(batched[:2]):
        out = _grouped(p, x, weight, batched[:2], **params)
    else:
        out = p(x, weight, None, **params)
    if bias is None:
        return out
    ones = (1,) * params["window"].dims
    lead = (bias.shape[0], 1) if batched[2] else ()
    return out + reshape_(bias, shape=(*lead, bias.shape[-1], *ones))


def _input_batch(p: Primitive, inputs: Any, batched: Any, params: dict[str, Any]) -> Any:
    grad, weight = inputs
    return _grouped(p, grad, weight, batched, **params)


def _weight_batch(p: Primitive, inputs: Any, batched: Any, params: dict[str, Any]) -> Any:
    """Batch the gradient of a filter; examples become groups or channels."""
    grad, x = inputs
    size, groups = size_of(inputs, batched), params["groups"]
    if groups == 1 and not batched[1]:
        return separated(p(joined(grad, 1), x, **params), size)
    if groups == 1 and not batched[0]:
        return separated(p(grad, joined(x, 1), **params), size, 1)
    grad, x = spread(inputs, batched)
    options = {"window": params["window"], "groups": size * groups}
    return separated(p(joined(grad, 1), joined(x, 1), **options), size)


# Native at all sizes: 18 elements with their backward take 88 µs in NumPy, 27 µs in native code.
convolution_: Primitive = define(
    "convolution",
    _convolution,
    kind=OPAQUE,
    native_size=1,
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
    batch=_convolution_batch,
    complex=HOLOMORPHIC,
)
convolution_weight_: Primitive = define(
    "convolution_weight",
    _convolution_weight,
    kind=OPAQUE,
    native_size=1,
    lower=in_float32(_convolution_weight_in_loops),
    abstract=lambda grad, x, *, window, groups: (
        (grad[0][1], x[0][1] // groups, *window.size),
        grad[1],
    ),
    vjp=(
        lambda g, x, window, groups: convolution_(x, g, None, window=window, groups=groups),
        lambda g, grad, window, groups: convolution_input_(grad, g, window=window, groups=groups),
    ),
    batch=_weight_batch,
    complex=HOLOMORPHIC,
)
convolution_input_: Primitive = define(
    "convolution_input",
    _convolution_input,
    kind=OPAQUE,
    native_size=1,
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
    batch=_input_batch,
    complex=HOLOMORPHIC,
)
