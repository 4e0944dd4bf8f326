"""Masked operations that keep the shape: `masked.softmax`, `masked.cumsum` and others.

Results at elements that do not count have no meaning, unless a docstring states them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..elementwise.extremes import clamp
from ..elementwise.functions import logaddexp as _logaddexp
from ..nn import softmax as families
from ..precision import check_floating
from ..reduce.cumulative import cumprod as _cumprod
from ..reduce.cumulative import cumsum as _cumsum
from ..table import In, Sample, op
from .reducing import MASK, M, chosen, converted, lowest, norm

if TYPE_CHECKING:
    from ...core.tensor import Tensor
    from ..annotations import DTypeLike, Number


def _samples() -> list[Sample]:
    return [Sample((3, 4), 1, mask=MASK), Sample((3, 4), 1)]


@op(module=M, samples=_samples)
def softmax(
    input: Tensor, dim: int, *, dtype: DTypeLike | None = None, mask: Tensor | None = None
) -> Any:
    """Softmax over the elements that count; the others are 0.

    >>> import tapegrad
    >>> mask = tapegrad.tensor([True, False, True])
    >>> tapegrad.masked.softmax(tapegrad.tensor([1.0, 2.0, 1.0]), 0, mask=mask)
    tensor([0.5000, 0.0000, 0.5000])
    """
    x = converted(input, dtype)
    return families.softmax(chosen(x, mask, lowest(x)), dim)


@op(module=M, samples=lambda: [Sample((3, 4), 1)])
def log_softmax(
    input: Tensor, dim: int, *, dtype: DTypeLike | None = None, mask: Tensor | None = None
) -> Any:
    """The logarithm of `masked.softmax`; -inf where an element does not count.

    >>> import tapegrad
    >>> mask = tapegrad.tensor([True, False, True])
    >>> tapegrad.masked.log_softmax(tapegrad.tensor([1.0, 2.0, 1.0]), 0, mask=mask)
    tensor([-0.6931,    -inf, -0.6931])
    """
    x = converted(input, dtype)
    return families.log_softmax(chosen(x, mask, lowest(x)), dim)


@op(module=M, samples=_samples)
def softmin(
    input: Tensor, dim: int, *, dtype: DTypeLike | None = None, mask: Tensor | None = None
) -> Any:
    """Softmax of -input over the elements that count; the others are 0.

    >>> import tapegrad
    >>> mask = tapegrad.tensor([True, False, True])
    >>> tapegrad.masked.softmin(tapegrad.tensor([1.0, 0.0, 1.0]), 0, mask=mask)
    tensor([0.5000, 0.0000, 0.5000])
    """
    x = converted(input, dtype)
    check_floating(x, "masked.softmin")
    return families.softmax(-chosen(x, mask, math.inf), dim)


@op(module=M, samples=_samples)
def cumsum(
    input: Tensor, dim: int, *, dtype: DTypeLike | None = None, mask: Tensor | None = None
) -> Any:
    """Cumulative sums of the elements that count.

    >>> import tapegrad
    >>> mask = tapegrad.tensor([True, False, True])
    >>> tapegrad.masked.cumsum(tapegrad.tensor([1.0, 2.0, 3.0]), 0, mask=mask)
    tensor([1., 1., 4.])
    """
    x = converted(input, dtype)
    return _cumsum(chosen(x, mask, 0), dim, dtype=x.dtype)


@op(module=M, samples=_samples)
def cumprod(
    input: Tensor, dim: int, *, dtype: DTypeLike | None = None, mask: Tensor | None = None
) -> Any:
    """Cumulative products of the elements that count.

    >>> import tapegrad
    >>> mask = tapegrad.tensor([True, False, True])
    >>> tapegrad.masked.cumprod(tapegrad.tensor([1.0, 2.0, 3.0]), 0, mask=mask)
    tensor([1., 1., 3.])
    """
    x = converted(input, dtype)
    return _cumprod(chosen(x, mask, 1), dim, dtype=x.dtype)


@op(module=M, samples=lambda: [Sample((3, 4), 2.0, 1, mask=MASK), Sample((3, 4), 1.0, 0)])
def normalize(
    input: Tensor,
    ord: Number,
    dim: int,
    *,
    eps: float = 1e-12,
    dtype: DTypeLike | None = None,
    mask: Tensor | None = None,
) -> Any:
    """The elements that count, divided by their norm or eps, whichever is larger; others are 0.

    >>> import tapegrad
    >>> mask = tapegrad.tensor([True, False, True])
    >>> tapegrad.masked.normalize(tapegrad.tensor([3.0, 9.0, 4.0]), 2.0, 0, mask=mask)
    tensor([0.6000, 0.0000, 0.8000])
    """
    x = converted(input, dtype)
    size = norm(x, ord, dim, keepdim=True, mask=mask)
    return chosen(x, mask, 0) / clamp(size, eps)


@op(
    module=M,
    samples=lambda: [
        Sample((3, 4), (3, 4), input_mask=MASK),
        Sample((3, 4), In(3, 4), other_mask=MASK),
    ],
)
def logaddexp(
    input: Tensor,
    other: Tensor,
    *,
    dtype: DTypeLike | None = None,
    input_mask: Tensor | None = None,
    other_mask: Tensor | None = None,
) -> Any:
    """log(e^input + e^other), where an element that does not count is -inf.

    >>> import tapegrad
    >>> x, mask = tapegrad.tensor([0.0, 0.0]), tapegrad.tensor([True, False])
    >>> tapegrad.masked.logaddexp(x, x, other_mask=mask)
    tensor([0.6931, 0.0000])
    """
    x, y = converted(input, dtype), converted(other, dtype)
    out = _logaddexp(chosen(x, input_mask, lowest(x)), chosen(y, other_mask, lowest(y)))
    return out.to(x.dtype)
