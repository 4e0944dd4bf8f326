"""Running: a program is taken through all passes and compiled, then called with memory.

`build` makes an `Executable` of a recorded program. Its table of buffers holds the addresses of
inputs, constants, results and the arena; those that stay the same are filled in once. The arena is
scratch memory that all programs share, for one runs at a time; only a program with callbacks has
its own while it runs, because its callbacks may start others.
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

from ..source import describe
from . import driver, native, pool
from .again import again
from .emit import MAX_THREADS, Emitted, Pointer, Segment, emit
from .fuse import fuse, inline
from .lower import lower
from .placing import place
from .plan import Place, plan
from .program import FAILURES, Callback, Program, View, contiguous
from .simplify import common, constants, dead

#: blocks of scratch memory that programs with callbacks leave for the next one
MOST_BLOCKS = 4
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


def build(program: Program, general: bool = False) -> Executable:
    """Compile a recorded program, with kernels for its own sizes or for others as well."""
    began = time.perf_counter()
    skipped = os.environ.get("TAPEGRAD_WITHOUT", "").split(",")
    with _all_kept():
        for name, change in PASSES.items():
            if name == "lower" or name not in skipped:
                program = change(program)
        return Executable(program, began, general)


@contextmanager
def _all_kept() -> Iterator[None]:
    """Without searches for cycles: passes make hundreds of thousands of objects and no cycle.

    Without them the first calls of a small GPT take 0.92 s instead of 0.98 s.
    """
    searching = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        if searching:
            gc.enable()


class Frame:
    """The memory of a run: the table of buffers, and the steps with their tables."""

    __slots__ = ("_owned", "arena", "buffers", "descriptors", "parts", "where")

    def __init__(self, executable: Executable, layout: Layout, buffers: Any, shared: bool) -> None:
        self.buffers = buffers
        emitted = layout.emitted
        #: scratch memory, if it is not shared with other programs
        self.arena: Any = None
        #: which buffers the arrays of a call are
        self.where = np.zeros(len(buffers), np.int64)
        self._owned: list[Any] = []
        self.descriptors: list[Any] = []
        #: the address of a descriptor for each segment, and callbacks between them
        self.parts: list[Any] = []
        for segment in emitted.segments:
            if not isinstance(segment, Segment):
                self.parts.append(segment)
                continue
            descriptor = self._described(segment, layout.functions)
            descriptor[driver.STATUS] = executable.status.ctypes.data
            descriptor[driver.STATUS_COUNT] = len(executable.status)
            if shared:
                descriptor[driver.OBJECT_BUFFERS] = self.where.ctypes.data
                descriptor[driver.MEMORY_IN_OBJECT] = MEMORY_IN_ARRAY
                descriptor[driver.SCRATCH] = executable.scratch
            descriptor[driver.ARENA] = emitted.arena
            descriptor[driver.PARTIALS] = emitted.partials
            descriptor[driver.PARTIALS_OFFSET] = executable.partials_offset
            self.parts.append(descriptor.ctypes.data)
            self.descriptors.append(descriptor)

    def _described(self, segment: Segment, functions: dict[str, native.Function]) -> Any:
        """The descriptor of a segment's program: see `driver.py`."""
        steps = np.zeros((len(segment.steps), driver.WORDS), np.int64)
        tables = np.zeros(sum(len(step.table) for step in segment.steps) + 1, np.int64)
        pointers = []
        at = 0
        for row, step in zip(steps, segment.steps, strict=True):
            address = 0 if step.text is None else functions[step.text].address
            row[:5] = step.what, address, step.extent, step.grain, tables.ctypes.data + 8 * at
            for entry in step.table:
                if isinstance(entry, Pointer):
                    pointers.append((at, entry.buffer, entry.offset))
                else:
                    tables[at] = entry
                at += 1
        patches = np.array(pointers, np.int64).reshape(-1, 3)
        self._owned += [steps, tables, patches]
        descriptor = np.zeros(driver.DESCRIPTOR_WORDS, np.int64)
        descriptor[driver.STEPS] = steps.ctypes.data
        descriptor[driver.PATCHES] = patches.ctypes.data
        descriptor[driver.PATCH_COUNT] = len(patches)
        descriptor[driver.TABLES] = tables.ctypes.data
        descriptor[driver.BUFFERS] = self.buffers.ctypes.data
        return descriptor

    def expect(self, buffers: Sequence[int]) -> None:
        """Say which buffers the arrays of a call are; native code then finds their memory."""
        (descriptor,) = self.descriptors
        descriptor[driver.OBJECT_COUNT] = 0
        self.where[: len(buffers)] = buffers
        descriptor[driver.OBJECT_COUNT] = len(buffers)


class Layout:
    """The steps of a program for a number of threads."""

    __slots__ = ("asked", "emitted", "frame", "functions", "idle", "threads")

    def __init__(self, asked: int, emitted: Emitted) -> None:
        #: how many threads the user wants, and how many the steps are laid out for
        self.asked = asked
        self.threads = min(asked, MAX_THREADS)
        self.emitted = emitted
        texts = [
            step.text
            for segment in emitted.segments
            if isinstance(segment, Segment)
            for step in segment.steps
            if step.text is not None
        ]
        self.functions = native.functions(texts)
        #: the frame of all runs, which native code fills in anew for each
        self.frame: Frame | None = None
        #: frames that no run uses, of programs that are filled in by Python
        self.idle: list[Frame] = []


#: scratch memory that no program uses
_blocks: list[Any] = []


def _block(size: int) -> Any:
    """Scratch memory for a program with callbacks: it may start others while it runs."""
    for _ in range(MOST_BLOCKS):
        try:
            block = _blocks.pop()
        except IndexError:
            break
        if size <= block.size <= 4 * size:
            return block
    return np.empty(size, np.uint8)


class Executable:
    """A compiled program, ready to be called."""

    def __init__(self, program: Program, began: float, general: bool) -> None:
        asked = pool.get_num_threads()
        self.plan = plan(program, min(asked, MAX_THREADS))
        self.program = self.plan.program
        self.general = general
        self._layout = layout = Layout(asked, emit(self.plan, general, min(asked, MAX_THREADS)))
        emitted = layout.emitted
        self.large = emitted.work > SMALL_PROGRAM
        self.partials_offset = -(-self.plan.arena // 64) * 64
        #: bytes of the arena and of what threads leave for one another
        self.scratch = self.partials_offset + emitted.scratch
        self.status = np.zeros(max(len(emitted.failures), 1), np.int64)
        self._constants = [np.ascontiguousarray(array) for _, array in program.constants]
        self.buffers = np.zeros(emitted.partials + 1, np.uintp)
        inputs = len(program.inputs)
        for i, array in enumerate(self._constants):
            self.buffers[inputs + i] = array.ctypes.data
        self.first_result = inputs + len(self._constants)
        self.buffers[emitted.status] = self.status.ctypes.data
        # A program with callbacks has several segments, and needs the addresses in Python.
        self._is_whole = (
            MEMORY_IN_ARRAY > 0
            and FIRST_IN_TUPLE > 0
            and len(emitted.segments) == 1
            and not self.callbacks
        )
        if self._is_whole:
            layout.frame = Frame(self, layout, self.buffers, shared=True)
        self._expected: list[int] = []
        self.compile_seconds = time.perf_counter() - began

    @property
    def emitted(self) -> Emitted:
        """What the program became."""
        return self._layout.emitted

    @property
    def functions(self) -> dict[str, native.Function]:
        """The compiled kernels, by their text."""
        return self._layout.functions

    @property
    def callbacks(self) -> list[Callback]:
        return [s for s in self.emitted.segments if isinstance(s, Callback)]

    def expect(self, inputs: Sequence[int]) -> None:
        """Say which inputs each call brings; their arrays come first, those of results after."""
        results = range(self.first_result, self.first_result + len(self.program.results))
        self._expected = [*inputs, *results]
        if self._layout.frame is not None:
            self._layout.frame.expect(self._expected)

    def _divided(self, threads: int) -> Layout:
        """Lay out the steps for another number of threads."""
        emitted = emit(self.plan, self.general, min(threads, MAX_THREADS))
        layout = Layout(threads, emitted)
        if self._is_whole:
            layout.frame = Frame(self, layout, self.buffers, shared=True)
            layout.frame.expect(self._expected)
        self._layout = layout
        return layout

    def run(self, arrays: tuple[Any, ...]) -> None:
        """Run on the memory of arrays: the expected inputs, then the results."""
        workers = pool.pool
        layout = self._layout
        threads = 1
        if self.large:
            if workers.threads != layout.asked:
                layout = self._divided(workers.threads)
            threads = layout.threads
        frame = layout.frame
        if frame is None:
            self._run_parts(layout, threads, arrays)
            return
        # Names of this frame keep the code and the tables while they are in use.
        failure = workers.run(frame.parts[0], threads, id(arrays) + FIRST_IN_TUPLE)
        if failure:
            self._fail(failure)

    def _fail(self, failure: int) -> None:
        found, code = divmod(failure, 256)
        error, message = FAILURES[code]
        name, place = self.emitted.failures[found]
        raise error(f"{name}: {message}, at {describe(place)}")

    # -- programs with callbacks -------------------------------------------------------------

    def _run_parts(self, layout: Layout, threads: int, arrays: tuple[Any, ...]) -> None:
        """Run segments and callbacks in turn, in a frame that is no other run's."""
        try:
            frame = layout.idle.pop()
        except IndexError:
            frame = Frame(self, layout, np.empty_like(self.buffers), shared=False)
        frame.buffers[:] = self.buffers
        frame.buffers[self._expected] = [a.__array_interface__["data"][0] for a in arrays]
        frame.arena = block = _block(self.scratch + 64)
        arena = -(-block.ctypes.data // 64) * 64
        frame.buffers[layout.emitted.arena] = arena
        frame.buffers[layout.emitted.partials] = arena + self.partials_offset
        for part in frame.parts:
            if part.__class__ is Callback:
                self._call(part, frame)
                continue
            failure = pool.pool.run(part, threads, 0)
            if failure:
                self._fail(failure)
        frame.arena = None
        if len(_blocks) < MOST_BLOCKS and sys.getrefcount(block) <= 2:  # this name and the argument
            _blocks.append(block)
        if not layout.idle:
            layout.idle.append(frame)

    def _call(self, callback: Callback, frame: Frame) -> None:
        given = [self._array(x, frame) if isinstance(x, View) else x for x in callback.inputs]
        made = callback.primitive.kernel(*given, **callback.params)
        arrays = made if isinstance(made, tuple) else (made,)
        for value, array in zip(callback.outputs, arrays, strict=False):
            view = View(value, 0, value.shape, contiguous(value.shape))
            self._array(view, frame)[...] = array

    def _array(self, view: View, frame: Frame) -> Any:
        """The memory of a view as a NumPy array."""
        dtype = view.root.dtype
        size = int(dtype.itemsize)
        ends = [(n - 1) * s for n, s in zip(view.shape, view.strides, strict=True) if n > 1]
        low, high = sum(e for e in ends if e < 0), sum(e for e in ends if e > 0)
        place = self.plan.places[view.root.number]
        start = self._address(place, frame) + (view.offset + low) * size
        length = (high - low + 1) * size
        memory: Any
        if place.kind == "arena":  # a callback that keeps such an array keeps its memory
            first = start - frame.arena.ctypes.data
            memory = frame.arena[first : first + length]
        else:
            memory = (ctypes.c_char * length).from_address(start)
        strides = tuple(s * size for s in view.strides)
        return np.ndarray(view.shape, dtype, memory, -low * size, strides)

    def _address(self, place: Place, frame: Frame) -> int:
        if place.kind == "arena":
            return int(frame.buffers[self.emitted.arena]) + place.index
        first = {"input": 0, "constant": len(self.program.inputs), "result": self.first_result}
        return int(frame.buffers[first[place.kind] + place.index])
