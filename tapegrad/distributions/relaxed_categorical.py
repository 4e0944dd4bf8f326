"""Relaxed one-hot categorical distributions."""

from __future__ import annotations

from typing import Any, ClassVar

from .. import full_like, rand
from . import constraints
from .categorical import Categorical
from .distribution import Distribution
from .relaxed import Relaxed
from .transforms import ExpTransform
from .utils import as_size, broadcast_all, clamp_probs, normalized_logits

__all__ = ["ExpRelaxedCategorical", "RelaxedOneHotCategorical"]


class ExpRelaxedCategorical(Distribution):
    """The logarithms of values of a relaxed one-hot categorical distribution."""

    arg_constraints: ClassVar[Any] = {
        "probs": constraints.simplex,
        "logits": constraints.real_vector,
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        temperature: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        self._categorical = Categorical(probs, logits)
        self.temperature = temperature
        shape = self._categorical.param_shape[-1:]
        super().__init__(self._categorical.batch_shape, shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(ExpRelaxedCategorical, _instance)
        new.temperature = self.temperature
        new._categorical = self._categorical.expand(as_size(batch_shape))
        return self._expanded(ExpRelaxedCategorical, batch_shape, new)

    def _new(self, *args: Any, **kwargs: Any) -> Any:
        return self._categorical._new(*args, **kwargs)

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter."""
        return self._categorical.param_shape

    @property
    def logits(self) -> Any:
        """Logarithms of the probabilities."""
        return self._categorical.logits

    @property
    def probs(self) -> Any:
        """The probabilities."""
        return self._categorical.probs

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        u = clamp_probs(rand(shape, dtype=self.logits.dtype, device=self.logits.device))
        gumbels = -((-(u.log())).log())
        return normalized_logits((self.logits + gumbels) / self.temperature)

    def log_prob(self, value: Any) -> Any:
        count = self._categorical._num_events
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        scale = full_like(self.temperature, float(count)).lgamma()
        scale = scale + self.temperature.log() * (count - 1)
        score = normalized_logits(logits - value.mul(self.temperature)).sum(-1)
        return score + scale


class RelaxedOneHotCategorical(Relaxed):
    """Probability vectors, which tend to one-hot vectors as `temperature` goes to 0."""

    arg_constraints: ClassVar[Any] = ExpRelaxedCategorical.arg_constraints
    support = constraints.simplex
    _transform = ExpTransform

    def _unbounded(self, temperature: Any, probs: Any, logits: Any, validate_args: Any) -> Any:
        return ExpRelaxedCategorical(temperature, probs, logits, validate_args)
