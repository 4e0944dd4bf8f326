"""Operations on the bits of integers, and on bools as single bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.primitive import Primitive
from ..families import binary, operator, pairs, unary
from ..table import In, Sample, attach


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


bitwise_and: Primitive = binary(
    "bitwise_and",
    _on_bits(np.bitwise_and),
    None,
    "x & y",
    samples=_bits_samples,
    numbers="both",
    doc="`input & other` of integers or bools, with broadcasting.",
    example=("tapegrad.bitwise_and(tapegrad.tensor([12, 10]), 6)", "tensor([4, 2])"),
)
bitwise_or: Primitive = binary(
    "bitwise_or",
    _on_bits(np.bitwise_or),
    None,
    "x | y",
    samples=_bits_samples,
    numbers="both",
    doc="`input | other` of integers or bools, with broadcasting.",
    example=("tapegrad.bitwise_or(tapegrad.tensor([12, 10]), 6)", "tensor([14, 14])"),
)
bitwise_xor: Primitive = binary(
    "bitwise_xor",
    _on_bits(np.bitwise_xor),
    None,
    "x ^ y",
    samples=_bits_samples,
    numbers="both",
    doc="`input ^ other` of integers or bools, with broadcasting.",
    example=("tapegrad.bitwise_xor(tapegrad.tensor([12, 10]), 6)", "tensor([10, 12])"),
)
bitwise_not: Primitive = unary(
    "bitwise_not",
    _on_bits(np.invert),
    None,
    "~x",
    promote=None,
    kind="int",
    doc="`~x` of integers or bools: each bit inverted.",
    example=("tapegrad.bitwise_not(tapegrad.tensor([0, 5]))", "tensor([-1, -6])"),
)


def _shift(function: Any) -> Callable[..., Any]:
    on_bits = _on_bits(function)

    def kernel(x: Any, y: Any) -> Any:
        out = on_bits(x, y)
        # NumPy makes int8 of two bools.
        if out.dtype == np.int8 and not np.result_type(x, y) == np.int8:
            raise NotImplementedError("bools have one bit; convert them to integers to shift bits")
        return out

    return kernel


def _shift_samples() -> list[Sample]:
    return [Sample(In(5, kind="int", low=0, high=9), In(5, kind="int", low=0, high=4))]


left_shift: Primitive = binary(
    "bitwise_left_shift",
    _shift(np.left_shift),
    None,
    "x << y",
    samples=_shift_samples,
    numbers="both",
    doc="`input << other`: bits moved to the left, `input * 2^other`.",
    example=("tapegrad.bitwise_left_shift(tapegrad.tensor([1, 3]), 2)", "tensor([ 4, 12])"),
)
right_shift: Primitive = binary(
    "bitwise_right_shift",
    _shift(np.right_shift),
    None,
    "x >> y",
    samples=_shift_samples,
    numbers="both",
    doc="`input >> other`: bits moved to the right.",
    example=("tapegrad.bitwise_right_shift(tapegrad.tensor([8, 12]), 2)", "tensor([2, 3])"),
)

operator("__and__", bitwise_and, "__rand__", "__iand__")
operator("__or__", bitwise_or, "__ror__", "__ior__")
operator("__xor__", bitwise_xor, "__rxor__", "__ixor__")
operator("__lshift__", left_shift, "__rlshift__", "__ilshift__")
operator("__rshift__", right_shift, "__rrshift__", "__irshift__")
attach(__invert__=lambda self: bitwise_not(self))
