"""The multivariate normal distribution."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from .. import Size, broadcast_shapes, cholesky_inverse, eye, flip, matmul
from ..linalg import cholesky, solve_triangular
from . import constraints
from .distribution import Distribution
from .utils import _standard_normal, lazy_property

__all__ = ["MultivariateNormal"]


def _batch_mv(bmat: Any, bvec: Any) -> Any:
    """Matrices times vectors; their batches broadcast."""
    return matmul(bmat, bvec.unsqueeze(-1)).squeeze(-1)


def _batch_mahalanobis(bL: Any, bx: Any) -> Any:
    """x^T (L L^T)^-1 x; the batch of L broadcasts to that of x."""
    n = bx.shape[-1]
    batch = bx.shape[:-1]
    dims = bL.dim() - 2
    lead = len(batch) - dims
    # Split each batch dimension of x into L's own and its repeats, which become right-hand sides.
    split: list[int] = list(batch[:lead])
    for own, whole in zip(bL.shape[:-2], batch[lead:], strict=True):
        split += [whole // own, own]
    repeats = [*range(lead), *range(lead, lead + 2 * dims, 2)]
    of_factor = [*range(lead + 1, lead + 2 * dims, 2)]
    moved = bx.reshape((*split, n)).permute((*of_factor, lead + 2 * dims, *repeats))
    sides = moved.reshape((*bL.shape[:-2], n, -1))
    solved = solve_triangular(bL, sides, upper=False).pow(2).sum(-2)
    result = solved.reshape([moved.shape[i] for i in (*range(dims), *range(dims + 1, moved.dim()))])
    order = [0] * (lead + 2 * dims)
    for place, axis in enumerate([*of_factor, *repeats]):
        order[axis] = place
    return result.permute(order).reshape(batch)


def _precision_to_scale_tril(P: Any) -> Any:
    """The Cholesky factor of the inverse of a matrix."""
    backwards = cholesky(flip(P, (-2, -1)))
    inverse = flip(backwards, (-2, -1)).transpose(-2, -1)
    identity = eye(P.shape[-1], dtype=P.dtype, device=P.device)
    return solve_triangular(inverse, identity.expand(inverse.shape), upper=False)


def _log_diagonal(factor: Any) -> Any:
    """Half of the log determinant of L L^T."""
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


class MultivariateNormal(Distribution):
    """Normal vectors with mean `loc` and a covariance matrix, given in one of three ways.

    `scale_tril` is the Cholesky factor of the covariance matrix; the others are converted to it.
    """

    arg_constraints: ClassVar[Any] = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        loc: Any,
        covariance_matrix: Any = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be a vector or a batch of them, it has no dimension")
        matrices = {
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
            "scale_tril": scale_tril,
        }
        given = [(name, matrix) for name, matrix in matrices.items() if matrix is not None]
        if len(given) != 1:
            raise ValueError("give one of covariance_matrix, precision_matrix and scale_tril")
        ((name, matrix),) = given
        if matrix.dim() < 2:
            shown = "scale_tril matrix" if name == "scale_tril" else name
            raise ValueError(f"{shown} must be a matrix or a batch of them")
        batch_shape = Size(broadcast_shapes(matrix.shape[:-2], loc.shape[:-1]))
        setattr(self, name, matrix.expand((*batch_shape, -1, -1)))
        self.loc = loc.expand((*batch_shape, -1))
        super().__init__(batch_shape, self.loc.shape[-1:], validate_args=validate_args)
        if name == "scale_tril":
            self._unbroadcasted_scale_tril = matrix
        elif name == "covariance_matrix":
            self._unbroadcasted_scale_tril = cholesky(matrix)
        else:
            self._unbroadcasted_scale_tril = _precision_to_scale_tril(matrix)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(MultivariateNormal, _instance)
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril
        names = ("loc", "covariance_matrix", "scale_tril", "precision_matrix")
        return self._expanded(MultivariateNormal, batch_shape, new, *names)

    def _matrix(self, value: Any) -> Any:
        return value.expand(self._batch_shape + self._event_shape + self._event_shape)

    @lazy_property
    def scale_tril(self) -> Any:
        """The Cholesky factor of the covariance matrix."""
        return self._matrix(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Any:
        """The covariance matrix."""
        factor = self._unbroadcasted_scale_tril
        return self._matrix(matmul(factor, factor.transpose(-2, -1)))

    @lazy_property
    def precision_matrix(self) -> Any:
        """The inverse of the covariance matrix."""
        return self._matrix(cholesky_inverse(self._unbroadcasted_scale_tril))

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        squares = self._unbroadcasted_scale_tril.pow(2).sum(-1)
        return squares.expand(self._batch_shape + self._event_shape)

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        eps = _standard_normal(shape, dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + _batch_mv(self._unbroadcasted_scale_tril, eps)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        away = _batch_mahalanobis(self._unbroadcasted_scale_tril, value - self.loc)
        normalizer = self._event_shape[0] * math.log(2 * math.pi)
        return -0.5 * (normalizer + away) - _log_diagonal(self._unbroadcasted_scale_tril)

    def entropy(self) -> Any:
        each = 0.5 * self._event_shape[0] * (1.0 + math.log(2 * math.pi))
        entropy = each + _log_diagonal(self._unbroadcasted_scale_tril)
        return entropy.expand(self._batch_shape) if self._batch_shape else entropy
