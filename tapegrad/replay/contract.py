"""Kernels of contractions: sums of products over strided views, in tiles of registers.

Comes in: a `Contraction`, out = sum of x * y over some dimensions of a common index space. Goes
out: a `Kernel`. How the operands lie in memory decides what a vector is:

    along a kept dimension     one operand is read in vectors, the other a number at a time; a tile
                               is several vectors times several numbers
    along a summed dimension   both are read in vectors; a tile is several of each, and the lanes
                               are added up at the end
    neither                    one element at a time

A tile is summed in registers from beginning to end. Called by `emit.py`.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from .ir import Code, literal, type_of
from .kernels import SERIAL, SMALL, Kernel, joined, with_entry
from .program import Contraction, size_of

#: bytes of both operands that a pass over a summed dimension may touch: they stay in the L2 cache
CACHED = 1 << 20

Position = list[tuple[str, int]]  # (index, how far from it)


@functools.cache
def _vectors() -> tuple[int, int]:
    """Bytes of a vector register, and how many sums fit into the registers beside operands."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    if features.get("avx512f"):
        return 64, 27
    if features.get("avx"):
        return 32, 12
    return 16, 24 if platform.machine() in ("aarch64", "arm64") else 12


def _tile(n: int, most: int) -> int:
    """A tile size for n steps: at most `most`, a divisor if one is not much smaller."""
    most = max(min(n, most), 1)
    return next((k for k in range(most, most * 2 // 3, -1) if n % k == 0), most)


class Writer:
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
        self.split = self.kept[0]
        self.extent = 1

    # -- elements ----------------------------------------------------------------------------

    @property
    def vector(self) -> str:
        return f"<{self.lanes} x {self.kind}>" if self.lanes > 1 else self.kind

    @property
    def suffix(self) -> str:
        """How intrinsics call the vector type."""
        return f"v{self.lanes}f{8 * self.dtype.itemsize}"

    def cell(self) -> str:
        """A variable for a vector, beginning with zero."""
        name = self.code.name()
        self.code.first.append(f"  {name} = alloca {self.vector}")
        self.code.line(f"store {self.vector} zeroinitializer, ptr {name}")
        return name

    def at(self, pointer: str, strides: list[int], indices: dict[int, str], moved: Any = ()) -> str:
        """A pointer to an element; `moved` are constant steps along dimensions."""
        offset = sum(strides[d] * n for d, n in moved)
        terms = [(index, strides[d]) for d, index in indices.items()]
        return self.code.element(pointer, self.dtype, self.code.position(offset, terms))

    def mask(self, count: int) -> str:
        bits = ", ".join(f"i1 {str(i < count).lower()}" for i in range(self.lanes))
        return f"<{bits}>"

    def load(self, pointer: str, count: int) -> str:
        """A vector of which `count` lanes are read, and the others 0."""
        code, size = self.code, self.dtype.itemsize
        if count == self.lanes:
            return code.value(f"load {self.vector}, ptr {pointer}, align {size}")
        return code.call(
            self.vector,
            f"llvm.masked.load.{self.suffix}.p0",
            ("ptr", pointer),
            ("i32", str(size)),
            (f"<{self.lanes} x i1>", self.mask(count)),
            (self.vector, "zeroinitializer"),
            pure=False,
        )

    def store(self, value: str, pointer: str, count: int) -> None:
        code, size = self.code, self.dtype.itemsize
        if count == self.lanes:
            code.line(f"store {self.vector} {value}, ptr {pointer}, align {size}")
            return
        code.call(
            "void",
            f"llvm.masked.store.{self.suffix}.p0",
            (self.vector, value),
            ("ptr", pointer),
            ("i32", str(size)),
            (f"<{self.lanes} x i1>", self.mask(count)),
            pure=False,
        )

    def spread(self, pointer: str) -> str:
        """A number in all lanes."""
        code = self.code
        number = code.load(pointer, self.dtype).text
        if self.lanes == 1:
            return number
        first = code.value(f"insertelement {self.vector} poison, {self.kind} {number}, i64 0")
        places = f"<{self.lanes} x i32> zeroinitializer"
        return code.value(f"shufflevector {self.vector} {first}, {self.vector} poison, {places}")

    def multiply_add(self, cell: str, x: str, y: str) -> None:
        code = self.code
        product = code.value(f"fmul contract {self.vector} {x}, {y}")
        old = code.value(f"load {self.vector}, ptr {cell}")
        total = code.value(f"fadd contract {self.vector} {old}, {product}")
        code.line(f"store {self.vector} {total}, ptr {cell}")

    # -- loops -------------------------------------------------------------------------------

    @contextmanager
    def over(self, dims: list[int], indices: dict[int, str]) -> Iterator[dict[int, str]]:
        with ExitStack() as stack:
            inner = dict(indices)
            for d in dims:
                whole = ("0", str(self.sizes[d]))
                bounds = ("%low", "%high") if d == self.split else whole
                inner[d] = stack.enter_context(self.code.loop(*bounds))
            yield inner

    def blocks(
        self, d: int | None, step: int, indices: dict[int, str], body: Callable[..., None]
    ) -> None:
        """Call `body(indices, size)` for blocks of a dimension, the last of which may be smaller.

        Where threads share the dimension, they share its blocks.
        """
        if d is None:
            body(indices, 1)
            return
        code, n = self.code, self.sizes[d]
        full, rest = divmod(n, step)
        if d == self.split:
            with code.loop("%low", code.call(
                "i64", "llvm.smin.i64", ("i64", "%high"), ("i64", str(full))
            )) as block:  # fmt: skip
                body({**indices, d: code.value(f"mul nsw i64 {block}, {step}")}, step)
            if rest:
                last = code.value(f"icmp eq i64 %high, {full + 1}")
                some = code.value("icmp slt i64 %low, %high")
                with code.when(code.value(f"and i1 {last}, {some}")):
                    body({**indices, d: str(full * step)}, rest)
            return
        if full > 1:
            with code.loop("0", str(full * step), step) as index:
                body({**indices, d: index}, step)
        elif full:
            body({**indices, d: "0"}, step)
        if rest:
            body({**indices, d: str(full * step)}, rest)

    def share(self, steps: dict[int, int], dims: list[int]) -> None:
        """Let threads share the dimension with the most blocks; the first of equals."""
        counts = {d: -(-self.sizes[d] // steps.get(d, 1)) for d in dims}
        self.split = max(dims, key=lambda d: min(counts[d], 64))
        self.extent = counts[self.split]

    # -- along a kept dimension --------------------------------------------------------------

    def by_rows(self, v: int, wide: list[int], narrow: list[int], names: tuple[str, str]) -> None:
        """Vectors along `v` of the operand `wide`, times numbers of the other."""
        sizes, others = self.sizes, [d for d in self.kept if d != v]
        budget = _vectors()[1] if self.lanes > 1 else 4
        numbers = [d for d in others if wide[d] == 0 and narrow[d]]
        rows = [d for d in others if narrow[d] == 0 and wide[d]]
        t = max(numbers, key=lambda d: sizes[d], default=None)
        u = rows[-1] if rows else None
        # Where there are no vectors, both operands may move along `v`.
        across = min(-(-sizes[v] // self.lanes), 3) if self.lanes > 1 else 1
        many = 1 if t is None else min(sizes[t], 8)
        down = 1 if u is None else _tile(sizes[u], max(budget // (many * across), 1))
        if t is not None:
            many = _tile(sizes[t], max(min(budget // (down * across), 16), 1))
        steps = {d: n for d, n in ((t, many), (u, down)) if d is not None}
        self.share(steps, others or [v])
        steps[v] = across * self.lanes if others else self.lanes
        if not others:
            self.extent = -(-sizes[v] // steps[v])
        outer = [d for d in others if d not in (t, u)]

        def tile(indices: dict[int, str], many: int, down: int, width: int) -> None:
            vectors = [
                (j, k, min(width - k, self.lanes))
                for j in range(down)
                for k in range(0, width, self.lanes)
            ]
            sums = {(i, j, k): self.cell() for i in range(many) for j, k, _ in vectors}
            with self.over(self.summed, indices) as inner:
                seen = {}
                for j, k, count in vectors:
                    moved = [(v, k)] + ([(u, j)] if u is not None else [])
                    seen[j, k] = self.load(self.at(names[0], wide, inner, moved), count)
                for i in range(many):
                    moved = [(t, i)] if t is not None else []
                    number = self.spread(self.at(names[1], narrow, inner, moved))
                    for j, k, _ in vectors:
                        self.multiply_add(sums[i, j, k], seen[j, k], number)
            for (i, j, k), cell in sums.items():
                value = self.code.value(f"load {self.vector}, ptr {cell}")
                moved = [(v, k), *([(u, j)] if u is not None else [])]
                moved += [(t, i)] if t is not None else []
                pointer = self.at("%p2", self.out, indices, moved)
                self.store(value, pointer, min(width - k, self.lanes))

        with self.over(outer, {}) as indices:
            self.blocks(t, many, indices, lambda one, many: self.blocks(
                u, down, one, lambda two, down: self.blocks(
                    v, steps[v], two, lambda three, width: tile(three, many, down, width)
                )
            ))  # fmt: skip

    # -- along a summed dimension ------------------------------------------------------------

    def by_dots(self, v: int) -> None:
        """Vectors along `v`, which is summed, of both operands."""
        sizes, budget = self.sizes, _vectors()[1]
        whole: list[int] = []  # dimensions of y alone that a tile takes whole
        alone = [d for d in self.kept if self.x[d] == 0 and self.y[d]]
        for d in reversed(alone):
            if size_of(tuple(sizes[e] for e in (d, *whole))) > budget // 3:
                break
            whole.insert(0, d)
        u = alone[-1] if alone and not whole else None  # or else blocks of the last one
        few = 1 if u is None else _tile(sizes[u], 5 if budget > 12 else 3)
        count = few * size_of(tuple(sizes[d] for d in whole))
        others = [d for d in self.kept if d not in whole]
        t = max(
            (d for d in others if self.y[d] == 0 and self.x[d]),
            key=lambda d: sizes[d],
            default=None,
        )
        many = 1 if t is None else _tile(sizes[t], max(budget // count, 1))
        steps = {d: n for d, n in ((t, many), (u, few)) if d is not None}
        if others:
            self.share(steps, others)
        else:
            self.split = -1
        outer = [d for d in others if d not in (t, u)]
        corners: list[list[tuple[int, int]]] = [[]]
        for d in whole:
            corners = [[*place, (d, i)] for place in corners for i in range(sizes[d])]
        chunked, chunk = self._chunks(v)

        def tile(
            indices: dict[int, str], many: int, few: int, first: str, bounds: dict[int, Any]
        ) -> None:
            code = self.code
            places = corners if u is None else [[(u, i)] for i in range(few)]
            sums = {(i, j): self.cell() for i in range(many) for j in range(len(places))}
            with ExitStack() as stack:
                inner = dict(indices)
                for d in self.summed:
                    if d != v and d not in inner:
                        low, high = bounds.get(d, ("0", str(sizes[d])))
                        inner[d] = stack.enter_context(code.loop(low, high))
                self.blocks(v, self.lanes, inner, lambda at, n: row(at, n, many, places, sums))
            for (i, j), cell in sums.items():
                vector = code.value(f"load {self.vector}, ptr {cell}")
                function = f"llvm.vector.reduce.fadd.{self.suffix}"
                zero = literal(0, self.dtype).text
                code.declared.add(f"declare {self.kind} @{function}({self.kind}, {self.vector})")
                total = code.value(
                    f"call reassoc {self.kind} @{function}"
                    f"({self.kind} {zero}, {self.vector} {vector})"
                )
                moved = [*places[j], *([(t, i)] if t is not None else [])]
                pointer = self.at("%p2", self.out, indices, moved)
                old = code.load(pointer, self.dtype).text
                old = code.value(f"select i1 {first}, {self.kind} {zero}, {self.kind} {old}")
                total = code.value(f"fadd {self.kind} {old}, {total}")
                code.line(f"store {self.kind} {total}, ptr {pointer}")

        def row(
            indices: dict[int, str], width: int, many: int, places: Any, sums: dict[Any, str]
        ) -> None:
            ones = [
                self.load(self.at("%p0", self.x, indices, [(t, i)] if t is not None else []), width)
                for i in range(many)
            ]
            for j, place in enumerate(places):
                other = self.load(self.at("%p1", self.y, indices, place), width)
                for i in range(many):
                    self.multiply_add(sums[i, j], ones[i], other)

        self._in_chunks(
            chunked,
            chunk,
            lambda fixed, bounds, first: self._with(
                outer,
                fixed,
                lambda at: self.blocks(t, many, at, lambda one, many: self.blocks(
                    u, few, one, lambda two, few: tile(two, many, few, first, bounds)
                )),
            ),  # fmt: skip
        )

    def _with(
        self, dims: list[int], indices: dict[int, str], body: Callable[[dict[int, str]], None]
    ) -> None:
        with self.over(dims, indices) as inner:
            body(inner)

    def _chunks(self, v: int) -> tuple[list[int], int]:
        """Summed dimensions outside of the pass that fits the cache, and a step of the last one."""
        dims = [d for d in self.summed if d != v]
        for i, d in enumerate(dims):
            inside = [*self.kept, *dims[i + 1 :], v]
            each = self.dtype.itemsize * sum(
                1 + sum((self.sizes[e] - 1) * abs(strides[e]) for e in inside)
                for strides in (self.x, self.y)
            )
            if each <= CACHED or d == dims[-1]:
                return dims[: i + 1], max(CACHED // each, 1)
        return [], 1

    def _in_chunks(self, dims: list[int], step: int, body: Callable[..., None]) -> None:
        """Call `body(indices, bounds, first)` for each part of the summed dimensions."""
        if not dims:
            body({}, {}, "true")
            return
        code = self.code
        *outer, last = dims
        with ExitStack() as stack:
            fixed = {
                d: stack.enter_context(code.loop("0", str(self.sizes[d]))) for d in outer
            }
            start = stack.enter_context(code.loop("0", str(self.sizes[last]), step))
            end = code.value(f"add nsw i64 {start}, {step}")
            end = code.call("i64", "llvm.smin.i64", ("i64", end), ("i64", str(self.sizes[last])))
            first = code.value(f"icmp eq i64 {start}, 0")
            for index in fixed.values():
                here = code.value(f"icmp eq i64 {index}, 0")
                first = code.value(f"and i1 {first}, {here}")
            body(fixed, {last: (start, end)}, first)

    # -- the whole ---------------------------------------------------------------------------

    def write(self) -> None:
        """Choose the dimension of vectors that fills the most lanes, a kept one if it can be."""
        x, y, out, sizes = self.x, self.y, self.out, self.sizes
        widest = _vectors()[0] // self.dtype.itemsize
        found: list[tuple[float, Callable[[], None]]] = []

        def choice(v: int, worth: float, body: Callable[[], None]) -> None:
            lanes = _lanes(sizes[v], widest)

            def run() -> None:
                self.lanes = lanes
                body()

            if lanes > 1:
                found.append((worth * sizes[v] / -(-sizes[v] // lanes), run))

        for v in self.kept:
            for wide, narrow, names in ((x, y, ("%p0", "%p1")), (y, x, ("%p1", "%p0"))):
                if out[v] == 1 and wide[v] == 1 and narrow[v] == 0:
                    choice(v, 1.25, functools.partial(self.by_rows, v, wide, narrow, names))
        for v in self.summed:
            if x[v] == 1 and y[v] == 1:
                choice(v, 1.0, functools.partial(self.by_dots, v))
        if found:
            max(found, key=lambda pair: pair[0])[1]()
        else:
            self.by_rows(self.kept[-1], x, y, ("%p0", "%p1"))


def _lanes(n: int, widest: int) -> int:
    """How many lanes to use for n elements: the smallest power of two that holds them."""
    lanes = widest
    while lanes > 1 and lanes // 2 >= n:
        lanes //= 2
    return lanes


def contraction(instruction: Contraction) -> Kernel:
    """The kernel of a contraction."""
    writer = Writer(instruction)
    writer.write()
    writer.code.line("ret void")
    work = 2 * size_of(instruction.shape)
    serial = work < 32 * SMALL or writer.extent < 2
    key = SERIAL if serial else None
    accesses = (instruction.x, instruction.y, instruction.out)
    size = writer.dtype.itemsize
    return Kernel(
        "contraction",
        with_entry(writer.code, 3),
        [(a.value.number, a.offset * size) for a in accesses],
        writer.extent,
        1,
        serial,
        work,
        [(a.value.number, key) for a in accesses[:2]],
        [(instruction.out.value.number, key)],
    )
