"""Loops: the kernel of one `Loop`, or of the end of a reduction.

Comes in: a `Loop` and the memory of its values. Goes out: a `Kernel` (`kernel.py`) that does the
steps `low` to `high` of one dimension, so that threads can share it. Called by `emit.py`. The
folded dimensions decide the order of loops:

    no fold             all dimensions in order
    last dim folded     kept dimensions outside, folded ones inside, running values in registers
    last dim kept       folded dimensions outside it, running values in the result's memory or, if
                        they are small, in memory of each thread, so that threads share the rows
    scan                the scanned dimension inside, or the dimensions behind it inside that one
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ..ir.program import (
    Access,
    Loop,
    LoopFold,
    Scan,
    contiguous,
    size_of,
)
from ..native import scalar
from ..native.code import FLOAT32, FLOAT64, Code, Register, literal
from ..native.elements import ElementWriter, accesses_of, converted
from ..native.plan import Allocation
from . import tuning
from .kernel import ByteRange, Kernel, Partial, byte_range_of, grain_of, with_entry


class LoopWriter(ElementWriter):
    """Writes the function of one loop."""

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
                        total = converted(code, total, fold.access.value.dtype)
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
        """Fold the innermost dimensions into running values; yields each fold with its result."""
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
                    fold_into(code, fold, total, converted(code, found, running_dtype(fold)))
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
        """Whether threads should share the folded rows, and keep a result each.

        Kernels before and after it are often divided by rows too, and then no thread waits.
        """
        leading = folds == list(range(len(folds)))
        return leading and self.sizes[0] >= tuning.BLOCKS_PER_KERNEL and self._few(kept)

    def _batches_apart(self, kept: list[int], folds: list[int]) -> bool:
        """The same if kept dimensions, such as channels, lie between folded ones.

        If threads shared the channels of a batch of images, they would read other cores' caches.
        """
        if not kept or folds[0] > kept[0]:
            return False
        if size_of(tuple(self.sizes)) < tuning.LOOP_WORK_PER_THREAD:
            return False
        steps = min(tuning.MIN_BATCH_STEPS_TO_SHARE, self.sizes[kept[0]])
        return self.sizes[0] >= steps and self._few(kept)

    def _few(self, kept: list[int]) -> bool:
        """Whether the results of all folds are small and contiguous."""
        sizes = tuple(self.sizes[d] for d in kept)
        return size_of(sizes) <= tuning.MAX_RESULT_ELEMENTS_PER_THREAD and all(
            tuple(self.strides[fold.access][d] for d in kept) == contiguous(sizes)
            for fold in self.loop.folds
        )

    def _cells(
        self, kept: list[int], dtypes: list[Any], indices: dict[int, str]
    ) -> Iterator[tuple[LoopFold, str]]:
        """Each fold, with a pointer to the thread's own running value of an element."""
        steps = contiguous(tuple(self.sizes[d] for d in kept))
        terms = [(indices[d], self.number(s)) for d, s in zip(kept, steps, strict=True)]
        for row, (fold, dtype) in enumerate(zip(self.loop.folds, dtypes, strict=True)):
            position = self.code.position("0", terms)
            yield fold, self.code.element(f"%partial{row}", dtype, position)

    def _in_partials(self, kept: list[int], folds: list[int], split: int) -> None:
        """Fold outer dimensions into each thread's own row."""
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
        """Store the running value of every step; returns the dimension that threads share."""
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
                # The loop over the dimensions behind runs in each step, so the value of the step
                # before is read from memory.
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

        If threads shared the indices of a scatter, values at the same index would race; if they
        share its rows, each thread keeps the order of values.
        """
        at_indices = [s.access for s in self.loop.stores if s.adds or s.access.picks]
        found = (d for d in dims if all(self.apart(access, d) for access in at_indices))
        return next(found, 0)

    def _kernel(self, split: int, partials: list[Partial]) -> Kernel:
        loop = self.loop
        work = size_of(tuple(self.sizes)) * max(sum(self.work.values()), 1)
        # Two threads must not write the same element.
        shared = any(
            (s.adds or s.access.picks) and not self.apart(s.access, split) for s in loop.stores
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

        read = [a for a in dict.fromkeys(accesses_of(loop)) if a not in self._sinks()]
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
            _worth(work, partials),
            work,
            reads,
            [(a.value.number, byte_range(a)) for a in sinks],
            self.numbers,
            self.checks,
            partials,
        )


def _worth(work: int, partials: list[Partial]) -> int:
    """How many threads pay; a single thread must combine the partial results of all."""
    worth = 1 + work // tuning.LOOP_WORK_PER_THREAD
    if not partials:
        return worth
    return max(min(worth, math.isqrt(work // sum(p.count for p in partials))), 2)


def running_dtype(fold: LoopFold) -> Any:
    """The dtype of running values: sums of float32 use float64 from one chunk to the next."""
    dtype = fold.access.value.dtype
    return FLOAT64 if dtype == FLOAT32 and scalar.is_sum(fold.primitive) else dtype


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
        found = converted(code, code.load(total, wide), dtype)
        code.store(found, code.element("%p1", dtype, element))
    code.line("ret void")
    return with_entry(code, 2, numbers=2)
