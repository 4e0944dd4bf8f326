"""Products with a triangle, in half the work: for causal attention.

    out      the result on and below its diagonal; above it is 0
    lower    x on and below its diagonal: element i of the result is a sum over k <= i
    upper    x on and above its diagonal: element i of the result is a sum over k >= i

Elements outside the triangle are not read: they may be infinite or NaN. The gradients of each form
are products of the other forms. On a GPU those elements are multiplied as zeros.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import xp
from ...core.primitive import CONTRACTION, Primitive, define
from ..shape.reordering import swapped
from .matmul import matmul_


def _triangular(x: Any, y: Any, *, form: str) -> Any:
    module = xp.module(x)
    if form == "out":
        return module.tril(matmul_(x, y))
    out = matmul_(module.tril(x) if form == "lower" else module.triu(x), y)
    if isinstance(out, np.ndarray) and not np.isfinite(out).all():
        for i in range(out.shape[-2]):
            counting = slice(i + 1) if form == "lower" else slice(i, None)
            part = matmul_(x[..., i : i + 1, counting], y[..., counting, :])
            out[..., i : i + 1, :] = part
    return out


def _gradient_of_x(g: Any, y: Any, form: str) -> Any:
    if form == "out":
        return triangular_(g, swapped(y), form="lower")
    if form == "lower":
        return triangular_(g, swapped(y), form="out")
    return swapped(triangular_(y, swapped(g), form="out"))


def _gradient_of_y(g: Any, x: Any, form: str) -> Any:
    if form == "out":
        return swapped(triangular_(swapped(g), x, form="upper"))
    return triangular_(swapped(x), g, form="upper" if form == "lower" else "lower")


triangular_: Primitive = define(
    "triangular",
    _triangular,
    kind=CONTRACTION,
    promote="same",
    lower=lambda b, out, x, y, form: b.product(out, x, y, form),
    vjp=(_gradient_of_x, _gradient_of_y),
)


def product(x: Any, y: Any, form: str | None) -> Any:
    """x @ y, or the form of it with a triangle."""
    return matmul_(x, y) if form is None else triangular_(x, y, form=form)
