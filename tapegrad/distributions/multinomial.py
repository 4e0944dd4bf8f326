"""The multinomial distribution."""

from __future__ import annotations

from typing import Any, ClassVar

from .. import Size, exp, full_like, lgamma, ones_like
from . import constraints
from .binomial import Binomial
from .categorical import Categorical
from .distribution import Distribution
from .utils import as_size, broadcast_all

__all__ = ["Multinomial"]


class Multinomial(Distribution):
    """The number of times each category occurs in `total_count` draws."""

    arg_constraints: ClassVar[Any] = {
        "probs": constraints.simplex,
        "logits": constraints.real_vector,
    }
    total_count: int

    def __init__(
        self,
        total_count: int = 1,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._categorical = Categorical(probs=probs, logits=logits)
        self._binomial = Binomial(total_count=total_count, probs=self.probs)
        shape = self._categorical.param_shape
        super().__init__(self._categorical.batch_shape, shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(Multinomial, _instance)
        size = as_size(batch_shape)
        new.total_count = self.total_count
        new._categorical = self._categorical.expand(size)
        new._binomial = self._binomial.expand(size + self.event_shape)
        return self._expanded(Multinomial, size, new)

    def _new(self, *args: Any, **kwargs: Any) -> Any:
        return self._categorical._new(*args, **kwargs)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        return constraints.multinomial(self.total_count)

    @property
    def logits(self) -> Any:
        """Logarithms of the probabilities."""
        return self._categorical.logits

    @property
    def probs(self) -> Any:
        """The probabilities of one draw."""
        return self._categorical.probs

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter."""
        return self._categorical.param_shape

    @property
    def mean(self) -> Any:
        return self.probs * self.total_count

    @property
    def variance(self) -> Any:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Any:
        size = Size(sample_shape)
        drawn = self._categorical.sample(Size((self.total_count,)) + size)
        places = drawn.movedim(0, -1)  # the draws along the last dimension
        counts = places.new_zeros(self._extended_shape(size))
        counts = counts.scatter_add(-1, places, ones_like(places))
        return counts.type_as(self.probs)

    def entropy(self) -> Any:
        n = full_like(self.probs[..., 0], float(self.total_count))
        support = self._binomial.enumerate_support(expand=False)[1:]
        weights = exp(self._binomial.log_prob(support))
        expected = (weights * lgamma(support + 1)).sum([0, -1])
        return self.total_count * self._categorical.entropy() - lgamma(n + 1) + expected

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        zero = (value == 0) & (logits == -float("inf"))
        powers = (logits.masked_fill(zero, 0) * value).sum(-1)
        return lgamma(value.sum(-1) + 1) - lgamma(value + 1).sum(-1) + powers
