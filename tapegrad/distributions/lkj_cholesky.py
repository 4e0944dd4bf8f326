"""The LKJ distribution of Cholesky factors of correlation matrices."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from .. import Size, arange, cat, clamp, diag_embed, finfo, lgamma, no_grad, randn, where
from . import constraints
from .beta import Beta
from .distribution import Distribution
from .utils import as_size, broadcast_all, log_multigamma

__all__ = ["LKJCholesky"]


class LKJCholesky(Distribution):
    """Cholesky factors of correlation matrices M with density proportional to |M| ** (c - 1).

    M is `dim` x `dim`, c is `concentration`; with 1, all correlation matrices are equally likely.
    """

    arg_constraints: ClassVar[Any] = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(
        self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        if dim < 2:
            raise ValueError(f"dim must be an integer of at least 2, got {dim!r}")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        # The squared norm of each row without its diagonal element has a beta distribution.
        c = self.concentration
        offset = arange(dim - 1, dtype=c.dtype, device=c.device)
        offset = cat([offset.new_zeros((1,)), offset])
        marginal = (c + 0.5 * (dim - 2)).unsqueeze(-1)
        self._beta = Beta(offset + 0.5, marginal - 0.5 * offset)
        super().__init__(c.shape, Size((dim, dim)), validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(LKJCholesky, _instance)
        new.dim = self.dim
        new._beta = self._beta.expand((*as_size(batch_shape), self.dim))
        return self._expanded(LKJCholesky, batch_shape, new, "concentration")

    def sample(self, sample_shape: Any = ()) -> Any:
        with no_grad():
            lengths = self._beta.sample(sample_shape).unsqueeze(-1)
            shape = self._extended_shape(sample_shape)
            normal = randn(shape, dtype=lengths.dtype, device=lengths.device).tril(-1)
            norm = (normal * normal).sum(-1, keepdim=True).sqrt()
            directions = normal / where(norm == 0, 1.0, norm)  # the first row is 0
            rows = lengths.sqrt() * directions
            rest = clamp(1 - (rows**2).sum(-1), min=finfo(rows.dtype).tiny)
            return rows + diag_embed(rest.sqrt())

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        c = self.concentration
        diagonal = value.diagonal(dim1=-1, dim2=-2)[..., 1:]
        rows = arange(2, self.dim + 1, dtype=c.dtype, device=c.device)
        powers = 2 * (c - 1).unsqueeze(-1) + self.dim - rows
        others = self.dim - 1
        alpha = c + 0.5 * others
        normalizer = 0.5 * others * math.log(math.pi)
        normalizer = normalizer + log_multigamma(alpha - 0.5, others) - lgamma(alpha) * others
        return (powers * diagonal.log()).sum(-1) - normalizer
