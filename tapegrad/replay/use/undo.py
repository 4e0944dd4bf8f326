"""Undo: a recorded call is undone, so that its replay can replace it.

Native code rounds differently from eager operations. If recorded calls left eager values behind, a
training that is interrupted and resumed would differ from one that was replayed throughout. So
what a recorded call changed is restored, and the recording is replayed in the same call.
`UndoableCapture` keeps the old state; `Undo` restores it. Called by `compiled.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core import storage
from ...core.storage import owner_of
from ...core.tensor import Tensor
from ..trace.capture import Capture
from ..trace.results import kept_elsewhere, tensors_in
from .replay import Replay
from .snapshot import Snapshot


class UndoableCapture(Capture):
    """A capture that keeps the old contents of memory from outside."""

    def __init__(
        self,
        arguments: Sequence[Tensor],
        strict: bool = True,
        sharing: Sequence[Tensor] | None = None,
    ) -> None:
        super().__init__(arguments, strict, sharing)
        #: (tensor, array, copy of its old contents) for each write to memory from outside, in order
        self.overwritten: list[tuple[Tensor, Any, Any]] = []
        self._kept: set[tuple[int, int]] = set()  # ids of their tensors and arrays
        #: ids of the arrays that own memory from outside
        self.owners: set[int] = set()

    def _enter(self, tensor: Tensor) -> None:
        super()._enter(tensor)
        self.owners.add(id(owner_of(tensor._array)))

    def will_write(self, tensor: Tensor) -> None:
        super().will_write(tensor)
        root = tensor if tensor._view is None else tensor._view[0]
        array = tensor._array
        if (tensor.id, id(array)) in self._kept:
            return  # the first contents count
        if root.id <= self.start or id(owner_of(array)) in self.owners:
            self._kept.add((tensor.id, id(array)))
            self.overwritten.append((tensor, array, array.copy()))

    def undo(self) -> Undo:
        """The state to restore; it does not keep this capture alive."""
        return Undo(self)


class Undo:
    """What a captured run changed, with the state before it."""

    def __init__(self, capture: UndoableCapture) -> None:
        self.overwritten = capture.overwritten
        self.number = storage.latest  # the number of the latest change of memory
        self.born = capture.born
        self.grads = list(capture.first_grads.values())
        self.flags = list(capture.first_flags.values())

    def back(
        self, replay: Replay, tensors: list[Tensor], result: Any, witness: Any
    ) -> Snapshot | None:
        """Restore the state before the run; returns the state after it, None if it is kept."""
        if not self._can_go_back(result, witness):
            return None
        if replay.executable is None:
            replay.build()
        if any(storage.changed_since(array, self.number) for _, array, _ in self.overwritten):
            return None  # by another thread
        after = Snapshot(
            [array for _, array, _ in self.overwritten],
            [leaf for leaf, _ in self.grads],
            [tensor for tensor, _ in self.flags],
        )
        memory = [(array, copy) for _, array, copy in self.overwritten]
        Snapshot.of(memory, self.grads, self.flags).restore()
        if replay.refusal(tensors) is not None:
            after.restore()
            return None
        return after

    def forth(self, replay: Replay, tensors: list[Tensor], call: Any) -> Any:
        """Replay, after going back."""
        repeated, _ = replay.run(tensors, call)
        replay.count -= 1  # the call counts as recorded
        return repeated

    def _can_go_back(self, result: Any, witness: Any) -> bool:
        """Whether only the result and `.grad` refer to tensors that the run has made.

        New state of an optimizer, for example, cannot be undone: no replay makes it.
        """
        if any(tensor._array is not array for tensor, array, _ in self.overwritten):
            return False
        born = {id(tensor) for tensor in (reference() for reference in self.born)}
        if kept_elsewhere(result, witness, born):
            return False
        seen = {id(leaf) for leaf in tensors_in(result)} | {
            id(leaf._grad) for leaf, _ in self.grads
        }
        return born <= seen | {id(None)}
