"""Softmax along a dimension, its logarithm, and functions built on them.

Comes in: numbers. Goes out: positive ones that sum to 1 along `dim`, or their logarithms. Both are
composites that save only their output. Called by attention and by the losses of classification.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import xp
from ...core.batch_rules import adapted, shifted
from ...core.casting import ON_GPU
from ...core.dtypes import as_dtype
from ...core.primitive import OPAQUE, Primitive, define
from ..drawing import random_array
from ..elementwise import exponentials as e
from ..elementwise import extremes
from ..elementwise.copies import detach
from ..precision import check_floating, rounded, widened
from ..reduce.largest import amax_
from ..reduce.reductions import sum_
from ..shape.dims import normal_dim
from ..table import In, Sample, op

if TYPE_CHECKING:
    from ...core.tensor import Tensor
    from ..annotations import DTypeLike

F = "nn.functional"


def _softmax(x: Any, *, dims: tuple[int, ...]) -> Any:
    if xp.is_plain(x):
        powers = xp.spread(xp.reduced(np.maximum, x, dims, True), x.shape)
        np.exp(np.subtract(x, powers, powers), powers)
        powers /= xp.spread(xp.summed(powers, dims, True), x.shape)
        return powers
    wide = widened(x)
    powers = e.exp(wide - amax_(detach(wide), dims=dims, keepdim=True))
    return rounded(powers / sum_(powers, dims=dims, keepdim=True), x)


softmax_ = define(
    "softmax",
    _softmax,
    kind=OPAQUE,
    composite=True,
    vjp=lambda g, out, dims: out * (g - sum_(g * out, dims=dims, keepdim=True)),
    batch=adapted(dims=shifted),
)


def _log_softmax(x: Any, *, dims: tuple[int, ...]) -> Any:
    if xp.is_plain(x):
        lower = xp.spread(xp.reduced(np.maximum, x, dims, True), x.shape)
        np.subtract(x, lower, lower)
        lower -= xp.spread(np.log(xp.summed(np.exp(lower), dims, True)), x.shape)
        return lower
    wide = widened(x)
    lower = wide - amax_(detach(wide), dims=dims, keepdim=True)
    return rounded(lower - e.log(sum_(e.exp(lower), dims=dims, keepdim=True)), x)


def _log_softmax_gradient(g: Any, out: Any, dims: tuple[int, ...]) -> Any:
    return g - e.exp(out) * sum_(g, dims=dims, keepdim=True)


log_softmax_ = define(
    "log_softmax",
    _log_softmax,
    kind=OPAQUE,
    composite=True,
    vjp=_log_softmax_gradient,
    batch=adapted(dims=shifted),
)


def nothing(x: Any) -> Any:
    """The softmax of an empty tensor, with derivatives of all orders."""
    return x * x


def _along(primitive: Primitive, input: Any, dim: Any, dtype: Any) -> Any:
    name = primitive.name
    if dim is None:
        raise TypeError(f"{name}() needs dim, the dimension whose elements sum to 1, such as -1")
    d = normal_dim(dim, input._array.ndim)
    x = input if dtype is None else input.to(as_dtype(dtype))
    if x._array.size == 0:
        return nothing(x)
    check_floating(x, name)
    if not x._array.flags.c_contiguous:
        x = x.contiguous()  # as in PyTorch, so that the result can be viewed
    return primitive.direct(x, {"dims": (d,) if x._array.ndim else ()})


def _along_samples() -> list[Sample]:
    return [Sample((3, 4), 1), Sample((2, 3, 4), dim=0), Sample((3, 4), -1), Sample((), 0)]


@op(
    samples=lambda: [*_along_samples(), Sample(In(0, 3), 1)],
    autocast=ON_GPU,
)
def softmax(input: Tensor, dim: int | None = None, dtype: DTypeLike | None = None) -> Any:
    """exp(x) / sum(exp(x)) along `dim`: positive numbers that sum to 1.

    >>> import tapegrad
    >>> tapegrad.softmax(tapegrad.tensor([[0.0, 0.0], [0.0, 1.0]]), dim=1)
    tensor([[0.5000, 0.5000],
            [0.2689, 0.7311]])
    """
    return _along(softmax_, input, dim, dtype)


@op(
    samples=lambda: [*_along_samples(), Sample(In(0, 3), 1)],
    autocast=ON_GPU,
)
def log_softmax(input: Tensor, dim: int | None = None, dtype: DTypeLike | None = None) -> Any:
    """x - log(sum(exp(x))) along a dimension: the logarithm of softmax, without overflow.

    >>> import tapegrad
    >>> tapegrad.log_softmax(tapegrad.tensor([[0.0, 0.0], [0.0, 1.0]]), dim=1)
    tensor([[-0.6931, -0.6931],
            [-1.3133, -0.3133]])
    """
    return _along(log_softmax_, input, dim, dtype)


def _implied_dim(name: str, dim: Any, ndim: int, stacklevel: int) -> Any:
    """The dimension; if none is given, warn and choose as PyTorch does."""
    if dim is not None:
        return dim
    chosen = 0 if ndim in (0, 1, 3) else 1
    warnings.warn(
        f"{name} without dim takes dim={chosen} here, which is deprecated; give dim",
        stacklevel=stacklevel + 1,
    )
    return chosen


@op("softmax", module=F, samples=_along_samples, autocast=ON_GPU)
def _softmax_of_layers(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DTypeLike | None = None
) -> Any:
    """exp(x) / sum(exp(x)) along `dim`: positive numbers that sum to 1.

    >>> import tapegrad
    >>> tapegrad.nn.functional.softmax(tapegrad.tensor([[0.0, 0.0], [0.0, 1.0]]), dim=1)
    tensor([[0.5000, 0.5000],
            [0.2689, 0.7311]])
    """
    dim = _implied_dim("softmax", dim, input._array.ndim, _stacklevel)
    return _along(softmax_, input, dim, dtype)


@op("log_softmax", module=F, samples=_along_samples, autocast=ON_GPU)
def _log_softmax_of_layers(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DTypeLike | None = None
) -> Any:
    """x - log(sum(exp(x))) along a dimension: the logarithm of softmax, without overflow.

    >>> import tapegrad
    >>> tapegrad.nn.functional.log_softmax(tapegrad.tensor([[0.0, 0.0], [0.0, 1.0]]), dim=1)
    tensor([[-0.6931, -0.6931],
            [-1.3133, -0.3133]])
    """
    dim = _implied_dim("log_softmax", dim, input._array.ndim, _stacklevel)
    return _along(log_softmax_, input, dim, dtype)


@op(module=F, samples=_along_samples)
def softmin(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DTypeLike | None = None
) -> Any:
    """exp(-x) / sum(exp(-x)) along a dimension: the softmax of -x.

    >>> import tapegrad
    >>> tapegrad.nn.functional.softmin(tapegrad.tensor([[0.0, 0.0], [0.0, 1.0]]), dim=1)
    tensor([[0.5000, 0.5000],
            [0.7311, 0.2689]])
    """
    dim = _implied_dim("softmin", dim, input._array.ndim, _stacklevel)
    return softmax(-input, dim, dtype)


@op(
    module=F,
    random=True,
    samples=lambda: [
        Sample((3, 4)),
        Sample((3, 4), tau=0.5, dim=0),
        Sample(In(2, 3, grad=False), hard=True),
    ],
)
def gumbel_softmax(
    logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Any:
    """Draws of a softmax with temperature tau: softmax((logits + Gumbel noise) / tau).

    With `hard` the result is one-hot, with the gradient of the soft draw.

    >>> import tapegrad
    >>> drawn = tapegrad.nn.functional.gumbel_softmax(tapegrad.zeros(2, 3), hard=True)
    >>> drawn.sum(dim=-1)
    tensor([1., 1.])
    """
    check_floating(logits, "gumbel_softmax")
    shape = tuple(logits._array.shape)
    drawn = random_array("uniform", shape, np.float32, device=logits.device)
    drawn = drawn.to(widened(logits.detach()).dtype)
    # Uniform numbers may be 0, whose logarithm would make the noise infinite.
    uniform = extremes.clamp_numbers(drawn, low=2.0**-25, high=1.0)
    noise = (-e.log(-e.log1p(-uniform))).to(logits.dtype)
    soft = softmax((logits + noise) / tau, dim)
    if not hard:
        return soft
    value = soft.detach()
    index = value.argmax(dim, keepdim=True)
    return value.new_zeros(shape).scatter(dim, index, 1.0) - value + soft
