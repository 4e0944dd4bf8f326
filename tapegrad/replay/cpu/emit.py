"""Emission: a planned program becomes kernels, and the list of steps that calls them.

Comes in: a `Plan`. Goes out: `Emitted`: steps, tables, and the text of kernels. Every instruction
becomes a kernel that can do a part of it; instructions with the same text share one. A kernel has
as many parts as there are threads that pay. Where a part needs data that another one writes, a new
section begins: the driver (`driver.py`) opens it when all parts of the one before are done.
Callbacks to NumPy divide the steps into segments. Called by `executable.py`.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from ...core.source import Location
from ..ir.failing import can_fail, culprit
from ..ir.program import Attention, Callback, Contraction, Instruction, Loop, Product
from ..native.plan import Plan
from . import attention, contraction, loops, patches, products, tuning, winograd
from .driver_layout import CHECK, END, FINISH, MAX_THREADS, RUN, SECTION
from .kernel import ByteRange, Kernel

EVERYTHING = (-(1 << 62), 1 << 62)

#: a piece of memory, and the range of its bytes that each part touches: first and end
Touch = tuple[Any, list[tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class Pointer:
    """An entry of a kernel's table: an address in a buffer, `offset` bytes from its beginning."""

    buffer: int
    offset: int


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that the driver does."""

    what: int
    text: str | None  # of the kernel
    extent: int
    grain: int
    table: tuple[Pointer | int, ...]
    parts: int  # of a kernel, or of a section


def _mark(what: int, table: tuple[Pointer | int, ...] = ()) -> Step:
    """A step without a kernel."""
    return Step(what, None, 0, 1, table, 1)


@dataclass(frozen=True, slots=True)
class Segment:
    """Steps that run until the next callback."""

    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Emitted:
    """The steps and kernels of a program, and the memory that they need."""

    segments: tuple[Segment | Callback, ...]
    kernels: tuple[tuple[str, Instruction], ...]  # the text that each instruction became
    failures: tuple[tuple[str, Location | None], ...]  # the meaning of status word i, if it is set
    scratch: int  # bytes
    work: int  # as `tuning.py` defines it, to decide how many threads pay

    #: positions in the table of buffers, after those of inputs, constants and results
    arena: int
    status: int
    partials: int

    @property
    def threads(self) -> int:
        """The largest number of parts of any step."""
        steps = (step for s in self.segments if isinstance(s, Segment) for step in s.steps)
        return max((step.parts for step in steps), default=1)


class Emitter:
    """Collects the steps of one program."""

    def __init__(self, plan: Plan, general: bool, threads: int) -> None:
        self.plan = plan
        self.general = general
        self.threads = threads
        program = plan.program
        self.first = {
            "input": 0,
            "constant": len(program.inputs),
            "result": len(program.inputs) + len(program.constants),
        }
        self.arena = self.first["result"] + len(program.results)
        self.status, self.partials = self.arena + 1, self.arena + 2
        self.segments: list[Segment | Callback] = []
        self.kernels: list[tuple[str, Instruction]] = []
        self.failures: list[tuple[str, Location | None]] = []
        self.scratch = tuning.CACHE_LINE_BYTES
        self.work = 0
        self.steps: list[Step] = []
        #: memory that this section writes and reads so far
        self.written: list[Touch] = []
        self.read: list[Touch] = []

    def run(self) -> Emitted:
        made = [(i, self._kernels(i)) for i in self.plan.program.instructions]
        kernels = [kernel for _, some in made for kernel in some]
        self.work = sum(kernel.work for kernel in kernels)
        if self.work <= tuning.MAX_SINGLE_THREAD_PROGRAM_WORK:
            self.threads = 1
        self.threads = min(self.threads, max([2, *(kernel.worth for kernel in kernels)]))
        for instruction, some in made:
            if isinstance(instruction, Callback):
                self._close()
                self.segments.append(instruction)
            for kernel in some:
                self._step(instruction, kernel)
        self._close()
        return Emitted(
            tuple(self.segments),
            tuple(self.kernels),
            tuple(self.failures),
            self.scratch,
            self.work,
            self.arena,
            self.status,
            self.partials,
        )

    def _close(self) -> None:
        """End a segment, and with it the current section."""
        if self.steps:
            self.segments.append(Segment((*_counted(self.steps), _mark(END))))
        self.steps, self.written, self.read = [], [], []

    # -- memory ------------------------------------------------------------------------------

    def _pointer(self, number: int, offset: int) -> Pointer:
        """A pointer to an element of a value, `offset` bytes from its beginning."""
        allocation = self.plan.allocations[number]
        if allocation.kind == "arena":
            return Pointer(self.arena, allocation.index + offset)
        return Pointer(self.first[allocation.kind] + allocation.index, offset)

    # -- sections ----------------------------------------------------------------------------

    def _section(self) -> None:
        """Begin a section, unless the current one is empty."""
        if self.written or self.read:
            self.steps.append(_mark(SECTION))
        self.written, self.read = [], []

    def _touch(
        self, number: int, byte_range: ByteRange | None, parts: list[tuple[int, int]]
    ) -> Touch:
        allocation = self.plan.allocations[number]
        memory: Any = (allocation.kind, allocation.index)
        if allocation.kind == "input" and self.plan.program.inputs[allocation.index].aliased:
            memory, byte_range = "shared", None  # other inputs show this memory too
        whole = (0, allocation.size) if allocation.kind == "arena" else EVERYTHING
        ranges = [
            (0, 0) if high <= low else whole if byte_range is None else byte_range.of(low, high)
            for low, high in parts
        ]
        if allocation.kind != "arena":
            return memory, ranges
        return "arena", [(low + allocation.index, high + allocation.index) for low, high in ranges]

    def _schedule(self, kernel: Kernel) -> int:
        """Choose how many parts a kernel has, if possible so that it needs no new section.

        It needs one if, with each number of parts, some part would touch memory that a different
        part may still be reading or writing.
        """
        ways = list(dict.fromkeys(self._ways(kernel)))
        found = [(parts, *self._touches(kernel, parts)) for parts in ways]
        apart = [
            (parts, reads, writes)
            for parts, reads, writes in found
            if not (_clash(reads, self.written) or _clash(writes, self.written + self.read))
        ]
        if not apart:
            self._section()
        parts, reads, writes = (apart or found)[0]
        self.read += reads
        self.written += writes
        return parts

    def _ways(self, kernel: Kernel) -> tuple[int, ...]:
        """The numbers of parts that a kernel may have, best first."""
        if kernel.serial:
            return (1,)
        if kernel.pieces > self.threads > 1:
            return min(kernel.pieces, MAX_THREADS), self.threads
        if kernel.worth >= 2:
            return min(kernel.worth, self.threads), self.threads
        few = kernel.extent < tuning.BLOCKS_PER_KERNEL
        return (1, self.threads) if few else (self.threads, 1)

    def _touches(self, kernel: Kernel, parts: int) -> tuple[list[Touch], list[Touch]]:
        """The memory that a kernel reads and writes if it has `parts` parts."""
        steps = _parts(kernel, parts)
        reads = [self._touch(number, byte_range, steps) for number, byte_range in kernel.reads]
        writes = [self._touch(number, byte_range, steps) for number, byte_range in kernel.writes]
        # Each part has its own scratch memory. Another kernel's parts may have more or less of it,
        # so theirs may overlap with that of other parts here. `_finish` reads all in part 0.
        for start, stride in self._scratch(kernel):
            ranges = [(start + t * stride, start + (t + 1) * stride) for t in range(parts)]
            writes.append(("partials", ranges))
        if kernel.shared:
            (writes if kernel.fills else reads).append(("partials", [(0, kernel.shared)] * parts))
        return reads, writes

    # -- instructions ------------------------------------------------------------------------

    def _kernels(self, instruction: Instruction) -> list[Kernel]:
        """The kernels of an instruction: several if one fills memory for the next."""
        if isinstance(instruction, Contraction):
            several = winograd.winograd(instruction, self.threads)
            if several is not None:
                return several
        kernel = self._kernel(instruction)
        return [] if kernel is None else [kernel]

    def _kernel(self, instruction: Instruction) -> Kernel | None:
        if isinstance(instruction, Loop):
            return loops.loop(instruction, self.plan.allocations, self.general)
        if isinstance(instruction, Product):
            return products.product(instruction, self.threads)
        if isinstance(instruction, Contraction):
            found = patches.patches(instruction, self.threads)
            return contraction.contraction(instruction) if found is None else found
        if isinstance(instruction, Attention):
            return attention.attention(instruction, self.threads)
        assert isinstance(instruction, Callback)
        return None

    def _step(self, instruction: Instruction, kernel: Kernel) -> None:
        if not self.steps:
            self.steps.append(_mark(SECTION))
        parts = self._schedule(kernel)
        self.kernels.append((kernel.text, instruction))
        table: list[Pointer | int] = [self._pointer(*pointer) for pointer in kernel.pointers]
        status = Pointer(self.status, 8 * len(self.failures))
        if kernel.checks:
            table.append(status)
        starts = self._partials(kernel)
        for start, partial in zip(starts, kernel.partials, strict=True):
            table += [Pointer(self.partials, start), partial.stride]
        if kernel.shared:
            table += [Pointer(self.partials, 0), 0]
            self.scratch = max(self.scratch, kernel.shared)
        if kernel.scratch is not None:
            ((start, stride),) = self._scratch(kernel)
            table += [Pointer(self.partials, start), stride]
            self.scratch = max(self.scratch, start + stride * parts)
        table += kernel.numbers
        self.steps.append(Step(RUN, kernel.text, kernel.extent, kernel.grain, tuple(table), parts))
        if kernel.partials:
            self._finish(kernel, parts)
        if can_fail(instruction):
            assert kernel.checks
            self.failures.append(culprit(instruction))
            self.steps.append(_mark(CHECK, (status,)))
            self.written, self.read = [], []

    def _partials(self, kernel: Kernel) -> list[int]:
        """Where in the scratch memory each partial result of a kernel begins."""
        strides = [partial.stride * MAX_THREADS for partial in kernel.partials]
        self.scratch = max(self.scratch, sum(strides))
        return list(itertools.accumulate(strides, initial=0))[:-1]

    def _scratch(self, kernel: Kernel) -> list[tuple[int, int]]:
        """The scratch memory of a kernel: where each kind begins, and its bytes per part."""
        if kernel.scratch is not None:
            line = tuning.CACHE_LINE_BYTES
            return [(kernel.shared, -(-kernel.scratch // line) * line)]
        strides = [partial.stride for partial in kernel.partials]
        return list(zip(self._partials(kernel), strides, strict=True))

    def _finish(self, kernel: Kernel, parts: int) -> None:
        """End a reduction in parts: a single part combines the partial results of all."""
        self._section()
        for start, partial in zip(self._partials(kernel), kernel.partials, strict=True):
            access = partial.fold.access
            offset, number = access.offset * access.value.dtype.itemsize, access.value.number
            pointers = (Pointer(self.partials, start), self._pointer(number, offset))
            table = (*pointers, partial.count, partial.stride)
            self.steps.append(Step(FINISH, loops.finish(partial), parts, 1, table, 1))
            self.written.append(self._touch(number, None, [(0, 1)]))
        self.read.append(("partials", [EVERYTHING]))


def _counted(steps: list[Step]) -> list[Step]:
    """The steps, with the number of parts filled in at each section."""
    counted: list[Step] = []
    most = 1
    for step in reversed(steps):
        if step.what in (SECTION, CHECK):
            counted.append(replace(step, parts=most))
            most = 1
        else:
            counted.append(step)
            most = max(most, step.parts)
    return counted[::-1]


def _parts(kernel: Kernel, parts: int) -> list[tuple[int, int]]:
    """The steps of each part, as the driver divides them."""
    blocks = -(-kernel.extent // kernel.grain)
    bounds = [min(t * blocks // parts * kernel.grain, kernel.extent) for t in range(parts + 1)]
    return list(pairwise(bounds))


def _clash(mine: list[Touch], theirs: list[Touch]) -> bool:
    """Whether two parts with different numbers touch the same memory."""
    for memory, ranges in mine:
        for other, others in theirs:
            if memory == other and _cross(ranges, others):
                return True
    return False


def _cross(mine: list[tuple[int, int]], theirs: list[tuple[int, int]]) -> bool:
    if mine == theirs and all(a[1] <= b[0] for a, b in pairwise(mine)):
        return False  # disjoint, and divided alike
    for t, (low, high) in enumerate(mine):
        for u, (start, end) in enumerate(theirs):
            if low < end and start < high and t != u:
                return True
    return False


def emit(plan: Plan, general: bool, threads: int) -> Emitted:
    """The steps of a planned program for at most `threads` threads.

    `general` kernels serve other sizes and strides as well.
    """
    return Emitter(plan, general, threads).run()


def one_by_one(emitted: Emitted) -> Emitted:
    """The same steps, with a segment for each kernel in the order of `kernels`."""
    segments: list[Segment | Callback] = []
    for segment in emitted.segments:
        if isinstance(segment, Callback):
            segments.append(segment)
            continue
        starts = [i for i, s in enumerate(segment.steps) if s.what == RUN]
        for first, after in pairwise([*starts, len(segment.steps) - 1]):
            steps = list(segment.steps[first:after])
            if steps[-1].what == SECTION:  # of the next kernel
                steps.pop()
            segments.append(Segment((*_counted([_mark(SECTION), *steps]), _mark(END))))
    return replace(emitted, segments=tuple(segments))
