"""The binomial distribution."""

from __future__ import annotations

from typing import Any, ClassVar

from .. import abs, arange, exp, lgamma, log1p, no_grad
from ..ops.draws.quantiles import binomial
from . import constraints
from .chances import LogOdds
from .distribution import Distribution

__all__ = ["Binomial"]


def _clamp_by_zero(x: Any) -> Any:
    """max(x, 0), with derivative 1/2 at 0."""
    return (x.clamp(min=0) + x - x.clamp(max=0)) / 2


class Binomial(LogOdds, Distribution):
    """The number of successes in `total_count` trials with success probability `probs`."""

    arg_constraints: ClassVar[Any] = {
        "total_count": constraints.nonnegative_integer,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    has_enumerate_support = True

    def __init__(
        self,
        total_count: Any = 1,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        self._set_counted_chances(total_count, probs, logits)
        super().__init__(self._param.shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        names = ("total_count", "probs", "logits", "_param")
        return self._expanded(Binomial, batch_shape, _instance, *names)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Any:
        return self.total_count * self.probs

    @property
    def mode(self) -> Any:
        return ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count)

    @property
    def variance(self) -> Any:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            return binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        ways = lgamma(value + 1) + lgamma(self.total_count - value + 1)
        # k log p + (n - k) log(1 - p) = k logit - n log(1 + e^logit)
        normalizer = (
            self.total_count * _clamp_by_zero(self.logits)
            + self.total_count * log1p(exp(-abs(self.logits)))
            - lgamma(self.total_count + 1)
        )
        return value * self.logits - ways - normalizer

    def _same_count(self, what: str) -> int:
        """The number of trials, if it is the same in the whole batch."""
        count = int(self.total_count.max())
        if not self.total_count.min() == count:
            raise NotImplementedError(f"`{what}` needs the same total_count everywhere")
        return count

    def entropy(self) -> Any:
        self._same_count("entropy")
        log_prob = self.log_prob(self.enumerate_support(False))
        return -(exp(log_prob) * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Any:
        count = self._same_count("enumerate_support")
        values = arange(1 + count, dtype=self._param.dtype, device=self._param.device)
        values = values.view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1, *self._batch_shape)) if expand else values
