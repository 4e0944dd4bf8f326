"""Derivatives: a recorded function whose results are differentiated outside of it.

`trace` runs the gradient rules of the function just recorded, under the same capture, so the
recording continues into the backward pass; `capture.py` calls it. `split` splits such a recording
into two programs; `use/replay.py` calls it. Forward also returns the values that backward reads
(its residuals). Backward goes from the gradients of the results to those of the inputs.

Residuals are the values that the rules declared, except cheap ones: backward recomputes views, and
elementwise computations on other residuals.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...autograd.engine import Walk
from ...core.device import CPU
from ...core.modes import no_grad
from ...core.primitive import ELEMENTWISE
from ...core.tape import Entry, Output, Value, node_of
from ...core.tensor import Tensor, wrap
from ..ir.program import Apply, Input, Program, contiguous
from ..passes.pipeline import skipped_passes
from ..passes.rewrite import rewritten
from .slots import Argument, Captured, Cotangent, Slot

if TYPE_CHECKING:
    from .capture import Capture

#: most elementwise operations that backward repeats to recompute a value
MOST_REPEATED = 16

#: where a gradient goes: nowhere, to the input with an index, or to (instruction, output of it)
Flow = None | int | tuple[int, int]


@dataclass(frozen=True, slots=True)
class Derivative:
    """The backward pass of a recorded function."""

    forward: int  # number of the program's instructions that are the function's own
    results: int  # number of the program's results that are the function's own
    outputs: tuple[int, ...]  # for each result that can be differentiated, its index in results
    inputs: tuple[Any, ...]  # slots of the tensors that get gradients
    leaves: tuple[bool, ...]  # whether each of these is a leaf
    gradients: tuple[int, ...]  # for each input, the index of its gradient among the results
    #: for each instruction and each of its operands, where the operand's gradient goes. The operand
    #: alone does not tell: a tensor and its detached twin are one value. Composites come last
    flows: tuple[tuple[Flow, ...], ...]
    order: tuple[int, ...]  # the order in which instructions and composites ran
    ends: tuple[Flow, ...]  # for each output, where its gradient goes
    once: str | None  # why the derivative cannot itself be differentiated


class Obstacle(Exception):
    """The backward pass of a recorded function cannot be recorded; the message says why."""


# -- recording -----------------------------------------------------------------------------------


class _Inner(Walk):
    """A walk that ends where the recorded function began."""

    def __init__(self, capture: Capture) -> None:
        super().__init__(retain=True, create_graph=False)
        self.capture = capture
        self.start = capture.start
        self.wanted = {}  # so that `arrived` sees every entry

    def arrived(self, entry: Entry, g: Any) -> Any:
        if entry.number < self.start:
            # The latest entry from outside: all entries inside have been visited.
            self.pending[entry] = g
            raise _Outside
        # Operations of a rule get the line of the entry that it differentiates.
        self.capture.location = entry.location
        return super().arrived(entry, g)


class _Outside(Exception):
    """The walk has reached the first entry from outside."""


def trace(
    capture: Capture, outputs: Sequence[Tensor], at: Sequence[int], made: list[Value]
) -> Derivative:
    """Record the backward pass of `outputs`, which have the indices `at` in the results `made`.

    Appends the gradients of inputs to `made`. The history of the outputs stays unchanged.
    """
    entries, wholes = list(capture.entries), list(capture.wholes)
    every = entries + wholes
    results = len(made)
    reached = _reached(capture, outputs)
    walk = _Inner(capture)
    with no_grad():
        for i, output in enumerate(outputs):
            gradient = wrap(np.ones_like(output._array))
            capture.cotangents[gradient.id] = Cotangent(i)
            walk.send(output._edge, gradient, False)
        try:
            walk.run()
        except _Outside:
            pass
        except Exception as error:
            raise Obstacle(
                f"its backward pass cannot be recorded: {error}\n"
                "If nobody differentiates what it returns, return it detached."
            ) from error
        finally:
            capture.location = None
        found = _found(capture, walk)
        made += [capture.value_of(g) for _, g in found]
    flow_of: dict[Any, Flow] = {}
    for i, entry in enumerate(every):
        for k in range(len(entry.primitive.outputs)):
            flow_of[entry.number, k] = (i, k)
    flow_of.update((_key(tensor), i) for i, (tensor, _) in enumerate(found))
    for entry in sorted(reached, key=lambda e: e.number):
        if entry.log is not None and (entry.number, 0) not in flow_of:
            # Not in the program: its result has the value of its input.
            flow_of[entry.number, 0] = flow_of.get(_key_of(entry.edges[0]))
    return Derivative(
        forward=len(entries),
        results=results,
        outputs=tuple(at),
        inputs=tuple(capture.slot_of(tensor) for tensor, _ in found),
        leaves=tuple(tensor._edge is None for tensor, _ in found),
        gradients=tuple(range(results, len(made))),
        flows=tuple(tuple(flow_of.get(_key_of(e)) for e in x.edges) for x in every),
        order=tuple(sorted(range(len(every)), key=lambda i: every[i].number)),
        ends=tuple(flow_of.get(_key_of(o._edge)) for o in outputs),
        once=_once(reached),
    )


def runs_user_rules(capture: Capture, outputs: Iterable[Tensor]) -> bool:
    """Whether Python code of the user is part of the backward pass of a recorded function."""
    return _once(_reached(capture, outputs)) is not None


def _reached(capture: Capture, outputs: Iterable[Tensor]) -> list[Entry]:
    """The entries inside the function that lead to its outputs."""
    found: dict[int, Entry] = {}
    stack = [node_of(o._edge) for o in outputs]
    while stack:
        entry = stack.pop()
        if isinstance(entry, Entry) and entry.number > capture.start and entry.number not in found:
            found[entry.number] = entry
            stack += [node_of(e) for e in entry.edges]
            if any(hasattr(hook, "retains") for _, hook in entry.hooks or ()):
                raise Obstacle("it retains the gradient of a tensor that it computes")
    return list(found.values())


def _once(reached: Iterable[Entry]) -> str | None:
    """The rule or hook that prevents differentiating twice: it is the user's Python code."""
    for entry in reached:
        if entry.log is None or entry.hooks is not None:
            what = "a hook on" if entry.log is not None else ""
            return f"{what} {entry.name()} (recorded at {entry.line})".strip()
    return None


def _found(capture: Capture, walk: _Inner) -> list[tuple[Tensor, Any]]:
    """Tensors from outside with their gradients, in order of creation."""
    found = [(leaf, g) for leaf, g, _ in walk.leaves.values() if leaf.id <= capture.start]
    for entry, g in walk.pending.items():
        for index, part in enumerate(g if isinstance(g, list) else [g]):
            if part is not None:
                found.append((capture.histories[entry.number, index], part))
    return sorted(found, key=lambda pair: pair[0].id)


def _key(tensor: Tensor) -> Any:
    return tensor.id if tensor._edge is None else output_key(tensor._edge)


def _key_of(edge: Any) -> Any:
    return edge.id if isinstance(edge, Tensor) else edge and output_key(edge)


def output_key(edge: Any) -> tuple[int, int]:
    """The sequence number of an entry and the index of its output, for an edge that is no leaf."""
    return (edge.entry.number, edge.index) if isinstance(edge, Output) else (edge.number, 0)


# -- splitting -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kept:
    """A residual: a value that an entry keeps for backward, an input or a result of forward."""

    value: Value
    input: int | None  # its index among the inputs of forward
    result: int | None  # its index among the results of forward


@dataclass(frozen=True, slots=True)
class Halves:
    """A recorded function with its backward pass, as two programs."""

    forward: Program
    forward_slots: tuple[Slot, ...]
    backward: Program  # its inputs: the residuals, then the gradients of the outputs
    kept: tuple[Kept, ...]
    recorded: tuple[Apply, ...]  # the instructions of forward as recorded, ...
    wholes: tuple[Apply, ...]  # ... and its composites
    for_rerun: tuple[Kept, ...]  # further values that rerunning forward on Tensors needs
    #: for each gradient of an input, its index among the results of backward
    gradients: tuple[int, ...]
    #: for each gradient of an input, the outputs on whose gradients it depends
    sources: tuple[frozenset[int], ...]
    #: for each output, the residuals that its backward pass reads, as indices in `kept`
    reads: tuple[frozenset[int], ...]
    #: for each output, the outputs whose histories share an operation with residuals
    shares: tuple[frozenset[int], ...]


def split(program: Program, slots: Sequence[Slot], derivative: Derivative) -> Halves:
    """Split a recorded program at the end of forward."""
    return _Split(program, slots, derivative).run()


class _Split:
    def __init__(self, program: Program, slots: Sequence[Slot], derivative: Derivative) -> None:
        self.program = program
        self.derivative = derivative
        self.recorded = program.applied()[: derivative.forward]
        self.before, self.after = self._rewritten()
        self.makers = {v.number: x for x in self.before for v in x.outputs}
        self.order = {id(x): i for i, x in enumerate(self.before)}
        self.constants = {v.number for v, _ in program.constants}
        self.cotangents = {
            given.value.number: slot.index
            for given, slot in zip(program.inputs, slots, strict=True)
            if isinstance(slot, Cotangent)
        }
        own = [
            (given, slot)
            for given, slot in zip(program.inputs, slots, strict=True)
            if not isinstance(slot, Cotangent)
        ]
        self.inputs = tuple(given for given, _ in own)
        self.slots = tuple(slot for _, slot in own)
        self.positions = {given.value.number: i for i, given in enumerate(self.inputs)}
        self.results = list(program.results[: derivative.results])

    def _rewritten(self) -> tuple[Sequence[Apply], Sequence[Apply]]:
        """Forward and backward, rewritten together: backward may then need fewer residuals."""
        # Rewrites are for the CPU; other targets get the recorded instructions.
        if "rewrite" in skipped_passes() or self.program.device != CPU:
            return self.recorded, self.program.applied()[self.derivative.forward :]
        return rewritten(self.program, self.derivative.forward)

    def run(self) -> Halves:
        wanted = list({v.number: v for v in self._gradients()}.values())
        backward = self._live(self.after, {v.number for v in wanted})
        read = {v.number: v for x in backward for v in x.reads()}
        read.update((v.number, v) for v in wanted)
        for x in backward:
            for v in x.outputs:
                read.pop(v.number, None)
        values, repeated = self._residuals(read)
        kept = tuple(self._keep(v) for v in values)
        for_rerun = self._needed_for_rerun({v.number for v in values})
        program = replace(
            self.program,
            inputs=(*(self._input_of(k) for k in kept), *self._cotangent_inputs()),
            instructions=tuple(_repeating(backward, repeated, wanted)),
            writes=(),
            results=tuple(wanted),
        )
        index_of = {v.number: i for i, v in enumerate(wanted)}
        reads, shares = self._histories(program, kept)
        return Halves(
            forward=replace(
                self.program,
                inputs=self.inputs,
                instructions=tuple(self.before),
                results=tuple(self.results),
            ),
            forward_slots=self.slots,
            backward=program,
            kept=kept,
            recorded=self.recorded,
            wholes=self.program.wholes[: len(self.derivative.flows) - self.derivative.forward],
            for_rerun=for_rerun,
            gradients=tuple(index_of[v.number] for v in self._gradients()),
            sources=self._sources(),
            reads=reads,
            shares=shares,
        )

    def _gradients(self) -> tuple[Value, ...]:
        return self.program.results[self.derivative.results :]

    def _live(self, instructions: Iterable[Apply], needed: set[int]) -> list[Apply]:
        live: list[Apply] = []
        for x in reversed(list(instructions)):
            if not x.primitive.pure or any(v.number in needed for v in x.outputs):
                live.append(x)
                needed.update(v.number for v in x.reads())
        return live[::-1]

    def _cotangent_inputs(self) -> list[Input]:
        """The gradients of all outputs as inputs; some may be dead."""
        outputs = [self.program.results[i] for i in self.derivative.outputs]
        given = {self.cotangents[v.number]: v for v in self._inputs_of_cotangents()}
        number = self.program.next_number()
        found = []
        for i, output in enumerate(outputs):
            value = given.get(i, Value(number + i, output.shape, output.dtype))
            found.append(Input(value, contiguous(value.shape), f"gradient{i}"))
        return found

    def _inputs_of_cotangents(self) -> list[Value]:
        return [i.value for i in self.program.inputs if i.value.number in self.cotangents]

    # -- residuals ---------------------------------------------------------------------------

    def _residuals(self, read: dict[int, Value]) -> tuple[list[Value], dict[int, Apply]]:
        """The residuals, and the instructions of the values that backward recomputes."""
        outside = self.constants | self.cotangents.keys()
        repeated: dict[int, Apply] = {}
        # Views are always repeated.
        stack = [v for v in read.values() if v.number not in outside]
        base: dict[int, Value] = {}
        while stack:
            value = stack.pop()
            maker = self.makers.get(value.number)
            if maker is not None and maker.primitive.view:
                repeated[value.number] = maker
                stack += [v for v in maker.reads() if v.number not in outside]
            else:
                base[value.number] = value
        kept: list[Value] = [v for v in base.values() if v.number not in self.makers]
        available = {v.number for v in kept} | self.constants
        computed = [v for v in base.values() if v.number in self.makers]
        for value in sorted(computed, key=lambda v: self.order[id(self.makers[v.number])]):
            steps = self._steps(value, available)
            if steps is None:
                kept.append(value)
                available.add(value.number)
            else:
                repeated.update((v.number, x) for x in steps for v in x.outputs)
        return kept, repeated

    def _steps(self, value: Value, available: set[int]) -> list[Apply] | None:
        """A few elementwise instructions that compute a value from available ones, or None."""
        steps: dict[int, Apply] = {}
        stack = [value]
        while stack:
            number = stack.pop().number
            maker = self.makers.get(number)
            if number in available:
                continue
            if maker is None or not maker.primitive.pure or len(steps) == MOST_REPEATED:
                return None
            if maker.primitive.kind != ELEMENTWISE and not maker.primitive.view:
                return None
            steps[id(maker)] = maker
            stack += maker.reads()
        return list(steps.values())

    def _keep(self, value: Value) -> Kept:
        """Where an entry finds a value after forward: an input, or a result, added if need be."""
        position = self.positions.get(value.number)
        if position is not None and self._lasts(position):
            return Kept(value, position, None)
        own = [v.number for v in self.results]
        if value.number in own and own.index(value.number) in self.derivative.outputs:
            return Kept(value, None, own.index(value.number))
        self.results.append(value)
        return Kept(value, None, len(self.results) - 1)

    def _lasts(self, position: int) -> bool:
        """Whether the memory of an input still holds its value after forward."""
        given, slot = self.inputs[position], self.slots[position]
        if not isinstance(slot, (Argument, Captured)):
            return False
        written = {target.number for target, _ in self.program.writes}
        return given.value.number not in written and not (given.aliased and written)

    def _input_of(self, kept: Kept) -> Input:
        if kept.input is None:
            return Input(kept.value, contiguous(kept.value.shape), f"kept{kept.value.number}")
        return self.inputs[kept.input]

    def _needed_for_rerun(self, known: set[int]) -> tuple[Kept, ...]:
        """The values that a rerun of forward needs: inputs, and random numbers drawn."""
        needed = {self.program.results[i].number for i in self.derivative.outputs}
        for x in reversed(self.recorded):
            if _can_rerun(x) and any(v.number in needed for v in x.outputs):
                needed.update(v.number for v in x.reads())
        drawn = [v for x in self.recorded if not _can_rerun(x) for v in x.outputs]
        given = [i.value for i in self.inputs]
        return tuple(
            self._keep(v) for v in (*given, *drawn) if v.number in needed and v.number not in known
        )

    def _histories(
        self, program: Program, kept: tuple[Kept, ...]
    ) -> tuple[tuple[frozenset[int], ...], ...]:
        """`Halves.reads` and `Halves.shares`."""
        outputs = range(len(self.derivative.outputs))
        made_of = {n: frozenset([i]) for n, i in self.cotangents.items()}
        kept_in = {k.value.number: frozenset([i]) for i, k in enumerate(kept)}
        reads: list[frozenset[int]] = [frozenset() for _ in outputs]
        shares: list[frozenset[int]] = [frozenset() for _ in outputs]
        for x in program.applied():
            gradients, values = (
                frozenset[int]().union(*(known.get(v.number, ()) for v in x.reads()))
                for known in (made_of, kept_in)
            )
            if gradients and values:
                for i in gradients:
                    reads[i] |= values
                    shares[i] |= gradients
            found = (made_of, gradients) if gradients else (kept_in, values)
            found[0].update((v.number, found[1]) for v in x.outputs)
        return tuple(reads), tuple(shares)

    def _sources(self) -> tuple[frozenset[int], ...]:
        made_of: dict[int, frozenset[int]] = {n: frozenset([i]) for n, i in self.cotangents.items()}
        for x in self.after:
            sources = frozenset[int]().union(*(made_of.get(v.number, ()) for v in x.reads()))
            made_of.update((v.number, sources) for v in x.outputs)
        return tuple(made_of.get(v.number, frozenset()) for v in self._gradients())


def _can_rerun(x: Apply) -> bool:
    """Whether an instruction gives the same again. A collective does: all ranks rerun it."""
    return x.primitive.pure or x.primitive.collective


def _repeating(
    backward: Iterable[Apply], repeated: dict[int, Apply], wanted: Iterable[Value]
) -> list[Apply]:
    """The instructions of backward, and the repeated ones, each right before its first use."""
    done: set[int] = set()
    program: list[Apply] = []

    def before(values: Iterable[Value]) -> None:
        stack = list(values)
        while stack:
            maker = repeated.get(stack[-1].number)
            missing = [] if maker is None else [v for v in maker.reads() if _open(v)]
            if maker is not None and id(maker) not in done and missing:
                stack += missing
                continue
            stack.pop()
            if maker is not None and id(maker) not in done:
                done.add(id(maker))
                program.append(maker)

    def _open(value: Value) -> bool:
        maker = repeated.get(value.number)
        return maker is not None and id(maker) not in done

    for x in backward:
        before(x.reads())
        program.append(x)
    before(wanted)
    return program
