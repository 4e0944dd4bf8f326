"""Elementwise extremes: the larger or smaller of two, clamping between bounds, and `relu`.

Comes in: tensors, or a tensor and numbers, that broadcast. Goes out: one tensor. The rules define
which operand gets the gradient, and how operands share it where they are equal.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import numeric, xp
from ...core.primitive import ELEMENTWISE, Primitive, define
from ...core.tensor import Tensor
from ..families import binary, unary
from ..table import In, Sample, op
from .comparison import (
    equal,
    greater,
    greater_equal,
    isnan,
    less,
    less_equal,
    logical_and,
    logical_or,
    where,
)

if TYPE_CHECKING:
    from ..annotations import Operand


def _winner(g: Any, mine: Any, other: Any, loses: Any) -> Any:
    """The gradient of `mine`: all of g where it wins, half of it at ties."""
    return where(loses(mine, other), 0.0, where(equal(mine, other), g / 2, g))


maximum: Primitive = binary(
    "maximum",
    np.maximum,
    (
        lambda g, x, y: _winner(g, x, y, less),
        lambda g, x, y: _winner(g, y, x, less),
    ),
    "maximum(x, y)",
    distinct=True,
    families=True,
    inplace=False,
    numbers="none",
    doc="The larger of two elements; NaN if one is NaN. At ties each gets half of the gradient.",
    example=(
        "tapegrad.maximum(tapegrad.tensor([1.0, 5.0]), tapegrad.tensor([2.0, 3.0]))",
        "tensor([2., 5.])",
    ),
)
minimum: Primitive = binary(
    "minimum",
    np.minimum,
    (
        lambda g, x, y: _winner(g, x, y, greater),
        lambda g, x, y: _winner(g, y, x, greater),
    ),
    "minimum(x, y)",
    distinct=True,
    families=True,
    inplace=False,
    numbers="none",
    doc="The smaller of two elements; NaN if one is NaN. At ties each gets half of the gradient.",
    example=(
        "tapegrad.minimum(tapegrad.tensor([1.0, 5.0]), tapegrad.tensor([2.0, 3.0]))",
        "tensor([1., 3.])",
    ),
)

fmax: Primitive = binary(
    "fmax",
    np.fmax,
    (
        lambda g, x, y: where(logical_or(greater_equal(x, y), isnan(y)), g, 0.0),
        lambda g, x, y: where(logical_or(greater_equal(x, y), isnan(y)), 0.0, g),
    ),
    "where(x != x, y, where(y != y, x, maximum(x, y)))",
    distinct=True,
    inplace=False,
    numbers="none",
    doc="The larger of two elements, with broadcasting; if one is NaN, the other.",
    example=(
        "tapegrad.fmax(tapegrad.tensor([1.0, tapegrad.nan]), tapegrad.tensor([2.0, 3.0]))",
        "tensor([2., 3.])",
    ),
)
fmin: Primitive = binary(
    "fmin",
    np.fmin,
    (
        lambda g, x, y: where(logical_or(less_equal(x, y), isnan(y)), g, 0.0),
        lambda g, x, y: where(logical_or(less_equal(x, y), isnan(y)), 0.0, g),
    ),
    "where(x != x, y, where(y != y, x, minimum(x, y)))",
    distinct=True,
    inplace=False,
    numbers="none",
    doc="The smaller of two elements, with broadcasting; if one is NaN, the other.",
    example=(
        "tapegrad.fmin(tapegrad.tensor([1.0, tapegrad.nan]), tapegrad.tensor([2.0, 3.0]))",
        "tensor([1., 3.])",
    ),
)


@op(
    casts=True,
    samples=lambda: [
        Sample(In(3, 4), -0.5, 0.7),
        Sample(In(3, 4), min=-0.5),
        Sample(In(3, 4), max=0.5),
        Sample(In(3, 4), max=In(4)),
        Sample(In(3, 4), In(4)),
        Sample(In(3, 4), (4,), In(4, low=2.0, high=3.0)),
        Sample(In(5, kind="int", low=-9, high=9), -2, 3),
    ],
    inplace=True,
    aliases=("clip",),
)
def clamp(input: Tensor, min: Operand | None = None, max: Operand | None = None) -> Any:
    """Limit each element to min..max; either may be a number, a tensor or None.

    >>> import tapegrad
    >>> tapegrad.clamp(tapegrad.tensor([-2.0, 0.5, 3.0]), min=-1, max=1)
    tensor([-1.0000,  0.5000,  1.0000])
    """
    if min is None and max is None:
        raise RuntimeError("clamp needs min, max, or both")
    numbers = not isinstance(min, Tensor) and not isinstance(max, Tensor)
    if numbers and numeric.is_floating(input._array.dtype):
        low = -math.inf if min is None else float(min)
        high = math.inf if max is None else float(max)
        if low == low and high == high:  # a NaN limit makes all elements NaN
            return clamp_numbers(input, low=low, high=high)
    if min is not None and max is not None:
        if isinstance(min, Tensor) != isinstance(max, Tensor):
            limit: Any = min if isinstance(min, Tensor) else max
            if limit._array.ndim:  # a 0-d limit counts as a number
                raise TypeError("clamp takes two tensors or two numbers, not one of each")
        return clamp_between(input, min, max)
    return clamp_low(input, min) if max is None else clamp_high(input, max)


# Where the input equals its limit, it gets all of the gradient; at NaN neither gets any.
clamp_low: Primitive = binary(
    "clamp_low",
    np.maximum,
    (
        lambda g, x, y: where(greater_equal(x, y), g, 0.0),
        lambda g, x, y: where(less(x, y), g, 0.0),
    ),
    "maximum(x, y)",
    public=False,
)
clamp_high: Primitive = binary(
    "clamp_high",
    np.minimum,
    (
        lambda g, x, y: where(less_equal(x, y), g, 0.0),
        lambda g, x, y: where(greater(x, y), g, 0.0),
    ),
    "minimum(x, y)",
    public=False,
)


clamp_between: Primitive = define(
    "clamp_between",
    lambda x, y, z: np.minimum(np.maximum(x, y), z),
    kind=ELEMENTWISE,
    promote="same",
    vjp=(
        lambda g, x, y, z: where(logical_and(greater_equal(x, y), less_equal(x, z)), g, 0.0),
        lambda g, x, y, z: where(logical_and(less(y, z), less(x, y)), g, 0.0),
        lambda g, x, y, z: where(logical_or(greater(x, z), less(z, y)), g, 0.0),
    ),
    expression="minimum(maximum(x, y), z)",
)


def _clamp(x: Any, *, low: float, high: float) -> Any:
    if not xp.is_plain(x) or low == 0 or high == 0:  # clip keeps the sign of -0
        return x.clip(low, high).astype(x.dtype, copy=False)
    if high == math.inf:
        return np.maximum(x, low)  # maximum and minimum each take half as long as clip
    return np.minimum(x if low == -math.inf else np.maximum(x, low), high)


clamp_numbers: Primitive = define(
    "clamp",
    _clamp,
    kind=ELEMENTWISE,
    vjp=lambda g, x, low, high: where(
        logical_and(greater_equal(x, low), less_equal(x, high)), g, 0.0
    ),
    # If the low limit is above the high one, the high one wins, as in np.clip.
    expression="where(x > high or (low > high and x == x), high, where(x < low, low, x))",
)


@op(samples=lambda: [Sample((3, 4), 0.3)], inplace=True)
def clamp_min(input: Tensor, min: Operand) -> Any:
    """Limit each element from below: max(x, min).

    >>> import tapegrad
    >>> tapegrad.clamp_min(tapegrad.tensor([-2.0, 0.5]), 0)
    tensor([0.0000, 0.5000])
    """
    return clamp(input, min=min)


@op(samples=lambda: [Sample((3, 4), 0.3)], inplace=True)
def clamp_max(input: Tensor, max: Operand) -> Any:
    """Limit each element from above: min(x, max).

    >>> import tapegrad
    >>> tapegrad.clamp_max(tapegrad.tensor([0.5, 3.0]), 1)
    tensor([0.5000, 1.0000])
    """
    return clamp(input, max=max)


def _relu(x: Any) -> Any:
    if numeric.is_boolean(x.dtype):
        raise RuntimeError("relu of a bool tensor has no meaning; convert it first")
    # A number takes 0.3 µs longer than an array without dimensions.
    on_cpu = x.__class__ is np.ndarray
    return np.maximum(x, _ZERO if on_cpu and x.dtype is xp.F32 else 0)


_ZERO = np.asarray(0, xp.F32)

relu: Primitive = unary(
    "relu",
    _relu,
    lambda g, out: where(less_equal(out, 0), 0.0, g),
    "where(x <= 0, 0, x)",
    promote=None,
    distinct=True,
    doc="`max(x, 0)` of each element.",
    example=("tapegrad.relu(tapegrad.tensor([-1.0, 2.0]))", "tensor([0., 2.])"),
)
