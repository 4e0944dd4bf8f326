"""The von Mises distribution of angles."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from .. import Size, cos, no_grad
from ..ops.draws.angles import log_bessel_, standard_angle
from . import constraints
from .distribution import Distribution
from .utils import broadcast_all, lazy_property

__all__ = ["VonMises"]


class VonMises(Distribution):
    """Angles in radians with density proportional to exp(concentration * cos(x - loc)).

    Samples are between -pi and pi. Values may be any numbers: the density has period 2 pi.
    """

    arg_constraints: ClassVar[Any] = {
        "loc": constraints.real,
        "concentration": constraints.positive,
    }
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, Size(()), validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return self._expanded(VonMises, batch_shape, _instance, "loc", "concentration")

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        normalizer = math.log(2 * math.pi) + log_bessel_(self.concentration, order=0)
        return self.concentration * cos(value - self.loc) - normalizer

    def sample(self, sample_shape: Any = ()) -> Any:
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        turned = standard_angle(self.concentration.expand(shape)) + self.loc
        return (turned + math.pi) % (2 * math.pi) - math.pi

    @property
    def mean(self) -> Any:
        """The mean direction."""
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    @lazy_property
    def variance(self) -> Any:
        """The circular variance: 1 minus the length of the mean vector."""
        first, second = (log_bessel_(self.concentration, order=n) for n in (0, 1))
        return 1 - (second - first).exp()
