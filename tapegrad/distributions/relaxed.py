"""The base class of relaxed distributions, whose base has temperature, probs and logits."""

from __future__ import annotations

from typing import Any, ClassVar

from .transformed_distribution import TransformedDistribution


class Relaxed(TransformedDistribution):
    """A continuous version of a discrete distribution, exact in the limit of temperature 0."""

    has_rsample = True
    #: the class of the transform from base samples to values
    _transform: ClassVar[type]

    def __init__(
        self,
        temperature: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        base = self._unbounded(temperature, probs, logits, validate_args)
        super().__init__(base, self._transform(), validate_args=validate_args)

    def _unbounded(self, temperature: Any, probs: Any, logits: Any, validate_args: Any) -> Any:
        """The distribution of the values before the transform."""
        raise NotImplementedError

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(Relaxed, _instance)
        return super().expand(batch_shape, _instance=new)

    @property
    def temperature(self) -> Any:
        """The temperature of the relaxation."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Any:
        """The logits of the base distribution."""
        return self.base_dist.logits

    @property
    def probs(self) -> Any:
        """The probabilities."""
        return self.base_dist.probs
