"""Exponentials, logarithms, roots, and the two sigmoid curves made of them.

Comes in: tensors of any dtype. Goes out: floating ones; integers are promoted. Used by the rules of
powers, by softmax, activations, recurrent cells and losses.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core import xp
from ...core.casting import ON_GPU
from ...core.complexes import HOLOMORPHIC
from ...core.primitive import Primitive
from ..families import binary, pairs, unary
from ..table import In, Sample
from .comparison import (
    equal,
    less_equal,
    logical_and,
    where,
)

exp: Primitive = unary(
    "exp",
    np.exp,
    lambda g, out: g * out,
    "exp(x)",
    autocast=ON_GPU,
    complex=HOLOMORPHIC,
    doc="`e^x` of each element.",
    example=("tapegrad.exp(tapegrad.tensor([0.0, 1.0]))", "tensor([1.0000, 2.7183])"),
)
exp2: Primitive = unary(
    "exp2",
    np.exp2,
    lambda g, out: g * (out * math.log(2)),
    "exp2(x)",
    complex=HOLOMORPHIC,
    doc="`2^x` of each element.",
    example=("tapegrad.exp2(tapegrad.tensor([0.0, 3.0]))", "tensor([1., 8.])"),
)
expm1: Primitive = unary(
    "expm1",
    np.expm1,
    lambda g, out: g * (out + 1),
    "expm1(x)",
    autocast=ON_GPU,
    complex=HOLOMORPHIC,
    doc="`e^x - 1` of each element, accurate for small x.",
    example=("tapegrad.expm1(tapegrad.tensor([0.0, 1.0]))", "tensor([0.0000, 1.7183])"),
)
log: Primitive = unary(
    "log",
    np.log,
    lambda g, x: g / x,
    "log(x)",
    low=0.3,
    autocast=ON_GPU,
    complex=HOLOMORPHIC,
    doc="The natural logarithm of each element; NaN below 0.",
    example=("tapegrad.log(tapegrad.tensor([1.0, 10.0]))", "tensor([0.0000, 2.3026])"),
)
log2: Primitive = unary(
    "log2",
    np.log2,
    lambda g, x: g / (x * math.log(2)),
    "log2(x)",
    low=0.3,
    autocast=ON_GPU,
    complex=HOLOMORPHIC,
    doc="The logarithm to base 2 of each element.",
    example=("tapegrad.log2(tapegrad.tensor([1.0, 8.0]))", "tensor([0., 3.])"),
)
log10: Primitive = unary(
    "log10",
    np.log10,
    lambda g, x: g / (x * math.log(10)),
    "log10(x)",
    low=0.3,
    autocast=ON_GPU,
    complex=HOLOMORPHIC,
    doc="The logarithm to base 10 of each element.",
    example=("tapegrad.log10(tapegrad.tensor([1.0, 20.0]))", "tensor([0.0000, 1.3010])"),
)
log1p: Primitive = unary(
    "log1p",
    np.log1p,
    lambda g, x: g / (x + 1),
    "log1p(x)",
    low=-0.5,
    autocast=ON_GPU,
    complex=HOLOMORPHIC,
    doc="`log(1 + x)` of each element, accurate for small x.",
    example=("tapegrad.log1p(tapegrad.tensor([0.0, 1.0]))", "tensor([0.0000, 0.6931])"),
)
sqrt: Primitive = unary(
    "sqrt",
    np.sqrt,
    lambda g, out: g / (2 * out),
    "sqrt(x)",
    low=0.3,
    complex=HOLOMORPHIC,
    doc="The square root of each element; NaN below 0.",
    example=("tapegrad.sqrt(tapegrad.tensor([4.0, 9.0]))", "tensor([2., 3.])"),
)
rsqrt: Primitive = unary(
    "rsqrt",
    xp.rounded_once(lambda x: 1 / np.sqrt(x)),
    lambda g, out: g * (-0.5 * (out * out * out)),
    "1 / sqrt(x)",
    low=0.3,
    autocast=ON_GPU,
    complex=HOLOMORPHIC,
    doc="`1 / sqrt(x)` of each element.",
    example=("tapegrad.rsqrt(tapegrad.tensor([4.0, 16.0]))", "tensor([0.5000, 0.2500])"),
)


def _xlogy(x: Any, y: Any) -> Any:
    # np.log would return float64 for a Python number.
    y = x.dtype.type(y) if isinstance(y, (int, float)) else y
    return np.where(np.logical_and(np.equal(x, 0), np.logical_not(np.isnan(y))), 0, x * np.log(y))


def _log_of(y: Any) -> Any:
    return float(np.log(y)) if isinstance(y, (int, float)) else log(y)


xlogy: Primitive = binary(
    "xlogy",
    xp.rounded_once(_xlogy),
    (
        lambda g, x, y: where(logical_and(equal(x, 0), less_equal(y, 0)), 0.0, g * _log_of(y)),
        lambda g, x, y: g * (x / y),
    ),
    "where(x == 0 and y == y, 0, x * log(y))",
    promote="float",
    samples=lambda: [
        *[Sample(s.args[0], In(*s.args[1].shape, low=0.4)) for s in pairs()],
        Sample((3,), 2.0),
    ],
    numbers="both",
    doc="`input * log(other)`, with broadcasting; 0 where `input` is 0.",
    example=(
        "tapegrad.xlogy(tapegrad.tensor([0.0, 2.0]), tapegrad.tensor([0.0, 3.0]))",
        "tensor([0.0000, 2.1972])",
    ),
)


_ONE = np.asarray(1, xp.F32)


def _sigmoid(x: Any) -> Any:
    wide = xp.widened(x)
    out = np.exp(-wide)
    if x.ndim:
        if out.__class__ is np.ndarray:
            out += _ONE if out.dtype is xp.F32 else 1  # a number takes 0.3 µs longer than an array
            np.reciprocal(out, out)
        else:
            out += 1
            np.divide(1, out, out=out)
    else:
        out = 1 / (1 + out)
    return out if wide is x else out.astype(x.dtype)


tanh: Primitive = unary(
    "tanh",
    np.tanh,
    lambda g, out: g * (1 - out * out),
    "tanh(x)",
    complex=HOLOMORPHIC,
    doc="The hyperbolic tangent of each element.",
    example=("tapegrad.tanh(tapegrad.tensor([0.0, 1.0]))", "tensor([0.0000, 0.7616])"),
)
sigmoid: Primitive = unary(
    "sigmoid",
    _sigmoid,
    lambda g, out: g * ((1 - out) * out),
    "sigmoid(x)",
    complex=HOLOMORPHIC,
    families=True,
    doc="`1 / (1 + e^-x)` of each element.",
    example=("tapegrad.sigmoid(tapegrad.tensor([0.0, 2.0]))", "tensor([0.5000, 0.8808])"),
)
