"""Parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...core.modes import no_grad
from ...core.tensor import Tensor
from ...ops.shape.joining import cat


def parameters_to_vector(parameters: Iterable[Any]) -> Any:
    """All parameters in one vector; gradients flow through."""
    return cat([p.reshape(-1) for p in parameters])


def vector_to_parameters(vec: Any, parameters: Iterable[Any]) -> None:
    """Put the parts of a vector into parameters."""
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected a Tensor, got {type(vec).__name__}")
    targets = list(parameters)
    count = sum(p.numel() for p in targets)
    if vec.shape != (count,):
        raise RuntimeError(
            f"a vector of {count} elements is needed for these parameters, got shape "
            f"{tuple(vec.shape)}"
        )
    start = 0
    with no_grad():
        for p in targets:
            p.copy_(vec.narrow(0, start, p.numel()).reshape(p.shape))
            start += p.numel()
