"""Elementwise operations: one block each.

A block has the kernel, the gradient rules, the scalar expression for native code, the samples and
the public names. Rules are written with operators and primitives only, so they differentiate again.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import fast, xp
from ..dtypes import as_dtype
from ..primitive import ELEMENTWISE, Primitive, define
from ..tensor import Tensor
from .table import In, Sample, op

# -- families ----------------------------------------------------------------------------------


def unary(
    name: str,
    kernel: Callable[..., Any],
    vjp: Callable[..., Any] | None,
    expression: str | None,
    *,
    low: float = -2.0,
    high: float = 2.0,
    promote: str | None = "float",
    aliases: tuple[str, ...] = (),
    inplace: bool = True,
    torch: str | None = "",
    public: bool = True,
    distinct: bool = False,
    reference: Callable[..., Any] | None = None,
    kind: str = "float",
) -> Primitive:
    """A function of one tensor, differentiable when `vjp` is given."""
    p = define(
        name,
        kernel,
        kind=ELEMENTWISE,
        vjp=vjp,
        inputs=("x",),
        promote=promote,
        expression=expression,
        reference=reference,
    )
    if public:

        def samples() -> list[Sample]:
            shapes = [(3, 4), (), (0, 3), (2, 1, 3)]
            return [
                Sample(In(*s, low=low, high=high, distinct=distinct, kind=kind)) for s in shapes
            ]

        body = fast.unary(p, kernel)
        body.__name__ = name
        body.__doc__ = f"`{name}` of each element."
        op(
            samples=samples,
            aliases=aliases,
            inplace=inplace,
            torch=torch,
            differentiable=vjp is not None,
            primitive=p,
        )(body)
    return p


def binary(
    name: str,
    kernel: Callable[..., Any],
    vjp: tuple[Callable[..., Any] | None, ...] | None,
    expression: str | None,
    *,
    promote: str = "same",
    samples: Callable[[], list[Sample]] | None = None,
    low: float = -2.0,
    high: float = 2.0,
    distinct: bool = False,
    aliases: tuple[str, ...] = (),
    inplace: bool = True,
    public: bool = True,
    torch: str | None = "",
    kind: str = "float",
) -> Primitive:
    """A function of two tensors, or of a tensor and a number, with broadcasting."""
    p = define(
        name,
        kernel,
        kind=ELEMENTWISE,
        vjp=vjp if vjp is not None else (None, None),
        inputs=("x", "y"),
        promote=promote,
        expression=expression,
    )
    if public:

        def default_samples() -> list[Sample]:
            return pairs(low=low, high=high, distinct=distinct, kind=kind)

        short = fast.binary(p, kernel)

        def body(input: Any, other: Any) -> Any:
            return short(input, other) if isinstance(input, Tensor) else p(input, other)

        body.__name__ = name
        body.__doc__ = f"`{name}` of two tensors, element by element, with broadcasting."
        op(
            samples=samples or default_samples,
            aliases=aliases,
            inplace=inplace,
            differentiable=vjp is not None,
            primitive=p,
            torch=torch,
        )(body)
    return p


def pairs(**domain: Any) -> list[Sample]:
    """Samples of two operands: equal shapes, broadcast both ways, 0-d, empty."""
    shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        ((3, 4), (3, 4)),
        ((3, 4), (4,)),
        ((3, 1), (1, 4)),
        ((2, 3, 4), ()),
        ((), (3,)),
        ((), ()),
        ((0, 3), (3,)),
    ]
    return [Sample(In(*a, **domain), In(*b, **domain)) for a, b in shapes]


def operator(
    name: str,
    p: Primitive,
    reflected: str | None = None,
    changing: str | None = None,
    check: Callable[[Any, Any], None] | None = None,
) -> None:
    """Attach a binary primitive as Python operators; `check` may refuse operands."""
    short = fast.binary(p, p.kernel)

    def accept(x: Tensor, y: Any) -> Any:
        if check is not None:
            check(x, y)
        return short(x, y) if _is_operand(y) else NotImplemented

    # The bare short path saves a call for the four operators of the hot loop.
    setattr(Tensor, name, short if name in ("__add__", "__sub__", "__mul__") else accept)
    if reflected is not None:
        back = fast.binary(p, p.kernel, reflected=True)

        def accept_reflected(x: Tensor, y: Any) -> Any:
            return back(x, y) if _is_operand(y) else NotImplemented

        setattr(Tensor, reflected, accept_reflected)
    if changing is not None:
        from .. import inplace

        setattr(Tensor, changing, lambda x, y: inplace.apply(p, x, (y,)))


def _is_operand(y: Any) -> bool:
    return isinstance(y, (Tensor, int, float, np.ndarray, np.generic)) or hasattr(
        y, "__cuda_array_interface__"
    )


# -- arithmetic --------------------------------------------------------------------------------

add = binary("add", np.add, (lambda g: g, lambda g: g), "x + y", public=False)
sub = binary("sub", np.subtract, (lambda g: g, lambda g: -g), "x - y", public=False)
mul = binary(
    "mul",
    np.multiply,
    (lambda g, y: g * y, lambda g, x: g * x),
    "x * y",
    aliases=("multiply",),
)
div = binary(
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
        whole = not any(_is_floating(x) for x in (input, other))
        return quotient.to(result_dtype(input, other)) if whole else quotient
    raise RuntimeError(f"rounding_mode must be None, 'trunc' or 'floor', got {rounding_mode!r}")


def _is_floating(x: Any) -> bool:
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


floor_divide = binary(
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
div_floor = binary(
    "div_floor",
    _floor_divide,
    (lambda g: zero(g), lambda g: zero(g)),
    "floor(x / y)",
    public=False,
)


def _remainder(x: Any, y: Any) -> Any:
    _no_integer_zero(x, y)
    return np.remainder(x, y)


remainder = binary(
    "remainder",
    _remainder,
    (lambda g: g, lambda g, x, y: -g * floor_divide(x, y)),
    "x - y * floor(x / y)",
    samples=lambda: [
        Sample(In(3, 4), In(4, low=0.7, high=0.9)),
        Sample(In(5), 0.75),
        Sample(In(5, kind="int", low=-9, high=9), 4),
    ],
)


def _fmod(x: Any, y: Any) -> Any:
    _no_integer_zero(x, y)
    return np.fmod(x, y)


fmod = binary(
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

zero = define("zero", lambda x: np.zeros_like(x), kind=ELEMENTWISE, expression="0")
neg = unary("neg", np.negative, lambda g: -g, "-x", promote=None, aliases=("negative",))
positive = unary("positive", np.positive, lambda g: g, "x", promote=None, inplace=False)
reciprocal = unary("reciprocal", lambda x: 1 / x, lambda g, out: -g * (out * out), "1 / x", low=0.5)
square = unary(
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


pow = binary("pow", _power, (_pow_base, _pow_exponent), "pow(x, y)", public=False)


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


@op("float_power", samples=lambda: [Sample(In(3, low=0.5), 2), Sample(In(3, low=0.5), (3,))])
def float_power(input: Any, exponent: Any) -> Any:
    """Power computed in float64."""
    from ..dtypes import float64

    base = input.to(float64) if isinstance(input, Tensor) else input
    return pow(base, exponent.to(float64) if isinstance(exponent, Tensor) else exponent)


# -- extremes ----------------------------------------------------------------------------------


def _winner(g: Any, mine: Any, other: Any, loses: Any) -> Any:
    """All of the gradient unless `mine` loses, half of it at ties."""
    return where(loses(mine, other), 0.0, where(equal(mine, other), g / 2, g))


maximum = binary(
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
minimum = binary(
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

fmax = binary(
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
fmin = binary(
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


clamp_numbers = define(
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


equal = comparison("eq", np.equal, "x == y")
not_equal = comparison("ne", np.not_equal, "x != y", ("not_equal",))
less = comparison("lt", np.less, "x < y", ("less",))
less_equal = comparison("le", np.less_equal, "x <= y", ("less_equal",))
greater = comparison("gt", np.greater, "x > y", ("greater",))
greater_equal = comparison("ge", np.greater_equal, "x >= y", ("greater_equal",))


def _logic_samples() -> list[Sample]:
    return [*pairs(kind="bool"), Sample(In(5, kind="int", low=0, high=2), In(5, kind="bool"))]


logical_and = binary(
    "logical_and", np.logical_and, None, "x and y", promote="bool", samples=_logic_samples
)
logical_or = binary(
    "logical_or", np.logical_or, None, "x or y", promote="bool", samples=_logic_samples
)
logical_xor = binary(
    "logical_xor", np.logical_xor, None, "x != y", promote="bool", samples=_logic_samples
)
logical_not = unary(
    "logical_not", np.logical_not, None, "x == 0", promote=None, inplace=False, kind="bool"
)


def _bits_samples() -> list[Sample]:
    return [*pairs(kind="int", low=0, high=9), Sample(In(4, kind="bool"), In(4, kind="bool"))]


def _on_bits(function: Any) -> Callable[..., Any]:
    def kernel(*operands: Any) -> Any:
        try:
            return function(*operands)
        except TypeError:
            raise NotImplementedError(
                f"{function.__name__} needs integer or bool tensors; compare first, as in x > 0, "
                "or convert with .long()"
            ) from None

    return kernel


bitwise_and = binary("bitwise_and", _on_bits(np.bitwise_and), None, "x & y", samples=_bits_samples)
bitwise_or = binary("bitwise_or", _on_bits(np.bitwise_or), None, "x | y", samples=_bits_samples)
bitwise_xor = binary("bitwise_xor", _on_bits(np.bitwise_xor), None, "x ^ y", samples=_bits_samples)
bitwise_not = unary("bitwise_not", _on_bits(np.invert), None, "~x", promote=None, kind="int")


def _shift_samples() -> list[Sample]:
    return [Sample(In(5, kind="int", low=0, high=9), In(5, kind="int", low=0, high=4))]


left_shift = binary(
    "bitwise_left_shift", _on_bits(np.left_shift), None, "x << y", samples=_shift_samples
)
right_shift = binary(
    "bitwise_right_shift", _on_bits(np.right_shift), None, "x >> y", samples=_shift_samples
)

isnan = unary("isnan", np.isnan, None, "x != x", promote=None, inplace=False)
isinf = unary("isinf", np.isinf, None, "isinf(x)", promote=None, inplace=False)
isfinite = unary("isfinite", np.isfinite, None, "isfinite(x)", promote=None, inplace=False)


def _where(condition: Any, x: Any, y: Any) -> Any:
    return np.where(condition, _beside(x, y), _beside(y, x))


def _beside(x: Any, other: Any) -> Any:
    """A Python number in the dtype of the array beside it: for NumPy it makes bfloat16 float64."""
    if x.__class__ is float and getattr(other, "dtype", _FLOAT).kind == "V":
        return other.dtype.type(x)
    return x


_FLOAT = np.dtype(float)

where = define(
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


Tensor.where = lambda self, condition, other: where_(condition, self, other)  # type: ignore[attr-defined,unused-ignore]

# -- signs and rounding ------------------------------------------------------------------------


def _sign(x: Any) -> Any:
    """-1, 0 or 1; NaN has no sign, so 0."""
    return x.copy() if x.dtype.kind == "b" else np.subtract(x > 0, x < 0, dtype=x.dtype)


sign = unary("sign", _sign, lambda g: zero(g), "sign(x)", promote=None, low=0.3)
sgn = unary("sgn", _sign, lambda g: zero(g), "sign(x)", promote=None, low=0.3)
abs = unary(
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


floor = _rounding("floor", np.floor, "floor(x)")
ceil = _rounding("ceil", np.ceil, "ceil(x)")
trunc = _rounding("trunc", np.trunc, "trunc(x)")
round_half_even = _rounding("round", np.rint, "rint(x)", public=False)


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


copysign = binary(
    "copysign",
    np.copysign,
    (lambda g, x, out: g * (sign(x) * sign(out)), lambda g: zero(g)),
    "copysign(x, y)",
    promote="float",
    distinct=True,
)


@op(samples=lambda: [Sample((3, 4), In(4, values=[0.1, 0.2, 0.3, 0.4]))], differentiable=False)
def heaviside(input: Any, values: Any) -> Any:
    """0 below zero, 1 above, `values` at zero; no gradients."""
    x = input.detach()
    return where(equal(x, 0), values.detach(), greater(x, 0).to(x.dtype))


# -- exponentials and logarithms ---------------------------------------------------------------

exp = unary("exp", np.exp, lambda g, out: g * out, "exp(x)")
exp2 = unary("exp2", np.exp2, lambda g, out: g * (out * math.log(2)), "exp2(x)")
expm1 = unary("expm1", np.expm1, lambda g, out: g * (out + 1), "expm1(x)")
log = unary("log", np.log, lambda g, x: g / x, "log(x)", low=0.3)
log2 = unary("log2", np.log2, lambda g, x: g / (x * math.log(2)), "log2(x)", low=0.3)
log10 = unary("log10", np.log10, lambda g, x: g / (x * math.log(10)), "log10(x)", low=0.3)
log1p = unary("log1p", np.log1p, lambda g, x: g / (x + 1), "log1p(x)", low=-0.5)
sqrt = unary("sqrt", np.sqrt, lambda g, out: g / (2 * out), "sqrt(x)", low=0.3)
rsqrt = unary(
    "rsqrt",
    lambda x: 1 / np.sqrt(x),
    lambda g, out: g * (-0.5 * (out * out * out)),
    "1 / sqrt(x)",
    low=0.3,
)
logaddexp = binary(
    "logaddexp",
    np.logaddexp,
    (lambda g, x, y: g * sigmoid(x - y), lambda g, x, y: g * sigmoid(y - x)),
    f"where(x == y, x + {math.log(2)!r}, maximum(x, y) + log1p(exp(-abs(x - y))))",
    inplace=False,
)
logaddexp2 = binary(
    "logaddexp2",
    np.logaddexp2,
    (
        lambda g, x, y: g * sigmoid((x - y) * math.log(2)),
        lambda g, x, y: g * sigmoid((y - x) * math.log(2)),
    ),
    f"where(x == y, x + 1, maximum(x, y) + log1p(exp2(-abs(x - y))) * {1 / math.log(2)!r})",
    inplace=False,
)

# -- trigonometry ------------------------------------------------------------------------------

sin = unary("sin", np.sin, lambda g, x: g * cos(x), "sin(x)")
cos = unary("cos", np.cos, lambda g, x: -g * sin(x), "cos(x)")
tan = unary("tan", np.tan, lambda g, out: g * (out * out + 1), "tan(x)", low=-1, high=1)
asin = unary(
    "asin",
    np.arcsin,
    lambda g, x: g * rsqrt(1 - x * x),
    "asin(x)",
    low=-0.8,
    high=0.8,
    aliases=("arcsin",),
)
acos = unary(
    "acos",
    np.arccos,
    lambda g, x: -g * rsqrt(1 - x * x),
    "acos(x)",
    low=-0.8,
    high=0.8,
    aliases=("arccos",),
)
atan = unary("atan", np.arctan, lambda g, x: g / (x * x + 1), "atan(x)", aliases=("arctan",))


def _over_squares(a: Any, x: Any, y: Any) -> Any:
    """a / (x^2 + y^2), and 0 at the origin."""
    total = x * x + y * y
    origin = equal(total, 0)
    return where(origin, 0.0, a / where(origin, 1.0, total))


atan2 = binary(
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
)
hypot = binary(
    "hypot",
    np.hypot,
    (lambda g, x, out: g * (x / out), lambda g, y, out: g * (y / out)),
    "sqrt(x * x + y * y)",
    low=0.5,
)
sinh = unary("sinh", np.sinh, lambda g, x: g * cosh(x), "sinh(x)")
cosh = unary("cosh", np.cosh, lambda g, x: g * sinh(x), "cosh(x)")
tanh = unary("tanh", np.tanh, lambda g, out: g * (1 - out * out), "tanh(x)")
asinh = unary(
    "asinh", np.arcsinh, lambda g, x: g * rsqrt(x * x + 1), "asinh(x)", aliases=("arcsinh",)
)
acosh = unary(
    "acosh",
    np.arccosh,
    lambda g, x: g * rsqrt(x * x - 1),
    "acosh(x)",
    low=1.3,
    high=3.0,
    aliases=("arccosh",),
)
atanh = unary(
    "atanh",
    np.arctanh,
    lambda g, x: g / (1 - x * x),
    "atanh(x)",
    low=-0.8,
    high=0.8,
    aliases=("arctanh",),
)

DEGREES = 180.0 / math.pi


def _scaled(name: str, factor: float) -> Primitive:
    return unary(
        name,
        lambda x: (x * factor).astype(x.dtype, copy=False),
        lambda g: g * factor,
        f"x * {factor!r}",
    )


deg2rad = _scaled("deg2rad", 1 / DEGREES)
rad2deg = _scaled("rad2deg", DEGREES)

# -- special functions -------------------------------------------------------------------------


def _special(name: str) -> Callable[[Any], Any]:
    """A function of scipy.special, computed in float32 for half precision."""

    def kernel(x: Any) -> Any:
        function = getattr(xp.special(x), name)
        wide = xp.widened(x) if hasattr(x, "dtype") else x
        out = function(wide)
        return out.astype(x.dtype) if wide is not x else out

    return kernel


_TWO_OVER_SQRT_PI = 2.0 / math.sqrt(math.pi)
erf = unary("erf", _special("erf"), lambda g, x: g * (_TWO_OVER_SQRT_PI * exp(-(x * x))), "erf(x)")
erfc = unary(
    "erfc", _special("erfc"), lambda g, x: g * (-_TWO_OVER_SQRT_PI * exp(-(x * x))), "erfc(x)"
)
erfinv = unary(
    "erfinv",
    _special("erfinv"),
    lambda g, out: g * ((0.5 * math.sqrt(math.pi)) * exp(out * out)),
    None,
    low=-0.8,
    high=0.8,
)


def _polygamma(x: Any, *, n: int) -> Any:
    return xp.special(x).polygamma(xp.module(x).asarray(n), x).astype(x.dtype)


polygamma_ = define(
    "polygamma",
    _polygamma,
    kind=ELEMENTWISE,
    promote="float",
    vjp=lambda g, x, n: g * polygamma_(x, n=n + 1),
)
digamma = unary(
    "digamma", _special("digamma"), lambda g, x: g * polygamma_(x, n=1), None, low=0.5, high=3.0
)
_gammaln = _special("gammaln")


def _lgamma(x: Any) -> Any:
    # SciPy says -inf at -inf, where the logarithm of the size of gamma is inf.
    return np.where(np.isinf(x), np.abs(x), _gammaln(x))


lgamma = unary("lgamma", _lgamma, lambda g, x: g * digamma(x), None, low=0.5, high=3.0)


@op(
    method=False,
    samples=lambda: [Sample(1, In(3, low=0.5, high=3.0)), Sample(2, In(3, low=0.5, high=3.0))],
)
def polygamma(n: int, input: Any) -> Any:
    """The n-th derivative of digamma."""
    return digamma(input) if n == 0 else polygamma_(input, n=n)


logit_ = unary(
    "logit",
    lambda x: np.log(x / (1 - x)),
    lambda g, x: where(logical_or(less(x, 0), greater(x, 1)), math.nan, g / (x * (1 - x))),
    "log(x / (1 - x))",
    public=False,
)


@op(samples=lambda: [Sample(In(3, 4, low=0.2, high=0.8)), Sample(In(5), eps=0.1)], inplace=True)
def logit(input: Any, eps: float | None = None) -> Any:
    """log(x / (1 - x)), with x first limited to eps..1-eps if `eps` is given."""
    return logit_(input if eps is None else clamp(input, eps, 1 - eps))


def _xlogy(x: Any, y: Any) -> Any:
    # A number would be float64 for np.log.
    y = np.asarray(y, x.dtype) if isinstance(y, (int, float)) else y
    return np.where(np.logical_and(np.equal(x, 0), np.logical_not(np.isnan(y))), 0, x * np.log(y))


xlogy = binary(
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


@op(samples=lambda: [Sample(In(3, 4, low=0.2))], inplace=True)
def sinc(input: Any) -> Any:
    """sin(pi x) / (pi x), and 1 at 0."""
    zero = equal(input, 0)
    x = where(zero, 1.0, input * math.pi)
    return where(zero, 1.0, sin(x) / x)


# -- activations that are primitives -----------------------------------------------------------


def _relu(x: Any) -> Any:
    if x.dtype.kind == "b":
        raise RuntimeError("relu of a bool tensor has no meaning; convert it first")
    return np.maximum(x, 0)


relu = unary(
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


sigmoid = unary("sigmoid", _sigmoid, lambda g, out: g * ((1 - out) * out), "sigmoid(x)")

# -- blends ------------------------------------------------------------------------------------


@op(
    samples=lambda: [Sample((3,), (3,), 0.3), Sample((3,), (3,), In(3, low=0.1, high=0.9))],
    inplace=True,
)
def lerp(input: Any, end: Any, weight: Any) -> Any:
    """input + weight * (end - input)."""
    return input + weight * (end - input)


@op(samples=lambda: [Sample((3,), (3,), (3,), value=0.5)], inplace=True)
def addcmul(input: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Any:
    """input + value * tensor1 * tensor2."""
    product = tensor1 * tensor2
    return input + (product if value == 1 else product * number_for(product, value))


def number_for(x: Any, value: Any) -> Any:
    """A factor for the tensor `x`: integer tensors take its whole part, as in PyTorch."""
    kind = x._array.dtype.kind
    if kind in "fV" or isinstance(value, Tensor):
        return value
    return bool(value) if kind == "b" else int(value)


@op(samples=lambda: [Sample((3,), (3,), In(3, low=0.5), value=0.5)], inplace=True)
def addcdiv(input: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Any:
    """input + value * tensor1 / tensor2."""
    if not any(_is_floating(x) for x in (input, tensor1, tensor2)):
        raise RuntimeError("addcdiv needs a floating tensor; divide integers with div and add")
    quotient = tensor1 / tensor2
    return input + (quotient if value == 1 else quotient * value)


@op(
    samples=lambda: [
        Sample(In(values=[1.0, math.nan, math.inf, -math.inf], grad=False)),
        Sample(In(values=[1.0, math.nan, math.inf, -math.inf]), posinf=3.0, neginf=-4.0),
        Sample((3,), nan=2.0),
    ],
    inplace=True,
)
def nan_to_num(
    input: Any, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Any:
    """Replace NaN and infinities by numbers (by default 0 and the largest finite ones)."""
    from ..dtypes import finfo

    if input._array.dtype.kind not in "fV":
        return input.clone()
    limits = finfo(input.dtype)
    out = where(isnan(input), nan, input)
    out = where(equal(input, math.inf), limits.max if posinf is None else posinf, out)
    return where(equal(input, -math.inf), limits.min if neginf is None else neginf, out)


# -- dtype -------------------------------------------------------------------------------------

cast = define(
    "cast",
    lambda x, *, dtype: x.astype(as_dtype(dtype).numpy),
    kind=ELEMENTWISE,
    vjp=lambda g, x_dtype: cast(g, dtype=as_dtype(x_dtype)),
    expression="cast(x)",
)

detach = define("detach", lambda x: x, kind=ELEMENTWISE, inputs=("x",), expression="x")
clone_ = define("clone", lambda x: x.copy(), kind=ELEMENTWISE, vjp=lambda g: g, expression="x")


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
operator("__and__", bitwise_and, "__rand__", "__iand__")
operator("__or__", bitwise_or, "__ror__", "__ior__")
operator("__xor__", bitwise_xor, "__rxor__", "__ixor__")
operator("__lshift__", left_shift, "__rlshift__", "__ilshift__")
operator("__rshift__", right_shift, "__rrshift__", "__irshift__")
Tensor.__neg__ = fast.unary(neg, np.negative)  # type: ignore[method-assign,assign,unused-ignore]
Tensor.__pos__ = lambda self: self  # type: ignore[method-assign,assign,unused-ignore]
Tensor.__abs__ = fast.unary(abs, np.abs)  # type: ignore[method-assign,assign,unused-ignore]
Tensor.__invert__ = lambda self: bitwise_not(self)  # type: ignore[method-assign,assign,unused-ignore]
Tensor.__hash__ = lambda self: id(self)  # type: ignore[method-assign,assign,unused-ignore]
