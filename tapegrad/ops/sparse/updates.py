"""Read and update a dense tensor at the coordinates of a sparse one, for optimizers."""

from __future__ import annotations

from typing import Any

from ...core import inplace, storage
from ...core.modes import STATE, TAPE
from ...core.tensor import Tensor, own
from .rules import added_to, like, picked
from .tensor import SparseTensor

__all__ = ["add_into", "like", "picked"]


def add_into(target: Tensor, x: SparseTensor, scale: Any = 1) -> None:
    """`target += scale * x`; in eager code only the elements at the coordinates are touched."""
    change = x.coalesce()
    if STATE.mode & TAPE or not change.sparse_dim():
        target.copy_(added_to(target, change * scale))
        return
    inplace.check_writable(target, "add_")
    own(target)
    parts = change.parts
    elements = (parts.elements * scale).to(target.dtype)
    target._array[tuple(parts.coordinates._array)] += elements._array
    storage.note(target._array)
