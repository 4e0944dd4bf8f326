"""Windows as columns: `unfold` copies each window to a column, `fold` adds columns to an image."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ...core import numeric, xp
from ...core.batch_rules import flattened
from ...core.complexes import OWN
from ...core.primitive import OPAQUE, Primitive, define
from ..shape.reshaping import reshape_
from ..table import Sample, op
from . import geometry as w
from .convolution_primitives import add_columns
from .geometry import Window

if TYPE_CHECKING:
    from ...core.tensor import Tensor
    from ..annotations import Ints


def _unfold(x: Any, *, window: Window) -> Any:
    view = w.columns(w.padded(x, window, 0), window)
    depth = x.shape[1] * math.prod(window.size)
    # Without copy(), reshape may return a view of x if windows do not overlap.
    return view.copy().reshape(len(x), depth, math.prod(window.outside))


def _fold(x: Any, *, window: Window) -> Any:
    channels = x.shape[1] // math.prod(window.size)
    out = xp.module(x).zeros((len(x), channels, *window.extents), x.dtype)
    add_columns(out, x, window)
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
    batch=flattened,
    linear=True,
    complex=OWN,
    stores=True,
)
fold_: Primitive = define(
    "fold",
    _fold,
    kind=OPAQUE,
    lower=_fold_in_loops,
    vjp=lambda g, window: unfold_(g, window=window),
    batch=flattened,
    linear=True,
    complex=OWN,
    stores=True,
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
    input: Tensor, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1
) -> Any:
    """Every window as a column: (batch, channels * window, number of windows).

    `input` is (batch, channels, height, width); the other arguments are one number or
    (height, width).

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.unfold(tapegrad.arange(9.0).reshape(1, 1, 3, 3), 2)
    tensor([[[0., 1., 3., 4.],
             [1., 2., 4., 5.],
             [3., 4., 6., 7.],
             [4., 5., 7., 8.]]])
    """
    if numeric.is_integer(input._array.dtype):
        raise NotImplementedError(f"unfold takes no {input.dtype} tensor; use .float() first")
    x = w.filled(input, "unfold", 2)
    geometry = w.over(
        "unfold",
        x._array.shape,
        w.sizes(kernel_size, "unfold: kernel_size", 1, 2),
        w.sizes(stride, "unfold: stride", 1, 2),
        w.sizes(padding, "unfold: padding", 0, 2),
        w.sizes(dilation, "unfold: dilation", 1, 2),
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
    input: Tensor,
    output_size: Ints,
    kernel_size: Ints,
    dilation: Ints = 1,
    padding: Ints = 0,
    stride: Ints = 1,
) -> Any:
    """Columns added up into images at the positions of their windows: the transpose of `unfold`.

    `input` is (batch, channels * window, number of windows), the result (batch, channels,
    *output_size). Elements that lie in several windows are sums.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> columns = F.unfold(tapegrad.ones(1, 1, 3, 3), 2)
    >>> F.fold(columns, (3, 3), 2)
    tensor([[[[1., 2., 1.],
              [2., 4., 2.],
              [1., 2., 1.]]]])
    """
    if input._array.ndim not in (2, 3):
        raise RuntimeError(f"fold needs 2 or 3 dimensions, got shape {tuple(input.shape)}")
    x = input if input._array.ndim == 3 else reshape_(input, shape=(1, *input._array.shape))
    size = w.sizes(kernel_size, "fold: kernel_size", 1, 2)
    geometry = w.over(
        "fold",
        w.sizes(output_size, "fold: output_size", 1, 2),
        size,
        w.sizes(stride, "fold: stride", 1, 2),
        w.sizes(padding, "fold: padding", 0, 2),
        w.sizes(dilation, "fold: dilation", 1, 2),
    )
    depth, positions = x._array.shape[1:]
    if depth % math.prod(size) or positions != math.prod(geometry.outside):
        raise RuntimeError(
            f"fold: an output of {output_size} has {math.prod(geometry.outside)} windows of "
            f"{math.prod(size)} elements for each channel; columns of shape "
            f"{tuple(input.shape)} do not fit"
        )
    out = fold_(x, window=geometry)
    return out if input._array.ndim == 3 else reshape_(out, shape=out._array.shape[1:])
