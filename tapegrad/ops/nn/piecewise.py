"""Activations made of pieces of lines and parabolas, such as ReLU and its relatives.

In comes a tensor, out comes one of the same shape; with `inplace`, the result overwrites the input.
Each is one entry that saves only its inputs. At the kinks, gradients are those of PyTorch. Layers
of `tapegrad/nn/activation.py` call the public functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import numeric, xp
from ...core.primitive import ELEMENTWISE, define
from ..checks import check_constant, constant
from ..drawing import random_array
from ..elementwise import comparison as c
from ..elementwise import extremes
from ..elementwise.rounding import abs
from ..precision import check_floating, check_same_dtype
from ..shape.reshaping import reshape_
from ..table import In, Sample, op
from .activation import activation_samples, chosen, composite, in_place_or_new

if TYPE_CHECKING:
    from ...core.tensor import Tensor

F = "nn.functional"


@op("relu", module=F, samples=activation_samples())
def relu(input: Tensor, inplace: bool = False) -> Any:
    """max(x, 0). With `inplace`, the result overwrites the input.

    >>> import tapegrad
    >>> tapegrad.nn.functional.relu(tapegrad.tensor([-1.0, 0.0, 2.0]))
    tensor([0., 0., 2.])
    """
    return input.relu_() if inplace else input.relu()


def _leaky(x: Any, *, slope: float) -> Any:
    if xp.is_plain(x) and 0 < slope <= 1:
        return np.maximum(x, x * slope)
    return chosen(x, c.greater(x, 0), slope)


leaky_relu_ = composite(
    "leaky_relu",
    _leaky,
    lambda g, x, slope: chosen(g, c.greater(x, 0), slope),
)


@op(module=F, samples=lambda: [*activation_samples()(), *activation_samples(0.2)()])
def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Any:
    """x above 0, negative_slope * x below.

    >>> import tapegrad
    >>> tapegrad.nn.functional.leaky_relu(tapegrad.tensor([-1.0, 2.0]), 0.1)
    tensor([-0.1000,  2.0000])
    """
    check_floating(input, "leaky_relu")
    slope = constant(negative_slope, "leaky_relu: negative_slope")
    out = leaky_relu_.direct(input, {"slope": slope})
    return in_place_or_new(input, out, inplace, "leaky_relu")


prelu_ = define(
    "prelu",
    lambda x, weight: c.where(c.greater(x, 0), x, weight * x),
    kind=ELEMENTWISE,
    composite=True,
    vjp=(
        lambda g, x, weight: c.where(c.greater(x, 0), g, g * weight),
        lambda g, x: c.where(c.greater(x, 0), 0.0, g * x),
    ),
)


@op(
    samples=lambda: [
        Sample(In(3, 4, distinct=True), In(1)),
        Sample(In(2, 3, 2, 2, distinct=True), In(3)),
        Sample(In(3, distinct=True), In(1)),
        Sample(In(distinct=True), In(1)),
    ],
    autocast="lower",
)
def prelu(input: Tensor, weight: Tensor) -> Any:
    """x above 0, weight * x below; one weight, or one for each channel (dimension 1).

    >>> import tapegrad
    >>> x = tapegrad.tensor([[-1.0, -1.0], [2.0, 2.0]])
    >>> tapegrad.prelu(x, tapegrad.tensor([0.1, 0.5]))
    tensor([[-0.1000, -0.5000],
            [ 2.0000,  2.0000]])
    """
    check_floating(input, "prelu")
    check_same_dtype("prelu", input, weight=weight)
    shape, count = input._array.shape, weight._array.size
    channels = shape[1] if len(shape) > 1 else 1
    if weight._array.ndim > 1 or count not in (1, channels):
        raise RuntimeError(
            f"prelu needs one weight or one for each of the {channels} channels of an input of "
            f"shape {tuple(shape)}, got weights of shape {tuple(weight.shape)}"
        )
    spread = () if not shape else (count, *[1] * (len(shape) - 2)) if len(shape) > 1 else (1,)
    return prelu_(input, reshape_(weight, shape=spread))


hardtanh_ = composite(
    "hardtanh",
    lambda x, *, low, high: extremes.clamp_numbers(x, low=low, high=high),
    # PyTorch's gradient is 0 at the limits themselves, unlike that of clamp.
    lambda g, x, low, high: c.where(c.logical_and(c.greater(x, low), c.less(x, high)), g, 0.0),
)


@op(module=F, samples=lambda: [*activation_samples()(), *activation_samples(-0.7, 1.2)()])
def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Any:
    """x limited to min_val..max_val.

    >>> import tapegrad
    >>> tapegrad.nn.functional.hardtanh(tapegrad.tensor([-3.0, 0.5, 3.0]))
    tensor([-1.0000,  0.5000,  1.0000])
    """
    check_constant(min_val, "hardtanh: min_val")
    check_constant(max_val, "hardtanh: max_val")
    if min_val > max_val:
        raise ValueError(f"hardtanh: min_val {min_val} is larger than max_val {max_val}")
    dtype = input._array.dtype
    if numeric.is_boolean(dtype) or (numeric.is_unsigned(dtype) and int(min_val) < 0):
        raise RuntimeError(f"hardtanh of {input.dtype} cannot have limits {min_val} and {max_val}")
    if numeric.is_floating(dtype):
        out = hardtanh_(input, low=float(min_val), high=float(max_val))
    else:
        out = extremes.clamp(input, int(min_val), int(max_val))
    return in_place_or_new(input, out, inplace, "hardtanh")


@op(module=F, samples=lambda: [Sample(In(3, 4, low=-3, high=9, distinct=True))])
def relu6(input: Tensor, inplace: bool = False) -> Any:
    """min(max(x, 0), 6).

    >>> import tapegrad
    >>> tapegrad.nn.functional.relu6(tapegrad.tensor([-1.0, 3.0, 8.0]))
    tensor([0., 3., 6.])
    """
    return hardtanh(input, 0.0, 6.0, inplace)


def _hardswish_gradient(g: Any, x: Any) -> Any:
    middle = c.where(c.less_equal(x, -3), 0.0, g * (x / 3 + 0.5))
    return c.where(c.less(x, 3), middle, g)


hardswish_ = composite(
    "hardswish",
    lambda x: x * (extremes.clamp_numbers(x + 3, low=0.0, high=6.0) / 6),
    _hardswish_gradient,
)


@op(
    module=F,
    samples=lambda: [*activation_samples()(), Sample(In(4, 5, low=-5, high=5, distinct=True))],
)
def hardswish(input: Tensor, inplace: bool = False) -> Any:
    """x * relu6(x + 3) / 6.

    >>> import tapegrad
    >>> tapegrad.nn.functional.hardswish(tapegrad.tensor([-1.0, 1.0, 4.0]))
    tensor([-0.3333,  0.6667,  4.0000])
    """
    check_floating(input, "hardswish")
    return in_place_or_new(input, hardswish_(input), inplace, "hardswish")


hardsigmoid_ = composite(
    "hardsigmoid",
    lambda x: extremes.clamp_numbers(x + 3, low=0.0, high=6.0) / 6,
    lambda g, x: c.where(c.logical_and(c.greater(x, -3), c.less(x, 3)), g / 6, 0.0),
)


@op(
    module=F,
    samples=lambda: [*activation_samples()(), Sample(In(4, 5, low=-5, high=5, distinct=True))],
)
def hardsigmoid(input: Tensor, inplace: bool = False) -> Any:
    """relu6(x + 3) / 6.

    >>> import tapegrad
    >>> tapegrad.nn.functional.hardsigmoid(tapegrad.tensor([-4.0, 0.0, 1.5]))
    tensor([0.0000, 0.5000, 0.7500])
    """
    check_floating(input, "hardsigmoid")
    return in_place_or_new(input, hardsigmoid_(input), inplace, "hardsigmoid")


threshold_ = composite(
    "threshold",
    lambda x, *, limit, value: c.where(c.less_equal(x, limit), value, x),
    lambda g, x, limit: c.where(c.less_equal(x, limit), 0.0, g),
)


@op(
    method=False,
    random=True,
    torch="torch.nn.functional.rrelu",
    samples=lambda: [
        *activation_samples()(),
        *activation_samples(0.1, 0.6)(),
        Sample(In(3, 4, distinct=True), 0.2, 0.4, True),
    ],
)
def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Any:
    """x above 0, below it x times a slope: drawn from lower..upper in training, else their mean.

    >>> import tapegrad
    >>> tapegrad.rrelu(tapegrad.tensor([-1.0, 2.0]), lower=0.1, upper=0.3)
    tensor([-0.2000,  2.0000])
    """
    check_floating(input, "rrelu")
    lower, upper = constant(lower, "rrelu: lower"), constant(upper, "rrelu: upper")
    if lower > upper:
        raise RuntimeError(f"rrelu: lower {lower} must be at most upper {upper}")
    if training:
        drawn = random_array("uniform", tuple(input._array.shape), np.float32, device=input.device)
        slopes = (drawn * (upper - lower) + lower).to(input.dtype)
        out = prelu_(input, slopes)
    else:
        out = leaky_relu_(input, slope=(lower + upper) / 2)
    return in_place_or_new(input, out, inplace, "rrelu")


@op(casts=True, method=False, samples=activation_samples(0.3, -7.0))
def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Any:
    """x above the threshold, else `value`.

    >>> import tapegrad
    >>> tapegrad.threshold(tapegrad.tensor([0.0, 1.0, 2.0]), 1.0, -5.0)
    tensor([-5., -5.,  2.])
    """
    check_constant(threshold, "threshold: threshold")
    check_constant(value, "threshold: value")
    dtype, least = input._array.dtype, min(threshold, value)
    if numeric.is_boolean(dtype) or (numeric.is_unsigned(dtype) and int(least) < 0):
        raise RuntimeError(f"threshold of {input.dtype} cannot have {threshold} and {value}")
    number: type = float if numeric.is_floating(dtype) else int
    out = threshold_(input, limit=number(threshold), value=number(value))
    return in_place_or_new(input, out, inplace, "threshold")


def _in_half(limit: float, beside: Any) -> float:
    """A limit rounded to half precision if the tensor has it, for comparisons as in PyTorch."""
    dtype = beside._array.dtype
    return float(np.asarray(limit, dtype)) if numeric.is_half(dtype) else float(limit)


hardshrink_ = composite(
    "hardshrink",
    lambda x, *, limit: c.where(c.less_equal(abs(x), limit), 0.0, x),
    lambda g, x, limit: c.where(c.less_equal(abs(x), limit), 0.0, g),
)


@op(samples=lambda: [*activation_samples()(), *activation_samples(0.9)()])
def hardshrink(input: Tensor, lambd: float = 0.5) -> Any:
    """x where |x| exceeds lambd, else 0.

    >>> import tapegrad
    >>> tapegrad.hardshrink(tapegrad.tensor([-1.0, 0.25, 2.0]))
    tensor([-1.,  0.,  2.])
    """
    check_floating(input, "hardshrink")
    check_constant(lambd, "hardshrink: lambd")
    return hardshrink_(input, limit=_in_half(lambd, input))


softshrink_ = composite(
    "softshrink",
    lambda x, *, limit, edge: x - extremes.clamp_numbers(x, low=-limit, high=limit),
    lambda g, x, edge: c.where(c.less_equal(abs(x), edge), 0.0, g),
)


@op(module=F, samples=lambda: [*activation_samples()(), *activation_samples(0.9)()])
def softshrink(input: Tensor, lambd: float = 0.5) -> Any:
    """x moved towards 0 by lambd, and 0 where |x| is at most lambd.

    >>> import tapegrad
    >>> tapegrad.nn.functional.softshrink(tapegrad.tensor([-1.0, 0.25, 2.0]))
    tensor([-0.5000,  0.0000,  1.5000])
    """
    check_floating(input, "softshrink")
    lambd = constant(lambd, "softshrink: lambd")
    if lambd < 0:
        raise RuntimeError(f"softshrink: lambd must be at least 0, got {lambd}")
    return softshrink_(input, limit=lambd, edge=_in_half(lambd, input))
