"""Running: a program is taken through all passes and compiled, then called with memory.

`build` makes an `Executable` of a recorded program. Its table of buffers holds the addresses of
inputs, constants, results and the arena; those that stay the same are filled in once. A program
whose blueprint an earlier process has left on disk (`stored.py`) goes through the passes only when
somebody asks what became of it, or for another number of threads.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..failures import described
from ..source import describe
from . import native, pool, stored
from .again import again
from .blueprint import Blueprint, Steps, blueprint_of, texts_of
from .emit import MAX_THREADS, Emitted, emit
from .fuse import fuse, inline
from .lower import lower
from .placing import place
from .plan import Place, Plan, plan
from .program import Callback, Program, View, contiguous
from .progress import Progress
from .simplify import common, constants, dead

#: the word of a descriptor that says where the arrays of a call are
OBJECTS = 8
#: work (elements and multiplications) below which one thread is enough
SMALL_PROGRAM = 200_000

Pass = Callable[[Program], Program]


def _offset_in(holder: Any, word: int) -> int:
    """Where in an object a word is found; 0 if that cannot be told."""
    if sys.implementation.name == "cpython":
        for offset in range(0, 64, 8):
            if ctypes.c_size_t.from_address(id(holder) + offset).value == word:
                return offset
    return 0


# Native code that looks itself where a tuple keeps its arrays, and an array the address of its
# memory, saves 1 µs for each array of a call.
_ARRAY = np.zeros(3)
MEMORY_IN_ARRAY = _offset_in(_ARRAY, _ARRAY.ctypes.data)
FIRST_IN_TUPLE = _offset_in((_ARRAY, None), id(_ARRAY))

#: the passes in order, by name; TAPEGRAD_WITHOUT=name,name leaves some out, to find a wrong one
PASSES: dict[str, Pass] = {
    "constants": constants,
    "common": common,
    "dead": dead,
    "lower": lower,
    "place": place,
    "inline": inline,
    "fuse": fuse,
    "again": again,
    "trim": dead,
}


def build(program: Program, general: bool = False, name: str = "a program") -> Executable:
    """Compile a recorded program, with kernels for its own sizes or for others as well."""
    with _all_kept(), Progress(f"compiling {name}") as progress:
        return Executable(program, general, progress)


def passed(program: Program, progress: Progress) -> Program:
    """A recorded program after all passes."""
    skipped = os.environ.get("TAPEGRAD_WITHOUT", "").split(",")
    progress.stage(f"passes over {len(program.instructions)} operations")
    for name, change in PASSES.items():
        if name == "lower" or name not in skipped:
            program = change(program)
            progress.check()
    return program


@contextmanager
def _all_kept() -> Iterator[None]:
    """Without searches for cycles: passes make hundreds of thousands of objects and no cycle.

    Without them the first calls of a small GPT take 0.92 s instead of 0.98 s.
    """
    searching = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if searching:
            gc.enable()


class Executable:
    """A compiled program with its arena, ready to be called."""

    def __init__(self, program: Program, general: bool, progress: Progress) -> None:
        began = time.perf_counter()
        self._recorded = program
        self.general = general
        #: how many threads the user wants, and how many steps and plan are made for
        self.asked = pool.get_num_threads()
        self.threads = self._planned = min(self.asked, MAX_THREADS)
        self._plan: Plan | None = None
        self._emitted: Emitted | None = None
        self._functions: list[native.Function] = []
        self.first_result = 0
        self.buffers: Any = np.zeros(0, np.uintp)
        self._take(self._blueprint(progress))
        self.compile_seconds = time.perf_counter() - began

    def _blueprint(self, progress: Progress) -> Blueprint:
        """The blueprint and the kernels for so many threads: from disk, or made now."""
        name = stored.name_of(self._recorded, self.general, self.threads)
        # A plan that is there already decides where everything is.
        if name is not None and self._plan is None:
            found = stored.load(name, self._recorded)
            functions = None if found is None else native.stored(found[1])
            if found is not None and functions is not None:
                self._functions = functions
                return found[0]
        if self._plan is None:
            self._plan = plan(passed(self._recorded, progress), self._planned)
            progress.check()
        blueprint = blueprint_of(self._plan, self.emitted)
        progress.check()
        self._functions = list(native.functions(texts_of(self.emitted), progress).values())
        if name is not None and self.threads == self._planned:
            stored.store(name, self._recorded, blueprint, [f.name for f in self._functions])
        return blueprint

    def _take(self, blueprint: Blueprint) -> None:
        """Give a blueprint its memory and its addresses; those of inputs stay."""
        inputs, results = len(self._recorded.inputs), len(self._recorded.results)
        self._failures = blueprint.failures
        self.large = blueprint.work > SMALL_PROGRAM
        self._constants = blueprint.constants
        self.first_result = inputs + len(self._constants)
        self._arena_at = self.first_result + results
        given = self.buffers[:inputs]
        self.buffers = np.zeros(self._arena_at + 3, np.uintp)
        self.buffers[: len(given)] = given
        for i, array in enumerate(self._constants):
            self.buffers[inputs + i] = array.ctypes.data
        self._arena = np.empty(max(blueprint.arena, 64) + 64, np.uint8)
        self._status = np.zeros(max(len(blueprint.failures), 1), np.int64)
        self._control = np.zeros(16, np.int64)
        self._partials = np.zeros(blueprint.scratch + 64, np.uint8)
        self.buffers[self._arena_at :] = (
            -(-self._arena.ctypes.data // 64) * 64,
            self._status.ctypes.data,
            -(-self._partials.ctypes.data // 64) * 64,
        )
        self._segments: list[Any] = [
            self._described(segment) if isinstance(segment, Steps) else segment
            for segment in blueprint.segments
        ]

    def _divide(self, threads: int) -> None:
        """Lay out the steps for another number of threads."""
        self.asked, self.threads = threads, min(threads, MAX_THREADS)
        self._emitted = None
        if self._plan is None:
            self._planned = self.threads
        with Progress(f"compiling for {threads} threads") as progress:
            self._take(self._blueprint(progress))
        self.expect(self._expected)

    def _described(self, segment: Steps) -> Any:
        """The descriptor of a segment's program: see `pool.py`."""
        tables = np.append(segment.tables, 0)
        addresses = np.array([0, *[function.address for function in self._functions]], np.int64)
        what, kernels, extents, grains, begins = segment.steps.T
        steps = np.zeros((len(segment.steps), pool.WORDS), np.int64)
        steps[:, 0], steps[:, 1] = what, addresses[kernels + 1]
        steps[:, 2], steps[:, 3], steps[:, 4] = extents, grains, tables.ctypes.data + 8 * begins
        patches = segment.patches
        parts = (steps, self._control, patches, tables, self.buffers)
        steps_at, control_at, patches_at, tables_at, buffers_at = (a.ctypes.data for a in parts)
        descriptor = np.zeros(10, np.int64)
        descriptor[:6] = steps_at, control_at, patches_at, len(patches), tables_at, buffers_at
        return descriptor.ctypes.data, (descriptor, *parts)

    # -- what became of the program ----------------------------------------------------------

    @property
    def plan(self) -> Plan:
        if self._plan is None:
            with _all_kept(), Progress("finding out what became of a program") as progress:
                self._plan = plan(passed(self._recorded, progress), self._planned)
        return self._plan

    @property
    def program(self) -> Program:
        """The program after all passes."""
        return self.plan.program

    @property
    def emitted(self) -> Emitted:
        if self._emitted is None:
            self._emitted = emit(self.plan, self.general, self.threads)
        return self._emitted

    @property
    def functions(self) -> dict[str, native.Function]:
        """The kernels by their text."""
        return native.functions(texts_of(self.emitted))

    @property
    def callbacks(self) -> list[Callback]:
        return [s for s in self._segments if isinstance(s, Callback)]

    def expect(self, inputs: Sequence[int]) -> None:
        """Say which inputs each call brings; their arrays come first, those of results after."""
        self._expected = list(inputs)
        results = range(self.first_result, self.first_result + len(self._recorded.results))
        self._where = np.array([*inputs, *results, 0], np.int64)
        self._descriptor: Any = None
        # A program with callbacks has several segments, and needs the addresses in Python.
        if MEMORY_IN_ARRAY and FIRST_IN_TUPLE and len(self._segments) == 1 and not self.callbacks:
            ((_, (self._descriptor, *_)),) = self._segments
            count = len(self._where) - 1
            self._descriptor[6:] = count, self._where.ctypes.data, 0, MEMORY_IN_ARRAY

    def run(self, arrays: tuple[Any, ...]) -> None:
        """Run on the memory of arrays: the expected inputs, then the results."""
        workers = pool.pool
        with workers.lock:
            threads = 1
            if self.large:
                threads = pool.get_num_threads()
                if threads != self.asked:
                    self._divide(threads)
                threads = self.threads
            if self._descriptor is not None:
                self._descriptor[OBJECTS] = id(arrays) + FIRST_IN_TUPLE
            else:
                addresses = [array.__array_interface__["data"][0] for array in arrays]
                self.buffers[self._where[:-1]] = addresses
            for segment in self._segments:
                if segment.__class__ is Callback:
                    self._call(segment)
                elif workers.run(segment[0], threads):
                    self._fail()

    def _fail(self) -> None:
        found = int(np.flatnonzero(self._status)[0])
        name, place = self._failures[found]
        error, message = described(int(self._status[found]), name)
        self._status[:] = 0
        raise error(f"{message}, at {describe(place)}")

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
            return int(self.buffers[self._arena_at]) + place.index
        first = {"input": 0, "constant": len(self._recorded.inputs), "result": self.first_result}
        return int(self.buffers[first[place.kind] + place.index])
