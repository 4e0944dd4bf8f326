"""Signs, absolute values and rounding: functions whose slope is a constant between jumps.

Comes in: one tensor. Goes out: one of the same shape and dtype. The gradients of signs and of
rounding are `zero`, a rule that other files use too.
"""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from ...core import numeric
from ...core.complexes import OWN
from ...core.primitive import ELEMENTWISE, PRIMITIVES, Primitive, define
from ...core.tensor import Tensor
from ..families import unary
from ..precision import check_floating
from ..table import In, Sample, op
from .comparison import equal, where

zero: Primitive = define(
    "zero", lambda x: np.zeros_like(x), kind=ELEMENTWISE, expression="0", complex=OWN
)


def _sign(x: Any) -> Any:
    """-1, 0 or 1; NaN has no sign, so 0."""
    return x.copy() if numeric.is_boolean(x.dtype) else np.subtract(x > 0, x < 0, dtype=x.dtype)


sign: Primitive = unary(
    "sign",
    _sign,
    lambda g: zero(g),
    "sign(x)",
    promote=None,
    low=0.3,
    doc="-1, 0 or 1: the sign of each element.",
    example=("tapegrad.sign(tapegrad.tensor([-2.0, 0.0, 3.0]))", "tensor([-1.,  0.,  1.])"),
)


def _direction(x: Any) -> Any:
    """x / |x|, and 0 at 0."""
    if not numeric.is_complex(x.dtype):
        return _sign(x)
    size = np.abs(x)
    return x / np.where(size == 0, size.dtype.type(1), size)


def _direction_vjp(g: Any, x: Any, out: Any) -> Any:
    if not numeric.is_complex(x._array.dtype if isinstance(x, Tensor) else x.dtype):
        return zero(g)
    size = abs(x)
    safe = where(equal(size, 0), 1.0, size)  # out is 0 there
    along = PRIMITIVES["real"](g * PRIMITIVES["conj"](out))
    return where(equal(size, 0), 0.0, (g - out * along) / safe)


sgn: Primitive = unary(
    "sgn",
    _direction,
    _direction_vjp,
    "sign(x)",
    promote=None,
    low=0.3,
    complex=OWN,
    doc="-1, 0 or 1: the sign of each element; of a complex one, x / |x|.",
    example=("tapegrad.sgn(tapegrad.tensor([-2.0, 0.0, 3.0]))", "tensor([-1.,  0.,  1.])"),
)
abs: Primitive = unary(
    "abs",
    np.abs,
    lambda g, x: g * sgn(x),
    "abs(x)",
    promote="numbers",
    aliases=("absolute",),
    distinct=True,
    complex=OWN,
    doc="`|x|`, the absolute value of each element; the gradient at 0 is 0.",
    example=("tapegrad.abs(tapegrad.tensor([-2.0, 3.0]))", "tensor([2., 3.])"),
)


def _rounding(
    name: str,
    function: Any,
    expression: str,
    public: bool = True,
    aliases: tuple[str, ...] = (),
    doc: str | None = None,
    example: tuple[str, str] | None = None,
) -> Primitive:
    """A function that rounds to integers; integer tensors are unchanged."""

    def same(x: Any) -> Any:
        if numeric.is_boolean(x.dtype):
            raise NotImplementedError(f"{name} takes no bool tensor; convert it to numbers first")
        return x.copy()

    return unary(
        name,
        lambda x: function(x) if numeric.is_floating(x.dtype) else same(x),
        lambda g: zero(g),
        expression,
        promote=None,
        distinct=True,
        public=public,
        aliases=aliases,
        doc=doc,
        example=example,
    )


floor: Primitive = _rounding(
    "floor",
    np.floor,
    "floor(x)",
    doc="Each element rounded down.",
    example=("tapegrad.floor(tapegrad.tensor([1.5, -1.5]))", "tensor([ 1., -2.])"),
)
ceil: Primitive = _rounding(
    "ceil",
    np.ceil,
    "ceil(x)",
    doc="Each element rounded up.",
    example=("tapegrad.ceil(tapegrad.tensor([1.2, -1.5]))", "tensor([ 2., -1.])"),
)
trunc: Primitive = _rounding(
    "trunc",
    np.trunc,
    "trunc(x)",
    aliases=("fix",),
    doc="Each element rounded towards 0.",
    example=("tapegrad.trunc(tapegrad.tensor([1.5, -1.5]))", "tensor([ 1., -1.])"),
)
round_half_even: Primitive = _rounding("round", np.rint, "rint(x)", public=False)


@op(
    "round",
    samples=lambda: [Sample(In(3, 4)), Sample(In(3), decimals=2), Sample(In(3), decimals=-1)],
    inplace=True,
)
def round_(input: Tensor, *, decimals: int = 0) -> Any:
    """Round to the nearest integer (halves to even), or to `decimals` places.

    >>> import tapegrad
    >>> tapegrad.round(tapegrad.tensor([0.5, 1.5, 2.7]))
    tensor([0., 2., 3.])
    """
    if decimals == 0:
        return round_half_even(input)
    check_floating(input, "round with decimals")
    scale = 10.0 ** builtins.abs(decimals)
    if decimals > 0:
        return round_half_even(input * scale) / scale
    return round_half_even(input / scale) * scale


@op(samples=lambda: [Sample((3, 4))], inplace=True)
def frac(input: Tensor) -> Any:
    """The fractional part: `x - trunc(x)`.

    >>> import tapegrad
    >>> tapegrad.frac(tapegrad.tensor([1.5, -2.25]))
    tensor([ 0.5000, -0.2500])
    """
    check_floating(input, "frac")
    return input - trunc(input)
