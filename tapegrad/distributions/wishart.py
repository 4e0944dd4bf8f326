"""The Wishart distribution."""

from __future__ import annotations

import math
import warnings
from typing import Any

from .. import (
    Size,
    arange,
    broadcast_shapes,
    cholesky_solve,
    clamp,
    diag_embed,
    digamma,
    eye,
    finfo,
    matmul,
    randn,
    tensor,
    where,
)
from ..core.modes import capturing
from ..linalg import cholesky, slogdet
from . import constraints
from .chi2 import Chi2
from .exp_family import ExponentialFamily
from .multivariate_normal import _log_diagonal, _precision_to_scale_tril
from .utils import _Number, as_size, lazy_property, log_multigamma

__all__ = ["Wishart"]


def _mvdigamma(x: Any, p: int) -> Any:
    """The derivative of `log_multigamma`."""
    return digamma(x.unsqueeze(-1) - arange(p, dtype=x.dtype, device=x.device) / 2).sum(-1)


class Wishart(ExponentialFamily):
    """The sum of outer products of `df` normal vectors with mean 0 and a given covariance.

    The covariance is given as `covariance_matrix`, `precision_matrix` or `scale_tril`.
    """

    support = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure = 0

    @property
    def arg_constraints(self) -> Any:
        """`df` is above the matrix's size minus 1."""
        return {
            "covariance_matrix": constraints.positive_definite,
            "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky,
            "df": constraints.greater_than(self.event_shape[-1] - 1),
        }

    def __init__(
        self,
        df: Any,
        covariance_matrix: Any = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        matrices = {
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
            "scale_tril": scale_tril,
        }
        given = [(name, matrix) for name, matrix in matrices.items() if matrix is not None]
        assert len(given) == 1, "give one of covariance_matrix, precision_matrix and scale_tril"
        ((name, matrix),) = given
        if matrix.dim() < 2:
            raise ValueError("scale_tril must be a matrix or a batch of them")
        if isinstance(df, _Number):
            batch_shape = Size(matrix.shape[:-2])
            self.df = tensor(df, dtype=matrix.dtype, device=matrix.device)
        else:
            batch_shape = Size(broadcast_shapes(matrix.shape[:-2], df.shape))
            self.df = df.expand(batch_shape)
        n = matrix.shape[-1]
        if not capturing():
            self._check_degrees(df, n)
        setattr(self, name, matrix.expand((*batch_shape, -1, -1)))
        super().__init__(batch_shape, matrix.shape[-2:], validate_args=validate_args)
        if name == "scale_tril":
            self._unbroadcasted_scale_tril = matrix
        elif name == "covariance_matrix":
            self._unbroadcasted_scale_tril = cholesky(matrix)
        else:
            self._unbroadcasted_scale_tril = _precision_to_scale_tril(matrix)
        self._set_chi2()

    def _check_degrees(self, df: Any, n: int) -> None:
        if (self.df <= n - 1).any():
            raise ValueError(
                f"df must be above {n - 1}, one less than the size of the matrix; got {df}"
            )
        if (self.df < n).any():
            warnings.warn(
                "samples are likely to be singular, because df is below the size of the matrix",
                stacklevel=3,
            )

    def _set_chi2(self) -> None:
        """Set the distributions of the squared diagonal of Bartlett's triangular factor."""
        factor = self._unbroadcasted_scale_tril
        counts = arange(self._event_shape[-1], dtype=factor.dtype, device=factor.device)
        self._dist_chi2 = Chi2(df=self.df.expand(self._batch_shape).unsqueeze(-1) - counts)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(Wishart, _instance)
        size = as_size(batch_shape)
        new.df = self.df.expand(size)
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril.expand(
            size + self.event_shape
        )
        names = ("covariance_matrix", "scale_tril", "precision_matrix")
        self._expanded(Wishart, size, new, *names)
        new._set_chi2()
        return new

    def _matrix(self, value: Any) -> Any:
        return value.expand(self._batch_shape + self._event_shape)

    @lazy_property
    def scale_tril(self) -> Any:
        """The Cholesky factor of the covariance."""
        return self._matrix(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Any:
        """The covariance of the vectors."""
        factor = self._unbroadcasted_scale_tril
        return self._matrix(matmul(factor, factor.transpose(-2, -1)))

    @lazy_property
    def precision_matrix(self) -> Any:
        """The inverse of the covariance."""
        factor = self._unbroadcasted_scale_tril
        identity = eye(self._event_shape[-1], dtype=factor.dtype, device=factor.device)
        return self._matrix(cholesky_solve(identity, factor))

    def _degrees(self) -> Any:
        return self.df.expand(self._batch_shape).reshape((*self._batch_shape, 1, 1))

    @property
    def mean(self) -> Any:
        return self._degrees() * self.covariance_matrix

    @property
    def mode(self) -> Any:
        factor = self._degrees() - self._event_shape[-1] - 1
        return where(factor <= 0, math.nan, factor) * self.covariance_matrix

    @property
    def variance(self) -> Any:
        covariance = self.covariance_matrix
        diagonal = covariance.diagonal(dim1=-2, dim2=-1)
        outer = diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2)
        return self._degrees() * (covariance.pow(2) + outer)

    def _bartlett_sampling(self, sample_shape: Any = ()) -> Any:
        """F F^T, where F is scale_tril times a triangle of normals and roots of Chi2 samples."""
        roots = self._dist_chi2.rsample(sample_shape).sqrt()
        roots = clamp(roots, min=finfo(roots.dtype).eps)
        shape = self._extended_shape(sample_shape)
        below = randn(shape, dtype=roots.dtype, device=roots.device).tril(-1)
        factor = matmul(self._unbroadcasted_scale_tril, below + diag_embed(roots))
        return matmul(factor, factor.transpose(-2, -1))

    def rsample(self, sample_shape: Any = (), max_try_correction: int | None = None) -> Any:
        """Draw samples; outside of compiled functions, singular ones are redrawn."""
        size = Size(sample_shape)
        sample = self._bartlett_sampling(size)
        if capturing():
            return sample
        for _ in range(10 if max_try_correction is None else max_try_correction):
            regular = self.support.check(sample)
            if regular.all():
                break
            warnings.warn("Singular sample detected.", stacklevel=2)
            sample = where(regular[..., None, None], sample, self._bartlett_sampling(size))
        return sample

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        p = self._event_shape[-1]
        factor = self._unbroadcasted_scale_tril
        trace = cholesky_solve(value, factor).diagonal(dim1=-2, dim2=-1).sum(dim=-1)
        return (
            -self.df * (p * math.log(2) / 2 + _log_diagonal(factor))
            - log_multigamma(self.df / 2, p)
            + (self.df - p - 1) / 2 * slogdet(value).logabsdet
            - trace / 2
        )

    def entropy(self) -> Any:
        p = self._event_shape[-1]
        half = self.df / 2
        scale = p * math.log(2) / 2 + _log_diagonal(self._unbroadcasted_scale_tril)
        slope = (self.df - p - 1) / 2 * _mvdigamma(half, p)
        return (p + 1) * scale + log_multigamma(half, p) - slope + half * p

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return -self.precision_matrix / 2, (self.df - self._event_shape[-1] - 1) / 2

    def _log_normalizer(self, x: Any, y: Any) -> Any:
        p = self._event_shape[-1]
        half = y + (p + 1) / 2
        scale = math.log(2) * p - slogdet(-2 * x).logabsdet
        return half * scale + log_multigamma(half, p)
