"""Distributions of transformed values."""

from __future__ import annotations

from typing import Any, ClassVar

from .. import Size, no_grad
from . import constraints
from .distribution import Distribution
from .independent import Independent
from .transforms import ComposeTransform, Transform
from .utils import _sum_rightmost, as_size

__all__ = ["TransformedDistribution"]


class TransformedDistribution(Distribution):
    """The distribution of y = t(x), where x comes from `base_distribution`.

    `transforms` is a transform, or a list of them, applied in order.
    """

    arg_constraints: ClassVar[Any] = {}

    def __init__(
        self, base_distribution: Any, transforms: Any, validate_args: bool | None = None
    ) -> None:
        if isinstance(transforms, Transform):
            self.transforms = [transforms]
        elif isinstance(transforms, list):
            if not all(isinstance(t, Transform) for t in transforms):
                raise ValueError(
                    "each of the transforms must be a Transform, got "
                    f"{[type(t).__name__ for t in transforms]}"
                )
            self.transforms = transforms
        else:
            raise ValueError(
                "transforms: expected a Transform or a list of them, got "
                f"{type(transforms).__name__}"
            )
        base_shape = base_distribution.batch_shape + base_distribution.event_shape
        base_dims = len(base_distribution.event_shape)
        whole = ComposeTransform(self.transforms)
        if len(base_shape) < whole.domain.event_dim:
            raise ValueError(
                f"the transforms need {whole.domain.event_dim} dimensions, and the base "
                f"distribution has the shape {tuple(base_shape)}"
            )
        shape = Size(whole.forward_shape(base_shape))
        expanded = Size(whole.inverse_shape(shape))
        if base_shape != expanded:  # parameters of transforms have a larger batch
            base_distribution = base_distribution.expand(expanded[: len(expanded) - base_dims])
        more_dims = whole.domain.event_dim - base_dims
        if more_dims > 0:
            base_distribution = Independent(base_distribution, more_dims)
        self.base_dist = base_distribution
        added = whole.codomain.event_dim - whole.domain.event_dim
        dims = max(whole.codomain.event_dim, base_dims + added)
        first = len(shape) - dims
        super().__init__(shape[:first], shape[first:], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(TransformedDistribution, _instance)
        shape: Any = as_size(batch_shape) + self.event_shape
        for transform in reversed(self.transforms):
            shape = transform.inverse_shape(shape)
        new.base_dist = self.base_dist.expand(shape[: len(shape) - len(self.base_dist.event_shape)])
        new.transforms = self.transforms
        return self._expanded(TransformedDistribution, batch_shape, new)

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Any:
        if not self.transforms:
            return self.base_dist.support
        support = self.transforms[-1].codomain
        more = len(self.event_shape) - support.event_dim
        return constraints.independent(support, more) if more > 0 else support

    @property
    def has_rsample(self) -> Any:
        """Whether the base distribution has it."""
        return self.base_dist.has_rsample

    def sample(self, sample_shape: Any = ()) -> Any:
        with no_grad():
            return self._transformed(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Any = ()) -> Any:
        return self._transformed(self.base_dist.rsample(sample_shape))

    def _transformed(self, x: Any) -> Any:
        for transform in self.transforms:
            x = transform(x)
        return x

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        dims = len(self.event_shape)
        total: Any = 0.0
        y = value
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            dims += transform.domain.event_dim - transform.codomain.event_dim
            term = transform.log_abs_det_jacobian(x, y)
            total = total - _sum_rightmost(term, dims - transform.domain.event_dim)
            y = x
        base = self.base_dist.log_prob(y)
        return total + _sum_rightmost(base, dims - len(self.base_dist.event_shape))

    def _monotonize_cdf(self, value: Any) -> Any:
        """A probability, or 1 minus it where the transforms decrease."""
        sign: Any = 1
        for transform in self.transforms:
            sign = sign * transform.sign
        if isinstance(sign, int) and sign == 1:
            return value
        return sign * (value - 0.5) + 0.5

    def cdf(self, value: Any) -> Any:
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        if self._validate_args:
            self.base_dist._validate_sample(value)
        return self._monotonize_cdf(self.base_dist.cdf(value))

    def icdf(self, value: Any) -> Any:
        return self._transformed(self.base_dist.icdf(self._monotonize_cdf(value)))
