"""Transforms to the simplex, to Cholesky factors, and to positive definite matrices."""

from __future__ import annotations

import math
from typing import Any

from .. import clamp, cumsum, eye, finfo, tanh
from ..linalg import cholesky
from ..nn.functional import logsigmoid, pad, softplus
from . import constraints
from .composing import Transform, _check_dims
from .pointwise import _clipped_sigmoid, _WithoutParameters
from .utils import tril_matrix_to_vec, vec_to_tril_matrix


def _ones_before(x: Any) -> Any:
    """Prepend a 1 to the last dimension."""
    return pad(x, [1, 0], value=1)


class CorrCholeskyTransform(Transform):
    """Maps D (D - 1) / 2 numbers to the Cholesky factor of a D x D correlation matrix.

    The numbers fill the lower triangle; tanh of each is the fraction of the row's remaining norm
    that its element takes.
    """

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky
    bijective = True

    def _call(self, x: Any) -> Any:
        eps = finfo(x.dtype).eps
        shares = vec_to_tril_matrix(tanh(x).clamp(min=-1 + eps, max=1 - eps), diag=-1)
        left = (1 - shares**2).sqrt().cumprod(-1)
        diagonal = eye(shares.shape[-1], dtype=shares.dtype, device=shares.device)
        return (shares + diagonal) * _ones_before(left[..., :-1])

    def _inverse(self, y: Any) -> Any:
        left = _ones_before((1 - cumsum(y * y, dim=-1))[..., :-1])
        shares = tril_matrix_to_vec(y, diag=-1) / tril_matrix_to_vec(left, diag=-1).sqrt()
        return (shares.log1p() - (-shares).log1p()) / 2

    def log_abs_det_jacobian(self, x: Any, y: Any, intermediates: Any = None) -> Any:
        left = tril_matrix_to_vec(1 - (y * y).cumsum(dim=-1), diag=-2)
        of_tanh = -2 * (x + softplus(-2 * x) - math.log(2.0)).sum(dim=-1)
        return 0.5 * left.log().sum(-1) + of_tanh

    def forward_shape(self, shape: Any) -> Any:
        _check_dims(shape, 1)
        count = shape[-1]
        size = round((0.25 + 2 * count) ** 0.5 + 0.5)
        if size * (size - 1) // 2 != count:
            raise ValueError(f"{count} elements do not fill the lower triangle of a square matrix")
        return (*shape[:-1], size, size)

    def inverse_shape(self, shape: Any) -> Any:
        _check_dims(shape, 2)
        if shape[-2] != shape[-1]:
            raise ValueError("Input is not square")
        size = shape[-1]
        return (*shape[:-2], size * (size - 1) // 2)


class SoftmaxTransform(_WithoutParameters):
    """y = exp(x) / sum(exp(x)); not bijective: adding a constant to x does not change y."""

    domain = constraints.real_vector
    codomain = constraints.simplex

    def _call(self, x: Any) -> Any:
        weights = (x - x.max(-1, True)[0]).exp()
        return weights / weights.sum(-1, True)

    def _inverse(self, y: Any) -> Any:
        return y.log()

    def forward_shape(self, shape: Any) -> Any:
        _check_dims(shape, 1)
        return shape

    inverse_shape = forward_shape


class StickBreakingTransform(_WithoutParameters):
    """Maps n numbers to n + 1 probabilities; each sets its element's fraction of the rest."""

    domain = constraints.real_vector
    codomain = constraints.simplex
    bijective = True

    def _call(self, x: Any) -> Any:
        shares = _clipped_sigmoid(x - _log_countdown(x))
        left = (1 - shares).cumprod(-1)
        return pad(shares, [0, 1], value=1) * _ones_before(left)

    def _inverse(self, y: Any) -> Any:
        first = y[..., :-1]
        # rounding may make the rest 0 or less
        left = clamp(1 - first.cumsum(-1), min=finfo(y.dtype).tiny)
        return first.log() - left.log() + _log_countdown(first)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        moved = x - _log_countdown(x)
        # 1 - sigmoid(x) = exp(-x) sigmoid(x)
        return (-moved + logsigmoid(moved) + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        _check_dims(shape, 1)
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: Any) -> Any:
        _check_dims(shape, 1)
        return (*shape[:-1], shape[-1] - 1)


def _log_countdown(x: Any) -> Any:
    """log(n), log(n - 1), ..., log(1): offsets that map zeros to equal probabilities."""
    count = x.shape[-1]
    return (count + 1 - x.new_ones(count).cumsum(-1)).log()


class LowerCholeskyTransform(_WithoutParameters):
    """Maps square matrices to lower triangular ones with a positive diagonal."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def _call(self, x: Any) -> Any:
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y: Any) -> Any:
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(_WithoutParameters):
    """Maps square matrices to positive definite ones, through Cholesky factors."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def _call(self, x: Any) -> Any:
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.transpose(-2, -1)

    def _inverse(self, y: Any) -> Any:
        return LowerCholeskyTransform().inv(cholesky(y))
