"""LeafTracker: a tape for calls that run eagerly, which notes which leaves are used.

Comes in: the operations of one call. Goes out: nothing; `drop_grads` then removes the gradients of
those leaves. Called by `compiled.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core.tape import Entry, Tape
from ...core.tensor import Tensor


class LeafTracker(Tape):
    """A tape that notes which leaves are used, and logs nothing."""

    watches = False

    def clear(self) -> None:
        super().clear()
        self.leaves: dict[int, Tensor] = {}

    def __enter__(self) -> LeafTracker:
        super().__enter__()
        return self

    def write(self, entry: Entry, inputs: Sequence[Any], outputs: tuple[Tensor, ...]) -> None:
        for x in inputs:
            if isinstance(x, Tensor) and x._requires and x._edge is None:
                self.note_grad(x)

    def note_grad(self, tensor: Tensor) -> None:
        self.leaves[tensor.id] = tensor

    def rebind(self, tensor: Tensor, result: Tensor) -> None:
        """Ignore in-place changes."""

    def drop_grads(self) -> None:
        """Set the gradients of all leaves that were used to None."""
        for leaf in self.leaves.values():
            leaf.grad = None
