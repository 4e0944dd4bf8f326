"""Replay: one confirmed recording, run on current memory.

Comes in: a recording that two runs agreed on, and the tensors of a call. Goes out: the result of
the function. A `Replay` checks what the recording assumed (`refusal`), compiles it at its first
use, finds the memory of its inputs in each call, and leaves tensors as the recorded run left them:
`.grad`, versions, results. Called by `compiled.py`, `check.py`, `undo.py` and `update.py`.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter, is_
from typing import Any

import numpy as np

from ...core import storage
from ...core.arrays import allocator, bounds, is_writable, layout_of, may_share, memory_of
from ...core.inplace import through
from ...core.modes import numbers, set_grad_enabled
from ...core.tape import Entry, new_entry
from ...core.tensor import Tensor, own, wrap
from ..guards.conjunction import Conjunction
from ..guards.facts import overlaps
from ..ir.target import Executable, Target
from ..trace.derivative import split
from ..trace.recording import (
    AliasResult,
    Found,
    FromArguments,
    Given,
    GradResult,
    Made,
    Part,
    Plain,
    Recording,
)
from ..trace.results import leaves, rebuilt
from ..trace.slots import Captured, GradOf, Number, Span
from .compiled_entry import CompiledVjp
from .targets import DEFAULT

_array_of = attrgetter("_array")
_requires_of = attrgetter("_requires")
_extra_of = attrgetter("_extra")
_references = sys.getrefcount
_weak_references = weakref.getweakrefcount


class DataError(Exception):
    """A replay found data that the eager function refuses; no memory was changed."""

    #: the exception of a callback, if one raised: a signal handler may have raised it instead
    raised: Exception | None = None


class Replay:
    """A confirmed recording, and the conditions under which it can be replayed."""

    def __init__(
        self, recording: Recording, name: str = "an update", target: Target = DEFAULT
    ) -> None:
        self.recording = recording
        self.target = target
        self.name = name.rpartition(".")[2]
        self.executable: Executable | None = None
        self.calls_back = False  # whether parts of the program run in NumPy
        self.count = 0
        #: the groups of its collectives; as bits, the recordings that it agrees with
        #: (`agreement.py`)
        applied = [x for x in recording.program.applied() if x.primitive.collective]
        self.groups = list(dict.fromkeys(x.params["group"] for x in applied))
        self.recorded_in = 0
        self.program, self.slots = recording.program, recording.slots
        #: the vjp of calls; None if no result can be differentiated
        self.vjp: CompiledVjp | None = None
        derivative = recording.derivative
        if derivative is not None:
            halves = split(self.program, self.slots, derivative)
            self.program, self.slots = halves.forward, halves.forward_slots
            self.vjp = CompiledVjp(self.name, halves, derivative, target)
        slots = self.slots
        self.captured = [s.tensor for s in slots if isinstance(s, Captured)]
        entered: Any = derivative.inputs if derivative is not None else ()
        self.entered = [s.tensor for s in entered if isinstance(s, Captured)]
        self.leaves = [t._edge is None for t in self.entered]
        self.spans = [s for s in slots if isinstance(s, Span)]
        parts = [m.tensor for s in self.spans for m in s.members if isinstance(m, Captured)]
        #: captured tensors that overlap others, if there are spans
        self.sharing_memory = parts if self.spans else None
        #: captured tensors, then others on the same arrays: all must keep their arrays
        others = {t.id: t for t in (*recording.twins, *self.entered, *parts)}
        self.tensors = [*self.captured, *(t for i, t in others.items() if not self._captures(i))]
        self.arrays = [t._array for t in self.tensors]
        self.owners = {id(storage.owner_of(a)) for a in self.arrays}
        self.grads_read = [s for s in slots if isinstance(s, GradOf)]
        self.numbers = [s for s in slots if isinstance(s, Number)]
        deciding = [n for d in recording.decisions for n in d.numbers]
        self.read_numbers = list(dict.fromkeys([*self.numbers, *deciding]))
        #: the last values of `read_numbers`, and a test whether they are still the same objects
        self.seen: list[Any] | None = None
        self._same_numbers = _same_objects(self.read_numbers)
        self.number_cells = np.zeros(max(len(self.numbers), 1))
        #: gradients that the program makes: leaf, index among the results, allocating function,
        #: and the class, shape, dtype and strides of their arrays
        self.made_grads: list[Any] = []
        #: other gradients that it changes: leaf, and None or the slot of another tensor
        self.other_grads = [pair for pair in recording.grads if not isinstance(pair[1], int)]
        #: by index, the other results: index, allocating function, shape, dtype
        self.made_results = {
            i: (i, allocator(self.program.device_of(v)), v.shape, v.dtype)
            for i, v in enumerate(self.program.results)
        }
        for leaf, at in recording.grads:
            if isinstance(at, int):
                _, empty, shape, dtype = self.made_results.pop(at)
                like = empty(shape, dtype)
                kind, strides = type(like), like.strides
                self.made_grads.append((leaf, at, empty, kind, shape, dtype, strides))
        self.fresh = list(self.made_results.values())
        #: results that are not contiguous: index, and the order of dimensions in memory
        self.relaid_results = list(
            {(x.index, x.order): None for x in _made_in(recording) if x.order}
        )
        position = {given.value.number: i for i, given in enumerate(self.program.inputs)}
        self.written: list[Any] = [slots[position[t.number]] for t, _ in self.program.writes]
        self.written_elsewhere = [s for s in self.written if not isinstance(s, Captured)]
        self.confirm(recording)

    def _captures(self, tensor_id: int) -> bool:
        return any(t.id == tensor_id for t in self.captured)

    def confirm(self, recording: Recording) -> None:
        """Take over flags, hooks and aliasing from another recording that agrees with this one."""
        before = {s.tensor.id: was for s, was, _ in recording.flags if isinstance(s, Captured)}
        self.requires = [before.get(t.id, t._requires) for t in self.tensors]
        self.extras = [t._extra for t in self.tensors]
        self.hooks = [_hooks_of(t) for t in self.tensors]
        #: which captured tensors share memory
        self.sharing = overlaps(self.arrays)
        self.memories = _memories(self.arrays)
        self._test: Callable[[], bool] | None = None

    def take(self, earlier: Replay) -> None:
        """Reuse the compiled code of an earlier recording that is the same."""
        if earlier.executable is not None and earlier.recording.difference(self.recording) is None:
            self._bind(earlier.executable, self.arrays)
            self.executable, self.vjp = earlier.executable, earlier.vjp

    # -- what must hold ----------------------------------------------------------------------

    def refusal(self, tensors: list[Tensor]) -> str | None:
        """Why this recording does not fit now; None if it does."""
        recording = self.recording
        if self._test is None or not self._test():
            refusal = self._compare_captured()
            if refusal is not None:
                return refusal
        for slot, before, _ in recording.flags:
            if slot.find(tensors)._requires != before:
                return "requires_grad of a tensor that the function sets was another one before"
        if self.read_numbers and not self._numbers_hold():
            return "a number that decides what is computed was changed"
        if self.spans and not all(span.fits(tensors) for span in self.spans):
            return "tensors that share memory lie otherwise than they did"
        for slot in self.written_elsewhere:
            if not _writable(slot.find(tensors)):
                return "memory that it writes to is read-only"
        return self._refused_gradients(tensors) if self.grads_read else None

    def pattern_test(self, pattern: tuple[Any, ...]) -> Callable[[list[Tensor]], bool]:
        """A test whether the `.grad` of each leaf has the given class, or is None."""
        tests = Conjunction()
        for leaf, kind in zip(self.recording.leaves, pattern, strict=True):
            captured = isinstance(leaf, Captured)
            found = tests.name(leaf.tensor) if captured else f"tensors[{leaf.index}]"
            tests.add_is(f"{found}._grad" if kind is None else f"{found}._grad.__class__", kind)
        return tests.function("tensors")

    def _compare_captured(self) -> str | None:
        """Why captured tensors do not fit; None if they do, and then writes the quick test."""
        written = [s.tensor for s in self.written if isinstance(s, Captured)]
        for tensor in written:
            own(tensor)  # lent memory is copied before it is written to
        if not all(map(is_, map(_array_of, self.tensors), self.arrays)) and not self._moved():
            return "a captured tensor has another shape, dtype or layout"
        if list(map(_requires_of, self.tensors)) != self.requires:
            return "requires_grad of a captured tensor was changed"
        if not all(map(is_, map(_extra_of, self.tensors), self.extras)) and not self._hooks_hold():
            return "a hook on a captured tensor was added or removed"
        if [t._edge is None for t in self.entered] != self.leaves:
            return "a captured tensor that was a leaf is not, or the other way round"
        if not all(map(_writable, written)):
            return "memory that it writes to is read-only"
        self._test = self._written_out()
        return None

    def _written_out(self) -> Callable[[], bool]:
        """The tests of captured tensors as one function.

        It does not test whether arrays are writable: `_compare_captured` does when they are new.
        """
        tests = Conjunction()
        for tensor, array, requires in zip(self.tensors, self.arrays, self.requires, strict=True):
            name = tests.name(tensor)
            tests.add_is(f"{name}._array", array)
            tests.add_is(f"{name}._requires", requires)
            tests.add_is(f"{name}._extra", tensor._extra)
        for tensor, leaf in zip(self.entered, self.leaves, strict=True):
            tests.add(f"{tests.name(tensor)}._edge is {'' if leaf else 'not '}None")
        for extra in {id(t._extra): t._extra for t in self.tensors if t._extra}.values():
            shown = tests.name(extra)
            tests.add(f"{tests.name(_hooks_in)}({shown}) == {_hooks_in(extra)!r}")
            tests.add(f"{shown}.lender is None")
        return tests.function()

    def _refused_gradients(self, tensors: list[Tensor]) -> str | None:
        """Why gradients that the program reads do not fit; None if they do."""
        grads = [slot.find(tensors) for slot in self.grads_read]
        memories = _memories(g._array for g in grads)
        if len(memories) < len(grads):
            return "two tensors share a .grad"
        given = [t._array for t in tensors]
        if not memories.isdisjoint(self.memories) or not memories.isdisjoint(_memories(given)):
            others = [*self.arrays, *given]
            if any(may_share(g._array, other) for g in grads for other in others):
                return "a .grad shares memory with another tensor"
        for slot, found in zip(self.grads_read, grads, strict=True):
            grad, leaf = found._array, slot.leaf.find(tensors)._array
            if not grad.flags.c_contiguous or (grad.dtype, grad.shape) != (leaf.dtype, leaf.shape):
                return "a .grad has another layout"
        return None

    def _hooks_hold(self) -> bool:
        """Whether captured tensors have the same hooks; if so, takes their current `_extra`."""
        if [_hooks_of(t) for t in self.tensors] != self.hooks:
            return False
        self.extras = [t._extra for t in self.tensors]
        return True

    def overlap(self, tensors: list[Tensor]) -> list[tuple[int, ...]]:
        """For each argument, the captured tensors that it overlaps."""
        owners, owner_of = self.owners, storage.owner_of
        found = []
        for tensor in tensors:
            array = tensor._array
            owner = array if array.base is None else owner_of(array)
            found.append(self._shown_by(array) if id(owner) in owners else ())
        return found

    def _shown_by(self, array: Any) -> tuple[int, ...]:
        start, end = bounds(array)
        spans = [bounds(a) for a in self.arrays]
        shown = [i for i, (a, b) in enumerate(spans) if a < end and start < b]
        # Values of the tensors after the captured ones may come from arguments.
        distances = [spans[i][0] - start for i in shown if i >= len(self.captured)]
        return (*shown, *distances)

    def _numbers_hold(self) -> bool:
        """Read the numbers if they changed; False if a decision on them comes out differently."""
        if self.seen is None or not self._same_numbers(self.seen):
            values = [n.read() for n in self.read_numbers]
            if not all(d.holds() for d in self.recording.decisions):
                return False
            self.seen = values
            self.number_cells[: len(self.numbers)] = values[: len(self.numbers)]
        return True

    def _moved(self) -> bool:
        """Whether captured tensors with new memory still fit; if so, binds that memory."""
        for i, (tensor, array) in enumerate(zip(self.tensors, self.arrays, strict=True)):
            now = tensor._array
            if now is not array and (i >= len(self.captured) or layout_of(now) != layout_of(array)):
                return False
        arrays = [t._array for t in self.tensors]
        if overlaps(arrays) != self.sharing:
            return False
        self.owners = {id(storage.owner_of(a)) for a in arrays}
        self.memories = _memories(arrays)
        # `self.arrays` is set last: if an interrupt leaves this half done, the next call repeats.
        if self.executable is not None:
            self._bind(self.executable, arrays)
        self.arrays = arrays
        return True

    # -- running -----------------------------------------------------------------------------

    def build(self) -> None:
        """Compile the recording."""
        executable = self.target.build(self.program, self.name)
        self._bind(executable, self.arrays)
        self.executable = executable

    def _bind(self, executable: Executable, captured: list[Any]) -> None:
        """Bind the arrays that stay the same from call to call."""
        self.calls_back = any(not c.primitive.collective for c in executable.callbacks)
        arrays = iter(captured)
        bound: dict[int, Any] = {}
        moving: dict[int, Any] = {}
        for i, slot in enumerate(self.slots):
            if isinstance(slot, Captured):
                bound[i] = next(arrays)
            elif isinstance(slot, Number):
                bound[i] = self.number_cells[self.numbers.index(slot), ...]
            else:
                moving[i] = slot
        self.moving = list(moving.values())
        executable.bind(bound)
        executable.expect(list(moving))
        # Looking up the changes of captured memory once saves 0.3 µs per tensor in each call.
        fixed = [s.tensor._array for s in self.written if isinstance(s, Captured)]
        self.changes = storage.changes_of(fixed)

    def run(self, tensors: list[Tensor], call: Any = None) -> Any:
        """Repeat the recorded run; returns its result and the values that it stored."""
        executable, recording = self.executable, self.recording
        assert executable is not None
        inputs = [slot.find(tensors)._array for slot in self.moving]
        made: list[Any] = [None] * len(self.program.results)
        new = []  # gradients in new memory
        for slot, at, empty, kind, shape, dtype, strides in self.made_grads:
            leaf = slot.tensor if slot.__class__ is Captured else slot.find(tensors)
            array = None if self.calls_back else _reusable(leaf, kind, shape, dtype, strides)
            if array is None:
                array = empty(shape, dtype)
                new.append((leaf, at))
            made[at] = array
        for i, empty, shape, dtype in self.fresh:
            made[i] = empty(shape, dtype)
        if self.calls_back:
            self._attempt(executable, (*inputs, *made), tensors)
        else:
            error = executable.attempt((*inputs, *made))
            if error is not None:
                raise DataError from error
        if self.written:
            storage.note_changes(self.changes)
            for slot in self.written_elsewhere:
                storage.note(slot.find(tensors)._array)
        for leaf, at in new:
            leaf._grad = wrap(made[at])
        for slot, at in self.other_grads:
            slot.find(tensors)._grad = None if at is None else at.find(tensors)
        for slot, before, after in recording.flags:
            if before != after:
                slot.find(tensors).requires_grad_(after)
        self.count += 1
        entry = None if self.vjp is None else self.vjp.attach(tensors, made)
        for i, order in self.relaid_results:
            made[i] = _laid_out(made[i], order)
        returned, stored = recording.results
        if returned.__class__ is Made and not stored:
            return self._rebuilt(returned, made, tensors, entry, {}), ()
        known: dict[int, Any] = {}

        def result(leaf: Any) -> Any:
            if isinstance(leaf, FromArguments):
                return (call.parts if leaf.container else call.objects)[leaf.index]
            if isinstance(leaf, Found):
                return leaf.mark.reference.read()
            return self._rebuilt(leaf, made, tensors, entry, known)

        return rebuilt(returned, result, known), rebuilt(stored, result, known)

    def _attempt(
        self, executable: Executable, arrays: tuple[Any, ...], tensors: list[Tensor]
    ) -> None:
        """Run a program with callbacks, which may raise after other parts have written."""
        written = [slot.find(tensors)._array for slot in self.written]
        before = [array.copy() for array in written]
        refused = DataError()
        try:
            error = executable.attempt(arrays)
        except Exception as raised:
            error = refused.raised = raised
        if error is not None:
            for array, values in zip(written, before, strict=True):
                array[...] = values
            raise refused from error

    def _rebuilt(
        self,
        leaf: Any,
        made: list[Any],
        tensors: list[Tensor],
        entry: Entry | None,
        known: dict[int, Any],
    ) -> Any:
        """A result of the function, made from its leaf in the recorded tree of results."""
        if leaf.__class__ is Made:
            tensor = wrap(made[leaf.index])
            if leaf.spent is not None:
                tensor._edge, tensor._requires = _leading_to(leaf, tensors), True
            elif leaf.output is not None:
                assert self.vjp is not None
                assert entry is not None
                tensor._edge, tensor._requires = self.vjp.edge(entry, leaf.output), True
            return tensor
        if isinstance(leaf, Given):
            return through(leaf.chain, leaf.slot.find(tensors))
        if isinstance(leaf, AliasResult):
            return wrap(leaf.slot.find(tensors)._array)
        if isinstance(leaf, GradResult):
            return leaf.slot.find(tensors)._grad
        if isinstance(leaf, Part):
            base = known.get(id(leaf.base))
            if base is None:
                base = self._rebuilt(leaf.base, made, tensors, entry, known)
                known[id(leaf.base)] = base
            with set_grad_enabled(leaf.requires):
                return through(leaf.chain, base)
        assert isinstance(leaf, Plain)
        return leaf.value


def _memories(arrays: Iterable[Any]) -> set[int]:
    """The ids of the objects that own the memory of arrays."""
    return {id(memory_of(a)) for a in arrays}


def _made_in(recording: Recording) -> Iterator[Made]:
    """The results that the program makes, including the bases of results that are views."""
    for leaf in leaves(recording.results):
        while isinstance(leaf, Part):
            leaf = leaf.base
        if isinstance(leaf, Made):
            yield leaf


def _laid_out(array: Any, order: tuple[int, ...]) -> Any:
    """A copy of an array whose dimensions have this order in memory."""
    copy = array.transpose(order).copy()
    return copy.transpose(sorted(range(len(order)), key=order.__getitem__))


def _same_objects(numbers: list[Number]) -> Callable[[list[Any]], bool]:
    """A test whether the numbers are still the objects in a list."""
    tests = Conjunction()
    for i, number in enumerate(numbers):
        item = "" if number.index is None else f"[{number.index}]"
        tests.add(f"{tests.name(number.holder)}[{tests.name(number.key)}]{item} is seen[{i}]")
    return tests.function("seen")


def _leading_to(result: Made, tensors: list[Tensor]) -> Entry | None:
    """The used-up history of a result, leading to the arguments of this call."""
    spent = result.spent
    if spent is None or not result.arguments:
        return spent
    edges = (*spent.edges, *(slot.find(tensors) for slot in result.arguments))
    return new_entry(
        spent.primitive, spent.params, edges, spent.saved, next(numbers), spent.location
    )


def _hooks_of(tensor: Tensor) -> tuple[tuple[int, ...], ...]:
    return ((), ()) if tensor._extra is None else _hooks_in(tensor._extra)


def _hooks_in(extra: Any) -> tuple[tuple[int, ...], ...]:
    """The keys of the hooks and of the post hooks."""
    return tuple(extra.hooks), tuple(extra.post_hooks)


def _writable(tensor: Tensor) -> bool:
    """Whether a tensor's memory can be written to; lent memory is copied first."""
    if tensor._extra is not None:
        own(tensor)
    return is_writable(tensor._array)


def _reusable(leaf: Tensor, kind: Any, shape: Any, dtype: Any, strides: Any) -> Any:
    """The array of a leaf's gradient, if nothing else refers to it, so it can be overwritten."""
    grad = leaf._grad
    if grad is None or grad.__class__ is not Tensor:
        return None
    array = grad._array
    # Two references each: one from its owner (the leaf or the gradient), one from this frame.
    if (
        _references(grad) > _ALONE
        or _references(array) > _ALONE
        or _weak_references(grad)
        or _weak_references(array)
        or grad._edge is not None
        or grad._extra is not None
        or grad._view is not None
        or array.base is not None
        or array.__class__ is not kind
        or array.strides != strides
        or array.shape != shape
        or (array.dtype is not dtype and array.dtype != dtype)
    ):
        return None
    return array


def _counting() -> int:
    """The references that `sys.getrefcount` itself adds: versions of Python differ."""
    lone: list[Any] = []
    return sys.getrefcount(lone) - 1


_ALONE = 2 + _counting()
