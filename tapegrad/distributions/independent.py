"""Distributions whose last batch dimensions are event dimensions."""

from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar

from . import constraints
from .distribution import Distribution
from .utils import _sum_rightmost, as_size

__all__ = ["Independent"]

Base = TypeVar("Base", bound=Distribution)


class Independent(Distribution, Generic[Base]):
    """A distribution whose last `reinterpreted_batch_ndims` batch dimensions are event dimensions.

    `Independent(Normal(zeros(3), ones(3)), 1)` has the shapes of a `MultivariateNormal`.
    """

    arg_constraints: ClassVar[Any] = {}
    base_dist: Base

    def __init__(
        self,
        base_distribution: Base,
        reinterpreted_batch_ndims: int,
        validate_args: bool | None = None,
    ) -> None:
        if reinterpreted_batch_ndims > len(base_distribution.batch_shape):
            raise ValueError(
                f"reinterpreted_batch_ndims is {reinterpreted_batch_ndims}, and the distribution "
                f"has only {len(base_distribution.batch_shape)} batch dimensions"
            )
        shape = base_distribution.batch_shape + base_distribution.event_shape
        first = len(base_distribution.batch_shape) - reinterpreted_batch_ndims
        self.base_dist = base_distribution
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        super().__init__(shape[:first], shape[first:], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(Independent, _instance)
        own = self.event_shape[: self.reinterpreted_batch_ndims]
        new.base_dist = self.base_dist.expand(as_size(batch_shape) + own)
        new.reinterpreted_batch_ndims = self.reinterpreted_batch_ndims
        return self._expanded(Independent, batch_shape, new)

    @property
    def has_rsample(self) -> Any:
        """Whether the base distribution has it."""
        return self.base_dist.has_rsample

    @property
    def has_enumerate_support(self) -> Any:
        """Whether the base distribution has it; False if batch dimensions became event ones."""
        return self.reinterpreted_batch_ndims == 0 and self.base_dist.has_enumerate_support

    @constraints.dependent_property
    def support(self) -> Any:
        support = self.base_dist.support
        if self.reinterpreted_batch_ndims:
            support = constraints.independent(support, self.reinterpreted_batch_ndims)
        return support

    @property
    def mean(self) -> Any:
        return self.base_dist.mean

    @property
    def mode(self) -> Any:
        return self.base_dist.mode

    @property
    def variance(self) -> Any:
        return self.base_dist.variance

    def sample(self, sample_shape: Any = ()) -> Any:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Any:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Any) -> Any:
        return _sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Any:
        return _sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand: bool = True) -> Any:
        if self.reinterpreted_batch_ndims > 0:
            raise NotImplementedError(
                "the values of several elements together are not enumerated: use "
                "base_dist.enumerate_support()"
            )
        return self.base_dist.enumerate_support(expand=expand)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_dist}, {self.reinterpreted_batch_ndims})"
