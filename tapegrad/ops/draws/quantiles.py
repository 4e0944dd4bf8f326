"""Draws by quantile functions: a uniform number becomes a sample of a distribution.

Comes in: parameters and uniform numbers. Goes out: samples. The primitives here are pure: the only
random part is the draw of uniform numbers (`ops/drawing.py`), which tapes and compiled functions
repeat. SciPy computes the quantiles. The parameters of gamma and Dirichlet distributions get
gradients (`moments.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import numeric, xp
from ...core.batch_rules import leading
from ...core.primitive import ELEMENTWISE, OPAQUE, Primitive, define
from ...core.tensor import Tensor
from ..drawing import random_array
from ..reduce.reductions import sum_
from .moments import dirichlet_grad_, standard_gamma_grad_

if TYPE_CHECKING:
    from ...random import Generator


def _wide(u: Any) -> Any:
    """Uniform numbers moved away from 0 and 1, whose quantiles may be infinite."""
    return np.minimum(np.asarray(u, np.float64) + 2.0**-54, 1 - 2.0**-53)


def _tiny(dtype: Any) -> Any:
    return np.finfo(np.float32 if numeric.is_half(dtype) else dtype).tiny


def _gamma_quantile(a: Any, u: Any) -> Any:
    special = xp.special(a)
    out = special.gammaincinv(np.asarray(a, np.float64), _wide(u))
    return np.maximum(out, _tiny(a.dtype)).astype(a.dtype)


gamma_quantile_: Primitive = define(
    "gamma_quantile",
    _gamma_quantile,
    kind=ELEMENTWISE,
    vjp=(lambda g, a, out: g * standard_gamma_grad_(a, out), None),
    abstract=lambda a, u: (np.broadcast_shapes(a[0], u[0]), a[1]),
    loads=True,
)


def _standard_gamma(input: Tensor, generator: Generator | None = None) -> Any:
    """Samples of gamma distributions with rate 1, with gradients for the concentration."""
    shape = tuple(input._array.shape)
    u = random_array("uniform", shape, np.float64, generator, device=input.device)
    return gamma_quantile_(input, u)


def _standard_gamma_grad(input: Tensor, output: Tensor) -> Any:
    """The derivative of samples of gamma distributions by their concentration."""
    return standard_gamma_grad_(input, output)


def _dirichlet_draw(alpha: Any, u: Any, v: Any) -> Any:
    """Normalized gamma samples.

    They are computed as logarithms, because samples of small concentrations may underflow:
    a sample with concentration a is one with a + 1 times v^(1/a).
    """
    a = np.asarray(alpha, np.float64)
    logs = np.log(xp.special(alpha).gammaincinv(a + 1, _wide(u))) + np.log(_wide(v)) / a
    weights = np.exp(logs - logs.max(-1, keepdims=True))
    out = weights / weights.sum(-1, keepdims=True)
    return np.maximum(out, _tiny(alpha.dtype)).astype(alpha.dtype)


def _dirichlet_gradient(g: Any, alpha: Any, out: Any) -> Any:
    total = sum_(alpha, dims=(len(alpha.shape) - 1,), keepdim=True)
    moved = sum_(out * g, dims=(len(alpha.shape) - 1,), keepdim=True)
    return dirichlet_grad_(out, alpha, total) * (g - moved)


dirichlet_draw_: Primitive = define(
    "dirichlet_draw",
    _dirichlet_draw,
    kind=OPAQUE,
    vjp=(_dirichlet_gradient, None, None),
    batch=leading,
    abstract=lambda alpha, u, v: alpha,
    loads=True,
)


def _sample_dirichlet(input: Tensor, generator: Generator | None = None) -> Any:
    """Samples of Dirichlet distributions along the last dimension, with gradients."""
    shape = tuple(input._array.shape)
    u = random_array("uniform", shape, np.float64, generator, device=input.device)
    v = random_array("uniform", shape, np.float64, generator, device=input.device)
    return dirichlet_draw_(input, u, v)


def _dirichlet_grad(x: Tensor, alpha: Tensor, total: Tensor) -> Any:
    """dx/dalpha / (1 - x) of a sample x of a beta distribution (alpha, total - alpha)."""
    return dirichlet_grad_(x, alpha, total)


def _first_with(u: Any, found: Any, cdf: Any) -> Any:
    """The smallest integer whose distribution function is at least u, near the estimate `found`."""
    k = np.ceil(found)
    before = np.maximum(k - 1, 0)
    return np.where(cdf(before) >= u, before, np.where(cdf(k) >= u, k, k + 1))


def _poisson_quantile(rate: Any, u: Any) -> Any:
    if not np.all(rate >= 0):
        raise RuntimeError("poisson needs rates of at least 0")
    special = xp.special(rate)
    mean = np.asarray(rate, np.float64)
    u = _wide(u)
    with np.errstate(all="ignore"):
        found = special.pdtrik(u, np.where(mean > 0, mean, 1.0))
        out = _first_with(u, np.maximum(found, 0), lambda k: special.pdtr(k, mean))
    return np.where(mean > 0, out, 0.0).astype(rate.dtype)


poisson_quantile_: Primitive = define(
    "poisson_quantile",
    _poisson_quantile,
    kind=ELEMENTWISE,
    abstract=lambda rate, u: (np.broadcast_shapes(rate[0], u[0]), rate[1]),
    loads=True,
)


def poisson(input: Tensor, generator: Generator | None = None) -> Any:
    """Samples of Poisson distributions with the given rates, in the rates' dtype."""
    if not input.dtype.is_floating_point:
        raise NotImplementedError(f'"poisson_cpu" not implemented for {input.dtype}')
    shape = tuple(input._array.shape)
    u = random_array("uniform", shape, np.float64, generator, device=input.device)
    return poisson_quantile_(input.detach(), u)


def _binomial_quantile(count: Any, prob: Any, u: Any) -> Any:
    if not np.all((prob >= 0) & (prob <= 1)):
        raise RuntimeError("binomial needs probabilities between 0 and 1")
    if not np.all(count >= 0):
        raise RuntimeError("binomial needs counts of at least 0")
    special = xp.special(prob)
    n, p = (np.asarray(x, np.float64) for x in (count, prob))
    n, p, u = np.broadcast_arrays(n, p, _wide(u))
    with np.errstate(all="ignore"):
        inside = (p > 0) & (p < 1) & (n > 0)
        q = np.where(inside, p, 0.5)
        trials = np.where(inside, n, 1.0)
        whole = trials.astype(np.int64)
        found = np.clip(special.bdtrik(u, trials, q), 0, trials)
        out = _first_with(u, found, lambda k: special.bdtr(k, whole, q))
    out = np.where(inside, np.minimum(out, n), np.where(p > 0, n, 0.0))
    return out.astype(count.dtype)


binomial_quantile_: Primitive = define(
    "binomial_quantile",
    _binomial_quantile,
    kind=ELEMENTWISE,
    abstract=lambda count, prob, u: (
        np.broadcast_shapes(count[0], prob[0], u[0]),
        count[1],
    ),
    loads=True,
)


def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Any:
    """Random numbers of successes in `count` trials that succeed with probability `prob`."""
    shape = np.broadcast_shapes(count._array.shape, prob._array.shape)
    u = random_array("uniform", shape, np.float64, generator, device=prob.device)
    return binomial_quantile_(count.detach(), prob.detach(), u)
