"""Convolutions over one, two or three dimensions: conv1d, conv2d and conv3d.

Comes in: an input (batch, channels, ...), with or without the batch, a weight and a bias. Goes out:
one output for each window. The public functions check the arguments, compute the geometry of the
windows, and call the primitive `convolution_`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..precision import check_same_dtype
from ..shape.padding import padded as bordered
from ..shape.reordering import permute_
from ..table import Sample, op
from . import geometry as w
from .convolution_primitives import convolution_
from .geometry import Sizes

if TYPE_CHECKING:
    from ...core.tensor import Tensor
    from ..annotations import Ints


def _check_conv(what: str, input: Any, weight: Any, bias: Any, groups: int, dims: int) -> None:
    """Check the shapes and dtypes of a convolution over `dims` dimensions."""
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
    """Padding that keeps the size; of an odd total, the additional element is at the end."""
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
    """Check the arguments and call the primitive."""
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
    is a number of zeros at each end, "valid" (none) or "same" (the length is kept; stride 1 only).

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.conv1d(tapegrad.tensor([[[1.0, 2.0, 4.0]]]), tapegrad.tensor([[[-1.0, 1.0]]]))
    tensor([[[1., 2.]]])
    """
    return _convolved(1, input, weight, bias, stride, padding, dilation, groups)


@op(
    method=False,
    samples=lambda: [Sample((5, 2, 3), (3, 3, 4), (4,)), Sample((4, 1, 2), (3, 2, 2), (2,), pad=1)],
    autocast="lower",
)
def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Any:
    """`conv1d` of sequences (length, batch, channels).

    `weight` is (kernel length, channels, out channels), `bias` (out channels,).

    >>> import tapegrad
    >>> x, weight = tapegrad.ones(3, 1, 1), tapegrad.ones(2, 1, 1)
    >>> tapegrad.conv_tbc(x, weight, tapegrad.zeros(1)).flatten()
    tensor([2., 2.])
    """
    if input._array.ndim != 3 or weight._array.ndim != 3 or bias._array.ndim != 1:
        raise RuntimeError(
            "conv_tbc needs an input (length, batch, channels), a weight (kernel length, channels, "
            f"out channels) and a bias (out channels,), got shapes {tuple(input.shape)}, "
            f"{tuple(weight.shape)} and {tuple(bias.shape)}"
        )
    x, filters = (permute_(v, dims=dims) for v, dims in ((input, (1, 2, 0)), (weight, (2, 1, 0))))
    return permute_(_convolved(1, x, filters, bias, 1, pad, 1, 1), dims=(2, 0, 1))


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
