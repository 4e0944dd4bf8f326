"""Draws of angles around a direction (von Mises), their gradients, and Bessel functions.

As in `moments.py`, the derivative of a sample by its concentration k is computed from the
distribution function, by integrals relative to the density at x:

    angle_moment[n] = int (cos t - cos x)^n e^(k (cos t - cos x)) dt, from the far side of x to x

where the far side is pi or -pi, so that the integrand only decreases away from x.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import xp
from ...core.primitive import ELEMENTWISE, Primitive, define
from ..drawing import random_array
from ..elementwise.exponentials import exp
from ..elementwise.functions import cos, sin
from .moments import in_chunks

if TYPE_CHECKING:
    from ...core.tensor import Tensor

_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(64)
_NODES = (_NODES[:, None] + 1) / 2
_NODE_WEIGHTS = _NODE_WEIGHTS[:, None] / 2

#: terms e^x with x below minus this are neglected
_NEGLIGIBLE = 42.0


def _outside(k: Any, r: Any, n: int) -> Any:
    """int_r^pi (cos t - cos r)^n e^(k (cos t - cos r)) dt, for r from 0 to pi."""
    top = np.cos(r)
    end = np.arccos(np.maximum(top - _NEGLIGIBLE / k, -1.0))
    width = np.maximum(end - r, 0.0)
    drop = np.cos(r + width * _NODES) - top
    return width * np.sum(drop**n * np.exp(k * drop) * _NODE_WEIGHTS, 0)


def _angle_moment(k: Any, x: Any, n: int) -> Any:
    return np.where(x < 0, 1.0, -1.0) * _outside(k, np.abs(x), n)


angle_moment_: Primitive = define(
    "angle_moment",
    lambda k, x, *, n: in_chunks(lambda k, x: _angle_moment(k, x, n), k, x),
    kind=ELEMENTWISE,
    promote="float",
    vjp=(
        lambda g, k, x, n: g * angle_moment_(k, x, n=n + 1),
        lambda g, k, x, out, n: g * _angle_moment_slope(k, x, out, n),
    ),
)


def _angle_moment_slope(k: Any, x: Any, out: Any, n: int) -> Any:
    """The derivative of a moment by x."""
    if n == 0:
        return 1 + k * sin(x) * out
    return sin(x) * (k * out + n * angle_moment_(k, x, n=n - 1))


def _log_bessel(x: Any, order: int) -> Any:
    return np.log(xp.special(x).ive(order, x)) + x


#: log I_order(x) of modified Bessel functions of order 0 or 1
log_bessel_: Primitive = define(
    "log_bessel",
    lambda x, *, order: in_chunks(lambda x: _log_bessel(x, order), x),
    kind=ELEMENTWISE,
    promote="float",
    vjp=lambda g, x, order: g * _log_bessel_slope(x, order),
)


def _log_bessel_slope(x: Any, order: int) -> Any:
    ratio = log_bessel_(x, order=1) - log_bessel_(x, order=0)
    return exp(ratio) if order == 0 else exp(-ratio) - 1 / x


def _angle_quantile(k: Any, u: Any) -> Any:
    """The angle between -pi and pi at which the distribution function is u."""
    special = xp.special(k)
    scale = math.pi * special.ive(0, k)
    away = np.minimum(1 - np.abs(2 * u - 1), 1.0)  # the probability of a larger distance
    r = np.clip(-special.ndtri(away / 2) / np.sqrt(k + 0.1), 1e-12, math.pi - 1e-12)
    low, high = np.zeros_like(r), np.full_like(r, math.pi)
    for _ in range(60):
        density = np.exp(k * (np.cos(r) - 1)) / scale
        more = density * _outside(k, r, 0) - away
        low, high = np.where(more > 0, r, low), np.where(more > 0, high, r)
        moved = r + more / density
        moved = np.where((moved > low) & (moved < high), moved, (low + high) / 2)
        done = np.all(np.abs(moved - r) <= 1e-14 * np.abs(r) + 1e-300)
        r = moved
        if done:
            break
    return np.where(u < 0.5, -r, r)


angle_quantile_: Primitive = define(
    "angle_quantile",
    lambda k, u: in_chunks(_angle_quantile, k, u + 2.0**-54).astype(k.dtype),
    kind=ELEMENTWISE,
    vjp=(lambda g, k, out: g * _angle_slope(k, out), None),
    abstract=lambda k, u: (np.broadcast_shapes(k[0], u[0]), k[1]),
    loads=True,
)


def _angle_slope(k: Any, x: Any) -> Any:
    """dx/dk of a sample."""
    mean = exp(log_bessel_(k, order=1) - log_bessel_(k, order=0))
    return -((cos(x) - mean) * angle_moment_(k, x, n=0) + angle_moment_(k, x, n=1))


def standard_angle(concentration: Tensor) -> Any:
    """Samples of von Mises distributions around 0, with gradients for the concentration."""
    shape = tuple(concentration._array.shape)
    u = random_array("uniform", shape, np.float64, device=concentration.device)
    return angle_quantile_(concentration, u)
