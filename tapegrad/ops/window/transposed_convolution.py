"""Transposed convolutions over one, two or three dimensions.

Comes in: an input (batch, channels, ...), a weight (channels, out channels / groups, window) and a
bias. Goes out: an output as large as the input of a convolution whose output has the size of this
input. The primitive is `convolution_input_`, which computes the gradient of a convolution's input;
in the `Window`, the input and output sizes are exchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..precision import check_same_dtype
from ..shape.reshaping import reshape_
from ..table import Sample, op
from . import geometry as w
from .convolution_primitives import convolution_input_
from .geometry import Window

if TYPE_CHECKING:
    from ...core.tensor import Tensor
    from ..annotations import Ints


def _check_transposed(what: str, input: Any, weight: Any, bias: Any, groups: int, d: int) -> None:
    shape, kernel = tuple(input._array.shape), tuple(weight._array.shape)
    if len(kernel) != d + 2 or 0 in kernel:
        raise RuntimeError(
            f"{what} needs a weight of {d + 2} dimensions (in channels, out channels / groups, "
            f"window), none of them empty, got {kernel}"
        )
    if groups < 1 or kernel[0] % groups:
        raise RuntimeError(
            f"{what}: groups = {groups} must be positive and divide the {kernel[0]} in channels"
        )
    if shape[-d - 1] != kernel[0]:
        raise RuntimeError(
            f"{what}: a weight of shape {kernel} expects an input with {kernel[0]} channels, got "
            f"{shape[-d - 1]} (input shape {shape})"
        )
    outs = kernel[1] * groups
    if bias is not None and tuple(bias._array.shape) != (outs,):
        raise RuntimeError(
            f"{what}: the bias needs one value for each of the {outs} out channels, got shape "
            f"{tuple(bias.shape)}"
        )
    check_same_dtype(what, input, weight=weight, bias=bias)


def _transposed(
    dims: int,
    input: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
) -> Any:
    """Check the arguments and call the primitive, with input and output sizes exchanged."""
    what = f"conv_transpose{dims}d"
    x = w.batched(input, what, dims)
    _check_transposed(what, input, weight, bias, groups, dims)
    steps = w.sizes(stride, f"{what}: stride", 1, dims)
    borders = w.sizes(padding, f"{what}: padding", 0, dims)
    more = w.sizes(output_padding, f"{what}: output_padding", 0, dims)
    gaps = w.sizes(dilation, f"{what}: dilation", 1, dims)
    if any(m >= max(s, d) for m, s, d in zip(more, steps, gaps, strict=True)):
        raise RuntimeError(
            f"{what}: output_padding {more} must be smaller than the stride {steps} or the "
            f"dilation {gaps}"
        )
    size, given = tuple(weight._array.shape[2:]), tuple(x._array.shape[2:])
    wanted = tuple(
        (n - 1) * s - 2 * p + d * (k - 1) + 1 + m
        for n, s, p, d, k, m in zip(given, steps, borders, gaps, size, more, strict=True)
    )
    if min(given) < 1 or min(wanted) < 1:
        raise RuntimeError(
            f"{what}: an input of size {given} with padding {borders} would give an output of "
            f"size {wanted}"
        )
    geometry = Window(size, steps, borders, gaps, wanted, given)
    out = convolution_input_(x, weight, window=geometry, groups=groups)
    if bias is not None:
        out = out + reshape_(bias, shape=(bias._array.shape[0], *[1] * dims))
    return w.like_input(out, input)


@op(
    method=False,
    samples=lambda: [
        Sample((2, 3, 4), (3, 2, 3), (2,)),
        Sample((2, 4, 3), (4, 2, 3), stride=2, padding=1, output_padding=1, groups=2),
        Sample((3, 4), (3, 2, 2), (2,), 3, 2, dilation=4),
    ],
    autocast="lower",
)
def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: int = 1,
    dilation: Ints = 1,
) -> Any:
    """The transpose of `conv1d`: its output is as long as the input of that convolution.

    `weight` is (channels, out channels / groups, kernel length). The output has (length - 1) *
    stride - 2 * padding + dilation * (kernel length - 1) + output_padding + 1 elements.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.conv_transpose1d(tapegrad.tensor([[[1.0, 2.0]]]), tapegrad.ones(1, 1, 2), stride=2)
    tensor([[[1., 1., 2., 2.]]])
    """
    return _transposed(1, input, weight, bias, stride, padding, output_padding, groups, dilation)


@op(
    method=False,
    samples=lambda: [
        Sample((2, 3, 3, 4), (3, 2, 3, 2), (2,)),
        Sample((1, 4, 3, 2), (4, 2, 3, 3), (4,), [2, 3], 1, [1, 2], 2),
        Sample((2, 3, 3), (2, 1, 2, 3), padding=[0, 2], dilation=[2, 1], output_padding=[1, 0]),
        Sample((0, 2, 3, 3), (2, 1, 2, 2)),
    ],
    autocast="lower",
)
def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: int = 1,
    dilation: Ints = 1,
) -> Any:
    """The transpose of `conv2d`: its output is as large as the input of that convolution.

    `input` is (batch, channels, height, width), `weight` (channels, out channels / groups, kernel
    height, kernel width). Each dimension of the output has
    (size - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1 elements.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.conv_transpose2d(tapegrad.ones(1, 1, 2, 2), tapegrad.ones(1, 1, 2, 2))
    tensor([[[[1., 2., 1.],
              [2., 4., 2.],
              [1., 2., 1.]]]])
    """
    return _transposed(2, input, weight, bias, stride, padding, output_padding, groups, dilation)


@op(
    method=False,
    samples=lambda: [
        Sample((1, 2, 2, 3, 2), (2, 3, 2, 2, 3), (3,)),
        Sample((2, 2, 2, 2), (2, 1, 2, 3, 2), None, [2, 1, 3], [0, 1, 0], [1, 0, 2], 2),
    ],
    autocast="lower",
)
def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: int = 1,
    dilation: Ints = 1,
) -> Any:
    """The transpose of `conv3d`: its output is as large as the input of that convolution.

    `weight` is (channels, out channels / groups, kernel depth, kernel height, kernel width).

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> weight = tapegrad.ones(2, 5, 2, 2, 2)
    >>> F.conv_transpose3d(tapegrad.ones(1, 2, 3, 3, 3), weight, stride=2).shape
    Size([1, 5, 6, 6, 6])
    """
    return _transposed(3, input, weight, bias, stride, padding, output_padding, groups, dilation)
