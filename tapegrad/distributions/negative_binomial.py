"""The negative binomial distribution."""

from __future__ import annotations

from typing import Any, ClassVar

from .. import exp, lgamma, no_grad, sigmoid
from ..nn.functional import logsigmoid
from ..ops.draws.quantiles import poisson
from . import constraints
from .chances import LogOdds
from .distribution import Distribution
from .gamma import Gamma
from .utils import lazy_property

__all__ = ["NegativeBinomial"]


class NegativeBinomial(LogOdds, Distribution):
    """The number of successes, of probability `probs`, before `total_count` failures."""

    arg_constraints: ClassVar[Any] = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer

    def __init__(
        self,
        total_count: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        self._set_counted_chances(total_count, probs, logits)
        super().__init__(self._param.shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        names = ("total_count", "probs", "logits", "_param")
        return self._expanded(NegativeBinomial, batch_shape, _instance, *names)

    @property
    def mean(self) -> Any:
        return self.total_count * exp(self.logits)

    @property
    def mode(self) -> Any:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)

    @property
    def variance(self) -> Any:
        return self.mean / sigmoid(-self.logits)

    @lazy_property
    def _gamma(self) -> Any:
        # not validated, as a gamma distribution does not allow a count of 0
        return Gamma(concentration=self.total_count, rate=exp(-self.logits), validate_args=False)

    def sample(self, sample_shape: Any = ()) -> Any:
        with no_grad():
            return poisson(self._gamma.sample(sample_shape=sample_shape))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        chances = self.total_count * logsigmoid(-self.logits) + value * logsigmoid(self.logits)
        ways = lgamma(self.total_count + value) - lgamma(1.0 + value) - lgamma(self.total_count)
        # zero failures and zero successes have probability 1
        return chances + ways.masked_fill(self.total_count + value == 0.0, 0.0)
