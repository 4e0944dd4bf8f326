"""Kullback-Leibler divergences of two distributions of the same class."""

from __future__ import annotations

import math
from typing import Any

from .. import digamma, exp, lgamma, log1p, where
from ..autograd.api import grad
from ..nn.functional import softplus
from .bernoulli import Bernoulli
from .beta import Beta
from .binomial import Binomial
from .categorical import Categorical
from .cauchy import Cauchy
from .continuous_bernoulli import ContinuousBernoulli
from .dirichlet import Dirichlet
from .exp_family import ExponentialFamily
from .exponential import Exponential
from .gamma import Gamma
from .geometric import Geometric
from .gumbel import Gumbel
from .half_normal import HalfNormal
from .independent import Independent
from .kl import kl_divergence, register_kl
from .laplace import Laplace
from .normal import Normal
from .one_hot_categorical import OneHotCategorical
from .pareto import Pareto
from .poisson import Poisson
from .transformed_distribution import TransformedDistribution
from .uniform import Uniform
from .utils import _sum_rightmost, euler_constant


def _weighed(weight: Any, term: Any, infinite: Any) -> Any:
    """weight * term, or infinity where `infinite` is true; 0 where the weight is 0."""
    product = where(infinite, math.inf, weight * term)
    return where(weight == 0, 0.0, product)


@register_kl(Bernoulli, Bernoulli)
def _kl_bernoulli(p: Any, q: Any) -> Any:
    ones = _weighed(p.probs, softplus(-q.logits) - softplus(-p.logits), q.probs == 0)
    zeros = _weighed(1 - p.probs, softplus(q.logits) - softplus(p.logits), q.probs == 1)
    return ones + zeros


@register_kl(Binomial, Binomial)
def _kl_binomial(p: Any, q: Any) -> Any:
    if (p.total_count < q.total_count).any():
        raise NotImplementedError(
            "there is no formula for the KL divergence of Binomials where q.total_count is the "
            "smaller one"
        )
    each = p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p()
    return where(p.total_count > q.total_count, math.inf, p.total_count * each)


@register_kl(Categorical, Categorical)
def _kl_categorical(p: Any, q: Any) -> Any:
    return _weighed(p.probs, p.logits - q.logits, q.probs == 0).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _kl_one_hot_categorical(p: Any, q: Any) -> Any:
    return _kl_categorical(p._categorical, q._categorical)


@register_kl(Poisson, Poisson)
def _kl_poisson(p: Any, q: Any) -> Any:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Geometric, Geometric)
def _kl_geometric(p: Any, q: Any) -> Any:
    return -p.entropy() - log1p(-q.probs) / p.probs - q.logits


@register_kl(Normal, Normal)
def _kl_normal(p: Any, q: Any) -> Any:
    ratio = (p.scale / q.scale).pow(2)
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).pow(2) - 1 - ratio.log())


@register_kl(HalfNormal, HalfNormal)
def _kl_half_normal(p: Any, q: Any) -> Any:
    return _kl_normal(p.base_dist, q.base_dist)


@register_kl(Laplace, Laplace)
def _kl_laplace(p: Any, q: Any) -> Any:
    ratio = p.scale / q.scale
    away = (p.loc - q.loc).abs()
    return -ratio.log() + away / q.scale + ratio * exp(-away / p.scale) - 1


@register_kl(Cauchy, Cauchy)
def _kl_cauchy(p: Any, q: Any) -> Any:
    wide = ((p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)).log()
    return wide - (4 * p.scale * q.scale).log()


@register_kl(Gumbel, Gumbel)
def _kl_gumbel(p: Any, q: Any) -> Any:
    ratio = p.scale / q.scale
    away = (q.loc - p.loc) / q.scale
    tail = exp(away + (1 + ratio).lgamma())
    return ratio * euler_constant - ratio.log() - away + tail - (1 + euler_constant)


@register_kl(Exponential, Exponential)
def _kl_exponential(p: Any, q: Any) -> Any:
    ratio = q.rate / p.rate
    return ratio - ratio.log() - 1


@register_kl(Gamma, Gamma)
def _kl_gamma(p: Any, q: Any) -> Any:
    return (
        q.concentration * (p.rate / q.rate).log()
        + lgamma(q.concentration)
        - lgamma(p.concentration)
        + (p.concentration - q.concentration) * digamma(p.concentration)
        + (q.rate - p.rate) * (p.concentration / p.rate)
    )


@register_kl(Beta, Beta)
def _kl_beta(p: Any, q: Any) -> Any:
    return _kl_dirichlet(p._dirichlet, q._dirichlet)


@register_kl(Dirichlet, Dirichlet)
def _kl_dirichlet(p: Any, q: Any) -> Any:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    normalizers = total.lgamma() - b.sum(-1).lgamma() - (a.lgamma() - b.lgamma()).sum(-1)
    return normalizers + ((a - b) * (a.digamma() - total.digamma().unsqueeze(-1))).sum(-1)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _kl_continuous_bernoulli(p: Any, q: Any) -> Any:
    normalizers = p._cont_bern_log_norm() - q._cont_bern_log_norm()
    return p.mean * (p.logits - q.logits) + normalizers + log1p(-p.probs) - log1p(-q.probs)


@register_kl(Pareto, Pareto)
def _kl_pareto(p: Any, q: Any) -> Any:
    ratio = q.alpha / p.alpha
    result = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return where(p.scale < q.scale, math.inf, result)


@register_kl(Uniform, Uniform)
def _kl_uniform(p: Any, q: Any) -> Any:
    result = ((q.high - q.low) / (p.high - p.low)).log()
    return where((q.low > p.low) | (q.high < p.high), math.inf, result)


@register_kl(ExponentialFamily, ExponentialFamily)
def _kl_exponential_family(p: Any, q: Any) -> Any:
    """The Bregman divergence of the log normalizer."""
    if type(p) is not type(q):
        raise NotImplementedError(
            "a Bregman divergence compares distributions of the same family alone"
        )
    own = [x.detach().requires_grad_() for x in p._natural_params]
    other = q._natural_params
    normalizer = p._log_normalizer(*own)
    slopes = grad(normalizer.sum(), own, create_graph=True)
    result = q._log_normalizer(*other) - normalizer
    for x, y, slope in zip(own, other, slopes, strict=True):
        result = result - _sum_rightmost((y - x) * slope, len(q.event_shape))
    return result


@register_kl(TransformedDistribution, TransformedDistribution)
def _kl_transformed(p: Any, q: Any) -> Any:
    if p.transforms != q.transforms:
        raise NotImplementedError("KL(p || q) of distributions with different transforms")
    if p.event_shape != q.event_shape:
        raise NotImplementedError("KL(p || q) of distributions with different event shapes")
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Independent, Independent)
def _kl_independent(p: Any, q: Any) -> Any:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("KL(p || q) with different reinterpreted_batch_ndims")
    each = kl_divergence(p.base_dist, q.base_dist)
    return _sum_rightmost(each, p.reinterpreted_batch_ndims)
