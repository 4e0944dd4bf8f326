"""The F-distribution."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from .. import finfo, log, log1p, where
from . import constraints
from .distribution import Distribution
from .gamma import Gamma
from .utils import as_size, broadcast_all

__all__ = ["FisherSnedecor"]


class FisherSnedecor(Distribution):
    """The ratio of Chi2(df1) / df1 and Chi2(df2) / df2."""

    arg_constraints: ClassVar[Any] = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self.df1, self.df2 = broadcast_all(df1, df2)
        self._gamma1 = Gamma(self.df1 * 0.5, self.df1)
        self._gamma2 = Gamma(self.df2 * 0.5, self.df2)
        super().__init__(self.df1.shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(FisherSnedecor, _instance)
        size = as_size(batch_shape)
        new._gamma1 = self._gamma1.expand(size)
        new._gamma2 = self._gamma2.expand(size)
        return self._expanded(FisherSnedecor, size, new, "df1", "df2")

    @property
    def mean(self) -> Any:
        df2 = where(self.df2 <= 2, math.nan, self.df2)
        return df2 / (df2 - 2)

    @property
    def mode(self) -> Any:
        mode = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return where(self.df1 <= 2, math.nan, mode)

    @property
    def variance(self) -> Any:
        df2 = where(self.df2 <= 4, math.nan, self.df2)
        below = self.df1 * (df2 - 2).pow(2) * (df2 - 4)
        return 2 * df2.pow(2) * (self.df1 + df2 - 2) / below

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        above = self._gamma1.rsample(sample_shape).view(shape)
        below = self._gamma2.rsample(sample_shape).view(shape)
        tiny = finfo(below.dtype).tiny
        return (above / below.clamp(min=tiny)).clamp(min=tiny)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        a, b = self.df1 * 0.5, self.df2 * 0.5
        ratio = self.df1 / self.df2
        normalizer = (a + b).lgamma() - a.lgamma() - b.lgamma()
        powers = a * ratio.log() + (a - 1) * log(value)
        return normalizer + powers - (a + b) * log1p(ratio * value)
