"""Running logarithms of sums, running integrals and numerical derivatives along a dimension.

Comes in: a tensor. Goes out: tensors of about its shape. Imported at first use (`late.py`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import numeric, xp
from ...core.batch_rules import adapted, shifted
from ...core.complexes import HOLOMORPHIC
from ...core.dtypes import get_default_dtype
from ...core.primitive import OPAQUE, Primitive, define
from ...core.tensor import Tensor
from ..elementwise import comparison as c
from ..elementwise import exponentials as e
from ..elementwise.functions import log_of_sum
from ..precision import as_floating, check_floating
from ..shape.dims import normal_dim, normal_dims
from ..shape.joining import cat
from ..shape.padding import padded
from ..shape.reshaping import reshape_
from ..shape.slicing import narrow, slice_
from ..table import In, Sample, op
from .cumulative import cumsum, scanned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..annotations import Dims, Number

# -- logarithms of sums ------------------------------------------------------------------------


def _logcumsumexp(x: Any, *, dim: int, reverse: bool) -> Any:
    wide = xp.widened(x)
    if xp.module(x) is not np:  # CuPy has no `accumulate` for this function
        return xp.module(x).asarray(_logcumsumexp(x.get(), dim=dim, reverse=reverse))
    ordered = np.flip(wide, dim) if reverse else wide
    if numeric.is_complex(x.dtype):
        out = ordered.copy()
        rows = np.moveaxis(out, dim, 0)
        for i in range(1, len(rows)):
            rows[i] = log_of_sum(rows[i - 1], rows[i])
    else:
        out = np.logaddexp.accumulate(ordered, dim)
    return xp.contiguous(np.flip(out, dim) if reverse else out).astype(x.dtype, copy=False)


def _logcumsumexp_gradient(g: Any, x: Any, out: Any, dim: int, reverse: bool) -> Any:
    """The sum over later i of g[i] e^(x[j] - out[i]), by factors that are at most 1.

    Each sum of g[i] e^(out[j] - out[i]) follows from its neighbour by one factor.
    """
    later = _shifted(out, dim, 1 if reverse else -1)
    known = c.logical_and(c.not_equal(out, -math.inf), c.not_equal(later, math.inf))
    step = c.where(known, e.exp(c.where(known, out - c.where(known, later, 0.0), 0.0)), 0.0)
    first = c.not_equal(out, -math.inf)
    share = c.where(first, e.exp(c.where(first, x - c.where(first, out, 0.0), 0.0)), 0.0)
    return share * decaying_sum_(g, step, dim=dim, reverse=not reverse)


def _shifted(x: Any, dim: int, by: int, edge: float = math.inf) -> Any:
    """Shift elements along a dimension, and fill the free positions with `edge`."""
    n, size = len(x.shape), x.shape[dim]
    kept = (max(-by, 0), size - max(by, 0), 1)
    part = slice_(x, index=tuple(kept if d == dim else None for d in range(n)))
    width = (max(by, 0), max(-by, 0))
    return padded(part, tuple(width if d == dim else (0, 0) for d in range(n)), edge)


def _decaying_sum(x: Any, factor: Any, *, dim: int, reverse: bool) -> Any:
    """y[j] = x[j] + factor[j] * y[j - 1]; in reverse the neighbour is y[j + 1]."""
    module = xp.module(x)
    out = module.array(x)
    rows, factors = module.moveaxis(out, dim, 0), module.moveaxis(factor, dim, 0)
    n = len(rows)
    forward = (range(1, n), range(max(n - 1, 0)))
    steps = (range(n - 2, -1, -1), range(n - 1, 0, -1)) if reverse else forward
    for j, before in zip(*steps, strict=True):
        rows[j] += factors[j] * rows[before]
    return out


def _decaying_sum_gradient(
    g: Any, factor: Any, out: Any, dim: int, reverse: bool, needs: list[bool]
) -> tuple[Any, ...]:
    by = -1 if reverse else 1
    g_x = decaying_sum_(g, _shifted(factor, dim, -by, 0.0), dim=dim, reverse=not reverse)
    return g_x, g_x * _shifted(out, dim, by, 0.0) if needs[1] else None


decaying_sum_: Primitive = define(
    "decaying_sum",
    _decaying_sum,
    kind=OPAQUE,
    abstract=lambda x, factor, *, dim, reverse: x,
    joint=_decaying_sum_gradient,
    complex=HOLOMORPHIC,
    batch=adapted(dim=shifted),
)


logcumsumexp_: Primitive = define(
    "logcumsumexp",
    _logcumsumexp,
    kind=OPAQUE,
    promote="float",
    vjp=_logcumsumexp_gradient,
    lower=lambda b, out, x, *, dim, reverse: scanned(
        b,
        out,
        x,
        f"where(a == x, x + {math.log(2)!r}, maximum(a, x) + log1p(exp(-abs(a - x))))",
        dim,
        reverse,
    ),
    complex=HOLOMORPHIC,
    batch=adapted(dim=shifted),
)


@op(
    samples=lambda: [Sample((3, 4), 0), Sample((2, 5), -1), Sample((), 0), Sample((0, 3), 0)],
    inplace=True,
)
def logcumsumexp(input: Tensor, dim: int) -> Any:
    """Running log(sum(exp(x))) along a dimension, without overflow.

    >>> import tapegrad
    >>> tapegrad.logcumsumexp(tapegrad.tensor([0.0, 0.0, 1000.0]), dim=0)
    tensor([0.0000e+00, 6.9315e-01, 1.0000e+03])
    """
    check_floating(input, "logcumsumexp", complex=True)
    d = normal_dim(dim, input._array.ndim)
    if not input._array.ndim:
        return input.clone()
    return logcumsumexp_(input, dim=d, reverse=False)


# -- integrals ---------------------------------------------------------------------------------


@op(
    method=False,
    samples=lambda: [
        Sample((2, 5)),
        Sample((5, 2), dx=0.5, dim=0),
        Sample((2, 5), In(values=[0.0, 1.0, 1.5, 3.0, 4.0])),
        Sample((2, 5), (2, 5)),
        Sample((3, 1)),
    ],
)
def cumulative_trapezoid(
    y: Tensor, x: Tensor | None = None, *, dx: Number = 1, dim: int = -1
) -> Any:
    """Running areas under values along a dimension by the trapezoidal rule.

    `x` holds the positions of the values `y`; without it they are `dx` apart. The dimension gets
    shorter by 1.

    >>> import tapegrad
    >>> tapegrad.cumulative_trapezoid(tapegrad.tensor([1.0, 2.0, 3.0]))
    tensor([1.5000, 4.0000])
    """
    if isinstance(dx, complex):
        raise RuntimeError(f"cumulative_trapezoid needs a real dx, got {dx}")
    if x is not None and dx != 1:
        raise TypeError("cumulative_trapezoid takes either positions x or the distance dx")
    y = as_floating(y, "cumulative_trapezoid")
    d = normal_dim(dim, y._array.ndim)
    length = max(y._array.shape[d] - 1, 0)
    heights = (narrow(y, d, 0, length) + narrow(y, d, y._array.shape[d] - length, length)) / 2
    if x is None:
        return cumsum(heights * dx, d)
    if x._array.ndim == 1 and y._array.ndim > 1:
        x = reshape_(x, shape=tuple(-1 if i == d else 1 for i in range(y._array.ndim)))
    along = d - y._array.ndim + x._array.ndim
    if x._array.shape[along] != y._array.shape[d]:
        raise RuntimeError(
            f"cumulative_trapezoid: {x._array.shape[along]} positions do not fit "
            f"{y._array.shape[d]} values"
        )
    steps = narrow(x, along, x._array.shape[along] - length, length) - narrow(x, along, 0, length)
    return cumsum(heights * steps, d)


# -- derivatives -------------------------------------------------------------------------------


def _by_steps(f: Any, d: int, h: Any, edge_order: int) -> Any:
    """Central differences of values that are `h` apart."""
    n = f._array.shape[d]
    middle = (narrow(f, d, 2, n - 2) - narrow(f, d, 0, n - 2)) / (2 * h)
    at = [narrow(f, d, i, 1) for i in (0, 1, n - 2, n - 1)]
    if edge_order == 1:
        return cat([(at[1] - at[0]) / h, middle, (at[3] - at[2]) / h], d)
    third, last = narrow(f, d, 2, 1), narrow(f, d, n - 3, 1)
    first = (2 * at[1] - 1.5 * at[0] - 0.5 * third) / h
    return cat([first, middle, (1.5 * at[3] - 2 * at[2] + 0.5 * last) / h], d)


def _by_positions(f: Any, d: int, x: Any, edge_order: int) -> Any:
    """The same for values at positions `x`: the slope of a parabola through three neighbours."""
    n = f._array.shape[d]
    x = reshape_(x, shape=tuple(n if i == d else 1 for i in range(f._array.ndim)))
    steps = narrow(x, d, 1, n - 1) - narrow(x, d, 0, n - 1)

    def slope(start: int, count: int, where: int) -> Any:
        """At the first, second or third of each three neighbours."""
        a, b = narrow(steps, d, start, count), narrow(steps, d, start + 1, count)
        y0, y1, y2 = (narrow(f, d, start + i, count) for i in range(3))
        left, right = (y1 - y0) / a, (y2 - y1) / b
        if where == 1:
            return (left * b + right * a) / (a + b)
        if where == 0:
            return left * (2 * a + b) / (a + b) - right * a / (a + b)
        return right * (2 * b + a) / (a + b) - left * b / (a + b)

    middle = slope(0, n - 2, 1)
    if edge_order == 2:
        return cat([slope(0, 1, 0), middle, slope(n - 3, 1, 2)], d)
    first = (narrow(f, d, 1, 1) - narrow(f, d, 0, 1)) / narrow(steps, d, 0, 1)
    last = (narrow(f, d, n - 1, 1) - narrow(f, d, n - 2, 1)) / narrow(steps, d, n - 2, 1)
    return cat([first, middle, last], d)


@op(
    method=False,
    samples=lambda: [
        Sample((5,)),
        Sample((4, 3), spacing=0.5, dim=0),
        Sample((4, 3), spacing=[2.0, 0.5], edge_order=2),
        Sample((4, 3), spacing=[In(values=[0.0, 1.0, 3.0, 3.5])], dim=0),
        Sample((4,), spacing=[In(values=[0.0, 1.0, 3.0, 3.5])], edge_order=2),
    ],
    result="tuple[Tensor, ...]",
)
def gradient(
    input: Tensor,
    *,
    spacing: Number | Sequence[Number] | Sequence[Tensor] | None = None,
    dim: Dims | None = None,
    edge_order: int = 1,
) -> Any:
    """The slopes of values along each dimension, by central differences.

    `spacing` is the distance of neighbours (1 by default), one for each dimension, or their
    positions as tensors. At both ends the slope has the first or second order (`edge_order`).

    >>> import tapegrad
    >>> tapegrad.gradient(tapegrad.tensor([1.0, 4.0, 9.0, 16.0]))
    (tensor([3., 4., 6., 7.]),)
    """
    if edge_order not in (1, 2):
        raise RuntimeError(f"gradient: edge_order must be 1 or 2, got {edge_order}")
    if numeric.is_unsigned_or_boolean(input._array.dtype):
        raise RuntimeError(f"gradient needs signed numbers, got {input.dtype}; use .float() first")
    x = input if numeric.is_inexact(input._array.dtype) else input.to(get_default_dtype())
    if dim is None:
        dims = normal_dims(None, x._array.ndim)
    else:
        wanted = dim if isinstance(dim, (tuple, list)) else (dim,)
        dims = tuple(normal_dim(d, x._array.ndim) for d in wanted)
        if len(set(dims)) < len(dims):
            raise RuntimeError(f"gradient: dim {tuple(wanted)} names a dimension twice")
    spacing = 1 if spacing is None else spacing
    several = isinstance(spacing, (tuple, list))
    given: list[Any] = list(spacing) if several else [spacing] * len(dims)  # type: ignore[arg-type]
    if len(given) != len(dims):
        raise RuntimeError(
            f"gradient needs a spacing for each of {len(dims)} dimensions, got {len(given)}"
        )
    out = []
    for d, h in zip(dims, given, strict=True):
        size = x._array.shape[d]
        if size < edge_order + 1:
            raise RuntimeError(
                f"gradient needs at least {edge_order + 1} elements along dimension {d}, got {size}"
            )
        if isinstance(h, Tensor) and h._array.ndim:
            if h._array.shape != (size,):
                raise RuntimeError(
                    f"gradient: positions of shape {tuple(h.shape)} do not fit dimension {d} of "
                    f"size {size}"
                )
            out.append(_by_positions(x, d, h, edge_order))
        else:
            out.append(_by_steps(x, d, h, edge_order))
    return tuple(out)
