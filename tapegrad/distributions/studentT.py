"""Student's t-distribution."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from .. import digamma, lgamma, log1p, rsqrt, where
from . import constraints
from .chi2 import Chi2
from .distribution import Distribution
from .utils import _standard_normal, as_size, broadcast_all

__all__ = ["StudentT"]


class StudentT(Distribution):
    """loc + scale * z / sqrt(v / df) for standard normal z and v from Chi2(df)."""

    arg_constraints: ClassVar[Any] = {
        "df": constraints.positive,
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support = constraints.real
    has_rsample = True

    def __init__(
        self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        self._chi2 = Chi2(self.df)
        super().__init__(self.df.shape, validate_args=validate_args)

    @property
    def mean(self) -> Any:
        return where(self.df <= 1, math.nan, self.loc)

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        finite = self.df > 2
        df = where(finite, self.df, 3.0)
        outside = where(self.df <= 1, math.nan, math.inf)
        return where(finite, self.scale.pow(2) * df / (df - 2), outside)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(StudentT, _instance)
        new._chi2 = self._chi2.expand(as_size(batch_shape))
        return self._expanded(StudentT, batch_shape, new, "df", "loc", "scale")

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        z = _standard_normal(shape, dtype=self.df.dtype, device=self.df.device)
        v = self._chi2.rsample(sample_shape)
        return self.loc + self.scale * (z * rsqrt(v / self.df))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        y = (value - self.loc) / self.scale
        normalizer = (
            self.scale.log()
            + 0.5 * self.df.log()
            + 0.5 * math.log(math.pi)
            + lgamma(0.5 * self.df)
            - lgamma(0.5 * (self.df + 1.0))
        )
        return -0.5 * (self.df + 1.0) * log1p(y**2.0 / self.df) - normalizer

    def entropy(self) -> Any:
        half, more = 0.5 * self.df, 0.5 * (self.df + 1)
        log_beta = lgamma(half) + math.lgamma(0.5) - lgamma(more)
        slope = more * (digamma(more) - digamma(half))
        return self.scale.log() + slope + 0.5 * self.df.log() + log_beta
