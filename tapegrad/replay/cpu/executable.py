"""Executables: a program goes through all passes, is compiled, and is called with memory.

Comes in: a recorded program (`build`). Goes out: a `NativeProgram`. Its table of buffers holds the
addresses of inputs, constants, results and the arena; constant addresses are filled in once. The
arena is scratch memory that all programs share, because only one runs at a time. A program with
callbacks has its own while it runs, because its callbacks may start other programs. If an earlier
process left the blueprint on disk (`stored.py`), the passes run only if their result is asked for,
or another number of threads. Called by `target.py` and `use/eager.py`.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...core.failures import described
from ...core.source import describe
from ...core.xp import address
from ..ir.program import Callback, Program, View, contiguous
from ..native.plan import Allocation, Plan
from . import budget, driver_layout, jit, pool, stored, tuning
from .blueprint import Blueprint, Steps, blueprint_of, texts_of
from .collector import gc_paused
from .emit import Emitted, emit
from .progress import Progress


def _offset_in(holder: Any, word: int) -> int:
    """The offset of a word in an object, in bytes; 0 if it is not found."""
    if sys.implementation.name == "cpython":
        for offset in range(0, 64, 8):
            if ctypes.c_size_t.from_address(id(holder) + offset).value == word:
                return offset
    return 0


# Native code reads the arrays of a tuple, and the address of an array's memory, at these offsets:
# that saves 1 µs for each array of a call.
_ARRAY = np.zeros(3)
MEMORY_IN_ARRAY = _offset_in(_ARRAY, _ARRAY.ctypes.data)
FIRST_IN_TUPLE = _offset_in((_ARRAY, None), id(_ARRAY))


def build(program: Program, general: bool = False, name: str = "a program") -> NativeProgram:
    """Compile a recorded program; `general` kernels serve other sizes as well."""
    with gc_paused(), Progress(f"compiling {name}") as progress:
        built = NativeProgram(program, general, progress)
    budget.warn_if_exceeded(name, program.budget, built.scratch)
    return built


class Layout:
    """The steps of a program for a number of threads, with its table of buffers."""

    __slots__ = (
        *("arena_at", "asked", "blueprint", "buffers", "emitted", "expected", "first_result"),
        *("frame", "functions", "idle", "partials_offset", "plan", "planned", "scratch", "status"),
        "threads",
    )

    def __init__(
        self,
        program: Program,
        asked: int,
        blueprint: Blueprint,
        functions: list[jit.NativeFunction],
        made_of: tuple[int, Plan | None, Emitted | None],
    ) -> None:
        #: the threads that the user asked for, and those that the steps are laid out for
        self.asked = asked
        self.threads = min(asked, driver_layout.MAX_THREADS)
        self.blueprint = blueprint
        self.functions = functions
        #: the number of threads that the plan is for; the plan and emission, if they are known
        self.planned, self.plan, self.emitted = made_of
        inputs = len(program.inputs)
        self.first_result = inputs + len(blueprint.constants)
        #: position of the arena in the table of buffers; status and partial results follow
        self.arena_at = self.first_result + len(program.results)
        self.partials_offset = -(-blueprint.arena // 64) * 64
        #: bytes of the arena and of the scratch memory that threads use
        self.scratch = self.partials_offset + blueprint.scratch
        self.status = np.zeros(max(len(blueprint.failures), 1), np.int64)
        self.buffers = np.zeros(self.arena_at + 3, np.uintp)
        for i, array in enumerate(blueprint.constants):
            self.buffers[inputs + i] = array.ctypes.data
        self.buffers[self.arena_at + 1] = self.status.ctypes.data
        #: the buffer of each array of a call
        self.expected: list[int] = []
        # A program with callbacks has several segments, and Python needs its addresses.
        is_whole = (
            MEMORY_IN_ARRAY > 0
            and FIRST_IN_TUPLE > 0
            and len(blueprint.segments) == 1
            and isinstance(blueprint.segments[0], Steps)
        )
        #: the frame of all runs, which native code fills in for each
        self.frame = Frame(self, self.buffers, shared=True) if is_whole else None
        #: unused frames, of programs that Python fills in
        self.idle: list[Frame] = []

    def expect(self, inputs: Sequence[int]) -> None:
        """Set the inputs that each call brings; their arrays come first, those of results after."""
        self.expected = [*inputs, *range(self.first_result, self.arena_at)]
        if self.frame is not None:
            self.frame.expect(self.expected)


class Frame:
    """The memory of a run: the table of buffers, and the steps with their tables."""

    __slots__ = ("arena", "begun", "buffers", "descriptors", "parts", "where", "words")

    def __init__(self, layout: Layout, buffers: Any, shared: bool) -> None:
        self.buffers = buffers
        #: scratch memory, if it is not shared with other programs
        self.arena: Any = None
        #: collectives that a run has begun and not waited for: handles and groups
        self.begun: dict[int, Any] = {}
        #: the buffer of each array of a call
        self.where = np.zeros(len(buffers), np.int64)
        #: the steps, tables and pointers of each segment
        self.words: list[tuple[Any, Any, Any]] = []
        self.descriptors: list[Any] = []
        #: the address of a descriptor for each segment, and callbacks between them
        self.parts: list[Any] = []
        addresses = np.array([0, *[function.address for function in layout.functions]], np.int64)
        for segment in layout.blueprint.segments:
            if not isinstance(segment, Steps):
                self.parts.append(segment)
                continue
            descriptor = self._described(segment, addresses)
            descriptor[driver_layout.STATUS] = layout.status.ctypes.data
            descriptor[driver_layout.STATUS_COUNT] = len(layout.status)
            if shared:
                descriptor[driver_layout.OBJECT_BUFFERS] = self.where.ctypes.data
                descriptor[driver_layout.MEMORY_IN_OBJECT] = MEMORY_IN_ARRAY
                descriptor[driver_layout.SCRATCH] = layout.scratch
            descriptor[driver_layout.ARENA] = layout.arena_at
            descriptor[driver_layout.PARTIALS] = layout.arena_at + 2
            descriptor[driver_layout.PARTIALS_OFFSET] = layout.partials_offset
            self.parts.append(descriptor.ctypes.data)
            self.descriptors.append(descriptor)

    def _described(self, segment: Steps, addresses: Any) -> Any:
        """The descriptor of a segment's program: see `driver_layout.py`."""
        tables = np.append(segment.tables, 0)
        what, kernels, extents, grains, begins, parts = segment.steps.T
        steps = np.zeros((len(segment.steps), driver_layout.WORDS), np.int64)
        steps[:, 0], steps[:, 1] = what, addresses[kernels + 1]
        steps[:, 2], steps[:, 3], steps[:, 4] = extents, grains, tables.ctypes.data + 8 * begins
        steps[:, 5] = parts
        patches = segment.patches
        self.words.append((steps, tables, patches))
        descriptor = np.zeros(driver_layout.DESCRIPTOR_WORDS, np.int64)
        descriptor[driver_layout.STEPS] = steps.ctypes.data
        descriptor[driver_layout.PATCHES] = patches.ctypes.data
        descriptor[driver_layout.PATCH_COUNT] = len(patches)
        descriptor[driver_layout.TABLES] = tables.ctypes.data
        descriptor[driver_layout.BUFFERS] = self.buffers.ctypes.data
        descriptor[driver_layout.PARTS] = parts.max(initial=1)
        return descriptor

    def expect(self, buffers: Sequence[int]) -> None:
        """Set the buffer of each array of a call; native code then finds their memory."""
        (descriptor,) = self.descriptors
        descriptor[driver_layout.OBJECT_COUNT] = 0
        self.where[: len(buffers)] = buffers
        descriptor[driver_layout.OBJECT_COUNT] = len(buffers)


#: unused blocks of scratch memory
_blocks: list[Any] = []


def _block(size: int) -> Any:
    """Scratch memory for a program with callbacks, which may start other programs."""
    for _ in range(tuning.MAX_IDLE_SCRATCH_BLOCKS):
        try:
            block = _blocks.pop()
        except IndexError:
            break
        if size <= block.size <= tuning.MAX_SCRATCH_BLOCK_SIZE_RATIO * size:
            return block
    return np.empty(size, np.uint8)


class NativeProgram:
    """A compiled program, ready to be called."""

    def __init__(self, program: Program, general: bool, progress: Progress) -> None:
        began = time.perf_counter()
        self._recorded = program
        self.general = general
        self._layout = self._laid_out(pool.get_num_threads(), None, progress)
        self.large = self._layout.blueprint.work > tuning.MAX_SINGLE_THREAD_PROGRAM_WORK
        self.compile_seconds = time.perf_counter() - began

    def _laid_out(self, asked: int, before: Layout | None, progress: Progress) -> Layout:
        """The blueprint and the kernels for `asked` threads: from disk, or made now."""
        recorded, threads = self._recorded, min(asked, driver_layout.MAX_THREADS)
        name = stored.name_of(recorded, self.general, threads)
        # An existing plan already decides the addresses of values.
        planned, made = (threads, None) if before is None else (before.planned, before.plan)
        if made is None:
            planned = threads
            found = None if name is None else stored.load(name, recorded)
            functions = None if found is None else jit.stored(found[1])
            if found is not None and functions is not None:
                return Layout(recorded, asked, found[0], functions, (planned, None, None))
            made = budget.planned(recorded, self.general, planned, progress)
            progress.check()
        emitted = emit(made, self.general, threads)
        blueprint = blueprint_of(made, emitted)
        progress.check()
        functions = list(jit.functions(texts_of(emitted), progress).values())
        if name is not None and threads == planned:
            stored.store(name, recorded, blueprint, [f.name for f in functions])
        return Layout(recorded, asked, blueprint, functions, (planned, made, emitted))

    def _divided(self, threads: int) -> Layout:
        """Lay out the steps for another number of threads."""
        before = self._layout
        with Progress(f"compiling for {threads} threads") as progress:
            layout = self._laid_out(threads, before, progress)
        inputs = len(self._recorded.inputs)
        layout.buffers[:inputs] = before.buffers[:inputs]
        layout.expect([i for i in before.expected if i < inputs])
        self._layout = layout
        return layout

    def forget(self) -> None:
        """Forget the plan and the text of kernels, which are made again if they are asked for."""
        self._layout.plan = self._layout.emitted = None

    def alone(self) -> Layout | None:
        """Another layout for one thread, with tables of its own; None for a large program."""
        before = self._layout
        if self.large or before.frame is None or (before.frame.words[0][0][:, 5] > 1).any():
            return None
        made_of = (before.planned, before.plan, before.emitted)
        layout = Layout(self._recorded, 1, before.blueprint, before.functions, made_of)
        layout.expect(range(len(self._recorded.inputs)))
        return layout

    @property
    def scratch(self) -> int:
        """Bytes that a run takes for values and for the scratch memory of threads."""
        return self._layout.scratch

    # -- the compiled program ----------------------------------------------------------------

    @property
    def plan(self) -> Plan:
        layout = self._layout
        if layout.plan is None:
            with gc_paused(), Progress("finding out what became of a program") as progress:
                layout.plan = budget.planned(self._recorded, self.general, layout.planned, progress)
        return layout.plan

    @property
    def program(self) -> Program:
        """The program after all passes."""
        return self.plan.program

    @property
    def emitted(self) -> Emitted:
        layout = self._layout
        if layout.emitted is None:
            layout.emitted = emit(self.plan, self.general, layout.threads)
        return layout.emitted

    @property
    def functions(self) -> dict[str, jit.NativeFunction]:
        """The kernels by their text."""
        return jit.functions(texts_of(self.emitted))

    @property
    def callbacks(self) -> list[Callback]:
        return [s for s in self._layout.blueprint.segments if isinstance(s, Callback)]

    # -- running -----------------------------------------------------------------------------

    def bind(self, arrays: Mapping[int, Any]) -> None:
        """Bind some inputs to the same arrays in all calls; the caller keeps these alive."""
        for i, array in arrays.items():
            self._layout.buffers[i] = address(array)

    def expect(self, inputs: Sequence[int]) -> None:
        """Set the inputs that each call brings; their arrays come first, those of results after."""
        self._layout.expect(inputs)

    def describe(self) -> str:
        return f"as {len(self.emitted.kernels)} kernels of native code"

    def run(self, arrays: tuple[Any, ...]) -> None:
        """Run on the memory of arrays: the expected inputs, then the results."""
        error = self.attempt(arrays)
        if error is not None:
            raise error

    def attempt(self, arrays: tuple[Any, ...]) -> Exception | None:
        """Run, and return the error that bad data caused, if any.

        Errors of callbacks and signal handlers are raised.
        """
        workers = pool.pool
        layout = self._layout
        if self.large and workers.threads != layout.asked:
            layout = self._divided(workers.threads)
        threads = layout.threads
        frame = layout.frame
        if frame is None:
            return self._run_parts(layout, threads, arrays)
        # Local variables keep the code and the tables alive while they are in use.
        failure = workers.run(frame.parts[0], threads, id(arrays) + FIRST_IN_TUPLE)
        return _error(layout.blueprint, failure) if failure else None

    # -- programs with callbacks -------------------------------------------------------------

    def _run_parts(self, layout: Layout, threads: int, arrays: tuple[Any, ...]) -> Exception | None:
        """Run segments and callbacks in turn, in a frame that no other run uses."""
        try:
            frame = layout.idle.pop()
        except IndexError:
            frame = Frame(layout, np.empty_like(layout.buffers), shared=False)
        frame.buffers[:] = layout.buffers
        frame.buffers[layout.expected] = [a.__array_interface__["data"][0] for a in arrays]
        frame.arena = block = _block(layout.scratch + 64)
        arena = -(-block.ctypes.data // 64) * 64
        frame.buffers[layout.arena_at] = arena
        frame.buffers[layout.arena_at + 2] = arena + layout.partials_offset
        try:
            for part in frame.parts:
                if part.__class__ is Callback:
                    self._call(part, layout, frame)
                    continue
                failure = pool.pool.run(part, threads, 0)
                if failure:
                    return _error(layout.blueprint, failure)
        finally:
            while frame.begun:  # the run has failed and will not wait for them
                handle, group = frame.begun.popitem()
                group.abandon(handle, (arrays, block))
        frame.arena = None
        unused = sys.getrefcount(block) <= 2  # the variable and the argument
        if unused and len(_blocks) < tuning.MAX_IDLE_SCRATCH_BLOCKS:
            _blocks.append(block)
        if not layout.idle:
            layout.idle.append(frame)
        return None

    def _call(self, callback: Callback, layout: Layout, frame: Frame) -> None:
        def array(view: View) -> Any:
            return self._array(view, layout, frame)

        given = [array(x) if isinstance(x, View) else x for x in callback.inputs]
        half = callback.primitive.half
        if half == "wait":
            frame.begun.pop(int(given[0]), None)
        made = callback.primitive.kernel(*given, **callback.params)
        if half == "start":
            frame.begun[int(made)] = callback.params["group"]
        arrays = made if isinstance(made, tuple) else (made,)
        for value, result in zip(callback.outputs, arrays, strict=False):
            to = array(View(value, 0, value.shape, contiguous(value.shape)))
            if result.__class__ is not np.ndarray or address(to) != address(result):
                to[...] = result  # otherwise the callback has written there

    def _array(self, view: View, layout: Layout, frame: Frame) -> Any:
        """The memory of a view as a NumPy array."""
        assert layout.plan is not None  # a program with callbacks is never one from disk
        dtype = view.root.dtype
        size = int(dtype.itemsize)
        ends = [(n - 1) * s for n, s in zip(view.shape, view.strides, strict=True) if n > 1]
        low, high = sum(e for e in ends if e < 0), sum(e for e in ends if e > 0)
        allocation = layout.plan.allocations[view.root.number]
        start = self._address(allocation, layout, frame) + (view.offset + low) * size
        length = (high - low + 1) * size
        memory: Any
        if allocation.kind == "arena":  # a callback that keeps the array keeps its memory alive
            first = start - frame.arena.ctypes.data
            memory = frame.arena[first : first + length]
        else:
            memory = (ctypes.c_char * length).from_address(start)
        strides = tuple(s * size for s in view.strides)
        return np.ndarray(view.shape, dtype, memory, -low * size, strides)

    def _address(self, allocation: Allocation, layout: Layout, frame: Frame) -> int:
        if allocation.kind == "arena":
            return int(frame.buffers[layout.arena_at]) + allocation.index
        inputs = len(self._recorded.inputs)
        first = {"input": 0, "constant": inputs, "result": layout.first_result}
        return int(frame.buffers[first[allocation.kind] + allocation.index])


def _error(blueprint: Blueprint, failure: int) -> Exception:
    """The error for bad data that a program has found."""
    found, code = divmod(failure, 1 << driver_layout.FAILURE_BITS)
    name, allocation = blueprint.failures[found]
    error, message = described(code, name)
    return error(f"{message}, at {describe(allocation)}")
