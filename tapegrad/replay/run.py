"""Running: a program is taken through all passes and compiled, then called with memory.

`build` makes an `Executable` of a recorded program. Its table of buffers holds the addresses of
inputs, constants, results and the arena; those that stay the same are filled in once.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..source import describe
from . import native, pool
from .emit import MAX_THREADS, Segment, emit
from .fuse import fuse
from .lower import lower
from .plan import Place, plan
from .program import FAILURES, Callback, Program, View, contiguous
from .simplify import common, constants, dead

#: work (elements and multiplications) below which one thread is enough
SMALL_PROGRAM = 200_000

Pass = Callable[[Program], Program]

#: the passes in order, by name; TAPEGRAD_WITHOUT=name,name leaves some out, to find a wrong one
PASSES: dict[str, Pass] = {
    "constants": constants,
    "common": common,
    "dead": dead,
    "lower": lambda program: lower(program, native.blas()),
    "fuse": fuse,
    "trim": dead,
}


def build(program: Program) -> Executable:
    """Compile a recorded program."""
    began = time.perf_counter()
    skipped = os.environ.get("TAPEGRAD_WITHOUT", "").split(",")
    for name, change in PASSES.items():
        if name == "lower" or name not in skipped:
            program = change(program)
    return Executable(program, began)


class Executable:
    """A compiled program with its arena, ready to be called."""

    def __init__(self, program: Program, began: float) -> None:
        self.plan = plan(program)
        self.program = self.plan.program
        self.emitted = emit(self.plan)
        self.library = native.compile_module(self.emitted.text) if self.emitted.text else None
        self._arena = np.empty(max(self.plan.arena, 64) + 64, np.uint8)
        self._status = np.zeros(max(len(self.emitted.failures), 1), np.int64)
        self._control = np.zeros(64, np.int64)
        self._partials = np.zeros(self.emitted.scratch + 64, np.uint8)
        self._constants = [np.ascontiguousarray(array) for _, array in program.constants]
        self.buffers = np.zeros(self.emitted.partials + 1, np.uintp)
        self._table = self.buffers.ctypes.data
        inputs = len(program.inputs)
        for i, array in enumerate(self._constants):
            self.buffers[inputs + i] = array.ctypes.data
        self.first_result = inputs + len(self._constants)
        self.buffers[self.emitted.arena] = -(-self._arena.ctypes.data // 64) * 64
        self.buffers[self.emitted.status] = self._status.ctypes.data
        self.buffers[self.emitted.control] = self._control.ctypes.data
        self.buffers[self.emitted.partials] = -(-self._partials.ctypes.data // 64) * 64
        self._steps: list[Any] = []
        for step in self.emitted.steps:
            if isinstance(step, Segment):
                assert self.library is not None
                address = self.library.address(step.name)
                self._steps.append((pool.Program(address), address))
            else:
                self._steps.append(step)
        self.compile_seconds = time.perf_counter() - began

    @property
    def callbacks(self) -> list[Callback]:
        return [step for step in self._steps if isinstance(step, Callback)]

    def run(self, inputs: Sequence[tuple[int, int]], results: Sequence[int]) -> None:
        """Run on memory: (position, address) of the inputs that move, and addresses of results."""
        workers = pool.pool
        with workers.lock:
            buffers = self.buffers
            for i, address in inputs:
                buffers[i] = address
            if results:
                buffers[self.first_result : self.first_result + len(results)] = results
            threads = 1
            if self.emitted.work > SMALL_PROGRAM:
                threads = min(pool.get_num_threads(), MAX_THREADS)
            for step in self._steps:
                if isinstance(step, Callback):
                    self._call(step)
                elif workers.run(step[0], step[1], self._table, threads):
                    self._fail()

    def _fail(self) -> None:
        found = int(np.flatnonzero(self._status)[0])
        error, message = FAILURES[int(self._status[found])]
        self._status[:] = 0
        name, place = self.emitted.failures[found]
        raise error(f"{name}: {message}, at {describe(place)}")

    # -- callbacks ---------------------------------------------------------------------------

    def _call(self, callback: Callback) -> None:
        given = [self._array(x) if isinstance(x, View) else x for x in callback.inputs]
        made = callback.primitive.kernel(*given, **callback.params)
        arrays = made if isinstance(made, tuple) else (made,)
        for value, array in zip(callback.outputs, arrays, strict=False):
            view = View(value, 0, value.shape, contiguous(value.shape))
            self._array(view)[...] = array

    def _array(self, view: View) -> Any:
        """The memory of a view as a NumPy array."""
        dtype = view.root.dtype
        size = int(dtype.itemsize)
        ends = [(n - 1) * s for n, s in zip(view.shape, view.strides, strict=True) if n > 1]
        low, high = sum(e for e in ends if e < 0), sum(e for e in ends if e > 0)
        start = self._address(self.plan.places[view.root.number]) + (view.offset + low) * size
        memory: Any = (ctypes.c_char * ((high - low + 1) * size)).from_address(start)
        strides = tuple(s * size for s in view.strides)
        return np.ndarray(view.shape, dtype, memory, -low * size, strides)

    def _address(self, place: Place) -> int:
        if place.kind == "arena":
            return int(self.buffers[self.emitted.arena]) + place.index
        first = {"input": 0, "constant": len(self.program.inputs), "result": self.first_result}
        return int(self.buffers[first[place.kind] + place.index])
