"""Capture: one eager run of a function becomes a recording.

Comes in: the log of the run (`log.py`), and the result of the function. Goes out: a `Recording`:
the program, the slots of its inputs, and the changes to tensors and their gradients.
Compiled functions (`use/undo.py`, `use/check.py`), optimizer updates (`use/update.py`) and eager
operations (`use/eager.py`) run functions under a `Capture` and call `finish`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...core.modes import unrecorded
from ...core.primitive import CONTRACTION, PRODUCT_SIZE, Primitive, accelerator
from ...core.tape import Entry, Value
from ...core.tensor import Tensor, refresh
from ...random import STATES
from ..guards.facts import overlapping, steps_of
from ..ir.program import Apply, Input, Program
from .derivative import Derivative, Obstacle, runs_user_rules, trace
from .log import CHANGED_HISTORY, NO_MEMORY, CaptureLog, base_of
from .recording import Recording
from .residence import placed
from .results import NotRepeatable, Template
from .returned import Returned, unrepeatable
from .slots import Argument, Captured, GradOf, Number, Slot

_CHANGED_FLAG = (
    "it sets requires_grad of an argument and returns something that can be differentiated; call "
    "requires_grad_() before, or on a clone()"
)


def _nothing(value: Any) -> None:
    return None


class Capture(CaptureLog):
    """The tape of one captured run, which becomes a recording."""

    def kernel(self, primitive: Primitive, arrays: Any, params: dict[str, Any]) -> Any:
        """Run products as native code: NumPy's own threads spin for 100 ms after a product, and
        take processors from the threads of this library.

        Small convolutions too: NumPy's are slower, and treat NaN at borders in another way.
        """
        native = primitive.kind == CONTRACTION
        if primitive.native_size == 1 and not primitive.has_families:
            native = all(x is None or x.size < PRODUCT_SIZE for x in arrays)
        if native and arrays[0].__class__ is np.ndarray:
            with unrecorded():
                out = accelerator().kernel(primitive, arrays, params)
            if out is not NotImplemented:
                return out
        return super().kernel(primitive, arrays, params)

    def finish(self, returned: Any, known: Callable[[Any], Any] = _nothing) -> Recording:
        """The recording of the run, with values numbered in order, so that runs can be compared.

        Called while the tape still records: views among the results may need a refresh. `known`
        returns the stand-in of an object that existed before. Raises `NotRepeatable`.
        """
        if self.obstacle is not None and (self.has_given_up or self.obstacle == NO_MEMORY):
            raise NotRepeatable(self.obstacle)
        for ending in self.endings.values():
            self.obstacle = self.obstacle or ending()
        tensors = Returned(self, returned)
        for leaf in tensors.returned:
            if leaf._view is not None:
                refresh(leaf)
        self.obstacle = self.obstacle or unrepeatable(self.arguments, tensors.returned, self.start)
        results = Template(tensors.of, known).of(returned)
        made = tensors.made
        grads = self._grads(made)
        self._check_histories()
        self._check_numbers()
        flags = self._flags()
        derivative = self._derivative(made)
        slots = self._final_slots()
        program, order = self._program(slots, made)
        # By the numbers of the program's values.
        places = {self.renamed[n].number: d for n, d in self.places.items() if n in self.renamed}
        states = [self.renamed[n].number for n in order if n in STATES]
        program, mixed = placed(program, places, states)
        touched = self._touched()
        return Recording(
            program=program,
            slots=tuple(slots[number] for number in order),
            twins=tuple(self.twins.values()),
            leaves=tuple(self.slot_of(leaf) for leaf, _ in touched),
            pattern=tuple(None if grad is None else type(grad) for _, grad in touched),
            grads=grads,
            flags=flags,
            results=results,
            decisions=tuple(self.decisions),
            derivative=derivative,
            obstacle=self._overlap(slots) or mixed or self.obstacle,
            used=frozenset(self.first_edges),
            once=self.once,
        )

    def slot_of(self, tensor: Tensor) -> Any:
        if tensor.id in self.roots.spans:
            self.obstacle = "it returns a part of memory that several of its tensors show"
        index = self.positions.get(tensor.id)
        return Captured(tensor) if index is None else Argument(index)

    def _final_slots(self) -> dict[int, Slot]:
        """The slots; the .grad that a leaf had before the run becomes a `GradOf` the leaf."""
        owners = {
            grad.id: self.slot_of(leaf)
            for leaf, grad in self.first_grads.values()
            if grad is not None
        }
        slots: dict[int, Slot] = {}
        for number, slot in self.slots.items():
            of_leaf = isinstance(slot, Captured) and slot.tensor.id in owners
            slots[number] = GradOf(owners[number]) if of_leaf else slot
        grads = [g.id for _, g in self.first_grads.values() if g is not None]
        if len(set(grads)) < len(grads):
            self.obstacle = self.obstacle or "two of the tensors that it uses share one .grad"
        if self._reads_shared_gradient():
            self.obstacle = self.obstacle or "it reads a .grad that shows another tensor's memory"
        return slots

    def _reads_shared_gradient(self) -> bool:
        """Whether the run read a leaf's earlier .grad through another tensor, or through its base.

        In a later call, that tensor does not lead to the leaf's .grad.
        """
        twins = {id(t._array) for t in self.twins.values()}
        return any(
            id(grad._array) in twins
            or (grad.id in self.positions and grad.id in self.slots)
            or (grad._view is not None and grad._view[0].id in self.slots)
            for _, grad in self.first_grads.values()
            if grad is not None
        )

    def _check_histories(self) -> None:
        """Refuse tensors from outside whose history has changed."""
        for tensor, edge, requires in self.first_edges.values():
            if tensor.id in self.first_flags and edge is None and tensor._edge is None:
                continue  # a leaf all the time
            if tensor._requires != requires or (requires and tensor._edge is not edge):
                self.obstacle = CHANGED_HISTORY

    def _check_numbers(self) -> None:
        """Refuse runtime numbers that Python has changed since they were read."""
        for slot, tensor in self.numbers.items():
            if slot.read() != tensor._array.item():
                self.obstacle = (
                    f"it changes {slot.key!r} of an optimizer in Python, which a replay does not "
                    "run; change it outside, after the call"
                )

    def _flags(self) -> tuple[tuple[Any, bool, bool], ...]:
        """Tensors from outside whose requires_grad was set, with the flag before and after."""
        flags = tuple(
            (self.slot_of(tensor), before, tensor._requires)
            for tensor, before in self.first_flags.values()
        )
        for slot, before, after in flags:
            # Results got their history with the current flags, which a replay sets at its end.
            if before != after and self.outputs:
                if isinstance(slot, Argument):
                    self.obstacle = _CHANGED_FLAG
                self.once = True
        return flags

    def _derivative(self, made: list[Value]) -> Derivative | None:
        """The backward pass of the results, if one of them can be differentiated."""
        if not self.outputs or self.obstacle is not None:
            return None
        if not self.traces_user_rules and runs_user_rules(self, self.outputs):
            # The effects of these rules are not known yet.
            self.runs_user_rules = True
            return None
        try:
            with self.around:
                return trace(self, self.outputs, self.output_indices, made)
        except Obstacle as obstacle:
            self.obstacle = str(obstacle)
            return None

    def hooked(self) -> list[tuple[str, Any]]:
        """The hooks on tensors from outside, which run in backward."""
        found: list[tuple[str, Any]] = []
        for tensor, _, _ in self.first_edges.values():
            extra = tensor._extra
            for group in (extra.hooks, extra.post_hooks) if extra is not None else ():
                found += [("hook", hook) for hook in group.values()]
        return found

    def _grads(self, made: list[Value]) -> tuple[tuple[Any, Any], ...]:
        effects: list[tuple[Any, Any]] = []
        for leaf, before in self.first_grads.values():
            after = leaf._grad
            if after is None:
                if before is not None:
                    effects.append((self.slot_of(leaf), None))
            elif before is None or after._array is not before._array:
                if after.id <= self.start:
                    effects.append((self.slot_of(leaf), self.slot_of(after)))
                else:
                    if after._requires and after._edge is not None:
                        self.obstacle = "it leaves a .grad that can be differentiated"
                    made.append(self.value_of(after))
                    effects.append((self.slot_of(leaf), len(made) - 1))
        return tuple(effects)

    def _program(self, slots: dict[int, Slot], made: list[Value]) -> tuple[Program, list[int]]:
        writes = []
        for number, slot in slots.items():
            tensor = self.externals[number]
            now = self._number_of(tensor)
            # A view is written through its base.
            if now != number and not isinstance(slot, Number) and tensor._view is None:
                assert now is not None
                writes.append((number, now))
        order: list[int] = []
        constants: list[int] = []
        seen: set[int] = set()

        def see(number: int) -> None:
            if number not in seen and number not in self.makers:
                seen.add(number)
                (constants if number in self.constants else order).append(number)

        for entry in (*self.entries, *self.wholes):
            assert entry.log is not None
            for x in entry.log[0]:
                if isinstance(x, Value):
                    see(x.number)
        for number, now in writes:
            see(number)
            see(now)
        for value in made:
            see(value.number)

        values = self.renamed

        def renamed(x: Any) -> Any:
            if not isinstance(x, Value):
                return x
            if x.number not in values:
                values[x.number] = Value(len(values), x.shape, x.dtype)
            return values[x.number]

        groups = overlapping([self.externals[n] for n in order])
        aliased = {t.id for group in groups if len(group) > 1 for t in group}
        inputs = tuple(
            Input(
                renamed(self.known[n]),
                steps_of(self.externals[n]._array),
                str(slots[n]),
                n in aliased,
            )
            for n in order
        )
        held = tuple((renamed(self.known[n]), self.constants[n]) for n in constants)

        def applied(entry: Entry) -> Apply:
            assert entry.log is not None
            return Apply(
                entry.primitive.plain or entry.primitive,
                entry.params,
                tuple(map(renamed, entry.log[0])),
                tuple(map(renamed, entry.log[1])),
                entry.location,
                self.regions.get(entry.number, 0),
                self.layers.of(entry.number),
            )

        instructions = tuple(map(applied, self.entries))
        return Program(
            inputs,
            held,
            instructions,
            tuple((renamed(self.known[n]), renamed(self.known[now])) for n, now in writes),
            tuple(map(renamed, made)),
            wholes=tuple(map(applied, (*self.wholes, *self._seen_vjps()))),
        ), order

    def _seen_vjps(self) -> Iterator[Entry]:
        """The rules of composites whose values are all in the program."""
        for entry in self.vjp_wholes:
            assert entry.log is not None
            if all(v.number in self.renamed for part in entry.log for v in part):
                yield entry

    def _overlap(self, slots: dict[int, Slot]) -> str | None:
        """Why tensors from outside that overlap, but are no views of each other, are refused."""
        tensors = [self.externals[n] for n, slot in slots.items() if not isinstance(slot, Number)]
        for group in overlapping(tensors):
            bases = {id(base_of(t)._array) for t in group}
            if len(bases) > 1 and any(self._number_of(t) != t.id for t in group):
                known = [t for t in group if isinstance(slots[t.id], Captured)]
                arrays = {id(t._array) for t in group}
                twins = [t for t in self.twins.values() if id(t._array) in arrays]
                known += [t for t in twins if t.id not in self.positions]
                self.sharing = [*(self.sharing or ()), *known]
        # A tensor on the same array as a member of a span must be a member too.
        members = self.roots.members()
        arrays = {id(t._array) for t in members}
        known_ids = {t.id for t in members} | self.positions.keys()
        beside = [t for t in self.twins.values() if id(t._array) in arrays]
        missing = [t for t in beside if t.id not in known_ids]
        if missing:
            self.sharing = [*(self.sharing or ()), *missing]
        if self.sharing is not None:
            return "it changes a tensor whose memory another tensor shares"
        return None
