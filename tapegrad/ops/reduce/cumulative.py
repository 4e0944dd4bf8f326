"""Running sums and products, and `prod`, whose gradient uses them.

Comes in: a tensor. Goes out: one of the same shape, where each element is the sum or product of all
elements up to it along a dimension; for `prod`, one with fewer dimensions. No rule divides by
elements, so gradients are right at zeros too. `scanned` lowers a scan to a native loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import xp
from ...core.batch_rules import adapted, shifted
from ...core.casting import ON_GPU
from ...core.complexes import HOLOMORPHIC, OWN
from ...core.primitive import OPAQUE, REDUCE, Primitive, define
from ...core.tensor import Tensor
from ..shape.dims import normal_dim, normal_dims
from ..shape.padding import padded
from ..shape.reordering import flip_, permute_
from ..shape.reshaping import reshape_
from ..shape.slicing import slice_, unslice_
from ..table import In, Sample, op
from .reductions import as_sum_dtype, count, spread, sum_

if TYPE_CHECKING:
    from ..annotations import Dims, DTypeLike


def _prod(x: Any, *, dims: tuple[int, ...], keepdim: bool) -> Any:
    wide = xp.widened(x)
    if wide.__class__ is np.ndarray and (x.dtype is xp.F32 or x.dtype is xp.F64):
        return xp.reduced(np.multiply, x, dims, keepdim)
    out = xp.contiguous(wide.prod(axis=dims, keepdims=keepdim, dtype=wide.dtype))
    return out if wide is x else out.astype(x.dtype)


def _prod_gradient(g: Any, x: Any, dims: tuple[int, ...], keepdim: bool) -> Any:
    """g times the product of all other elements, from both sides, so right at zeros too."""
    order = tuple(d for d in range(len(x.shape)) if d not in dims) + dims
    kept = tuple(x.shape[d] for d in order[: len(order) - len(dims)])
    flat = reshape_(permute_(x, dims=order), shape=(*kept, count(x.shape, dims)))
    before = _exclusive_product(flat)
    after = flip_(_exclusive_product(flip_(flat, dims=(len(kept),))), dims=(len(kept),))
    others = reshape_(before * after, shape=tuple(x.shape[d] for d in order))
    inverse = tuple(order.index(d) for d in range(len(order)))
    return spread(g, x.shape, dims, keepdim) * permute_(others, dims=inverse)


def _exclusive_product(x: Any) -> Any:
    """Along the last dimension: the product of everything before each element."""
    n = len(x.shape)
    size = x.shape[-1]
    if xp.is_plain(x) and size > 1:
        out = np.ones(x.shape, x.dtype)
        np.multiply.accumulate(x[..., :-1], -1, None, out[..., 1:])
        return out
    whole: tuple[Any, ...] = (None,) * (n - 1)
    widths = ((0, 0),) * (n - 1) + ((1, 0),)
    shifted = padded(slice_(x, index=(*whole, (0, max(size - 1, 0), 1))), widths, 1.0)
    return cumprod_(slice_(shifted, index=(*whole, (0, size, 1))), dim=n - 1)


prod_: Primitive = define(
    "prod",
    _prod,
    kind=REDUCE,
    vjp=_prod_gradient,
    expression="a * x",
    complex=HOLOMORPHIC,
    stores=True,
)


@op(
    casts=True,
    samples=lambda: [
        Sample((3, 4)),
        Sample((3, 4), 0),
        Sample((2, 3, 4), 1, True),
        Sample((2, 3), dim=-1, keepdim=True),
        Sample(()),
        Sample(In(values=[2.0, 0.0, 3.0])),
        Sample(In(values=[[2.0, 0.0, 0.0], [3.0, 4.0, 0.0]]), 1),
    ],
    autocast="full",
)
def prod(
    input: Tensor, dim: Dims | None = None, keepdim: bool = False, *, dtype: DTypeLike | None = None
) -> Any:
    """The product of all elements, or along a dimension.

    >>> import tapegrad
    >>> tapegrad.prod(tapegrad.tensor([[1.0, 2.0], [3.0, 4.0]]), dim=1)
    tensor([ 2., 12.])
    """
    x = as_sum_dtype(input, dtype)
    return prod_.direct(x, {"dims": normal_dims(dim, x._array.ndim), "keepdim": bool(keepdim)})


def _cumsum(x: Any, *, dim: int, reverse: bool) -> Any:
    wide = xp.widened(x)
    if not reverse and wide.__class__ is np.ndarray and wide.flags.c_contiguous:
        # the same as np.cumsum, 1.2 µs faster
        return np.add.accumulate(wide, dim, wide.dtype).astype(x.dtype, copy=False)
    out = np.flip(np.cumsum(np.flip(wide, dim), dim), dim) if reverse else np.cumsum(wide, dim)
    return xp.contiguous(out).astype(x.dtype, copy=False)


def scanned(b: Any, out: Any, x: Any, expression: str, dim: int, reverse: bool) -> None:
    """A loop that scans along a dimension; half precision accumulates in float32."""
    wide = out if b.widest(out.dtype) == out.dtype else b.new(out.shape, b.widest(out.dtype))
    body = b.over(x.shape)
    node = body.compute("cast(x)", wide.dtype, x=body.read(x))
    body.scan(wide, node, expression, dim, reverse)
    if wide is not out:
        b.each(out, "cast(x)", x=wide)


cumsum_: Primitive = define(
    "cumsum",
    _cumsum,
    kind=OPAQUE,
    lower=lambda b, out, x, *, dim, reverse: scanned(b, out, x, "a + x", dim, reverse),
    families=True,
    vjp=lambda g, dim, reverse: cumsum_(g, dim=dim, reverse=not reverse),
    batch=adapted(dim=shifted),
    linear=True,
    complex=OWN,
    stores=True,
)


@op(
    casts=True,
    samples=lambda: [Sample((3, 4), 0), Sample((3, 4), -1), Sample((), 0)],
    inplace=True,
    autocast=ON_GPU,
)
def cumsum(input: Tensor, dim: int, *, dtype: DTypeLike | None = None) -> Any:
    """Running sums along a dimension.

    out[i] = x[0] + ... + x[i]

    >>> import tapegrad
    >>> tapegrad.cumsum(tapegrad.tensor([1.0, 2.0, 3.0]), dim=0)
    tensor([1., 3., 6.])
    """
    x = as_sum_dtype(input, dtype)
    d = normal_dim(dim, x._array.ndim)
    return cumsum_.direct(x, {"dim": d, "reverse": False}) if x._array.ndim else x.clone()


def _cumprod_gradient(g: Any, x: Any, dim: int) -> Any:
    """Sum over later outputs of g times the product without this element: O(n^2), no division."""
    n, size = len(x.shape), x.shape[dim]

    def part(v: Any, start: int, stop: int) -> Any:
        index = tuple((start, stop, 1) if d == dim else None for d in range(n))
        return slice_(v, index=index)

    widths = tuple((1, 0) if d == dim else (0, 0) for d in range(n))
    before = cumprod_(padded(part(x, 0, max(size - 1, 0)), widths, 1.0), dim=dim)
    total = None
    for k in range(size):
        after = cumprod_(padded(part(x, k + 1, size), widths, 1.0), dim=dim)
        term = sum_(part(g, k, size) * after, dims=(dim,), keepdim=True) * part(before, k, k + 1)
        index = tuple((k, k + 1, 1) if d == dim else None for d in range(n))
        placed = unslice_(term, shape=tuple(x.shape), index=index)
        total = placed if total is None else total + placed
    return g * 0 if total is None else total


def _cumprod(x: Any, *, dim: int) -> Any:
    return np.cumprod(xp.widened(x), dim).astype(x.dtype, copy=False)


cumprod_: Primitive = define(
    "cumprod",
    _cumprod,
    kind=OPAQUE,
    vjp=_cumprod_gradient,
    lower=lambda b, out, x, *, dim: scanned(b, out, x, "a * x", dim, False),
    batch=adapted(dim=shifted),
    complex=HOLOMORPHIC,
    stores=True,
)


@op(
    casts=True,
    samples=lambda: [Sample((3, 4), 0), Sample((3, 4), -1), Sample(In(values=[2.0, 0.0, 3.0]), 0)],
    inplace=True,
    autocast=ON_GPU,
)
def cumprod(input: Tensor, dim: int, *, dtype: DTypeLike | None = None) -> Any:
    """Running products along a dimension.

    out[i] = x[0] * ... * x[i]

    >>> import tapegrad
    >>> tapegrad.cumprod(tapegrad.tensor([1.0, 2.0, 3.0]), dim=0)
    tensor([1., 2., 6.])
    """
    x = as_sum_dtype(input, dtype)
    d = normal_dim(dim, x._array.ndim)
    return cumprod_.direct(x, {"dim": d}) if x._array.ndim else x.clone()
