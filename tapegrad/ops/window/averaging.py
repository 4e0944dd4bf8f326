"""Average pooling and its transpose, over one, two or three dimensions.

Sums are computed along one dimension after the other, on strided views of the whole input.
`lp_pool` and `local_response_norm` are computed from means.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import numeric, xp
from ...core.batch_rules import flattened
from ...core.primitive import OPAQUE, Primitive, define
from ..elementwise.arithmetic import add, div, mul
from ..shape.padding import padded
from ..shape.reshaping import reshape_
from ..table import In, Sample, op
from . import geometry as w
from .geometry import Window
from .pooling import half_padding, strides

if TYPE_CHECKING:
    from ...core.tensor import Tensor
    from ..annotations import Ints


#: most elements of a window whose additions are unrolled, and then vectorized over windows; with
#: more elements they are a loop, which is one kernel for all window sizes
MAX_WRITTEN_OUT = 16


@functools.lru_cache(256)
def _divisor(window: Window, with_padding: bool, override: int | None) -> Any:
    """The divisor of the sum of each window: a number, or an array if windows differ."""
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
    areas = functools.reduce(np.multiply.outer, counts)
    first = areas.flat[0]
    return float(first) if (areas == first).all() else areas


def _divided(x: Any, divisor: Any) -> Any:
    if numeric.is_integer(x.dtype):
        return np.trunc(x / divisor).astype(x.dtype)
    if isinstance(divisor, float):
        return x * (1.0 / divisor)
    return x / xp.module(x).asarray(divisor, x.dtype)


def _avg_pool(x: Any, *, window: Window, with_padding: bool, override: int | None) -> Any:
    total = w.padded(xp.widened(x), window, 0)
    for axis in range(window.dims):
        first, *others = w.axis_taps(total, window, axis)
        total = xp.module(x).array(first)
        for tap in others:
            total += tap
    return _divided(total, _divisor(window, with_padding, override)).astype(x.dtype, copy=False)


def _avg_unpool(values: Any, *, window: Window, with_padding: bool, override: int | None) -> Any:
    """Add each value's share to all positions of its window: the transpose of `avg_pool`."""
    part = _divided(xp.widened(values), _divisor(window, with_padding, override))
    for axis in reversed(range(window.dims)):
        shape = (*part.shape[: axis - window.dims], *window.extents[axis:])
        whole = xp.module(values).zeros(shape, part.dtype)
        for tap in w.axis_taps(whole, window, axis):
            tap += part
        part = whole
    return w.cropped(part, window).astype(values.dtype, copy=False)


def _divided_in_loops(b: Any, out: Any, x: Any, divisor: Any) -> None:
    if isinstance(divisor, float):
        b.apply(out, mul, x, 1.0 / divisor)
    else:
        b.apply(out, div, x, b.constant(np.asarray(divisor, x.dtype)))


def _is_folded(window: Window) -> bool:
    """Whether sums are loops over the elements of a window, which is too large to unroll.

    Overlapping windows share sums along each dimension, so for them only the longest one counts.
    """
    apart = not window.overlaps and math.prod(window.size) > MAX_WRITTEN_OUT
    return apart or max(window.size) > MAX_WRITTEN_OUT


def _windows(b: Any, x: Any, window: Window) -> Any:
    """A ghost of the windows of the padded `x`: (batch, channels, *output size, *window size)."""
    shape, steps = w.layout(x, window)
    order = (0, 1, *range(2 + window.dims, x.ndim + window.dims), *range(2, 2 + window.dims))
    return b.strided(x, tuple(shape[d] for d in order), tuple(steps[d] for d in order))


def _with_ones(x: Any, window: Window) -> Any:
    """A ghost with a dimension of size 1 added for each dimension of the window."""
    return x[(..., *(None,) * window.dims)]


def _avg_pool_in_loops(
    b: Any, out: Any, x: Any, *, window: Window, with_padding: bool, override: int | None
) -> None:
    x = w.padded_in_loops(b, x, window, 0)
    if _is_folded(window):
        x = b.widened(x)
        windows, total = _windows(b, x, window), b.new(out.shape, x.dtype)
        body = b.over(windows.shape)
        node = body.compute("x", x.dtype, x=body.read(windows))
        dims = tuple(range(out.ndim, windows.ndim))
        body.fold(_with_ones(total, window), node, "a + x", dims)
        mean = out if out.dtype == x.dtype else b.new(out.shape, x.dtype)
        _divided_in_loops(b, mean, total, _divisor(window, with_padding, override))
        if mean is not out:
            b.rounded(out, mean)
        return
    for axis in reversed(range(1, window.dims)):
        total = b.new((*x.shape[: axis - window.dims], *window.outside[axis:]), x.dtype)
        with b.together():
            b.copy(total, _sum_in_loops(b, w.axis_taps(x, window, axis)))
        x = total
    with b.together():
        total = _sum_in_loops(b, w.axis_taps(x, window, 0))
        _divided_in_loops(b, out, total, _divisor(window, with_padding, override))


def _sum_in_loops(b: Any, taps: Any) -> Any:
    total = next(taps)
    for tap in taps:
        more = b.new(tap.shape, tap.dtype)
        b.apply(more, add, total, tap)
        total = more
    return total


def _avg_unpool_in_loops(
    b: Any, out: Any, values: Any, *, window: Window, with_padding: bool, override: int | None
) -> None:
    part = b.new(values.shape, values.dtype)
    _divided_in_loops(b, part, values, _divisor(window, with_padding, override))
    whole = window.extents == window.inside
    target = out if whole else b.new((*out.shape[: -window.dims], *window.extents), out.dtype)
    if window.overlaps or not window.covers:
        b.fill(target, 0)
    if window.overlaps:
        for tap in w.taps(target, window):
            b.add(tap, part)
    elif _is_folded(window):
        b.copy(_windows(b, target, window), _with_ones(part, window))
    else:
        with b.together():
            for tap in w.taps(target, window):
                b.copy(tap, part)
    if not whole:
        b.copy(out, w.cropped(target, window))


avg_pool_: Primitive = define(
    "avg_pool2d",
    _avg_pool,
    kind=OPAQUE,
    lower=_avg_pool_in_loops,
    vjp=lambda g, window, with_padding, override: avg_unpool_(
        g, window=window, with_padding=with_padding, override=override
    ),
    batch=flattened,
    linear=True,
)
avg_unpool_: Primitive = define(
    "avg_unpool",
    _avg_unpool,
    kind=OPAQUE,
    lower=_avg_unpool_in_loops,
    vjp=lambda g, window, with_padding, override: avg_pool_(
        g, window=window, with_padding=with_padding, override=override
    ),
    batch=flattened,
    linear=True,
)


def _averaged(
    dims: int,
    input: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Any:
    what = f"avg_pool{dims}d"
    if numeric.is_boolean(input._array.dtype):
        raise RuntimeError(f"{what} needs numbers, got a bool tensor; use .float() first")
    x = w.filled(input, what, dims)
    size = w.sizes(kernel_size, f"{what}: kernel_size", 1, dims)
    steps = strides(stride, what, size)
    borders = w.sizes(padding, f"{what}: padding", 0, dims)
    once = (1,) * dims
    half_padding(what, size, borders, once)
    if divisor_override == 0:
        raise RuntimeError(f"{what}: divisor_override must not be 0")
    geometry = w.over(what, x._array.shape, size, steps, borders, once, bool(ceil_mode))
    out = avg_pool_(
        x, window=geometry, with_padding=bool(count_include_pad), override=divisor_override
    )
    return w.like_input(out, input)


@op(
    method=False,
    samples=lambda: [
        Sample((2, 3, 8), 2),
        Sample((3, 7), 3, 2, 1, count_include_pad=False),
        Sample((1, 2, 8), 3, 2, 1, True),
    ],
)
def avg_pool1d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Any:
    """The mean of each window of a sequence.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.avg_pool1d(tapegrad.tensor([[[1.0, 3.0, 2.0, 0.0]]]), 2)
    tensor([[[2., 1.]]])
    """
    return _averaged(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


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
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """The mean of each window of an image.

    `input` is (batch, channels, height, width) or (channels, height, width). `kernel_size`,
    `stride` (the kernel size if it is not given) and `padding` are one number or (height, width). A
    sum is divided by the size of the window; without `count_include_pad`, padding does not count;
    `divisor_override` is used instead if it is given.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.avg_pool2d(tapegrad.arange(16.0).reshape(1, 1, 4, 4), 2)
    tensor([[[[ 2.5000,  4.5000],
              [10.5000, 12.5000]]]])
    """
    return _averaged(
        2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


@op(
    module="nn.functional",
    samples=lambda: [
        Sample((1, 2, 4, 3, 4), 2),
        Sample((2, 3, 4, 5), [2, 3, 3], [1, 2, 2], [1, 1, 0], True, False),
        Sample((1, 1, 4, 4, 3), 2, 1, divisor_override=3),
    ],
    autocast={"cpu": "full"},
)
def avg_pool3d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """The mean of each window of a volume.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.avg_pool3d(tapegrad.ones(1, 2, 4, 4, 4), 2).shape
    Size([1, 2, 2, 2, 2])
    """
    return _averaged(
        3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


# -- powers and neighbours -----------------------------------------------------------------------


def _power_pooled(
    dims: int, input: Any, norm_type: float, kernel_size: Any, stride: Any, ceil_mode: bool
) -> Any:
    """(sum of x ** p over each window) ** (1 / p)."""
    size = w.sizes(kernel_size, f"lp_pool{dims}d: kernel_size", 1, dims)
    mean = _averaged(dims, input**norm_type, size, stride, 0, ceil_mode, True, None)
    # As in PyTorch; the product of sign and magnitude is the mean, with the gradient 0 at 0.
    return (mean.sign() * mean.abs().relu() * math.prod(size)) ** (1.0 / norm_type)


@op(module="nn.functional", samples=lambda: [Sample(In(2, 3, 8, low=0.5), 2, 3, 2)])
def lp_pool1d(
    input: Tensor,
    norm_type: float,
    kernel_size: Ints,
    stride: Ints | None = None,
    ceil_mode: bool = False,
) -> Any:
    """(sum of x^p)^(1 / p) over each window of a sequence, with p = `norm_type`.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.lp_pool1d(tapegrad.tensor([[[3.0, 4.0, 0.0, 1.0]]]), 2, 2)
    tensor([[[5., 1.]]])
    """
    return _power_pooled(1, input, norm_type, kernel_size, stride, ceil_mode)


@op(
    module="nn.functional",
    samples=lambda: [
        Sample(In(2, 3, 4, 6, low=0.5), 2, 2),
        Sample(In(3, 5, 5, low=0.5), 3.5, [3, 2], [2, 1], True),
    ],
)
def lp_pool2d(
    input: Tensor,
    norm_type: float,
    kernel_size: Ints,
    stride: Ints | None = None,
    ceil_mode: bool = False,
) -> Any:
    """(sum of x^p)^(1 / p) over each window of an image, with p = `norm_type`.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.lp_pool2d(tapegrad.ones(1, 1, 2, 2), 2, 2)
    tensor([[[[2.]]]])
    """
    return _power_pooled(2, input, norm_type, kernel_size, stride, ceil_mode)


@op(
    module="nn.functional",
    samples=lambda: [Sample(In(1, 2, 4, 3, 4, low=0.5), 2, 2, 1)],
    autocast={"cpu": "full"},
)
def lp_pool3d(
    input: Tensor,
    norm_type: float,
    kernel_size: Ints,
    stride: Ints | None = None,
    ceil_mode: bool = False,
) -> Any:
    """(sum of x^p)^(1 / p) over each window of a volume, with p = `norm_type`.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.lp_pool3d(tapegrad.ones(1, 2, 4, 4, 4), 2, 2).shape
    Size([1, 2, 2, 2, 2])
    """
    return _power_pooled(3, input, norm_type, kernel_size, stride, ceil_mode)


def _response_choice(input: Any, *rest: Any, **options: Any) -> str | None:
    """As in PyTorch: float32 for images and volumes, but any dtype for sequences."""
    return "full" if input._array.ndim > 3 else None


@op(
    module="nn.functional",
    samples=lambda: [
        Sample((2, 5, 4), 3),
        Sample((1, 4, 2, 3), 2, 0.1, 0.6, 1.5),
        Sample((1, 3, 2, 1, 2), 5, alpha=0.3),
    ],
    autocast={"cpu": _response_choice},
)
def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Any:
    """x / (k + alpha * mean of x * x over `size` neighbouring channels) ** beta.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.local_response_norm(tapegrad.ones(1, 3, 1), 3, alpha=3.0, beta=1.0)
    tensor([[[0.3333],
             [0.2500],
             [0.3333]]])
    """
    shape = tuple(input._array.shape)
    if len(shape) < 3:
        raise ValueError(
            f"local_response_norm needs an input of 3 or more dimensions (batch, channels, ...), "
            f"got shape {shape}"
        )
    if input._array.size == 0:
        return input
    rows = reshape_(input * input, shape=(shape[0], 1, shape[1], math.prod(shape[2:])))
    borders = ((0, 0), (0, 0), (size // 2, (size - 1) // 2), (0, 0))
    means = _averaged(2, padded(rows, borders), (size, 1), 1, 0, False, True, None)
    return input / (reshape_(means, shape=shape) * alpha + k) ** beta
