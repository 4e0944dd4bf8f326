"""Snapshots: the state of tensors from outside, to restore it later.

Taken before a function runs that will run a second time from the same state: to replay what was
just recorded (`undo.py`, `update.py`), and to compare a replay with an eager run (`check.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...core.tensor import Tensor


class Snapshot:
    """Memory, the gradients of leaves, and the requires_grad of tensors."""

    __slots__ = ("_flags", "_grads", "_memory")

    def __init__(
        self,
        arrays: Iterable[Any] = (),
        leaves: Iterable[Tensor] = (),
        flagged: Iterable[Tensor] = (),
    ) -> None:
        """Copy the current state. The memory of gradients is copied only if it is in `arrays`."""
        self._memory = [(array, array.copy()) for array in arrays]
        self._grads = [(leaf, leaf._grad) for leaf in leaves]
        self._flags = [(tensor, tensor._requires) for tensor in flagged]

    @classmethod
    def of(
        cls,
        memory: Iterable[tuple[Any, Any]],
        grads: Iterable[tuple[Tensor, Tensor | None]],
        flags: Iterable[tuple[Tensor, bool]],
    ) -> Snapshot:
        """Build a snapshot from state noted earlier: arrays with copies, leaves with gradients."""
        snapshot = cls()
        snapshot._memory, snapshot._grads, snapshot._flags = list(memory), list(grads), list(flags)
        return snapshot

    def restore(self) -> None:
        """Restore the state."""
        # In reverse, so that memory noted several times gets its first contents back.
        for array, values in reversed(self._memory):
            array[...] = values
        for leaf, grad in self._grads:
            leaf._grad = grad
        for tensor, requires in self._flags:
            tensor._requires = requires
