"""The parts of numbers: mantissas and exponents, neighbours among floats, common divisors.

Blocks like those of `arithmetic.py`. Imported at first use (`late.py`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...core import numeric, xp
from ...core.batch_rules import leading
from ...core.dtypes import get_default_dtype
from ...core.primitive import ELEMENTWISE, OPAQUE, Primitive, define
from ...core.tensor import Tensor
from ..families import binary
from ..precision import check_floating
from ..table import In, Sample, not_a_tensor, op
from .arithmetic import is_floating, pow
from .comparison import equal, where
from .rounding import zero

# -- divisors ----------------------------------------------------------------------------------


def _of_integers(function: Any) -> Any:
    def kernel(x: Any, y: Any) -> Any:
        for operand in (x, y):
            if hasattr(operand, "dtype") and not numeric.is_integer(operand.dtype):
                raise NotImplementedError(
                    f"{function.__name__} needs integer tensors, got {operand.dtype}"
                )
        return function(x, y)

    return kernel


def _divisor_samples() -> list[Sample]:
    def whole(*shape: int) -> In:
        return In(*shape, kind="int", low=-12, high=13)

    return [Sample(whole(3, 4), whole(4)), Sample(whole(), whole(3)), Sample(whole(0, 3), whole(3))]


gcd: Primitive = binary(
    "gcd",
    _of_integers(np.gcd),
    None,
    None,
    samples=_divisor_samples,
    numbers="none",
    doc="The greatest common divisor of integers, not negative; that of 0 and 0 is 0.",
    example=("tapegrad.gcd(tapegrad.tensor([12, 7]), tapegrad.tensor([18, 0]))", "tensor([6, 7])"),
)
lcm: Primitive = binary(
    "lcm",
    _of_integers(np.lcm),
    None,
    None,
    samples=_divisor_samples,
    numbers="none",
    doc="The least common multiple of integers, not negative; 0 if one of them is 0.",
    example=("tapegrad.lcm(tapegrad.tensor([4, 7]), tapegrad.tensor([6, 0]))", "tensor([12,  0])"),
)

# -- neighbours --------------------------------------------------------------------------------

nextafter: Primitive = binary(
    "nextafter",
    np.nextafter,
    (lambda g, x, y: where(equal(x, y), 0.0, g), lambda g: zero(g)),
    None,
    promote="floats",
    samples=lambda: [
        Sample((3, 4), (4,)),
        Sample((3,), ()),
    ],
    numbers="none",
    doc="The float next to `input` towards `other`.",
    example=(
        "tapegrad.nextafter(tapegrad.tensor([1.0]), tapegrad.tensor([2.0])) - 1",
        "tensor([1.1921e-07])",
    ),
)

# -- mantissas and exponents -------------------------------------------------------------------


class Mantissa(NamedTuple):
    """x = mantissa * 2**exponent, with a mantissa between 0.5 and 1."""

    mantissa: Tensor
    exponent: Tensor


def _frexp(x: Any) -> Any:
    wide = xp.widened(x)
    mantissa, exponent = np.frexp(wide)
    return mantissa.astype(x.dtype, copy=False), exponent.astype(np.int32, copy=False)


frexp_: Primitive = define(
    "frexp",
    _frexp,
    kind=OPAQUE,
    outputs=("mantissa", "exponent"),
    abstract=lambda x: (x, (x[0], np.dtype(np.int32))),
    joint=lambda g, exponent, needs: (None if g[0] is None else scaled_down_(g[0], exponent),),
    batch=leading,
)
scaled_down_: Primitive = define(
    "scaled_down",
    lambda x, exponent: np.ldexp(xp.widened(x), -exponent).astype(x.dtype, copy=False),
    kind=ELEMENTWISE,
    abstract=lambda x, exponent: x,
    vjp=(lambda g, exponent: scaled_down_(g, exponent), None),
)


@op(samples=lambda: [Sample(In(3, 4, distinct=True)), Sample(In()), Sample((0, 3))])
def frexp(input: Tensor) -> Mantissa:
    """Each element as mantissa * 2**exponent; mantissas lie between 0.5 and 1 in size.

    >>> import tapegrad
    >>> mantissa, exponent = tapegrad.frexp(tapegrad.tensor([1.0, 6.0, -0.75]))
    >>> mantissa, exponent.tolist()
    (tensor([ 0.5000,  0.7500, -0.7500]), [1, 3, 0])
    """
    check_floating(input, "frexp")
    return Mantissa(*frexp_(input))


@op(
    casts=True,
    samples=lambda: [
        Sample((3, 4), In(4, kind="int", low=0, high=4)),  # PyTorch's gradient is 0 below 0
        Sample((3,), (3,)),
    ],
    inplace=True,
)
def ldexp(input: Tensor, other: Tensor) -> Any:
    """input * 2**other.

    >>> import tapegrad
    >>> tapegrad.ldexp(tapegrad.tensor([1.0, 3.0]), tapegrad.tensor([2, -1]))
    tensor([4.0000, 1.5000])
    """
    if not isinstance(other, Tensor):
        raise not_a_tensor("ldexp", other)
    if numeric.is_exact(other._array.dtype):
        # Integer exponents do not affect the dtype.
        other = other.to(input.dtype if is_floating(input) else get_default_dtype())
    return input * pow(2.0, other)
