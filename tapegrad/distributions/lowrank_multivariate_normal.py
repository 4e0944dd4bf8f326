"""The multivariate normal distribution with a covariance matrix of low rank plus a diagonal."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from .. import broadcast_tensors, diag_embed, eye, matmul
from ..linalg import cholesky, solve_triangular
from . import constraints
from .distribution import Distribution
from .multivariate_normal import _batch_mahalanobis, _batch_mv, _log_diagonal
from .utils import _standard_normal, lazy_property

__all__ = ["LowRankMultivariateNormal"]


def _with_identity(matrix: Any) -> Any:
    return matrix + eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)


def _batch_capacitance_tril(W: Any, D: Any) -> Any:
    """The Cholesky factor of I + W^T D^-1 W."""
    return cholesky(_with_identity(matmul(W.transpose(-2, -1) / D.unsqueeze(-2), W)))


def _batch_lowrank_logdet(W: Any, D: Any, capacitance_tril: Any) -> Any:
    """log |W W^T + D| = log |C| + log |D|, with the capacitance matrix C."""
    return 2 * _log_diagonal(capacitance_tril) + D.log().sum(-1)


def _batch_lowrank_mahalanobis(W: Any, D: Any, x: Any, capacitance_tril: Any) -> Any:
    """x^T (W W^T + D)^-1 x, by Woodbury's identity."""
    projected = _batch_mv(W.transpose(-2, -1) / D.unsqueeze(-2), x)
    return (x.pow(2) / D).sum(-1) - _batch_mahalanobis(capacitance_tril, projected)


class LowRankMultivariateNormal(Distribution):
    """Normal vectors with covariance matrix cov_factor cov_factor^T + diag(cov_diag).

    Only matrices of size rank x rank are factored, except by `scale_tril`.
    """

    arg_constraints: ClassVar[Any] = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self, loc: Any, cov_factor: Any, cov_diag: Any, validate_args: bool | None = None
    ) -> None:
        if loc.dim() < 1:
            raise ValueError(
                f"loc must be a vector or a batch of them, got the shape {tuple(loc.shape)}"
            )
        event_shape = loc.shape[-1:]
        if cov_factor.dim() < 2:
            raise ValueError(
                "cov_factor must be a matrix or a batch of them, got the shape "
                f"{tuple(cov_factor.shape)}"
            )
        if cov_factor.shape[-2:-1] != event_shape:
            raise ValueError(
                f"cov_factor must have {event_shape[0]} rows, got the shape "
                f"{tuple(cov_factor.shape)}"
            )
        if cov_diag.shape[-1:] != event_shape:
            raise ValueError(
                f"cov_diag must have {event_shape[0]} elements in its last dimension, got the "
                f"shape {tuple(cov_diag.shape)}"
            )
        try:
            column, self.cov_factor, diagonal = broadcast_tensors(
                loc.unsqueeze(-1), cov_factor, cov_diag.unsqueeze(-1)
            )
        except RuntimeError as error:
            raise ValueError(
                f"the batches of loc {tuple(loc.shape)}, cov_factor {tuple(cov_factor.shape)} "
                f"and cov_diag {tuple(cov_diag.shape)} do not broadcast together"
            ) from error
        self.loc = column[..., 0]
        self.cov_diag = diagonal[..., 0]
        self._unbroadcasted_cov_factor = cov_factor
        self._unbroadcasted_cov_diag = cov_diag
        self._capacitance_tril = _batch_capacitance_tril(cov_factor, cov_diag)
        super().__init__(self.loc.shape[:-1], event_shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(LowRankMultivariateNormal, _instance)
        new._unbroadcasted_cov_factor = self._unbroadcasted_cov_factor
        new._unbroadcasted_cov_diag = self._unbroadcasted_cov_diag
        new._capacitance_tril = self._capacitance_tril
        names = ("loc", "cov_diag", "cov_factor")
        return self._expanded(LowRankMultivariateNormal, batch_shape, new, *names)

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    @lazy_property
    def variance(self) -> Any:
        """The diagonal of the covariance matrix."""
        squares = self._unbroadcasted_cov_factor.pow(2).sum(-1)
        each = squares + self._unbroadcasted_cov_diag
        return each.expand(self._batch_shape + self._event_shape)

    def _matrix(self, value: Any) -> Any:
        return value.expand(self._batch_shape + self._event_shape + self._event_shape)

    @lazy_property
    def scale_tril(self) -> Any:
        """The Cholesky factor of the covariance matrix."""
        # D^1/2 (I + D^-1/2 W W^T D^-1/2) D^1/2: the eigenvalues of the middle are at least 1
        root = self._unbroadcasted_cov_diag.sqrt().unsqueeze(-1)
        scaled = self._unbroadcasted_cov_factor / root
        middle = _with_identity(matmul(scaled, scaled.transpose(-2, -1)))
        return self._matrix(root * cholesky(middle))

    @lazy_property
    def covariance_matrix(self) -> Any:
        """The covariance matrix."""
        factor = self._unbroadcasted_cov_factor
        outer = matmul(factor, factor.transpose(-2, -1))
        return self._matrix(outer + diag_embed(self._unbroadcasted_cov_diag))

    @lazy_property
    def precision_matrix(self) -> Any:
        """The inverse of the covariance matrix."""
        diagonal = self._unbroadcasted_cov_diag
        scaled = self._unbroadcasted_cov_factor.transpose(-2, -1) / diagonal.unsqueeze(-2)
        a = solve_triangular(self._capacitance_tril, scaled, upper=False)
        return self._matrix(diag_embed(diagonal.reciprocal()) - matmul(a.transpose(-2, -1), a))

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        options = {"dtype": self.loc.dtype, "device": self.loc.device}
        of_factor = _standard_normal(shape[:-1] + self.cov_factor.shape[-1:], **options)
        of_diagonal = _standard_normal(shape, **options)
        moved = self.loc + _batch_mv(self._unbroadcasted_cov_factor, of_factor)
        return moved + self._unbroadcasted_cov_diag.sqrt() * of_diagonal

    def _log_det(self) -> Any:
        return _batch_lowrank_logdet(
            self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag, self._capacitance_tril
        )

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        away = _batch_lowrank_mahalanobis(
            self._unbroadcasted_cov_factor,
            self._unbroadcasted_cov_diag,
            value - self.loc,
            self._capacitance_tril,
        )
        normalizer = self._event_shape[0] * math.log(2 * math.pi)
        return -0.5 * (normalizer + self._log_det() + away)

    def entropy(self) -> Any:
        each = self._event_shape[0] * (1.0 + math.log(2 * math.pi))
        entropy = 0.5 * (each + self._log_det())
        return entropy.expand(self._batch_shape) if self._batch_shape else entropy
