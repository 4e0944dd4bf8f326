"""Emission: a planned program becomes kernels, and the list of steps that calls them.

Comes in: a `Plan`. Goes out: `Emitted`: steps, tables, and the text of kernels. Every instruction
becomes a kernel that does a part of it; instructions with the same text share one. The driver
(`driver.py`) walks the steps: each thread does its part of each, with a barrier where it needs what
another thread has written. Callbacks to NumPy divide the steps into segments. Called by
`executable.py`.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from ...core.source import Location
from ..ir.failing import can_fail
from ..ir.program import Callback, Compute, Contraction, Instruction, Loop, Product
from . import contraction, loops, patches, products, tuning
from .driver_layout import BARRIER, CHECK, END, FINISH, SERIAL, SHARED
from .kernel import ByteRange, Kernel
from .plan import Plan

MAX_THREADS = 64

EVERYTHING = (-(1 << 62), 1 << 62)

#: memory, and for each thread the bytes of it from a first to an end
Touch = tuple[Any, list[tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class Pointer:
    """In the table of a kernel: an address in a buffer, `offset` bytes from its beginning."""

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


@dataclass(frozen=True, slots=True)
class Segment:
    """Steps that run until the next callback."""

    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Emitted:
    """What a program became, and how to run it."""

    segments: tuple[Segment | Callback, ...]
    kernels: tuple[tuple[str, Instruction], ...]  # the text that each instruction became
    failures: tuple[tuple[str, Location | None], ...]  # what it means when status word i is set
    scratch: int  # bytes
    work: int  # elements and multiplications, to decide how many threads pay

    #: positions in the table of buffers, after those of inputs, constants and results
    arena: int
    status: int
    partials: int


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
        #: what was touched since the last barrier
        self.written: list[Touch] = []
        self.read: list[Touch] = []

    def run(self) -> Emitted:
        for instruction in self.plan.program.instructions:
            if isinstance(instruction, Callback):
                self._close()
                self.segments.append(instruction)
            else:
                assert isinstance(instruction, (Loop, Product, Contraction))
                self._instruction(instruction)
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
        """End a segment; its end is a barrier."""
        if self.steps:
            self.steps.append(Step(END, None, 0, 1, ()))
            self.segments.append(Segment(tuple(self.steps)))
        self.steps, self.written, self.read = [], [], []

    # -- memory ------------------------------------------------------------------------------

    def _pointer(self, number: int, offset: int) -> Pointer:
        """A pointer to an element of a value, `offset` bytes from its beginning."""
        allocation = self.plan.allocations[number]
        if allocation.kind == "arena":
            return Pointer(self.arena, allocation.index + offset)
        return Pointer(self.first[allocation.kind] + allocation.index, offset)

    # -- barriers ----------------------------------------------------------------------------

    def _barrier(self) -> None:
        if self.written or self.read:
            self.steps.append(Step(BARRIER, None, 0, 1, ()))
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
        """Choose SERIAL or SHARED execution for a kernel, whichever avoids a barrier.

        Where neither does, put a barrier before it: it touches memory that another thread may
        still be reading or writing.
        """
        ways = [SERIAL] if kernel.serial else [SHARED]
        if kernel.small and not kernel.serial:
            few = kernel.extent < tuning.BLOCKS_PER_KERNEL
            ways = [SERIAL, SHARED] if few else [SHARED, SERIAL]
        found = [(way, *self._touches(kernel, way)) for way in ways]
        apart = [
            (way, reads, writes)
            for way, reads, writes in found
            if not (_clash(reads, self.written) or _clash(writes, self.written + self.read))
        ]
        if not apart:
            self._barrier()
        way, reads, writes = (apart or found)[0]
        self.read += reads
        self.written += writes
        return way

    def _touches(self, kernel: Kernel, way: int) -> tuple[list[Touch], list[Touch]]:
        """What a kernel reads and writes if it runs in some way."""
        parts = _parts(kernel, self.threads, way)
        reads = [self._touch(number, byte_range, parts) for number, byte_range in kernel.reads]
        writes = [self._touch(number, byte_range, parts) for number, byte_range in kernel.writes]
        # Each thread has a part of its own. Parts of other kernels may be larger or smaller, and
        # then overlap those of other threads. Of partial results, the first thread reads all.
        for start, stride in self._scratch(kernel):
            ranges = [(start + t * stride, start + (t + 1) * stride) for t in range(self.threads)]
            writes.append(("partials", ranges))
        return reads, writes

    # -- instructions ------------------------------------------------------------------------

    def _instruction(self, instruction: Loop | Product | Contraction) -> None:
        kernel = (
            loops.loop(instruction, self.plan.allocations, self.general)
            if isinstance(instruction, Loop)
            else products.product(instruction, self.threads)
            if isinstance(instruction, Product)
            else patches.patches(instruction, self.threads) or contraction.contraction(instruction)
        )
        if kernel is None:
            return
        self.work += kernel.work
        what = self._schedule(kernel)
        self.kernels.append((kernel.text, instruction))
        table: list[Pointer | int] = [self._pointer(*pointer) for pointer in kernel.pointers]
        status = Pointer(self.status, 8 * len(self.failures))
        if kernel.checks:
            table.append(status)
        starts = self._partials(kernel)
        for start, partial in zip(starts, kernel.partials, strict=True):
            table += [Pointer(self.partials, start), partial.stride]
        if kernel.scratch is not None:
            ((_, stride),) = self._scratch(kernel)
            table += [Pointer(self.partials, 0), stride]
            self.scratch = max(self.scratch, stride * self.threads)
        table += kernel.numbers
        self.steps.append(Step(what, kernel.text, kernel.extent, kernel.grain, tuple(table)))
        if kernel.partials:
            self._finish(kernel)
        if can_fail(instruction):
            assert kernel.checks
            self.failures.append(_checking(instruction))
            self.steps.append(Step(CHECK, None, 0, 1, (status,)))
            self.written, self.read = [], []

    def _partials(self, kernel: Kernel) -> list[int]:
        """Where in the scratch memory each partial result of a kernel begins."""
        strides = [partial.stride * MAX_THREADS for partial in kernel.partials]
        self.scratch = max(self.scratch, sum(strides))
        return list(itertools.accumulate(strides, initial=0))[:-1]

    def _scratch(self, kernel: Kernel) -> list[tuple[int, int]]:
        """The scratch memory of a kernel: where each kind begins, and the bytes of each thread."""
        if kernel.scratch is not None:
            line = tuning.CACHE_LINE_BYTES
            return [(0, -(-kernel.scratch // line) * line)]
        strides = [partial.stride for partial in kernel.partials]
        return list(zip(self._partials(kernel), strides, strict=True))

    def _finish(self, kernel: Kernel) -> None:
        """A reduction by all threads: each thread has left its part, the first one adds up."""
        self._barrier()
        alone = _alone(1, self.threads)
        for start, partial in zip(self._partials(kernel), kernel.partials, strict=True):
            access = partial.fold.access
            offset, number = access.offset * access.value.dtype.itemsize, access.value.number
            pointers = (Pointer(self.partials, start), self._pointer(number, offset))
            table = (*pointers, partial.count, partial.stride)
            self.steps.append(Step(FINISH, loops.finish(partial), 0, 1, table))
            self.written.append(self._touch(number, None, alone))
        self.read.append(("partials", [EVERYTHING] + [(0, 0)] * (self.threads - 1)))


def _checking(instruction: Instruction) -> tuple[str, Location | None]:
    """Which of the primitives that an instruction came from may find bad data."""
    nodes = instruction.nodes if isinstance(instruction, Loop) else ()
    failing = {n.primitive.name for n in nodes if isinstance(n, Compute) and n.fails}
    found = (origin for origin in instruction.origins if origin.name in failing)
    return next(found, instruction.origins[0])[:2]


def _alone(extent: int, threads: int) -> list[tuple[int, int]]:
    return [(0, extent)] + [(0, 0)] * (threads - 1)


def _parts(kernel: Kernel, threads: int, way: int) -> list[tuple[int, int]]:
    """The steps that each thread does, as the driver divides them."""
    if way == SERIAL:
        return _alone(kernel.extent, threads)
    blocks = -(-kernel.extent // kernel.grain)
    bounds = [min(t * blocks // threads * kernel.grain, kernel.extent) for t in range(threads + 1)]
    return list(pairwise(bounds))


def _clash(mine: list[Touch], theirs: list[Touch]) -> bool:
    """Whether two different threads touch the same memory."""
    for memory, ranges in mine:
        for other, others in theirs:
            if memory == other and _cross(ranges, others):
                return True
    return False


def _cross(mine: list[tuple[int, int]], theirs: list[tuple[int, int]]) -> bool:
    for t, (low, high) in enumerate(mine):
        for u, (start, end) in enumerate(theirs):
            if t != u and low < end and start < high:
                return True
    return False


def emit(plan: Plan, general: bool, threads: int) -> Emitted:
    """The steps of a planned program for a number of threads, or for one.

    `general` kernels serve other sizes and strides as well.
    """
    return Emitter(plan, general, threads).run()


def one_by_one(emitted: Emitted) -> Emitted:
    """The same steps with a segment for each kernel, in the order of `kernels`."""
    end = Step(END, None, 0, 1, ())
    segments: list[Segment | Callback] = []
    for segment in emitted.segments:
        if isinstance(segment, Callback):
            segments.append(segment)
            continue
        starts = [i for i, s in enumerate(segment.steps) if s.what in (SHARED, SERIAL)]
        for first, after in pairwise([*starts, len(segment.steps) - 1]):
            segments.append(Segment((*segment.steps[first:after], end)))
    return replace(emitted, segments=tuple(segments))
