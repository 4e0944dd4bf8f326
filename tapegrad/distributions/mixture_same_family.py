"""Mixtures of distributions of one class."""

from __future__ import annotations

from typing import Any, ClassVar

from .. import gather, log_softmax, logsumexp, no_grad
from . import constraints
from .categorical import Categorical
from .constraints import MixtureSameFamilyConstraint
from .distribution import Distribution
from .utils import as_size

__all__ = ["MixtureSameFamily"]


class MixtureSameFamily(Distribution):
    """A mixture: `mixture_distribution` picks a component along the last batch dimension."""

    arg_constraints: ClassVar[Any] = {}
    has_rsample = False

    def __init__(
        self,
        mixture_distribution: Categorical,
        component_distribution: Distribution,
        validate_args: bool | None = None,
    ) -> None:
        self._mixture_distribution = mixture_distribution
        self._component_distribution = component_distribution
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(
                "mixture_distribution must be a Categorical, got "
                f"{type(mixture_distribution).__name__}"
            )
        if not isinstance(component_distribution, Distribution):
            raise ValueError(
                "component_distribution must be a Distribution, got "
                f"{type(component_distribution).__name__}"
            )
        mixtures = mixture_distribution.batch_shape
        components = component_distribution.batch_shape[:-1]
        for i, j in zip(reversed(mixtures), reversed(components), strict=False):
            if i != 1 and j != 1 and i != j:
                raise ValueError(
                    f"the batches of the mixture, {tuple(mixtures)}, and of the components, "
                    f"{tuple(components)}, do not broadcast together"
                )
        count = mixture_distribution.logits.shape[-1]
        found = component_distribution.batch_shape[-1]
        if count != found:
            raise ValueError(f"the mixture chooses among {count} components, and there are {found}")
        self._num_component = count
        event_shape = component_distribution.event_shape
        self._event_ndims = len(event_shape)
        super().__init__(components, event_shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(MixtureSameFamily, _instance)
        size = as_size(batch_shape)
        new._component_distribution = self._component_distribution.expand(
            (*size, self._num_component)
        )
        new._mixture_distribution = self._mixture_distribution.expand(size)
        new._num_component = self._num_component
        new._event_ndims = self._event_ndims
        return self._expanded(MixtureSameFamily, size, new)

    @constraints.dependent_property
    def support(self) -> Any:
        return MixtureSameFamilyConstraint(self._component_distribution.support)

    @property
    def mixture_distribution(self) -> Any:
        """The distribution over the components."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Any:
        """The components, along the last batch dimension."""
        return self._component_distribution

    def _mixed(self, of_components: Any) -> Any:
        """The weighted mean over the components."""
        weights = self._pad_mixture_dimensions(self.mixture_distribution.probs)
        return (weights * of_components).sum(dim=-1 - self._event_ndims)

    @property
    def mean(self) -> Any:
        return self._mixed(self.component_distribution.mean)

    @property
    def variance(self) -> Any:
        inner = self._mixed(self.component_distribution.variance)
        away = (self.component_distribution.mean - self._pad(self.mean)).pow(2.0)
        return inner + self._mixed(away)

    def cdf(self, x: Any) -> Any:
        each = self.component_distribution.cdf(self._pad(x))
        return (each * self.mixture_distribution.probs).sum(dim=-1)

    def log_prob(self, x: Any) -> Any:
        if self._validate_args:
            self._validate_sample(x)
        each = self.component_distribution.log_prob(self._pad(x))
        weights = log_softmax(self.mixture_distribution.logits, dim=-1)
        return logsumexp(each + weights, dim=-1)

    def sample(self, sample_shape: Any = ()) -> Any:
        with no_grad():
            dim = len(sample_shape) + len(self.batch_shape)
            picked = self.mixture_distribution.sample(sample_shape)
            each = self.component_distribution.sample(sample_shape)
            picked = picked.reshape(picked.shape + (1,) * (self._event_ndims + 1))
            picked = picked.expand((*each.shape[:dim], 1, *self.event_shape))
            return gather(each, dim, picked).squeeze(dim)

    def _pad(self, x: Any) -> Any:
        return x.unsqueeze(-1 - self._event_ndims)

    def _pad_mixture_dimensions(self, x: Any) -> Any:
        own = len(self.mixture_distribution.batch_shape)
        more = 0 if own == 1 else len(self.batch_shape) - own
        return x.reshape((*x.shape[:-1], *[1] * more, x.shape[-1], *[1] * self._event_ndims))

    def __repr__(self) -> str:
        return (
            f"MixtureSameFamily(\n  {self.mixture_distribution},\n  {self.component_distribution})"
        )
