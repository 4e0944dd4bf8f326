"""`vmap` at its first path in PyTorch, for code that still imports it from there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .transforms.vmap import vmap


def _vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    allow_none_pass_through: bool = False,
) -> Callable[..., Any]:
    """`vmap` as PyTorch's gradient checks call it; results that are None stay None."""
    if not allow_none_pass_through:
        return vmap(func, in_dims, out_dims)
    raise NotImplementedError("_vmap(allow_none_pass_through=True): return tensors, and use vmap")


__all__ = ["vmap"]
