"""Kernels: the text of one function for a loop, or the end of a reduction.

A kernel does the steps `low` to `high` of one dimension, so that threads can share it. Dimensions
that all accesses walk in order are joined first; the innermost loop is then what LLVM vectorises.

    no fold             all dimensions in order
    last dim folded     kept dimensions outside, folded ones inside, running values in registers
    last dim kept       folded dimensions outside it, running values in the result's memory, or, if
                        that is small, in memory of each thread's own, so that they share the rows
    scan                the scanned dimension inside, or the dimensions behind it inside that one
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from ...core import numeric
from ..ir.failing import can_fail
from ..ir.program import (
    Access,
    Compute,
    Literal,
    Loop,
    LoopFold,
    Position,
    Read,
    Scan,
    Store,
    contiguous,
    size_of,
)
from ..ir.shapes import joined
from . import scalar, tuning
from .llvm import BOOL, FLOAT32, FLOAT64, INT64, Code, Register, literal, type_of
from .plan import Allocation


@dataclass(frozen=True, slots=True)
class ByteRange:
    """The bytes of a value that one step touches: from `first` to `end`, `stride` further each.

    With `group`, so many steps touch the same bytes, or parts of them.
    """

    first: int
    end: int
    stride: int
    group: int = 1

    def of(self, low: int, high: int) -> tuple[int, int]:
        """The bytes that the steps from `low` to `high` touch, and what lies between them."""
        if high <= low:
            return 0, 0
        ends = (low // self.group * self.stride, (high - 1) // self.group * self.stride)
        return self.first + min(ends), self.end + max(ends)


def byte_range_of(access: Access, stride: int, others: list[int], group: int = 1) -> ByteRange:
    """The byte range of an access; `others` are the ways that its other dimensions go."""
    size = access.value.dtype.itemsize
    low = access.offset + sum(way for way in others if way < 0)
    high = access.offset + sum(way for way in others if way > 0)
    return ByteRange(low * size, (high + 1) * size, stride * size, group)


@dataclass(frozen=True, slots=True)
class Partial:
    """What each thread leaves of a fold, for the first one to combine: `count` elements."""

    fold: LoopFold
    count: int
    dtype: Any

    @property
    def stride(self) -> int:
        """Bytes from the part of one thread to that of the next."""
        line = tuning.CACHE_LINE_BYTES
        return -(-self.count * int(self.dtype.itemsize) // line) * line


@dataclass(slots=True)
class Kernel:
    """A function `NAME(low, high, thread, table)`, and what its caller must know.

    The table holds its pointers, then the address of its status if it checks, the address and the
    stride of each partial result, and its numbers.
    """

    what: str
    text: str
    pointers: list[tuple[int, int]]  # for each pointer: the value, and an offset in bytes
    extent: int  # steps that threads share
    grain: int  # steps that stay together
    serial: bool  # one thread must do it alone
    small: bool  # a second thread gains nothing
    work: int
    reads: list[tuple[int, ByteRange | None]]  # values, and the part of each that a step touches
    writes: list[tuple[int, ByteRange | None]]
    numbers: list[int] = field(default_factory=list)
    checks: bool = False
    partials: list[Partial] = field(default_factory=list)


def with_entry(
    code: Code, pointers: int, checks: bool = False, partials: int = 0, numbers: int = 0
) -> str:
    """The text of a kernel: its body, and the function that takes its arguments from a table.

    The body has its pointers as parameters because that is where LLVM is told that they are apart.
    """
    entry = Code()
    parameters, given = ["i64 %low", "i64 %high"], ["i64 %low", "i64 %high"]
    names = [f"ptr noalias %p{i}" for i in range(pointers)] + ["ptr %status"] * checks
    names += [f"ptr noalias %partial{i}" for i in range(partials)]
    names += [f"i64 %number{i}" for i in range(numbers)]
    positions = itertools.count()

    def following() -> str:
        return entry.value(f"getelementptr inbounds i64, ptr %table, i64 {next(positions)}")

    for name in names:
        kind = name.split()[0]
        found = entry.value(f"load {kind}, ptr {following()}")
        if "partial" in name:
            stride = entry.value(f"load i64, ptr {following()}")
            mine = entry.value(f"mul nsw i64 %thread, {stride}")
            found = entry.value(f"getelementptr inbounds i8, ptr {found}, i64 {mine}")
        parameters.append(name)
        given.append(f"{kind} {found}")
    entry.line(f"call void @body({', '.join(given)})")
    entry.line("ret void")
    head = "define void @NAME(i64 %low, i64 %high, i64 %thread, ptr %table) nounwind"
    body = f"define internal void @body({', '.join(parameters)}) noinline nounwind"
    declared = "\n".join(sorted(code.declared))
    return f"{code.function(body)}{entry.function(head)}{declared}\n"


def _accesses(loop: Loop) -> Iterator[Access]:
    def with_picks(access: Access) -> Iterator[Access]:
        yield access
        for pick in access.picks:
            yield from with_picks(pick.index)

    for node in loop.nodes:
        if isinstance(node, Read):
            yield from with_picks(node.access)
    for store in loop.stores:
        yield from with_picks(store.access)
    for fold in loop.folds:
        yield fold.access
    if loop.scan is not None:
        yield loop.scan.access


class LoopWriter:
    """Writes the function of one loop.

    Sizes, strides and numbers are written into the text or, if it is to serve all loops of the same
    form (`general`), read from the kernel's table.
    """

    def __init__(self, loop: Loop, allocations: dict[int, Allocation], general: bool) -> None:
        self.loop = loop
        self.allocations = allocations
        self.general = general
        self.numbers: list[int] = []
        self.number_indices: dict[int, int] = {}
        self.code = Code()
        accesses = list(dict.fromkeys(_accesses(loop)))
        positions = [n for n in loop.nodes if isinstance(n, Position)]
        walked: list[Access | Position] = [*accesses, *dict.fromkeys(positions)]
        folded = set(loop.folds[0].dims) if loop.folds else set()
        folded |= set() if loop.scan is None else {loop.scan.dim}
        sizes, strides, flags = joined(loop.shape, [w.strides for w in walked], folded)
        self.sizes, self.flags = sizes or [1], flags or [False]
        self.strides = {w: (s or [0]) for w, s in zip(walked, strides, strict=True)}
        self.written = {self._memory(a) for a in self._sinks()}
        self.offsets: dict[Any, set[int]] = {}
        for access in accesses:
            self.offsets.setdefault(self._memory(access), set()).add(access.offset)
        self.pointers: dict[Any, tuple[str, int, int]] = {}
        self.checks = can_fail(loop)
        #: what the nodes take for one element, beside an element's way from and to memory
        self.work: dict[int, int] = {}

    def _sinks(self) -> list[Access]:
        stored = [s.access for s in self.loop.stores]
        scanned = [] if self.loop.scan is None else [self.loop.scan.access]
        return stored + [f.access for f in self.loop.folds] + scanned

    def _memory(self, access: Access) -> tuple[str, int]:
        allocation = self.allocations[access.value.number]
        return allocation.kind, allocation.index

    # -- elements ----------------------------------------------------------------------------

    def number(self, number: int) -> str:
        """The text of a whole number that a general kernel should not depend on.

        Equal numbers are one: LLVM must see that what is read and written in place is the same
        element.
        """
        if not self.general or number in (0, 1):
            return str(number)
        if number not in self.number_indices:
            self.number_indices[number] = len(self.numbers)
            self.numbers.append(number)
        return f"%number{self.number_indices[number]}"

    def literal(self, number: Any, node: Compute, operands: list[Any]) -> Any:
        """A number as an operand; a general kernel reads those of floating arithmetic.

        Infinities are always read: LLVM makes branches of a maximum over `where(mask, x, -inf)`
        that it can see through, and does not vectorise them (600 instead of 50 µs for 131,072
        elements).
        """
        if not (numeric.is_numpy_float(node.dtype) and isinstance(number, float)):
            return number
        if not (self.general or math.isinf(number)):
            return number
        fitting = (node.dtype, BOOL)
        if any(isinstance(o, Register) and o.dtype not in fitting for o in operands):
            return number
        self.numbers.append(struct.unpack("<q", struct.pack("<d", number))[0])
        bits = f"i64 %number{len(self.numbers) - 1}"
        wide = Register(self.code.value(f"bitcast {bits} to double"), FLOAT64)
        return _converted(self.code, wide, node.dtype)

    def pointer(self, access: Access, indices: dict[int, str]) -> str:
        """A pointer to the element of an access at the given indices."""
        memory, base = self._memory(access), self._base(access)
        several = memory in self.written and len(self.offsets[memory]) > 1
        key = (memory, 0 if several else base)
        if key not in self.pointers:
            size = access.value.dtype.itemsize
            name = f"%p{len(self.pointers)}"
            self.pointers[key] = (name, access.value.number, key[1] * size)
        strides = self.strides[access]
        terms = [(index, self._step(strides, d)) for d, index in indices.items()]
        for pick in access.picks:
            terms.append((self.picked(pick, indices), self.number(pick.stride)))
        if access.offset > base:
            terms.append((str(access.offset - base), "1"))
        offset = self.number(base) if several else "0"
        position = self.code.position(offset, terms)
        return self.code.element(self.pointers[key][0], access.value.dtype, position)

    def _step(self, strides: list[int], d: int) -> str:
        """The text of a stride; short steps of the last dimension are known, to be vectorised."""
        last = d == len(self.sizes) - 1 and abs(strides[d]) <= tuning.MAX_VECTOR_STRIDE_ELEMENTS
        return str(strides[d]) if last else self.number(strides[d])

    def _base(self, access: Access) -> int:
        """The lowest offset of the accesses whose elements lie between those of this one.

        From one pointer, LLVM reads and writes the elements of all of them in whole vectors.
        """
        offsets, step = self.offsets[self._memory(access)], abs(self.strides[access][-1])
        base = access.offset
        while 1 < step <= tuning.MAX_VECTOR_STRIDE_ELEMENTS:
            lower = [o for o in offsets if base - step < o < base and access.offset - o < step]
            if not lower:
                break
            base = min(lower)
        return base

    def picked(self, pick: Any, indices: dict[int, str]) -> str:
        """An index from memory, counted from the front; bad ones set the status and become 0."""
        code, size = self.code, self.number(pick.size)
        raw = code.load(self.pointer(pick.index, indices), pick.index.value.dtype)
        index = scalar.Scalar(code, {}, INT64, "").convert(raw, INT64).text
        if pick.checked:
            return index
        negative = code.value(f"icmp slt i64 {index}, 0")
        wrapped = code.value(f"add nsw i64 {index}, {size}")
        index = code.value(f"select i1 {negative}, i64 {wrapped}, i64 {index}")
        bad = code.value(f"icmp uge i64 {index}, {size}")
        code.fail(bad, pick.failure)
        return code.value(f"select i1 {bad}, i64 0, i64 {index}")

    def nodes(self, indices: dict[int, str]) -> list[Register]:
        """All nodes of the loop at one element."""
        found: list[Register] = []
        for node in self.loop.nodes:
            if isinstance(node, Read):
                found.append(self.code.load(self.pointer(node.access, indices), node.dtype))
            elif isinstance(node, Position):
                strides = self.strides[node]
                terms = [(index, self.number(strides[d])) for d, index in indices.items()]
                position = self.code.position(self.number(node.offset), terms)
                found.append(Register(position, node.dtype))
            else:
                found.append(self._compute(node, found))
        return found

    def _compute(self, node: Compute, found: list[Register]) -> Register:
        given = [o.number if isinstance(o, Literal) else found[o] for o in node.operands]
        operands = [o if isinstance(o, Register) else self.literal(o, node, given) for o in given]
        before = len(self.code.lines)
        result = scalar.emit(self.code, node.primitive, node.params, operands, node.dtype)
        instructions = len(self.code.lines) - before
        self.work[len(found)] = 1 + instructions // tuning.INSTRUCTIONS_PER_MEMORY_TRIP
        return result

    def store(self, store: Store, values: list[Register], indices: dict[int, str]) -> None:
        pointer = self.pointer(store.access, indices)
        value = values[store.node]
        if store.adds:
            old = self.code.load(pointer, value.dtype)
            kind = type_of(value.dtype)
            add = "fadd" if kind in ("float", "double") else "or" if kind == "i1" else "add"
            value = Register(self.code.value(f"{add} {kind} {old.text}, {value.text}"), value.dtype)
            if numeric.is_half(value.dtype):
                value = self.code.rounded(value.text, value.dtype)
        self.code.store(value, pointer)

    # -- loops -------------------------------------------------------------------------------

    @contextmanager
    def over(
        self, dims: list[int], split: int | None, indices: dict[int, str]
    ) -> Iterator[dict[int, str]]:
        """Nested loops over dimensions; `split` is the one that goes from low to high."""
        with ExitStack() as stack:
            inner = dict(indices)
            for d in dims:
                bounds = ("%low", "%high") if d == split else ("0", self.number(self.sizes[d]))
                rolled = d == dims[-1] and self.sizes[d] >= tuning.MIN_ROLLED_LOOP_ELEMENTS
                inner[d] = stack.enter_context(self.code.loop(*bounds, rolled=rolled))
            yield inner

    def write(self) -> Kernel:
        loop, code = self.loop, self.code
        dims = list(range(len(self.sizes)))
        kept = [d for d in dims if not self.flags[d]]
        folds = [d for d in dims if self.flags[d]]
        partials: list[Partial] = []
        if loop.scan is not None:
            split = self._scanned(loop.scan, kept, folds)
        elif not folds:
            split = self._split(dims)
            with self.over(dims, split, {}) as indices:
                values = self.nodes(indices)
                for store in loop.stores:
                    self.store(store, values, indices)
                for fold in loop.folds:
                    code.store(values[fold.node], self.pointer(fold.access, indices))
        elif self.flags[-1] and self._batches_apart(kept, folds):
            split, count = folds[0], size_of(tuple(self.sizes[d] for d in kept))
            partials = [Partial(fold, count, running_dtype(fold)) for fold in loop.folds]
            self._in_sums(kept, folds, partials)
        elif self.flags[-1]:
            split = kept[0] if kept else folds[0]
            with self.over(kept, split, {}) as indices:
                for fold, total in self._in_registers(folds, split, indices):
                    if kept:
                        total = _converted(code, total, fold.access.value.dtype)
                        code.store(total, self.pointer(fold.access, indices))
                    else:
                        code.store(total, f"%partial{len(partials)}")
                        partials.append(Partial(fold, 1, running_dtype(fold)))
        elif self._rows_apart(kept, folds):
            split, count = folds[0], size_of(tuple(self.sizes[d] for d in kept))
            partials = [Partial(fold, count, fold.access.value.dtype) for fold in loop.folds]
            self._in_partials(kept, folds, split)
        else:
            split = kept[0]
            self._in_memory(kept, folds, split)
        code.line("ret void")
        return self._kernel(split, partials)

    def _in_registers(
        self, folds: list[int], split: int, indices: dict[int, str]
    ) -> Iterator[tuple[LoopFold, Register]]:
        """Fold the innermost dimensions into running values; gives each fold with its result."""
        loop, code = self.loop, self.code
        totals = []
        for fold in loop.folds:
            wide = running_dtype(fold)
            total = code.cell(wide)
            code.store(literal(scalar.start_of(fold.primitive, wide), wide), total)
            totals.append(total)
        *outer, last = folds
        with self.over(outer, split, indices) as between:
            low, high = ("%low", "%high")
            if last != split:
                low, high = "0", self.number(self.sizes[last])
            chunk = tuning.FLOAT32_SUM_CHUNK_ELEMENTS
            with code.loop(low, high, chunk) as start:
                end = code.value(f"add nsw i64 {start}, {chunk}")
                end = code.call("i64", "llvm.smin.i64", ("i64", end), ("i64", high))
                parts = []
                for fold in loop.folds:
                    dtype = fold.access.value.dtype
                    part = code.cell(dtype)
                    code.store(literal(scalar.start_of(fold.primitive, dtype), dtype), part)
                    parts.append(part)
                with code.loop(start, end) as index:
                    inner = {**between, last: index}
                    values = self.nodes(inner)
                    for store in loop.stores:
                        self.store(store, values, inner)
                    for fold, part in zip(loop.folds, parts, strict=True):
                        fold_into(code, fold, part, values[fold.node])
                for fold, part, total in zip(loop.folds, parts, totals, strict=True):
                    found = code.load(part, fold.access.value.dtype)
                    fold_into(code, fold, total, _converted(code, found, running_dtype(fold)))
        for fold, total in zip(loop.folds, totals, strict=True):
            yield fold, code.load(total, running_dtype(fold))

    def _in_sums(self, kept: list[int], folds: list[int], partials: list[Partial]) -> None:
        """Fold the innermost dimensions in registers, and the outer ones into a row per thread."""
        code = self.code
        outer, inner = ([d for d in folds if (d < kept[0]) == first] for first in (True, False))
        dtypes = [partial.dtype for partial in partials]
        with self.over(kept, None, {}) as indices:
            for fold, cell in self._cells(kept, dtypes, indices):
                start = scalar.start_of(fold.primitive, running_dtype(fold))
                code.store(literal(start, running_dtype(fold)), cell)
        with self.over(outer, folds[0], {}) as batch, self.over(kept, None, batch) as indices:
            found = list(self._in_registers(inner, folds[0], indices))
            for (fold, cell), (_, total) in zip(
                self._cells(kept, dtypes, indices), found, strict=True
            ):
                fold_into(code, fold, cell, total)

    def _in_memory(self, kept: list[int], folds: list[int], split: int) -> None:
        """Fold outer dimensions into the result's own memory, a row at a time."""
        loop, code = self.loop, self.code
        *outer, last = kept
        with self.over(outer, split, {}) as indices:
            with self.over([last], split, indices) as inner:
                for fold in loop.folds:
                    dtype = fold.access.value.dtype
                    start = literal(scalar.start_of(fold.primitive, dtype), dtype)
                    code.store(start, self.pointer(fold.access, inner))
            with self.over([*folds, last], split, indices) as inner:
                values = self.nodes(inner)
                for store in loop.stores:
                    self.store(store, values, inner)
                for fold in loop.folds:
                    fold_into(code, fold, self.pointer(fold.access, inner), values[fold.node])

    def _rows_apart(self, kept: list[int], folds: list[int]) -> bool:
        """Whether threads should share the rows that are folded, and keep a result each.

        They have rows of what was made before, and hand on rows, so that no thread waits.
        """
        leading = folds == list(range(len(folds)))
        return leading and self.sizes[0] >= tuning.BLOCKS_PER_KERNEL and self._few(kept)

    def _batches_apart(self, kept: list[int], folds: list[int]) -> bool:
        """The same where what is kept, such as channels, lies between what is folded.

        Of a batch of images the channels of one thread would be in the caches of all others.
        """
        if not kept or folds[0] > kept[0]:
            return False
        if size_of(tuple(self.sizes)) < tuning.MIN_LOOP_WORK_TO_SHARE:
            return False
        steps = min(tuning.MIN_BATCH_STEPS_TO_SHARE, self.sizes[kept[0]])
        return self.sizes[0] >= steps and self._few(kept)

    def _few(self, kept: list[int]) -> bool:
        """Whether the results of all folds are small, and in order."""
        sizes = tuple(self.sizes[d] for d in kept)
        return size_of(sizes) <= tuning.MAX_RESULT_ELEMENTS_PER_THREAD and all(
            tuple(self.strides[fold.access][d] for d in kept) == contiguous(sizes)
            for fold in self.loop.folds
        )

    def _cells(
        self, kept: list[int], dtypes: list[Any], indices: dict[int, str]
    ) -> Iterator[tuple[LoopFold, str]]:
        """Each fold, and where a thread keeps its part of an element."""
        steps = contiguous(tuple(self.sizes[d] for d in kept))
        terms = [(indices[d], self.number(s)) for d, s in zip(kept, steps, strict=True)]
        for row, (fold, dtype) in enumerate(zip(self.loop.folds, dtypes, strict=True)):
            position = self.code.position("0", terms)
            yield fold, self.code.element(f"%partial{row}", dtype, position)

    def _in_partials(self, kept: list[int], folds: list[int], split: int) -> None:
        """Fold outer dimensions into a row of each thread's own."""
        loop, code = self.loop, self.code
        dtypes = [fold.access.value.dtype for fold in loop.folds]
        with self.over(kept, None, {}) as indices:
            for fold, cell in self._cells(kept, dtypes, indices):
                dtype = fold.access.value.dtype
                code.store(literal(scalar.start_of(fold.primitive, dtype), dtype), cell)
        with self.over([*folds, *kept], split, {}) as indices:
            values = self.nodes(indices)
            for store in loop.stores:
                self.store(store, values, indices)
            for fold, cell in self._cells(kept, dtypes, indices):
                fold_into(code, fold, cell, values[fold.node])

    # -- running sums ------------------------------------------------------------------------

    def _scanned(self, scan: Scan, kept: list[int], along: list[int]) -> int:
        """Keep the value of every step; returns the dimension that threads share."""
        if not along:  # a single step
            along = [len(self.sizes)]
            self.sizes.append(1)
            self.flags.append(True)
            for strides in self.strides.values():
                strides.append(0)
        (last,) = along
        code, access = self.code, scan.access
        outside, inside = [d for d in kept if d < last], [d for d in kept if d > last]
        split = kept[0] if kept else last
        first, steps = self._scan_index(scan, "0", last), self.number(self.sizes[last])
        with self.over(outside, split if kept else None, {}) as indices:
            if inside:
                # The dimensions behind are walked in each step, so the value before is in memory.
                back = self.strides[access][last] * (1 if scan.reverse else -1)
                with self.over(inside, split, {**indices, last: first}) as inner:
                    self._scan_step(scan, inner, None)
                with code.loop("1", steps) as step:
                    at = {**indices, last: self._scan_index(scan, step, last)}
                    with self.over(inside, split, at) as inner:
                        before = code.element(
                            self.pointer(access, inner), scan.dtype, self.number(back)
                        )
                        self._scan_step(scan, inner, code.load(before, scan.dtype))
            else:
                total = code.cell(scan.dtype)
                code.store(self._scan_step(scan, {**indices, last: first}, None), total)
                with code.loop("1", steps) as step:
                    at = {**indices, last: self._scan_index(scan, step, last)}
                    found = self._scan_step(scan, at, code.load(total, scan.dtype))
                    code.store(found, total)
        return split

    def _scan_index(self, scan: Scan, step: str, dim: int) -> str:
        if not scan.reverse:
            return step
        return self.code.value(f"sub nsw i64 {self.number(self.sizes[dim] - 1)}, {step}")

    def _scan_step(self, scan: Scan, indices: dict[int, str], before: Register | None) -> Register:
        value = self.nodes(indices)[scan.node]
        if before is not None:
            value = scalar.combine(self.code, scan.primitive, before, value, "")
        self.code.store(value, self.pointer(scan.access, indices))
        return value

    # -- the result --------------------------------------------------------------------------

    def _split(self, dims: list[int]) -> int:
        """The dimension that threads share: one whose steps write different elements.

        Threads that put values at the same index would leave that of the last one to come; those
        that share rows of such an index each keep the order of its values.
        """
        at_indices = [s.access for s in self.loop.stores if s.adds or s.access.picks]
        found = (d for d in dims if all(self._apart(access, d) for access in at_indices))
        return next(found, 0)

    def _apart(self, access: Access, split: int) -> bool:
        """Whether steps of one dimension reach different elements, whatever the others do."""
        strides = self.strides[access]
        step = abs(strides[split])
        others = [(abs(strides[d]), n) for d, n in enumerate(self.sizes) if d != split and n > 1]
        others += [(abs(pick.stride), pick.size) for pick in access.picks if pick.size > 1]
        # Smaller steps must stay between two of these; the larger ones lead past all of these.
        within = sum((n - 1) * s for s, n in others if s < step)
        beyond = math.gcd(*[s for s, _ in others if s >= step])
        return within < step and (not beyond or (self.sizes[split] - 1) * step + within < beyond)

    def _kernel(self, split: int, partials: list[Partial]) -> Kernel:
        loop = self.loop
        work = size_of(tuple(self.sizes)) * max(sum(self.work.values()), 1)
        # Two threads must not write the same element.
        shared = any(
            (s.adds or s.access.picks) and not self._apart(s.access, split) for s in loop.stores
        )
        alone = loop.scan is not None and all(self.flags)
        serial = shared or alone
        extent = self.sizes[split]
        flat = len(self.sizes) == 1 and extent >= tuning.MIN_FLAT_LOOP_ELEMENTS_FOR_GRAIN
        grain = grain_of(extent, tuning.FLAT_LOOP_GRAIN_ELEMENTS if flat else 1)

        def byte_range(access: Access) -> ByteRange | None:
            strides = self.strides[access]
            others = [(n - 1) * strides[d] for d, n in enumerate(self.sizes) if d != split]
            return None if access.picks else byte_range_of(access, strides[split], others)

        read = [a for a in dict.fromkeys(_accesses(loop)) if a not in self._sinks()]
        reads = [(a.value.number, byte_range(a)) for a in read]
        sinks = [s.access for s in loop.stores] if partials else self._sinks()
        return Kernel(
            "loop",
            with_entry(
                self.code, len(self.pointers), self.checks, len(partials), len(self.numbers)
            ),
            [(number, offset) for _, number, offset in self.pointers.values()],
            extent,
            grain,
            serial,
            work < tuning.MIN_LOOP_WORK_TO_SHARE and not partials,
            work,
            reads,
            [(a.value.number, byte_range(a)) for a in sinks],
            self.numbers,
            self.checks,
            partials,
        )


def grain_of(extent: int, least: int) -> int:
    """How many steps stay together: large powers of two divide alike whatever a step is."""
    each, left = divmod(extent, tuning.BLOCKS_PER_KERNEL)
    return least if left else max(each, least)


def running_dtype(fold: LoopFold) -> Any:
    """Sums of float32 run in float64 from one chunk to the next."""
    dtype = fold.access.value.dtype
    return FLOAT64 if dtype == FLOAT32 and scalar.is_sum(fold.primitive) else dtype


def _converted(code: Code, value: Register, dtype: Any) -> Register:
    return scalar.Scalar(code, {}, dtype, "").convert(value, dtype)


def fold_into(code: Code, fold: LoopFold, pointer: str, value: Register) -> None:
    """Combine a value with the running value in memory; sums may be reordered."""
    total = code.load(pointer, value.dtype)
    code.store(scalar.combine(code, fold.primitive, total, value, "reassoc contract"), pointer)


def loop(
    instruction: Loop, allocations: dict[int, Allocation], general: bool = False
) -> Kernel | None:
    """The kernel of a loop; None if it has nothing to do."""
    if size_of(instruction.shape) == 0 and not instruction.folds:
        return None
    return LoopWriter(instruction, allocations, general).write()


def finish(partial: Partial) -> str:
    """The text of the kernel that combines what each thread has folded."""
    fold, code = partial.fold, Code()
    wide, dtype = partial.dtype, fold.access.value.dtype
    total = code.cell(wide)
    with code.loop("0", "%number0") as element:
        code.store(literal(scalar.start_of(fold.primitive, wide), wide), total)
        with code.loop("%low", "%high") as thread:
            offset = code.value(f"mul nsw i64 {thread}, %number1")
            mine = code.value(f"getelementptr inbounds i8, ptr %p0, i64 {offset}")
            fold_into(code, fold, total, code.load(code.element(mine, wide, element), wide))
        found = _converted(code, code.load(total, wide), dtype)
        code.store(found, code.element("%p1", dtype, element))
    code.line("ret void")
    return with_entry(code, 2, numbers=2)
