"""Packed operands of products: how elements are packed, and how tiles multiply them.

Comes in: a dtype, and whether the memory of y holds its transpose. Goes out: the text of `@pack`
and `@pack_rows`, which also convert elements, of the multiplication of packed elements, and of the
rounding of sums. Called by `gemm.py`.

    float32, float64   are packed as they are
    float16, bfloat16  become float32; sums stay float32 until a tile of the result is complete
    pairs of bfloat16  are used if the processor has an instruction that multiplies two neighbouring
                       steps and adds both products to a float32: a packed element holds two steps

If the number of steps is odd, the last pair holds a zero beside the last step, in both operands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core import numeric
from ..native.code import FLOAT16, FLOAT32, INT32, Code, Register, memory_type, type_of
from . import tuning, vectors


class PlainElements:
    """Elements that are packed as they are."""

    steps = 1  # steps of the sum in a packed element

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype  # of the operands in memory
        self.sums = dtype  # of a tile
        self.packed = dtype

    def along(self, code: Code, pointer: str, lanes: int) -> str:
        """A vector of packed elements that are contiguous along the summed dimension."""
        kind = f"<{lanes} x {type_of(self.dtype)}>"
        return code.value(f"load {kind}, ptr {pointer}, align {self.dtype.itemsize}")

    def across(self, code: Code, pointers: list[str], lanes: int, mask: str = "") -> str:
        """A vector of neighbouring rows or columns; `pointers` has one for each of its steps.

        Lanes outside the mask are zero, and so is a missing step.
        """
        (pointer,) = pointers
        return (
            self._masked(code, pointer, lanes, mask) if mask else self.along(code, pointer, lanes)
        )

    def _masked(self, code: Code, pointer: str, lanes: int, mask: str) -> str:
        kind, size = type_of(self.dtype), self.dtype.itemsize
        return masked_load(code, kind, size, pointer, lanes, mask)

    def one(self, code: Code, pointers: list[str]) -> Register:
        """One packed element; `pointers` has one for each of its steps."""
        (pointer,) = pointers
        return code.load(pointer, self.dtype)

    def multiplied(self, code: Code, vector: str, old: str, x: str, y: str) -> str:
        """old + x * y for vectors of packed elements; `vector` is the type of the sums."""
        product = code.value(f"fmul contract {vector} {x}, {y}")
        return code.value(f"fadd contract {vector} {old}, {product}")


class WidenedElements(PlainElements):
    """Elements of half precision that are packed as float32."""

    def __init__(self, dtype: Any) -> None:
        super().__init__(dtype)
        self.sums = self.packed = FLOAT32

    def along(self, code: Code, pointer: str, lanes: int) -> str:
        return self._widened(code, _halves(code, [pointer], lanes, "")[0], lanes)

    def _masked(self, code: Code, pointer: str, lanes: int, mask: str) -> str:
        return self._widened(code, _halves(code, [pointer], lanes, mask)[0], lanes)

    def _widened(self, code: Code, bits: str, lanes: int) -> str:
        short, wide = f"<{lanes} x i16>", f"<{lanes} x i32>"
        if self.dtype == FLOAT16:
            halves = code.value(f"bitcast {short} {bits} to <{lanes} x half>")
            return code.value(f"fpext <{lanes} x half> {halves} to <{lanes} x float>")
        extended = code.value(f"zext {short} {bits} to {wide}")
        upper = code.value(f"shl {wide} {extended}, {_all(16, 32, lanes)}")
        return code.value(f"bitcast {wide} {upper} to <{lanes} x float>")

    def one(self, code: Code, pointers: list[str]) -> Register:
        return Register(super().one(code, pointers).text, FLOAT32)

    def narrowed(self, code: Code, value: str, lanes: int) -> str:
        """Sums rounded to half precision, as a vector of i16."""
        short, wide = f"<{lanes} x i16>", f"<{lanes} x i32>"
        if self.dtype == FLOAT16:
            halves = code.value(f"fptrunc <{lanes} x float> {value} to <{lanes} x half>")
            return code.value(f"bitcast <{lanes} x half> {halves} to {short}")
        rounded = code.rounded(value, self.dtype, lanes).text
        bits = code.value(f"bitcast <{lanes} x float> {rounded} to {wide}")
        upper = code.value(f"lshr {wide} {bits}, {_all(16, 32, lanes)}")
        return code.value(f"trunc {wide} {upper} to {short}")


class PairsOfBfloat16(WidenedElements):
    """Two steps of bfloat16 in an i32, for AVX512-BF16.

    The instruction treats subnormal operands as zero and flushes subnormal sums to zero. It adds
    the product of the second step, rounds, adds that of the first step, and rounds.
    """

    steps = 2

    def __init__(self, dtype: Any) -> None:
        super().__init__(dtype)
        self.packed = INT32

    def along(self, code: Code, pointer: str, lanes: int) -> str:
        return code.value(f"load <{lanes} x i32>, ptr {pointer}, align {self.dtype.itemsize}")

    def across(self, code: Code, pointers: list[str], lanes: int, mask: str = "") -> str:
        kind = f"<{lanes} x i16>"
        found = [*_halves(code, pointers, lanes, mask), "zeroinitializer"]
        order = ", ".join(f"i32 {i}, i32 {i + lanes}" for i in range(lanes))
        both = f"{kind} {found[0]}, {kind} {found[1]}, <{2 * lanes} x i32> <{order}>"
        pairs = code.value(f"shufflevector {both}")
        return code.value(f"bitcast <{2 * lanes} x i16> {pairs} to <{lanes} x i32>")

    def one(self, code: Code, pointers: list[str]) -> Register:
        kind = memory_type(self.dtype)
        bits = [code.value(f"load {kind}, ptr {pointer}") for pointer in pointers]
        first, *second = [code.value(f"zext {kind} {x} to i32") for x in bits]
        if second:
            upper = code.value(f"shl i32 {second[0]}, 16")
            first = code.value(f"or i32 {first}, {upper}")
        return Register(first, INT32)

    def multiplied(self, code: Code, vector: str, old: str, x: str, y: str) -> str:
        # LLVM before 22 accepts only these types of operands; later versions accept them as well.
        packed = vector.replace("float", "i32")
        operands = ((vector, old), (packed, x), (packed, y))
        return code.call(vector, "llvm.x86.avx512bf16.dpbf16ps.512", *operands)

    def narrowed(self, code: Code, value: str, lanes: int) -> str:
        short = f"<{lanes} x bfloat>"
        halves = code.value(f"fptrunc <{lanes} x float> {value} to {short}")
        return code.value(f"bitcast {short} {halves} to <{lanes} x i16>")


def packing_of(dtype: Any) -> PlainElements:
    """How elements of a dtype are packed on this processor."""
    if numeric.is_bfloat16(dtype) and vectors.multiplies_bfloat16():
        return PairsOfBfloat16(dtype)
    return WidenedElements(dtype) if numeric.is_half(dtype) else PlainElements(dtype)


# -- vectors -------------------------------------------------------------------------------------


def _all(number: int, bits: int, lanes: int) -> str:
    """A constant vector with one integer in all lanes."""
    return f"<{', '.join([f'i{bits} {number}'] * lanes)}>"


def _halves(code: Code, pointers: list[str], lanes: int, mask: str) -> list[str]:
    """For each pointer, the bits of contiguous elements of two bytes."""
    if mask:
        return [masked_load(code, "i16", 2, pointer, lanes, mask) for pointer in pointers]
    return [code.value(f"load <{lanes} x i16>, ptr {pointer}, align 2") for pointer in pointers]


def _suffix(kind: str, size: int, lanes: int) -> str:
    """The suffix of intrinsics for a vector of integers or floats of `size` bytes."""
    return f"v{lanes}{'i' if kind[0] == 'i' else 'f'}{8 * size}.p0"


def masked_load(code: Code, kind: str, size: int, pointer: str, lanes: int, mask: str) -> str:
    """Load elements of `size` bytes where a mask is set; the others are zero."""
    vector, bits = f"<{lanes} x {kind}>", f"<{lanes} x i1>"
    return code.call(
        vector,
        f"llvm.masked.load.{_suffix(kind, size, lanes)}",
        *(("ptr", pointer), ("i32", str(size)), (bits, mask)),
        (vector, "zeroinitializer"),
        pure=False,
    )


def masked_store(
    code: Code, kind: str, size: int, value: str, pointer: str, lanes: int, mask: str
) -> None:
    """Store elements of `size` bytes where a mask is set."""
    vector, bits = f"<{lanes} x {kind}>", f"<{lanes} x i1>"
    code.call(
        "void",
        f"llvm.masked.store.{_suffix(kind, size, lanes)}",
        *((vector, value), ("ptr", pointer), ("i32", str(size)), (bits, mask)),
        pure=False,
    )


# -- functions that pack ---------------------------------------------------------------------------


class PackWriter:
    """Writes `@pack` and `@pack_rows` for one dtype and one layout of y."""

    def __init__(self, dtype: Any, transposed_y: bool) -> None:
        size, sums = vectors.registers()
        self.dtype, self.packing = dtype, packing_of(dtype)
        self.half = numeric.is_half(dtype)
        self.kind, self.packed_kind = type_of(self.packing.sums), type_of(self.packing.packed)
        self.transposed_y = transposed_y
        self.lanes = size // self.packing.sums.itemsize
        self.vector = f"<{self.lanes} x {self.kind}>"
        self.bits = f"<{self.lanes} x i1>"
        self.widest, tall = tuning.MAX_PANEL_VECTORS, tuning.TALL_TILE_ROWS
        self.tallest = tall if sums >= tall * self.widest else tuning.SHORT_TILE_ROWS
        self.declared: set[str] = set()

    def function(self, code: Code, name: str, arguments: str, inline: str = "noinline") -> str:
        code.line("ret void")
        self.declared |= code.declared
        return code.function(f"define internal void @{name}({arguments}) {inline} nounwind")

    def at(self, code: Code, pointer: str, *terms: tuple[str, str]) -> str:
        return code.element(pointer, self.dtype, code.position("0", list(terms)))

    def packed_at(self, code: Code, pointer: str, *terms: tuple[str, str]) -> str:
        return code.element(pointer, self.packing.packed, code.position("0", list(terms)))

    def x_at(self, code: Code, row: str, step: str) -> str:
        """A pointer to x[row, step]."""
        return self.at(code, "%x", (row, "%row_x"), (step, "%column_x"))

    def y_at(self, code: Code, step: str, column: str) -> str:
        """A pointer to y[step, column]."""
        if self.transposed_y:
            return self.at(code, "%y", (column, "%lead_y"), (step, "1"))
        return self.at(code, "%y", (step, "%lead_y"), (column, "1"))

    def store_packed(self, code: Code, value: str, lanes: int, pointer: str) -> None:
        kind, align = f"<{lanes} x {self.packed_kind}>", self.packing.packed.itemsize
        code.line(f"store {kind} {value}, ptr {pointer}, align {align}")

    def first_lanes(self, code: Code, count: str) -> str:
        """A mask of the first `count` lanes."""
        wide = f"<{self.lanes} x i64>"
        numbers = ", ".join(f"i64 {i}" for i in range(self.lanes))
        one = code.value(f"insertelement {wide} poison, i64 {count}, i64 0")
        zeros = f"<{self.lanes} x i32> zeroinitializer"
        all_ = code.value(f"shufflevector {wide} {one}, {wide} poison, {zeros}")
        return code.value(f"icmp slt {wide} <{numbers}>, {all_}")

    def prefetch(self, code: Code, pointer: str, write: bool = False) -> None:
        """Prefetch a line into the L1 cache, to read it or to write it."""
        kinds = (("i32", str(int(write))), ("i32", "3"), ("i32", "1"))
        code.call("void", "llvm.prefetch.p0", ("ptr", pointer), *kinds, pure=False)

    def least(self, code: Code, x: str, y: str) -> str:
        return code.call("i64", "llvm.smin.i64", ("i64", x), ("i64", y))

    def each(
        self, code: Code, write: Callable[[str, list[str]], None], low: str = "0", high: str = ""
    ) -> None:
        """Call `write` with the position of each packed element, and the steps that it holds."""
        high = high or self.full_count(code)
        with code.loop(low, high) as position:
            write(position, self.steps_of(code, position))
        if self.packing.steps == 2:
            with code.when(code.value("trunc i64 %inner to i1")):
                write(high, [code.value("sub nsw i64 %inner, 1")])

    def full_count(self, code: Code) -> str:
        """How many packed elements `inner` steps fill."""
        return "%inner" if self.packing.steps == 1 else code.value("lshr i64 %inner, 1")

    def count(self, code: Code, steps: str = "%inner") -> str:
        """How many packed elements hold `steps` steps; the last one may hold only one."""
        if self.packing.steps == 1:
            return steps
        return code.value(f"lshr i64 {code.value(f'add nsw i64 {steps}, 1')}, 1")

    def steps_of(self, code: Code, position: str) -> list[str]:
        """The steps that a packed element holds."""
        if self.packing.steps == 1:
            return [position]
        first = code.value(f"shl nsw i64 {position}, 1")
        return [first, code.value(f"add nsw i64 {first}, 1")]

    def pack(self) -> str:
        """Copy `columns` of y, `inner` steps of each, so that they lie in rows of `width`."""
        code = Code()

        def copy(position: str, steps: list[str], column: str, mask: str) -> None:
            # The hardware does not prefetch rows that lie in different pages.
            later = code.value(f"add nsw i64 {steps[0]}, {tuning.PREFETCHED_STEPS}")
            self.prefetch(code, self.y_at(code, later, column))
            pointers = [self.y_at(code, step, column) for step in steps]
            mask = mask and self.first_lanes(code, mask)
            value = self.packing.across(code, pointers, self.lanes, mask)
            there = self.packed_at(code, "%panel", (position, "%width"), (column, "1"))
            self.store_packed(code, value, self.lanes, there)

        def write(position: str, steps: list[str]) -> None:
            if not self.half:
                with code.loop("0", "%width", self.lanes) as column:
                    left = code.value(f"sub nsw i64 %columns, {column}")
                    copy(position, steps, column, left)
                return
            # Masked loads of two-byte elements are slow on processors without AVX-512.
            full = code.value(f"and i64 %columns, {-self.lanes}")
            with code.loop("0", full, self.lanes) as column:
                copy(position, steps, column, "")
            left = code.value(f"sub nsw i64 %columns, {full}")
            with code.when(code.value(f"icmp ne i64 {left}, 0")):
                copy(position, steps, full, left)

        if self.transposed_y:
            self.pack_transposed(code)
        else:
            self.each(code, write)
        given = "ptr %y, i64 %lead_y, ptr %panel, i64 %width, i64 %columns, i64 %inner"
        return self.function(code, "pack", given)

    def pack_transposed(self, code: Code) -> None:
        """Transpose squares as wide as a vector has lanes; the last one may overlap the others.

        Lanes beyond the last column repeat it: their results are never used.
        """
        lanes = str(self.lanes)
        last = code.value("sub nsw i64 %columns, 1")
        whole = self.full_count(code)
        with code.loop("0", "%width", self.lanes) as first:
            columns = [
                self.least(code, code.value(f"add nsw i64 {first}, {i}"), last)
                for i in range(self.lanes)
            ]

            def write(position: str, steps: list[str]) -> None:
                for i, column in enumerate(columns):
                    pointers = [self.y_at(code, step, column) for step in steps]
                    number = self.packing.one(code, pointers)
                    terms = ((position, "%width"), (first, "1"), (str(i), "1"))
                    code.store(number, self.packed_at(code, "%panel", *terms))

            fits = code.value(f"icmp sge i64 {whole}, {lanes}")
            with code.when(fits), code.loop("0", whole, self.lanes) as start:
                furthest = code.value(f"sub nsw i64 {whole}, {lanes}")
                position = self.least(code, start, furthest)
                step = self.steps_of(code, position)[0]
                rows = [
                    self.packing.along(code, self.y_at(code, step, column), self.lanes)
                    for column in columns
                ]
                for i, row in enumerate(self.transposed(code, rows)):
                    here = code.value(f"add nsw i64 {position}, {i}")
                    there = self.packed_at(code, "%panel", (here, "%width"), (first, "1"))
                    self.store_packed(code, row, self.lanes, there)
            if self.packing.steps == 1:
                short = code.value(f"xor i1 {fits}, true")
                with code.when(short):
                    self.each(code, write, high=whole)
            else:
                self.each(code, write, code.value(f"select i1 {fits}, i64 {whole}, i64 0"), whole)

    def transposed(self, code: Code, rows: list[str]) -> list[str]:
        """The transpose of a square, by interleaving halves of its rows log2(size) times."""
        size = len(rows)
        half, lanes = size // 2, range(size // 2)
        low = ", ".join(f"i32 {i}, i32 {i + size}" for i in lanes)
        high = ", ".join(f"i32 {i + half}, i32 {i + half + size}" for i in lanes)
        kind, vector = f"<{size} x i32>", f"<{size} x {self.packed_kind}>"
        for _ in range(size.bit_length() - 1):
            following = []
            for x, y in zip(rows[:half], rows[half:], strict=True):
                for picked in (low, high):
                    pair = f"{vector} {x}, {vector} {y}"
                    following.append(code.value(f"shufflevector {pair}, {kind} <{picked}>"))
            rows = following
        return rows

    def pack_rows(self) -> str:
        """Copy `rows` of x, `inner` steps of each, tile by tile: the rows of a step lie together.

        Rows of the last tile beyond the last row of x are neither written nor read.
        """
        code, tall = Code(), self.tallest
        whole = code.value(f"and i64 %rows, {-tall}")
        in_rows = code.value("icmp eq i64 %column_x, 1")
        in_columns = code.value("icmp eq i64 %row_x, 1")
        length = self.full_count(code)
        blocks = code.value(f"and i64 {length}, {-tall}")
        count = self.count(code)
        together = tuning.TILES_PACKED_TOGETHER * tall
        with code.when(in_columns), code.loop("0", whole, together) as group:
            ends = self.least(code, code.value(f"add nsw i64 {group}, {together}"), whole)

            def write(position: str, steps: list[str]) -> None:
                with code.loop(group, ends, tall) as first:
                    pointers = [self.x_at(code, first, step) for step in steps]
                    value = self.packing.across(code, pointers, tall)
                    there = self.packed_at(code, "%packed", (first, count), (position, str(tall)))
                    self.store_packed(code, value, tall, there)

            self.each(code, write)
        apart = code.value(f"xor i1 {in_columns}, true")
        with code.when(apart), code.loop("0", whole, tall) as first:
            target = self.packed_at(code, "%packed", (first, count))

            def write_one_by_one(position: str, steps: list[str]) -> None:
                with code.loop("0", str(tall)) as down:
                    row = code.value(f"add nsw i64 {first}, {down}")
                    number = self.packing.one(code, [self.x_at(code, row, step) for step in steps])
                    there = self.packed_at(code, target, (position, str(tall)), (down, "1"))
                    code.store(number, there)

            begin = code.value(f"select i1 {in_rows}, i64 {blocks}, i64 0")
            with code.loop("0", begin, tall) as position:
                step = self.steps_of(code, position)[0]
                rows = []
                for i in range(tall):
                    row = code.value(f"add nsw i64 {first}, {i}")
                    rows.append(self.packing.along(code, self.x_at(code, row, step), tall))
                for i, value in enumerate(self.transposed(code, rows)):
                    here = code.value(f"add nsw i64 {position}, {i}")
                    there = self.packed_at(code, target, (here, str(tall)))
                    self.store_packed(code, value, tall, there)
            self.each(code, write_one_by_one, begin)
        target = self.packed_at(code, "%packed", (whole, count))
        with code.loop(whole, "%rows") as row:

            def write_row(position: str, steps: list[str]) -> None:
                number = self.packing.one(code, [self.x_at(code, row, step) for step in steps])
                inside = code.value(f"and i64 {row}, {tall - 1}")
                code.store(
                    number, self.packed_at(code, target, (position, str(tall)), (inside, "1"))
                )

            self.each(code, write_row)
        given = "ptr %x, i64 %row_x, i64 %column_x, ptr %packed, i64 %rows, i64 %inner"
        return self.function(code, "pack_rows", given)
