"""Kullback-Leibler divergences of two distributions of different classes.

KL(p || q) = -H(p) - E_p[log q(x)]: there is one formula for each class of q, which needs some
expectations under p. The divergence is infinite where p has values outside of the support of q.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .. import digamma, erf, exp, full_like, log, log1p, where, xlogy
from .bernoulli import Bernoulli
from .beta import Beta
from .binomial import Binomial
from .continuous_bernoulli import ContinuousBernoulli
from .exponential import Exponential
from .gamma import Gamma
from .gumbel import Gumbel
from .kl import register_kl
from .laplace import Laplace
from .normal import Normal
from .pareto import Pareto
from .poisson import Poisson
from .uniform import Uniform
from .utils import euler_constant


def _for_each(kinds: tuple[type, ...], other: type) -> Callable[[Any], Any]:
    """Register one function for several classes of p."""

    def enter(function: Any) -> Any:
        for kind in kinds:
            register_kl(kind, other)(function)
        return function

    return enter


# -- expectations under p --------------------------------------------------------------------------


def _mean_log(p: Any) -> Any:
    """E[log x]."""
    if isinstance(p, Beta):
        return digamma(p.concentration1) - digamma(p.concentration1 + p.concentration0)
    if isinstance(p, Exponential):
        return -euler_constant - p.rate.log()
    if isinstance(p, Pareto):
        return p.scale.log() + p.alpha.reciprocal()
    assert isinstance(p, Uniform)
    return _mean_log_between(p.low, p.high)


def _mean_log_between(low: Any, high: Any) -> Any:
    """The mean of log x for x between two numbers."""
    return (xlogy(high, high) - xlogy(low, low)) / (high - low) - 1


def _mean_exp(p: Any, scale: Any) -> Any:
    """E[exp(-x / scale)]."""
    if isinstance(p, Normal):
        return exp(0.5 * (p.scale / scale).pow(2) - p.loc / scale)
    if isinstance(p, Uniform):
        return scale / (p.high - p.low) * (exp(-p.low / scale) - exp(-p.high / scale))
    product = p.rate * scale
    if isinstance(p, Exponential):
        return product / (product + 1)
    assert isinstance(p, Gamma)
    return (1 + product.reciprocal()).pow(-p.concentration)


# -- where p has values outside of the support of q ------------------------------------------------

_OF_REALS: tuple[type, ...] = (Gumbel, Laplace, Normal)
_WITHOUT_END: tuple[type, ...] = (Exponential, Gamma, Pareto)


def _infinite(p: Any, q: Any) -> Any:
    """Infinity in the shape of p."""
    first = next(iter(p.arg_constraints))
    return full_like(getattr(p, "loc" if isinstance(p, _OF_REALS) else first), math.inf)


_for_each(_OF_REALS + _WITHOUT_END, Beta)(_infinite)
_for_each(_OF_REALS + _WITHOUT_END, ContinuousBernoulli)(_infinite)
_for_each(_OF_REALS + _WITHOUT_END, Uniform)(_infinite)
_for_each(_OF_REALS, Exponential)(_infinite)
_for_each(_OF_REALS, Gamma)(_infinite)
_for_each((*_OF_REALS, Beta, ContinuousBernoulli, Exponential, Gamma), Pareto)(_infinite)
_for_each((Poisson,), Bernoulli)(_infinite)
_for_each((Poisson,), Binomial)(_infinite)


def _below(p: Any, q: Any, result: Any) -> Any:
    """A result, or infinity where the uniform distribution p begins below the support of q."""
    return where(p.low < q.support.lower_bound, math.inf, result)


# -- formulas by the class of q --------------------------------------------------------------------


@_for_each((Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Laplace, Uniform), Normal)
def _kl_to_normal(p: Any, q: Any) -> Any:
    spread = (p.variance + (p.mean - q.loc).pow(2)) / q.scale.pow(2)
    return 0.5 * spread + q.scale.log() + 0.5 * math.log(2 * math.pi) - p.entropy()


@register_kl(Pareto, Normal)
def _kl_pareto_normal(p: Any, q: Any) -> Any:
    finite = p.alpha > 2
    inside = Pareto(p.scale, where(finite, p.alpha, 3.0), validate_args=False)
    return where(finite, _kl_to_normal(inside, q), math.inf)


@_for_each((Beta, ContinuousBernoulli, Gamma), Exponential)
def _kl_to_exponential(p: Any, q: Any) -> Any:
    return q.rate * p.mean - q.rate.log() - p.entropy()


@register_kl(Uniform, Exponential)
def _kl_uniform_exponential(p: Any, q: Any) -> Any:
    return _below(p, q, _kl_to_exponential(p, q))


@_for_each((Beta, Exponential), Gamma)
def _kl_to_gamma(p: Any, q: Any) -> Any:
    normalizer = q.concentration.lgamma() - q.concentration * q.rate.log()
    powers = (q.concentration - 1) * _mean_log(p)
    return normalizer - powers + q.rate * p.mean - p.entropy()


@register_kl(Uniform, Gamma)
def _kl_uniform_gamma(p: Any, q: Any) -> Any:
    return _below(p, q, _kl_to_gamma(p, q))


@register_kl(Pareto, Exponential)
@register_kl(Pareto, Gamma)
def _kl_from_pareto(p: Any, q: Any) -> Any:
    finite = p.alpha > 1
    inside = Pareto(p.scale, where(finite, p.alpha, 2.0), validate_args=False)
    formula = _kl_to_gamma if isinstance(q, Gamma) else _kl_to_exponential
    return where(finite, formula(inside, q), math.inf)


@_for_each((Exponential, Gamma, Normal, Uniform), Gumbel)
def _kl_to_gumbel(p: Any, q: Any) -> Any:
    away = (p.mean - q.loc) / q.scale
    tail = exp(q.loc / q.scale) * _mean_exp(p, q.scale)
    return q.scale.log() + away + tail - p.entropy()


@_for_each((Beta,), ContinuousBernoulli)
def _kl_to_continuous_bernoulli(p: Any, q: Any) -> Any:
    return -p.entropy() - p.mean * q.logits - log1p(-q.probs) - q._cont_bern_log_norm()


@register_kl(Uniform, ContinuousBernoulli)
def _kl_uniform_continuous_bernoulli(p: Any, q: Any) -> Any:
    outside = (p.high >= q.support.upper_bound) | (p.low <= q.support.lower_bound)
    return where(outside, math.inf, _kl_to_continuous_bernoulli(p, q))


@register_kl(Bernoulli, Poisson)
def _kl_bernoulli_poisson(p: Any, q: Any) -> Any:
    return q.rate - p.probs * q.rate.log() - p.entropy()


@register_kl(Beta, Uniform)
def _kl_beta_uniform(p: Any, q: Any) -> Any:
    inside = (q.low <= p.support.lower_bound) & (q.high >= p.support.upper_bound)
    return where(inside, (q.high - q.low).log() - p.entropy(), math.inf)


@register_kl(ContinuousBernoulli, Uniform)
def _kl_continuous_bernoulli_uniform(p: Any, q: Any) -> Any:
    outside = (q.low >= p.support.lower_bound) | (q.high <= p.support.upper_bound)
    return where(outside, math.inf, (q.high - q.low).log() - p.entropy())


@register_kl(Normal, Laplace)
def _kl_normal_laplace(p: Any, q: Any) -> Any:
    away = p.loc - q.loc
    z = away / p.scale
    distance = math.sqrt(2 / math.pi) * p.scale * exp(-0.5 * z.pow(2))
    distance = distance + away * erf(math.sqrt(0.5) * z)
    return log(2 * q.scale) + distance / q.scale - p.entropy()


@register_kl(Uniform, Beta)
def _kl_uniform_beta(p: Any, q: Any) -> Any:
    a, b = q.concentration1, q.concentration0
    normalizer = a.lgamma() + b.lgamma() - (a + b).lgamma()
    logs = (a - 1) * _mean_log_between(p.low, p.high)
    logs = logs + (b - 1) * _mean_log_between(1 - p.high, 1 - p.low)
    outside = (p.high > q.support.upper_bound) | (p.low < q.support.lower_bound)
    return where(outside, math.inf, normalizer - logs - p.entropy())


@register_kl(Uniform, Pareto)
def _kl_uniform_pareto(p: Any, q: Any) -> Any:
    logs = (q.alpha + 1) * _mean_log(p) - q.alpha * q.scale.log() - q.alpha.log()
    return _below(p, q, logs - p.entropy())
