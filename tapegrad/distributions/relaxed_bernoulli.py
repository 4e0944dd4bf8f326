"""Relaxed Bernoulli distributions."""

from __future__ import annotations

from typing import Any, ClassVar

from .. import rand
from . import constraints
from .chances import LogOdds
from .distribution import Distribution
from .relaxed import Relaxed
from .transforms import SigmoidTransform
from .utils import broadcast_all, clamp_probs

__all__ = ["LogitRelaxedBernoulli", "RelaxedBernoulli"]


class LogitRelaxedBernoulli(LogOdds, Distribution):
    """The logits of a relaxed Bernoulli distribution."""

    arg_constraints: ClassVar[Any] = {
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    support = constraints.real
    has_rsample = True

    def __init__(
        self,
        temperature: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        self.temperature = temperature
        self._set_chances(probs, logits)
        super().__init__(self._param.shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(LogitRelaxedBernoulli, _instance)
        new.temperature = self.temperature
        return self._expanded(LogitRelaxedBernoulli, batch_shape, new, "probs", "logits", "_param")

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        probs = clamp_probs(self.probs.expand(shape))
        u = clamp_probs(rand(shape, dtype=probs.dtype, device=probs.device))
        return (u.log() - (-u).log1p() + probs.log() - (-probs).log1p()) / self.temperature

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        away = logits - value.mul(self.temperature)
        return self.temperature.log() + away - 2 * away.exp().log1p()


class RelaxedBernoulli(Relaxed):
    """Numbers between 0 and 1, which tend to 0 or 1 as `temperature` goes to 0."""

    arg_constraints: ClassVar[Any] = LogitRelaxedBernoulli.arg_constraints
    support = constraints.unit_interval
    _transform = SigmoidTransform

    def _unbounded(self, temperature: Any, probs: Any, logits: Any, validate_args: Any) -> Any:
        return LogitRelaxedBernoulli(temperature, probs, logits)
