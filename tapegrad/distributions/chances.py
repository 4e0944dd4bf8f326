"""Code shared by distributions that take `probs` or `logits`."""

from __future__ import annotations

from typing import Any

from .utils import broadcast_all, lazy_property, logits_to_probs, probs_to_logits


def only_one(probs: Any, logits: Any) -> bool:
    """Whether `probs` is given, not `logits`; raises if both or neither are."""
    if (probs is None) == (logits is None):
        raise ValueError("give either probs or logits: one of them, and not both")
    return probs is not None


class LogOdds:
    """Binary probabilities, given as `probs` or as log odds `logits`; the other is computed."""

    _param: Any

    def _set_chances(self, probs: Any, logits: Any) -> None:
        if only_one(probs, logits):
            (self.probs,) = broadcast_all(probs)
            self._param = self.probs
        else:
            (self.logits,) = broadcast_all(logits)
            self._param = self.logits

    def _set_counted_chances(self, total_count: Any, probs: Any, logits: Any) -> None:
        """The same with a count: broadcast with the probabilities, converted to their dtype."""
        given = probs if only_one(probs, logits) else logits
        total_count, self._param = broadcast_all(total_count, given)
        self.total_count = total_count.type_as(self._param)
        if probs is not None:
            self.probs = self._param
        else:
            self.logits = self._param

    def _new(self, *args: Any, **kwargs: Any) -> Any:
        return self._param.new(*args, **kwargs)

    @lazy_property
    def logits(self) -> Any:
        """log(p / (1 - p))."""
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Any:
        """The probabilities."""
        return logits_to_probs(self.logits, is_binary=True)

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter."""
        return self._param.size()
