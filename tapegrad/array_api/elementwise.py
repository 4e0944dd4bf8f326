"""Elementwise functions: those of the main namespace, with the standard's names and promotion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core import dtypes
from ..core.tensor import Tensor
from .operands import as_tensor, computed, operation, same_dtype

#: by name in the standard: the name in the main namespace
UNARY = {
    **{n: n for n in ("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos")},
    **{n: n for n in ("cosh", "exp", "floor", "isfinite", "isinf", "isnan", "log")},
    **{n: n for n in ("log1p", "log2", "log10", "logical_not", "reciprocal", "signbit")},
    **{n: n for n in ("sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc")},
    "bitwise_invert": "bitwise_not",
    "negative": "neg",
}
BINARY = {
    **{n: n for n in ("add", "atan2", "bitwise_and", "bitwise_left_shift", "bitwise_or")},
    **{n: n for n in ("bitwise_right_shift", "bitwise_xor", "copysign", "hypot")},
    **{n: n for n in ("logaddexp", "logical_and", "logical_or", "logical_xor", "maximum")},
    **{n: n for n in ("minimum", "nextafter", "pow", "remainder", "greater", "greater_equal")},
    **{n: n for n in ("less", "less_equal", "not_equal")},
    "divide": "div",
    "equal": "eq",
    "multiply": "mul",
    "subtract": "sub",
}


def _unary(name: str, ours: str) -> Callable[..., Tensor]:
    def function(x: Tensor, /) -> Tensor:
        found: Tensor = operation(ours)(as_tensor(x, name))
        return found

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`{name}` of each element."
    return function


def _binary(name: str, ours: str) -> Callable[..., Tensor]:
    def function(x1: Any, x2: Any, /) -> Tensor:
        a, b = same_dtype(x1, x2)
        found: Tensor = operation(ours)(a, b)
        return found

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`{name}` of two tensors, or of a tensor and a number, with broadcasting."
    return function


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _unary(name, ours) for name, ours in UNARY.items()},
    **{name: _binary(name, ours) for name, ours in BINARY.items()},
}
globals().update(FUNCTIONS)


def positive(x: Tensor, /) -> Tensor:
    """A copy of a tensor of numbers."""
    return as_tensor(x, "positive").clone()


def conj(x: Tensor, /) -> Tensor:
    """The complex conjugate of each element."""
    x = as_tensor(x, "conj")
    return x.conj() if x.dtype.is_complex else x.clone()


def real(x: Tensor, /) -> Tensor:
    """The real part of each element."""
    x = as_tensor(x, "real")
    return x.real if x.dtype.is_complex else x.clone()


def imag(x: Tensor, /) -> Tensor:
    """The imaginary part of each element."""
    x = as_tensor(x, "imag")
    return x.imag if x.dtype.is_complex else x * 0


def sign(x: Tensor, /) -> Tensor:
    """The sign -1, 0 or 1; NaN for NaN; x / |x| for complex numbers."""
    x = as_tensor(x, "sign")
    if x.dtype.category < dtypes.FLOAT:
        return computed("sign", x)
    found = x.sgn() if x.dtype.is_complex else x.sign()
    found = operation("where")(x == 0, 0.0, found) if x.dtype.is_complex else found
    return computed("where", x.isnan(), x, found)


def expm1(x: Tensor, /) -> Tensor:
    """`e^x - 1` of each element, accurate near 0."""
    x = as_tensor(x, "expm1")
    found: Tensor = operation("expm1")(x)
    if x.dtype.is_complex:  # at 0, infinity and NaN, e^x - 1 has the right limits
        inside = operation("logical_and")(x.isfinite(), x != 0)
        found = operation("where")(inside, found, x.exp() - 1)
    return found


def floor_divide(x1: Any, x2: Any, /) -> Tensor:
    """The largest integer that is at most x1 / x2, in their common dtype.

    An infinite quotient stays infinite, where PyTorch returns NaN.
    """
    a, b = same_dtype(x1, x2)
    found: Tensor = operation("floor_divide")(a, b)
    if a.dtype.category < dtypes.FLOAT:
        return found
    quotient = a / b
    rough = operation("logical_or")(quotient.isinf(), b.isinf())
    limit = operation("where")(b.isinf(), quotient, quotient.floor())
    return computed("where", rough, limit, found)


def round(x: Tensor, /) -> Tensor:
    """Each element rounded to the nearest integer, halves to even; complex numbers by parts."""
    x = as_tensor(x, "round")
    if x.dtype.is_complex:
        return computed("complex", x.real.round(), x.imag.round())
    return x.round() if x.dtype.is_floating_point else x.clone()


def clip(x: Tensor, /, min: Any = None, max: Any = None) -> Tensor:
    """Each element limited to the range from `min` to `max`; the dtype stays.

    >>> from tapegrad import array_api as xp
    >>> xp.clip(xp.asarray([1, 5, 9]), 2, 6)
    tensor([2, 5, 6])
    """
    x = as_tensor(x, "clip")
    out = x
    for bound, function in ((min, "maximum"), (max, "minimum")):
        if bound is None:
            continue
        limit = bound
        if not isinstance(bound, Tensor):  # a float is exact in float64, whatever the default is
            wide = dtypes.float64 if isinstance(bound, float) else None
            limit = operation("tensor")(bound, dtype=wide)
        wide = dtypes.promote_types(out.dtype, limit.dtype)
        if wide.category > x.dtype.category:  # a float limit for integers
            wide = limit.dtype
        elif not isinstance(bound, Tensor):
            wide = x.dtype
        out = operation(function)(out.to(wide), limit.to(wide))
    out = out.to(x.dtype)
    return out.clone() if out is x else out


__all__ = [
    *FUNCTIONS,
    "clip",
    "conj",
    "expm1",
    "floor_divide",
    "imag",
    "positive",
    "real",
    "round",
    "sign",
]
