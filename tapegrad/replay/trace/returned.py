"""Returned: the stand-ins, in a recording, of the tensors that a captured function returns.

Comes in: the tensors in the result of a captured call. Goes out: for each of them a value that the
program makes, a tensor from outside or an alias of one, a view of another result, or a gradient.
Results that alias in eager code alias in a replay too. Called by `Capture.finish`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...core.arrays import may_share
from ...core.modes import OVERRIDDEN, STATE, numbers
from ...core.overriding import overrides
from ...core.tape import FREED, Entry, Output, Value, new_entry
from ...core.tensor import Tensor
from ..guards.references import instance_dict
from .recording import AliasResult, Given, GradResult, Made, Part, Plain
from .results import tensors_in
from .slots import Argument, Captured

if TYPE_CHECKING:
    from .capture import Capture


class Returned:
    """The results of one captured run."""

    def __init__(self, capture: Capture, returned: Any) -> None:
        self.capture = capture
        self.returned = list(tensors_in(returned))
        #: the values that the program returns
        self.made: list[Value] = []
        #: by id() of a tensor: its stand-in
        self._results: dict[int, Any] = {}
        #: by id() of an array: its index in `made`
        self._indices: dict[int, int] = {}

    def of(self, leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return Plain(leaf)
        found = self._results.get(id(leaf))
        if found is None:
            found = self._results[id(leaf)] = self._new_result(leaf)
        return found

    def _new_result(self, leaf: Tensor) -> Any:
        for owner, before in self.capture.first_grads.values():
            if owner._grad is leaf:
                return GradResult(self.capture.slot_of(owner))
            if before is leaf:
                self.capture.obstacle = "it stores or returns a .grad that it replaces"
        if leaf.id <= self.capture.start:
            return Given(self.capture.slot_of(leaf), ())
        if leaf._view is not None:
            base, chain, _ = leaf._view
            base, chain = self.capture.roots.member_of(base, chain)
            if base.id <= self.capture.start:
                return Given(self.capture.slot_of(base), chain)
            if (
                self._outside(base) is not None
                or (self.capture.keeps_layouts and _is_rearranged(leaf, base))
                or any(self._shows_the_same(leaf, base, other) for other in self.returned)
            ):
                return Part(self.of(base), chain, leaf._requires)
        shared = self._outside(leaf)
        if shared is not None and not leaf._requires:
            return AliasResult(self.capture.slot_of(shared))
        spent = output = None
        arguments: tuple[Argument, ...] = ()
        self.capture.check_fresh(leaf)
        index = self._indices.setdefault(id(leaf._array), len(self.made))
        if index == len(self.made):
            self.made.append(self.capture.value_of(leaf))
        if leaf._requires and leaf._edge is not None:
            spent, arguments = self._spent(leaf)
            if spent is None:
                output = len(self.capture.outputs)
                self.capture.outputs.append(leaf)
                self.capture.output_indices.append(index)
        elif leaf._requires:
            self.capture.obstacle = "it returns a leaf that it has made itself"
        order = _order_of(leaf._array) if self.capture.keeps_layouts else ()
        return Made(index, spent, output, arguments, order)

    def _spent(self, tensor: Tensor) -> tuple[Entry | None, tuple[Argument, ...]]:
        """If a backward pass has used up the history of a tensor: a stub entry that leads to its
        captured leaves, and the arguments to which the history leads."""
        used_up: Entry | None = None
        leaves: dict[int, Tensor] = {}
        stack, seen = [tensor._edge], set()
        while stack:
            edge = stack.pop()
            if isinstance(edge, Tensor) and edge.id <= self.capture.start:
                leaves[edge.id] = edge
            entry = edge.entry if isinstance(edge, Output) else edge
            if not isinstance(entry, Entry) or entry.number in seen:
                continue
            seen.add(entry.number)
            if entry.saved is FREED:
                used_up = used_up or entry
                if entry.number <= self.capture.start:
                    self.capture.obstacle = "its result has a history that was used up before"
            stack += entry.edges
        if used_up is None:
            return None, ()
        slots = [self.capture.slot_of(leaf) for leaf in leaves.values()]
        edges = tuple(slot.tensor for slot in slots if isinstance(slot, Captured))
        stub = new_entry(
            used_up.primitive, used_up.params, edges, FREED, next(numbers), used_up.location
        )
        return stub, tuple(slot for slot in slots if isinstance(slot, Argument))

    def _outside(self, tensor: Tensor) -> Tensor | None:
        """A tensor from outside on the same array as a tensor that was made inside."""
        capture = self.capture
        known = (*capture.externals.values(), *capture.twins.values(), *capture.roots.members())
        for other in (*known, *capture.arguments):
            if other._array is tensor._array and other.id <= capture.start:
                if other.id not in capture.positions:
                    # As a twin it is guarded: whether arguments alias it decides which one is used.
                    capture.twins[other.id] = other
                return other
        return None

    def _shows_the_same(self, part: Tensor, base: Tensor, other: Tensor) -> bool:
        """Whether another result on the same base overlaps a view among the results."""
        whole = other if other._view is None else other._view[0]
        return (
            other is not part
            and whole._array is base._array
            and may_share(part._array, other._array)
        )


def unrepeatable(arguments: Sequence[Tensor], returned: list[Tensor], start: int) -> str | None:
    """Why arguments or results cannot be repeated: because of a tensor's class or attributes.

    Signatures do not contain attributes of plain tensors, and results neither attributes nor class.
    """
    if STATE.mode & OVERRIDDEN:
        return "it is called inside a TorchFunctionMode"
    for tensor in (*arguments, *returned):
        kind = type(tensor)
        if kind is not Tensor and (overrides(tensor) or tensor.is_sparse):
            return f"it takes or returns a {kind.__name__}, a class derived from Tensor"
        new = kind is Tensor and (tensor.id > start or any(tensor is t for t in arguments))
        names = list(instance_dict(tensor) or ()) if new else []
        if names:
            return f"it takes or returns a tensor with attributes ({', '.join(names)})"
    return None


def _order_of(array: Any) -> tuple[int, ...]:
    """The dimensions of an array in memory order; () if it is contiguous or has gaps."""
    if array.flags.c_contiguous:
        return ()
    order = sorted(range(array.ndim), key=lambda d: -array.strides[d])
    return tuple(order) if array.transpose(order).flags.c_contiguous else ()


def _is_rearranged(view: Tensor, base: Tensor) -> bool:
    """Whether a view shows a whole tensor in another order, or repeats elements."""
    array = view._array
    repeats = any(n > 1 and s == 0 for n, s in zip(array.shape, array.strides, strict=True))
    return repeats or (not array.flags.c_contiguous and bool(base._array.size <= array.size))
