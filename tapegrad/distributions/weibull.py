"""The Weibull distribution."""

from __future__ import annotations

from typing import Any, ClassVar

from .. import exp, lgamma, log, ones_like
from . import constraints
from .exponential import Exponential
from .transformed_distribution import TransformedDistribution
from .transforms import AffineTransform, PowerTransform
from .utils import broadcast_all, euler_constant

__all__ = ["Weibull"]


class Weibull(TransformedDistribution):
    """scale * x ** (1 / concentration) for x from the exponential distribution of rate 1."""

    arg_constraints: ClassVar[Any] = {
        "scale": constraints.positive,
        "concentration": constraints.positive,
    }
    support = constraints.positive

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.scale, self.concentration = broadcast_all(scale, concentration)
        base = Exponential(ones_like(self.scale), validate_args=validate_args)
        super().__init__(base, self._powers(), validate_args=validate_args)

    def _powers(self) -> list[Any]:
        self.concentration_reciprocal = self.concentration.reciprocal()
        return [
            PowerTransform(exponent=self.concentration_reciprocal),
            AffineTransform(loc=0, scale=self.scale),
        ]

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(Weibull, _instance)
        new.scale = self.scale.expand(batch_shape)
        new.concentration = self.concentration.expand(batch_shape)
        base = self.base_dist.expand(batch_shape)
        super(Weibull, new).__init__(base, new._powers(), validate_args=False)
        new._validate_args = self._validate_args
        return new

    @property
    def mean(self) -> Any:
        return self.scale * exp(lgamma(1 + self.concentration_reciprocal))

    @property
    def mode(self) -> Any:
        share = (self.concentration - 1) / self.concentration
        return self.scale * share ** self.concentration.reciprocal()

    @property
    def variance(self) -> Any:
        second = exp(lgamma(1 + 2 * self.concentration_reciprocal))
        return self.scale.pow(2) * (second - exp(2 * lgamma(1 + self.concentration_reciprocal)))

    def entropy(self) -> Any:
        return (
            euler_constant * (1 - self.concentration_reciprocal)
            + log(self.scale * self.concentration_reciprocal)
            + 1
        )
