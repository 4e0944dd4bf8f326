"""Smooth activations: composites of elementwise primitives, each an entry that saves its input.

Comes in: a tensor. Goes out: one of the same shape. Derivatives of branches not taken are kept
finite (`below` limits the argument of an exponential), so that second derivatives are finite too.
`composite` makes such a primitive, also for `piecewise.py`. Layers call the public functions.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import fast, inplace, xp
from ...core.casting import ON_GPU
from ...core.complexes import HOLOMORPHIC
from ...core.primitive import ELEMENTWISE, NO_PARAMS, Primitive, define
from ..checks import constant
from ..elementwise import comparison as c
from ..elementwise import exponentials as e
from ..elementwise import extremes
from ..elementwise.complexes import is_complex
from ..elementwise.functions import normal_cdf, normal_pdf
from ..elementwise.rounding import abs
from ..precision import as_floating, check_floating, rounded, widened
from ..shape.dims import normal_dim
from ..shape.joining import chunk
from ..table import In, Sample, op

if TYPE_CHECKING:
    from ...core.tensor import Tensor

F = "nn.functional"


def activation_samples(*extra: Any, **keywords: Any) -> Callable[[], list[Sample]]:
    """Samples of one tensor, away from the kinks at integers."""

    def samples() -> list[Sample]:
        return [
            Sample(In(3, 4, distinct=True), *extra, **keywords),
            Sample(In(distinct=True), *extra, **keywords),
            Sample(In(0, 3), *extra, **keywords),
        ]

    return samples


def composite(
    name: str, kernel: Callable[..., Any], vjp: Any, complex: str | None = None
) -> Primitive:
    """An elementwise composite that computes half precision in float32."""

    @functools.wraps(kernel)  # gives the names of the parameters
    def rounding(x: Any, **params: Any) -> Any:
        if x.dtype is xp.F32 or x.dtype is xp.F64:
            return kernel(x, **params)
        return rounded(kernel(widened(x), **params), x)

    rule = _rounding_rule(vjp)
    return define(
        name,
        rounding,
        kind=ELEMENTWISE,
        vjp=rule,
        inputs=("x",),
        composite=True,
        complex=complex,
    )


def _rounding_rule(vjp: Callable[..., Any]) -> Callable[..., Any]:
    """A gradient rule that computes half precision in float32."""

    @functools.wraps(vjp)
    def rule(g: Any, **known: Any) -> Any:
        if g.dtype is xp.F32 or g.dtype is xp.F64:
            return vjp(g, **known)
        wide = {name: widened(v) if hasattr(v, "dtype") else v for name, v in known.items()}
        return rounded(vjp(widened(g), **wide), g)

    return rule


def in_place_or_new(input: Any, out: Any, in_place: bool, name: str) -> Any:
    """The result of an activation with PyTorch's option `inplace`."""
    return inplace.assign(input, out, f"{name}(inplace=True)") if in_place else out


def below(x: Any, limit: float) -> Any:
    """`x` where it lies below `limit`, else `limit`."""
    return extremes.clamp_numbers(x, low=-math.inf, high=limit)


def chosen(g: Any, condition: Any, slope: Any) -> Any:
    """`g` where the condition holds, else `g * slope`."""
    return c.where(condition, g, g * slope)


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


@op(module=F, samples=lambda: [*activation_samples()(), *activation_samples(approximate="tanh")()])
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


silu_ = composite("silu", lambda x: x * e.sigmoid(x), _silu_gradient, HOLOMORPHIC)


@op(module=F, samples=activation_samples())
def silu(input: Tensor, inplace: bool = False) -> Any:
    """x * sigmoid(x), also called swish.

    >>> import tapegrad
    >>> tapegrad.nn.functional.silu(tapegrad.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.2689,  0.0000,  0.7311])
    """
    check_floating(input, "silu", complex=True)
    return in_place_or_new(input, _fast_silu(input), inplace, "silu")


_fast_gelu = fast.unary(gelu_, gelu_.kernel)
_fast_gelu_tanh = fast.unary(gelu_tanh_, gelu_tanh_.kernel)
_fast_silu = fast.unary(silu_, silu_.kernel)


def _softplus(x: Any, *, beta: float, threshold: float) -> Any:
    if beta == 1 and xp.is_plain(x):
        out = np.log1p(np.exp(np.minimum(x, threshold)))
        np.putmask(out, x > threshold, x)
        return out
    z = x * beta
    return c.where(c.greater(z, threshold), x, e.log1p(e.exp(below(z, threshold))) / beta)


def _softplus_gradient(g: Any, x: Any, beta: float, threshold: float) -> Any:
    z = x * beta
    return chosen(g, c.greater(z, threshold), e.sigmoid(z))


softplus_ = composite("softplus", _softplus, _softplus_gradient)


@op(
    module=F,
    samples=lambda: [*activation_samples()(), *activation_samples(2.0, 1.5)()],
    autocast=ON_GPU,
)
def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Any:
    """log(1 + exp(beta x)) / beta, and x itself where beta x exceeds the threshold.

    >>> import tapegrad
    >>> tapegrad.nn.functional.softplus(tapegrad.tensor([-1.0, 0.0, 30.0]))
    tensor([ 0.3133,  0.6931, 30.0000])
    """
    check_floating(input, "softplus")
    beta, threshold = constant(beta, "softplus: beta"), constant(threshold, "softplus: threshold")
    return softplus_.direct(input, {"beta": beta, "threshold": threshold})


def _mish_gradient(g: Any, x: Any) -> Any:
    t = e.tanh(_softplus(x, beta=1.0, threshold=20.0))
    return g * (t + x * (1 - t * t) * e.sigmoid(x))


mish_ = composite(
    "mish", lambda x: x * e.tanh(_softplus(x, beta=1.0, threshold=20.0)), _mish_gradient
)


@op(module=F, samples=activation_samples())
def mish(input: Tensor, inplace: bool = False) -> Any:
    """x * tanh(softplus(x)).

    >>> import tapegrad
    >>> tapegrad.nn.functional.mish(tapegrad.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.3034,  0.0000,  0.8651])
    """
    check_floating(input, "mish")
    return in_place_or_new(input, mish_(input), inplace, "mish")


logsigmoid_ = composite(
    "logsigmoid",
    lambda x: below(x, 0.0) - e.log1p(e.exp(-abs(x))),
    lambda g, x: g * e.sigmoid(-x),
)


@op(module=F, samples=activation_samples())
def logsigmoid(input: Tensor) -> Any:
    """log(sigmoid(x)), without overflow.

    >>> import tapegrad
    >>> tapegrad.nn.functional.logsigmoid(tapegrad.tensor([-100.0, 0.0]))
    tensor([-100.0000,   -0.6931])
    """
    check_floating(input, "logsigmoid")
    return logsigmoid_.direct(input, NO_PARAMS)


def _softsign_gradient(g: Any, x: Any) -> Any:
    size = 1 + abs(x)
    return g / (size * size)


softsign_ = composite("softsign", lambda x: x / (1 + abs(x)), _softsign_gradient)


@op(module=F, samples=activation_samples())
def softsign(input: Tensor) -> Any:
    """x / (1 + |x|).

    >>> import tapegrad
    >>> tapegrad.nn.functional.softsign(tapegrad.tensor([-1.0, 0.0, 3.0]))
    tensor([-0.5000,  0.0000,  0.7500])
    """
    x = as_floating(input, "softsign")
    return x / (1 + abs(x)) if is_complex(x) else softsign_(x)


@op(module=F, samples=activation_samples())
def tanhshrink(input: Tensor) -> Any:
    """x - tanh(x).

    >>> import tapegrad
    >>> tapegrad.nn.functional.tanhshrink(tapegrad.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.2384,  0.0000,  0.2384])
    """
    x = as_floating(input, "tanhshrink")
    return x - e.tanh(x)


# -- exponential branches ----------------------------------------------------------------------


def _elu(x: Any, *, alpha: float, scale: float, rate: float) -> Any:
    if xp.is_plain(x) and scale == rate == 1:
        out = np.expm1(np.minimum(x, 1.0))  # a limit of 0 would lose the sign of -0
        out = out if alpha == 1 else out * alpha
        np.putmask(out, x > 0, x)
        return out
    low = e.expm1(below(x, 0.0) * rate) * (alpha * scale)
    return c.where(c.greater(x, 0), x if scale == 1 else x * scale, low)


def _elu_gradient(g: Any, x: Any, alpha: float, scale: float, rate: float) -> Any:
    low = e.exp(below(x, 0.0) * rate) * (alpha * scale * rate)
    return c.where(c.less_equal(x, 0), g * low, g * scale)


elu_ = composite("elu", _elu, _elu_gradient)


@op(module=F, samples=lambda: [*activation_samples()(), *activation_samples(0.7)()])
def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Any:
    """x above 0, alpha (exp(x) - 1) below.

    >>> import tapegrad
    >>> tapegrad.nn.functional.elu(tapegrad.tensor([-1.0, 2.0]))
    tensor([-0.6321,  2.0000])
    """
    check_floating(input, "elu")
    params = {"alpha": constant(alpha, "elu: alpha"), "scale": 1.0, "rate": 1.0}
    out = elu_.direct(input, params)
    return in_place_or_new(input, out, inplace, "elu")


_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946


@op(method=False, samples=activation_samples())
def selu(input: Tensor, inplace: bool = False) -> Any:
    """ELU with the slopes that keep mean 0 and variance 1.

    scale * x above 0, scale * alpha (exp(x) - 1) below, with scale = 1.0507 and alpha = 1.6733.

    >>> import tapegrad
    >>> tapegrad.selu(tapegrad.tensor([-1.0, 0.0, 1.0]))
    tensor([-1.1113,  0.0000,  1.0507])
    """
    check_floating(input, "selu")
    out = elu_(input, alpha=_SELU_ALPHA, scale=_SELU_SCALE, rate=1.0)
    return in_place_or_new(input, out, inplace, "selu")


@op(method=False, samples=lambda: [*activation_samples()(), *activation_samples(0.5)()])
def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Any:
    """x above 0, alpha (exp(x / alpha) - 1) below.

    >>> import tapegrad
    >>> tapegrad.celu(tapegrad.tensor([-1.0, 2.0]), alpha=0.5)
    tensor([-0.4323,  2.0000])
    """
    check_floating(input, "celu")
    alpha = constant(alpha, "celu: alpha")
    if alpha == 0:
        raise RuntimeError("celu: alpha must not be 0")
    out = elu_(input, alpha=alpha, scale=1.0, rate=1.0 / alpha)
    return in_place_or_new(input, out, inplace, "celu")


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
