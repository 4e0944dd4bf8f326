"""Winograd's algorithm: the text for convolutions with windows of 3x3 that move by 1.

Comes in: a dtype. Goes out: the text of two kernels (see `winograd.py`). Sizes and strides are
numbers in the kernel's table. Called by `winograd.py`.

A tile is 2x2 elements of the result. It depends on 4x4 of the input, d, and on a filter, g:

    tile = A' [ (G g G') * (B' d B) ] A        * is elementwise, and ' transposes

Each of the 16 positions in a square of 4x4 is then a matrix product, filters times tiles, which
sums over channels. That takes 16 multiplications for a tile instead of 36. Every element is summed
in the same order however threads divide the work.
"""

from __future__ import annotations

import functools
import itertools
from contextlib import ExitStack
from typing import Any

from ..native.code import Code, literal
from .kernel import with_entry
from .winograd_tiles import SQUARE, TilesWriter, WinogradWriter, twice

#: the numbers of the kernel of filters; the dimensions of channels follow: size and stride
FILTER_NUMBERS = ("rows", "channels", "row", "down", "across", "group", "tiles")
#: the numbers of the main kernel; the dimensions of channels (size, stride of the input, stride of
#: the filters) and of images (size, stride of the input, stride of the result) follow
NUMBERS = (
    *("rows", "channels", "tiles", "height", "width", "down", "row_out", "down_out"),
    *("group", "group_out", "block", "blocks", "row_blocks", "block_rows"),
    *("row", "down_filter", "across_filter", "group_filter"),
    *("depth", "pieces_at", "squares_at", "sums_at"),
)


def _plane(writer: WinogradWriter) -> str:
    """Elements between two positions of a square in the transformed filters of a group."""
    tall, rows = writer.gemm.tallest, writer.number["rows"]
    padded = writer.code.value(f"add nsw i64 {rows}, {tall - 1}")
    padded = writer.code.value(f"and i64 {padded}, {-tall}")
    return writer.times(padded, writer.number["channels"])


class FilterWriter(WinogradWriter):
    """Writes the kernel that transforms filters: G g G', in the layout of packed rows."""

    def __init__(self, dtype: Any) -> None:
        super().__init__(dtype, FILTER_NUMBERS)

    def text(self) -> str:
        code, number, tall = self.code, self.number, self.gemm.tallest
        plane = _plane(self)
        last = code.value(f"sub nsw i64 {number['rows']}, 1")
        with code.loop("%low", "%high") as step:
            group, tile = self.divided(step, number["tiles"])
            top = self.times(tile, str(tall))
            source = self.at("%p0", (group, number["group"]))
            begin = self.times(self.times(group, plane), str(SQUARE))
            target = self.at("%partial0", (begin, "1"), (self.times(top, number["channels"]), "1"))
            # Rows beyond the last one repeat it: their results are never used.
            rows = [
                self.at(
                    source, (self.least(code.value(f"add nsw i64 {top}, {i}"), last), number["row"])
                )
                for i in range(tall)
            ]
            with self.each_channel() as (channel, (way,)):
                square = [[self.taps(rows, way, i, j) for j in range(3)] for i in range(3)]
                for i, row in enumerate(twice(square, self.line)):
                    for j, value in enumerate(row):
                        place = (str(4 * i + j), plane)
                        to = self.at(target, place, (channel, str(tall)))
                        self.gemm.store_packed(code, value, tall, to)
        code.line("ret void")
        return with_entry(code, 1, partials=1, numbers=self.count)

    def taps(self, rows: list[str], way: str, i: int, j: int) -> str:
        """One element of the filters of all rows."""
        code, kind = self.code, f"<{len(rows)} x {self.gemm.kind}>"
        down, across = self.number["down"], self.number["across"]
        terms = ((way, "1"), (str(i), down), (str(j), across))
        position = code.position("0", list(terms))
        found = "poison"
        for lane, row in enumerate(rows):
            number = code.load(code.element(row, self.dtype, position), self.dtype).text
            found = code.value(
                f"insertelement {kind} {found}, {self.gemm.kind} {number}, i64 {lane}"
            )
        return found

    def line(self, g: list[str]) -> list[str]:
        """g0, (g0 + g2 + g1) / 2, (g0 + g2 - g1) / 2, g2."""
        code, tall, kind = self.code, self.gemm.tallest, self.gemm.kind
        vector = f"<{tall} x {kind}>"
        half = ", ".join([f"{kind} {literal(0.5, self.dtype).text}"] * tall)
        ends = code.value(f"fadd {vector} {g[0]}, {g[2]}")
        sums = [code.value(f"{add} {vector} {ends}, {g[1]}") for add in ("fadd", "fsub")]
        halves = [code.value(f"fmul {vector} {x}, <{half}>") for x in sums]
        return [g[0], *halves, g[2]]


class ResultWriter(TilesWriter):
    """Writes the kernel that transforms the input, multiplies, and transforms the sums."""

    def __init__(self, dtype: Any) -> None:
        super().__init__(dtype, NUMBERS, sides=2, transposed_y=False)
        self.lead = str(self.gemm.widest * self.lanes)  # elements of a row of a block

    def text(self) -> str:
        self.list_channels()
        self.write()
        self.code.line("ret void")
        functions = (self.transform_input(), self.transform_sums(), self.add_directly())
        parts = [*functions, *self.gemm.panels()]
        parts.append("\n".join(sorted(self.gemm.declared)) + "\n")
        self.code.declared -= self.gemm.declared
        return "".join(parts) + with_entry(self.code, 3, partials=2, numbers=self.count)

    def stride(self, rows: str) -> str:
        """Elements from one position of a square to the next; vectors may reach beyond a row."""
        return self.code.position(str(self.lanes), [(rows, self.lead)])

    def write(self) -> None:
        code, number = self.code, self.number
        squares, sums = self.scratch("squares_at"), self.scratch("sums_at")
        plane, stride = _plane(self), self.stride(number["channels"])
        with ExitStack() as stack:
            step = stack.enter_context(code.loop("%low", "%high"))
            rest, down = self.divided(step, number["row_blocks"])
            group, across = self.divided(rest, number["blocks"])
            top = self.times(down, number["block_rows"])
            rows = self.part(number["rows"], top, number["block_rows"])
            source = self.at("%p0", (group, number["group"]))
            out = self.at("%p1", (group, number["group_out"]), (top, number["row_out"]))
            filters = self.times(self.times(group, plane), str(SQUARE))
            filters = self.at("%partial0", (filters, "1"), (top, number["channels"]))
            low = self.times(across, number["block"])
            high = self.least(code.value(f"add nsw i64 {low}, {number['block']}"), number["tiles"])
            begin = stack.enter_context(code.loop(low, high, self.lead))
            count = self.part(high, begin, self.lead)
            pieces = self.list_pieces(begin, code.value(f"add nsw i64 {begin}, {count}"))
            table, sums_stride = self.scratch("pieces_at"), self.stride(rows)
            code.line(
                f"call void @transform_input(ptr {source}, ptr %partial1, "
                f"i64 {number['channels']}, i64 {number['down']}, ptr {table}, i64 {pieces}, "
                f"ptr {squares}, i64 {stride}, i64 {self.lead})"
            )
            with code.loop("0", str(SQUARE)) as place:
                x = self.at(filters, (place, plane))
                y = self.at(squares, (place, stride))
                self.multiply(x, y, self.at(sums, (place, sums_stride)), rows, count)
            given = self.at("%p2", (group, number["group_filter"]), (top, number["row"]))
            code.line(
                f"call void @transform_sums(ptr {sums}, i64 {sums_stride}, i64 {rows}, ptr {out}, "
                f"i64 {number['row_out']}, ptr {given}, i64 {number['row']}, ptr {table}, "
                f"i64 {pieces}, i64 {number['down_out']}, ptr {source}, ptr {self.side(0)}, "
                f"i64 {number['channels']}, i64 {number['down']}, ptr {self.side(1)}, "
                f"i64 {number['down_filter']}, i64 {number['across_filter']})"
            )

    def multiply(self, x: str, y: str, out: str, rows: str, count: str) -> None:
        """out = x @ y for one position of a square, in passes over the channels."""
        code, tall, channels = self.code, str(self.gemm.tallest), self.number["channels"]
        vectors = code.value(f"add nsw i64 {count}, {self.lanes - 1}")
        vectors = code.value(f"sdiv i64 {vectors}, {self.lanes}")
        with code.loop("0", channels, self.number["depth"]) as first:
            depth = self.part(channels, first, self.number["depth"])
            adds = code.value(f"icmp ne i64 {first}, 0")
            left, right = self.at(x, (first, tall)), self.at(y, (first, self.lead))
            for n in range(1, self.gemm.widest + 1):
                with code.when(code.value(f"icmp eq i64 {vectors}, {n}")):
                    code.line(
                        f"call void @panel{n}(ptr {left}, i64 1, i64 {tall}, ptr {right}, "
                        f"i64 {self.lead}, ptr {out}, i64 {self.lead}, i64 {depth}, "
                        f"i64 {self.lanes}, i1 {adds}, i64 {rows}, "
                        f"i64 {self.times(channels, tall)})"
                    )

    def store_together(self, code: Code, x: str, y: str, pointer: str, mask: str) -> str:
        """Store two vectors interleaved; returns the interleaved vector."""
        order = ", ".join(f"i32 {i}, i32 {i + self.lanes}" for i in range(self.lanes))
        vector = self.gemm.vector
        both = code.value(
            f"shufflevector {vector} {x}, {vector} {y}, <{2 * self.lanes} x i32> <{order}>"
        )
        code.call(
            "void",
            f"llvm.masked.store.{self.suffix}",
            *((self.wide, both), ("ptr", pointer), ("i32", str(self.dtype.itemsize))),
            (f"<{2 * self.lanes} x i1>", mask),
            pure=False,
        )
        return both

    #: further parameters of a direct sum: of the tiles and the result, the input, and the filter
    DIRECT = (
        *("ptr %list", "i64 %pieces", "i64 %down_to", "ptr %input", "ptr %table"),
        *("i64 %channels", "i64 %down", "ptr %filter_table", "i64 %down_filter"),
        *("i64 %across_filter",),
    )

    def transform_sums(self) -> str:
        """A' m A of all tiles of a block, row by row, into the result.

        A tile mixes its inputs, so an infinity would become NaN. Rows with a result that is not
        finite are therefore recomputed directly.
        """
        code, gemm = Code(), self.gemm
        vector = gemm.vector
        bad = code.name()
        code.first.append(f"  {bad} = alloca {self.wide}")

        def line(m: list[str]) -> list[str]:
            first = code.value(f"fadd {vector} {m[1]}, {m[2]}")
            first = code.value(f"fadd {vector} {m[0]}, {first}")
            second = code.value(f"fsub {vector} {m[1]}, {m[2]}")
            return [first, code.value(f"fsub {vector} {second}, {m[3]}")]

        with code.loop("0", "%rows") as row:
            code.line(f"store {self.wide} zeroinitializer, ptr {bad}")
            target = gemm.at(code, "%to", (row, "%row_to"))
            with code.loop("0", "%pieces") as index:
                _, way, place, _, _, bits, bits_second = self.piece(code, index)
                start = gemm.at(code, "%from", (row, self.lead), (place, "1"))
                square = [
                    [
                        gemm.load(code, gemm.at(code, start, (str(4 * i + j), "%stride")))
                        for j in range(4)
                    ]
                    for i in range(4)
                ]
                for i, (x, y) in enumerate(twice(square, line)):
                    mask = self.mask(code, bits_second if i else bits)
                    there = gemm.at(code, target, (way, "1"), (str(i), "%down_to"))
                    self.watch(code, self.store_together(code, x, y, there, mask), mask, bad)
            found = code.value(f"load {self.wide}, ptr {bad}")
            lanes = code.value(f"fcmp uno {self.wide} {found}, zeroinitializer")
            bits = code.value(f"bitcast <{2 * self.lanes} x i1> {lanes} to i{2 * self.lanes}")
            with code.when(code.value(f"icmp ne i{2 * self.lanes} {bits}, 0")):
                filters = gemm.at(code, "%filters", (row, "%row_filter"))
                code.line(
                    f"call void @add_directly(ptr {target}, ptr {filters}, "
                    f"{', '.join(self.DIRECT)})"
                )
        given = (
            "ptr noalias %from, i64 %stride, i64 %rows, ptr noalias %to, i64 %row_to, "
            f"ptr %filters, i64 %row_filter, {', '.join(self.DIRECT)}"
        )
        return gemm.function(code, "transform_sums", given)

    def watch(self, code: Code, value: str, mask: str, bad: str) -> None:
        """Set lanes of `bad` to NaN where those of `value` are not finite and the mask is set."""
        bits = f"<{2 * self.lanes} x i1>"
        value = code.value(
            f"select {bits} {mask}, {self.wide} {value}, {self.wide} zeroinitializer"
        )
        nothing = code.value(f"fmul {self.wide} {value}, zeroinitializer")
        old = code.value(f"load {self.wide}, ptr {bad}")
        code.line(
            f"store {self.wide} {code.value(f'fadd {self.wide} {old}, {nothing}')}, ptr {bad}"
        )

    def add_directly(self) -> str:
        """The sums of one row of all tiles of a block, without a transform."""
        code, gemm = Code(), self.gemm
        vector, zeros = gemm.vector, f"<{self.lanes} x i32> zeroinitializer"
        with code.loop("0", "%pieces") as index:
            way, way_out, _, bits, bits_last, bits_out, bits_second = self.piece(code, index)
            cells = [[gemm.cell(code) for _ in range(2)] for _ in range(2)]
            with code.loop("0", "%channels") as channel:
                first, second = (
                    code.value(
                        "load i64, ptr "
                        + code.value(f"getelementptr inbounds i64, ptr {table}, i64 {channel}")
                    )
                    for table in ("%table", "%filter_table")
                )
                start = gemm.at(code, "%input", (first, "1"), (way, "1"))
                square = self.load_square(code, start, bits, bits_last)
                for i, j in itertools.product(range(3), repeat=2):
                    terms = ((second, "1"), (str(i), "%down_filter"), (str(j), "%across_filter"))
                    number = code.load(gemm.at(code, "%filter", *terms), self.dtype).text
                    one = code.value(f"insertelement {vector} poison, {gemm.kind} {number}, i64 0")
                    factor = code.value(f"shufflevector {vector} {one}, {vector} poison, {zeros}")
                    for y, x in itertools.product(range(2), repeat=2):
                        old = code.value(f"load {vector}, ptr {cells[y][x]}")
                        total = gemm.packing.multiplied(
                            code, vector, old, square[y + i][x + j], factor
                        )
                        code.line(f"store {vector} {total}, ptr {cells[y][x]}")
            for y, row in enumerate(cells):
                even, odd = (code.value(f"load {vector}, ptr {cell}") for cell in row)
                there = gemm.at(code, "%to", (way_out, "1"), (str(y), "%down_to"))
                mask = self.mask(code, bits_second if y else bits_out)
                self.store_together(code, even, odd, there, mask)
        given = f"ptr %to, ptr %filter, {', '.join(self.DIRECT)}"
        return gemm.function(code, "add_directly", given)


@functools.cache
def texts_of(dtype: Any) -> tuple[str, str]:
    """The kernel that transforms filters, and the one that does the rest, for one dtype."""
    return FilterWriter(dtype).text(), ResultWriter(dtype).text()
