"""Windows that slide over the last two dimensions: what convolution and pooling share.

A `Window` is the whole static geometry. `taps` gives, for each place inside the window, the view of
the input elements that stand there; `columns` gives all of them as one view.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any, NamedTuple

from .. import xp

Pair = tuple[int, int]


class Window(NamedTuple):
    """Sizes along (height, width): of the window, its movement, the input and the output."""

    size: Pair
    stride: Pair
    padding: Pair
    dilation: Pair
    inside: Pair
    outside: Pair

    @property
    def spans(self) -> Pair:
        """How many input elements the window covers, gaps included."""
        first, second = ((k - 1) * d + 1 for k, d in zip(self.size, self.dilation, strict=True))
        return first, second

    @property
    def extents(self) -> Pair:
        """The size of the padded input, enlarged where the last window stands out."""
        first, second = (
            max(n + 2 * p, (o - 1) * s + span)
            for n, p, o, s, span in zip(
                self.inside, self.padding, self.outside, self.stride, self.spans, strict=True
            )
        )
        return first, second

    @property
    def overlaps(self) -> bool:
        """Whether an input element may stand in several windows."""
        return any(span > s for span, s in zip(self.spans, self.stride, strict=True))

    @property
    def covers(self) -> bool:
        """Whether every element of the padded input stands in exactly one window."""
        return self.size == self.stride and self.dilation == (1, 1) and self.extents == (
            self.outside[0] * self.size[0],
            self.outside[1] * self.size[1],
        )  # fmt: skip


def pair(value: Any, what: str, least: int) -> Pair:
    """One integer or two of them, each at least `least`."""
    items = list(value) if isinstance(value, (tuple, list)) else [value]
    items = items * 2 if len(items) == 1 else items
    try:
        numbers = [operator.index(n) for n in items]
    except TypeError:
        raise TypeError(f"{what} must be an integer or a pair of them, got {value!r}") from None
    if len(numbers) != 2 or min(numbers) < least:
        raise RuntimeError(f"{what} must be one or two integers of at least {least}, got {value!r}")
    return numbers[0], numbers[1]


def output_size(n: int, size: int, stride: int, padding: int, dilation: int, ceil: bool) -> int:
    """How many windows fit along one dimension."""
    room = n + 2 * padding - dilation * (size - 1) - 1
    count = (-(-room // stride) if ceil else room // stride) + 1
    # With ceil, the last window must still begin inside the input or its left padding.
    return count - 1 if ceil and (count - 1) * stride >= n + padding else count


def over(
    what: str,
    shape: tuple[int, ...],
    size: Pair,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    ceil: bool = False,
) -> Window:
    """The geometry over an input of `shape`, or an error when the window does not fit."""
    inside = (shape[-2], shape[-1])
    outside = tuple(
        output_size(n, k, s, p, d, ceil)
        for n, k, s, p, d in zip(inside, size, stride, padding, dilation, strict=True)
    )
    if min(outside) < 1:
        raise RuntimeError(
            f"{what}: a window of size {size} with dilation {dilation} does not fit into an input "
            f"of height and width {inside} with padding {padding}"
        )
    return Window(size, stride, padding, dilation, inside, (outside[0], outside[1]))


def padded(x: Any, window: Window, value: float) -> Any:
    """`x` with borders of `value`, as far as windows reach."""
    extents = window.extents
    if extents == window.inside:
        return x
    out = xp.module(x).full((*x.shape[:-2], *extents), value, x.dtype)
    cropped(out, window)[...] = x
    return out


def padded_in_loops(b: Any, x: Any, window: Window, value: float) -> Any:
    """`padded` in native code: `x` itself if there are no borders."""
    if window.extents == window.inside:
        return x
    out = b.new((*x.shape[:-2], *window.extents), x.dtype)
    b.fill(out, value)
    b.copy(cropped(out, window), x)
    return out


def cropped(x: Any, window: Window) -> Any:
    """The part of a padded array that is the input itself."""
    (top, left), (height, width) = window.padding, window.inside
    return x[..., top : top + height, left : left + width]


def taps(x: Any, window: Window) -> Iterator[Any]:
    """For each place in the window, row by row: a view of the padded `x` in the output's shape."""
    rows = list(_starts(window, 0))
    columns = list(_starts(window, 1))
    for row in rows:
        for column in columns:
            yield x[..., row, column]


def _starts(window: Window, axis: int) -> Iterator[slice]:
    stride, reach = window.stride[axis], (window.outside[axis] - 1) * window.stride[axis] + 1
    for i in range(window.size[axis]):
        start = i * window.dilation[axis]
        yield slice(start, start + reach, stride)


def row_taps(x: Any, window: Window) -> Iterator[Any]:
    """For each row of the window: a view of the padded `x` with all its columns."""
    for row in _starts(window, 0):
        yield x[..., row, :]


def column_taps(x: Any, window: Window) -> Iterator[Any]:
    """For each column of the window: a view of the padded `x` with all its rows."""
    for column in _starts(window, 1):
        yield x[..., column]


def columns(x: Any, window: Window) -> Any:
    """A view (batch, channels, *window size, *output size) of the padded `x`."""
    return xp.module(x).lib.stride_tricks.as_strided(x, *layout(x, window))


def layout(x: Any, window: Window) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides of the columns of the padded `x`."""
    n, channels, row, column = x.strides
    (sh, sw), (dh, dw) = window.stride, window.dilation
    shape = (*x.shape[:2], *window.size, *window.outside)
    return shape, (n, channels, row * dh, column * dw, row * sh, column * sw)
