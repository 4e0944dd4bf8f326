"""Pooling whose windows follow from the output size: adaptive means and maxima, fractional maxima.

Windows may differ in size and begin anywhere. So maxima compare one position of all windows after
the other, at indices that follow from the sizes or from random numbers.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import xp
from ...core.dtypes import int64
from ...core.tensor import Tensor, wrap
from ..drawing import random_array
from ..elementwise import comparison as c
from ..elementwise.copies import cast
from ..index.gather import gather_
from ..index.indexing import take_
from ..precision import check_floating
from ..shape.expanding import expand_
from ..shape.reshaping import reshape_
from ..shape.slicing import narrow
from ..table import In, Sample, op
from . import geometry as w
from .averaging import avg_pool_
from .geometry import Sizes, Window
from .pooling import flat_indices, max_pool_
from .resampling import Rule, resampled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..annotations import Ints

# -- sizes ---------------------------------------------------------------------------------------


def _wanted(what: str, inside: Sizes, output_size: Any) -> Sizes:
    """The output size; None keeps the size of the input."""
    dims = len(inside)
    items = list(output_size) if isinstance(output_size, (tuple, list)) else [output_size]
    items = items * dims if len(items) == 1 else items
    if len(items) != dims:
        raise RuntimeError(f"{what} needs 1 or {dims} sizes, got {output_size}")
    found = tuple(n if k is None else operator.index(k) for n, k in zip(inside, items, strict=True))
    if min(found) < 0 or min(inside) < 1:
        raise RuntimeError(
            f"{what} needs an input of at least 1 element along each dimension, and sizes that are "
            f"not negative: input {tuple(inside)}, output {found}"
        )
    if math.prod(found) >= 1 << 60:
        raise RuntimeError(f"{what}: no memory can hold a result of size {found}")
    return found


def _even(inside: Sizes, outside: Sizes) -> Window | None:
    """The window if each output size divides the input size, else None."""
    if any(n % k for n, k in zip(inside, outside, strict=True)):
        return None
    size = tuple(n // k for n, k in zip(inside, outside, strict=True))
    dims = len(size)
    return Window(size, size, (0,) * dims, (1,) * dims, inside, outside)


def _check_filled(input: Any, what: str) -> None:
    """Raise if a dimension other than the first (batch, or else channels) is empty."""
    if 0 in input._array.shape[1:]:
        raise RuntimeError(
            f"{what} needs an input that is empty along no dimension but the first, got shape "
            f"{tuple(input.shape)}"
        )


def _nothing(x: Any, outside: Sizes) -> Any:
    """An output without elements, with the history of the input."""
    return reshape_(narrow(x, 2, 0, 0), shape=(*x._array.shape[:2], *outside))


# -- means ---------------------------------------------------------------------------------------


def _adaptive_mean(dims: int, input: Any, output_size: Any) -> Any:
    what = f"adaptive_avg_pool{dims}d"
    check_floating(input, what)
    # As in PyTorch, adaptive means of 1 or 2 dimensions accept 0 channels, other pooling does not.
    x = w.batched(input, what, dims)
    if dims == 3:
        _check_filled(input, what)
    inside = tuple(x._array.shape[2:])
    outside = _wanted(what, inside, output_size)
    if 0 in outside:
        return w.like_input(_nothing(x, outside), input)
    window = _even(inside, outside)
    if window is not None:
        out = avg_pool_(x, window=window, with_padding=True, override=None)
    else:
        pairs = zip(inside, outside, strict=True)
        out = resampled(x, [Rule("area", n, k) for n, k in pairs])
    return w.like_input(out, input)


@op(method=False, samples=lambda: [Sample((2, 3, 6), 2), Sample((3, 7), 3)])
def adaptive_avg_pool1d(input: Tensor, output_size: int | Sequence[int | None]) -> Any:
    """Means over windows such that the output has the given length.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.adaptive_avg_pool1d(tapegrad.tensor([[[1.0, 3.0, 2.0, 0.0]]]), 2)
    tensor([[[2., 1.]]])
    """
    return _adaptive_mean(1, input, output_size)


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
def adaptive_avg_pool2d(input: Tensor, output_size: int | Sequence[int | None]) -> Any:
    """Means over a grid of windows such that the output has the given size.

    `input` is (batch, channels, height, width) or (channels, height, width); `output_size` is one
    number or (height, width), where None keeps the size of the input. Window i of a dimension runs
    from floor(i * size / output) to ceil((i + 1) * size / output).

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.adaptive_avg_pool2d(tapegrad.arange(9.0).reshape(1, 1, 3, 3), 1)
    tensor([[[[4.]]]])
    """
    return _adaptive_mean(2, input, output_size)


@op(
    module="nn.functional",
    samples=lambda: [Sample((1, 2, 4, 3, 6), 2), Sample((2, 3, 5, 2), [2, None, 1])],
    autocast={"cpu": "full"},
)
def adaptive_avg_pool3d(input: Tensor, output_size: int | Sequence[int | None]) -> Any:
    """Means over windows of volumes such that the output has the given size.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.adaptive_avg_pool3d(tapegrad.ones(1, 2, 4, 4, 4), (1, 2, None)).shape
    Size([1, 2, 1, 2, 4])
    """
    return _adaptive_mean(3, input, output_size)


# -- maxima --------------------------------------------------------------------------------------


def _winner(candidates: Iterator[tuple[Any, Any]]) -> tuple[Any, Any]:
    """The elementwise maximum of values, with its index: the first of equals, or the last NaN."""
    best, index = next(candidates)
    for value, where in candidates:
        wins = c.logical_or(value > best, c.not_equal(value, value))
        best, index = c.where(wins, value, best), c.where(wins, where, index)
    return best, index


def _adaptive_indices(x: Any, inside: Sizes, outside: Sizes) -> Any:
    """Flat indices of the maxima, which are found along the last dimension first."""
    values, indices, step = x.detach(), None, 1
    for axis in reversed(range(2, x._array.ndim)):
        n = inside[axis - 2]
        found = _axis_candidates(values, indices, axis, step, n, outside[axis - 2])
        values, indices = _winner(found)
        indices = expand_(indices, shape=tuple(values._array.shape))
        step *= n
    return indices


def _axis_candidates(
    values: Any, indices: Any, axis: int, step: int, n: int, parts: int
) -> Iterator[tuple[Any, Any]]:
    """Yield values and their flat indices at each position in the windows along a dimension.

    Smaller windows repeat their last element.
    """
    module = xp.module(values._array)
    start = np.arange(parts) * n // parts
    stop = -(-np.arange(1, parts + 1) * n // parts)
    for tap in range((stop - start).max()):
        index = wrap(module.asarray(np.minimum(start + tap, stop - 1)))
        here = reshape_(index * step, shape=(parts, *[1] * (values._array.ndim - 1 - axis)))
        if indices is not None:
            here = here + take_(indices, index, dims=(axis,))
        yield take_(values, index, dims=(axis,)), here


def _at(x: Any, indices: Any) -> Any:
    """The elements of `x` at flat indices."""
    shape = tuple(x._array.shape)
    flat = reshape_(x, shape=(*shape[:2], math.prod(shape[2:])))
    found = tuple(indices._array.shape)
    index = reshape_(indices, shape=(*found[:2], math.prod(found[2:])))
    return reshape_(gather_(flat, index, dim=2), shape=found)


def _adaptive_maximum(dims: int, input: Any, output_size: Any, return_indices: bool) -> Any:
    what = f"adaptive_max_pool{dims}d"
    check_floating(input, what)
    x = w.batched(input, what, dims)
    _check_filled(input, what)
    shape = tuple(x._array.shape)
    outside = _wanted(what, shape[2:], output_size)
    if 0 in outside:
        out = w.like_input(_nothing(x, outside), input)
        return (out, out.detach().to(int64)) if return_indices else out
    window = _even(shape[2:], outside)
    if window is not None:
        out, winners = max_pool_(x, window=window)
        index = flat_indices(winners, window) if return_indices else None
    else:
        index = _adaptive_indices(x, shape[2:], outside)
        out = _at(x, index)
    out = w.like_input(out, input)
    return (out, w.like_input(index, input)) if return_indices else out


@op(
    module="nn.functional",
    samples=lambda: [
        Sample(In(2, 3, 6, distinct=True), 2),
        Sample(In(3, 7, distinct=True), 3, True),
    ],
)
def adaptive_max_pool1d(
    input: Tensor, output_size: int | Sequence[int | None], return_indices: bool = False
) -> Any:
    """Maxima over windows such that the output has the given length.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.adaptive_max_pool1d(tapegrad.tensor([[[1.0, 3.0, 2.0, 0.0]]]), 2)
    tensor([[[3., 2.]]])
    """
    return _adaptive_maximum(1, input, output_size, return_indices)


@op(
    module="nn.functional",
    samples=lambda: [
        Sample(In(2, 3, 4, 6, distinct=True), 2),
        Sample(In(1, 2, 5, 7, distinct=True), [3, 2]),
        Sample(In(3, 4, 4, distinct=True), [None, 3], True),
    ],
)
def adaptive_max_pool2d(
    input: Tensor, output_size: int | Sequence[int | None], return_indices: bool = False
) -> Any:
    """Maxima over a grid of windows such that the output has the given size.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.adaptive_max_pool2d(tapegrad.arange(9.0).reshape(1, 1, 3, 3), 1)
    tensor([[[[8.]]]])
    """
    return _adaptive_maximum(2, input, output_size, return_indices)


@op(
    module="nn.functional",
    samples=lambda: [
        Sample(In(1, 2, 4, 2, 4, distinct=True), 2),
        Sample(In(2, 3, 5, 2, distinct=True), [2, None, 1], True),
    ],
    autocast={"cpu": "full"},
)
def adaptive_max_pool3d(
    input: Tensor, output_size: int | Sequence[int | None], return_indices: bool = False
) -> Any:
    """Maxima over windows of volumes such that the output has the given size.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.adaptive_max_pool3d(tapegrad.ones(1, 2, 4, 4, 4), (1, 2, None)).shape
    Size([1, 2, 1, 2, 4])
    """
    return _adaptive_maximum(3, input, output_size, return_indices)


@op(module="nn.functional", samples=lambda: [Sample(In(2, 3, 7, distinct=True), 3)])
def adaptive_max_pool1d_with_indices(
    input: Tensor, output_size: int | Sequence[int | None], return_indices: bool = False
) -> Any:
    """`adaptive_max_pool1d` and the indices of the maxima.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.adaptive_max_pool1d_with_indices(tapegrad.tensor([[[1.0, 3.0, 2.0, 0.0]]]), 2)
    (tensor([[[3., 2.]]]), tensor([[[1, 2]]]))
    """
    return _adaptive_maximum(1, input, output_size, True)


@op(module="nn.functional", samples=lambda: [Sample(In(2, 4, 5, distinct=True), 3)])
def adaptive_max_pool2d_with_indices(
    input: Tensor, output_size: int | Sequence[int | None], return_indices: bool = False
) -> Any:
    """`adaptive_max_pool2d` and the indices of the maxima.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.adaptive_max_pool2d_with_indices(tapegrad.arange(9.0).reshape(1, 1, 3, 3), 1)
    (tensor([[[[8.]]]]), tensor([[[[8]]]]))
    """
    return _adaptive_maximum(2, input, output_size, True)


@op(
    module="nn.functional",
    samples=lambda: [Sample(In(1, 2, 4, 3, 4, distinct=True), 2)],
    autocast={"cpu": "full"},
)
def adaptive_max_pool3d_with_indices(
    input: Tensor, output_size: int | Sequence[int | None], return_indices: bool = False
) -> Any:
    """`adaptive_max_pool3d` and the indices of the maxima.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> volume = tapegrad.arange(8.0).reshape(1, 1, 2, 2, 2)
    >>> out, indices = F.adaptive_max_pool3d_with_indices(volume, 1)
    >>> out.tolist(), indices.tolist()
    ([[[[[7.0]]]]], [[[[[7]]]]])
    """
    return _adaptive_maximum(3, input, output_size, True)


# -- windows at random positions -----------------------------------------------------------------


def _fractional_size(what: str, inside: Sizes, output_size: Any, output_ratio: Any) -> Sizes:
    if output_size is not None:
        return w.sizes(output_size, f"{what}: output_size", 0, len(inside))
    if output_ratio is None:
        raise ValueError(f"{what} needs an output_size or an output_ratio")
    ratios = output_ratio if isinstance(output_ratio, (tuple, list)) else [output_ratio]
    ratios = list(ratios) * (len(inside) if len(ratios) == 1 else 1)
    if len(ratios) != len(inside) or not all(0 < r < 1 for r in ratios):
        raise ValueError(f"{what}: output_ratio must lie between 0 and 1, got {output_ratio!r}")
    return tuple(int(n * r) for n, r in zip(inside, ratios, strict=True))


def _starts(samples: Any, inside: int, outside: int, size: int) -> Any:
    """The starts of windows, (batch, channels, outside): evenly spaced, shifted by samples."""
    step = (inside - size) / (outside - 1) if outside > 1 else 0.0
    module = xp.module(samples._array)
    numbers = wrap(module.arange(outside).astype(samples._array.dtype))
    shifted = reshape_(samples, shape=(*samples._array.shape, 1))
    # The last window ends where the input does.
    last = wrap(module.arange(outside) == outside - 1)
    begin = cast((numbers + shifted) * step, dtype=int64) - cast(shifted * step, dtype=int64)
    return c.where(last, wrap(module.asarray(inside - size)), begin)


def _fractional(
    dims: int,
    input: Any,
    kernel_size: Any,
    output_size: Any,
    output_ratio: Any,
    return_indices: bool,
    samples: Any,
) -> Any:
    what = f"fractional_max_pool{dims}d"
    check_floating(input, what)
    x = w.batched(input, what, dims)
    _check_filled(input, what)
    shape = tuple(x._array.shape)
    for name, given in (("kernel_size", kernel_size), ("output_size", output_size)):
        if isinstance(given, (tuple, list)) and len(given) != dims:
            raise RuntimeError(f"{what}: {name} must be one integer or {dims}, got {given!r}")
    size = w.sizes(kernel_size, f"{what}: kernel_size", 1, dims)
    outside = _fractional_size(what, shape[2:], output_size, output_ratio)
    spare = 0 if dims == 2 else 1  # PyTorch requires one element more of volumes
    if 0 in outside:
        out = w.like_input(_nothing(x, outside), input)
        return (out, out.detach().to(int64)) if return_indices else out
    if any(k + o - 1 + spare > n for n, k, o in zip(shape[2:], size, outside, strict=True)):
        raise RuntimeError(
            f"{what}: an input of size {shape[2:]} has no room for {outside} windows of size {size}"
        )
    wanted = (*shape[:2], dims)
    if samples is None:
        samples = random_array("uniform", wanted, np.float32, device=x.device)
    elif not isinstance(samples, Tensor) or tuple(samples._array.shape) != wanted:
        raise RuntimeError(f"{what}: _random_samples needs the shape {wanted}")
    corners = _fractional_corners(samples, shape, size, outside)
    values = x.detach()

    def candidates() -> Iterator[tuple[Any, Any]]:
        for member in itertools.product(*map(range, size)):
            indices = corners + int(np.ravel_multi_index(member, shape[2:]))
            yield _at(values, indices), indices

    _, indices = _winner(candidates())
    out = w.like_input(_at(x, indices), input)
    return (out, w.like_input(indices, input)) if return_indices else out


def _fractional_corners(samples: Any, shape: Sizes, size: Sizes, outside: Sizes) -> Any:
    """The flat index of the first element of each window: (batch, channels, ...)."""
    dims = len(size)
    corners: Any = None
    for axis, (n, k, o) in enumerate(zip(shape[2:], size, outside, strict=True)):
        # For images, PyTorch uses the first sample for the width.
        which = dims - 1 - axis if dims == 2 else axis
        start = _starts(samples.select(2, which), n, o, k) * math.prod(shape[3 + axis :])
        along = [o if d == axis else 1 for d in range(dims)]
        start = reshape_(start, shape=(*shape[:2], *along))
        corners = start if corners is None else corners + start
    return corners


@op(
    module="nn.functional",
    random=True,
    samples=lambda: [
        Sample(In(1, 2, 6, 7, distinct=True), 2, [3, 4]),
        Sample(In(2, 6, 6, distinct=True), [2, 3], output_ratio=0.5, return_indices=True),
        Sample(
            In(1, 2, 6, 5, distinct=True),
            2,
            3,
            _random_samples=In(1, 2, 2, low=0, high=1, grad=False),
        ),
    ],
    autocast={"cpu": "full"},
)
def fractional_max_pool2d(
    input: Tensor,
    kernel_size: Ints,
    output_size: Ints | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """Maxima of windows that begin at random positions, as many as the output needs.

    Give either `output_size`, one number or (height, width), or `output_ratio`, the size of the
    output divided by that of the input.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.fractional_max_pool2d(tapegrad.ones(1, 2, 6, 6), 2, output_size=4).shape
    Size([1, 2, 4, 4])
    """
    return _fractional(
        2, input, kernel_size, output_size, output_ratio, return_indices, _random_samples
    )


@op(
    module="nn.functional",
    random=True,
    samples=lambda: [
        Sample(In(1, 2, 4, 5, 4, distinct=True), 2, 2),
        Sample(
            In(1, 4, 5, 4, distinct=True),
            [1, 2, 2],
            output_ratio=[0.5, 0.6, 0.5],
            return_indices=True,
        ),
    ],
    autocast={"cpu": "full"},
)
def fractional_max_pool3d(
    input: Tensor,
    kernel_size: Ints,
    output_size: Ints | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """Maxima of windows of volumes that begin at random positions.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.fractional_max_pool3d(tapegrad.ones(1, 2, 6, 6, 6), 2, output_ratio=0.5).shape
    Size([1, 2, 3, 3, 3])
    """
    return _fractional(
        3, input, kernel_size, output_size, output_ratio, return_indices, _random_samples
    )


@op(
    module="nn.functional",
    random=True,
    samples=lambda: [Sample(In(1, 2, 6, 7, distinct=True), 2, [3, 4])],
    autocast={"cpu": "full"},
)
def fractional_max_pool2d_with_indices(
    input: Tensor,
    kernel_size: Ints,
    output_size: Ints | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """`fractional_max_pool2d` and the indices of the maxima.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> image = tapegrad.ones(1, 1, 5, 5)
    >>> out, indices = F.fractional_max_pool2d_with_indices(image, 2, output_size=3)
    >>> out.shape, indices.shape
    (Size([1, 1, 3, 3]), Size([1, 1, 3, 3]))
    """
    return _fractional(2, input, kernel_size, output_size, output_ratio, True, _random_samples)


@op(
    module="nn.functional",
    random=True,
    samples=lambda: [Sample(In(1, 2, 4, 5, 4, distinct=True), 2, 2)],
    autocast={"cpu": "full"},
)
def fractional_max_pool3d_with_indices(
    input: Tensor,
    kernel_size: Ints,
    output_size: Ints | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """`fractional_max_pool3d` and the indices of the maxima.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> volume = tapegrad.ones(1, 1, 5, 5, 5)
    >>> out, indices = F.fractional_max_pool3d_with_indices(volume, 2, output_size=3)
    >>> out.shape, indices.shape
    (Size([1, 1, 3, 3, 3]), Size([1, 1, 3, 3, 3]))
    """
    return _fractional(3, input, kernel_size, output_size, output_ratio, True, _random_samples)
