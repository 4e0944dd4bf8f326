"""Windows that slide over the last dimensions, for convolution and pooling.

A `Window` is the static geometry, over one to three dimensions. For each position inside the
window, `taps` yields a view of the input elements at that position of all windows; `columns` is a
single view of all of them.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator
from typing import Any, NamedTuple

from ...core import xp
from ..shape.reshaping import reshape_

Sizes = tuple[int, ...]


class Window(NamedTuple):
    """The geometry along each dimension; `inside` and `outside` are the input and output size."""

    size: Sizes
    stride: Sizes
    padding: Sizes
    dilation: Sizes
    inside: Sizes
    outside: Sizes

    @property
    def dims(self) -> int:
        """The number of dimensions that the window moves along."""
        return len(self.size)

    @property
    def spans(self) -> Sizes:
        """The number of input elements that the window spans, gaps of the dilation included."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.size, self.dilation, strict=True))

    @property
    def extents(self) -> Sizes:
        """The size of the padded input, enlarged where the last window extends past it."""
        return tuple(
            max(n + 2 * p, (o - 1) * s + span)
            for n, p, o, s, span in zip(
                self.inside, self.padding, self.outside, self.stride, self.spans, strict=True
            )
        )

    @property
    def overlaps(self) -> bool:
        """Whether an input element may be in several windows."""
        return any(span > s for span, s in zip(self.spans, self.stride, strict=True))

    @property
    def covers(self) -> bool:
        """Whether every element of the padded input is in exactly one window."""
        met = tuple(o * k for o, k in zip(self.outside, self.size, strict=True))
        return self.size == self.stride and max(self.dilation) == 1 and self.extents == met


def sizes(value: Any, what: str, least: int, dims: int) -> Sizes:
    """One integer for all dimensions or one for each, each at least `least`."""
    items = list(value) if isinstance(value, (tuple, list)) else [value]
    items = items * dims if len(items) == 1 else items
    try:
        numbers = tuple(operator.index(n) for n in items)
    except TypeError:
        raise TypeError(
            f"{what} must be an integer or a tuple of {dims} of them, got {value!r}"
        ) from None
    if len(numbers) != dims or min(numbers) < least:
        many = ("one integer", "one or two integers", "one or three integers")[dims - 1]
        raise RuntimeError(f"{what} must be {many} of at least {least}, got {value!r}")
    return numbers


def output_size(n: int, size: int, stride: int, padding: int, dilation: int, ceil: bool) -> int:
    """The number of windows along one dimension."""
    room = n + 2 * padding - dilation * (size - 1) - 1
    count = (-(-room // stride) if ceil else room // stride) + 1
    # With ceil, the last window must still begin inside the input or its left padding.
    return count - 1 if ceil and (count - 1) * stride >= n + padding else count


def over(
    what: str,
    shape: Sizes,
    size: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    ceil: bool = False,
) -> Window:
    """The geometry over an input of `shape`; raises if the window does not fit."""
    inside = tuple(shape[-len(size) :])
    outside = tuple(
        output_size(n, k, s, p, d, ceil)
        for n, k, s, p, d in zip(inside, size, stride, padding, dilation, strict=True)
    )
    if min(outside) < 1:
        raise RuntimeError(
            f"{what}: a window of size {size} with dilation {dilation} does not fit into an input "
            f"of size {inside} with padding {padding}"
        )
    return Window(size, stride, padding, dilation, inside, outside)


def batched(input: Any, what: str, dims: int) -> Any:
    """The input with a batch dimension."""
    shape = input._array.shape
    if len(shape) not in (dims + 1, dims + 2):
        raise RuntimeError(
            f"{what} needs an input of {dims + 2} dimensions (batch, channels, ...), or "
            f"{dims + 1} without a batch, got shape {tuple(shape)}"
        )
    return input if len(shape) == dims + 2 else reshape_(input, shape=(1, *shape))


def filled(input: Any, what: str, dims: int) -> Any:
    """The input with a batch dimension; raises if another dimension is empty."""
    x = batched(input, what, dims)
    if 0 in x._array.shape[1:]:
        raise RuntimeError(
            f"{what} needs an input that is empty along no dimension but the batch, got shape "
            f"{tuple(input.shape)}"
        )
    return x


def like_input(out: Any, input: Any) -> Any:
    """`out` without the batch dimension if the input had none."""
    shape = out._array.shape
    return out if len(shape) == input._array.ndim else reshape_(out, shape=shape[1:])


def padded(x: Any, window: Window, value: float) -> Any:
    """`x` padded with `value`, as far as windows reach."""
    extents = window.extents
    if extents == window.inside:
        return x
    out = xp.module(x).full((*x.shape[: -window.dims], *extents), value, x.dtype)
    cropped(out, window)[...] = x
    return out


def padded_in_loops(b: Any, x: Any, window: Window, value: float) -> Any:
    """`padded` in native code; `x` itself if there is no padding."""
    if window.extents == window.inside:
        return x
    out = b.new((*x.shape[: -window.dims], *window.extents), x.dtype)
    fill_borders(b, out, window.padding, window.inside, value)
    b.copy(cropped(out, window), x)
    return out


def fill_borders(b: Any, out: Any, before: Sizes, inside: Sizes, value: float) -> None:
    """Fill `out` with `value`, except for a part of size `inside` at the offset `before`.

    Filling that part too would be one more pass over memory: for a convolution's input, 4 % of the
    time of a layer with 64 channels.
    """
    dims = len(inside)
    for axis, (first, n) in enumerate(zip(before, inside, strict=True)):
        # The borders along this dimension; earlier dimensions are limited to the part itself.
        along = [slice(p, p + k) for p, k in zip(before[:axis], inside[:axis], strict=True)]
        rest = [slice(None)] * (dims - 1 - axis)
        ends = [out[(..., *along, side, *rest)] for side in (slice(first), slice(first + n, None))]
        ends = [end for end in ends if end.size]
        if len({end.shape for end in ends}) == 1:
            with b.together():
                for end in ends:
                    b.fill(end, value)
        else:
            for end in ends:
                b.fill(end, value)


def cropped(x: Any, window: Window) -> Any:
    """The part of a padded array that holds the input."""
    inner = (slice(p, p + n) for p, n in zip(window.padding, window.inside, strict=True))
    return x[(..., *inner)]


def taps(x: Any, window: Window) -> Iterator[Any]:
    """Yield, for each position in the window in C order, a view of the padded `x`."""
    for positions in itertools.product(
        *(list(_starts(window, axis)) for axis in range(window.dims))
    ):
        yield x[(..., *positions)]


def _starts(window: Window, axis: int) -> Iterator[slice]:
    stride, reach = window.stride[axis], (window.outside[axis] - 1) * window.stride[axis] + 1
    for i in range(window.size[axis]):
        start = i * window.dilation[axis]
        yield slice(start, start + reach, stride)


def axis_taps(x: Any, window: Window, axis: int) -> Iterator[Any]:
    """Yield, for each position in the window along one dimension, `x` sliced only there."""
    whole = [slice(None)] * (window.dims - 1 - axis)
    for positions in _starts(window, axis):
        yield x[(..., positions, *whole)]


def columns(x: Any, window: Window) -> Any:
    """A view (batch, channels, *window size, *output size) of the padded `x`."""
    return xp.module(x).lib.stride_tricks.as_strided(x, *layout(x, window))


def layout(x: Any, window: Window) -> tuple[Sizes, Sizes]:
    """Shape and strides of the columns of the padded `x`."""
    (n, channels), steps = x.strides[:2], x.strides[2:]
    shape = (*x.shape[:2], *window.size, *window.outside)
    inner = (step * d for step, d in zip(steps, window.dilation, strict=True))
    outer = (step * s for step, s in zip(steps, window.stride, strict=True))
    return shape, (n, channels, *inner, *outer)
