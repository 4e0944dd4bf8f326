"""The half-Cauchy distribution."""

from __future__ import annotations

import math
from typing import Any

from .. import full
from .cauchy import Cauchy
from .folded import Folded

__all__ = ["HalfCauchy"]


class HalfCauchy(Folded):
    """|x| for x from a Cauchy distribution centred at 0."""

    _unfolded = Cauchy

    @property
    def mean(self) -> Any:
        shape = self._extended_shape()
        return full(shape, math.inf, dtype=self.scale.dtype, device=self.scale.device)

    @property
    def variance(self) -> Any:
        return self.base_dist.variance
