"""Gradients of samples by their parameters, from integrals of the density.

For a fixed uniform number, the sample x of a distribution function F(x; a) has the derivative
dx/da = -F_a / F_x by its parameter. F_a is an integral of the density times logarithms. Here it is
computed relative to the density at x, over one side of x, from integrals with powers of logarithms:

    gamma_moment[n] = int_0^x log(t/x)^n (t/x)^a e^(x-t) dt/t

and likewise for beta distributions. The negated integral over the other side satisfies the same
equations, so each element uses the side on which the integrand only decreases. Derivatives by a
raise n by one, and those by x are sums of such moments, so derivatives of all orders exist.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import xp
from ...core.primitive import ELEMENTWISE, Primitive, define
from ..elementwise.exponentials import exp, log
from ..elementwise.functions import digamma, lgamma, polygamma_

#: points and weights of the double exponential rule for integrals over s > 0: s = exp(v - exp(-v))
_V = np.arange(-3.6, 3.85, 1 / 24)
_POINTS = np.exp(_V - np.exp(-_V))
_WEIGHTS = _POINTS * (1 + np.exp(-_V)) / 24

#: elements whose integrands are computed at once: they take a few MB
_CHUNK = 1 << 12


def _width(start: Any, exponent: Any) -> Any:
    """Where a concave, decreasing exponent is about -1, by Newton's method from the right."""
    s = start
    for _ in range(60):
        value, slope = exponent(s)
        moved = s - (value + 1) / slope
        done = np.all(np.abs(moved - s) <= 0.1 * s)
        s = moved
        if done:
            break
    return s


def in_chunks(function: Any, *arrays: Any) -> Any:
    """Apply a function of flat float64 arrays to broadcast arrays of any dtype, in chunks."""
    whole = np.broadcast_arrays(*arrays)
    dtype = np.result_type(*(a.dtype for a in whole))
    flat = [np.ravel(a).astype(np.float64) for a in whole]
    out = np.empty(flat[0].size)
    with np.errstate(all="ignore"):
        for i in range(0, out.size, _CHUNK):
            out[i : i + _CHUNK] = function(*(a[i : i + _CHUNK] for a in flat))
    return out.reshape(whole[0].shape).astype(dtype)


def _gamma_moments(a: Any, x: Any, orders: tuple[int, ...]) -> list[Any]:
    """int log(t/x)^n (t/x)^a e^(x-t) dt/t from 0 to x, or minus that from x to inf, for each n."""
    side = np.where(x > a, 1.0, -1.0)

    def exponent(s: Any) -> Any:
        return side * a * s - x * np.expm1(side * s), side * (a - x * np.exp(side * s))

    above = np.minimum(np.sqrt(2 / x), np.maximum(2.0, np.log1p(2 / x)))
    below = np.minimum((1 + x) / a + 1, 1 / np.maximum(a - x, 0))
    below = np.where(x >= 3, np.minimum(below, np.sqrt(3 / x)), below)
    width = _width(np.where(x > a, above, below), exponent)
    s = width * _POINTS[:, None]
    density = np.exp(exponent(s)[0]) * _WEIGHTS[:, None]
    return [-side * width * np.sum((side * s) ** n * density, 0) for n in orders]


def _beta_moments(a: Any, b: Any, x: Any, orders: tuple[tuple[int, int], ...]) -> list[Any]:
    """int log(t/x)^n log((1-t)/(1-x))^m (t/x)^a ((1-t)/(1-x))^b dt/(t (1-t)) on one side of x."""
    upper = x * (a + b) > a
    near, far = np.where(upper, b, a), np.where(upper, a, b)
    part = np.where(upper, 1 - x, x)
    total = a + b

    def exponent(s: Any) -> Any:
        rest = np.expm1(-s)
        value = -near * s - total * np.log1p(part * rest)
        return value, -near + total * part * (1 + rest) / (1 + part * rest)

    start = (1 - total * np.log1p(-part)) / near
    slope = near - total * part
    start = np.where(slope > 0, np.minimum(start, 1 / slope), start)
    width = _width(start, exponent)
    s = width * _POINTS[:, None]
    other = -np.log1p(part * np.expm1(-s))  # the logarithm that stays finite
    own = other - s
    density = np.exp(near * own + far * other) * _WEIGHTS[:, None]
    of_x, of_rest = np.where(upper, other, own), np.where(upper, own, other)
    sign = np.where(upper, -1.0, 1.0) * width
    return [sign * np.sum(of_x**n * of_rest**m * density, 0) for n, m in orders]


gamma_moment_: Primitive = define(
    "gamma_moment",
    lambda a, x, *, n: in_chunks(lambda a, x: _gamma_moments(a, x, (n,))[0], a, x),
    kind=ELEMENTWISE,
    promote="float",
    vjp=(
        lambda g, a, x, n: g * gamma_moment_(a, x, n=n + 1),
        lambda g, a, x, out, n: g * (out - (a * out + _lower_moment(a, x, n)) / x),
    ),
)


def _lower_moment(a: Any, x: Any, n: int) -> Any:
    """The term of the derivative by x that is no multiple of the moment itself, times -x."""
    return n * gamma_moment_(a, x, n=n - 1) if n else -1.0


beta_moment_: Primitive = define(
    "beta_moment",
    lambda a, b, x, *, n, m: in_chunks(
        lambda a, b, x: _beta_moments(a, b, x, ((n, m),))[0], a, b, x
    ),
    kind=ELEMENTWISE,
    promote="float",
    vjp=(
        lambda g, a, b, x, n, m: g * beta_moment_(a, b, x, n=n + 1, m=m),
        lambda g, a, b, x, n, m: g * beta_moment_(a, b, x, n=n, m=m + 1),
        lambda g, a, b, x, out, n, m: g * _beta_moment_slope(a, b, x, out, n, m),
    ),
)


def _beta_moment_slope(a: Any, b: Any, x: Any, out: Any, n: int, m: int) -> Any:
    """The derivative of a beta moment by x."""
    slope = b * out / (1 - x) - a * out / x
    if n:
        slope = slope - n * beta_moment_(a, b, x, n=n - 1, m=m) / x
    if m:
        slope = slope + m * beta_moment_(a, b, x, n=n, m=m - 1) / (1 - x)
    return slope if n or m else slope + 1 / (x * (1 - x))


# -- samples of gamma distributions ----------------------------------------------------------------


def _gamma_slope(a: Any, x: Any) -> Any:
    first, second = _gamma_moments(a, x, (0, 1))
    return -x * ((np.log(x) - xp.special(x).digamma(a)) * first + second)


#: dx/da of a sample x of a standard gamma distribution with concentration a
standard_gamma_grad_: Primitive = define(
    "standard_gamma_grad",
    lambda a, x: in_chunks(_gamma_slope, a, x),
    kind=ELEMENTWISE,
    promote="float",
    vjp=(
        lambda g, a, x: g * _gamma_slope_by_a(a, x),
        lambda g, a, x, out: g * (digamma(a) - log(x) - out * ((a - 1) / x - 1)),
    ),
)


def _gamma_density(a: Any, x: Any) -> Any:
    return exp((a - 1) * log(x) - x - lgamma(a))


def _gamma_cdf(a: Any, x: Any) -> Any:
    special = xp.special(x)
    return in_chunks(special.gammainc, a, x)


#: the distribution function of a standard gamma distribution with concentration a, at x
gamma_cdf_: Primitive = define(
    "gamma_cdf",
    _gamma_cdf,
    kind=ELEMENTWISE,
    promote="float",
    vjp=(
        lambda g, a, x: -g * standard_gamma_grad_(a, x) * _gamma_density(a, x),
        lambda g, a, x: g * _gamma_density(a, x),
    ),
)


def _gamma_slope_by_a(a: Any, x: Any) -> Any:
    moments = [gamma_moment_(a, x, n=n) for n in range(3)]
    inner = (log(x) - digamma(a)) * moments[1] + moments[2] - polygamma_(a, n=1) * moments[0]
    return -x * inner


# -- samples of Dirichlet and beta distributions ---------------------------------------------------


def _beta_slope(x: Any, alpha: Any, total: Any) -> Any:
    first, second = _beta_moments(alpha, total - alpha, x, ((0, 0), (1, 0)))
    psi = xp.special(x).digamma
    return -x * ((np.log(x) - psi(alpha) + psi(total)) * first + second)


#: dx/dalpha / (1 - x) of a sample x of a beta distribution (alpha, total - alpha)
dirichlet_grad_: Primitive = define(
    "dirichlet_grad",
    lambda x, alpha, total: in_chunks(_beta_slope, x, alpha, total),
    kind=ELEMENTWISE,
    promote="float",
    vjp=(
        lambda g, x, alpha, total, out: g * _beta_slope_by_x(x, alpha, total, out),
        lambda g, x, alpha, total: g * _beta_slope_by_alpha(x, alpha, total),
        lambda g, x, alpha, total: g * _beta_slope_by_total(x, alpha, total),
    ),
)


def _log_ratio(x: Any, alpha: Any, total: Any) -> Any:
    return log(x) - digamma(alpha) + digamma(total)


def _beta_slope_by_x(x: Any, alpha: Any, total: Any, out: Any) -> Any:
    rest = 1 - x
    density = (alpha - 1) / x - (total - alpha - 1) / rest
    return out / rest - out * density - _log_ratio(x, alpha, total) / rest


def _beta_slope_by_alpha(x: Any, alpha: Any, total: Any) -> Any:
    pairs = ((0, 0), (1, 0), (0, 1), (2, 0), (1, 1))
    m = {p: beta_moment_(alpha, total - alpha, x, n=p[0], m=p[1]) for p in pairs}
    inner = _log_ratio(x, alpha, total) * (m[1, 0] - m[0, 1]) + m[2, 0] - m[1, 1]
    return -x * (inner - polygamma_(alpha, n=1) * m[0, 0])


def _beta_slope_by_total(x: Any, alpha: Any, total: Any) -> Any:
    m = [beta_moment_(alpha, total - alpha, x, n=n, m=k) for n, k in ((0, 0), (0, 1), (1, 1))]
    return -x * (polygamma_(total, n=1) * m[0] + _log_ratio(x, alpha, total) * m[1] + m[2])
