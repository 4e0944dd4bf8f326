"""Checks of data: a primitive that returns a tensor unchanged if its values lie in a range.

In eager code a check reads the array and returns the same tensor. During capture it is a primitive
whose result replaces the tensor, so that every replay checks its own data, before the first write
to memory from outside.
"""

from __future__ import annotations

import math
from typing import Any

from ..core import xp
from ..core.failures import FAILURES, failure_of
from ..core.modes import GRAD, STATE, capturing
from ..core.primitive import ELEMENTWISE, Primitive, define
from ..core.tensor import Tensor
from ..core.wrapped import whole_of


def checked(
    x: Any,
    tested: Any = None,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    besides: int | None = None,
    message: str,
    error: type[Exception] = RuntimeError,
) -> Any:
    """`x`, if all elements of `tested` (or of `x`) lie between `low` and `high` or are `besides`.

    `tested` broadcasts to `x`. A `{}` in the message stands for the first wrong value.
    """
    tested = x if tested is None else tested
    if capturing():
        return checked_(
            x,
            tested,
            low=low,
            high=high,
            besides=low if besides is None else besides,
            failure=failure_of(error, message),
        )
    verify(whole_of(tested)._array, low, high, besides, error, message)
    return x


def verify(
    x: Any, low: float, high: float, besides: float | None, error: type[Exception], message: str
) -> None:
    """Raise unless all elements of an array lie in a range; NaN lies in none."""
    if not x.size:
        return
    least, most = xp.ends(x)
    if not (low <= least and most <= high):
        good = (x >= low) & (x <= high)
        wrong = x[~(good if besides is None else good | (x == besides))]
        if wrong.size:
            raise error(message.format(wrong.reshape(-1)[0].item()))


def _checked(x: Any, tested: Any, *, low: float, high: float, besides: float, failure: int) -> Any:
    error, message = FAILURES[failure]
    verify(tested, low, high, besides, error, message)
    return xp.module(x).array(x)  # a copy: the input itself was not checked


checked_: Primitive = define(
    "checked",
    _checked,
    kind=ELEMENTWISE,
    vjp=(lambda g: g, None),
    abstract=lambda x, tested, **params: x,
    expression="checked(x, tested, low, high, besides, failure)",
)


def constant(value: Any, name: str) -> float:
    """A number that an operation does not differentiate by, from a number or a tensor."""
    if value.__class__ is not float:
        check_constant(value, name)
    return float(value)


def check_constant(value: Any, name: str) -> None:
    """Refuse a tensor that requires gradients as a constant: it would silently get none."""
    if isinstance(value, Tensor) and value.requires_grad and STATE.mode & GRAD:
        raise TypeError(
            f"{name} is a constant and gets no gradient, but the tensor given for it requires "
            "one; give a number (its .item()), or write the formula with operations on tensors"
        )


def check_range(
    x: Tensor, count: int, message: str, error: type[Exception], besides: int | None = None
) -> Any:
    """`x`, if all its integers lie between 0 and count - 1."""
    return checked(x, low=0, high=count - 1, besides=besides, message=message, error=error)
