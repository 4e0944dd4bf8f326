"""Blends of several tensors, and replacing what is not a number."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

from ...core import numeric
from ...core.complexes import fitting
from ...core.dtypes import finfo
from ...core.tensor import Tensor
from ..precision import check_floating, check_numbers, is_half, rounded, widened
from ..table import In, Sample, op
from .arithmetic import in_common_dtype, is_floating
from .comparison import equal, isnan, where
from .complexes import complex_, is_complex

if TYPE_CHECKING:
    from ..annotations import Number, Operand


@op(
    casts=True,
    samples=lambda: [Sample((3,), (3,), 0.3), Sample((3,), (3,), In(3, low=0.1, high=0.9))],
    inplace=True,
)
def lerp(input: Tensor, end: Operand, weight: Operand) -> Any:
    """input + weight * (end - input).

    `weight` is a number or a tensor; 0 gives `input`, 1 gives `end`.

    >>> import tapegrad
    >>> tapegrad.lerp(tapegrad.tensor([0.0, 10.0]), tapegrad.tensor([1.0, 20.0]), 0.5)
    tensor([ 0.5000, 15.0000])
    """
    check_floating(input, "lerp", complex=True)
    for x in (end, weight if isinstance(weight, Tensor) and weight._array.ndim else input):
        if isinstance(x, Tensor) and x.dtype is not input.dtype:
            raise RuntimeError(f"lerp needs tensors of one dtype, got {input.dtype} and {x.dtype}")
    if not is_half(input):
        return input + weight * (end - input)
    start, stop = widened(input), widened(end) if isinstance(end, Tensor) else end
    share = widened(weight) if isinstance(weight, Tensor) else weight
    return rounded(start + share * (stop - start), input)


@op(
    casts=True,
    samples=lambda: [Sample((3,), (3,), (3,), value=0.5)],
    inplace=True,
    autocast={"cuda": "widest"},
)
def addcmul(
    input: Tensor,
    tensor1: Tensor,
    tensor2: Tensor,
    scaled: Tensor | None = None,
    *,
    value: Number = 1,
) -> Any:
    """input + value * tensor1 * tensor2; older code has `value` after `input`.

    >>> import tapegrad
    >>> a, b = tapegrad.tensor([2.0, 3.0]), tapegrad.tensor([4.0, 5.0])
    >>> tapegrad.addcmul(tapegrad.ones(2), a, b, value=0.5)
    tensor([5.0000, 8.5000])
    """
    if scaled is not None:
        value, tensor1, tensor2 = cast(Any, tensor1), tensor2, scaled
    tensor1 = in_common_dtype(tensor1, input, tensor2)
    if is_half(input) and is_half(tensor1) and is_half(tensor2):  # rounded once
        return rounded(addcmul(*map(widened, (input, tensor1, tensor2)), value=value), input)
    product = tensor1 * tensor2
    check_numbers(product, "addcmul")
    return input + (product if value == 1 else product * number_for(product, value))


def number_for(x: Any, value: Any) -> Any:
    """A factor for the tensor `x`: truncated for integer tensors, as in PyTorch."""
    dtype = x._array.dtype
    if isinstance(value, Tensor):
        return value
    if numeric.is_inexact(dtype):
        return fitting(value, dtype)
    return bool(value) if numeric.is_boolean(dtype) else int(value)


@op(
    casts=True,
    samples=lambda: [Sample((3,), (3,), In(3, low=0.5), value=0.5)],
    inplace=True,
    autocast={"cuda": "widest"},
)
def addcdiv(
    input: Tensor,
    tensor1: Tensor,
    tensor2: Tensor,
    scaled: Tensor | None = None,
    *,
    value: Number = 1,
) -> Any:
    """input + value * tensor1 / tensor2; older code has `value` after `input`.

    >>> import tapegrad
    >>> a, b = tapegrad.tensor([2.0, 3.0]), tapegrad.tensor([4.0, 6.0])
    >>> tapegrad.addcdiv(tapegrad.ones(2), a, b, value=2)
    tensor([2., 2.])
    """
    if scaled is not None:
        value, tensor1, tensor2 = cast(Any, tensor1), tensor2, scaled
    if not any(is_floating(x) or is_complex(x) for x in (tensor1, tensor2)):
        raise RuntimeError("addcdiv divides floating tensors; divide integers with div and add")
    tensor1 = in_common_dtype(tensor1, input, tensor2)
    return input + (tensor1 if value == 1 else tensor1 * value) / tensor2


@op(
    samples=lambda: [
        Sample(In(values=[1.0, math.nan, math.inf, -math.inf], grad=False)),
        Sample(In(values=[1.0, math.nan, math.inf, -math.inf]), posinf=3.0, neginf=-4.0),
        Sample((3,), nan=2.0),
    ],
    inplace=True,
)
def nan_to_num(
    input: Tensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Any:
    """Replace NaN and infinities by numbers (by default 0 and the largest finite ones).

    >>> import tapegrad
    >>> x = tapegrad.tensor([1.0, tapegrad.nan, tapegrad.inf])
    >>> tapegrad.nan_to_num(x, nan=0.0, posinf=9.0)
    tensor([1., 0., 9.])
    """
    if is_complex(input):
        parts = (nan_to_num(part, nan, posinf, neginf) for part in (input.real, input.imag))
        return complex_(*parts)
    if not numeric.is_floating(input._array.dtype):
        return input.clone()
    limits = finfo(input.dtype)
    out = where(isnan(input), nan, input)
    out = where(equal(input, math.inf), limits.max if posinf is None else posinf, out)
    return where(equal(input, -math.inf), limits.min if neginf is None else neginf, out)
