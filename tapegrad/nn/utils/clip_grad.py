"""Norms of gradients, and clipping by norm or by value."""

from __future__ import annotations

import types
import warnings
from collections.abc import Iterable
from typing import Any

from ...core.modes import no_grad
from ...core.tensor import Tensor
from ...ops.checks import checked
from ...ops.creation import CREATION
from ...ops.reduce.statistics import norm
from ...ops.shape.joining import stack

#: the attribute that marks a shard, named here so that `distributed/shards.py` is not loaded
SHARD = "_shard"


def _listed(parameters: Any) -> list[Any]:
    if isinstance(parameters, Tensor):
        return [parameters]
    found = list(parameters)
    if not found and isinstance(parameters, types.GeneratorType):
        warnings.warn("there are no parameters, so nothing was clipped", stacklevel=3)
    return found


def _gradients(parameters: Any) -> list[Any]:
    return [p.grad for p in _listed(parameters) if p.grad is not None]


def _moved(x: Any, dtype: Any, device: Any) -> Any:
    # `to` would do nothing either, but is slower: clipping often meets small tensors.
    return x if x.dtype is dtype and x.device == device else x.to(dtype, device=device)


def total_norm(
    tensors: Iterable[Any],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Any:
    """The norm of all tensors taken as one vector, as a 0-d tensor."""
    with no_grad():
        found = _listed(tensors)
        if any(x.is_sparse for x in found):
            raise NotImplementedError(
                "the total norm of sparse gradients is not supported, as in PyTorch; use "
                "to_dense() on them, or sparse=False"
            )
        norms = [norm(x, float(norm_type)) for x in found]
        if not norms:
            return CREATION["tensor"](0.0)
        place = norms[0].device
        total = norm(stack([_moved(n, n.dtype, place) for n in norms]), float(norm_type))
        return _finite(total) if error_if_nonfinite else total


def _finite(total: Any) -> Any:
    message = (
        "the norm of the gradients is not finite, so they cannot be clipped; nothing was "
        "changed (error_if_nonfinite=False would clip anyway)"
    )
    return checked(total, total.isfinite(), low=1, message=message)


def _norm_of_all_ranks(parameters: list[Any], kind: float) -> Any:
    """The norm of sharded gradients, over the shards of all ranks.

    Parameters that are not sharded count once. All ranks call it.
    """
    from ...distributed.shards import shard_of
    from ...ops.collective.group import MAX, SUM
    from ...ops.collective.reducing import all_reduce

    # A rank may have no elements of a parameter, so take the dtype from the parameters.
    dtype = max((p.dtype for p in parameters), key=lambda d: d.itemsize)
    groups: dict[Any, list[Any]] = {}
    for p in parameters:
        shard = shard_of(p)
        groups.setdefault(None if shard is None else shard.group, []).append(p)
    norms = []
    with no_grad():
        for group, members in groups.items():
            found = total_norm([g for g in _gradients(members) if g.numel()], kind).to(dtype)
            if group is not None and kind == float("inf"):
                found = all_reduce(found, MAX, group)
            elif group is not None:
                found = all_reduce(found**kind, SUM, group) ** (1 / kind)
            norms.append(found)
        return total_norm(norms, kind)


get_total_norm = total_norm


def clip_grads_with_norm_(
    parameters: Any, max_norm: float, total_norm: Any, foreach: bool | None = None
) -> None:
    """Scale gradients by max_norm / total_norm if that is below 1."""
    with no_grad():
        scale = (float(max_norm) / (total_norm + 1e-6)).clamp(max=1.0)
        for gradient in _gradients(parameters):
            gradient.mul_(_moved(scale, gradient.dtype, gradient.device))


def clip_grad_norm_(
    parameters: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Any:
    """Scale the gradients of parameters, in place, so that their total norm is at most max_norm.

    Returns the total norm before clipping. If `fully_shard` divided the parameters, the shards of
    all ranks count, and all ranks must call this.
    """
    parameters = _listed(parameters)
    if any(hasattr(p, SHARD) for p in parameters):
        total = _norm_of_all_ranks(parameters, float(norm_type))
        total = _finite(total) if error_if_nonfinite else total
    else:
        total = total_norm(_gradients(parameters), norm_type, error_if_nonfinite)
    clip_grads_with_norm_(parameters, max_norm, total)
    return total


def clip_grad_value_(parameters: Any, clip_value: float, foreach: bool | None = None) -> None:
    """Limit each element of the gradients of parameters to ±clip_value, in place."""
    with no_grad():
        for gradient in _gradients(parameters):
            gradient.clamp_(-float(clip_value), float(clip_value))


def clip_grad_norm(
    parameters: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Any:
    """The older name of `clip_grad_norm_`."""
    warnings.warn("clip_grad_norm is deprecated; use clip_grad_norm_", FutureWarning, stacklevel=2)
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)
