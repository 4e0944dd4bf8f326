"""The base class of distributions.

A distribution has a batch shape (of independent distributions with different parameters) and an
event shape (of one sample of one of them). Samples have the shape `sample_shape + batch_shape +
event_shape`; their `log_prob` has the shape `sample_shape + batch_shape`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, ClassVar

from .. import Size, Tensor, exp, no_grad
from ..core.modes import capturing
from ..core.switches import switches
from ..ops.checks import checked
from . import constraints
from .utils import as_size, lazy_property

__all__ = ["Distribution"]


def require(valid: Any, value: Any, text: Callable[[], str], short: str) -> None:
    """Raise ValueError unless all of `valid` is true; `text` returns the start of the message.

    During capture, the check becomes part of the program: each replay checks its own values, and
    raises with the text `short`, which needs no values.
    """
    if capturing():
        checked(valid, low=1, message=f"{short}: found invalid values", error=ValueError)
    elif not valid.all():
        raise ValueError(f"{text()}, but found invalid values:\n{value}")


def _described(value: Any) -> str:
    return f"({type(value).__name__} of shape {tuple(value.shape)})"


class _Undefined:
    """A class attribute that subclasses must define."""

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        raise NotImplementedError


class Distribution:
    """A probability distribution."""

    #: by name of a parameter: the constraint that it must satisfy
    arg_constraints: ClassVar[Any] = _Undefined()

    has_rsample: Any = False
    has_enumerate_support: Any = False
    _validate_args: bool = __debug__

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Set whether distributions check arguments by default; initially True without `-O`."""
        if value not in (True, False):
            raise ValueError(f"set_default_validate_args takes True or False, got {value!r}")
        Distribution._validate_args = switches.validate_args = value

    def __init__(
        self,
        batch_shape: Any = Size(),  # noqa: B008  # which does not change
        event_shape: Any = Size(),  # noqa: B008
        validate_args: bool | None = None,
    ) -> None:
        self._batch_shape = batch_shape
        self._event_shape = event_shape
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_parameters()
        super().__init__()

    def _check_parameters(self) -> None:
        try:
            wanted = self.arg_constraints
        except NotImplementedError:
            wanted = {}
            warnings.warn(
                f"{type(self).__name__} has no arg_constraints, so its parameters are not "
                f"checked: set arg_constraints = {{}}, or pass validate_args=False",
                stacklevel=3,
            )
        for name, constraint in wanted.items():
            if constraints.is_dependent(constraint):
                continue
            if name not in self.__dict__ and isinstance(getattr(type(self), name), lazy_property):
                continue
            value = getattr(self, name)
            require(
                constraint.check(value),
                value,
                lambda name=name, value=value, constraint=constraint: (  # type: ignore[misc]
                    f"{self!r}: parameter {name} {_described(value)} is outside of {constraint!r}"
                ),
                f"{type(self).__name__}: parameter {name} is outside of "
                f"{type(constraint).__name__[1:]}",
            )

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The same distribution with its parameters expanded to a larger batch shape."""
        raise NotImplementedError

    def _expanded(self, cls: type, batch_shape: Any, _instance: Any, *names: str) -> Any:
        """`expand` of `cls`; the shapes of the named parameters begin with the batch shape."""
        new = self._get_checked_instance(cls, _instance)
        size = as_size(batch_shape)
        batch = len(self._batch_shape)
        for name in names:
            if name in self.__dict__:
                value = self.__dict__[name]
                new.__dict__[name] = value.expand(size + value.shape[batch:])
        base: Any = super(cls, new)
        base.__init__(size, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @property
    def batch_shape(self) -> Size:
        """The shape of the batch of distributions."""
        return self._batch_shape  # type: ignore[no-any-return]

    @property
    def event_shape(self) -> Size:
        """The shape of one sample of one distribution."""
        return self._event_shape  # type: ignore[no-any-return]

    @property
    def support(self) -> Any:
        """The constraint that values satisfy."""
        raise NotImplementedError

    @property
    def mean(self) -> Any:
        """The mean."""
        raise NotImplementedError

    @property
    def mode(self) -> Any:
        """The most likely value."""
        raise NotImplementedError(f"{type(self)} does not implement mode")

    @property
    def variance(self) -> Any:
        """The variance."""
        raise NotImplementedError

    @property
    def stddev(self) -> Any:
        """The standard deviation."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Any = ()) -> Any:
        """Draw samples without gradients."""
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Any:
        """Draw samples whose gradients reach the parameters."""
        raise NotImplementedError

    def sample_n(self, n: int) -> Any:
        """Draw `n` samples; the same as `sample((n,))`."""
        warnings.warn(
            "sample_n(n) is an old name of sample((n,))",
            FutureWarning,
            stacklevel=2,
        )
        return self.sample(Size((n,)))

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the density, or of the probability, of a value."""
        raise NotImplementedError

    def cdf(self, value: Any) -> Any:
        """The cumulative probability: that of values up to this one."""
        raise NotImplementedError

    def icdf(self, value: Any) -> Any:
        """The quantile: the value whose `cdf` is this probability."""
        raise NotImplementedError

    def enumerate_support(self, expand: bool = True) -> Any:
        """All values of a discrete distribution, along the first dimension."""
        raise NotImplementedError

    def entropy(self) -> Any:
        """The entropy in nats."""
        raise NotImplementedError

    def perplexity(self) -> Any:
        """The exponential of the entropy."""
        return exp(self.entropy())

    def _extended_shape(self, sample_shape: Any = ()) -> Size:
        """The shape of samples."""
        if not isinstance(sample_shape, Size):
            sample_shape = Size(sample_shape)
        return Size(sample_shape + self._batch_shape + self._event_shape)

    def _validate_sample(self, value: Any) -> None:
        """Raise unless a value has the right shape and lies in the support."""
        if not isinstance(value, Tensor):
            raise ValueError(f"log_prob takes a Tensor, got {type(value).__name__}")
        first = value.dim() - len(self._event_shape)
        if value.shape[first:] != self._event_shape:
            raise ValueError(
                "the last dimensions of the value must be the event_shape "
                f"{tuple(self._event_shape)}, got the shape {tuple(value.size())}"
            )
        expected = self._batch_shape + self._event_shape
        for i, j in zip(reversed(value.shape), reversed(expected), strict=False):
            if i != 1 and j != 1 and i != j:
                raise ValueError(
                    f"a value of shape {tuple(value.size())} does not broadcast with batch_shape "
                    f"+ event_shape, {tuple(expected)}"
                )
        try:
            support = self.support
        except NotImplementedError:
            warnings.warn(
                f"{type(self).__name__} has no support, so its samples are not checked: define "
                "it, or pass validate_args=False",
                stacklevel=2,
            )
            return
        require(
            support.check(value),
            value,
            lambda: (
                f"{self!r}: the value {_described(value)} is outside of the support {support!r}"
            ),
            f"a value is outside of the support of {type(self).__name__}",
        )

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        """A new instance for `expand` to fill."""
        if _instance is None and type(self).__init__ != cls.__init__:  # type: ignore[misc]
            raise NotImplementedError(
                f"{type(self).__name__} has an __init__ other than that of {cls.__name__}, so it "
                "needs an expand() of its own"
            )
        return self.__new__(type(self)) if _instance is None else _instance

    def __repr__(self) -> str:
        parameters = [(p, self.__dict__[p]) for p in self.arg_constraints if p in self.__dict__]
        shown = [f"{p}: {v if v.numel() == 1 else v.size()}" for p, v in parameters]
        return f"{type(self).__name__}({', '.join(shown)})"
