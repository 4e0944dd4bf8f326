"""Further elementwise functions: trigonometric, hyperbolic, logarithmic and special ones.

Blocks like those of `arithmetic.py`. Rules rest on the primitives of the other elementwise files.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import numeric, xp
from ...core.casting import ON_GPU
from ...core.complexes import HOLOMORPHIC
from ...core.dtypes import complex128, float64
from ...core.primitive import ELEMENTWISE, Primitive, define
from ...core.tensor import Tensor
from ..families import binary, unary
from ..precision import rounded, widened
from ..table import In, Sample, attach, in_place, not_a_tensor, op
from .arithmetic import pow
from .comparison import equal, greater, less, logical_or, result_dtype, where
from .exponentials import exp, rsqrt, sigmoid
from .extremes import clamp
from .rounding import sign, zero

if TYPE_CHECKING:
    from ..annotations import Operand

# -- powers, signs and logarithms -------------------------------------------------------------


@op("float_power", samples=lambda: [Sample(In(3, low=0.5), 2), Sample(In(3, low=0.5), (3,))])
def float_power(input: Operand, exponent: Operand) -> Any:
    """Power computed in float64, or in complex128 if an operand is complex.

    >>> import tapegrad
    >>> tapegrad.float_power(tapegrad.tensor([1, 2, 3]), 2)
    tensor([1., 4., 9.], dtype=tapegrad.float64)
    """
    wide = complex128 if result_dtype(input, exponent).is_complex else float64
    base = input.to(wide) if isinstance(input, Tensor) else input
    return pow(base, exponent.to(wide) if isinstance(exponent, Tensor) else exponent)


copysign: Primitive = binary(
    "copysign",
    np.copysign,
    (lambda g, x, out: g * (sign(x) * sign(out)), lambda g: zero(g)),
    "copysign(x, y)",
    promote="float",
    distinct=True,
    doc="The size of `input` with the sign of `other`, with broadcasting.",
    example=(
        "tapegrad.copysign(tapegrad.tensor([1.0, 2.0]), tapegrad.tensor([-3.0, 3.0]))",
        "tensor([-1.,  2.])",
    ),
)


@op(samples=lambda: [Sample((3, 4), In(4, values=[0.1, 0.2, 0.3, 0.4]))], differentiable=False)
def heaviside(input: Tensor, values: Tensor) -> Any:
    """0 below zero, 1 above, `values` at zero; no gradients.

    >>> import tapegrad
    >>> tapegrad.heaviside(tapegrad.tensor([-1.0, 0.0, 2.0]), tapegrad.tensor(0.5))
    tensor([0.0000, 0.5000, 1.0000])
    """
    if not isinstance(values, Tensor):
        raise not_a_tensor("heaviside", values)
    if values._array.dtype != input._array.dtype:
        raise RuntimeError(f"heaviside needs one dtype, got {input.dtype} and {values.dtype}")
    x = input.detach()
    return where(equal(x, 0), values.detach(), greater(x, 0).to(x.dtype))


def log_of_sum(x: Any, y: Any) -> Any:
    """log(e^x + e^y) of arrays, without overflow."""
    if not any(numeric.is_complex(v.dtype) for v in (x, y) if hasattr(v, "dtype")):
        return np.logaddexp(x, y)
    first = np.real(x) >= np.real(y)
    top, other = np.where(first, x, y), np.where(first, y, x)
    low, high = np.real(other), np.real(top)
    unbounded = (low == high) & np.isinf(low)
    sum_of_both = np.where(high > 0, np.log(np.exp(x) + np.exp(y)), other)
    missing = np.isnan(np.real(x)) | np.isnan(np.real(y))
    out = np.where(unbounded, sum_of_both, top + np.log1p(np.exp(other - top)))
    return np.where(missing, complex(math.nan, math.nan), out).astype(out.dtype)


logaddexp: Primitive = binary(
    "logaddexp",
    log_of_sum,
    (lambda g, x, y: g * sigmoid(x - y), lambda g, x, y: g * sigmoid(y - x)),
    f"where(x == y, x + {math.log(2)!r}, maximum(x, y) + log1p(exp(-abs(x - y))))",
    inplace=False,
    promote="floats",
    numbers="none",
    doc="`log(e^input + e^other)`, with broadcasting and without overflow.",
    example=(
        "tapegrad.logaddexp(tapegrad.tensor([0.0, 1000.0]), tapegrad.tensor([0.0, 1000.0]))",
        "tensor([6.9315e-01, 1.0007e+03])",
    ),
    complex=HOLOMORPHIC,
)
logaddexp2: Primitive = binary(
    "logaddexp2",
    np.logaddexp2,
    (
        lambda g, x, y: g * sigmoid((x - y) * math.log(2)),
        lambda g, x, y: g * sigmoid((y - x) * math.log(2)),
    ),
    f"where(x == y, x + 1, maximum(x, y) + log1p(exp2(-abs(x - y))) * {1 / math.log(2)!r})",
    inplace=False,
    promote="floats",
    numbers="none",
    doc="`log2(2^input + 2^other)`, with broadcasting and without overflow.",
    example=(
        "tapegrad.logaddexp2(tapegrad.tensor([0.0, 1000.0]), tapegrad.tensor([0.0, 1000.0]))",
        "tensor([1.0000e+00, 1.0010e+03])",
    ),
)

# -- trigonometry ------------------------------------------------------------------------------

sin: Primitive = unary(
    "sin",
    np.sin,
    lambda g, x: g * cos(x),
    "sin(x)",
    complex=HOLOMORPHIC,
    doc="The sine of each element, in radians.",
    example=("tapegrad.sin(tapegrad.tensor([0.0, 1.0]))", "tensor([0.0000, 0.8415])"),
)
cos: Primitive = unary(
    "cos",
    np.cos,
    lambda g, x: -g * sin(x),
    "cos(x)",
    complex=HOLOMORPHIC,
    doc="The cosine of each element, in radians.",
    example=("tapegrad.cos(tapegrad.tensor([0.0, 1.0]))", "tensor([1.0000, 0.5403])"),
)
tan: Primitive = unary(
    "tan",
    np.tan,
    lambda g, out: g * (out * out + 1),
    "tan(x)",
    low=-1,
    high=1,
    autocast=ON_GPU,
    complex=HOLOMORPHIC,
    doc="The tangent of each element, in radians.",
    example=("tapegrad.tan(tapegrad.tensor([0.0, 1.0]))", "tensor([0.0000, 1.5574])"),
)
asin: Primitive = unary(
    "asin",
    np.arcsin,
    lambda g, x: g * rsqrt(1 - x * x),
    "asin(x)",
    low=-0.8,
    high=0.8,
    aliases=("arcsin",),
    autocast=ON_GPU,
    complex=HOLOMORPHIC,
    doc="The angle in radians, -pi/2 to pi/2, with this sine; NaN outside -1..1.",
    example=("tapegrad.asin(tapegrad.tensor([0.0, 1.0]))", "tensor([0.0000, 1.5708])"),
)
acos: Primitive = unary(
    "acos",
    np.arccos,
    lambda g, x: -g * rsqrt(1 - x * x),
    "acos(x)",
    low=-0.8,
    high=0.8,
    aliases=("arccos",),
    autocast=ON_GPU,
    complex=HOLOMORPHIC,
    doc="The angle in radians, 0 to pi, with this cosine; NaN outside -1..1.",
    example=("tapegrad.acos(tapegrad.tensor([0.0, 1.0]))", "tensor([1.5708, 0.0000])"),
)
atan: Primitive = unary(
    "atan",
    np.arctan,
    lambda g, x: g / (x * x + 1),
    "atan(x)",
    aliases=("arctan",),
    complex=HOLOMORPHIC,
    doc="The angle in radians, -pi/2 to pi/2, with this tangent.",
    example=("tapegrad.atan(tapegrad.tensor([0.0, 1.0]))", "tensor([0.0000, 0.7854])"),
)


def _over_squares(a: Any, x: Any, y: Any) -> Any:
    """a / (x^2 + y^2), and 0 at the origin."""
    total = x * x + y * y
    origin = equal(total, 0)
    return where(origin, 0.0, a / where(origin, 1.0, total))


atan2: Primitive = binary(
    "atan2",
    np.arctan2,
    (
        lambda g, x, y: g * _over_squares(y, x, y),
        lambda g, x, y: -g * _over_squares(x, x, y),
    ),
    "atan2(x, y)",
    promote="float",
    low=0.5,
    aliases=("arctan2",),
    autocast={"cuda": "widest"},
    numbers="none",
    doc="The angle in radians, -pi to pi, of the point (x=`other`, y=`input`).",
    example=(
        "tapegrad.atan2(tapegrad.tensor([1.0, 1.0]), tapegrad.tensor([1.0, -1.0]))",
        "tensor([0.7854, 2.3562])",
    ),
)
hypot: Primitive = binary(
    "hypot",
    np.hypot,
    (lambda g, x, out: g * (x / out), lambda g, y, out: g * (y / out)),
    "hypot(x, y)",
    low=0.5,
    promote="floats",
    numbers="none",
    doc="`sqrt(input^2 + other^2)`, with broadcasting.",
    example=(
        "tapegrad.hypot(tapegrad.tensor([3.0, 5.0]), tapegrad.tensor([4.0, 12.0]))",
        "tensor([ 5., 13.])",
    ),
)
sinh: Primitive = unary(
    "sinh",
    np.sinh,
    lambda g, x: g * cosh(x),
    "sinh(x)",
    autocast=ON_GPU,
    complex=HOLOMORPHIC,
    doc="The hyperbolic sine of each element: (e^x - e^-x) / 2.",
    example=("tapegrad.sinh(tapegrad.tensor([0.0, 1.0]))", "tensor([0.0000, 1.1752])"),
)
cosh: Primitive = unary(
    "cosh",
    np.cosh,
    lambda g, x: g * sinh(x),
    "cosh(x)",
    autocast=ON_GPU,
    complex=HOLOMORPHIC,
    doc="The hyperbolic cosine of each element: (e^x + e^-x) / 2.",
    example=("tapegrad.cosh(tapegrad.tensor([0.0, 1.0]))", "tensor([1.0000, 1.5431])"),
)
asinh: Primitive = unary(
    "asinh",
    np.arcsinh,
    lambda g, x: g * rsqrt(x * x + 1),
    "asinh(x)",
    aliases=("arcsinh",),
    complex=HOLOMORPHIC,
    doc="The inverse of `sinh` of each element.",
    example=("tapegrad.asinh(tapegrad.tensor([0.0, 1.0]))", "tensor([0.0000, 0.8814])"),
)
acosh: Primitive = unary(
    "acosh",
    np.arccosh,
    lambda g, x: g * rsqrt(x * x - 1),
    "acosh(x)",
    low=1.3,
    high=3.0,
    aliases=("arccosh",),
    complex=HOLOMORPHIC,
    doc="The inverse of `cosh` of each element; NaN below 1.",
    example=("tapegrad.acosh(tapegrad.tensor([1.0, 2.0]))", "tensor([0.0000, 1.3170])"),
)
atanh: Primitive = unary(
    "atanh",
    np.arctanh,
    lambda g, x: g / (1 - x * x),
    "atanh(x)",
    low=-0.8,
    high=0.8,
    aliases=("arctanh",),
    complex=HOLOMORPHIC,
    doc="The inverse of `tanh` of each element; NaN outside -1..1.",
    example=("tapegrad.atanh(tapegrad.tensor([0.0, 0.5]))", "tensor([0.0000, 0.5493])"),
)

DEGREES = 180.0 / math.pi


def _scaled(name: str, factor: float, doc: str, example: tuple[str, str]) -> Primitive:
    return unary(
        name,
        xp.rounded_once(lambda x: (x * factor).astype(x.dtype, copy=False)),
        lambda g: g * factor,
        f"x * {factor!r}",
        doc=doc,
        example=example,
    )


deg2rad: Primitive = _scaled(
    "deg2rad",
    1 / DEGREES,
    doc="Degrees to radians: `x * pi / 180`.",
    example=("tapegrad.deg2rad(tapegrad.tensor([90.0, 180.0]))", "tensor([1.5708, 3.1416])"),
)
rad2deg: Primitive = _scaled(
    "rad2deg",
    DEGREES,
    doc="Radians to degrees: `x * 180 / pi`.",
    example=("tapegrad.rad2deg(tapegrad.tensor([0.0, 1.0]))", "tensor([ 0.0000, 57.2958])"),
)

# -- special functions -------------------------------------------------------------------------


def special_kernel(name: str) -> Callable[[Any], Any]:
    """A function of scipy.special, computed in float32 for half precision."""

    def kernel(x: Any) -> Any:
        function = getattr(xp.special(x), name)
        wide = xp.widened(x) if hasattr(x, "dtype") else x
        out = function(wide)
        return out.astype(x.dtype) if wide is not x else out

    return kernel


_TWO_OVER_SQRT_PI = 2.0 / math.sqrt(math.pi)
erf: Primitive = unary(
    "erf",
    special_kernel("erf"),
    lambda g, x: g * (_TWO_OVER_SQRT_PI * exp(-(x * x))),
    "erf(x)",
    scipy=True,
    doc="The error function of each element: 2 / sqrt(pi) * integral of e^(-t^2) from 0 to x.",
    example=("tapegrad.erf(tapegrad.tensor([0.0, 1.0]))", "tensor([0.0000, 0.8427])"),
)
erfc: Primitive = unary(
    "erfc",
    special_kernel("erfc"),
    lambda g, x: g * (-_TWO_OVER_SQRT_PI * exp(-(x * x))),
    "erfc(x)",
    scipy=True,
    doc="`1 - erf(x)` of each element, accurate for large x.",
    example=("tapegrad.erfc(tapegrad.tensor([0.0, 1.0]))", "tensor([1.0000, 0.1573])"),
)
_erfinv = special_kernel("erfinv")
erfinv: Primitive = unary(
    "erfinv",
    lambda x: np.copysign(_erfinv(x), x),  # SciPy returns 0 at -0
    lambda g, out: g * ((0.5 * math.sqrt(math.pi)) * exp(out * out)),
    "erfinv(x)",
    low=-0.8,
    high=0.8,
    autocast=ON_GPU,
    scipy=True,
    doc="The inverse of `erf` of each element, for -1 < x < 1.",
    example=("tapegrad.erfinv(tapegrad.tensor([0.0, 0.5]))", "tensor([0.0000, 0.4769])"),
)

normal_pdf: Primitive = unary(
    "normal_pdf",
    xp.rounded_once(lambda x: np.exp(-0.5 * (x * x)) * (1.0 / math.sqrt(2.0 * math.pi))),
    lambda g, x, out: g * (-x * out),
    "normal_pdf(x)",
    public=False,
)
normal_cdf: Primitive = unary(
    "normal_cdf",
    special_kernel("ndtr"),
    lambda g, x: g * normal_pdf(x),
    "normal_cdf(x)",
    public=False,
    scipy=True,
)


def _polygamma(x: Any, *, n: int) -> Any:
    return xp.special(x).polygamma(xp.module(x).asarray(n), x).astype(x.dtype)


polygamma_: Primitive = define(
    "polygamma",
    _polygamma,
    kind=ELEMENTWISE,
    promote="float",
    vjp=lambda g, x, n: g * polygamma_(x, n=n + 1),
)
digamma: Primitive = unary(
    "digamma",
    special_kernel("digamma"),
    lambda g, x: g * polygamma_(x, n=1),
    "digamma(x)",
    low=0.5,
    high=3.0,
    scipy=True,
    doc="The derivative of `lgamma` at each element.",
    example=("tapegrad.digamma(tapegrad.tensor([1.0, 2.0]))", "tensor([-0.5772,  0.4228])"),
)
_gammaln = special_kernel("gammaln")


def _lgamma(x: Any) -> Any:
    # SciPy returns -inf at -inf, where log |gamma| is inf, and inf close to 0.
    size = np.abs(x)
    return np.where(np.isinf(x), size, np.where(size < 1e-30, -np.log(size), _gammaln(x)))


lgamma: Primitive = unary(
    "lgamma",
    _lgamma,
    lambda g, x: g * digamma(x),
    "lgamma(x)",
    low=0.5,
    high=3.0,
    scipy=True,
    doc="The logarithm of |gamma(x)| of each element; gamma(n) = (n - 1)! for whole n.",
    example=("tapegrad.lgamma(tapegrad.tensor([1.0, 4.0]))", "tensor([0.0000, 1.7918])"),
)


@op(
    casts=True,
    method=False,
    samples=lambda: [Sample(1, In(3, low=0.5, high=3.0)), Sample(2, In(3, low=0.5, high=3.0))],
)
def polygamma(n: int, input: Tensor) -> Any:
    """The n-th derivative of digamma.

    `n` is the order, at least 0: order 0 is digamma itself.

    >>> import tapegrad
    >>> tapegrad.polygamma(1, tapegrad.tensor([1.0, 2.0]))
    tensor([1.6449, 0.6449])
    """
    if isinstance(n, Tensor):  # the method's order of arguments
        n, input = input, n
    if n < 0:
        raise RuntimeError(f"polygamma needs an order of at least 0, got {n}")
    return digamma(input) if n == 0 else polygamma_(input, n=n)


def _polygamma_method(self: Tensor, n: int) -> Any:
    """The n-th derivative of digamma: see `tapegrad.polygamma`."""
    return polygamma(n, self)


attach(
    polygamma=_polygamma_method,
    polygamma_=in_place("polygamma", _polygamma_method, None, None),
)


logit_: Primitive = unary(
    "logit",
    xp.rounded_once(lambda x: np.log(x / (1 - x))),
    lambda g, x: where(logical_or(less(x, 0), greater(x, 1)), math.nan, g / (x * (1 - x))),
    "log(x / (1 - x))",
    public=False,
)


@op(
    casts=True,
    samples=lambda: [Sample(In(3, 4, low=0.2, high=0.8)), Sample(In(5), eps=0.1)],
    inplace=True,
)
def logit(input: Tensor, eps: float | None = None) -> Any:
    """log(x / (1 - x)), with x first limited to eps..1-eps if `eps` is given.

    >>> import tapegrad
    >>> tapegrad.logit(tapegrad.tensor([0.25, 0.5, 0.75]))
    tensor([-1.0986,  0.0000,  1.0986])
    """
    return logit_(input if eps is None else clamp(input, eps, 1 - eps))


def _sinc(x: Any) -> Any:
    wide = widened(x)
    zero = equal(wide, 0)
    angle = where(zero, 1.0, wide * math.pi)
    return rounded(where(zero, 1.0, sin(angle) / angle), x)


def _sinc_gradient(g: Any, x: Any) -> Any:
    """(pi x cos(pi x) - sin(pi x)) / (pi x^2), and 0 where the square is."""
    angle, square = x * math.pi, x * x * math.pi
    flat = equal(square, 0)
    slope = (angle * cos(angle) - sin(angle)) / where(flat, 1.0, square)
    return g * where(flat, 0.0, slope)


sinc_: Primitive = define(
    "sinc",
    _sinc,
    kind=ELEMENTWISE,
    promote="float",
    composite=True,
    vjp=_sinc_gradient,
    complex=HOLOMORPHIC,
)


@op(casts=True, samples=lambda: [Sample(In(3, 4, low=0.2))], inplace=True)
def sinc(input: Tensor) -> Any:
    """sin(pi x) / (pi x), and 1 at 0.

    >>> import tapegrad
    >>> tapegrad.sinc(tapegrad.tensor([0.0, 0.5]))
    tensor([1.0000, 0.6366])
    """
    return sinc_(input)
