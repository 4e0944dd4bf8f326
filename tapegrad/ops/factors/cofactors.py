"""The gradient of the adjugate of singular matrices, which have no inverse to write it with.

adj(x) = c V D U' for x = U S V', where D holds the products of all singular values but one, and c,
the product of the determinants of U and V, is 1 or -1. Called by the second derivative of `det`.
"""

from __future__ import annotations

from typing import Any

from ..elementwise.copies import detach
from ..linalg.matmul import matmul_
from ..linalg.matrices import scaled_columns, scaled_rows, transposed
from ..linalg.solving import det_
from ..reduce.cumulative import prod_
from ..shape.joining import cat_
from ..shape.reshaping import reshape_
from ..shape.slicing import slice_
from .spectra import _svd_gradient, diagonal_of, svd_


def _without(s: Any, *left_out: int) -> Any:
    """The products of all singular values but some, (..., 1)."""
    n = s.shape[-1]
    whole = (None,) * (len(s.shape) - 1)
    parts = [slice_(s, index=(*whole, (i, i + 1, 1))) for i in range(n) if i not in left_out]
    if not parts:
        first = slice_(s, index=(*whole, (0, 1, 1)))
        return detach(first) * 0 + 1
    last = len(s.shape) - 1
    return prod_(cat_(*parts, dim=last), dims=(last,), keepdim=True)


def adjugate_gradient(g: Any, x: Any) -> Any:
    """The gradient of x, from that of its adjugate."""
    u, s, vh = svd_(x, full=False)
    n, last = s.shape[-1], len(s.shape) - 1
    sign = detach(det_(detach(u)) * det_(detach(vh)))
    g = g * reshape_(sign, shape=(*sign.shape, 1, 1))
    others = cat_(*[_without(s, i) for i in range(n)], dim=last)
    g_u = scaled_columns(matmul_(transposed(g), transposed(vh)), others)
    g_vh = scaled_rows(others, matmul_(transposed(u), transposed(g)))
    along = diagonal_of(matmul_(matmul_(vh, g), u))
    whole = (None,) * last
    each = [slice_(along, index=(*whole, (i, i + 1, 1))) for i in range(n)]
    g_s = cat_(*[_slope(each, s, k) for k in range(n)], dim=last)
    return _svd_gradient([g_u, g_s, g_vh], u, s, vh)[0]


def _slope(each: list[Any], s: Any, k: int) -> Any:
    """How the products change with one singular value."""
    total = None
    for i, one in enumerate(each):
        if i != k:
            term = one * _without(s, i, k)
            total = term if total is None else total + term
    return each[k] * 0 if total is None else total
