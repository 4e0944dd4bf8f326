"""`vmap` at the path of PyTorch's first one, for code that still imports it from there."""

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
    """`vmap` as gradient checks of PyTorch call it; None among results is passed on."""
    if not allow_none_pass_through:
        return vmap(func, in_dims, out_dims)
    raise NotImplementedError("_vmap(allow_none_pass_through=True): return tensors, and use vmap")


__all__ = ["vmap"]
