"""Channels that become pixels, pixels that become channels, and channels in another order."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..elementwise.copies import clone_
from ..table import Sample, op
from .reordering import permute_
from .reshaping import reshape_

if TYPE_CHECKING:
    from ...core.tensor import Tensor


def _factor(what: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise RuntimeError(f"{what} must be an integer of at least 1, got {value!r}")
    return value


def _image(what: str, input: Any) -> tuple[tuple[int, ...], tuple[int, int, int]]:
    """The leading dimensions, and (channels, height, width)."""
    shape = tuple(input._array.shape)
    if len(shape) < 3:
        raise RuntimeError(f"{what} needs an input (..., channels, height, width), got {shape}")
    channels, height, width = shape[-3:]
    return shape[:-3], (channels, height, width)


def _moved(x: Any, between: tuple[int, ...], order: tuple[int, ...], after: Any) -> Any:
    """Reshape, permute, reshape; always a copy, because only some sizes would allow a view."""
    return reshape_(clone_(permute_(reshape_(x, shape=between), dims=order)), shape=after)


@op(method=False, samples=lambda: [Sample((2, 8, 2, 3), 2), Sample((9, 1, 2), 3)])
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Any:
    """(..., channels * r * r, height, width) as (..., channels, height * r, width * r).

    >>> import tapegrad
    >>> tapegrad.nn.functional.pixel_shuffle(tapegrad.zeros(1, 8, 2, 3), 2).shape
    Size([1, 2, 4, 6])
    """
    r = _factor("pixel_shuffle: upscale_factor", upscale_factor)
    before, (channels, height, width) = _image("pixel_shuffle", input)
    if channels % (r * r):
        raise RuntimeError(
            f"pixel_shuffle: {r * r} must divide the {channels} channels of shape "
            f"{tuple(input.shape)}"
        )
    n, outs = math.prod(before), channels // (r * r)
    between = (n, outs, r, r, height, width)
    return _moved(input, between, (0, 1, 4, 2, 5, 3), (*before, outs, height * r, width * r))


@op(method=False, samples=lambda: [Sample((2, 2, 4, 6), 2), Sample((1, 3, 6), 3)])
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Any:
    """(..., channels, height * r, width * r) as (..., channels * r * r, height, width).

    >>> import tapegrad
    >>> tapegrad.nn.functional.pixel_unshuffle(tapegrad.zeros(1, 2, 4, 6), 2).shape
    Size([1, 8, 2, 3])
    """
    r = _factor("pixel_unshuffle: downscale_factor", downscale_factor)
    before, (channels, height, width) = _image("pixel_unshuffle", input)
    if height % r or width % r:
        raise RuntimeError(
            f"pixel_unshuffle: {r} must divide the height and the width of shape "
            f"{tuple(input.shape)}"
        )
    n, high, wide = math.prod(before), height // r, width // r
    between = (n, channels, high, r, wide, r)
    return _moved(input, between, (0, 1, 3, 5, 2, 4), (*before, channels * r * r, high, wide))


@op(
    method=False,
    aliases=("native_channel_shuffle",),
    samples=lambda: [Sample((2, 6, 2, 2), 3), Sample((1, 4, 3), 2)],
)
def channel_shuffle(input: Tensor, groups: int) -> Any:
    """Channels of (batch, channels, ...) dealt out: one of each group, then the next ones.

    >>> import tapegrad
    >>> tapegrad.nn.functional.channel_shuffle(tapegrad.arange(4).reshape(1, 4, 1), 2).flatten()
    tensor([0, 2, 1, 3])
    """
    shape = tuple(input._array.shape)
    if len(shape) < 3:
        raise RuntimeError(f"channel_shuffle needs an input (batch, channels, ...), got {shape}")
    g = _factor("channel_shuffle: groups", groups)
    if shape[1] % g:
        raise RuntimeError(f"channel_shuffle: groups = {g} must divide the {shape[1]} channels")
    between = (shape[0], g, shape[1] // g, math.prod(shape[2:]))
    return _moved(input, between, (0, 2, 1, 3), shape)
