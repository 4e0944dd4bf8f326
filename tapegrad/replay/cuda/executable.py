"""Executables: a program goes through all passes and is recorded once for a device.

Comes in: a recorded program and a `GridDevice`. Goes out: a `GridProgram`. Memory is of three
kinds. Fixed memory (the arena, constants, captured tensors) has its addresses in the recording. The
addresses of moving memory (arguments, results) are words of a table that each run copies to the
device. Host values, such as the options of an optimizer, are words of the same table (cells).
Called by targets.
"""

from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...core.arrays import bounds
from ...core.deferred import defer
from ...core.failures import described
from ...core.source import describe
from ...core.switches import switches
from ..ir.program import Callback, Program, View, bytes_of, contiguous
from ..native.plan import Allocation, Plan, plan
from ..passes.pipeline import run_passes
from . import tuning
from .device import DeviceMemory, GridDevice
from .emit import Attend, GridStep, GridSteps, KernelLaunch, Multiply, emit
from .loops import GridSettings
from .machine import GPUMachine
from .order import MemoryOrder, Range
from .rows import with_gaps

_WORD = 8


class GridProgram:
    """A program for a device, ready to run.

    Inputs in `cells`, by index, are in host memory, and each run reads their current values. Others
    are in the device's memory.
    """

    def __init__(
        self,
        program: Program,
        device: GridDevice,
        deterministic: Callable[[], bool],
        cells: Sequence[int] = (),
    ) -> None:
        self.device = device
        self._deterministic = deterministic
        self.plan, self._gaps = planned_with_gaps(program, device)
        self.program = self.plan.program
        self.bound: dict[int, Any] = {}
        #: the inputs that are arguments of each run
        self.expected: list[int] = []
        self._table = HostWords(program, cells)
        self._recorded: RecordedSteps | None = None

    @property
    def callbacks(self) -> list[Callback]:
        return [i for i in self.program.instructions if isinstance(i, Callback)]

    def is_host(self, index: int) -> bool:
        """Whether an input is in host memory."""
        return index in self._table.starts

    def cell(self, index: int) -> Any:
        """The cell of an input in host memory, as an array."""
        return self._table.cells[index]

    def take_cells(self) -> None:
        """Copy the current values of bound inputs in host memory into their cells."""
        self._ready().take_cells()

    @property
    def may_fail(self) -> bool:
        """Whether it may find bad data."""
        return bool(self.emitted.failures)

    @property
    def deferred(self) -> DeferredStatus | None:
        """The deferred check for bad data; None if `attempt` checks it."""
        return self._ready().deferred

    def bind(self, arrays: Mapping[int, Any]) -> None:
        self.bound.update(arrays)
        self._recorded = None

    def expect(self, inputs: Sequence[int]) -> None:
        self.expected = list(inputs)
        self._recorded = None

    def describe(self) -> str:
        steps = self.emitted.steps
        kernels = sum(isinstance(step, KernelLaunch) for step in steps)
        calls = sum(isinstance(step, (Multiply, Attend)) for step in steps)
        called = len(steps) - kernels - calls
        return f"as {kernels} kernels, {calls} calls of libraries, {called} callbacks"

    @property
    def emitted(self) -> GridSteps:
        return self._ready().emitted

    def _ready(self) -> RecordedSteps:
        recorded = self._recorded
        if recorded is None or recorded.wanted != (switches.precision, self._deterministic()):
            recorded = self._recorded = self.recorded_on(self.bound)
        return recorded

    def recorded_on(self, bound: dict[int, Any]) -> RecordedSteps:
        """The recorded steps with some arrays bound to inputs."""
        return RecordedSteps(
            *(self.plan, self._gaps, self.device, self._deterministic()),
            *(self._table, bound, self.expected),
        )

    def run(self, arrays: tuple[Any, ...]) -> None:
        error = self.attempt(arrays)
        if error is not None:
            raise error

    def attempt(self, arrays: tuple[Any, ...]) -> Exception | None:
        return self._ready().run(arrays)


def planned(program: Program, device: GridDevice) -> Plan:
    """The plan of a recorded program after all passes."""
    return plan(_passed(program, device), 1)


def planned_with_gaps(program: Program, device: GridDevice) -> tuple[Plan, frozenset[int]]:
    """The same with gaps behind odd rows, and the numbers of the values with gaps."""
    program, gaps = with_gaps(_passed(program, device))
    return plan(program, 1), gaps


def _passed(program: Program, device: GridDevice) -> Program:
    machine = GPUMachine(device.without_attention())
    return run_passes(program, machine, lambda: None, without={"rewrite"})


def found_by(words: Sequence[int], failures: Sequence[tuple[str, Any]]) -> Exception | None:
    """The error that status words report; None if they report none."""
    for (name, location), code in zip(failures, words[1:], strict=True):
        if code:
            error, message = described(code, name)
            return error(f"{message}, at {describe(location)}")
    return None


class DeferredStatus:
    """The deferred check of a program for bad data in runs that may not have finished.

    Once a run has found bad data, it and all later runs change no memory from outside, until the
    error is raised. Then the host memory that those runs changed is restored.
    """

    def __init__(self, status: DeviceMemory, failures: Sequence[Any], device: GridDevice) -> None:
        self._status, self._failures, self._device = status, failures, device
        #: on the device: how many runs have found no bad data
        self.good: DeviceMemory = device.memory(_WORD)
        device.zero(self.good.address, _WORD)
        #: the status words, as the device last copied them out
        self.seen = device.shared_words(1 + len(failures))
        #: for each recent run: the number of runs before it, and copies of host memory from then
        self._before: deque[tuple[int, list[tuple[Any, Any]]]] = deque()
        self._runs = 0

    def keep(self, before: list[tuple[Any, Any]]) -> None:
        """Keep host arrays, with copies of them, in case the next run finds bad data."""
        if len(self._before) >= tuning.MOST_UNKNOWN_RUNS and (error := self.settled()):
            for array, copy in before:
                array[...] = copy
            raise error
        self._before.append((self._runs, before))

    def begin(self) -> None:
        """Begin a run; raises the error of an earlier one if it is known already."""
        if self.seen[0] and (error := self.settled()):
            raise error
        self._runs += 1

    def settled(self) -> Exception | None:
        device = self._device
        words = device.read(self._status.address, 1 + len(self._failures))
        error = found_by(words, self._failures)
        if error is not None:
            (good,) = device.read(self.good.address, 1)
            for runs, before in reversed(self._before):
                if runs >= good:
                    for array, copy in before:
                        array[...] = copy
            device.zero(self._status.address, _WORD * len(words))
        self.seen[:] = 0
        self._before.clear()
        self._runs = 0
        device.zero(self.good.address, _WORD)
        return error


class HostWords:
    """Host words that each run copies to the device: cells, then addresses of arrays."""

    def __init__(self, program: Program, cells: Sequence[int]) -> None:
        sizes = [-(-bytes_of(program.inputs[i].value) // _WORD) for i in cells]
        #: the number of words of all cells, and where each cell begins
        self.first = sum(sizes)
        self.starts = dict(zip(cells, itertools.accumulate([0, *sizes]), strict=False))
        self.words = np.zeros(self.first + len(program.inputs) + len(program.results), np.int64)
        self.cells: dict[int, Any] = {}
        for i, start in self.starts.items():
            value = program.inputs[i].value
            memory = self.words[start:].view(np.uint8)[: bytes_of(value)]
            self.cells[i] = memory.view(value.dtype).reshape(value.shape)


class RecordedSteps:
    """The parts of a program between its callbacks, as a device has recorded them."""

    def __init__(
        self,
        plan: Plan,
        gaps: frozenset[int],
        device: GridDevice,
        deterministic: bool,
        table: HostWords,
        bound: dict[int, Any],
        expected: list[int],
    ) -> None:
        self._device, self._plan = device, plan
        #: settings of the user: the precision of products, and whether results are deterministic
        self.wanted = (switches.precision, deterministic)
        self._bound = dict(bound)
        self._cells = table.starts
        self._cell_arrays = table.cells
        #: cells of the table, with the arrays that each run copies into them
        self._copied = [(table.cells[i], bound[i]) for i in table.starts if i in bound]
        moving = [("input", i) for i in expected]
        moving += [("result", i) for i in range(len(plan.program.results))]
        self._first = table.first
        self._slots = {key: table.first + i for i, key in enumerate(moving)}
        numbers = {n for n, a in plan.allocations.items() if (a.kind, a.index) in self._slots}
        settings = GridSettings(
            device.make_grid, deterministic, moving=frozenset(numbers), computes=device.computes
        )
        self.emitted: GridSteps = emit(plan, settings, gaps)
        self._functions = device.functions(
            [step.text for step in self.emitted.steps if isinstance(step, KernelLaunch)]
        )
        self._words = table.words[: table.first + len(moving)]
        self._table: DeviceMemory = device.memory(max(self._words.nbytes, _WORD))
        #: the words that the device has now
        self._sent: bytes | None = None
        self._arena: DeviceMemory = device.memory(self.emitted.arena)
        for start, size in self.emitted.zeros:
            device.zero(self._arena.address + start, size)
        self._scratch: DeviceMemory = device.memory(self.emitted.scratch)
        #: one word for all kernels, then one for each that may fail
        self._status_words = 1 + len(self.emitted.failures)
        self._status: DeviceMemory = device.memory(_WORD * self._status_words)
        device.zero(self._status.address, _WORD * self._status_words)
        called = any(isinstance(step, Callback) for step in self.emitted.steps)
        #: the deferred check, if runs do not wait to learn whether they found bad data
        self.deferred: DeferredStatus | None = None
        if self.emitted.failures and not called and not device.is_synchronous:
            self.deferred = DeferredStatus(self._status, self.emitted.failures, device)
        self._constants = [
            device.upload(np.ascontiguousarray(array)) for _, array in plan.program.constants
        ]
        self._parts = self._recorded_parts()
        #: the turn of the last run: one run at a time uses the fixed memory, whatever the stream
        self._turn: Any = None

    def _recorded_parts(self) -> list[Any]:
        """The device's recordings, and the callbacks between them."""
        parts: list[Any] = []
        steps: list[GridStep] = []

        def end(first: bool) -> None:
            if steps or first:
                chosen = list(steps)
                parts.append(self._device.record(lambda: self._ask(chosen, first)))
                steps.clear()

        for step in self.emitted.steps:
            if isinstance(step, Callback):
                end(first=not parts)
                parts.append(step)
            else:
                steps.append(step)
        end(first=not parts)
        return parts

    def _ask(self, steps: list[GridStep], first: bool) -> None:
        """Let the device record some steps; the first recording also handles the status."""
        device, order = self._device, MemoryOrder()
        if first and self.emitted.failures and self.deferred is None:
            device.after(order.add((), [self._of_status(0, self._status_words)]))
            device.clear(self._status, _WORD * self._status_words)
        for step in steps:
            device.after(order.add(*self._ranges(step)))
            if isinstance(step, KernelLaunch):
                words = [self._given(p.value, p.offset) for p in step.pointers]
                if step.status is not None:
                    words.append(self._status.address + _WORD * (1 + step.status))
                words += [self._status.address] if step.failed else []
                words += [self._scratch.address + start for start, _ in step.partials]
                words += step.numbers
                device.launch(self._functions[step.text], step.blocks, step.threads, words)
            elif isinstance(step, Attend):
                accesses = (*step.instruction.operands, *step.instruction.results)
                places = [self._given(a.value.number, 0) for a in accesses]
                device.attend(step.instruction, places, self.wanted[1])
            else:
                assert not isinstance(step, Callback)
                product = step.instruction
                operands = (product.out, product.x, product.y)
                device.multiply(product, *(self._given(a.value.number, 0) for a in operands))
        if self.deferred is not None and first:
            device.after(order.add([self._of_status(0, self._status_words)], ()))
            device.count_good(self._status, self.deferred.good)
            device.after([len(steps)])
            device.copy_out(self._status, self.deferred.seen)

    def _ranges(self, step: GridStep) -> tuple[list[Range], list[Range]]:
        """The memory that a step reads, and the memory that it writes."""
        assert not isinstance(step, Callback)
        instruction = step.instruction
        changed = {v.number for v in instruction.writes()}
        used = {v.number for v in instruction.reads()} - changed
        reads, writes = ([self._range(number) for number in some] for some in (used, changed))
        if isinstance(step, KernelLaunch):
            writes += [
                (self._scratch.address + start, self._scratch.address + start + size)
                for start, size in step.partials
            ]
            if step.status is not None:
                writes += [self._of_status(0, 1), self._of_status(1 + step.status, 1)]
            elif step.failed:
                reads.append(self._of_status(0, 1))
        return reads, writes

    def _of_status(self, first: int, count: int) -> Range:
        start = self._status.address + _WORD * first
        return start, start + _WORD * count

    def _range(self, number: int) -> Range:
        """The memory of a value; one that moves gets made-up addresses of its own."""
        allocation = self.emitted.allocations[number]
        slot = self._slots.get((allocation.kind, allocation.index))
        if slot is not None:
            return (1 << 62) + slot, (1 << 62) + slot + 1
        start = self._fixed(allocation)
        if allocation.kind == "input" and allocation.index not in self._cells:
            return bounds(self._bound[allocation.index])
        return start, start + max(allocation.size, 1)

    def _given(self, number: int, offset: int) -> int:
        """A kernel's argument for a value: its address, or that of the word that holds it."""
        allocation = self.emitted.allocations[number]
        slot = self._slots.get((allocation.kind, allocation.index))
        if slot is not None:
            return self._table.address + _WORD * slot
        return self._fixed(allocation) + offset

    def _fixed(self, allocation: Allocation) -> int:
        """The address of fixed memory."""
        if allocation.kind == "arena":
            return self._arena.address + allocation.index
        if allocation.kind == "constant":
            return self._constants[allocation.index].address
        if allocation.index in self._cells:
            return self._table.address + _WORD * self._cells[allocation.index]
        return self._device.address(self._bound[allocation.index])

    def take_cells(self) -> None:
        for cell, array in self._copied:
            cell[...] = array

    def place(self, addresses: Sequence[int]) -> None:
        """Set the addresses of moving inputs and results for the next runs."""
        self._words[self._first :] = addresses
        self._device.fill(self._words, self._table)
        self._sent = None

    def separate(self) -> Iterator[tuple[KernelLaunch | Multiply | Attend, Any]]:
        """Each step except callbacks, recorded by itself."""
        for step in self.emitted.steps:
            if not isinstance(step, Callback):
                yield step, self._device.record(functools.partial(self._ask, [step], False))

    def run(self, arrays: tuple[Any, ...]) -> Exception | None:
        device = self._device
        if self.deferred is not None:
            self.deferred.begin()
        device.begin(self._turn)
        try:
            return self._run(arrays)
        finally:
            self._turn = device.end(self._turn)

    def _run(self, arrays: tuple[Any, ...]) -> Exception | None:
        device = self._device
        for i, array in enumerate(arrays, self._first):
            self._words[i] = device.address(array)
        words = self._words.tobytes()
        if words != self._sent:
            device.fill(self._words, self._table)
            self._sent = words
        for part in self._parts:
            if not isinstance(part, Callback):
                device.run(part)
                continue
            if self.emitted.failures and (error := self._error()):
                return error
            self._call(part, arrays)
        if self.deferred is not None:
            defer(self.deferred)
            return None
        return self._error() if self.emitted.failures else None

    def _error(self) -> Exception | None:
        """The error of bad data, if any was found."""
        return found_by(
            self._device.read(self._status.address, self._status_words), self.emitted.failures
        )

    def _call(self, callback: Callback, arrays: tuple[Any, ...]) -> None:
        """Run a primitive's own kernel on arrays of the device."""

        def array(view: View) -> Any:
            allocation = self.emitted.allocations[view.root.number]
            if allocation.kind == "input" and allocation.index in self._cells:
                return self._cell_arrays[allocation.index].copy()
            slot = self._slots.get((allocation.kind, allocation.index))
            if slot is None:
                return self._device.view(self._fixed(allocation), view)
            return self._device.view(self._device.address(arrays[slot - self._first]), view)

        given = [array(x) if isinstance(x, View) else x for x in callback.inputs]
        made = callback.primitive.kernel(*given, **callback.params)
        results = made if isinstance(made, tuple) else (made,)
        for value, result in zip(callback.outputs, results, strict=False):
            array(View(value, 0, value.shape, contiguous(value.shape)))[...] = result
