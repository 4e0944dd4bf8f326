"""Loops: the kernels of one `Loop` for a grid of threads.

Comes in: a `Loop` and the memory of its values. Goes out: a `GridKernel`, or two for a reduction in
parts. Called by `emit.py`. A thread computes:

    no fold      elements one block's size apart, so that neighbouring threads read neighbours
    fold         a strided share of one result; the threads of a result then combine their shares in
                 shared memory. If the last dimension is folded, neighbouring threads share a
                 result; if it is kept, they have neighbouring results.
    in parts     the same for a part of a result's elements; a second kernel combines the parts
    scan         one line, from its beginning to its end

Sizes and strides are constants in the text, so that LLVM turns divisions into shifts or products.
Those of general kernels are parameters, so that one text serves eager operations of all sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from ..ir.program import Compute, Loop, LoopFold, Product, Store, size_of
from ..native import scalar
from ..native.code import FLOAT32, FLOAT64, Code, Register, literal, memory_type
from ..native.elements import ElementWriter, converted
from ..native.plan import Allocation
from . import tuning
from .grid import Grid
from .kernel import GridKernel, parameters, unravelled

MakeGrid = Callable[[int], Grid]


class GridSettings(NamedTuple):
    """The settings that kernels are written for."""

    make_grid: MakeGrid
    #: whether sums must not depend on the order of threads
    deterministic: bool = False
    #: values whose memory moves from run to run
    moving: frozenset[int] = frozenset()
    #: values that are one number, and parameters of kernels themselves, without memory
    held: frozenset[int] = frozenset()
    #: whether sizes and strides are parameters of kernels
    general: bool = False
    #: whether a library computes a product
    computes: Callable[[Product], bool] = lambda product: True


class GridWriter(ElementWriter):
    """Writes the kernels of one loop; `guarded` ones do nothing once bad data were found."""

    def __init__(
        self,
        loop: Loop,
        allocations: dict[int, Allocation],
        settings: GridSettings,
        guarded: bool,
    ) -> None:
        super().__init__(loop, allocations, general=settings.general)
        self._settings = settings
        self._guarded = guarded
        self.grid: Grid

    def number(self, number: int, role: object = "size") -> str:
        return super().number(number, role) if self.general else str(number)

    def literal(self, number: Any, node: Compute, operands: list[Any]) -> Any:
        return super().literal(number, node, operands) if self.general else number

    def _factors(self, node: Compute, operands: list[Any]) -> dict[str, Any]:
        return super()._factors(node, operands) if self.general else node.params

    def _begin(self, threads: int) -> Code:
        self.grid = self._settings.make_grid(threads)
        self.code = self.grid.code
        self.pointers, self.numbers, self.number_indices = {}, [], {}
        if self._guarded:
            self.grid.guard()
        return self.code

    def write(self) -> list[GridKernel]:
        dims = list(range(len(self.sizes)))
        kept = [d for d in dims if not self.flags[d]]
        folds = [d for d in dims if self.flags[d]]
        if self.loop.scan is not None:
            return [self._scanned(kept, folds)]
        if self.loop.folds:
            return self._folded(kept, folds)
        return [self._mapped(dims)]

    def _at(self, flat: str, dims: list[int]) -> dict[int, str]:
        """The indices along some dimensions of a flat position among their elements."""
        if not dims:
            return {}
        sizes = [self.number(self.sizes[d]) for d in dims]
        found = unravelled(self.grid, flat, sizes, self._count(dims))
        return dict(zip(dims, found, strict=True))

    def _count(self, dims: list[int]) -> int:
        return size_of(tuple(self.sizes[d] for d in dims))

    def _kernel(self, what: str, blocks: int, partials: list[int] | None = None) -> GridKernel:
        partials = partials or []
        pointers = [(number, offset) for _, number, offset in self.pointers.values()]
        wanted = self._settings
        given = parameters(
            *(pointers, wanted.moving, wanted.held, self.checks, self._guarded),
            *(len(partials), len(self.numbers)),
        )
        return GridKernel(
            what,
            self.grid.text(given),
            blocks,
            self.grid.threads,
            pointers,
            self.checks,
            self._guarded,
            partials,
            self.numbers,
        )

    # -- elements ----------------------------------------------------------------------------

    def _mapped(self, dims: list[int]) -> GridKernel:
        """A thread for each element, or for several."""
        split = self._split(dims)
        total = self._count(split)
        many = total >= tuning.MIN_ELEMENTS_FOR_SEVERAL
        each = tuning.ELEMENTS_PER_THREAD if many and len(split) == len(dims) else 1
        code, threads = self._begin(tuning.MAP_THREADS), tuning.MAP_THREADS
        tile, end = threads * each, self.number(total, "total")
        with self.grid.phase() as lane:
            first = code.value(f"mul nsw i64 %block, {tile}")
            first = code.value(f"add nsw i64 {first}, {lane}")
            if each > 1:
                last = code.value(f"add nsw i64 {first}, {tile - threads}")
                with code.when(code.value(f"icmp slt i64 {last}, {end}")):
                    steps = [code.value(f"add nsw i64 {first}, {i * threads}") for i in range(each)]
                    self._several([self._at(flat, dims) for flat in steps])
            if each == 1 or total % tile or self.general:
                with code.loop("0", str(each)) as i:
                    step = code.value(f"mul nsw i64 {i}, {threads}")
                    flat = code.value(f"add nsw i64 {first}, {step}")
                    mine = code.value(f"icmp slt i64 {flat}, {end}")
                    if each > 1:
                        late = code.value(f"icmp sge i64 {last}, {end}")
                        mine = code.value(f"and i1 {mine}, {late}")
                    with code.when(mine):
                        self._elements(dims, split, flat)
        return self._kernel("map", -(-total // tile))

    def _several(self, places: list[dict[int, str]]) -> list[list[Register]]:
        """Compute elements at some indices: all loads come first, so that they overlap."""
        reads = [self.reads(indices) for indices in places]
        found = [self.nodes(*given) for given in zip(places, reads, strict=True)]
        for values, indices in zip(found, places, strict=True):
            for store in self.loop.stores:
                self.store(store, values, indices)
        return found

    def _elements(self, dims: list[int], split: list[int], flat: str) -> None:
        """The elements of one thread: one, or all along the dimensions that are not shared."""
        rest = [d for d in dims if d not in split]
        with self.over(rest, None, self._at(flat, split)) as indices:
            indices = {d: indices[d] for d in dims}
            values = self.nodes(indices)
            for store in self.loop.stores:
                self.store(store, values, indices)

    def _split(self, dims: list[int]) -> list[int]:
        """The dimensions that threads share: those whose steps write different elements.

        If threads shared the indices of a scatter, values at the same index would race.
        """
        serial = [s.access for s in self.loop.stores if self._is_serial(s)]
        return [d for d in dims if all(self.apart(access, d) for access in serial)]

    def _is_serial(self, store: Store) -> bool:
        """Whether several steps may write one element, and their order matters."""
        if not store.adds:
            return bool(store.access.picks)
        return self._settings.deterministic or memory_type(store.access.value.dtype) not in ATOMIC

    def store(self, store: Store, values: list[Register], indices: dict[int, str]) -> None:
        value = values[store.node]
        if not store.adds or self._is_serial(store):
            super().store(store, values, indices)
            return
        self.grid.add(self.pointer(store.access, indices), value.dtype, value.text)

    # -- reductions --------------------------------------------------------------------------

    def _folded(self, kept: list[int], folds: list[int]) -> list[GridKernel]:
        """One kernel, or one for the parts of each result and one that combines them."""
        loop = self.loop
        shape = FoldShape(self._count(kept), self._count(folds), along=self.flags[-1])
        dtypes = [running_dtype(fold) for fold in loop.folds]
        sizes = [dtype.itemsize * shape.parts * shape.kept for dtype in dtypes]

        def elements(result: str, positions: list[str]) -> list[list[Register]]:
            outside = self._at(result, kept)
            places = [outside | self._at(position, folds) for position in positions]
            places = [{d: indices[d] for d in sorted(indices)} for indices in places]
            found = self._several(places)
            return [[values[fold.node] for fold in loop.folds] for values in found]

        def part_of(result: str, part: str) -> list[str]:
            before = self.code.value(f"mul nsw i64 {part}, {self.number(shape.kept, 'kept')}")
            position = self.code.value(f"add nsw i64 {before}, {result}")
            cells = enumerate(dtypes)
            return [self.code.element(f"%partial{i}", dtype, position) for i, dtype in cells]

        def parts(result: str, positions: list[str]) -> list[list[Register]]:
            cells = [zip(part_of(result, part), dtypes, strict=True) for part in positions]
            return [[self.code.load(c, dtype) for c, dtype in part] for part in cells]

        def leave(result: str, totals: list[Register]) -> None:
            outside = self._at(result, kept)
            for fold, total in zip(loop.folds, totals, strict=True):
                found = converted(self.code, total, fold.access.value.dtype)
                self.code.store(found, self.pointer(fold.access, outside))

        def leave_part(result: str, totals: list[Register]) -> None:
            part = self.code.value(f"udiv i64 %block, {self.number(shape.groups, 'groups')}")
            for total, cell in zip(totals, part_of(result, part), strict=True):
                self.code.store(total, cell)

        if shape.parts == 1:
            self._reduced(shape, dtypes, elements, leave)
            return [self._kernel("fold", shape.blocks)]
        self._reduced(shape, dtypes, elements, leave_part)
        first = self._kernel("fold", shape.blocks, sizes)
        self.checks = False
        few = shape.kept <= tuning.MAX_RESULTS_OF_LONG_FINISH
        rest = FoldShape(shape.kept, shape.parts, along=few, whole=True)
        self._reduced(rest, dtypes, parts, leave)
        return [first, self._kernel("finish", rest.blocks, sizes)]

    def _reduced(
        self,
        shape: FoldShape,
        dtypes: list[Any],
        elements: Callable[[str, list[str]], list[list[Register]]],
        leave: Callable[[str, list[Register]], None],
    ) -> None:
        """Fold what `elements` gives at positions of a result, and `leave` the totals.

        A thread loads several elements before it folds them, to hide the latency of memory.
        """
        code = self._begin(shape.threads)
        grid, folds = self.grid, list(zip(self.loop.folds, dtypes, strict=True))
        starts = [literal(scalar.start_of(fold.primitive, dtype), dtype) for fold, dtype in folds]
        shared = [grid.shared(dtype, shape.threads) for dtype in dtypes]

        def cells(lane: str) -> list[str]:
            return [code.element(c, d, lane) for c, d in zip(shared, dtypes, strict=True)]

        with grid.phase() as lane:
            totals = [code.cell(dtype) for dtype in dtypes]
            for start, total in zip(starts, totals, strict=True):
                code.store(start, total)

            def fold_at(result: str, positions: list[str]) -> None:
                for found in elements(result, positions):
                    for (fold, dtype), total, value in zip(folds, totals, found, strict=True):
                        fold_into(code, fold, total, converted(code, value, dtype))

            with self._of_thread(shape, lane) as (result, first, end):
                several, step = tuning.ELEMENTS_PER_FOLDING, shape.lanes
                if shape.part_length >= several * step:
                    # Groups of several elements first, then the rest one by one.
                    span = code.value(f"sub nsw i64 {end}, {first}")
                    span = code.call("i64", "llvm.smax.i64", ("i64", span), ("i64", "0"))
                    count = code.value(f"add nsw i64 {span}, {step - 1}")
                    count = code.value(f"udiv i64 {count}, {several * step}")
                    with code.loop("0", count) as i:
                        before = code.value(f"mul nsw i64 {i}, {several * step}")
                        position = code.value(f"add nsw i64 {first}, {before}")
                        later = [f"add nsw i64 {position}, {n * step}" for n in range(several)]
                        fold_at(result, [code.value(text) for text in later])
                    done = code.value(f"mul nsw i64 {count}, {several * step}")
                    first = code.value(f"add nsw i64 {first}, {done}")
                with code.loop(first, end, step) as position:
                    fold_at(result, [position])
            for dtype, total, cell in zip(dtypes, totals, cells(lane), strict=True):
                code.store(code.load(total, dtype), cell)
        step = shape.lanes // 2
        while step:
            with grid.phase(shape.in_warp) as lane:
                below = code.value(f"icmp slt i64 {shape.fold_lane(code, lane)}, {step}")
                with code.when(below):
                    distance = step if shape.along else step * shape.results
                    other = code.value(f"add nsw i64 {lane}, {distance}")
                    for (fold, dtype), mine, theirs in zip(
                        folds, cells(lane), cells(other), strict=True
                    ):
                        fold_into(code, fold, mine, code.load(theirs, dtype))
            step //= 2
        with grid.phase(shape.in_warp) as lane:
            leader = code.value(f"icmp eq i64 {shape.fold_lane(code, lane)}, 0")
            with code.when(leader), self._of_thread(shape, lane) as (result, _, _):
                leave(result, [code.load(c, d) for c, d in zip(cells(lane), dtypes, strict=True)])

    @contextmanager
    def _of_thread(self, shape: FoldShape, lane: str) -> Iterator[tuple[str, str, str]]:
        """The result that a thread works for, and its first and last position (exclusive)."""
        code, group = self.code, "%block"
        groups, length = self.number(shape.groups, "groups"), self.number(shape.folded, "folded")
        if shape.parts > 1:
            group = code.value(f"urem i64 %block, {groups}")
        first = code.value(f"mul nsw i64 {group}, {shape.results}")
        result = code.value(f"add nsw i64 {first}, {shape.kept_lane(code, lane)}")
        with code.when(code.value(f"icmp slt i64 {result}, {self.number(shape.kept, 'kept')}")):
            low = shape.fold_lane(code, lane)
            if shape.parts == 1:
                yield result, low, length
                return
            part = code.value(f"udiv i64 %block, {groups}")
            step = self.number(shape.part_length, "part")
            begin = code.value(f"mul nsw i64 {part}, {step}")
            end = code.value(f"add nsw i64 {begin}, {step}")
            end = code.call("i64", "llvm.smin.i64", ("i64", end), ("i64", length))
            yield result, code.value(f"add nsw i64 {begin}, {low}"), end

    # -- running sums ------------------------------------------------------------------------

    def _scanned(self, kept: list[int], along: list[int]) -> GridKernel:
        """A line for each thread; each step combines its element with the step before."""
        scan = self.loop.scan
        assert scan is not None
        code, lines = self._begin(tuning.SCAN_THREADS), self._count(kept)
        steps = self._count(along)
        last = self.number(steps - 1, "last")
        with self.grid.phase() as lane:
            first = code.value(f"mul nsw i64 %block, {self.grid.threads}")
            line = code.value(f"add nsw i64 {first}, {lane}")
            with code.when(code.value(f"icmp slt i64 {line}, {self.number(lines, 'lines')}")):
                outside = self._at(line, kept)
                total = code.cell(scan.dtype)
                with code.loop("0", self.number(steps, "steps")) as step:
                    at = code.value(f"sub nsw i64 {last}, {step}") if scan.reverse else step
                    indices = outside | dict.fromkeys(along, at)
                    indices = {d: indices[d] for d in sorted(indices)}
                    value = self.nodes(indices)[scan.node]
                    found = self._running(scan.primitive, total, value, step)
                    code.store(found, total)
                    code.store(found, self.pointer(scan.access, indices))
        return self._kernel("scan", -(-lines // self.grid.threads))

    def _running(self, primitive: Any, total: str, value: Register, step: str) -> Register:
        """The running value of a step; in the first step, that of its element alone."""
        code = self.code
        cell = code.cell(value.dtype)
        code.store(value, cell)
        with code.when(code.value(f"icmp ne i64 {step}, 0")):
            before = code.load(total, value.dtype)
            code.store(scalar.combine(code, primitive, before, value, ""), cell)
        return code.load(cell, value.dtype)


#: LLVM types of elements that a GPU can add to atomically
ATOMIC = {"float", "double", "i32", "i64"}


class FoldShape:
    """How the threads of a grid share a reduction; one that is `whole` is not cut into parts."""

    def __init__(self, kept: int, folded: int, along: bool, whole: bool = False) -> None:
        self.kept, self.folded = kept, folded
        #: whether neighbouring threads share a result
        self.along = along
        if along:
            short = folded <= tuning.MAX_FOLDED_PER_WARP
            if kept >= tuning.MIN_RESULTS_FOR_LONG_WARPS:
                short = folded <= tuning.MAX_FOLDED_PER_LONG_WARP
            self.lanes = tuning.WARP if short else tuning.FOLD_THREADS
        else:
            self.lanes = tuning.FOLD_THREADS // tuning.WARP
        #: whether the threads of a result run in lockstep
        self.in_warp = along and self.lanes == tuning.WARP
        self.threads = tuning.FOLD_THREADS
        #: results per block, and the number of blocks for all results
        self.results = self.threads // self.lanes
        self.groups = max(-(-kept // self.results), 1)
        wanted = -(-tuning.WANTED_BLOCKS // self.groups)
        longest = max(folded // (self.lanes * tuning.MIN_STEPS_OF_PART), 1)
        few = self.groups < tuning.MIN_BLOCKS
        if self.in_warp and kept >= tuning.MIN_RESULTS_FOR_LONG_WARPS:
            few = False
        self.parts = min(wanted, longest) if few and not whole else 1
        self.part_length = -(-max(folded, 1) // self.parts)
        if self.parts > 1:
            # Parts that begin anywhere would share cache lines with their neighbours.
            unit = self.lanes * tuning.ELEMENTS_PER_FOLDING
            self.part_length = -(-self.part_length // unit) * unit
        self.parts = max(-(-folded // self.part_length), 1)
        self.blocks = self.groups * self.parts

    def fold_lane(self, code: Code, lane: str) -> str:
        """The number of a thread among the threads of its result."""
        if self.along:
            return code.value(f"urem i64 {lane}, {self.lanes}")
        return code.value(f"udiv i64 {lane}, {self.results}")

    def kept_lane(self, code: Code, lane: str) -> str:
        """The number of a thread's result among the results of its block."""
        if self.along:
            return code.value(f"udiv i64 {lane}, {self.lanes}")
        return code.value(f"urem i64 {lane}, {self.results}")


def running_dtype(fold: LoopFold) -> Any:
    """The dtype of running values: float64 for sums of float32, which wait for memory anyway."""
    dtype = fold.access.value.dtype
    return FLOAT64 if dtype == FLOAT32 and scalar.is_sum(fold.primitive) else dtype


def fold_into(code: Code, fold: LoopFold, pointer: str, value: Register) -> None:
    """Combine a value with the running value in memory."""
    total = code.load(pointer, value.dtype)
    code.store(scalar.combine(code, fold.primitive, total, value, ""), pointer)


def loop(
    instruction: Loop,
    allocations: dict[int, Allocation],
    settings: GridSettings,
    guarded: bool = False,
) -> list[GridKernel]:
    """The kernels of a loop; none if it has nothing to do."""
    if size_of(instruction.shape) == 0 and not instruction.folds:
        return []
    return GridWriter(instruction, allocations, settings, guarded).write()
