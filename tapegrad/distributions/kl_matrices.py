"""Kullback-Leibler divergences of multivariate normal distributions."""

from __future__ import annotations

from typing import Any

from .. import broadcast_shapes, diag_embed
from ..linalg import solve_triangular
from .kl import register_kl
from .lowrank_multivariate_normal import (
    LowRankMultivariateNormal,
    _batch_lowrank_logdet,
    _batch_lowrank_mahalanobis,
)
from .multivariate_normal import MultivariateNormal, _batch_mahalanobis, _log_diagonal


def _trace_of_square(matrix: Any) -> Any:
    """tr(X X^T)."""
    return matrix.pow(2).sum((-2, -1))


def _check_event_shapes(p: Any, q: Any) -> None:
    if p.event_shape != q.event_shape:
        raise ValueError(
            "the KL divergence needs normal distributions of the same event_shape, got "
            f"{tuple(p.event_shape)} and {tuple(q.event_shape)}"
        )


def _solved(factor: Any, other: Any) -> Any:
    """factor^-1 other; the batches of the matrices broadcast."""
    batch = broadcast_shapes(factor.shape[:-2], other.shape[:-2])
    factor = factor.expand((*batch, *factor.shape[-2:]))
    return solve_triangular(factor, other.expand((*batch, *other.shape[-2:])), upper=False)


@register_kl(MultivariateNormal, MultivariateNormal)
def _kl_multivariate_normal(p: Any, q: Any) -> Any:
    _check_event_shapes(p, q)
    ours, theirs = p._unbroadcasted_scale_tril, q._unbroadcasted_scale_tril
    trace = _trace_of_square(_solved(theirs, ours))
    away = _batch_mahalanobis(theirs, q.loc - p.loc)
    half = _log_diagonal(theirs) - _log_diagonal(ours)
    return half + 0.5 * (trace + away - p.event_shape[0])


def _log_det(p: Any) -> Any:
    if isinstance(p, MultivariateNormal):
        return 2 * _log_diagonal(p._unbroadcasted_scale_tril)
    factor, diagonal = p._unbroadcasted_cov_factor, p._unbroadcasted_cov_diag
    return _batch_lowrank_logdet(factor, diagonal, p._capacitance_tril)


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
@register_kl(MultivariateNormal, LowRankMultivariateNormal)
def _kl_to_low_rank(p: Any, q: Any) -> Any:
    """The inverse of q's covariance is 1 / D - A^T A, by Woodbury's identity."""
    _check_event_shapes(p, q)
    factor, diagonal = q._unbroadcasted_cov_factor, q._unbroadcasted_cov_diag
    away = _batch_lowrank_mahalanobis(factor, diagonal, q.loc - p.loc, q._capacitance_tril)
    a = _solved(q._capacitance_tril, factor.transpose(-2, -1) / diagonal.unsqueeze(-2))
    if isinstance(p, MultivariateNormal):
        parts = [p._unbroadcasted_scale_tril]
    else:
        parts = [p._unbroadcasted_cov_factor, diag_embed(p._unbroadcasted_cov_diag.sqrt())]
    trace: Any = 0.0
    for part in parts:
        scaled = part * diagonal.rsqrt().unsqueeze(-1)
        trace = trace + _trace_of_square(scaled) - _trace_of_square(a.matmul(part))
    return 0.5 * (_log_det(q) - _log_det(p) + trace + away - p.event_shape[0])


@register_kl(LowRankMultivariateNormal, MultivariateNormal)
def _kl_from_low_rank(p: Any, q: Any) -> Any:
    _check_event_shapes(p, q)
    theirs = q._unbroadcasted_scale_tril
    away = _batch_mahalanobis(theirs, q.loc - p.loc)
    diagonal = diag_embed(p._unbroadcasted_cov_diag.sqrt())
    trace = _trace_of_square(_solved(theirs, p._unbroadcasted_cov_factor))
    trace = trace + _trace_of_square(_solved(theirs, diagonal))
    return 0.5 * (_log_det(q) - _log_det(p) + trace + away - p.event_shape[0])
