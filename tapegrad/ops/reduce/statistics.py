"""Variance, deviation, logsumexp and norms: reductions made of other reductions.

They are composites: eager code records one entry, a capture inlines their primitives. Half
precision is computed in float32 and rounded once.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import xp
from ...core.batch_rules import adapted, shifted
from ...core.casting import ON_GPU
from ...core.complexes import HOLOMORPHIC
from ...core.dtypes import as_dtype
from ...core.primitive import OPAQUE, Primitive, define
from ..checks import check_constant
from ..elementwise import comparison as c
from ..elementwise import exponentials as e
from ..elementwise.arithmetic import pow
from ..elementwise.complexes import is_complex, real_
from ..elementwise.copies import detach
from ..elementwise.rounding import abs, sign
from ..precision import check_floating, rounded, widened
from ..shape.dims import normal_dim, normal_dims
from ..shape.reshaping import reshape_
from ..table import In, Sample, op
from .largest import amax_, amin_
from .reductions import count, mean, mean_, spread, sum_

if TYPE_CHECKING:
    from ...core.tensor import Tensor
    from ..annotations import Dims, DTypeLike, Number

# -- spread ------------------------------------------------------------------------------------


def _variance(x: Any, *, dims: tuple[int, ...], keepdim: bool, correction: float) -> Any:
    if xp.is_plain(x):
        size = count(x.shape, dims)
        apart = xp.spread(xp.summed(x, dims, True) / size, x.shape)
        np.subtract(x, apart, apart)
        np.multiply(apart, apart, apart)
        return xp.summed(apart, dims, keepdim) / max(size - correction, 0)
    wide = widened(x)
    apart = wide - mean_(wide, dims=dims, keepdim=True)
    rest = max(count(x.shape, dims) - correction, 0)
    return rounded(sum_(apart * apart, dims=dims, keepdim=keepdim) / rest, x)


def _deviation(x: Any, *, dims: tuple[int, ...], keepdim: bool, correction: float) -> Any:
    wide = widened(x)
    variance = _variance(wide, dims=dims, keepdim=keepdim, correction=correction)
    return rounded(e.sqrt(variance), x)


def _variance_gradient(g: Any, x: Any, dims: Any, keepdim: bool, correction: float) -> Any:
    """2 g (x - mean) / (n - correction)."""
    rest = count(x.shape, dims) - correction
    factor = 2 / rest if rest > 0 else math.nan
    return spread(g * factor, x.shape, dims, keepdim) * (x - mean_(x, dims=dims, keepdim=True))


def _deviation_gradient(
    g: Any, x: Any, out: Any, dims: Any, keepdim: bool, correction: float
) -> Any:
    """The gradient of the standard deviation, and 0 where the deviation is 0."""
    constant = c.equal(out, 0)
    scaled = c.where(constant, 0.0, g / (2 * c.where(constant, 1.0, out)))
    return _variance_gradient(scaled, x, dims, keepdim, correction)


var_: Primitive = define(
    "var",
    _variance,
    kind=OPAQUE,
    composite=True,
    vjp=_variance_gradient,
    batch=adapted(dims=shifted),
)
std_: Primitive = define(
    "std",
    _deviation,
    kind=OPAQUE,
    composite=True,
    vjp=_deviation_gradient,
    batch=adapted(dims=shifted),
)


def _spread_op(
    primitive: Any, what: str, input: Any, dim: Any, unbiased: Any, keepdim: bool, correction: Any
) -> Any:
    check_floating(input, what, complex=True, error=RuntimeError)
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if correction is None:
        correction = 1 if unbiased is None or unbiased else 0
    dims = normal_dims(dim, input._array.ndim)
    params = {"dims": dims, "keepdim": bool(keepdim), "correction": correction}
    if count(input._array.shape, dims) <= correction:
        warnings.warn(
            f"{what} of {count(input._array.shape, dims)} elements with a correction of "
            f"{correction} has no degrees of freedom left, so it is NaN or infinite",
            UserWarning,
            stacklevel=3,
        )
    if is_complex(input):  # the sum of the variances of both parts
        variance = var_(input.real, **params) + var_(input.imag, **params)
        return variance if primitive is var_ else _root(variance)
    return primitive.direct(input, params)


def _root(x: Any) -> Any:
    """The square root, with a gradient of 0 where it is 0."""
    constant = c.equal(x, 0)
    return c.where(constant, 0.0, e.sqrt(c.where(constant, 1.0, x)))


def _spread_samples() -> list[Sample]:
    return [
        Sample((3, 4)),
        Sample((3, 4), 1),
        Sample((3, 4), [0, 1], keepdim=True),
        Sample((3, 4), 0, correction=0),
        Sample((3, 4), dim=1, unbiased=False),
    ]


@op(casts=True, samples=_spread_samples)
def var(
    input: Tensor,
    dim: Dims | None = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Any:
    """The variance of all elements, or along dimensions.

    sum((x - mean(x))**2) / (n - correction), with a correction of 1 unless it is given;
    `unbiased=False` is a correction of 0.

    >>> import tapegrad
    >>> x = tapegrad.tensor([1.0, 2.0, 3.0])
    >>> tapegrad.var(x), tapegrad.var(x, unbiased=False)
    (tensor(1.), tensor(0.6667))
    """
    return _spread_op(var_, "var", input, dim, unbiased, keepdim, correction)


@op(casts=True, samples=_spread_samples)
def std(
    input: Tensor,
    dim: Dims | None = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Any:
    """The standard deviation of all elements, or along dimensions.

    The square root of `var`, with the same arguments.

    >>> import tapegrad
    >>> tapegrad.std(tapegrad.tensor([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0]]), dim=1)
    tensor([1., 2.])
    """
    return _spread_op(std_, "std", input, dim, unbiased, keepdim, correction)


@op(samples=lambda: [Sample((3, 4)), Sample((3, 4), 1)], method=False)
def var_mean(
    input: Tensor,
    dim: Dims | None = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Variance and mean together.

    >>> import tapegrad
    >>> tapegrad.var_mean(tapegrad.tensor([1.0, 2.0, 3.0]))
    (tensor(1.), tensor(2.))
    """
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    return var(input, dim, unbiased, keepdim, correction=correction), mean(input, dim, keepdim)


@op(samples=lambda: [Sample((3, 4)), Sample((3, 4), 1)], method=False)
def std_mean(
    input: Tensor,
    dim: Dims | None = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Standard deviation and mean together.

    >>> import tapegrad
    >>> tapegrad.std_mean(tapegrad.tensor([1.0, 2.0, 3.0]))
    (tensor(1.), tensor(2.))
    """
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    return std(input, dim, unbiased, keepdim, correction=correction), mean(input, dim, keepdim)


def _logsumexp(x: Any, *, dims: tuple[int, ...], keepdim: bool) -> Any:
    if xp.is_plain(x):
        top = xp.reduced(np.maximum, x, dims, True)
        np.putmask(top, np.isinf(top), 0.0)
        lower = xp.spread(top, x.shape)
        np.exp(np.subtract(x, lower, lower), lower)
        total = np.log(xp.summed(lower, dims, True)) + top
        return total if keepdim else total.reshape(_kept(x.shape, dims))
    wide = widened(x)
    top = _finite(amax_(real_(wide) if is_complex(wide) else wide, dims=dims, keepdim=True))
    total = e.log(sum_(e.exp(wide - top), dims=dims, keepdim=True)) + top
    return rounded(total if keepdim else reshape_(total, shape=_kept(x.shape, dims)), x)


def _kept(shape: Any, dims: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([n for i, n in enumerate(shape) if i not in dims])


def _finite(x: Any) -> Any:
    """`x` with infinities replaced by 0, so that subtracting it gives no NaN."""
    return c.where(c.isinf(x), 0.0, detach(x))


logsumexp_: Primitive = define(
    "logsumexp",
    _logsumexp,
    kind=OPAQUE,
    composite=True,
    promote="float",
    vjp=lambda g, x, out, dims, keepdim: (
        spread(g, x.shape, dims, keepdim) * e.exp(x - spread(out, x.shape, dims, keepdim))
    ),
    batch=adapted(dims=shifted),
    complex=HOLOMORPHIC,
)


@op(
    casts=True,
    samples=lambda: [Sample((3, 4), 1), Sample((3, 4), 0, True), Sample((2, 3, 4), [0, 2])],
    autocast=ON_GPU,
)
def logsumexp(input: Tensor, dim: Dims, keepdim: bool = False) -> Any:
    """log(sum(exp(x))) along dimensions, without overflow.

    >>> import tapegrad
    >>> tapegrad.logsumexp(tapegrad.tensor([1000.0, 1000.0]), dim=0)
    tensor(1000.6932)
    """
    dims = normal_dims(dim, input._array.ndim)
    if 0 in input._array.shape:
        # No elements, so no largest one: return the logarithm of an empty sum, -inf.
        return e.log(sum_(e.exp(input), dims=dims, keepdim=bool(keepdim)))
    return logsumexp_.direct(input, {"dims": dims, "keepdim": bool(keepdim)})


# -- norms -------------------------------------------------------------------------------------


def _norm_gradient(g: Any, x: Any, out: Any, dims: tuple[int, ...], keepdim: bool) -> Any:
    """x / norm, and 0 where the norm is 0."""
    norm = spread(out, x.shape, dims, keepdim)
    zero = c.equal(norm, 0)
    return spread(g, x.shape, dims, keepdim) * c.where(zero, 0.0, x / c.where(zero, 1.0, norm))


def _norm2(x: Any, *, dims: tuple[int, ...], keepdim: bool) -> Any:
    if xp.is_plain(x):
        return np.sqrt(xp.summed(x * x, dims, keepdim))
    wide = widened(x)
    return rounded(e.sqrt(sum_(wide * wide, dims=dims, keepdim=keepdim)), x)


norm2_: Primitive = define(
    "norm2",
    _norm2,
    kind=OPAQUE,
    composite=True,
    vjp=_norm_gradient,
    batch=adapted(dims=shifted),
)


def _p_norm_gradient(
    g: Any, x: Any, out: Any, p: float, dims: tuple[int, ...], keepdim: bool
) -> Any:
    """sign(x) (|x| / norm)^(p - 1), and 0 where x or the norm is 0."""
    norm = spread(out, x.shape, dims, keepdim)
    zero = c.logical_or(c.equal(norm, 0), c.equal(x, 0))
    ratio = c.where(zero, 1.0, abs(x)) / c.where(zero, 1.0, norm)
    slope = c.where(zero, 0.0, sign(x) * pow(ratio, p - 1))
    return spread(g, x.shape, dims, keepdim) * slope


def _norm(x: Any, *, p: float, dims: tuple[int, ...], keepdim: bool) -> Any:
    total = sum_(pow(abs(widened(x)), p), dims=dims, keepdim=keepdim)
    return rounded(pow(total, 1.0 / p), x)


norm_: Primitive = define(
    "norm",
    _norm,
    kind=OPAQUE,
    composite=True,
    vjp=_p_norm_gradient,
    batch=adapted(dims=shifted),
)


@op(
    samples=lambda: [
        Sample((3, 4)),
        Sample((3, 4), 1, 1),
        Sample((3, 4), 2, 0, True),
        Sample((3, 4), 1.5, 0),
        Sample((3, 4), 3.0, 1),
        Sample(In(3, 4, distinct=True), math.inf),
        Sample(In(3, 4, distinct=True), -math.inf, 1),
        Sample((3, 4), 0, 1),
    ],
    autocast=ON_GPU,
)
def norm(
    input: Tensor,
    p: Number | str = 2,
    dim: Dims | None = None,
    keepdim: bool = False,
    dtype: DTypeLike | None = None,
) -> Any:
    """The p-norm of all elements, or along dimensions.

    sum(|x|**p)**(1 / p); `p` may also be inf, -inf, 0 (counts nonzero elements) or "fro" (p = 2).

    >>> import tapegrad
    >>> tapegrad.norm(tapegrad.tensor([3.0, 4.0])), tapegrad.norm(tapegrad.tensor([3.0, 4.0]), p=1)
    (tensor(5.), tensor(7.))
    """
    check_constant(p, "norm: p")
    x = input if dtype is None else input.to(as_dtype(dtype))
    check_floating(x, "norm", complex=True, error=RuntimeError)
    x = abs(x) if is_complex(x) else x
    if p == "nuc":
        from ..factors.older import nuclear_norm  # loaded at first use

        return nuclear_norm(input if dtype is None else input.to(as_dtype(dtype)), dim, keepdim)
    dims = normal_dims(dim, x._array.ndim)
    keepdim = bool(keepdim)
    if p in (2, "fro", None):
        return norm2_.direct(x, {"dims": dims, "keepdim": keepdim})
    if p == math.inf:
        return amax_(abs(x), dims=dims, keepdim=keepdim)
    if p == -math.inf:
        return amin_(abs(x), dims=dims, keepdim=keepdim)
    if p == 1:
        return sum_(abs(x), dims=dims, keepdim=keepdim)
    if p == 0:
        return sum_(c.where(c.isnan(x), 1.0, sign(abs(x))), dims=dims, keepdim=keepdim)
    return norm_.direct(x, {"p": float(p), "dims": dims, "keepdim": keepdim})


@op(
    samples=lambda: [
        Sample((3, 4), 2, 0, 1.0),
        Sample((3, 4, 2), 1, -2, 0.5),
        Sample((3, 4), math.inf, 1, 50.0),
    ],
    inplace=True,
    autocast={"cuda": "full"},
)
def renorm(input: Tensor, p: Number, dim: int, maxnorm: float) -> Any:
    """Scale down slices along `dim` whose p-norm is larger than `maxnorm` to that norm.

    >>> import tapegrad
    >>> tapegrad.renorm(tapegrad.tensor([[3.0, 4.0], [0.0, 1.0]]), p=2, dim=0, maxnorm=2.5)
    tensor([[1.5000, 2.0000],
            [0.0000, 1.0000]])
    """
    n = input._array.ndim
    if n < 2:
        raise RuntimeError(f"renorm needs at least 2 dimensions, got shape {tuple(input.shape)}")
    if p <= 0 or maxnorm < 0:
        raise RuntimeError(f"renorm needs p > 0 and maxnorm >= 0, got {p} and {maxnorm}")
    kept = normal_dim(dim, n)
    length = norm(input, p, tuple(d for d in range(n) if d != kept), True)
    return input * c.where(length > maxnorm, maxnorm / (length + 1e-7), 1.0)
