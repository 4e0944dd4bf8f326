"""The base class of transforms, and transforms made of others.

Comes in: x or y. Goes out: y = t(x), x = t.inv(y), and the logarithm of the absolute Jacobian
determinant. `transforms.py` exports all transforms; `TransformedDistribution` and the constraint
registries call them.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

from .. import Size, cat, stack, zeros_like
from . import constraints
from .utils import _sum_rightmost, lazy_property


class _Stated:
    """An attribute that subclasses or instances must set."""

    def __init__(self, doc: str) -> None:
        self.__doc__ = doc

    def __get__(self, transform: Any, kind: type) -> Any:
        if transform is None:
            return self
        raise NotImplementedError


class Transform:
    """A function y = t(x) with a known Jacobian determinant.

    A subclass defines `domain` and `codomain` (constraints), `bijective`, optionally `sign`, and
    the methods `_call`, `_inverse` and `log_abs_det_jacobian`. With `cache_size=1` the last pair of
    x and y is cached, so that the inverse of the value just computed is exact and free.
    """

    bijective: Any = False
    domain: Any = _Stated("The constraint that x satisfies.")
    codomain: Any = _Stated("The constraint that y satisfies.")

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ValueError(
                f"cache_size is 0 (keep nothing) or 1 (keep the last value), got {cache_size!r}"
            )
        self._cache_size = cache_size
        self._inv: Any = None
        self._cached_x_y: tuple[Any, Any] = (None, None)
        super().__init__()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_inv": None}

    @property
    def event_dim(self) -> int:
        """The number of dimensions of one value, if it is the same for x and y."""
        if self.domain.event_dim == self.codomain.event_dim:
            return self.domain.event_dim  # type: ignore[no-any-return]
        raise ValueError(
            "domain and codomain have different event_dim: ask one of the two for its own"
        )

    @property
    def inv(self) -> Transform:
        """The inverse transform; its inverse is this one."""
        if self._inv is None:
            self._inv = _InverseTransform(self)
        return self._inv  # type: ignore[no-any-return]

    @property
    def sign(self) -> Any:
        """The sign of the derivative, for monotone functions of one variable."""
        raise NotImplementedError

    def _arguments(self) -> tuple[Any, ...]:
        """The arguments of `__init__`, except `cache_size`."""
        if type(self).__init__ is Transform.__init__:
            return ()
        raise NotImplementedError(f"{type(self)}.with_cache is not implemented")

    def with_cache(self, cache_size: int = 1) -> Any:
        """The same transform with another cache size."""
        if self._cache_size == cache_size:
            return self
        kind: Any = type(self)
        return kind(*self._arguments(), cache_size=cache_size)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __call__(self, x: Any) -> Any:
        """y = t(x)."""
        if self._cache_size and self._cached_x_y[0] is x:
            return self._cached_x_y[1]
        y = self._call(x)
        if self._cache_size:
            self._cached_x_y = x, y
        return y

    def _inv_call(self, y: Any) -> Any:
        """The x of a y, from the cache if y is the last value computed."""
        if self._cache_size and self._cached_x_y[1] is y:
            return self._cached_x_y[0]
        x = self._inverse(y)
        if self._cache_size:
            self._cached_x_y = x, y
        return x

    def _call(self, x: Any) -> Any:
        """y = t(x), without the cache."""
        raise NotImplementedError

    def _inverse(self, y: Any) -> Any:
        """The x of a y, without the cache."""
        raise NotImplementedError

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """log |dy/dx|."""
        raise NotImplementedError

    def forward_shape(self, shape: Any) -> Any:
        """The shape of y for a shape of x."""
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        """The shape of x for a shape of y."""
        return shape

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class _InverseTransform(Transform):
    """The inverse of another transform."""

    def __init__(self, transform: Transform) -> None:
        super().__init__(cache_size=transform._cache_size)
        self._inv = transform

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        return self._inv.codomain

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Any:
        return self._inv.domain

    @property
    def bijective(self) -> Any:
        return self._inv.bijective

    @property
    def sign(self) -> Any:
        return self._inv.sign

    @property
    def inv(self) -> Transform:
        return self._inv  # type: ignore[no-any-return]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__.copy()

    def with_cache(self, cache_size: int = 1) -> Any:
        return self._inv.with_cache(cache_size).inv

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _InverseTransform) and bool(self._inv == other._inv)

    def __call__(self, x: Any) -> Any:
        return self._inv._inv_call(x)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return -self._inv.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Any) -> Any:
        return self._inv.inverse_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self._inv.forward_shape(shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._inv!r})"


class ComposeTransform(Transform):
    """A composition of transforms, applied in order."""

    def __init__(self, parts: list[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.parts = [p.with_cache(cache_size) for p in parts] if cache_size else parts

    def _arguments(self) -> tuple[Any, ...]:
        return (self.parts,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        if not self.parts:
            return constraints.real
        dims = self.parts[-1].codomain.event_dim
        for part in reversed(self.parts):
            dims = max(
                dims + part.domain.event_dim - part.codomain.event_dim, part.domain.event_dim
            )
        return _of_dims(self.parts[0].domain, dims)

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Any:
        if not self.parts:
            return constraints.real
        dims = self.parts[0].domain.event_dim
        for part in self.parts:
            dims = max(
                dims + part.codomain.event_dim - part.domain.event_dim, part.codomain.event_dim
            )
        return _of_dims(self.parts[-1].codomain, dims)

    @lazy_property
    def bijective(self) -> Any:
        return all(p.bijective for p in self.parts)

    @lazy_property
    def sign(self) -> Any:
        return functools.reduce(operator.mul, [p.sign for p in self.parts], 1)

    @property
    def inv(self) -> Transform:
        if self._inv is None:
            self._inv = ComposeTransform([p.inv for p in reversed(self.parts)])
            self._inv._inv = self
        return self._inv  # type: ignore[no-any-return]

    def __call__(self, x: Any) -> Any:
        for part in self.parts:
            x = part(x)
        return x

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        if not self.parts:
            return zeros_like(x)
        values = [x]
        for part in self.parts[:-1]:
            values.append(part(values[-1]))
        values.append(y)
        terms = []
        dims = self.domain.event_dim
        for i, part in enumerate(self.parts):
            term = part.log_abs_det_jacobian(values[i], values[i + 1])
            terms.append(_sum_rightmost(term, dims - part.domain.event_dim))
            dims += part.codomain.event_dim - part.domain.event_dim
        return functools.reduce(operator.add, terms)

    def forward_shape(self, shape: Any) -> Any:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def __repr__(self) -> str:
        shown = ",\n    ".join(map(repr, self.parts))
        return f"{type(self).__name__}(\n    {shown}\n)"


def _of_dims(constraint: Any, dims: int) -> Any:
    """A constraint extended to values of `dims` dimensions."""
    more = dims - constraint.event_dim
    return constraints.independent(constraint, more) if more else constraint


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """A transform whose last batch dimensions are event dimensions."""

    def __init__(
        self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0
    ) -> None:
        super().__init__(cache_size=cache_size)
        self.base_transform = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    def _arguments(self) -> tuple[Any, ...]:
        return self.base_transform, self.reinterpreted_batch_ndims

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        return constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims)

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Any:
        return constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims)

    @property
    def bijective(self) -> Any:
        return self.base_transform.bijective

    @property
    def sign(self) -> Any:
        return self.base_transform.sign

    def _call(self, x: Any) -> Any:
        _check_dims(x.shape, self.domain.event_dim)
        return self.base_transform(x)

    def _inverse(self, y: Any) -> Any:
        _check_dims(y.shape, self.codomain.event_dim)
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        each = self.base_transform.log_abs_det_jacobian(x, y)
        return _sum_rightmost(each, self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: Any) -> Any:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self.base_transform.inverse_shape(shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_transform!r}, {self.reinterpreted_batch_ndims})"


def _check_dims(shape: Any, dims: int) -> None:
    if len(shape) < dims:
        raise ValueError("Too few dimensions on input")


class ReshapeTransform(Transform):
    """Reshapes the last dimensions from `in_shape` to `out_shape`."""

    bijective = True

    def __init__(self, in_shape: Any, out_shape: Any, cache_size: int = 0) -> None:
        self.in_shape = Size(in_shape)
        self.out_shape = Size(out_shape)
        if self.in_shape.numel() != self.out_shape.numel():
            raise ValueError(
                "in_shape and out_shape must have equally many elements, got "
                f"{tuple(self.in_shape)} and {tuple(self.out_shape)}"
            )
        super().__init__(cache_size=cache_size)

    def _arguments(self) -> tuple[Any, ...]:
        return self.in_shape, self.out_shape

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.independent(constraints.real, len(self.in_shape))

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.independent(constraints.real, len(self.out_shape))

    def _call(self, x: Any) -> Any:
        return x.reshape(x.shape[: x.dim() - len(self.in_shape)] + self.out_shape)

    def _inverse(self, y: Any) -> Any:
        return y.reshape(y.shape[: y.dim() - len(self.out_shape)] + self.in_shape)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return x.new_zeros(x.shape[: x.dim() - len(self.in_shape)])

    def forward_shape(self, shape: Any) -> Any:
        return _reshaped(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Any) -> Any:
        return _reshaped(shape, self.out_shape, self.in_shape)


def _reshaped(shape: Any, before: Any, after: Any) -> Any:
    """The shape with its last dimensions, `before`, replaced by `after`."""
    _check_dims(shape, len(before))
    first = len(shape) - len(before)
    if tuple(shape[first:]) != tuple(before):
        raise ValueError(f"Shape mismatch: expected {shape[first:]} but got {before}")
    return shape[:first] + after


class _Parts(Transform):
    """Applies one transform to each part of a value along a dimension."""

    def __init__(self, tseq: Sequence[Transform], dim: int, cache_size: int) -> None:
        assert all(isinstance(t, Transform) for t in tseq), "tseq must consist of transforms"
        super().__init__(cache_size=cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.dim = dim

    def _parts_of(self, x: Any) -> list[Any]:
        raise NotImplementedError

    def _check(self, x: Any, length: int) -> None:
        assert -x.dim() <= self.dim < x.dim(), (
            f"dim {self.dim} is out of range for a tensor of {x.dim()} dimensions"
        )
        assert x.shape[self.dim] == length, (
            f"dimension {self.dim} has the size {x.shape[self.dim]}, expected {length}"
        )

    @property
    def bijective(self) -> Any:
        return all(t.bijective for t in self.transforms)


class CatTransform(_Parts):
    """Splits a dimension into parts of given lengths and applies one transform to each."""

    def __init__(
        self,
        tseq: Sequence[Transform],
        dim: int = 0,
        lengths: Sequence[int] | None = None,
        cache_size: int = 0,
    ) -> None:
        super().__init__(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        assert len(self.lengths) == len(self.transforms), "as many lengths as transforms"

    def _arguments(self) -> tuple[Any, ...]:
        return self.transforms, self.dim, self.lengths

    @lazy_property
    def event_dim(self) -> Any:
        return max(t.event_dim for t in self.transforms)

    @lazy_property
    def length(self) -> Any:
        """The size of the dimension."""
        return sum(self.lengths)

    def _parts_of(self, x: Any) -> list[Any]:
        self._check(x, self.length)
        return list(x.split(self.lengths, self.dim))

    def _call(self, x: Any) -> Any:
        parts = zip(self.transforms, self._parts_of(x), strict=True)
        return cat([t(part) for t, part in parts], dim=self.dim)

    def _inverse(self, y: Any) -> Any:
        parts = zip(self.transforms, self._parts_of(y), strict=True)
        return cat([t.inv(part) for t, part in parts], dim=self.dim)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        parts = zip(self.transforms, self._parts_of(x), self._parts_of(y), strict=True)
        terms = [
            _sum_rightmost(t.log_abs_det_jacobian(a, b), self.event_dim - t.event_dim)
            for t, a, b in parts
        ]
        dim = (self.dim - x.dim() if self.dim >= 0 else self.dim) + self.event_dim
        return cat(terms, dim=dim) if dim < 0 else functools.reduce(operator.add, terms)

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)


class StackTransform(_Parts):
    """Applies one transform to each slice along a dimension."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(tseq, dim, cache_size)

    def _arguments(self) -> tuple[Any, ...]:
        return self.transforms, self.dim

    def _parts_of(self, x: Any) -> list[Any]:
        self._check(x, len(self.transforms))
        return list(x.unbind(self.dim))

    def _call(self, x: Any) -> Any:
        parts = zip(self.transforms, self._parts_of(x), strict=True)
        return stack([t(part) for t, part in parts], dim=self.dim)

    def _inverse(self, y: Any) -> Any:
        parts = zip(self.transforms, self._parts_of(y), strict=True)
        return stack([t.inv(part) for t, part in parts], dim=self.dim)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        parts = zip(self.transforms, self._parts_of(x), self._parts_of(y), strict=True)
        return stack([t.log_abs_det_jacobian(a, b) for t, a, b in parts], dim=self.dim)

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.stack([t.codomain for t in self.transforms], self.dim)
