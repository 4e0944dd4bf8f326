"""The half-normal distribution."""

from __future__ import annotations

import math
from typing import Any

from .folded import Folded
from .normal import Normal

__all__ = ["HalfNormal"]


class HalfNormal(Folded):
    """|x| for x from a normal distribution with mean 0."""

    _unfolded = Normal

    @property
    def mean(self) -> Any:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Any:
        return self.scale.pow(2) * (1 - 2 / math.pi)
