"""Pooling: maxima and means of windows.

`max_pool2d` keeps for backward only which place of each window won, one byte for windows of up to
256 elements. All kernels loop over the places of the window and work on whole strided views.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np

from .. import xp
from ..dtypes import int64
from ..primitive import ELEMENTWISE, OPAQUE, PRODUCT_SIZE, Primitive, define
from ..tensor import Tensor, wrap
from . import comparison as c
from . import elementwise as e
from . import window as w
from .gather import gather_
from .index import take_
from .linalg import matmul_
from .movement import reshape_, swapped
from .precision import check_floating
from .table import In, Sample, op
from .window import Window, pair

# -- maxima ------------------------------------------------------------------------------------


def _lowest(x: Any) -> Any:
    return -np.inf if x.dtype.kind in "fV" else np.iinfo(x.dtype).min


def _max_pool2d(x: Any, *, window: Window) -> Any:
    module = xp.module(x)
    taps = w.taps(w.padded(x, window, _lowest(x)), window)
    best = module.array(next(taps))
    places = window.size[0] * window.size[1]
    winners = module.zeros(best.shape, np.uint8 if places <= 256 else np.int32)
    if any(window.padding):
        rows, columns = (_first_inside(window, axis) for axis in (0, 1))
        first = rows[:, None] * window.size[1] + columns
        winners += module.asarray(first).astype(winners.dtype)
    for place, tap in enumerate(taps, 1):
        # The first of equals wins, and the last NaN. A mask of 0 and 1 times the place is faster
        # than a masked copy.
        better = tap > best
        if x.dtype.kind in "fV":
            better |= tap != tap
        np.maximum(winners, better * winners.dtype.type(place), out=winners)
        np.maximum(best, tap, out=best)
    return best, winners


#: what one more element of a window changes: whether it wins, the best one, its place
WINS = Primitive(
    "wins", lambda x, best: (x > best) | (x != x), ELEMENTWISE, ("x", "best"),
    expression="x > best or x != x",
)  # fmt: skip
EITHER = Primitive(
    "either", np.where, ELEMENTWISE, ("wins", "x", "y"), expression="where(wins, x, y)"
)
WON = Primitive(
    "won", lambda x, winner, place: np.where(winner == place, x, 0), ELEMENTWISE,
    ("x", "winner", "place"), expression="where(winner == place, x, 0)",
)  # fmt: skip


def _max_pool2d_in_loops(b: Any, outs: Any, x: Any, *, window: Window) -> None:
    """Maxima within rows of windows, then over their rows: both walk memory in order."""
    out, winners = outs
    x = w.padded_in_loops(b, x, window, _lowest(x))
    shape = (*x.shape[:-1], window.outside[1])
    best, columns = b.new(shape, out.dtype), b.new(shape, winners.dtype)
    rows, starts = (_first_inside(window, axis).astype(winners.dtype) for axis in (0, 1))
    start = b.constant(starts) if starts.any() else 0
    taps: Any = [(tap, place) for place, tap in enumerate(w.column_taps(x, window))]
    _best_in_loops(b, best, columns, taps, start)
    width = window.size[1]
    taps = [
        (tap, (column, i * width))
        for i, (tap, column) in enumerate(
            zip(w.row_taps(best, window), w.row_taps(columns, window), strict=True)
        )
    ]
    start = b.constant((rows * width)[:, None]) if rows.any() else 0
    _best_in_loops(b, out, winners, taps, (taps[0][1][0], start))


def _best_in_loops(b: Any, out: Any, winners: Any, taps: Any, start: Any) -> None:
    """The best of some taps and its place, a number or an array and what to add to it."""

    def place(given: Any) -> Any:
        if not isinstance(given, tuple):
            return given
        there = b.new(winners.shape, winners.dtype)
        b.apply(there, e.add, *given)
        return there

    with b.together():
        (best, _), *others = taps
        places = place(start)
        for tap, where in others:
            better = b.new(out.shape, np.dtype(np.bool_))
            b.apply(better, WINS, tap, best)
            new_best, new_places = (b.new(out.shape, z.dtype) for z in (out, winners))
            b.apply(new_best, EITHER, better, tap, best)
            b.apply(new_places, EITHER, better, place(where), places)
            best, places = new_best, new_places
        b.copy(out, best)
        b.copy(winners, places)


def _first_inside(window: Window, axis: int) -> Any:
    """The first place of each window that is not padding: it wins where all elements are -inf."""
    start = np.arange(window.outside[axis]) * window.stride[axis] - window.padding[axis]
    return np.maximum(0, -(start // window.dilation[axis]))


def _put_winners(values: Any, winners: Any, *, window: Window) -> Any:
    """Zeros with each of the values added where the winner of its window stands."""
    module = xp.module(values)
    shape = (*values.shape[:-2], *window.extents)
    out = module.zeros(shape, values.dtype)
    for place, tap in enumerate(w.taps(out, window)):
        won = winners == place
        if window.overlaps:
            tap += c.where(won, values, 0.0)
        else:
            _copy_bits(values, won, tap)
    return w.cropped(out, window)


def _copy_bits(values: Any, mask: Any, target: Any) -> None:
    """`target[...] = values` where the mask holds, else 0: five times faster than a masked copy."""
    word = np.dtype(f"u{values.dtype.itemsize}")
    every = np.negative(mask.astype(word))
    np.bitwise_and(values.view(word), every, out=target.view(word))


def _put_winners_in_loops(b: Any, out: Any, values: Any, winners: Any, *, window: Window) -> None:
    """As the kernel does it; windows that do not overlap put all their places in one pass."""
    whole = window.extents == window.inside
    target = out if whole else b.new((*out.shape[:-2], *window.extents), out.dtype)
    if window.overlaps:
        b.fill(target, 0)
        for place, tap in enumerate(w.taps(target, window)):
            b.apply(tap, WON, values, winners, place, adds=True)
    else:
        if not window.covers:
            b.fill(target, 0)
        with b.together():
            for place, tap in enumerate(w.taps(target, window)):
                b.apply(tap, WON, values, winners, place)
    if not whole:
        b.copy(out, w.cropped(target, window))


def _positions(winners: Any, window: Window) -> Any:
    """Where the winners stand in the flat plane of the input."""
    (sh, sw), (ph, pw), (dh, dw) = window.stride, window.padding, window.dilation
    module = xp.module(winners._array if isinstance(winners, Tensor) else winners)
    rows = module.arange(window.outside[0]).reshape(-1, 1) * sh - ph
    columns = module.arange(window.outside[1]) * sw - pw
    row, column = np.divmod(module.arange(window.size[0] * window.size[1]), window.size[1])
    steps = row * (dh * window.inside[1]) + column * dw
    if isinstance(winners, Tensor):
        steps = wrap(steps)
    places = take_(steps, e.cast(winners, dtype=int64), dims=(0,))
    return places + (rows * window.inside[1] + columns)


def _take_winners(x: Any, winners: Any, window: Window) -> Any:
    """The elements of `x` that stand where the winners stood."""
    plane = (*winners.shape[:-2], -1)
    flat = reshape_(x, shape=(*x.shape[:-2], x.shape[-2] * x.shape[-1]))
    index = reshape_(_positions(winners, window), shape=plane)
    return reshape_(gather_(flat, index, dim=len(plane) - 1), shape=tuple(winners.shape))


max_pool2d_: Primitive = define(
    "max_pool2d",
    _max_pool2d,
    kind=OPAQUE,
    lower=_max_pool2d_in_loops,
    outputs=("out", "winners"),
    vjp=lambda g, winners, window: put_winners_(g[0], winners, window=window),
)
put_winners_: Primitive = define(
    "put_winners",
    _put_winners,
    kind=OPAQUE,
    lower=_put_winners_in_loops,
    vjp=(lambda g, winners, window: _take_winners(g, winners, window), None),
)

# Of 2304 elements, a max-pool with its backward takes 121 µs in NumPy and 61 in native code.
for _primitive in (max_pool2d_, put_winners_):
    _primitive.native_size = PRODUCT_SIZE


def _batched(input: Any, what: str, dims: int) -> Any:
    """The input with a batch dimension."""
    if input._array.ndim not in (dims + 1, dims + 2):
        raise RuntimeError(
            f"{what} needs an input of {dims + 2} dimensions (batch, channels, ...), or "
            f"{dims + 1} without a batch, got shape {tuple(input.shape)}"
        )
    shape = input._array.shape
    return input if len(shape) == dims + 2 else reshape_(input, shape=(1, *shape))


def _like_input(out: Any, input: Any) -> Any:
    """`out` without the batch dimension if the input had none."""
    shape = out._array.shape
    return out if len(shape) == input._array.ndim else reshape_(out, shape=shape[1:])


def _half_padding(what: str, size: Any, padding: Any, dilation: Any = (1, 1)) -> None:
    for k, p, d in zip(size, padding, dilation, strict=True):
        if p > (d * (k - 1) + 1) // 2:
            raise RuntimeError(
                f"{what}: padding {padding} must be at most half of the window {size}"
            )


def _max_pool(
    what: str,
    input: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    return_indices: bool,
) -> Any:
    x = _batched(input, what, 2)
    size = pair(kernel_size, f"{what}: kernel_size", 1)
    steps = size if stride is None else pair(stride, f"{what}: stride", 1)
    borders = pair(padding, f"{what}: padding", 0)
    gaps = pair(dilation, f"{what}: dilation", 1)
    _half_padding(what, size, borders, gaps)
    geometry = w.over(what, x._array.shape, size, steps, borders, gaps, bool(ceil_mode))
    out, winners = max_pool2d_(x, window=geometry)
    out = _like_input(out, input)
    if not return_indices:
        return out
    return out, _like_input(_positions(winners, geometry), input)


@op(
    method=False,
    torch="torch.nn.functional.max_pool2d",
    samples=lambda: [
        Sample(In(2, 3, 4, 6, distinct=True), 2),
        Sample(In(1, 2, 5, 5, distinct=True), [3, 2], stride=[2, 1], padding=[1, 1]),
        Sample(In(1, 2, 7, 6, distinct=True), 2, stride=3, dilation=2, ceil_mode=True),
        Sample(In(2, 6, 6, distinct=True), 3, 2, 1),
        Sample(In(1, 1, 4, 4, distinct=True), 3, stride=1, return_indices=True),
        Sample(In(0, 2, 4, 4), 2),
    ],
)
def max_pool2d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest element of each window of an image."""
    return _max_pool(
        "max_pool2d", input, kernel_size, stride, padding, dilation, ceil_mode, return_indices
    )


def _single(value: Any) -> Any:
    """A setting of one dimension, taken out of a sequence of one."""
    return value[0] if isinstance(value, (tuple, list)) and len(value) == 1 else value


def _as_image(input: Any, what: str) -> Any:
    """Sequences (..., length) as images of height 1."""
    if input._array.ndim not in (2, 3):
        raise RuntimeError(
            f"{what} needs an input of 3 dimensions (batch, channels, length), or 2 without a "
            f"batch, got shape {tuple(input.shape)}"
        )
    shape = input._array.shape
    return reshape_(input, shape=(*shape[:-1], 1, shape[-1]))


def _as_sequence(out: Any) -> Any:
    shape = out._array.shape
    return reshape_(out, shape=(*shape[:-2], shape[-1]))


@op(
    method=False,
    torch="torch.nn.functional.max_pool1d",
    samples=lambda: [
        Sample(In(2, 3, 8, distinct=True), 2),
        Sample(In(3, 7, distinct=True), 3, 2, 1),
        Sample(In(1, 2, 8, distinct=True), 2, dilation=2, ceil_mode=True),
    ],
)
def max_pool1d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest element of each window of a sequence."""
    out = _max_pool(
        "max_pool1d",
        _as_image(input, "max_pool1d"),
        (1, _single(kernel_size)),
        None if stride is None else (1, _single(stride)),
        (0, _single(padding)),
        (1, _single(dilation)),
        ceil_mode,
        return_indices,
    )
    return tuple(map(_as_sequence, out)) if return_indices else _as_sequence(out)


# -- means -------------------------------------------------------------------------------------


@functools.lru_cache(256)
def _divisor(window: Window, with_padding: bool, override: int | None) -> Any:
    """What the sum of each window is divided by: a number, or an array where windows differ."""
    if override is not None:
        return float(override)
    counts = []
    for n, k, s, p, o in zip(
        window.inside, window.size, window.stride, window.padding, window.outside, strict=True
    ):
        start = np.arange(o) * s - p
        stop = np.minimum(start + k, n + p)
        if not with_padding:
            start, stop = np.maximum(start, 0), np.minimum(stop, n)
        counts.append(stop - start)
    areas = np.outer(*counts)
    return float(areas[0, 0]) if (areas == areas[0, 0]).all() else areas


def _divided(x: Any, divisor: Any) -> Any:
    if x.dtype.kind in "iu":
        return np.trunc(x / divisor).astype(x.dtype)
    if isinstance(divisor, float):
        return x * (1.0 / divisor)
    return x / xp.module(x).asarray(divisor, x.dtype)


def _avg_pool2d(x: Any, *, window: Window, with_padding: bool, override: int | None) -> Any:
    total = w.padded(xp.widened(x), window, 0)
    for taps in (w.row_taps, w.column_taps):
        first, *others = taps(total, window)
        total = xp.module(x).array(first)
        for tap in others:
            total += tap
    return _divided(total, _divisor(window, with_padding, override)).astype(x.dtype, copy=False)


def _avg_unpool2d(values: Any, *, window: Window, with_padding: bool, override: int | None) -> Any:
    """Each value's share, added to all places of its window: the transpose of `avg_pool2d`."""
    part = _divided(xp.widened(values), _divisor(window, with_padding, override))
    (height, width), module = window.extents, xp.module(values)
    rows = module.zeros((*values.shape[:-1], width), part.dtype)
    for tap in w.column_taps(rows, window):
        tap += part
    out = module.zeros((*values.shape[:-2], height, width), part.dtype)
    for tap in w.row_taps(out, window):
        tap += rows
    return w.cropped(out, window).astype(values.dtype, copy=False)


def _divided_in_loops(b: Any, out: Any, x: Any, divisor: Any) -> None:
    if isinstance(divisor, float):
        b.apply(out, e.mul, x, 1.0 / divisor)
    else:
        b.apply(out, e.div, x, b.constant(np.asarray(divisor, x.dtype)))


def _avg_pool2d_in_loops(
    b: Any, out: Any, x: Any, *, window: Window, with_padding: bool, override: int | None
) -> None:
    x = w.padded_in_loops(b, x, window, 0)
    rows = b.new((*x.shape[:-1], window.outside[1]), x.dtype)
    with b.together():
        b.copy(rows, _sum_in_loops(b, w.column_taps(x, window)))
    with b.together():
        total = _sum_in_loops(b, w.row_taps(rows, window))
        _divided_in_loops(b, out, total, _divisor(window, with_padding, override))


def _sum_in_loops(b: Any, taps: Any) -> Any:
    total = next(taps)
    for tap in taps:
        more = b.new(tap.shape, tap.dtype)
        b.apply(more, e.add, total, tap)
        total = more
    return total


def _avg_unpool2d_in_loops(
    b: Any, out: Any, values: Any, *, window: Window, with_padding: bool, override: int | None
) -> None:
    part = b.new(values.shape, values.dtype)
    _divided_in_loops(b, part, values, _divisor(window, with_padding, override))
    whole = window.extents == window.inside
    target = out if whole else b.new((*out.shape[:-2], *window.extents), out.dtype)
    if window.overlaps or not window.covers:
        b.fill(target, 0)
    if window.overlaps:
        for tap in w.taps(target, window):
            b.add(tap, part)
    else:
        with b.together():
            for tap in w.taps(target, window):
                b.copy(tap, part)
    if not whole:
        b.copy(out, w.cropped(target, window))


avg_pool2d_: Primitive = define(
    "avg_pool2d",
    _avg_pool2d,
    kind=OPAQUE,
    lower=_avg_pool2d_in_loops,
    vjp=lambda g, window, with_padding, override: avg_unpool2d_(
        g, window=window, with_padding=with_padding, override=override
    ),
)
avg_unpool2d_: Primitive = define(
    "avg_unpool2d",
    _avg_unpool2d,
    kind=OPAQUE,
    lower=_avg_unpool2d_in_loops,
    vjp=lambda g, window, with_padding, override: avg_pool2d_(
        g, window=window, with_padding=with_padding, override=override
    ),
)


@op(
    module="nn.functional",
    samples=lambda: [
        Sample((2, 3, 4, 6), 2),
        Sample((1, 2, 5, 5), [3, 2], stride=[2, 1], padding=1),
        Sample((1, 2, 5, 5), 3, 2, 1, count_include_pad=False),
        Sample((1, 2, 6, 6), 3, stride=2, padding=1, ceil_mode=True),
        Sample((2, 6, 6), 3, 2, divisor_override=5),
    ],
)
def avg_pool2d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """The mean of each window of an image."""
    return _avg_pool(
        "avg_pool2d",
        input,
        kernel_size,
        stride,
        padding,
        ceil_mode,
        count_include_pad,
        divisor_override,
    )


def _avg_pool(
    what: str,
    input: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Any:
    if input._array.dtype.kind == "b":
        raise RuntimeError(f"{what} needs numbers, got a bool tensor; use .float() first")
    x = _batched(input, what, 2)
    size = pair(kernel_size, f"{what}: kernel_size", 1)
    steps = size if stride is None else pair(stride, f"{what}: stride", 1)
    borders = pair(padding, f"{what}: padding", 0)
    _half_padding(what, size, borders)
    if divisor_override == 0:
        raise RuntimeError(f"{what}: divisor_override must not be 0")
    geometry = w.over(what, x._array.shape, size, steps, borders, (1, 1), bool(ceil_mode))
    out = avg_pool2d_(
        x, window=geometry, with_padding=bool(count_include_pad), override=divisor_override
    )
    return _like_input(out, input)


@op(
    method=False,
    samples=lambda: [
        Sample((2, 3, 8), 2),
        Sample((3, 7), 3, 2, 1, count_include_pad=False),
        Sample((1, 2, 8), 3, 2, 1, True),
    ],
)
def avg_pool1d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Any:
    """The mean of each window of a sequence."""
    out = _avg_pool(
        "avg_pool1d",
        _as_image(input, "avg_pool1d"),
        (1, _single(kernel_size)),
        None if stride is None else (1, _single(stride)),
        (0, _single(padding)),
        ceil_mode,
        count_include_pad,
        None,
    )
    return _as_sequence(out)


# -- to a given size ---------------------------------------------------------------------------


@functools.lru_cache(256)
def _averaging(n: int, parts: int) -> Any:
    """The matrix (parts, n) whose rows average equal shares of n elements, overlapping if odd."""
    rows = np.zeros((parts, n))
    for i in range(parts):
        start, stop = i * n // parts, -(-(i + 1) * n // parts)
        rows[i, start:stop] = 1.0 / (stop - start)
    return rows


def _averaged(x: Any, parts: tuple[int, int]) -> Any:
    """Means over uneven windows, as products with averaging matrices."""
    module = xp.module(x._array)
    height, width = (
        wrap(module.asarray(_averaging(n, k)).astype(x._array.dtype))
        for n, k in zip(x._array.shape[-2:], parts, strict=True)
    )
    return matmul_(height, matmul_(x, swapped(width)))


@op(
    module="nn.functional",
    samples=lambda: [
        Sample((2, 3, 4, 6), 2),
        Sample((2, 3, 5, 7), [3, 2]),
        Sample((2, 3, 5, 4), 1),
        Sample((3, 4, 4), [None, 2]),
        Sample((1, 2, 2, 3), [4, 3]),
    ],
)
def adaptive_avg_pool2d(input: Any, output_size: Any) -> Any:
    """Means over a grid of windows such that the output has the given size."""
    check_floating(input, "adaptive_avg_pool2d")
    x = _batched(input, "adaptive_avg_pool2d", 2)
    inside = x._array.shape[-2:]
    wanted = list(output_size) if isinstance(output_size, (tuple, list)) else [output_size] * 2
    if len(wanted) != 2:
        raise RuntimeError(f"adaptive_avg_pool2d needs one or two sizes, got {output_size}")
    height, width = (
        n if k is None else operator.index(k) for n, k in zip(inside, wanted, strict=True)
    )
    if min(height, width) < 1 or min(inside) < 1:
        raise RuntimeError(
            f"adaptive_avg_pool2d needs sizes of at least 1: input {tuple(inside)}, output "
            f"{(height, width)}"
        )
    if inside[0] % height == 0 and inside[1] % width == 0:
        size = (inside[0] // height, inside[1] // width)
        return avg_pool2d(input, size)
    return _like_input(_averaged(x, (height, width)), input)


@op(method=False, samples=lambda: [Sample((2, 3, 6), 2), Sample((3, 7), 3)])
def adaptive_avg_pool1d(input: Any, output_size: Any) -> Any:
    """Means over windows such that the output has the given length."""
    image = _as_image(input, "adaptive_avg_pool1d")
    return _as_sequence(adaptive_avg_pool2d(image, (1, _single(output_size))))
