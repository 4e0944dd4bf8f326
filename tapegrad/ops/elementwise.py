"""Elementwise operations: one block each.

A block has the kernel, the gradient rules, the scalar expression for native code, the samples and
the public names. Rules are written with operators and primitives only, so they differentiate again.
"""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np

from .. import fast
from ..dtypes import as_dtype
from ..primitive import ELEMENTWISE, Primitive, define
from ..tensor import Tensor
from .families import binary, operator, pairs, unary
from .table import In, Sample, attach, op

# -- arithmetic --------------------------------------------------------------------------------

add: Primitive = binary("add", np.add, (lambda g: g, lambda g: g), "x + y", public=False)
sub: Primitive = binary("sub", np.subtract, (lambda g: g, lambda g: -g), "x - y", public=False)
mul: Primitive = binary(
    "mul",
    np.multiply,
    (lambda g, y: g * y, lambda g, x: g * x),
    "x * y",
    aliases=("multiply",),
)
div: Primitive = binary(
    "div",
    np.true_divide,
    (lambda g, y: g / y, lambda g, y, out: -g * (out / y)),
    "x / y",
    promote="float",
    public=False,
)


def _alpha_samples() -> list[Sample]:
    return [*pairs(), Sample((3,), (3,), alpha=2.5), Sample((3,), 2), Sample((3,), 1.5, alpha=-2)]


@op(samples=_alpha_samples, inplace=True)
def add_(input: Any, other: Any, *, alpha: Any = 1) -> Any:
    """`input + alpha * other`."""
    return add(input, other if alpha == 1 else _times(alpha, other, input))


@op(samples=_alpha_samples, inplace=True, aliases=("subtract",))
def sub_(input: Any, other: Any, *, alpha: Any = 1) -> Any:
    """`input - alpha * other`."""
    return sub(input, other if alpha == 1 else _times(alpha, other, input))


def _times(alpha: Any, x: Any, beside: Any) -> Any:
    """`alpha * x`, where a float may not turn integers into floats."""
    if isinstance(alpha, float) and not result_dtype(x, beside).is_floating_point:
        raise RuntimeError(f"alpha = {alpha} needs floating tensors; for integers use an integer")
    return mul(x, alpha)


@op(samples=lambda: [Sample((3, 4), (4,)), Sample((3,), 2.0, alpha=3)], method=False)
def rsub(input: Any, other: Any, *, alpha: Any = 1) -> Any:
    """`other - alpha * input`."""
    return sub(other, input if alpha == 1 else _times(alpha, input, other))


@op(
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
def div_(input: Any, other: Any, *, rounding_mode: str | None = None) -> Any:
    """`input / other`; `rounding_mode` may be "trunc" or "floor"."""
    if rounding_mode is None:
        return div(input, other)
    if rounding_mode == "floor":
        return div_floor(input, other)
    if rounding_mode == "trunc":
        quotient = trunc(div(input, other))
        whole = not any(is_floating(x) for x in (input, other))
        return quotient.to(result_dtype(input, other)) if whole else quotient
    raise RuntimeError(f"rounding_mode must be None, 'trunc' or 'floor', got {rounding_mode!r}")


def is_floating(x: Any) -> bool:
    return x.dtype.is_floating_point if isinstance(x, Tensor) else isinstance(x, float)


def result_dtype(*operands: Any) -> Any:
    """The dtype that an operation on these operands has."""
    from ..dtypes import number_dtype, result_type

    return result_type(
        *[
            (x.dtype, 2 if x.ndim else 1) if isinstance(x, Tensor) else (number_dtype(x), 0)
            for x in operands
        ]
    )


def _floor_divide(x: Any, y: Any) -> Any:
    _no_integer_zero(x, y)
    # NumPy says nan where a float is divided by zero, PyTorch keeps the infinity of the quotient.
    out = np.floor_divide(x, y)
    if out.dtype.kind == "f":
        out = np.where(np.equal(y, 0), np.true_divide(x, y), out)
    return out


def _no_integer_zero(x: Any, y: Any) -> None:
    kinds = [getattr(v, "dtype", np.dtype(type(v))).kind for v in (x, y)]
    if "f" not in kinds and "V" not in kinds and bool(np.any(np.equal(y, 0))):
        raise RuntimeError("integer division by zero; divide floating tensors to get infinities")


floor_divide: Primitive = binary(
    "floor_divide",
    _floor_divide,
    None,
    "floor(x / y)",
    samples=lambda: [
        Sample(In(3, 4), In(4, low=0.5)),
        Sample(In(5, kind="int", low=-9, high=9), 4),
    ],
)

# The same for `div` with rounding, which PyTorch lets pass gradients of zero.
div_floor: Primitive = binary(
    "div_floor",
    _floor_divide,
    (lambda g: zero(g), lambda g: zero(g)),
    "floor(x / y)",
    public=False,
)


def _remainder(x: Any, y: Any) -> Any:
    _no_integer_zero(x, y)
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
)


def _fmod(x: Any, y: Any) -> Any:
    _no_integer_zero(x, y)
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
)

zero: Primitive = define("zero", lambda x: np.zeros_like(x), kind=ELEMENTWISE, expression="0")
neg: Primitive = unary("neg", np.negative, lambda g: -g, "-x", promote=None, aliases=("negative",))
positive: Primitive = unary("positive", np.positive, lambda g: g, "x", promote=None, inplace=False)
reciprocal: Primitive = unary(
    "reciprocal", lambda x: 1 / x, lambda g, out: -g * (out * out), "1 / x", low=0.5
)
square: Primitive = unary(
    "square",
    lambda x: np.square(x, dtype=np.int64 if x.dtype.kind == "b" else None),
    lambda g, x: g * (2 * x),
    "x * x",
    promote=None,
)


def _pow_base(g: Any, x: Any, y: Any) -> Any:
    if isinstance(y, (int, float)):
        if y == 0:
            return zero(g)
        if y == 2:
            return g * (2 * x)
        return g * (y * pow(x, y - 1))
    return where(equal(y, 0), 0.0, g * (y * pow(x, y - 1)))


def _pow_exponent(g: Any, x: Any, y: Any, out: Any) -> Any:
    if isinstance(x, (int, float)):
        if x == 0:
            return where(greater_equal(y, 0), 0.0, g * (out * -math.inf))
        return g * (out * (math.log(x) if x > 0 else math.nan))
    dead = logical_and(equal(x, 0), greater_equal(y, 0))
    return g * where(dead, 0.0, out * log(x))


def _power(x: Any, y: Any) -> Any:
    if isinstance(y, (int, float)):
        if isinstance(y, bool):
            return np.logical_or(x, not y)
        return x * x if y == 2 else np.power(x, y)
    if y.dtype.kind == "b":
        return np.logical_or(x, np.logical_not(y))
    if y.dtype.kind in "iu":
        # NumPy refuses negative powers of integers: 1 and -1 have them, for others they round to 0.
        sign = np.where(y % 2 == 0, 1, x)
        negative = np.where(np.abs(x) == 1, sign, 0)
        return np.where(y < 0, negative, np.power(x, np.maximum(y, 0))).astype(y.dtype)
    return np.power(x, y)


pow: Primitive = binary("pow", _power, (_pow_base, _pow_exponent), "pow(x, y)", public=False)


def _check_exponent(base: Any, exponent: Any) -> None:
    whole = isinstance(base, Tensor) and base._array.dtype.kind in "iub"
    if whole and isinstance(exponent, int) and exponent < 0:
        raise RuntimeError(
            f"an integer tensor to the power {exponent} is not made of integers; use .float() first"
        )


@op(
    "pow",
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
)
def pow_(input: Any, exponent: Any) -> Any:
    """`input` to the power `exponent`, either of which may be a number."""
    _check_exponent(input, exponent)
    return pow(input, exponent)


# -- extremes ----------------------------------------------------------------------------------


def _winner(g: Any, mine: Any, other: Any, loses: Any) -> Any:
    """All of the gradient unless `mine` loses, half of it at ties."""
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
    inplace=False,
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
    inplace=False,
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
)


@op(
    samples=lambda: [
        Sample(In(3, 4), -0.5, 0.7),
        Sample(In(3, 4), min=-0.5),
        Sample(In(3, 4), max=0.5),
        Sample(In(3, 4), (4,), In(4, low=2.0, high=3.0)),
        Sample(In(5, kind="int", low=-9, high=9), -2, 3),
    ],
    inplace=True,
    aliases=("clip",),
)
def clamp(input: Any, min: Any = None, max: Any = None) -> Any:
    """Limit each element to min..max; either may be a number, a tensor or None."""
    if min is None and max is None:
        raise RuntimeError("clamp needs min, max, or both")
    numbers = not isinstance(min, Tensor) and not isinstance(max, Tensor)
    if numbers and input._array.dtype.kind in "fV":
        low = -math.inf if min is None else float(min)
        high = math.inf if max is None else float(max)
        return clamp_numbers(input, low=low, high=high)
    out = input
    if min is not None:
        out = where_(less(out, min), min, out)
    return out if max is None else where_(greater(out, max), max, out)


clamp_numbers: Primitive = define(
    "clamp",
    lambda x, *, low, high: np.clip(x, low, high).astype(x.dtype, copy=False),
    kind=ELEMENTWISE,
    vjp=lambda g, x, low, high: where(
        logical_and(greater_equal(x, low), less_equal(x, high)), g, 0.0
    ),
    expression="where(x < low, low, where(x > high, high, x))",
)


@op(samples=lambda: [Sample((3, 4), 0.3)], inplace=True)
def clamp_min(input: Any, min: Any) -> Any:
    """Limit each element from below."""
    return clamp(input, min=min)


@op(samples=lambda: [Sample((3, 4), 0.3)], inplace=True)
def clamp_max(input: Any, max: Any) -> Any:
    """Limit each element from above."""
    return clamp(input, max=max)


# -- comparisons and logic ---------------------------------------------------------------------


def comparison(name: str, kernel: Any, expression: str, aliases: tuple[str, ...] = ()) -> Primitive:
    return binary(
        name,
        kernel,
        None,
        expression,
        promote="bool",
        aliases=aliases,
        inplace=False,
        samples=lambda: [
            *pairs(kind="int", low=0, high=3),
            Sample((3, 4), (4,)),
            Sample((3, 4), 0.5),
            Sample(In(3, values=[1.0, math.nan, 2.0]), In(3, values=[1.0, math.nan, 3.0])),
        ],
    )


equal: Primitive = comparison("eq", np.equal, "x == y")
not_equal: Primitive = comparison("ne", np.not_equal, "x != y", ("not_equal",))
less: Primitive = comparison("lt", np.less, "x < y", ("less",))
less_equal: Primitive = comparison("le", np.less_equal, "x <= y", ("less_equal",))
greater: Primitive = comparison("gt", np.greater, "x > y", ("greater",))
greater_equal: Primitive = comparison("ge", np.greater_equal, "x >= y", ("greater_equal",))


def _logic_samples() -> list[Sample]:
    return [*pairs(kind="bool"), Sample(In(5, kind="int", low=0, high=2), In(5, kind="bool"))]


logical_and: Primitive = binary(
    "logical_and", np.logical_and, None, "x and y", promote="bool", samples=_logic_samples
)
logical_or: Primitive = binary(
    "logical_or", np.logical_or, None, "x or y", promote="bool", samples=_logic_samples
)
logical_xor: Primitive = binary(
    "logical_xor",
    np.logical_xor,
    None,
    "(x != 0) != (y != 0)",
    promote="bool",
    samples=_logic_samples,
)
logical_not: Primitive = unary(
    "logical_not", np.logical_not, None, "x == 0", promote=None, inplace=False, kind="bool"
)


isnan: Primitive = unary("isnan", np.isnan, None, "x != x", promote=None, inplace=False)
isinf: Primitive = unary("isinf", np.isinf, None, "isinf(x)", promote=None, inplace=False)
isfinite: Primitive = unary(
    "isfinite", np.isfinite, None, "isfinite(x)", promote=None, inplace=False
)


# np.where takes 3.9 ms for a million random choices, which no processor foresees; choosing by bits
# takes 0.3 ms where one side is 0 and 0.6 ms elsewhere. Below this size it does not pay.
_MANY = 2048


def _where(condition: Any, x: Any, y: Any) -> Any:
    if max(condition.size, getattr(x, "size", 0), getattr(y, "size", 0)) >= _MANY:
        chosen = _chosen_by_bits(condition, x, y)
        if chosen is not None:
            return chosen
    return np.where(condition, _beside(x, y), _beside(y, x))


def _chosen_by_bits(condition: Any, x: Any, y: Any) -> Any:
    """`np.where` for floating NumPy arrays of one dtype, one of which may be the number 0."""
    arrays = [v for v in (x, y) if not _is_plain_zero(v)]
    if not arrays or not all(isinstance(v, np.ndarray) for v in arrays):
        return None
    dtype = arrays[0].dtype
    if dtype.kind not in "fV" or arrays[-1].dtype != dtype:
        return None
    shape = np.broadcast_shapes(condition.shape, *[v.shape for v in arrays])
    out = np.empty_like(arrays[0], shape=shape)
    bits = out.view(f"i{dtype.itemsize}")
    np.copyto(bits, condition.view(np.int8))  # 1 for x, 0 for y
    if len(arrays) == 2:
        first, second = x.view(bits.dtype), y.view(bits.dtype)
        np.negative(bits, out=bits)
        np.bitwise_and(bits, first ^ second, out=bits)
        np.bitwise_xor(bits, second, out=bits)
    elif arrays[0] is x:
        np.negative(bits, out=bits)
        np.bitwise_and(bits, x.view(bits.dtype), out=bits)
    else:
        np.subtract(bits, 1, out=bits)
        np.bitwise_and(bits, y.view(bits.dtype), out=bits)
    return out


def _is_plain_zero(v: Any) -> bool:
    return v.__class__ is float and v == 0 and math.copysign(1.0, v) > 0


def _beside(x: Any, other: Any) -> Any:
    """A Python number in the dtype of the array beside it: for NumPy it makes bfloat16 float64."""
    if x.__class__ is float and getattr(other, "dtype", _FLOAT).kind == "V":
        return other.dtype.type(x)
    return x


_FLOAT = np.dtype(float)

where: Primitive = define(
    "where",
    _where,
    kind=ELEMENTWISE,
    vjp=(
        None,
        lambda g, condition: where(condition, g, 0.0),
        lambda g, condition: where(condition, 0.0, g),
    ),
    expression="where(condition, x, y)",
)


@op(
    "where",
    method=False,
    samples=lambda: [
        Sample(In(3, 4, kind="bool"), (3, 4), (3, 4)),
        Sample(In(3, 1, kind="bool"), (4,), ()),
        Sample(In(3, kind="bool"), (3,), 1.5),
        Sample(In(kind="bool"), (3,), (3,)),
    ],
)
def where_(condition: Any, input: Any = None, other: Any = None) -> Any:
    """`input` where `condition` holds, else `other`; alone, the indices where it holds."""
    if input is None and other is None:
        return condition.nonzero(as_tuple=True)
    if not isinstance(condition, Tensor) or condition._array.dtype.kind != "b":
        found = condition.dtype if isinstance(condition, Tensor) else type(condition).__name__
        raise RuntimeError(f"where needs a bool tensor as its condition, got {found}")
    dtype = result_dtype(input, other)
    x, y = (v.to(dtype) if isinstance(v, Tensor) else _of_dtype(v, dtype) for v in (input, other))
    return where(condition, x, y)


def _of_dtype(number: Any, dtype: Any) -> Any:
    """A number as a 0-d array, so that NumPy gives the result this dtype."""
    try:
        return np.asarray(number, dtype.numpy)
    except OverflowError:
        raise RuntimeError(f"the number {number} does not fit into {dtype}") from None


attach(where=lambda self, condition, other: where_(condition, self, other))

# -- signs and rounding ------------------------------------------------------------------------


def _sign(x: Any) -> Any:
    """-1, 0 or 1; NaN has no sign, so 0."""
    return x.copy() if x.dtype.kind == "b" else np.subtract(x > 0, x < 0, dtype=x.dtype)


sign: Primitive = unary("sign", _sign, lambda g: zero(g), "sign(x)", promote=None, low=0.3)
sgn: Primitive = unary("sgn", _sign, lambda g: zero(g), "sign(x)", promote=None, low=0.3)
abs: Primitive = unary(
    "abs",
    np.abs,
    lambda g, x: g * sign(x),
    "abs(x)",
    promote=None,
    aliases=("absolute",),
    distinct=True,
)


def _rounding(name: str, function: Any, expression: str, public: bool = True) -> Primitive:
    """A function to whole numbers; integers stay as they are."""
    return unary(
        name,
        lambda x: function(x) if x.dtype.kind in "fV" else x.copy(),
        lambda g: zero(g),
        expression,
        promote=None,
        distinct=True,
        public=public,
    )


floor: Primitive = _rounding("floor", np.floor, "floor(x)")
ceil: Primitive = _rounding("ceil", np.ceil, "ceil(x)")
trunc: Primitive = _rounding("trunc", np.trunc, "trunc(x)")
round_half_even: Primitive = _rounding("round", np.rint, "rint(x)", public=False)


@op(
    "round",
    samples=lambda: [Sample(In(3, 4)), Sample(In(3), decimals=2), Sample(In(3), decimals=-1)],
    inplace=True,
)
def round_(input: Any, *, decimals: int = 0) -> Any:
    """Round to the nearest integer (halves to even), or to `decimals` places."""
    if decimals == 0:
        return round_half_even(input)
    scale = 10.0 ** builtins.abs(decimals)
    if decimals > 0:
        return round_half_even(input * scale) / scale
    return round_half_even(input / scale) * scale


@op(samples=lambda: [Sample((3, 4))], inplace=True)
def frac(input: Any) -> Any:
    """The fractional part: `x - trunc(x)`."""
    return input - trunc(input)


# -- exponentials and logarithms ---------------------------------------------------------------

exp: Primitive = unary("exp", np.exp, lambda g, out: g * out, "exp(x)")
exp2: Primitive = unary("exp2", np.exp2, lambda g, out: g * (out * math.log(2)), "exp2(x)")
expm1: Primitive = unary("expm1", np.expm1, lambda g, out: g * (out + 1), "expm1(x)")
log: Primitive = unary("log", np.log, lambda g, x: g / x, "log(x)", low=0.3)
log2: Primitive = unary("log2", np.log2, lambda g, x: g / (x * math.log(2)), "log2(x)", low=0.3)
log10: Primitive = unary(
    "log10", np.log10, lambda g, x: g / (x * math.log(10)), "log10(x)", low=0.3
)
log1p: Primitive = unary("log1p", np.log1p, lambda g, x: g / (x + 1), "log1p(x)", low=-0.5)
sqrt: Primitive = unary("sqrt", np.sqrt, lambda g, out: g / (2 * out), "sqrt(x)", low=0.3)
rsqrt: Primitive = unary(
    "rsqrt",
    lambda x: 1 / np.sqrt(x),
    lambda g, out: g * (-0.5 * (out * out * out)),
    "1 / sqrt(x)",
    low=0.3,
)


def _xlogy(x: Any, y: Any) -> Any:
    # A number would be float64 for np.log.
    y = x.dtype.type(y) if isinstance(y, (int, float)) else y
    return np.where(np.logical_and(np.equal(x, 0), np.logical_not(np.isnan(y))), 0, x * np.log(y))


xlogy: Primitive = binary(
    "xlogy",
    _xlogy,
    (
        lambda g, x, y: where(logical_and(equal(x, 0), less_equal(y, 0)), 0.0, g * log(y)),
        lambda g, x, y: g * (x / y),
    ),
    "where(x == 0 and y == y, 0, x * log(y))",
    promote="float",
    samples=lambda: [
        *[Sample(s.args[0], In(*s.args[1].shape, low=0.4)) for s in pairs()],
        Sample((3,), 2.0),
    ],
)

# -- activations that are primitives -----------------------------------------------------------


def _relu(x: Any) -> Any:
    if x.dtype.kind == "b":
        raise RuntimeError("relu of a bool tensor has no meaning; convert it first")
    return np.maximum(x, 0)


relu: Primitive = unary(
    "relu",
    _relu,
    lambda g, out: where(less_equal(out, 0), 0.0, g),
    "where(x <= 0, 0, x)",
    promote=None,
    distinct=True,
)


def _sigmoid(x: Any) -> Any:
    # tanh neither overflows nor loses digits at either end.
    return 0.5 * np.tanh(0.5 * x) + 0.5 if x.dtype.itemsize > 4 else _logistic(x)


def _logistic(x: Any) -> Any:
    return (1 / (1 + np.exp(-x))).astype(x.dtype)


tanh: Primitive = unary("tanh", np.tanh, lambda g, out: g * (1 - out * out), "tanh(x)")
sigmoid: Primitive = unary("sigmoid", _sigmoid, lambda g, out: g * ((1 - out) * out), "sigmoid(x)")

# -- dtype -------------------------------------------------------------------------------------

cast: Primitive = define(
    "cast",
    lambda x, *, dtype: x.astype(as_dtype(dtype).numpy),
    kind=ELEMENTWISE,
    vjp=lambda g, x_dtype: cast(g, dtype=as_dtype(x_dtype)),
    expression="cast(x)",
)

detach: Primitive = define("detach", lambda x: x, kind=ELEMENTWISE, inputs=("x",), expression="x")
clone_: Primitive = define(
    "clone", lambda x: x.copy(), kind=ELEMENTWISE, vjp=lambda g: g, expression="x"
)


@op(samples=lambda: [Sample((3, 4)), Sample(())])
def clone(input: Any, *, memory_format: Any = None) -> Any:
    """A copy with memory of its own; gradients flow through."""
    return clone_(input)


# -- Python operators --------------------------------------------------------------------------

operator("__add__", add, "__radd__", "__iadd__")
operator("__sub__", sub, "__rsub__", "__isub__")
operator("__mul__", mul, "__rmul__", "__imul__")
operator("__truediv__", div, "__rtruediv__", "__itruediv__")
operator("__floordiv__", floor_divide, "__rfloordiv__", "__ifloordiv__")
operator("__mod__", remainder, "__rmod__", "__imod__")
operator("__pow__", pow, "__rpow__", "__ipow__", check=_check_exponent)
operator("__eq__", equal)
operator("__ne__", not_equal)
operator("__lt__", less)
operator("__le__", less_equal)
operator("__gt__", greater)
operator("__ge__", greater_equal)
attach(
    __neg__=fast.unary(neg, np.negative),
    __pos__=lambda self: self,
    __abs__=fast.unary(abs, np.abs),
)
