"""Emission: a planned program becomes the text of an LLVM module.

Every instruction becomes a function of the part it should do, `kernel(low, high, pointers...)`;
instructions with the same text share one. The program itself is `segment_N(thread, threads,
buffers)`: each thread walks all instructions and does its part of each, with a barrier where it
needs what another thread has made. Callbacks of NumPy lie between segments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..source import Place as Line
from . import kernels
from .ir import INT64, Code
from .plan import Plan, can_fail
from .pool import pause
from .program import Callback, Instruction, Loop, Product

MAX_THREADS = 64
LINE = 64  # bytes between things that different threads write

#: the barrier: the last thread to arrive opens it; the others spin, and yield if that takes long
BARRIER = f"""
define internal void @barrier(ptr %control, i64 %threads) noinline {{
entry:
  %alone = icmp eq i64 %threads, 1
  br i1 %alone, label %out, label %arrive
arrive:
  %generation = getelementptr inbounds i8, ptr %control, i64 64
  %before = load atomic i64, ptr %generation acquire, align 8
  %order = atomicrmw add ptr %control, i64 1 acq_rel
  %last = sub i64 %threads, 1
  %is_last = icmp eq i64 %order, %last
  br i1 %is_last, label %open, label %wait
open:
  store atomic i64 0, ptr %control release, align 8
  %after = add i64 %before, 1
  store atomic i64 %after, ptr %generation release, align 8
  br label %out
wait:
  %spins = phi i64 [ 0, %arrive ], [ %more, %again ]
  %now = load atomic i64, ptr %generation acquire, align 8
  %opened = icmp ne i64 %now, %before
  br i1 %opened, label %out, label %pause
pause:
  %more = add i64 %spins, 1
  %low_bits = and i64 %more, 1023
  %long = icmp eq i64 %low_bits, 0
  br i1 %long, label %yield, label %again
yield:
  call i32 @sched_yield()
  br label %again
again:
  {pause()}
  br label %wait
out:
  ret void
}}
declare i32 @sched_yield()
"""


@dataclass(frozen=True, slots=True)
class Segment:
    """A native function that runs until the next callback."""

    name: str


@dataclass(frozen=True, slots=True)
class Emitted:
    """The text of a module and how to run it."""

    text: str
    steps: tuple[Segment | Callback, ...]
    kernels: tuple[tuple[str, Instruction], ...]  # the function that each instruction became
    failures: tuple[tuple[str, Line | None], ...]  # what it means when status word i is set
    scratch: int  # bytes
    work: int  # elements and multiplications, to decide how many threads pay

    #: positions in the table of buffers, after those of inputs, constants and results
    arena: int
    status: int
    control: int
    partials: int


class Emitter:
    """Collects the functions of one module."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        program = plan.program
        self.first = {
            "input": 0,
            "constant": len(program.inputs),
            "result": len(program.inputs) + len(program.constants),
        }
        self.tail = self.first["result"] + len(program.results)
        self.functions: dict[str, str] = {}  # by text without its name: the name
        self.declared: set[str] = set()
        self.steps: list[Segment | Callback] = []
        self.kernels: list[tuple[str, Instruction]] = []
        self.failures: list[tuple[str, Line | None]] = []
        self.texts: list[str] = []
        self.scratch = LINE
        self.work = 0

    def run(self) -> Emitted:
        waiting: list[Instruction] = []
        for instruction in self.plan.program.instructions:
            if isinstance(instruction, Callback):
                self._segment(waiting)
                waiting = []
                self.steps.append(instruction)
            else:
                waiting.append(instruction)
        self._segment(waiting)
        text = "\n".join([BARRIER, *self.texts, *sorted(self.declared)])
        return Emitted(
            text,
            tuple(self.steps),
            tuple(self.kernels),
            tuple(self.failures),
            self.scratch,
            self.work,
            *range(self.tail, self.tail + 4),
        )

    def _define(self, kernel: kernels.Kernel) -> str:
        """The name of a function with this text, written once however often it is used."""
        name = self.functions.get(kernel.text)
        if name is None:
            name = self.functions[kernel.text] = f"{kernel.what}_{len(self.functions)}"
            self.texts.append(kernel.text.replace("@NAME", f"@{name}"))
            self.declared |= kernel.declared
        return name

    def _segment(self, instructions: list[Instruction]) -> None:
        if not instructions:
            return
        name = f"segment_{len(self.steps)}"
        self.steps.append(Segment(name))
        Walk(self, name).run(instructions)


class Walk:
    """The text of one segment: calls, and barriers between them."""

    def __init__(self, emitter: Emitter, name: str) -> None:
        self.emitter = emitter
        self.name = name
        self.code = Code()
        self.pointers: dict[Any, str] = {}
        #: what was touched since the last barrier: (memory, first byte, end, how it is divided)
        self.written: list[tuple[Any, int, int, Any]] = []
        self.read: list[tuple[Any, int, int, Any]] = []

    def run(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            assert isinstance(instruction, (Loop, Product))
            self._instruction(instruction)
        self.code.line("ret i64 0")
        head = f"define i64 @{self.name}(i64 %thread, i64 %threads, ptr %buffers)"
        self.emitter.texts.append(self.code.function(head))
        self.emitter.declared |= self.code.declared

    # -- memory ------------------------------------------------------------------------------

    def _buffer(self, index: int) -> str:
        if index not in self.pointers:
            name = self.code.name()
            slot = f"getelementptr inbounds ptr, ptr %buffers, i64 {index}"
            self.code.first.append(f"  {name}.slot = {slot}")
            self.code.first.append(f"  {name} = load ptr, ptr {name}.slot")
            self.pointers[index] = name
        return self.pointers[index]

    def _pointer(self, number: int, offset: int) -> str:
        """A pointer to an element of a value, `offset` bytes from its beginning."""
        place = self.emitter.plan.places[number]
        if place.kind == "arena":
            base, offset = self._buffer(self.emitter.tail), place.index + offset
        else:
            base = self._buffer(self.emitter.first[place.kind] + place.index)
        if offset == 0:
            return base
        return self.code.value(f"getelementptr inbounds i8, ptr {base}, i64 {offset}")

    def _span(self, number: int) -> tuple[Any, int, int]:
        place = self.emitter.plan.places[number]
        if place.kind == "arena":
            return "arena", place.index, place.index + place.size
        return (place.kind, place.index), 0, 1

    # -- barriers ----------------------------------------------------------------------------

    def _barrier(self) -> None:
        if self.written or self.read:
            self.code.line(
                f"call void @barrier(ptr {self._buffer(self.emitter.tail + 2)}, i64 %threads)"
            )
        self.written, self.read = [], []

    def _touch(self, kernel: kernels.Kernel) -> None:
        """Put a barrier before a kernel that meets memory another thread may be busy with."""
        reads = [(*self._span(n), key) for n, key in kernel.reads]
        writes = [(*self._span(n), key) for n, key in kernel.writes]
        if kernel.partials:
            writes.append(("partials", 0, 1, "own"))
        if _clash(reads, self.written) or _clash(writes, self.written + self.read):
            self._barrier()
        self.read += reads
        self.written += writes

    # -- instructions ------------------------------------------------------------------------

    def _instruction(self, instruction: Loop | Product) -> None:
        kernel = (
            kernels.loop(instruction, self.emitter.plan.places)
            if isinstance(instruction, Loop)
            else kernels.product(instruction)
        )
        if kernel is None:
            return
        self.emitter.work += kernel.work
        self._touch(kernel)
        name = self.emitter._define(kernel)
        self.emitter.kernels.append((name, instruction))
        code = self.code
        given = [f"ptr {self._pointer(number, offset)}" for number, offset in kernel.pointers]
        status = None
        if can_fail(instruction):
            words = self._buffer(self.emitter.tail + 1)
            status = code.element(words, INT64, str(len(self.emitter.failures)))
            self.emitter.failures.append(instruction.origins[0])
            given.append(f"ptr {status}")
        if kernel.partials:
            self._folded(kernel, name, given)
        elif kernel.serial:
            mine = code.value("icmp eq i64 %thread, 0")
            with code.when(mine):
                code.line(f"call void @{name}(i64 0, i64 {kernel.extent}, {', '.join(given)})")
        else:
            low, high = self._part(kernel.extent, kernel.grain)
            code.line(f"call void @{name}(i64 {low}, i64 {high}, {', '.join(given)})")
        if status is not None:
            self._check(status)

    def _part(self, extent: int, grain: int) -> tuple[str, str]:
        """The bounds of this thread's part of `extent` steps, in multiples of `grain`."""
        code = self.code
        blocks = -(-extent // grain)

        def bound(thread: str) -> str:
            product = code.value(f"mul nsw i64 {thread}, {blocks}")
            block = code.value(f"sdiv i64 {product}, %threads")
            if grain == 1:
                return block
            step = code.value(f"mul nsw i64 {block}, {grain}")
            return code.call("i64", "llvm.smin.i64", ("i64", step), ("i64", str(extent)))

        following = code.value("add nsw i64 %thread, 1")
        return bound("%thread"), bound(following)

    def _folded(self, kernel: kernels.Kernel, name: str, given: list[str]) -> None:
        """A reduction to single elements: each thread leaves its part, the first one adds up."""
        code, emitter = self.code, self.emitter
        base = self._buffer(emitter.tail + 3)
        rows = len(kernel.partials)
        emitter.scratch = max(emitter.scratch, rows * MAX_THREADS * LINE)
        low, high = self._part(kernel.extent, kernel.grain)
        mine = code.value(f"mul nsw i64 %thread, {LINE}")
        for row in range(rows):
            at = code.value(f"add nsw i64 {mine}, {row * MAX_THREADS * LINE}")
            given.append(f"ptr {code.value(f'getelementptr inbounds i8, ptr {base}, i64 {at}')}")
        code.line(f"call void @{name}(i64 {low}, i64 {high}, {', '.join(given)})")
        self._barrier()
        first = code.value("icmp eq i64 %thread, 0")
        with code.when(first):
            for row, (fold, number) in enumerate(kernel.partials):
                finish = emitter._define(kernels.finish(fold, LINE))
                start = code.value(
                    f"getelementptr inbounds i8, ptr {base}, i64 {row * MAX_THREADS * LINE}"
                )
                out = self._pointer(number, fold.access.offset * fold.access.value.dtype.itemsize)
                code.line(f"call void @{finish}(i64 0, i64 %threads, ptr {start}, ptr {out})")
        self.written += [(*self._span(number), kernels.SERIAL) for _, number in kernel.partials]
        self.read.append(("partials", 0, 1, kernels.SERIAL))

    def _check(self, status: str) -> None:
        """Stop all threads if an instruction has found bad data."""
        code = self.code
        self._barrier()
        found = code.value(f"load i64, ptr {status}")
        bad = code.value(f"icmp ne i64 {found}, 0")
        code.count += 1
        code.line(f"br i1 {bad}, label %stop{code.count}, label %good{code.count}")
        tag = code.count
        code.label(f"stop{tag}")
        code.line("ret i64 1")
        code.label(f"good{tag}")


def _clash(mine: list[Any], theirs: list[Any]) -> bool:
    for memory, first, end, key in mine:
        for other, start, stop, division in theirs:
            if (
                memory == other
                and first < stop
                and start < end
                and (key is None or key != division)
            ):
                return True
    return False


def emit(plan: Plan) -> Emitted:
    """The module of a planned program."""
    return Emitter(plan).run()
