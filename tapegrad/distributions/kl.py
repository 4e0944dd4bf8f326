"""Kullback-Leibler divergences: the registry, and the lookup for a pair of classes.

`register_kl(P, Q)` registers a function for two classes and their subclasses; the most derived
match is used. The formulas are in `kl_same.py` (two distributions of one class), `kl_other.py`, and
`kl_matrices.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

__all__ = ["kl_divergence", "register_kl"]

_KL_REGISTRY: dict[tuple[type, type], Callable[[Any, Any], Any]] = {}
#: by pair of classes: the function found before; None if there is none
_KL_MEMOIZE: dict[tuple[type, type], Callable[[Any, Any], Any] | None] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Any], Any]:
    """A decorator that registers a function of (p, q) for two classes of distributions.

    If two functions match a pair of subclasses equally well, register one for that pair as well.
    """
    for name, kind in (("type_p", type_p), ("type_q", type_q)):
        if not isinstance(kind, type):  # any class: mixins of distributions too, as in PyTorch
            raise TypeError(f"{name} must be a subclass of Distribution, got {kind!r}")

    def enter(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        _KL_REGISTRY[type_p, type_q] = function
        _KL_MEMOIZE.clear()
        return function

    return enter


def _closest(pairs: list[tuple[type, type]], first: int) -> tuple[type, type]:
    """The most derived pair, by the class at index `first` and then by the other one."""
    best = pairs[0]
    for pair in pairs[1:]:
        one, two = pair[first], best[first]
        if one is two:
            one, two = pair[1 - first], best[1 - first]
        if issubclass(one, two):
            best = pair
    return best


def _dispatch_kl(type_p: type, type_q: type) -> Callable[[Any, Any], Any] | None:
    """The function for two classes, or None."""
    pairs = [(p, q) for p, q in _KL_REGISTRY if issubclass(type_p, p) and issubclass(type_q, q)]
    if not pairs:
        return None
    left, right = _closest(pairs, 0), _closest(pairs, 1)
    if _KL_REGISTRY[left] is not _KL_REGISTRY[right]:
        warnings.warn(
            f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). "
            f"Please register_kl({left[0].__name__}, {right[1].__name__})",
            RuntimeWarning,
            stacklevel=3,
        )
    return _KL_REGISTRY[left]


def kl_divergence(p: Any, q: Any) -> Any:
    """KL(p || q) = E_p[log p(x) - log q(x)], in the batch shape."""
    pair = type(p), type(q)
    if pair not in _KL_MEMOIZE:
        _KL_MEMOIZE[pair] = _dispatch_kl(*pair)
    function = _KL_MEMOIZE[pair]
    if function is None:
        raise NotImplementedError(
            f"there is no formula for the KL divergence of {type(p).__name__} from "
            f"{type(q).__name__}: add one with register_kl"
        )
    return function(p, q)
