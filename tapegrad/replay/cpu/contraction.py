"""Kernels of contractions: sums of products over strided views, in tiles of registers.

Comes in: a `Contraction`, out = sum of x * y over some dimensions of a common index space. Goes
out: a `Kernel`. The strides of the operands decide what a vector is:

    along a kept dimension     one operand is read in vectors, the other one scalar at a time; a
                               tile is several vectors times several scalars
    along a summed dimension   both are read in vectors; a tile is several of each, and the lanes
                               are summed at the end
    neither                    one element at a time

A tile is summed in registers from beginning to end. Sizes and strides are in the kernel's table, so
images of other sizes share the text; it depends only on how many vectors and rows a tile has, and
on whether the last ones are full. Called by `emit.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from ..ir.program import Access, Contraction, size_of
from ..ir.shapes import joined
from ..native import tuning as native_tuning
from ..native.code import Code, literal, type_of
from . import tuning, vectors
from .kernel import ByteRange, Kernel, byte_range_of, with_entry


def _tile(n: int, most: int) -> int:
    """A tile size for n steps: at most `most`, and a divisor of n if one is nearly as large."""
    most = max(min(n, most), 1)
    return next((k for k in range(most, most * 2 // 3, -1) if n % k == 0), most)


class ContractionWriter:
    """Writes the function of one contraction."""

    def __init__(self, contraction: Contraction) -> None:
        c = contraction
        accesses = (c.x, c.y, c.out)
        sizes, strides, flags = joined(c.shape, [a.strides for a in accesses], set(c.dims))
        self.sizes, self.flags = sizes or [1], flags or [False]
        self.x, self.y, self.out = (s or [0] for s in strides)
        if all(self.flags):
            self.sizes, self.flags = [1, *self.sizes], [False, *self.flags]
            self.x, self.y, self.out = ([0, *s] for s in (self.x, self.y, self.out))
        self.dtype = c.out.value.dtype
        self.kind = type_of(self.dtype)
        self.code = Code()
        self.kept = [d for d, flag in enumerate(self.flags) if not flag]
        self.summed = [d for d, flag in enumerate(self.flags) if flag]
        self.lanes = 1
        #: the dimension that threads share, its number of steps, and the elements of a step
        self.split = self.kept[0]
        self.extent = 1
        self.step = 1
        self.numbers: list[int] = []  # of the kernel's table, on which the text does not depend
        self.number_indices: dict[Any, int] = {}
        #: the pointer of a filter: its strides and the summed sizes are constants in the text
        self.known: set[str] = set()

    # -- elements ----------------------------------------------------------------------------

    @property
    def vector(self) -> str:
        return f"<{self.lanes} x {self.kind}>" if self.lanes > 1 else self.kind

    @property
    def suffix(self) -> str:
        """The suffix of intrinsics for the vector type."""
        return f"v{self.lanes}f{8 * self.dtype.itemsize}"

    def cell(self) -> str:
        """A vector variable, initialised with zero."""
        name = self.code.name()
        self.code.first.append(f"  {name} = alloca {self.vector}")
        self.code.line(f"store {self.vector} zeroinitializer, ptr {name}")
        return name

    def at(self, pointer: str, strides: list[int], indices: dict[int, str], moved: Any = ()) -> str:
        """A pointer to an element; `moved` has constant steps along dimensions."""
        terms = [(index, self.stride(pointer, strides, d)) for d, index in indices.items()]
        start = self.code.element(pointer, self.dtype, self.code.position("0", terms))
        return self.code.element(start, self.dtype, self.way(pointer, strides, moved))

    def way(self, pointer: str, strides: list[int], moved: Any) -> str:
        """The offset of constant steps along dimensions, in elements."""
        steps = [(n, self.stride(pointer, strides, d)) for d, n in moved if n]
        known = sum(n * int(step) for n, step in steps if not step.startswith("%"))
        others = [(step, str(n)) for n, step in steps if step.startswith("%")]
        return self.code.position(str(known), others)

    def stride(self, pointer: str, strides: list[int], d: int) -> str:
        """The text of a stride."""
        known = pointer in self.known or 0 <= strides[d] <= tuning.MAX_VECTOR_STEP
        return str(strides[d]) if known else self.number(strides[d], (pointer, d))

    def size(self, d: int) -> str:
        """The text of a size: a number of the table, unless it is small or a filter's."""
        small = self.sizes[d] <= native_tuning.MAX_NUMBER_IN_TEXT
        known = small or (self.known and self.flags[d])
        return str(self.sizes[d]) if known else self.number(self.sizes[d], d)

    def number(self, number: int, role: Any) -> str:
        """The text of a number that is read from the kernel's table; each role has one entry."""
        if role not in self.number_indices:
            self.number_indices[role] = len(self.numbers)
            self.numbers.append(number)
        return f"%number{self.number_indices[role]}"

    def mask(self, count: str, lanes: int) -> str:
        """A mask of the first `count` lanes."""
        code, kind = self.code, f"<{lanes} x i64>"
        first = code.value(f"insertelement {kind} poison, i64 {count}, i64 0")
        zeros = f"<{lanes} x i32> zeroinitializer"
        limit = code.value(f"shufflevector {kind} {first}, {kind} poison, {zeros}")
        positions = ", ".join(f"i64 {i}" for i in range(lanes))
        return code.value(f"icmp sgt {kind} {limit}, <{positions}>")

    def load(self, pointer: str, count: str | None, step: int = 1) -> str:
        """A vector of elements `step` apart; the first `count` lanes are read, the rest is 0."""
        code, size = self.code, self.dtype.itemsize
        if step > 1 and self.lanes > 1:
            return self.load_apart(pointer, count, step)
        if count is None:
            return code.value(f"load {self.vector}, ptr {pointer}, align {size}")
        return code.call(
            self.vector,
            f"llvm.masked.load.{self.suffix}.p0",
            ("ptr", pointer),
            ("i32", str(size)),
            (f"<{self.lanes} x i1>", self.mask(count, self.lanes)),
            (self.vector, "zeroinitializer"),
            pure=False,
        )

    def load_apart(self, pointer: str, count: str | None, step: int) -> str:
        """The same for `step` > 1: reads the gaps between the elements as well."""
        code, lanes = self.code, self.lanes * step
        wide, bits = f"<{lanes} x {self.kind}>", f"<{lanes} x i1>"
        last = lanes - step + 1
        if count is None:
            read = ", ".join(f"i1 {str(i < last).lower()}" for i in range(lanes))
            mask = f"<{read}>"
        else:
            ends = code.value(f"mul nsw i64 {count}, {step}")
            mask = self.mask(code.value(f"sub nsw i64 {ends}, {step - 1}"), lanes)
        found = code.call(
            wide,
            f"llvm.masked.load.v{lanes}f{8 * self.dtype.itemsize}.p0",
            ("ptr", pointer),
            ("i32", str(self.dtype.itemsize)),
            (bits, mask),
            (wide, "zeroinitializer"),
            pure=False,
        )
        picked = ", ".join(f"i32 {i * step}" for i in range(self.lanes))
        return code.value(
            f"shufflevector {wide} {found}, {wide} poison, <{self.lanes} x i32> <{picked}>"
        )

    def store(self, value: str, pointer: str, count: str | None) -> None:
        code, size = self.code, self.dtype.itemsize
        if count is None:
            code.line(f"store {self.vector} {value}, ptr {pointer}, align {size}")
            return
        code.call(
            "void",
            f"llvm.masked.store.{self.suffix}.p0",
            (self.vector, value),
            ("ptr", pointer),
            ("i32", str(size)),
            (f"<{self.lanes} x i1>", self.mask(count, self.lanes)),
            pure=False,
        )

    def spread(self, pointer: str) -> str:
        """A scalar, broadcast to all lanes."""
        code = self.code
        number = code.load(pointer, self.dtype).text
        if self.lanes == 1:
            return number
        first = code.value(f"insertelement {self.vector} poison, {self.kind} {number}, i64 0")
        zeros = f"<{self.lanes} x i32> zeroinitializer"
        return code.value(f"shufflevector {self.vector} {first}, {self.vector} poison, {zeros}")

    def multiply_add(self, cell: str, x: str, y: str) -> None:
        code = self.code
        product = code.value(f"fmul contract {self.vector} {x}, {y}")
        old = code.value(f"load {self.vector}, ptr {cell}")
        total = code.value(f"fadd contract {self.vector} {old}, {product}")
        code.line(f"store {self.vector} {total}, ptr {cell}")

    def add_lanes(self, cell: str, pointer: str, first: str) -> None:
        """Add the lanes of a sum to an element, which counts as 0 if `first`."""
        code, kind = self.code, self.kind
        vector = code.value(f"load {self.vector}, ptr {cell}")
        function, zero = f"llvm.vector.reduce.fadd.{self.suffix}", literal(0, self.dtype).text
        code.declared.add(f"declare {kind} @{function}({kind}, {self.vector})")
        given = f"({kind} {zero}, {self.vector} {vector})"
        total = code.value(f"call reassoc {kind} @{function}{given}")
        old = code.load(pointer, self.dtype).text
        old = code.value(f"select i1 {first}, {kind} {zero}, {kind} {old}")
        total = code.value(f"fadd {kind} {old}, {total}")
        code.line(f"store {kind} {total}, ptr {pointer}")

    # -- loops -------------------------------------------------------------------------------

    @contextmanager
    def over(self, dims: list[int], indices: dict[int, str]) -> Iterator[dict[int, str]]:
        with ExitStack() as stack:
            inner = dict(indices)
            for d in dims:
                whole = ("0", self.size(d))
                bounds = ("%low", "%high") if d == self.split else whole
                inner[d] = stack.enter_context(self.code.loop(*bounds))
            yield inner

    def blocks(
        self,
        dims: list[tuple[int | None, int]],
        indices: dict[int, str],
        body: Callable[..., None],
        *sizes: int,
    ) -> None:
        """Call `body(indices, *sizes)` for blocks of dimensions; the last ones may be smaller.

        A missing dimension (None) has one block of size 1. If threads share a dimension, they share
        its blocks.
        """
        if not dims:
            body(indices, *sizes)
            return
        (d, step), *rest = dims
        if d is None:
            self.blocks(rest, indices, body, *sizes, 1)
            return
        code, left = self.code, self.sizes[d] % step
        full = self.number(self.sizes[d] // step, ("blocks", d))
        last = {**indices, d: code.value(f"mul nsw i64 {full}, {step}")}
        low, high = "0", full
        if d == self.split:
            low, high = "%low", code.call("i64", "llvm.smin.i64", ("i64", "%high"), ("i64", full))
        with code.loop(low, high) as block:
            index = code.value(f"mul nsw i64 {block}, {step}")
            self.blocks(rest, {**indices, d: index}, body, *sizes, step)
        if left and d == self.split:
            mine = code.value(f"icmp sgt i64 %high, {full}")
            some = code.value("icmp slt i64 %low, %high")
            with code.when(code.value(f"and i1 {mine}, {some}")):
                self.blocks(rest, last, body, *sizes, left)
        elif left:
            self.blocks(rest, last, body, *sizes, left)

    def columns(
        self, d: int, width: int, indices: dict[int, str], body: Callable[..., None]
    ) -> None:
        """Call `body(indices, vectors, count)` for blocks of `width` elements of a dimension.

        `count` is None if all lanes are used, otherwise the number of lanes used in the last
        vector. If threads share the dimension, they share its blocks. Dimensions hardly longer than
        a block have the same text as longer ones.
        """
        code, (full, left) = self.code, divmod(self.sizes[d], width)
        blocks = self.number(full, ("blocks", d))
        if self.flags[d] and full <= native_tuning.MAX_NUMBER_IN_TEXT:
            blocks = str(full)  # an inner loop, which LLVM unrolls
        several = full > 0 or (not self.flags[d] and width > self.lanes)
        if several:
            low, high = "0", blocks
            if d == self.split:
                end = code.call("i64", "llvm.smin.i64", ("i64", "%high"), ("i64", blocks))
                low, high = "%low", end
            with code.loop(low, high) as block:
                index = code.value(f"mul nsw i64 {block}, {width}")
                body({**indices, d: index}, width // self.lanes, None)
        if not left:
            return
        last = {**indices, d: code.value(f"mul nsw i64 {blocks}, {width}") if several else "0"}
        count = self.number((left - 1) % self.lanes + 1, ("lanes", d))
        with ExitStack() as stack:
            if d == self.split:
                mine = code.value(f"icmp sgt i64 %high, {blocks}")
                some = code.value("icmp slt i64 %low, %high")
                stack.enter_context(code.when(code.value(f"and i1 {mine}, {some}")))
            body(last, -(-left // self.lanes), count)

    def share(self, steps: dict[int, int], dims: list[int]) -> None:
        """Let threads share the dimension with the most blocks; the first of equals."""
        counts = {d: -(-self.sizes[d] // steps.get(d, 1)) for d in dims}
        self.split = max(dims, key=lambda d: min(counts[d], tuning.BLOCKS_PER_KERNEL))
        self.extent = counts[self.split]
        self.step = steps.get(self.split, 1)

    def byte_range(self, access: Access, strides: list[int]) -> ByteRange | None:
        """The bytes that one step of the shared dimension touches."""
        if self.split < 0:
            return None
        ways = [(n - 1) * stride for n, stride in zip(self.sizes, strides, strict=True)]
        ways[self.split] = (self.step - 1) * strides[self.split]
        return byte_range_of(access, self.step * strides[self.split], ways)


class Rows:
    """Vectors along a kept dimension `v` of one operand, times scalars of the other.

    A tile is some vectors in a row (`across`), in some rows (`down`, along `u`), times some scalars
    (`many`, along `t`).
    """

    def __init__(self, writer: ContractionWriter, v: int, swapped: bool, lanes: int) -> None:
        self.writer, self.v, self.lanes = writer, v, lanes
        self.wide, self.narrow = (writer.y, writer.x) if swapped else (writer.x, writer.y)
        self.names = ("%p1", "%p0") if swapped else ("%p0", "%p1")
        self.others = [d for d in writer.kept if d != v]
        numbers = [d for d in self.others if self.wide[d] == 0 and self.narrow[d]]
        rows = [d for d in self.others if self.narrow[d] == 0 and self.wide[d]]
        sizes = writer.sizes
        self.t = max(numbers, key=lambda d: sizes[d], default=None)
        self.u = rows[-1] if rows else None
        budget = vectors.registers()[1] if lanes > 1 else tuning.SCALAR_TILE_SUMS
        # Without vectors, both operands may have strides along `v`.
        self.across = min(-(-sizes[v] // lanes), tuning.MAX_TILE_VECTORS) if lanes > 1 else 1
        self.many = 1 if self.t is None else min(sizes[self.t], tuning.RESERVED_TILE_NUMBERS)
        self.down = 1
        if self.u is not None:
            most = min(budget // (self.many * self.across), tuning.MAX_TILE_ROWS)
            self.down = _tile(sizes[self.u], most)
        if self.t is not None:
            most = min(budget // (self.down * self.across), tuning.MAX_TILE_NUMBERS)
            self.many = _tile(sizes[self.t], most)

    def write(self) -> None:
        writer, v, t, u = self.writer, self.v, self.t, self.u
        writer.lanes = self.lanes
        if self.is_filter():
            writer.known.add(self.names[1])
        width = (self.across if self.others else 1) * self.lanes
        steps = {v: width, **_known((t, self.many), (u, self.down))}
        writer.share(steps, self.others or [v])
        outer = [d for d in self.others if d not in (t, u)]

        def below(indices: dict[int, str], many: int, down: int) -> None:
            writer.columns(
                v,
                width,
                indices,
                lambda at, across, count: self.tile(at, across, count, many, down),
            )

        with writer.over(outer, {}) as indices:
            writer.blocks([(t, self.many), (u, self.down)], indices, below)

    def is_filter(self) -> bool:
        """Whether the scalars are a filter's, whose strides do not depend on the size of images."""
        repeated = [d for d in self.others if self.narrow[d] == 0 and self.wide[d]]
        return len(repeated) > 1 or self.u is not None

    def tile(
        self, indices: dict[int, str], across: int, count: str | None, many: int, down: int
    ) -> None:
        writer, lanes = self.writer, self.lanes
        starts = [(j, k) for j in range(down) for k in range(across)]
        sums = {(i, j, k): writer.cell() for i in range(many) for j, k in starts}

        def used(k: int) -> str | None:
            return count if k == across - 1 else None

        def at(pointer: str, strides: list[int], indices: dict[int, str], *tile: int) -> str:
            i, j, k = tile
            moved = [(self.v, k * lanes), *_known((self.t, i), (self.u, j)).items()]
            return writer.at(pointer, strides, indices, moved)

        with writer.over(writer.summed, indices) as inner:
            seen = {}
            for j, k in starts:
                pointer = at(self.names[0], self.wide, inner, 0, j, k)
                seen[j, k] = writer.load(pointer, used(k), self.wide[self.v])
            for i in range(many):
                number = writer.spread(at(self.names[1], self.narrow, inner, i, 0, 0))
                for j, k in starts:
                    writer.multiply_add(sums[i, j, k], seen[j, k], number)
        values = {at: writer.code.value(f"load {writer.vector}, ptr {sums[at]}") for at in sums}
        if writer.out[self.v] == 1 or lanes == 1:
            for tile, value in values.items():
                writer.store(value, at("%p2", writer.out, indices, *tile), used(tile[2]))
            return
        for lanes_used in dict.fromkeys(used(k) for k in range(across)):
            self.scatter(
                {
                    at("%p2", writer.out, indices, *tile): value
                    for tile, value in values.items()
                    if used(tile[2]) == lanes_used
                },
                str(lanes) if lanes_used is None else lanes_used,
            )

    def scatter(self, values: dict[str, str], used: str) -> None:
        """Store lanes that are apart in memory, in a loop: without it LLVM needs 2 s for 512."""
        writer, code = self.writer, self.writer.code
        held = {pointer: writer.cell() for pointer in values}
        for pointer, value in values.items():
            code.line(f"store {writer.vector} {value}, ptr {held[pointer]}")
        with code.loop("0", used) as lane:
            step = [(lane, writer.stride("%p2", writer.out, self.v))]
            way = code.position("0", step)
            for pointer, cell in held.items():
                element = code.load(code.element(cell, writer.dtype, lane), writer.dtype).text
                target = code.element(pointer, writer.dtype, way)
                code.line(f"store {writer.kind} {element}, ptr {target}")


class Dots:
    """Vectors along a summed dimension `v` of both operands.

    A tile is some vectors of x (`many`, along `t`) times some of y: all along the dimensions
    `whole`, or otherwise `few` along `u`. A pass over the summed dimensions of a group touches no
    more memory than the cache holds; each pass adds to the result.
    """

    def __init__(self, writer: ContractionWriter, v: int, lanes: int) -> None:
        self.writer, self.v, self.lanes = writer, v, lanes
        sizes, budget = writer.sizes, vectors.registers()[1]
        alone = [d for d in writer.kept if writer.x[d] == 0 and writer.y[d]]
        self.whole: list[int] = []
        for d in reversed(alone):
            size = size_of(tuple(sizes[e] for e in (d, *self.whole)))
            if size > budget // tuning.MIN_LEFT_VECTORS_WITH_ALL_OF_RIGHT_SIDE:
                break
            self.whole.insert(0, d)
        self.u = alone[-1] if alone and not self.whole else None
        few = budget // tuning.MIN_LEFT_VECTORS_WITH_PART_OF_RIGHT_SIDE
        self.few = 1 if self.u is None else _tile(sizes[self.u], few)
        self.others = [d for d in writer.kept if d not in self.whole]
        self.t = max(
            (d for d in self.others if writer.y[d] == 0 and writer.x[d]),
            key=lambda d: sizes[d],
            default=None,
        )
        self.corners: list[list[tuple[int, int]]] = [[]]
        for d in self.whole:
            self.corners = [[*corner, (d, i)] for corner in self.corners for i in range(sizes[d])]
        left = budget // (self.few * len(self.corners))
        self.many = 1 if self.t is None else _tile(sizes[self.t], left)
        #: dimensions of both operands, whose steps share no data: a pass covers one step of them
        self.groups = [d for d in self.others if writer.x[d] and writer.y[d]]

    def write(self) -> None:
        writer = self.writer
        writer.lanes = self.lanes
        steps = _known((self.t, self.many), (self.u, self.few))
        if self.others:
            writer.share(steps, self.others)
        else:
            writer.split = -1
        outer = [d for d in self.others if d not in steps and d not in self.groups]
        with (
            writer.over(self.groups, {}) as group,
            self.passes() as (fixed, bounds, first),
            writer.over(outer, {**group, **fixed}) as indices,
        ):
            writer.blocks(
                [(self.t, self.many), (self.u, self.few)],
                indices,
                lambda at, many, few: self.tile(at, many, few, first, bounds),
            )

    def tile(
        self,
        indices: dict[int, str],
        many: int,
        few: int,
        first: str,
        bounds: dict[int, tuple[str, str]],
    ) -> None:
        writer, code = self.writer, self.writer.code
        corners = self.corners if self.u is None else [[(self.u, i)] for i in range(few)]
        sums = {(i, j): writer.cell() for i in range(many) for j in range(len(corners))}
        with ExitStack() as stack:
            inner = dict(indices)
            for d in writer.summed:
                if d != self.v and d not in inner:
                    low, high = bounds.get(d, ("0", writer.size(d)))
                    inner[d] = stack.enter_context(code.loop(low, high))
            writer.columns(
                *(self.v, self.lanes, inner),
                lambda at, _, count: self.row(at, count, many, corners, sums),
            )
        for (i, j), cell in sums.items():
            moved = [*corners[j], *_known((self.t, i)).items()]
            writer.add_lanes(cell, writer.at("%p2", writer.out, indices, moved), first)

    def row(
        self,
        indices: dict[int, str],
        count: str | None,
        many: int,
        corners: Any,
        sums: dict[Any, str],
    ) -> None:
        writer, v = self.writer, self.v
        starts = (
            writer.at("%p0", writer.x, indices, _known((self.t, i)).items()) for i in range(many)
        )
        ones = [writer.load(start, count, writer.x[v]) for start in starts]
        for j, corner in enumerate(corners):
            other = writer.load(writer.at("%p1", writer.y, indices, corner), count, writer.y[v])
            for i in range(many):
                writer.multiply_add(sums[i, j], ones[i], other)

    @contextmanager
    def passes(self) -> Iterator[tuple[dict[int, str], dict[int, tuple[str, str]], str]]:
        """Passes over the summed dimensions: fixed indices, bounds, and whether it is the first.

        The outer dimensions go step by step, but the last of them goes in chunks.
        """
        dims, chunk = self.chunks()
        if not dims:
            yield {}, {}, "true"
            return
        writer, code = self.writer, self.writer.code
        *outer, last = dims
        with ExitStack() as stack:
            fixed = {d: stack.enter_context(code.loop("0", writer.size(d))) for d in outer}
            size = writer.number(writer.sizes[last], last)
            step = writer.number(chunk, "chunk")
            start = stack.enter_context(code.loop("0", size, step))
            end = code.value(f"add nsw i64 {start}, {step}")
            end = code.call("i64", "llvm.smin.i64", ("i64", end), ("i64", size))
            first = code.value(f"icmp eq i64 {start}, 0")
            for index in fixed.values():
                here = code.value(f"icmp eq i64 {index}, 0")
                first = code.value(f"and i1 {first}, {here}")
            yield fixed, {last: (start, end)}, first

    def chunks(self) -> tuple[list[int], int]:
        """Summed dimensions outside a pass that fits the cache, and the last one's chunk size."""
        writer = self.writer
        dims = [d for d in writer.summed if d != self.v]
        kept = [d for d in writer.kept if d not in self.groups]
        for i, d in enumerate(dims):
            inside = [*kept, *dims[i + 1 :], self.v]
            each = writer.dtype.itemsize * sum(
                1 + sum((writer.sizes[e] - 1) * abs(strides[e]) for e in inside)
                for strides in (writer.x, writer.y)
            )
            if each <= tuning.MAX_CONTRACTION_PASS_BYTES or d == dims[-1]:
                return dims[: i + 1], max(tuning.MAX_CONTRACTION_PASS_BYTES // each, 1)
        return [], 1


def _known(*pairs: tuple[int | None, int]) -> dict[int, int]:
    return {d: n for d, n in pairs if d is not None}


def _scheme(writer: ContractionWriter) -> Rows | Dots:
    """Choose the dimension that fills the most lanes, or a kept one that fills nearly as many."""
    x, y, out, sizes = writer.x, writer.y, writer.out, writer.sizes
    widest = vectors.registers()[0] // writer.dtype.itemsize
    found: list[tuple[float, Rows | Dots]] = []
    for v in range(len(sizes)):
        lanes = _lanes(sizes[v], widest)
        filled = sizes[v] / -(-sizes[v] // lanes)
        if lanes == 1:
            continue
        steps = range(1, tuning.MAX_VECTOR_STEP + 1)
        if not writer.flags[v] and out[v] and {x[v], y[v]} <= {0, *steps} and not x[v] * y[v]:
            filled *= tuning.KEPT_DIMENSION_PREFERENCE
            found.append((filled, Rows(writer, v, y[v] != 0, lanes)))
        elif writer.flags[v] and x[v] in steps and y[v] in steps:
            found.append((filled, Dots(writer, v, lanes)))
    if not found:
        return Rows(writer, writer.kept[-1], False, 1)
    return max(found, key=lambda pair: pair[0])[1]


def _lanes(n: int, widest: int) -> int:
    """How many lanes to use for n elements: the smallest power of two that holds them."""
    lanes = widest
    while lanes > 1 and lanes // 2 >= n:
        lanes //= 2
    return lanes


def contraction(instruction: Contraction) -> Kernel:
    """The kernel of a contraction."""
    writer = ContractionWriter(instruction)
    _scheme(writer).write()
    writer.code.line("ret void")
    work = 2 * size_of(instruction.shape)
    accesses = (instruction.x, instruction.y, instruction.out)
    size = writer.dtype.itemsize
    strides = (writer.x, writer.y, writer.out)
    byte_ranges = [writer.byte_range(a, s) for a, s in zip(accesses, strides, strict=True)]
    return Kernel(
        "contraction",
        with_entry(writer.code, 3, numbers=len(writer.numbers)),
        [(a.value.number, a.offset * size) for a in accesses],
        writer.extent,
        1,
        writer.extent < 2,
        1 + work // tuning.PRODUCT_OPERATIONS_PER_THREAD,
        work,
        [
            (a.value.number, byte_range)
            for a, byte_range in zip(accesses[:2], byte_ranges[:2], strict=True)
        ],
        [(instruction.out.value.number, byte_ranges[2])],
        writer.numbers,
    )
