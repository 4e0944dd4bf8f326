"""Programs of eager operations: kernels and library calls, enqueued in the stream one by one.

Comes in: a small program and a `GridDevice`. Goes out: a `DirectProgram`. Nothing is recorded,
because every run has other arrays: addresses and Python numbers are parameters of the kernels.
Scratch memory comes from the pool for each run and goes back at once, because later work in the
same stream may reuse it. Called by `use/eager.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from ...core.arrays import on_host
from ..ir.program import Callback, Program
from ..native.plan import Allocation
from . import tuning
from .device import DeviceMemory, GridDevice
from .emit import Attend, GridStep, GridSteps, KernelLaunch, emit
from .executable import found_by, planned
from .loops import GridSettings

_WORD = 8

#: runs a step, given the addresses of all memory
Run = Callable[[list[int]], None]


class DirectProgram:
    """A program that runs step by step, on the arrays of each run.

    The inputs in `held`, by index, are single numbers in host arrays.
    """

    def __init__(
        self, program: Program, device: GridDevice, deterministic: bool, held: Collection[int]
    ) -> None:
        self._device = device
        plan = planned(program, device)
        self.callbacks = [i for i in plan.program.instructions if isinstance(i, Callback)]
        if self.callbacks:
            return
        self._held = [index in held for index in range(len(program.inputs))]
        numbers = frozenset(program.inputs[index].value.number for index in held)
        settings = GridSettings(
            *(device.make_grid, deterministic),
            held=numbers,
            general=True,
            computes=device.computes,
        )
        self._emitted: GridSteps = emit(plan, settings)
        constants = [np.ascontiguousarray(on_host(a)) for _, a in plan.program.constants]
        self._constants: list[DeviceMemory] = [device.upload(array) for array in constants]
        #: positions in the list of addresses of results, and of memory from the pool
        self._results = len(program.inputs)
        self._first = self._results + len(plan.program.results) + len(constants)
        self._fixed = [memory.address for memory in self._constants]
        sizes = (self._emitted.arena, self._emitted.scratch, _WORD * self._status_words)
        units = [-(-size // tuning.ALIGNMENT) * tuning.ALIGNMENT for size in sizes]
        #: offsets of the arena, the scratch memory and the status in memory from the pool
        self._starts = list(itertools.accumulate([0, *units]))
        self._functions = device.functions(
            [step.text for step in self._emitted.steps if isinstance(step, KernelLaunch)]
        )
        self._steps: list[Run] = [self._step(step, deterministic) for step in self._emitted.steps]

    @property
    def _status_words(self) -> int:
        """One word for all kernels, and one for each that may fail; none if no kernel may."""
        failures = self._emitted.failures
        return 1 + len(failures) if failures else 0

    def _place(self, number: int) -> tuple[int, int]:
        """A value's memory: its position in the list of addresses, and an offset in bytes."""
        allocation: Allocation = self._emitted.allocations[number]
        kind, index = allocation.kind, allocation.index
        if kind == "arena":
            return self._first, index
        if kind == "constant":
            return self._first - len(self._constants) + index, 0
        return (index if kind == "input" else self._results + index), 0

    def _step(self, step: GridStep, deterministic: bool) -> Run:
        if isinstance(step, KernelLaunch):
            return self._launch(step, self._functions[step.text])
        assert not isinstance(step, Callback)
        if isinstance(step, Attend):
            accesses = (*step.instruction.operands, *step.instruction.results)
            compute: Any = self._device.attender(step.instruction, deterministic)
        else:
            product = step.instruction
            accesses = (product.out, product.x, product.y)
            multiply = self._device.multiplier(product)

            def compute(addresses: Sequence[int]) -> None:
                multiply(*addresses)

        given = [self._place(access.value.number) for access in accesses]
        return lambda places: compute([places[i] + offset for i, offset in given])

    def _launch(self, step: KernelLaunch, function: Any) -> Run:
        words = []
        for pointer in step.pointers:
            place, offset = self._place(pointer.value)
            words.append((place, offset + pointer.offset))
        scratch, status = self._starts[1:3]
        if step.status is not None:
            words.append((self._first, status + _WORD * (1 + step.status)))
        if step.failed:
            words.append((self._first, status))
        words += [(self._first, scratch + start) for start, _ in step.partials]
        launch = self._device.launcher(
            function, step.blocks, step.threads, len(words), step.numbers
        )
        return lambda places: launch([places[i] + offset for i, offset in words])

    def attempt(self, arrays: Sequence[Any]) -> Exception | None:
        """Run on the arrays of inputs and results; returns the error of bad data, if any."""
        device = self._device
        places = [
            int.from_bytes(array.tobytes(), "little") if held else device.address(array)
            for array, held in zip(arrays, self._held, strict=False)
        ]
        places += map(device.address, arrays[self._results :])
        places += self._fixed
        memory = None
        if self._starts[-1]:
            memory = device.memory(self._starts[-1])
            places.append(memory.address)
            for start, size in self._emitted.zeros:
                device.zero(memory.address + start, size)
            if self._status_words:
                device.zero(memory.address + self._starts[2], _WORD * self._status_words)
        for run in self._steps:
            run(places)
        if not self._status_words:
            return None
        assert memory is not None
        words = device.read(memory.address + self._starts[2], self._status_words)
        return found_by(words, self._emitted.failures)
