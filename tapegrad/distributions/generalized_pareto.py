"""The generalized Pareto distribution."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from .. import broadcast_to, exp, expm1, log, log1p, ones_like, rand, where
from . import constraints
from .distribution import Distribution
from .utils import broadcast_all

__all__ = ["GeneralizedPareto"]


class GeneralizedPareto(Distribution):
    """Numbers of at least `loc`, above x with probability (1 + c (x - loc) / scale) ** (-1 / c).

    c is `concentration`; with 0 the distribution is exponential.
    """

    arg_constraints: ClassVar[Any] = {
        "loc": constraints.real,
        "scale": constraints.positive,
        "concentration": constraints.real,
    }
    has_rsample = True

    def __init__(
        self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None
    ) -> None:
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        names = ("loc", "scale", "concentration")
        return self._expanded(GeneralizedPareto, batch_shape, _instance, *names)

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        return self.icdf(rand(shape, dtype=self.loc.dtype, device=self.loc.device))

    def _without_zero(self) -> tuple[Any, Any]:
        """Where the concentration is 0 up to rounding, and the concentration with 1 there."""
        zero = self.concentration.abs() <= 1e-8
        return zero, where(zero, ones_like(self.concentration), self.concentration)

    def _z(self, x: Any) -> Any:
        return (x - self.loc) / self.scale

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        z = self._z(value)
        zero, c = self._without_zero()
        power = 1 / c + ones_like(z)
        other = where(power == 0, power, power * log1p(c * z))
        return -self.scale.log() - where(zero, z, other)

    def log_survival_function(self, value: Any) -> Any:
        """The log probability of larger values."""
        if self._validate_args:
            self._validate_sample(value)
        z = self._z(value)
        zero, c = self._without_zero()
        return where(zero, -z, -log1p(c * z) / c)

    def log_cdf(self, value: Any) -> Any:
        """The log probability of values up to this one."""
        return log1p(-exp(self.log_survival_function(value)))

    def cdf(self, value: Any) -> Any:
        return exp(self.log_cdf(value))

    def icdf(self, value: Any) -> Any:
        zero, c = self._without_zero()
        logs = log1p(-value)
        other = self.loc + self.scale / c * expm1(-c * logs)
        return where(zero, self.loc - self.scale * logs, other)

    @property
    def mean(self) -> Any:
        valid = self.concentration < 1
        c = where(valid, self.concentration, 0.5)
        return where(valid, self.loc + self.scale / (1 - c), math.nan)

    @property
    def variance(self) -> Any:
        valid = self.concentration < 0.5
        c = where(valid, self.concentration, 0.25)
        return where(valid, self.scale**2 / ((1 - c) ** 2 * (1 - 2 * c)), math.nan)

    def entropy(self) -> Any:
        return broadcast_to(log(self.scale) + self.concentration + 1, self._batch_shape)

    @property
    def mode(self) -> Any:
        return self.loc

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        end = self.loc - self.scale / self.concentration
        return constraints.interval(self.loc, where(self.concentration < 0, end, math.inf))
