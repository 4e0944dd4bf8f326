"""Activations: composites of elementwise primitives, each one entry that saves only its input.

Softmax and its logarithm save only their output. Derivatives of branches that were not taken are
kept finite (`below` limits the argument of an exponential), so that second derivatives are too.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import fast, inplace, numeric
from ...core.casting import ON_GPU
from ...core.dtypes import as_dtype
from ...core.primitive import ELEMENTWISE, OPAQUE, Primitive, define
from ..drawing import random_array
from ..elementwise import comparison as c
from ..elementwise import exponentials as e
from ..elementwise import extremes
from ..elementwise.copies import detach
from ..elementwise.functions import normal_cdf, normal_pdf
from ..elementwise.rounding import abs
from ..precision import as_floating, check_floating, check_same_dtype, rounded, widened
from ..reduce.largest import amax_
from ..reduce.reductions import sum_
from ..shape.dims import normal_dim
from ..shape.joining import chunk
from ..shape.reshaping import reshape_
from ..table import In, Sample, op

if TYPE_CHECKING:
    from ...core.tensor import Tensor
    from ..annotations import DTypeLike

F = "nn.functional"


def _shapes(*extra: Any, **keywords: Any) -> Callable[[], list[Sample]]:
    """Samples of one tensor, away from the kinks that lie at integers."""

    def samples() -> list[Sample]:
        return [
            Sample(In(3, 4, distinct=True), *extra, **keywords),
            Sample(In(distinct=True), *extra, **keywords),
            Sample(In(0, 3), *extra, **keywords),
        ]

    return samples


def composite(name: str, kernel: Callable[..., Any], vjp: Any) -> Primitive:
    """An elementwise composite that computes half precision in float32."""

    def rounding(x: Any, **params: Any) -> Any:
        return rounded(kernel(widened(x), **params), x)

    return define(name, rounding, kind=ELEMENTWISE, vjp=vjp, inputs=("x",), composite=True)


def _result(input: Any, out: Any, in_place: bool, name: str) -> Any:
    """What an activation with PyTorch's `inplace` option returns."""
    return inplace.assign(input, out, f"{name}(inplace=True)") if in_place else out


def below(x: Any, limit: float) -> Any:
    """`x` where it lies below `limit`, else `limit`."""
    return extremes.clamp_numbers(x, low=-math.inf, high=limit)


def chosen(g: Any, condition: Any, slope: Any) -> Any:
    """`g` where the condition holds, else `g * slope`."""
    return c.where(condition, g, g * slope)


# -- softmax -----------------------------------------------------------------------------------


def _softmax(x: Any, *, dims: tuple[int, ...]) -> Any:
    wide = widened(x)
    powers = e.exp(wide - amax_(detach(wide), dims=dims, keepdim=True))
    return rounded(powers / sum_(powers, dims=dims, keepdim=True), x)


softmax_ = define(
    "softmax",
    _softmax,
    kind=OPAQUE,
    composite=True,
    vjp=lambda g, out, dims: out * (g - sum_(g * out, dims=dims, keepdim=True)),
)


def _log_softmax(x: Any, *, dims: tuple[int, ...]) -> Any:
    wide = widened(x)
    lower = wide - amax_(detach(wide), dims=dims, keepdim=True)
    return rounded(lower - e.log(sum_(e.exp(lower), dims=dims, keepdim=True)), x)


def _log_softmax_gradient(g: Any, out: Any, dims: tuple[int, ...]) -> Any:
    return g - e.exp(out) * sum_(g, dims=dims, keepdim=True)


log_softmax_ = define(
    "log_softmax", _log_softmax, kind=OPAQUE, composite=True, vjp=_log_softmax_gradient
)


def _along(primitive: Primitive, input: Any, dim: Any, dtype: Any) -> Any:
    name = primitive.name
    if dim is None:
        raise TypeError(f"{name}() needs dim, the dimension whose elements sum to 1, such as -1")
    d = normal_dim(dim, input._array.ndim)
    x = input if dtype is None else input.to(as_dtype(dtype))
    if x._array.size == 0:
        return x.clone()
    check_floating(x, name)
    if not x._array.flags.c_contiguous:
        x = x.contiguous()  # as PyTorch does, so that the result can be viewed
    return primitive(x, dims=(d,) if x._array.ndim else ())


def _along_samples() -> list[Sample]:
    return [Sample((3, 4), 1), Sample((2, 3, 4), dim=0), Sample((3, 4), -1), Sample((), 0)]


@op(
    samples=lambda: [*_along_samples(), Sample(In(0, 3), 1)],
    autocast=ON_GPU,
)
def softmax(input: Tensor, dim: int | None = None, dtype: DTypeLike | None = None) -> Any:
    """exp(x) / sum(exp(x)) along `dim`: positive numbers that sum to 1.

    >>> import tapegrad
    >>> tapegrad.softmax(tapegrad.tensor([[0.0, 0.0], [0.0, 1.0]]), dim=1)
    tensor([[0.5000, 0.5000],
            [0.2689, 0.7311]])
    """
    return _along(softmax_, input, dim, dtype)


@op(
    samples=lambda: [*_along_samples(), Sample(In(0, 3), 1)],
    autocast=ON_GPU,
)
def log_softmax(input: Tensor, dim: int | None = None, dtype: DTypeLike | None = None) -> Any:
    """x - log(sum(exp(x))) along a dimension: the logarithm of softmax, without overflow.

    >>> import tapegrad
    >>> tapegrad.log_softmax(tapegrad.tensor([[0.0, 0.0], [0.0, 1.0]]), dim=1)
    tensor([[-0.6931, -0.6931],
            [-1.3133, -0.3133]])
    """
    return _along(log_softmax_, input, dim, dtype)


def _implied_dim(name: str, dim: Any, ndim: int, stacklevel: int) -> Any:
    """The dimension, or, with a warning, the one that PyTorch chooses if none is given."""
    if dim is not None:
        return dim
    chosen = 0 if ndim in (0, 1, 3) else 1
    warnings.warn(
        f"{name} without dim takes dim={chosen} here, which is deprecated; give dim",
        stacklevel=stacklevel + 1,
    )
    return chosen


@op("softmax", module=F, samples=_along_samples, autocast=ON_GPU)
def _softmax_of_layers(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DTypeLike | None = None
) -> Any:
    """exp(x) / sum(exp(x)) along `dim`: positive numbers that sum to 1.

    >>> import tapegrad
    >>> tapegrad.nn.functional.softmax(tapegrad.tensor([[0.0, 0.0], [0.0, 1.0]]), dim=1)
    tensor([[0.5000, 0.5000],
            [0.2689, 0.7311]])
    """
    dim = _implied_dim("softmax", dim, input._array.ndim, _stacklevel)
    return _along(softmax_, input, dim, dtype)


@op("log_softmax", module=F, samples=_along_samples, autocast=ON_GPU)
def _log_softmax_of_layers(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DTypeLike | None = None
) -> Any:
    """x - log(sum(exp(x))) along a dimension: the logarithm of softmax, without overflow.

    >>> import tapegrad
    >>> tapegrad.nn.functional.log_softmax(tapegrad.tensor([[0.0, 0.0], [0.0, 1.0]]), dim=1)
    tensor([[-0.6931, -0.6931],
            [-1.3133, -0.3133]])
    """
    dim = _implied_dim("log_softmax", dim, input._array.ndim, _stacklevel)
    return _along(log_softmax_, input, dim, dtype)


@op(module=F, samples=_along_samples)
def softmin(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DTypeLike | None = None
) -> Any:
    """exp(-x) / sum(exp(-x)) along a dimension."""
    dim = _implied_dim("softmin", dim, input._array.ndim, _stacklevel)
    return softmax(-input, dim, dtype)


@op(
    module=F,
    random=True,
    samples=lambda: [
        Sample((3, 4)),
        Sample((3, 4), tau=0.5, dim=0),
        Sample(In(2, 3, grad=False), hard=True),
    ],
)
def gumbel_softmax(
    logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Any:
    """Draws of a softmax with temperature tau: softmax((logits + Gumbel noise) / tau).

    With `hard` the result is one-hot, and the gradient that of the soft draw.
    """
    check_floating(logits, "gumbel_softmax")
    shape = tuple(logits._array.shape)
    drawn = random_array("uniform", shape, np.float32).to(widened(logits.detach()).dtype)
    # Uniform numbers may be 0, whose logarithm would make the noise infinite.
    uniform = extremes.clamp_numbers(drawn, low=2.0**-25, high=1.0)
    noise = (-e.log(-e.log1p(-uniform))).to(logits.dtype, device=logits.device)
    soft = softmax((logits + noise) / tau, dim)
    if not hard:
        return soft
    value = soft.detach()
    index = value.argmax(dim, keepdim=True)
    return value.new_zeros(shape).scatter(dim, index, 1.0) - value + soft


# -- smooth ------------------------------------------------------------------------------------

_SQRT_TWO_OVER_PI = math.sqrt(2.0 / math.pi)
_CUBIC = 0.044715


gelu_ = composite(
    "gelu",
    lambda x: x * normal_cdf(x),
    lambda g, x: g * (normal_cdf(x) + x * normal_pdf(x)),
)


def _gelu_inner(x: Any) -> Any:
    return _SQRT_TWO_OVER_PI * (x + _CUBIC * (x * x * x))


def _gelu_tanh_gradient(g: Any, x: Any) -> Any:
    t = e.tanh(_gelu_inner(x))
    slope = _SQRT_TWO_OVER_PI * (1 + 3 * _CUBIC * (x * x))
    return g * (0.5 * (1 + t) + 0.5 * (x * (1 - t * t) * slope))


gelu_tanh_ = composite(
    "gelu_tanh", lambda x: 0.5 * x * (1 + e.tanh(_gelu_inner(x))), _gelu_tanh_gradient
)


@op(module=F, samples=lambda: [*_shapes()(), *_shapes(approximate="tanh")()])
def gelu(input: Tensor, approximate: str = "none") -> Any:
    """x * Phi(x), where Phi is the normal distribution function; `approximate` may be "tanh".

    >>> import tapegrad
    >>> tapegrad.nn.functional.gelu(tapegrad.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.1587,  0.0000,  0.8413])
    """
    check_floating(input, "gelu")
    if approximate not in ("none", "tanh"):
        raise RuntimeError(f"gelu: approximate must be 'none' or 'tanh', got {approximate!r}")
    return _fast_gelu(input) if approximate == "none" else _fast_gelu_tanh(input)


def _silu_gradient(g: Any, x: Any) -> Any:
    s = e.sigmoid(x)
    return g * (s * (1 + x * (1 - s)))


silu_ = composite("silu", lambda x: x * e.sigmoid(x), _silu_gradient)


@op(module=F, samples=_shapes())
def silu(input: Tensor, inplace: bool = False) -> Any:
    """x * sigmoid(x), also called swish.

    >>> import tapegrad
    >>> tapegrad.nn.functional.silu(tapegrad.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.2689,  0.0000,  0.7311])
    """
    check_floating(input, "silu")
    return _result(input, _fast_silu(input), inplace, "silu")


_fast_gelu = fast.unary(gelu_, gelu_.kernel)
_fast_gelu_tanh = fast.unary(gelu_tanh_, gelu_tanh_.kernel)
_fast_silu = fast.unary(silu_, silu_.kernel)


def _softplus(x: Any, *, beta: float, threshold: float) -> Any:
    z = x * beta
    return c.where(c.greater(z, threshold), x, e.log1p(e.exp(below(z, threshold))) / beta)


def _softplus_gradient(g: Any, x: Any, beta: float, threshold: float) -> Any:
    z = x * beta
    return chosen(g, c.greater(z, threshold), e.sigmoid(z))


softplus_ = composite("softplus", _softplus, _softplus_gradient)


@op(
    module=F,
    samples=lambda: [*_shapes()(), *_shapes(2.0, 1.5)()],
    autocast=ON_GPU,
)
def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Any:
    """log(1 + exp(beta x)) / beta, and x itself where beta x exceeds the threshold.

    >>> import tapegrad
    >>> tapegrad.nn.functional.softplus(tapegrad.tensor([-1.0, 0.0, 30.0]))
    tensor([ 0.3133,  0.6931, 30.0000])
    """
    check_floating(input, "softplus")
    return softplus_(input, beta=float(beta), threshold=float(threshold))


def _mish_gradient(g: Any, x: Any) -> Any:
    t = e.tanh(_softplus(x, beta=1.0, threshold=20.0))
    return g * (t + x * (1 - t * t) * e.sigmoid(x))


mish_ = composite(
    "mish", lambda x: x * e.tanh(_softplus(x, beta=1.0, threshold=20.0)), _mish_gradient
)


@op(module=F, samples=_shapes())
def mish(input: Tensor, inplace: bool = False) -> Any:
    """x * tanh(softplus(x)).

    >>> import tapegrad
    >>> tapegrad.nn.functional.mish(tapegrad.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.3034,  0.0000,  0.8651])
    """
    check_floating(input, "mish")
    return _result(input, mish_(input), inplace, "mish")


logsigmoid_ = composite(
    "logsigmoid",
    lambda x: below(x, 0.0) - e.log1p(e.exp(-abs(x))),
    lambda g, x: g * e.sigmoid(-x),
)


@op(module=F, samples=_shapes())
def logsigmoid(input: Tensor) -> Any:
    """log(sigmoid(x)), without overflow.

    >>> import tapegrad
    >>> tapegrad.nn.functional.logsigmoid(tapegrad.tensor([-100.0, 0.0]))
    tensor([-100.0000,   -0.6931])
    """
    check_floating(input, "logsigmoid")
    return logsigmoid_(input)


def _softsign_gradient(g: Any, x: Any) -> Any:
    size = 1 + abs(x)
    return g / (size * size)


softsign_ = composite("softsign", lambda x: x / (1 + abs(x)), _softsign_gradient)


@op(module=F, samples=_shapes())
def softsign(input: Tensor) -> Any:
    """x / (1 + |x|)."""
    return softsign_(as_floating(input, "softsign"))


@op(module=F, samples=_shapes())
def tanhshrink(input: Tensor) -> Any:
    """x - tanh(x)."""
    x = as_floating(input, "tanhshrink")
    return x - e.tanh(x)


# -- exponential branches ----------------------------------------------------------------------


def _elu(x: Any, *, alpha: float, scale: float, rate: float) -> Any:
    low = e.expm1(below(x, 0.0) * rate) * (alpha * scale)
    return c.where(c.greater(x, 0), x if scale == 1 else x * scale, low)


def _elu_gradient(g: Any, x: Any, alpha: float, scale: float, rate: float) -> Any:
    low = e.exp(below(x, 0.0) * rate) * (alpha * scale * rate)
    return c.where(c.less_equal(x, 0), g * low, g * scale)


elu_ = composite("elu", _elu, _elu_gradient)


@op(module=F, samples=lambda: [*_shapes()(), *_shapes(0.7)()])
def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Any:
    """x above 0, alpha (exp(x) - 1) below.

    >>> import tapegrad
    >>> tapegrad.nn.functional.elu(tapegrad.tensor([-1.0, 2.0]))
    tensor([-0.6321,  2.0000])
    """
    check_floating(input, "elu")
    return _result(input, elu_(input, alpha=float(alpha), scale=1.0, rate=1.0), inplace, "elu")


_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946


@op(method=False, samples=_shapes())
def selu(input: Tensor, inplace: bool = False) -> Any:
    """ELU with the slopes that keep mean 0 and variance 1."""
    check_floating(input, "selu")
    out = elu_(input, alpha=_SELU_ALPHA, scale=_SELU_SCALE, rate=1.0)
    return _result(input, out, inplace, "selu")


@op(method=False, samples=lambda: [*_shapes()(), *_shapes(0.5)()])
def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Any:
    """x above 0, alpha (exp(x / alpha) - 1) below."""
    check_floating(input, "celu")
    if alpha == 0:
        raise RuntimeError("celu: alpha must not be 0")
    out = elu_(input, alpha=float(alpha), scale=1.0, rate=1.0 / alpha)
    return _result(input, out, inplace, "celu")


# -- straight lines ----------------------------------------------------------------------------


@op("relu", module=F, samples=_shapes())
def relu(input: Tensor, inplace: bool = False) -> Any:
    """max(x, 0). With `inplace`, the result overwrites the input.

    >>> import tapegrad
    >>> tapegrad.nn.functional.relu(tapegrad.tensor([-1.0, 0.0, 2.0]))
    tensor([0., 0., 2.])
    """
    return input.relu_() if inplace else input.relu()


leaky_relu_ = composite(
    "leaky_relu",
    lambda x, *, slope: chosen(x, c.greater(x, 0), slope),
    lambda g, x, slope: chosen(g, c.greater(x, 0), slope),
)


@op(module=F, samples=lambda: [*_shapes()(), *_shapes(0.2)()])
def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Any:
    """x above 0, negative_slope * x below.

    >>> import tapegrad
    >>> tapegrad.nn.functional.leaky_relu(tapegrad.tensor([-1.0, 2.0]), 0.1)
    tensor([-0.1000,  2.0000])
    """
    check_floating(input, "leaky_relu")
    out = leaky_relu_(input, slope=float(negative_slope))
    return _result(input, out, inplace, "leaky_relu")


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


@op(module=F, samples=lambda: [*_shapes()(), *_shapes(-0.7, 1.2)()])
def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Any:
    """x limited to min_val..max_val.

    >>> import tapegrad
    >>> tapegrad.nn.functional.hardtanh(tapegrad.tensor([-3.0, 0.5, 3.0]))
    tensor([-1.0000,  0.5000,  1.0000])
    """
    if min_val > max_val:
        raise ValueError(f"hardtanh: min_val {min_val} is larger than max_val {max_val}")
    dtype = input._array.dtype
    if numeric.is_boolean(dtype) or (numeric.is_unsigned(dtype) and int(min_val) < 0):
        raise RuntimeError(f"hardtanh of {input.dtype} cannot have limits {min_val} and {max_val}")
    if numeric.is_floating(dtype):
        out = hardtanh_(input, low=float(min_val), high=float(max_val))
    else:
        out = extremes.clamp(input, int(min_val), int(max_val))
    return _result(input, out, inplace, "hardtanh")


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


@op(module=F, samples=lambda: [*_shapes()(), Sample(In(4, 5, low=-5, high=5, distinct=True))])
def hardswish(input: Tensor, inplace: bool = False) -> Any:
    """x * relu6(x + 3) / 6.

    >>> import tapegrad
    >>> tapegrad.nn.functional.hardswish(tapegrad.tensor([-1.0, 1.0, 4.0]))
    tensor([-0.3333,  0.6667,  4.0000])
    """
    check_floating(input, "hardswish")
    return _result(input, hardswish_(input), inplace, "hardswish")


hardsigmoid_ = composite(
    "hardsigmoid",
    lambda x: extremes.clamp_numbers(x + 3, low=0.0, high=6.0) / 6,
    lambda g, x: c.where(c.logical_and(c.greater(x, -3), c.less(x, 3)), g / 6, 0.0),
)


@op(module=F, samples=lambda: [*_shapes()(), Sample(In(4, 5, low=-5, high=5, distinct=True))])
def hardsigmoid(input: Tensor, inplace: bool = False) -> Any:
    """relu6(x + 3) / 6."""
    check_floating(input, "hardsigmoid")
    return _result(input, hardsigmoid_(input), inplace, "hardsigmoid")


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
        *_shapes()(),
        *_shapes(0.1, 0.6)(),
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
    """x above 0, below it x times a slope: drawn from lower..upper in training, else their mean."""
    check_floating(input, "rrelu")
    if lower > upper:
        raise RuntimeError(f"rrelu: lower {lower} must be at most upper {upper}")
    if training:
        drawn = random_array("uniform", tuple(input._array.shape), np.float32)
        slopes = (drawn * (upper - lower) + lower).to(input.dtype, device=input.device)
        out = prelu_(input, slopes)
    else:
        out = leaky_relu_(input, slope=(float(lower) + float(upper)) / 2)
    return _result(input, out, inplace, "rrelu")


@op(method=False, samples=_shapes(0.3, -7.0))
def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Any:
    """x above the threshold, else `value`."""
    dtype, least = input._array.dtype, min(threshold, value)
    if numeric.is_boolean(dtype) or (numeric.is_unsigned(dtype) and int(least) < 0):
        raise RuntimeError(f"threshold of {input.dtype} cannot have {threshold} and {value}")
    number: type = float if numeric.is_floating(dtype) else int
    out = threshold_(input, limit=number(threshold), value=number(value))
    return _result(input, out, inplace, "threshold")


hardshrink_ = composite(
    "hardshrink",
    lambda x, *, limit: c.where(c.less_equal(abs(x), limit), 0.0, x),
    lambda g, x, limit: c.where(c.less_equal(abs(x), limit), 0.0, g),
)


@op(samples=lambda: [*_shapes()(), *_shapes(0.9)()])
def hardshrink(input: Tensor, lambd: float = 0.5) -> Any:
    """x where |x| exceeds lambd, else 0."""
    check_floating(input, "hardshrink")
    return hardshrink_(input, limit=float(lambd))


softshrink_ = composite(
    "softshrink",
    lambda x, *, limit: x - extremes.clamp_numbers(x, low=-limit, high=limit),
    lambda g, x, limit: c.where(c.less_equal(abs(x), limit), 0.0, g),
)


@op(module=F, samples=lambda: [*_shapes()(), *_shapes(0.9)()])
def softshrink(input: Tensor, lambd: float = 0.5) -> Any:
    """x moved towards 0 by lambd, and 0 where |x| is at most lambd."""
    check_floating(input, "softshrink")
    if lambd < 0:
        raise RuntimeError(f"softshrink: lambd must be at least 0, got {lambd}")
    return softshrink_(input, limit=float(lambd))


@op(module=F, samples=lambda: [Sample((3, 4)), Sample((4, 3), 0), Sample((2, 6, 2), dim=1)])
def glu(input: Tensor, dim: int = -1) -> Any:
    """The first half of a dimension times the sigmoid of its second half.

    >>> import tapegrad
    >>> tapegrad.nn.functional.glu(tapegrad.tensor([[2.0, 4.0, 0.0, 100.0]]))
    tensor([[1., 4.]])
    """
    check_floating(input, "glu")
    if input._array.ndim == 0:
        raise RuntimeError("glu needs a tensor with dimensions")
    size = input._array.shape[normal_dim(dim, input._array.ndim)]
    if size % 2:
        raise RuntimeError(f"glu halves dimension {dim}, whose size must be even, got {size}")
    first, second = chunk(input, 2, dim)
    return first * e.sigmoid(second)
