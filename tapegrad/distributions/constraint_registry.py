"""Registries of transforms from unconstrained values to constraints: `biject_to`, `transform_to`.

`biject_to(constraint)` is bijective and has a Jacobian determinant; `transform_to(constraint)` may
be simpler. Both can be extended: `@biject_to.register(constraint)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import constraints, transforms
from .utils import _Number

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]


class ConstraintRegistry:
    """Factories of transforms, by class of the constraint."""

    def __init__(self) -> None:
        self._registry: dict[type, Callable[[Any], Any]] = {}
        super().__init__()

    def register(self, constraint: Any, factory: Any = None) -> Any:
        """Register a factory for a constraint's class; a decorator if no factory is given."""
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        if isinstance(constraint, constraints.Constraint):
            constraint = type(constraint)
        if not isinstance(constraint, type) or not issubclass(constraint, constraints.Constraint):
            raise TypeError(
                "a factory is registered for a Constraint or for a subclass of it, got "
                f"{constraint!r}"
            )
        self._registry[constraint] = factory
        return factory

    def __call__(self, constraint: Any) -> Any:
        """A transform whose values satisfy the constraint."""
        try:
            factory = self._registry[type(constraint)]
        except KeyError:
            raise NotImplementedError(
                f"Cannot transform {type(constraint).__name__} constraints"
            ) from None
        return factory(constraint)


biject_to = ConstraintRegistry()
transform_to = ConstraintRegistry()


def _both(*kinds: Any) -> Callable[[Any], Any]:
    """Register a factory in both registries."""

    def enter(factory: Any) -> Any:
        for kind in kinds:
            biject_to.register(kind, factory)
            transform_to.register(kind, factory)
        return factory

    return enter


_both(constraints.positive, constraints.nonnegative)(lambda constraint: transforms.ExpTransform())
_both(constraints.corr_cholesky)(lambda constraint: transforms.CorrCholeskyTransform())
biject_to.register(constraints.simplex, lambda c: transforms.StickBreakingTransform())
transform_to.register(constraints.simplex, lambda c: transforms.SoftmaxTransform())
transform_to.register(constraints.lower_cholesky, lambda c: transforms.LowerCholeskyTransform())
for _kind in (constraints.positive_definite, constraints.positive_semidefinite):
    transform_to.register(_kind, lambda c: transforms.PositiveDefiniteTransform())


@_both(constraints.real)
def _transform_to_real(constraint: Any) -> Any:
    return transforms.identity_transform


@_both(constraints.greater_than, constraints.greater_than_eq)
def _transform_to_greater_than(constraint: Any) -> Any:
    affine = transforms.AffineTransform(constraint.lower_bound, 1)
    return transforms.ComposeTransform([transforms.ExpTransform(), affine])


@_both(constraints.less_than)
def _transform_to_less_than(constraint: Any) -> Any:
    affine = transforms.AffineTransform(constraint.upper_bound, -1)
    return transforms.ComposeTransform([transforms.ExpTransform(), affine])


@_both(constraints.interval, constraints.half_open_interval)
def _transform_to_interval(constraint: Any) -> Any:
    low, high = constraint.lower_bound, constraint.upper_bound
    if isinstance(low, _Number) and isinstance(high, _Number) and (low, high) == (0, 1):
        return transforms.SigmoidTransform()
    affine = transforms.AffineTransform(low, high - low)
    return transforms.ComposeTransform([transforms.SigmoidTransform(), affine])


def _enter_composed(registry: ConstraintRegistry) -> None:
    """Register factories for constraints that are made of others."""

    def independent(constraint: Any) -> Any:
        base = registry(constraint.base_constraint)
        return transforms.IndependentTransform(base, constraint.reinterpreted_batch_ndims)

    def joined(constraint: Any) -> Any:
        parts = [registry(c) for c in constraint.cseq]
        return transforms.CatTransform(parts, constraint.dim, constraint.lengths)

    def stacked(constraint: Any) -> Any:
        return transforms.StackTransform([registry(c) for c in constraint.cseq], constraint.dim)

    registry.register(constraints.independent, independent)
    registry.register(constraints.cat, joined)
    registry.register(constraints.stack, stacked)


_enter_composed(biject_to)
_enter_composed(transform_to)
