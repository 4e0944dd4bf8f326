"""Descriptions of the functions that `unary` and `binary` make, each with an example.

`families.py` makes them docstrings: functions made by a family have no body that could hold one.
"""

from __future__ import annotations

#: name of a public function -> its docstring
DESCRIPTIONS: dict[str, str] = {
    "mul": """`input * other`, element by element, with broadcasting.

>>> import tapegrad
>>> tapegrad.mul(tapegrad.tensor([1.0, 2.0]), tapegrad.tensor([10.0, 20.0]))
tensor([10., 40.])
""",
    "floor_divide": """`input / other` rounded down, with broadcasting; no gradients.

>>> import tapegrad
>>> tapegrad.floor_divide(tapegrad.tensor([7.0, -7.0]), 2)
tensor([ 3., -4.])
""",
    "remainder": """`input - floor(input / other) * other`: the remainder with the sign of `other`.

>>> import tapegrad
>>> tapegrad.remainder(tapegrad.tensor([7.0, -7.0]), 4)
tensor([3., 1.])
""",
    "fmod": """`input - trunc(input / other) * other`: the remainder with the sign of `input`.

>>> import tapegrad
>>> tapegrad.fmod(tapegrad.tensor([7.0, -7.0]), 4)
tensor([ 3., -3.])
""",
    "neg": """`-x` of each element.

>>> import tapegrad
>>> tapegrad.neg(tapegrad.tensor([1.0, -2.0]))
tensor([-1.,  2.])
""",
    "positive": """`x` of each element, as `+x`.

>>> import tapegrad
>>> tapegrad.positive(tapegrad.tensor([1.0, -2.0]))
tensor([ 1., -2.])
""",
    "reciprocal": """`1 / x` of each element.

>>> import tapegrad
>>> tapegrad.reciprocal(tapegrad.tensor([2.0, 4.0]))
tensor([0.5000, 0.2500])
""",
    "square": """`x * x` of each element.

>>> import tapegrad
>>> tapegrad.square(tapegrad.tensor([2.0, -3.0]))
tensor([4., 9.])
""",
    "maximum": """The larger of two elements, with broadcasting; NaN if one is NaN.

At ties each gets half of the gradient.

>>> import tapegrad
>>> tapegrad.maximum(tapegrad.tensor([1.0, 5.0]), tapegrad.tensor([2.0, 3.0]))
tensor([2., 5.])
""",
    "minimum": """The smaller of two elements, with broadcasting; NaN if one is NaN.

At ties each gets half of the gradient.

>>> import tapegrad
>>> tapegrad.minimum(tapegrad.tensor([1.0, 5.0]), tapegrad.tensor([2.0, 3.0]))
tensor([1., 3.])
""",
    "fmax": """The larger of two elements, with broadcasting; if one is NaN, the other.

>>> import tapegrad
>>> tapegrad.fmax(tapegrad.tensor([1.0, tapegrad.nan]), tapegrad.tensor([2.0, 3.0]))
tensor([2., 3.])
""",
    "fmin": """The smaller of two elements, with broadcasting; if one is NaN, the other.

>>> import tapegrad
>>> tapegrad.fmin(tapegrad.tensor([1.0, tapegrad.nan]), tapegrad.tensor([2.0, 3.0]))
tensor([1., 3.])
""",
    "sign": """-1, 0 or 1: the sign of each element.

>>> import tapegrad
>>> tapegrad.sign(tapegrad.tensor([-2.0, 0.0, 3.0]))
tensor([-1.,  0.,  1.])
""",
    "sgn": """-1, 0 or 1: the sign of each element.

>>> import tapegrad
>>> tapegrad.sgn(tapegrad.tensor([-2.0, 0.0, 3.0]))
tensor([-1.,  0.,  1.])
""",
    "abs": """`|x|`, the absolute value of each element; the gradient at 0 is 0.

>>> import tapegrad
>>> tapegrad.abs(tapegrad.tensor([-2.0, 3.0]))
tensor([2., 3.])
""",
    "floor": """Each element rounded down.

>>> import tapegrad
>>> tapegrad.floor(tapegrad.tensor([1.5, -1.5]))
tensor([ 1., -2.])
""",
    "ceil": """Each element rounded up.

>>> import tapegrad
>>> tapegrad.ceil(tapegrad.tensor([1.2, -1.5]))
tensor([ 2., -1.])
""",
    "trunc": """Each element rounded towards 0.

>>> import tapegrad
>>> tapegrad.trunc(tapegrad.tensor([1.5, -1.5]))
tensor([ 1., -1.])
""",
    "exp": """`e^x` of each element.

>>> import tapegrad
>>> tapegrad.exp(tapegrad.tensor([0.0, 1.0]))
tensor([1.0000, 2.7183])
""",
    "exp2": """`2^x` of each element.

>>> import tapegrad
>>> tapegrad.exp2(tapegrad.tensor([0.0, 3.0]))
tensor([1., 8.])
""",
    "expm1": """`e^x - 1` of each element, accurate for small x.

>>> import tapegrad
>>> tapegrad.expm1(tapegrad.tensor([0.0, 1.0]))
tensor([0.0000, 1.7183])
""",
    "log": """The natural logarithm of each element; NaN below 0.

>>> import tapegrad
>>> tapegrad.log(tapegrad.tensor([1.0, 10.0]))
tensor([0.0000, 2.3026])
""",
    "log2": """The logarithm to base 2 of each element.

>>> import tapegrad
>>> tapegrad.log2(tapegrad.tensor([1.0, 8.0]))
tensor([0., 3.])
""",
    "log10": """The logarithm to base 10 of each element.

>>> import tapegrad
>>> tapegrad.log10(tapegrad.tensor([1.0, 20.0]))
tensor([0.0000, 1.3010])
""",
    "log1p": """`log(1 + x)` of each element, accurate for small x.

>>> import tapegrad
>>> tapegrad.log1p(tapegrad.tensor([0.0, 1.0]))
tensor([0.0000, 0.6931])
""",
    "sqrt": """The square root of each element; NaN below 0.

>>> import tapegrad
>>> tapegrad.sqrt(tapegrad.tensor([4.0, 9.0]))
tensor([2., 3.])
""",
    "rsqrt": """`1 / sqrt(x)` of each element.

>>> import tapegrad
>>> tapegrad.rsqrt(tapegrad.tensor([4.0, 16.0]))
tensor([0.5000, 0.2500])
""",
    "xlogy": """`input * log(other)`, with broadcasting; 0 where `input` is 0.

>>> import tapegrad
>>> tapegrad.xlogy(tapegrad.tensor([0.0, 2.0]), tapegrad.tensor([0.0, 3.0]))
tensor([0.0000, 2.1972])
""",
    "relu": """`max(x, 0)` of each element.

>>> import tapegrad
>>> tapegrad.relu(tapegrad.tensor([-1.0, 2.0]))
tensor([0., 2.])
""",
    "tanh": """The hyperbolic tangent of each element.

>>> import tapegrad
>>> tapegrad.tanh(tapegrad.tensor([0.0, 1.0]))
tensor([0.0000, 0.7616])
""",
    "sigmoid": """`1 / (1 + e^-x)` of each element.

>>> import tapegrad
>>> tapegrad.sigmoid(tapegrad.tensor([0.0, 2.0]))
tensor([0.5000, 0.8808])
""",
    "eq": """`input == other`, element by element, with broadcasting.

>>> import tapegrad
>>> tapegrad.eq(tapegrad.tensor([1, 2, 3]), 2)
tensor([False,  True, False])
""",
    "ne": """`input != other`, element by element, with broadcasting.

>>> import tapegrad
>>> tapegrad.ne(tapegrad.tensor([1, 2, 3]), 2)
tensor([ True, False,  True])
""",
    "lt": """`input < other`, element by element, with broadcasting.

>>> import tapegrad
>>> tapegrad.lt(tapegrad.tensor([1, 2, 3]), 2)
tensor([ True, False, False])
""",
    "le": """`input <= other`, element by element, with broadcasting.

>>> import tapegrad
>>> tapegrad.le(tapegrad.tensor([1, 2, 3]), 2)
tensor([ True,  True, False])
""",
    "gt": """`input > other`, element by element, with broadcasting.

>>> import tapegrad
>>> tapegrad.gt(tapegrad.tensor([1, 2, 3]), 2)
tensor([False, False,  True])
""",
    "ge": """`input >= other`, element by element, with broadcasting.

>>> import tapegrad
>>> tapegrad.ge(tapegrad.tensor([1, 2, 3]), 2)
tensor([False,  True,  True])
""",
    "logical_and": """Whether both elements are true (not 0), with broadcasting.

>>> import tapegrad
>>> tapegrad.logical_and(tapegrad.tensor([True, True]), tapegrad.tensor([True, False]))
tensor([ True, False])
""",
    "logical_or": """Whether at least one of two elements is true (not 0), with broadcasting.

>>> import tapegrad
>>> tapegrad.logical_or(tapegrad.tensor([True, False]), tapegrad.tensor([False, False]))
tensor([ True, False])
""",
    "logical_xor": """Whether exactly one of two elements is true (not 0), with broadcasting.

>>> import tapegrad
>>> tapegrad.logical_xor(tapegrad.tensor([True, True]), tapegrad.tensor([True, False]))
tensor([False,  True])
""",
    "logical_not": """Whether each element is false (0).

>>> import tapegrad
>>> tapegrad.logical_not(tapegrad.tensor([True, False]))
tensor([False,  True])
""",
    "isnan": """Whether each element is NaN.

>>> import tapegrad
>>> tapegrad.isnan(tapegrad.tensor([1.0, tapegrad.nan]))
tensor([False,  True])
""",
    "isinf": """Whether each element is inf or -inf.

>>> import tapegrad
>>> tapegrad.isinf(tapegrad.tensor([1.0, tapegrad.inf]))
tensor([False,  True])
""",
    "isfinite": """Whether each element is neither NaN nor infinite.

>>> import tapegrad
>>> tapegrad.isfinite(tapegrad.tensor([1.0, tapegrad.inf]))
tensor([ True, False])
""",
    "copysign": """The size of `input` with the sign of `other`, with broadcasting.

>>> import tapegrad
>>> tapegrad.copysign(tapegrad.tensor([1.0, 2.0]), tapegrad.tensor([-3.0, 3.0]))
tensor([-1.,  2.])
""",
    "logaddexp": """`log(e^input + e^other)`, with broadcasting and without overflow.

>>> import tapegrad
>>> tapegrad.logaddexp(tapegrad.tensor([0.0, 1000.0]), tapegrad.tensor([0.0, 1000.0]))
tensor([6.9315e-01, 1.0007e+03])
""",
    "logaddexp2": """`log2(2^input + 2^other)`, with broadcasting and without overflow.

>>> import tapegrad
>>> tapegrad.logaddexp2(tapegrad.tensor([0.0, 1000.0]), tapegrad.tensor([0.0, 1000.0]))
tensor([1.000e+00, 1.001e+03])
""",
    "sin": """The sine of each element, in radians.

>>> import tapegrad
>>> tapegrad.sin(tapegrad.tensor([0.0, 1.0]))
tensor([0.0000, 0.8415])
""",
    "cos": """The cosine of each element, in radians.

>>> import tapegrad
>>> tapegrad.cos(tapegrad.tensor([0.0, 1.0]))
tensor([1.0000, 0.5403])
""",
    "tan": """The tangent of each element, in radians.

>>> import tapegrad
>>> tapegrad.tan(tapegrad.tensor([0.0, 1.0]))
tensor([0.0000, 1.5574])
""",
    "asin": """The angle in radians, -pi/2 to pi/2, with this sine; NaN outside -1..1.

>>> import tapegrad
>>> tapegrad.asin(tapegrad.tensor([0.0, 1.0]))
tensor([0.0000, 1.5708])
""",
    "acos": """The angle in radians, 0 to pi, with this cosine; NaN outside -1..1.

>>> import tapegrad
>>> tapegrad.acos(tapegrad.tensor([0.0, 1.0]))
tensor([1.5708, 0.0000])
""",
    "atan": """The angle in radians, -pi/2 to pi/2, with this tangent.

>>> import tapegrad
>>> tapegrad.atan(tapegrad.tensor([0.0, 1.0]))
tensor([0.0000, 0.7854])
""",
    "atan2": """The angle in radians, -pi to pi, of the point (x=`other`, y=`input`).

>>> import tapegrad
>>> tapegrad.atan2(tapegrad.tensor([1.0, 1.0]), tapegrad.tensor([1.0, -1.0]))
tensor([0.7854, 2.3562])
""",
    "hypot": """`sqrt(input^2 + other^2)`, with broadcasting.

>>> import tapegrad
>>> tapegrad.hypot(tapegrad.tensor([3.0, 5.0]), tapegrad.tensor([4.0, 12.0]))
tensor([ 5., 13.])
""",
    "sinh": """The hyperbolic sine of each element: (e^x - e^-x) / 2.

>>> import tapegrad
>>> tapegrad.sinh(tapegrad.tensor([0.0, 1.0]))
tensor([0.0000, 1.1752])
""",
    "cosh": """The hyperbolic cosine of each element: (e^x + e^-x) / 2.

>>> import tapegrad
>>> tapegrad.cosh(tapegrad.tensor([0.0, 1.0]))
tensor([1.0000, 1.5431])
""",
    "asinh": """The inverse of `sinh` of each element.

>>> import tapegrad
>>> tapegrad.asinh(tapegrad.tensor([0.0, 1.0]))
tensor([0.0000, 0.8814])
""",
    "acosh": """The inverse of `cosh` of each element; NaN below 1.

>>> import tapegrad
>>> tapegrad.acosh(tapegrad.tensor([1.0, 2.0]))
tensor([0.0000, 1.3170])
""",
    "atanh": """The inverse of `tanh` of each element; NaN outside -1..1.

>>> import tapegrad
>>> tapegrad.atanh(tapegrad.tensor([0.0, 0.5]))
tensor([0.0000, 0.5493])
""",
    "deg2rad": """Degrees to radians: `x * pi / 180`.

>>> import tapegrad
>>> tapegrad.deg2rad(tapegrad.tensor([90.0, 180.0]))
tensor([1.5708, 3.1416])
""",
    "rad2deg": """Radians to degrees: `x * 180 / pi`.

>>> import tapegrad
>>> tapegrad.rad2deg(tapegrad.tensor([0.0, 1.0]))
tensor([ 0.0000, 57.2958])
""",
    "erf": """The error function of each element: 2 / sqrt(pi) * integral of e^(-t^2) from 0 to x.

>>> import tapegrad
>>> tapegrad.erf(tapegrad.tensor([0.0, 1.0]))
tensor([0.0000, 0.8427])
""",
    "erfc": """`1 - erf(x)` of each element, accurate for large x.

>>> import tapegrad
>>> tapegrad.erfc(tapegrad.tensor([0.0, 1.0]))
tensor([1.0000, 0.1573])
""",
    "erfinv": """The inverse of `erf` of each element, for -1 < x < 1.

>>> import tapegrad
>>> tapegrad.erfinv(tapegrad.tensor([0.0, 0.5]))
tensor([0.0000, 0.4769])
""",
    "digamma": """The derivative of `lgamma` at each element.

>>> import tapegrad
>>> tapegrad.digamma(tapegrad.tensor([1.0, 2.0]))
tensor([-0.5772,  0.4228])
""",
    "lgamma": """The logarithm of |gamma(x)| of each element; gamma(n) = (n - 1)! for whole n.

>>> import tapegrad
>>> tapegrad.lgamma(tapegrad.tensor([1.0, 4.0]))
tensor([0.0000, 1.7918])
""",
    "bitwise_and": """`input & other` of integers or bools, with broadcasting.

>>> import tapegrad
>>> tapegrad.bitwise_and(tapegrad.tensor([12, 10]), 6)
tensor([4, 2])
""",
    "bitwise_or": """`input | other` of integers or bools, with broadcasting.

>>> import tapegrad
>>> tapegrad.bitwise_or(tapegrad.tensor([12, 10]), 6)
tensor([14, 14])
""",
    "bitwise_xor": """`input ^ other` of integers or bools, with broadcasting.

>>> import tapegrad
>>> tapegrad.bitwise_xor(tapegrad.tensor([12, 10]), 6)
tensor([10, 12])
""",
    "bitwise_not": """`~x` of integers or bools: each bit inverted.

>>> import tapegrad
>>> tapegrad.bitwise_not(tapegrad.tensor([0, 5]))
tensor([-1, -6])
""",
    "bitwise_left_shift": """`input << other`: bits moved to the left, `input * 2^other`.

>>> import tapegrad
>>> tapegrad.bitwise_left_shift(tapegrad.tensor([1, 3]), 2)
tensor([ 4, 12])
""",
    "bitwise_right_shift": """`input >> other`: bits moved to the right.

>>> import tapegrad
>>> tapegrad.bitwise_right_shift(tapegrad.tensor([8, 12]), 2)
tensor([2, 3])
""",
}
