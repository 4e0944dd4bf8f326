"""The log of a capture: a tape that records one eager run of a function.

Comes in: every operation, in-place change, gradient and read of the run, from `core/` and
`autograd/`. Goes out: entries, values, and a `Slot` for each tensor from outside. It logs
primitives only: composites are inlined, backward passes are logged too, and an in-place change
gives the tensor a new value. It refuses what a replay cannot repeat. `Capture` in `capture.py`
turns the log into a recording.

The value of a tensor is looked up by its array object first, so all tensors on the same array, such
as a detached one, have the same value.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self

import numpy as np

from ...core import source, storage, xp
from ...core.arrays import constant_of, is_gpu_class, why_unusual
from ...core.device import Device, device_of
from ...core.modes import GRAD, STATE, numbers
from ...core.storage import owner_of
from ...core.tape import Entry, Tape, Value
from ...core.tensor import Tensor, wrap
from ..guards.layers import Layers
from .decisions import Decision, decision_of
from .derivative import output_key
from .roots import Roots
from .slots import Argument, Captured, Cotangent, Number, Slot
from .wholes import vjp_whole

CHANGED_HISTORY = (
    "it leaves a tensor from outside with a history of its own, as a change in place does that can "
    "be differentiated; write detached values there"
)


NO_MEMORY = "it works on sparse tensors, for which programs are not compiled"


class CaptureError(RuntimeError):
    """A function did something that a replay cannot repeat."""


class CaptureLog(Tape):
    """The tape of one captured run: what happened, and where every value came from."""

    captures = True
    watches = False
    #: whether results that are transposed or broadcast views stay views
    keeps_layouts = True

    def __init__(
        self,
        arguments: Sequence[Tensor],
        strict: bool = True,
        sharing: Sequence[Tensor] | None = None,
    ) -> None:
        """`sharing`: captured tensors that alias others in memory that is written to; None if no
        tensors, not even arguments, are known to do so."""
        super().__init__()
        #: whether `refuse` raises at once
        self.strict = strict
        #: groups of processes with which the run communicates; a callback before each collective
        self.groups: dict[Any, None] = {}
        self.on_collective: Callable[[], tuple[str, int]] | None = None
        #: arguments that are views, and tensors that overlap each other
        self.roots = Roots(arguments, sharing)
        #: captured tensors that overlap others in memory that was written to
        self.sharing: list[Tensor] | None = None
        #: tensors with a higher id are made by the captured function
        self.start = next(numbers)
        self.arguments = list(arguments)
        self.positions = {t.id: i for i, t in reversed(list(enumerate(arguments)))}
        self.slots: dict[int, Slot] = {}
        self.constants: dict[int, Any] = {}
        self.numbers: dict[Number, Tensor] = {}
        self.number_slots: dict[int, Number] = {}
        self.decisions: list[Decision] = []
        self.decided: set[tuple[Number, Callable[[Any], Any]]] = set()
        #: by id() of an array: the array, the number of its value, and the number of the latest
        #: change of any memory when that was noted
        self.arrays: dict[int, tuple[weakref.ref[Any], int, int]] = {}
        #: by number of a value: its device, if it is not in host memory
        self.places: dict[int, Device] = {}
        #: by tensor id: tensors from outside, with their .grad before the run
        self.first_grads: dict[int, tuple[Tensor, Tensor | None]] = {}
        #: ids of those whose .grad the function asked for
        self.asked_grads: set[int] = set()
        self.makers: dict[int, Entry] = {}
        #: composites that are differentiated whole; `entries` has their parts
        self.wholes: list[Entry] = []
        #: the gradient rules of composites, whole
        self.vjp_wholes: list[Entry] = []
        #: how many reruns of checkpointed functions have begun; the numbers of those running now
        self.repeats = 0
        self.repeating: list[int] = []
        #: by number of an entry: the rerun that it belongs to
        self.regions: dict[int, int] = {}
        #: by tensor id: further tensors from outside on arrays that have a value already
        self.twins: dict[int, Tensor] = {}
        #: by tensor id: gradients of results, while the backward pass of the function is recorded
        self.cotangents: dict[int, Cotangent] = {}
        #: by (entry number, output index): the tensor from outside with this history
        self.histories: dict[tuple[int, int], Tensor] = {}
        #: by tensor id: tensors from outside, with their history and requires_grad before the run
        self.first_edges: dict[int, tuple[Tensor, Any, bool]] = {}
        #: by tensor id: tensors from outside whose requires_grad was set, with the flag before
        self.first_flags: dict[int, tuple[Tensor, bool]] = {}
        #: results that can be differentiated, and their indices among all results
        self.outputs: list[Tensor] = []
        self.output_indices: list[int] = []
        self.born: list[weakref.ref[Tensor]] = []
        #: by number of a value here: the value in the program of the recording
        self.renamed: dict[int, Value] = {}
        #: the line to note for operations, instead of the line that calls them
        self.location: source.Location | None = None
        #: the modules that run; it stays empty unless an `Observer` fills it
        self.layers = Layers()
        #: the `Observer` that watches which code runs, if there is one
        self.observer: Any = None
        self.obstacle: str | None = None
        self.has_given_up = False
        self.once = False
        #: called at the end: why the new state of Python objects cannot be repeated, or None
        self.endings: dict[int, Callable[[], str | None]] = {}
        #: whether the run did something that later runs will not do, so it is not compared
        self.is_one_off = False
        for tensor in arguments:
            self._check(tensor)
            self._note_history(tensor)
            self._keep_grad(tensor)
        #: whether the user's gradient rules and hooks may run after the function has returned
        self.traces_user_rules = True
        self.runs_user_rules = False
        #: a context for the user's rules that run after the function has returned
        self.around: AbstractContextManager[Any] = nullcontext()

    def __enter__(self) -> Self:
        self.roots.take_off()
        self.start_recording()
        for tensor, shown in self.roots.put_on_spans():
            number = self.value_of(shown).number
            self._note_history(tensor)
            self.values[tensor.id] = number
            self._hold(tensor._array, number)
        return self

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        self.restore_views()

    def restore_views(self) -> None:
        """Make arguments views of their bases again."""
        self.roots.restore(self.born)

    def will_communicate(self, group: Any) -> tuple[str, int] | None:
        self.groups[group] = None
        return None if self.on_collective is None else self.on_collective()

    def will_write(self, tensor: Tensor) -> None:
        super().will_write(tensor)
        self.roots.check_writable(tensor)
        root = tensor if tensor._view is None else tensor._view[0]
        if xp.overlaps_itself(root._array):
            self.refuse(
                "it writes to a part of a tensor whose elements share memory, at "
                f"{source.describe(source.here())}; write to the tensor that was expanded"
            )

    def excuses(self, array: Any, number: float) -> bool:
        if not super().excuses(array, number):
            return False
        self._give_up(
            "backward needs what the function changes through `.data`, which does not count as a "
            "change; make the change before the forward pass, or after backward"
        )
        return True

    def will_rebind(self, tensor: Tensor, value: Tensor) -> None:
        if STATE.mode & GRAD and self.roots.share_history(tensor, value):
            self._give_up(CHANGED_HISTORY)

    def will_relayout(self, tensor: Tensor) -> None:
        if self.roots.holds(tensor):
            self._give_up("it rearranges an argument in place")

    def unobserved(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        # Observing takes twice as long as the rest of a recording.
        paused = self.observer is not None and self.observer.pause()
        try:
            return function(*args, **kwargs)
        finally:
            if paused:
                self.observer.resume()

    def refuse_offset(self, tensor: Tensor) -> None:
        if self.roots.holds(tensor):
            self._give_up("it asks where an argument begins in memory, by storage_offset()")

    def refuse_sparse(self, what: str) -> None:
        self._give_up(
            f"{what} of sparse tensors, at {source.describe(source.here())}: how many elements "
            "they have depends on data. Use sparse=False, or to_dense() outside"
        )

    def _give_up(self, why: str) -> None:
        """Restore views, so that the run goes on like eager code, and refuse the recording."""
        self.restore_views()
        self.refuse(why)
        self.has_given_up = True

    def refuse(self, why: str) -> None:
        """Note why this run cannot be replayed; raise if `strict`."""
        if self.strict:
            raise CaptureError(why)
        self.obstacle = self.obstacle or why

    # -- values ------------------------------------------------------------------------------

    def value_of(self, tensor: Tensor) -> Value:
        if tensor.id <= self.start and tensor.id not in self.first_edges:
            self._note_history(tensor)
        number = self._number_of(tensor)
        if number is not None and tensor.id < self.start and tensor.id not in self.externals:
            self.twins[tensor.id] = tensor
            self._keep_grad(tensor)
        if number is None:
            number = tensor.id
            self.known[number] = Value(number, tensor._array.shape, tensor._array.dtype)
            self.externals[number] = tensor
            self._enter(tensor)
        self._hold(tensor._array, number)
        return self.known[number]

    def _note_history(self, tensor: Tensor) -> None:
        edge = tensor._edge if tensor._requires else None
        self.first_edges[tensor.id] = (tensor, edge, tensor._requires)
        if edge is not None:
            key = output_key(edge)
            self.histories.setdefault(key, tensor)
            if key[0] > self.start:
                self.obstacle = CHANGED_HISTORY

    def _number_of(self, tensor: Tensor) -> int | None:
        found = self.arrays.get(id(tensor._array))
        if found is not None and found[0]() is tensor._array:
            return found[1]
        number = self.values.get(tensor.id, tensor.id)
        return number if number in self.known else None

    def _hold(self, array: Any, number: int) -> None:
        if is_gpu_class(array.__class__):
            self.places[number] = device_of(array)
        self.arrays[id(array)] = (weakref.ref(array), number, storage.latest)

    def check_fresh(self, tensor: Tensor) -> None:
        """Refuse to read memory that was changed through another array since its value was noted.

        Overlaps of tensors from outside are found at the end, by their address ranges.
        """
        if tensor.id <= self.start:
            return
        array = tensor._array
        found = self.arrays.get(id(array))
        if tensor._view is None and found is not None and found[0]() is array:
            change = storage.changed_since(array, found[2])
            if change is not None:
                self.obstacle = (
                    "it reads a detached part of a tensor that was changed in place, at "
                    f"{source.describe(change.location)}"
                )

    def _enter(self, tensor: Tensor) -> None:
        """Note where the value of a tensor comes from that no entry made."""
        number = tensor.id
        if number in self.positions:
            self.slots[number] = Argument(self.positions[number])
        elif number in self.roots.spans:
            self.slots[number] = self.roots.spans[number]
        elif number in self.number_slots:
            self.slots[number] = self.number_slots[number]
        elif number in self.cotangents:
            self.slots[number] = self.cotangents[number]
        elif number > self.start:
            # The memory may be changed in place later on, so the constant is a copy.
            self.born.append(weakref.ref(tensor))
            self._check(tensor)
            if self.obstacle != NO_MEMORY:
                self.constants[number] = constant_of(tensor._array)
        else:
            self.slots[number] = Captured(tensor)
            self._check(tensor)
            self._keep_grad(tensor)

    def _check(self, tensor: Tensor) -> None:
        array = tensor._array
        if not isinstance(array, np.ndarray) and not is_gpu_class(array.__class__):
            self.obstacle = NO_MEMORY
        else:
            self.obstacle = why_unusual(array) or self.obstacle

    def enclose(self, entry: Entry, inputs: Sequence[Any], outputs: tuple[Tensor, ...]) -> None:
        read = tuple(self.value_of(x) if isinstance(x, Tensor) else x for x in inputs)
        entry.log = (read, tuple(map(self.value_of, outputs)))
        self._note_whole(entry, self.wholes)

    def enclose_vjp(self, entry: Entry, g: Any, edges: Any, saved: Any, results: Any) -> None:
        whole = vjp_whole(entry, g, edges, saved, results, self._known)
        if whole is not None:
            self._note_whole(whole, self.vjp_wholes)

    def _note_whole(self, entry: Entry, wholes: list[Entry]) -> None:
        if self.repeating:
            self.regions[entry.number] = self.repeating[-1]
        self.layers.wrote(entry.number)
        wholes.append(entry)

    def _known(self, tensor: Tensor) -> Value | None:
        number = self._number_of(tensor)
        return None if number is None else self.known[number]

    def write(self, entry: Entry, inputs: Sequence[Any], outputs: tuple[Tensor, ...]) -> None:
        for x in inputs:
            # An in-place operation has the same array as input and output.
            if isinstance(x, Tensor) and all(x._array is not t._array for t in outputs):
                self.check_fresh(x)
        read = tuple(self.value_of(x) if isinstance(x, Tensor) else x for x in inputs)
        p = entry.primitive
        if (p.expression,) == p.inputs[:1] and outputs[0]._array is inputs[0]._array:
            self.values[outputs[0].id] = read[0].number  # another tensor of the same value
            self.born.append(weakref.ref(outputs[0]))
            entry.log = (read, read)
            return
        if self.repeating:
            self.regions[entry.number] = self.repeating[-1]
        made = tuple(Value(t.id, t._array.shape, t._array.dtype) for t in outputs)
        for value, tensor in zip(made, outputs, strict=True):
            self.known[value.number] = value
            self.makers[value.number] = entry
            self._hold(tensor._array, value.number)
        self.born += map(weakref.ref, outputs)
        entry.log = (read, made)
        entry.location = self.location or entry.location
        self.layers.wrote(entry.number)
        self.entries.append(entry)

    def repeat(self, begins: bool) -> None:
        if begins:
            self.repeats += 1
            self.repeating.append(self.repeats)
        else:
            self.repeating.pop()

    def rebind(self, tensor: Tensor, result: Tensor) -> None:
        self.value_of(tensor)
        if tensor.id <= self.start and base_of(tensor).id in self.positions:
            self.twins[tensor.id] = tensor  # its value comes from its base, an argument
        apart = tensor._array is not result._array
        if apart and tensor._view is None and self._shares_unseen_memory(tensor._array):
            self.refuse(
                "a compiled function changed a tensor in place that is a detached part of another "
                f"one, at {source.describe(source.here())}; change the part itself, or the whole"
            )
        number = self.value_of(result).number
        self.values[tensor.id] = number
        self._hold(tensor._array, number)

    def _shares_unseen_memory(self, array: Any) -> bool:
        """Whether the memory belongs to another array that also has a value here."""
        owner = owner_of(array)
        if owner is array:
            return False
        found = self.arrays.get(id(owner))
        return found is not None and found[0]() is owner

    def visit(self, entry: Entry) -> None:
        if entry.number < self.start:
            self.obstacle = (
                "it runs backward through operations that were recorded outside of it; compute "
                "there what it needs, or detach it"
            )
        self.layers.visits(entry.number)

    def note_grad(self, tensor: Tensor) -> None:
        self.asked_grads.add(tensor.id)
        self._keep_grad(tensor)

    def note_flag(self, tensor: Tensor) -> None:
        if tensor.id <= self.start:
            if tensor.id not in self.first_edges:
                self._note_history(tensor)
            self.first_flags.setdefault(tensor.id, (tensor, tensor._requires))

    def note_replaced(self, tensor: Tensor, how: str) -> None:
        if tensor.id <= self.start:
            self.refuse(
                f"it gives a tensor from outside other memory, by {how} at "
                f"{source.describe(source.here())}; use copy_() to change what the memory holds"
            )

    def _keep_grad(self, tensor: Tensor) -> None:
        if tensor.id <= self.start and tensor.id not in self.first_grads:
            self.first_grads[tensor.id] = (tensor, tensor._grad)

    def _touched(self) -> list[tuple[Tensor, Tensor | None]]:
        """Tensors from outside whose .grad was read or changed, with the .grad before the run."""
        return [
            (leaf, before)
            for leaf, before in self.first_grads.values()
            if leaf.id in self.asked_grads
            or leaf._grad is not before
            or (before is not None and self._number_of(before) is not None)
        ]

    def drop_grads(self) -> None:
        """Set every .grad that was read or changed to None."""
        for leaf, _ in self._touched():
            self.asked_grads.add(leaf.id)
            leaf._grad = None

    # -- reading -----------------------------------------------------------------------------

    def number(self, slot: Number, value: Any) -> Tensor:
        """The tensor that stands for a runtime number."""
        tensor = self.numbers.get(slot)
        if tensor is None:
            tensor = self.numbers[slot] = wrap(np.asarray(value, np.float64))
            self.number_slots[tensor.id] = slot
        return tensor

    def decide(self, number: Number, look: Callable[[Any], Any]) -> None:
        """Note what `look` sees of an option: a replay must see the same."""
        if (number, look) not in self.decided:
            self.decided.add((number, look))
            self.decisions.append(Decision((number,), (), look(number.read()), look))

    def refuse_read(self, tensor: Tensor, what: str) -> None:
        number = self._number_of(tensor)
        if number is None and tensor.id > self.start and tensor.id not in self.number_slots:
            return
        if number is not None and number in self.constants:
            return
        decision = decision_of(self, tensor)
        if decision is not None:
            self.decisions.append(decision)
            return
        message = (
            f"{what} inside a compiled function, at {source.describe(source.here())}: when the "
            "function is replayed no Python runs, so the value would stay that of the recording."
        )
        if " (" not in what:  # otherwise `what` names its own alternative in brackets
            message += (
                " Return the tensor and read it outside, or use tapegrad.where() for a choice that "
                "depends on it."
            )
        self.refuse(message)


def base_of(tensor: Tensor) -> Tensor:
    """The base of a view; the tensor itself if it is no view."""
    return tensor if tensor._view is None else tensor._view[0]
