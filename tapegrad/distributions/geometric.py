"""The geometric distribution."""

from __future__ import annotations

from typing import Any, ClassVar

from .. import finfo, no_grad, rand, where, zeros_like
from ..nn.functional import binary_cross_entropy_with_logits
from . import constraints
from .chances import LogOdds
from .distribution import Distribution, require
from .utils import broadcast_all

__all__ = ["Geometric"]


class Geometric(LogOdds, Distribution):
    """The number of failures before the first success, with success probability `probs`."""

    arg_constraints: ClassVar[Any] = {
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._set_chances(probs, logits)
        super().__init__(self._param.shape, validate_args=validate_args)
        if self._validate_args and probs is not None:
            value = self.probs
            require(
                value > 0,
                value,
                lambda: (
                    f"{self!r}: parameter probs ({type(value).__name__} of shape "
                    f"{tuple(value.shape)}) must be above 0"
                ),
                "Geometric: parameter probs must be above 0",
            )

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        names = ("probs", "logits", "_param")
        return self._expanded(Geometric, batch_shape, _instance, *names)

    @property
    def mean(self) -> Any:
        return 1.0 / self.probs - 1.0

    @property
    def mode(self) -> Any:
        return zeros_like(self.probs)

    @property
    def variance(self) -> Any:
        return (1.0 / self.probs - 1.0) / self.probs

    def sample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            u = rand(shape, dtype=self.probs.dtype, device=self.probs.device)
            u = u.clamp(min=finfo(self.probs.dtype).tiny)
            return (u.log() / (-self.probs).log1p()).floor()

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        value, probs = broadcast_all(value, self.probs)
        probs = where((probs == 1) & (value == 0), 0.0, probs)
        return value * (-probs).log1p() + self.probs.log()

    def entropy(self) -> Any:
        crossed = binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")
        return crossed / self.probs
