"""The continuous Bernoulli distribution."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from .. import abs, expm1, full_like, log, log1p, no_grad, pow, rand, where
from ..nn.functional import binary_cross_entropy_with_logits
from . import constraints
from .chances import LogOdds, only_one
from .distribution import require
from .exp_family import ExponentialFamily
from .utils import broadcast_all, clamp_probs, lazy_property, logits_to_probs

__all__ = ["ContinuousBernoulli"]


class ContinuousBernoulli(LogOdds, ExponentialFamily):
    """Numbers from 0 to 1 with density c(p) p ** x (1 - p) ** (1 - x).

    For `probs` between the two `lims`, series around 1/2 replace formulas that divide by 0 there.
    """

    arg_constraints: ClassVar[Any] = {
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    support = constraints.unit_interval
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(
        self,
        probs: Any = None,
        logits: Any = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        if only_one(probs, logits):
            (probs,) = broadcast_all(probs)
            if validate_args is not None:  # check before clamping
                valid = constraints.unit_interval.check(probs)
                text = "probs must lie between 0 and 1"
                require(valid, probs, lambda: text, text)
            probs = clamp_probs(probs)
        self._set_chances(probs, logits)
        self._lims = lims
        super().__init__(self._param.shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(ContinuousBernoulli, _instance)
        new._lims = self._lims
        return self._expanded(ContinuousBernoulli, batch_shape, new, "probs", "logits", "_param")

    @lazy_property
    def probs(self) -> Any:
        """The parameter p."""
        return clamp_probs(logits_to_probs(self.logits, is_binary=True))

    def _outside_unstable_region(self) -> Any:
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _cut_probs(self) -> Any:
        """`probs`, replaced by a number other than 1/2 where the series are used."""
        outside = self._outside_unstable_region()
        return where(outside, self.probs, full_like(self.probs, self._lims[0]))

    def _cont_bern_log_norm(self) -> Any:
        """log c(p)."""
        p = self._cut_probs()
        below = p <= 0.5
        gap = where(
            below,
            log1p(-2.0 * where(below, p, 0.0)),
            log(2.0 * where(p >= 0.5, p, 1.0) - 1.0),
        )
        exact = log(abs(log1p(-p) - log(p))) - gap
        x = pow(self.probs - 0.5, 2)
        near = math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x
        return where(self._outside_unstable_region(), exact, near)

    @property
    def mean(self) -> Any:
        p = self._cut_probs()
        exact = p / (2.0 * p - 1.0) + 1.0 / (log1p(-p) - log(p))
        x = self.probs - 0.5
        near = 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * pow(x, 2)) * x
        return where(self._outside_unstable_region(), exact, near)

    @property
    def variance(self) -> Any:
        p = self._cut_probs()
        exact = p * (p - 1.0) / pow(1.0 - 2.0 * p, 2) + 1.0 / pow(log1p(-p) - log(p), 2)
        x = pow(self.probs - 0.5, 2)
        near = 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x
        return where(self._outside_unstable_region(), exact, near)

    def sample(self, sample_shape: Any = ()) -> Any:
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        return self.icdf(rand(shape, dtype=self.probs.dtype, device=self.probs.device))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        crossed = binary_cross_entropy_with_logits(logits, value, reduction="none")
        return self._cont_bern_log_norm() - crossed

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        p = self._cut_probs()
        exact = (pow(p, value) * pow(1.0 - p, 1.0 - value) + p - 1.0) / (2.0 * p - 1.0)
        inside = where(self._outside_unstable_region(), exact, value)
        return where(value <= 0.0, 0.0, where(value >= 1.0, 1.0, inside))

    def icdf(self, value: Any) -> Any:
        p = self._cut_probs()
        exact = (log1p(-p + value * (2.0 * p - 1.0)) - log1p(-p)) / (log(p) - log1p(-p))
        return where(self._outside_unstable_region(), exact, value)

    def entropy(self) -> Any:
        low, high = log1p(-self.probs), log(self.probs)
        return self.mean * (low - high) - self._cont_bern_log_norm() - low

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return (self.logits,)

    def _log_normalizer(self, x: Any) -> Any:
        low, high = self._lims[0] - 0.5, self._lims[1] - 0.5
        outside = (x <= low) | (x > high)
        cut = where(outside, x, full_like(x, low))
        near = 0.5 * x + pow(x, 2) / 24.0 - pow(x, 4) / 2880.0
        return where(outside, log(abs(expm1(cut))) - log(abs(cut)), near)
