"""Arithmetic: sums, products, quotients, remainders and powers, and Python's operators for them.

A block has the kernel, the gradient rules, the scalar expression for native code, the samples and
the public names. Rules are written with operators and primitives only, so they differentiate again.
Operands are tensors or numbers, which broadcast; each gets a gradient of its own shape.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ...core import fast, inplace, numeric
from ...core.casting import ON_GPU
from ...core.complexes import HOLOMORPHIC, OWN
from ...core.dtypes import BOOL, COMPLEX, FLOAT
from ...core.primitive import PRIMITIVES, Primitive
from ...core.tensor import Tensor
from ..families import binary, operator, pairs, unary
from ..precision import check_numbers
from ..table import In, Sample, attach, op
from .comparison import (
    equal,
    greater,
    greater_equal,
    less,
    less_equal,
    logical_and,
    not_equal,
    result_dtype,
    where,
)
from .exponentials import log, rsqrt, sqrt
from .rounding import abs, trunc, zero

if TYPE_CHECKING:
    from ..annotations import Number, Operand


add: Primitive = binary(
    "add", np.add, (lambda g: g, lambda g: g), "x + y", public=False, complex=OWN
)
sub: Primitive = binary(
    "sub",
    np.subtract,
    (lambda g: g, lambda g: -g),
    "x - y",
    promote="numbers",
    public=False,
    complex=OWN,
)
mul: Primitive = binary(
    "mul",
    np.multiply,
    (lambda g, y: g * y, lambda g, x: g * x),
    "x * y",
    aliases=("multiply",),
    numbers="both",
    wide_numbers=True,
    complex=HOLOMORPHIC,
    doc="`input * other`, element by element, with broadcasting.",
    example=(
        "tapegrad.mul(tapegrad.tensor([1.0, 2.0]), tapegrad.tensor([10.0, 20.0]))",
        "tensor([10., 40.])",
    ),
)
div: Primitive = binary(
    "div",
    np.true_divide,
    # Do not save the result: users change quotients in place, as they do sums and products.
    (lambda g, y: g / y, lambda g, x, y: -g * (x / y / y)),
    "x / y",
    promote="float",
    public=False,
    wide_numbers=True,
    complex=HOLOMORPHIC,
)


def _alpha_samples() -> list[Sample]:
    return [*pairs(), Sample((3,), (3,), alpha=2.5), Sample((3,), 2), Sample((3,), 1.5, alpha=-2)]


@op(casts=True, samples=_alpha_samples, inplace=True, primitive=add, shortcut=inplace.add_scaled)
def add_(input: Operand, other: Operand, scaled: Tensor | None = None, *, alpha: Number = 1) -> Any:
    """`input + alpha * other`; older code calls `add(input, alpha, other)`.

    >>> import tapegrad
    >>> tapegrad.add(tapegrad.tensor([1.0, 2.0]), tapegrad.tensor([10.0, 20.0]), alpha=2)
    tensor([21., 42.])
    """
    if scaled is not None:
        other, alpha = scaled, cast(Any, other)
    if is_one(alpha):
        return add(input, other)
    if _are_half(input, other):  # rounded once
        return _rounded_once(add, input, other, alpha)
    return add(input, _times(alpha, other, input))


@op(casts=True, samples=_alpha_samples, inplace=True, primitive=sub, aliases=("subtract",))
def sub_(input: Operand, other: Operand, scaled: Tensor | None = None, *, alpha: Number = 1) -> Any:
    """`input - alpha * other`; older code calls `sub(input, alpha, other)`.

    >>> import tapegrad
    >>> tapegrad.sub(tapegrad.tensor([10.0, 20.0]), 1)
    tensor([ 9., 19.])
    """
    if scaled is not None:
        other, alpha = scaled, cast(Any, other)
    if is_one(alpha):
        return sub(input, other)
    if _are_half(input, other):  # rounded once
        return _rounded_once(sub, input, other, alpha)
    return sub(input, _times(alpha, other, input))


def is_one(alpha: Any) -> bool:
    """Whether a factor is the integer 1; never reads the value of a tensor."""
    return type(alpha) is int and alpha == 1


def _are_half(x: Any, y: Any) -> bool:
    """Whether both are tensors of the same half-precision dtype."""
    both = isinstance(x, Tensor) and isinstance(y, Tensor)
    return both and x._array.dtype == y._array.dtype and numeric.is_half(x._array.dtype)


def _rounded_once(operation: Any, x: Any, y: Any, alpha: Any) -> Any:
    """`operation(x, alpha * y)` of half precision, computed in float32."""
    if isinstance(alpha, (int, float)):
        alpha = float(np.asarray(alpha, x._array.dtype))  # PyTorch rounds it too
    return operation(x.float(), y.float() * alpha).to(x.dtype)


def in_common_dtype(x: Any, *others: Any) -> Any:
    """A tensor cast to its common dtype with others, so that a factor is not rounded earlier."""
    if not isinstance(x, Tensor):
        return x
    for other in others:
        if isinstance(other, Tensor) and other._array.dtype is not x._array.dtype:
            common = result_dtype(x, *others)
            return x.to(common) if common.category >= FLOAT else x
    return x


def _times(alpha: Any, x: Any, beside: Any) -> Any:
    """`alpha * x`; raises if a float factor would turn integers into floats."""
    plain = alpha.__class__ is int or alpha.__class__ is float
    x = in_common_dtype(x, beside)
    if plain and isinstance(x, Tensor) and numeric.is_floating(x._array.dtype):
        return mul(x, alpha)
    kind = result_dtype(x, beside).category
    if isinstance(alpha, bool) and kind != BOOL:
        raise RuntimeError(f"alpha = {alpha} needs bool tensors; for numbers use a number")
    if kind == BOOL and isinstance(alpha, int):
        alpha = bool(alpha)
    if isinstance(alpha, float) and kind < FLOAT:
        raise RuntimeError(f"alpha = {alpha} needs floating tensors; for integers use an integer")
    if isinstance(alpha, complex) and kind < COMPLEX:
        raise RuntimeError(f"alpha = {alpha} needs complex tensors")
    return mul(x, alpha)


@op(samples=lambda: [Sample((3, 4), (4,)), Sample((3,), 2.0, alpha=3)], method=False)
def rsub(input: Tensor, other: Operand, *, alpha: Number = 1) -> Any:
    """`other - alpha * input`.

    >>> import tapegrad
    >>> tapegrad.rsub(tapegrad.tensor([1.0, 2.0]), 10)
    tensor([9., 8.])
    """
    return sub(other, input if is_one(alpha) else _times(alpha, input, other))


@op(
    casts=True,
    samples=lambda: [
        *[Sample(s.args[0], In(*s.args[1].shape, low=0.5, high=2.0)) for s in pairs()],
        Sample((3,), 2.0),
        Sample(In(5, grad=False), In(5, low=0.5), rounding_mode="floor"),
        Sample(In(5, grad=False), In(5, low=0.5), rounding_mode="trunc"),
        Sample(In(5, kind="int", low=-9, high=9), 3),
        Sample(In(5, kind="int", low=-9, high=9), 3, rounding_mode="floor"),
    ],
    inplace=True,
    aliases=("divide", "true_divide"),
)
def div_(input: Operand, other: Operand, *, rounding_mode: str | None = None) -> Any:
    """`input / other`; `rounding_mode` may be "trunc" or "floor".

    >>> import tapegrad
    >>> tapegrad.div(tapegrad.tensor([7.0, -7.0]), 2, rounding_mode="floor")
    tensor([ 3., -4.])
    """
    if rounding_mode is None:
        return div(input, other)
    if rounding_mode == "floor":
        return div_floor(input, other)
    if rounding_mode == "trunc":
        if any(is_floating(x) for x in (input, other)):
            return div_trunc(input, other)
        if result_dtype(input, other).category == BOOL:
            raise _no_truth("div")
        # Floating point would lose the last digits of large integers.
        whole = input.to(result_dtype(input, other)) if isinstance(input, Tensor) else input
        return floor_divide(sub(whole, fmod(whole, other)), other)
    raise RuntimeError(f"rounding_mode must be None, 'trunc' or 'floor', got {rounding_mode!r}")


def is_floating(x: Any) -> bool:
    return x.dtype.is_floating_point if isinstance(x, Tensor) else isinstance(x, float)


def _no_truth(what: str) -> NotImplementedError:
    return NotImplementedError(f"{what} takes no two bool operands; convert one to numbers first")


def _floor_divide(x: Any, y: Any) -> Any:
    _check_integers("floor_divide", x, y)
    # For a float divided by zero NumPy returns nan, PyTorch the infinity of the quotient.
    out = np.floor_divide(x, y)
    if numeric.is_numpy_float(out.dtype):
        out = np.where(np.equal(y, 0), np.true_divide(x, y), out)
    return out


def _check_integers(what: str, x: Any, y: Any) -> None:
    """Refuse to divide integers by zero, and booleans by booleans."""
    dtypes = [getattr(v, "dtype", np.dtype(type(v))) for v in (x, y)]
    if any(map(numeric.is_floating, dtypes)):
        return
    if all(map(numeric.is_boolean, dtypes)):
        raise _no_truth(what)
    if bool(np.any(np.equal(y, 0))):
        raise RuntimeError("integer division by zero; divide floating tensors to get infinities")


floor_divide: Primitive = binary(
    "floor_divide",
    _floor_divide,
    None,
    "floor_divide(x, y)",
    numbers="both",
    samples=lambda: [
        Sample(In(3, 4), In(4, low=0.5)),
        Sample(In(5, kind="int", low=-9, high=9), 4),
    ],
    doc="`input / other` rounded down, with broadcasting; no gradients.",
    example=("tapegrad.floor_divide(tapegrad.tensor([7.0, -7.0]), 2)", "tensor([ 3., -4.])"),
)

# The same for `div` with rounding, whose gradients are zero in PyTorch.
div_trunc: Primitive = binary(
    "div_trunc",
    lambda x, y: np.trunc(np.true_divide(x, y)),
    (lambda g: zero(g), lambda g: zero(g)),
    "trunc(x / y)",
    public=False,
)
div_floor: Primitive = binary(
    "div_floor",
    _floor_divide,
    (lambda g: zero(g), lambda g: zero(g)),
    "floor_divide(x, y)",
    public=False,
)


def _remainder(x: Any, y: Any) -> Any:
    _check_integers("remainder", x, y)
    return np.remainder(x, y)


remainder: Primitive = binary(
    "remainder",
    _remainder,
    (lambda g: g, lambda g, x, y: -g * floor_divide(x, y)),
    "remainder(x, y)",
    samples=lambda: [
        Sample(In(3, 4), In(4, low=0.7, high=0.9)),
        Sample(In(5), 0.75),
        Sample(In(5, kind="int", low=-9, high=9), 4),
    ],
    numbers="both",
    doc="`input - floor(input / other) * other`: the remainder with the sign of `other`.",
    example=("tapegrad.remainder(tapegrad.tensor([7.0, -7.0]), 4)", "tensor([3., 1.])"),
)


def _fmod(x: Any, y: Any) -> Any:
    _check_integers("fmod", x, y)
    return np.fmod(x, y)


fmod: Primitive = binary(
    "fmod",
    _fmod,
    (lambda g: g, lambda g, x, y: -g * trunc(div(x, y))),
    "fmod(x, y)",
    samples=lambda: [
        Sample(In(3, 4), In(4, low=0.7, high=0.9)),
        Sample(In(5), 0.75),
        Sample(In(5, kind="int", low=-9, high=9), 4),
    ],
    doc="`input - trunc(input / other) * other`: the remainder with the sign of `input`.",
    example=("tapegrad.fmod(tapegrad.tensor([7.0, -7.0]), 4)", "tensor([ 3., -3.])"),
)
neg: Primitive = unary(
    "neg",
    np.negative,
    lambda g: -g,
    "-x",
    promote="numbers",
    aliases=("negative",),
    complex=OWN,
    doc="`-x` of each element.",
    example=("tapegrad.neg(tapegrad.tensor([1.0, -2.0]))", "tensor([-1.,  2.])"),
)
positive: Primitive = unary(
    "positive",
    np.positive,
    lambda g: g,
    "x",
    promote="numbers",
    inplace=False,
    complex=OWN,
    doc="`x` of each element, as `+x`.",
    example=("tapegrad.positive(tapegrad.tensor([1.0, -2.0]))", "tensor([ 1., -2.])"),
    stores=True,
)
reciprocal: Primitive = unary(
    "reciprocal",
    np.reciprocal,
    lambda g, out: -g * (out * out),
    "1 / x",
    low=0.5,
    autocast=ON_GPU,
    complex=HOLOMORPHIC,
    doc="`1 / x` of each element.",
    example=("tapegrad.reciprocal(tapegrad.tensor([2.0, 4.0]))", "tensor([0.5000, 0.2500])"),
)
square: Primitive = unary(
    "square",
    lambda x: np.square(x, dtype=np.int64 if numeric.is_boolean(x.dtype) else None),
    lambda g, x: g * (2 * x),
    "x * x",
    promote=None,
    casts=True,
    complex=HOLOMORPHIC,
    doc="`x * x` of each element.",
    example=("tapegrad.square(tapegrad.tensor([2.0, -3.0]))", "tensor([4., 9.])"),
)


def _pow_base(g: Any, x: Any, y: Any) -> Any:
    if isinstance(y, (int, float, complex)):
        if y == 0:
            return zero(g)
        if y == 2:
            return g * (2 * x)
        root = _root(x, y - 1)
        return g * (y * (pow(x, y - 1) if root is None else root))
    return where(equal(y, 0), 0.0, g * (y * pow(x, y - 1)))


def _pow_exponent(g: Any, x: Any, y: Any, out: Any) -> Any:
    if isinstance(x, (int, float, complex)):
        if x == 0:
            return where(greater_equal(_real_part(y), 0), 0.0, g * (out * -math.inf))
        if isinstance(x, complex):
            import cmath

            return g * (out * cmath.log(x))
        return g * (out * (math.log(x) if x > 0 else math.nan))
    dead = logical_and(equal(x, 0), greater_equal(_real_part(y), 0))
    return g * where(dead, 0.0, out * log(x))


def _real_part(x: Any) -> Any:
    dtype = x._array.dtype if isinstance(x, Tensor) else x.dtype
    return PRIMITIVES["real"](x) if numeric.is_complex(dtype) else x


def _power(x: Any, y: Any) -> Any:
    if isinstance(y, (int, float, complex)):
        if isinstance(y, bool):
            return np.logical_or(x, not y)
        return x * x if y == 2 else np.power(x, y)
    if numeric.is_boolean(y.dtype):
        raise _no_truth("pow")
    if numeric.is_integer(y.dtype):
        # NumPy refuses negative powers of integers: those of 1 and -1 are exact, others round to 0.
        sign = np.where(y % 2 == 0, 1, x)
        negative = np.where(np.abs(x) == 1, sign, 0)
        return np.where(y < 0, negative, np.power(x, np.maximum(y, 0))).astype(y.dtype)
    return np.power(x, y)


pow: Primitive = binary(
    "pow", _power, (_pow_base, _pow_exponent), "pow(x, y)", public=False, complex=HOLOMORPHIC
)


def _root(x: Any, exponent: Any) -> Any:
    """`x` to the power 0.5 or -0.5, else None; a general power would be inf at -inf, 0 at -0."""
    if isinstance(exponent, float) and exponent in (0.5, -0.5):
        return sqrt(x) if exponent > 0 else rsqrt(x)
    return None


def _special_power(base: Any, exponent: Any) -> Any:
    """The result if it is a root, else None; refuses negative powers of integers."""
    whole = isinstance(base, Tensor) and numeric.is_exact(base._array.dtype)
    if whole and isinstance(exponent, int) and exponent < 0:
        raise RuntimeError(
            f"an integer tensor to the power {exponent} is not made of integers; use .float() first"
        )
    return _root(base, exponent)


@op(
    "pow",
    casts=True,
    samples=lambda: [
        *[Sample(In(*s.args[0].shape, low=0.3, high=2.0), In(*s.args[1].shape)) for s in pairs()],
        Sample((3, 4), 2),
        Sample((3, 4), 3),
        Sample((3, 4), 0),
        Sample(In(3, 4, low=0.5), -1.5),
        Sample(In(3, 4, low=0.5), 0.5),
        Sample(2.5, (3,)),
        Sample(In(5, kind="int", low=-4, high=4), 3),
    ],
    inplace=True,
    autocast=ON_GPU,
)
def pow_(input: Operand, exponent: Operand) -> Any:
    """`input` to the power `exponent`, either of which may be a number.

    >>> import tapegrad
    >>> tapegrad.pow(tapegrad.tensor([1.0, 2.0, 3.0]), 2)
    tensor([1., 4., 9.])
    """
    root = _special_power(input, exponent)
    return pow(input, exponent) if root is None else root


def _plus(self: Tensor) -> Tensor:
    """+x is x; booleans have no sign."""
    check_numbers(self, "+x")
    return self


# -- Python operators --------------------------------------------------------------------------

operator("__add__", add, "__radd__", "__iadd__")
operator("__sub__", sub, "__rsub__", "__isub__")
operator("__mul__", mul, "__rmul__", "__imul__")
operator("__truediv__", div, "__rtruediv__", "__itruediv__")
attach(__rdiv__=Tensor.__rtruediv__)
operator("__floordiv__", floor_divide, "__rfloordiv__", "__ifloordiv__")
operator("__mod__", remainder, "__rmod__", "__imod__")
operator("__pow__", pow, "__rpow__", "__ipow__", special=_special_power, autocast=ON_GPU)
operator("__eq__", equal)
operator("__ne__", not_equal)
operator("__lt__", less)
operator("__le__", less_equal)
operator("__gt__", greater)
operator("__ge__", greater_equal)
attach(
    __neg__=fast.unary(neg, np.negative),
    __pos__=_plus,
    __abs__=fast.unary(abs, np.abs),
)
