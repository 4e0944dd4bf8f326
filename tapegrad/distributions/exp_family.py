"""Exponential families: densities exp(eta . t(x) - F(eta) + k(x)).

A subclass defines its natural parameters and the log normalizer F. The entropy, and the divergence
of two members of a family (`kl_same.py`), are computed from F and its gradient.
"""

from __future__ import annotations

from typing import Any

from ..autograd.api import grad
from .distribution import Distribution

__all__ = ["ExponentialFamily"]


class ExponentialFamily(Distribution):
    """A distribution of an exponential family."""

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        """The natural parameters eta."""
        raise NotImplementedError

    def _log_normalizer(self, *natural_params: Any) -> Any:
        """F(eta), whose gradient is the mean of the sufficient statistics."""
        raise NotImplementedError

    @property
    def _mean_carrier_measure(self) -> Any:
        """The mean of the carrier measure k(x)."""
        raise NotImplementedError

    def entropy(self) -> Any:
        """F(eta) - eta . F'(eta) - E[k(x)]."""
        parameters = [p.detach().requires_grad_() for p in self._natural_params]
        normalizer = self._log_normalizer(*parameters)
        slopes = grad(normalizer.sum(), parameters, create_graph=True)
        result = normalizer - self._mean_carrier_measure
        for parameter, slope in zip(parameters, slopes, strict=True):
            result = result - (parameter * slope).reshape((*self._batch_shape, -1)).sum(-1)
        return result
