"""Winograd's algorithm for gradients of filters of 3x3: the text of two kernels.

Comes in: a dtype. Goes out: the text of the kernel that sums over tiles, and of the one that turns
the sums into filters. Sizes and strides are numbers in the kernel's table. Called by `winograd.py`.

With the names of `winograd_result.py`, and h for a tile of the result's gradient:

    gradient = G' [ sum over tiles of (A h A') * (B' d B) ] G

For each of the 16 positions in a square this is a matrix product, rows of the gradient times
channels of the input, which sums over tiles. Tiles are divided into chunks, whose number does not
depend on the threads; the second kernel sums the chunks.
"""

from __future__ import annotations

import functools
from contextlib import ExitStack
from typing import Any

from ..native.code import Code, literal
from .kernel import with_entry
from .winograd_tiles import SQUARE, TilesWriter, WinogradWriter, twice

#: the numbers of the first kernel; the dimensions of channels (size, stride) and of images (size,
#: stride of the input, stride of the gradient) follow
NUMBERS = (
    *("rows", "channels", "tiles", "height", "width", "down", "row_out", "down_out"),
    *("group", "group_out", "chunk", "chunks", "block", "blocks", "row_blocks", "block_rows"),
    *("depth", "lead", "pieces_at", "squares_at", "gradients_at"),
)
#: the numbers of the second kernel
SUM_NUMBERS = (
    *("rows", "channels", "chunks", "row_out", "channel_out", "down_out", "across_out"),
    *("group_out",),
)


class TileSumsWriter(TilesWriter):
    """Writes the kernel that transforms both sides, and sums their products over tiles."""

    def __init__(self, dtype: Any) -> None:
        super().__init__(dtype, NUMBERS, sides=1, transposed_y=True)

    def text(self) -> str:
        self.list_channels()
        self.write()
        self.code.line("ret void")
        parts = [self.transform_input(), self.transform_gradient(), self.gemm.text()]
        self.code.declared -= self.gemm.declared  # which `gemm.text()` declares
        return "".join(parts) + with_entry(self.code, 2, partials=2, numbers=self.count)

    def write(self) -> None:
        code, number = self.code, self.number
        squares, gradients = self.scratch("squares_at"), self.scratch("gradients_at")
        lead, channels = number["lead"], number["channels"]
        stride, row_stride = (
            code.position(str(self.lanes), [(number[n], lead)]) for n in ("block", "block_rows")
        )
        plane = self.times(number["rows"], channels)
        with ExitStack() as stack:
            step = stack.enter_context(code.loop("%low", "%high"))
            rest, down = self.divided(step, number["row_blocks"])
            part, across = self.divided(rest, number["blocks"])
            group, chunk = self.divided(part, number["chunks"])
            top, first = (
                self.times(i, number[n]) for i, n in ((down, "block_rows"), (across, "block"))
            )
            rows = self.part(number["rows"], top, number["block_rows"])
            columns = self.part(channels, first, number["block"])
            source = self.at("%p0", (group, number["group"]))
            gradient = self.at("%p1", (group, number["group_out"]), (top, number["row_out"]))
            out = self.at(
                "%partial0", (self.times(part, plane), str(SQUARE)), (top, channels), (first, "1")
            )
            low = self.times(chunk, number["chunk"])
            high = self.least(code.value(f"add nsw i64 {low}, {number['chunk']}"), number["tiles"])
            begin = stack.enter_context(code.loop(low, high, number["depth"]))
            count = self.part(high, begin, number["depth"])
            pieces = self.list_pieces(begin, code.value(f"add nsw i64 {begin}, {count}"))
            table = self.scratch("pieces_at")
            code.line(
                f"call void @transform_input(ptr {source}, ptr {self.entry(self.side(0), first)}, "
                f"i64 {columns}, i64 {number['down']}, ptr {table}, i64 {pieces}, ptr {squares}, "
                f"i64 {stride}, i64 {lead})"
            )
            code.line(
                f"call void @transform_gradient(ptr {gradient}, i64 {rows}, "
                f"i64 {number['row_out']}, i64 {number['down_out']}, ptr {table}, i64 {pieces}, "
                f"ptr {gradients}, i64 {row_stride}, i64 {lead})"
            )
            later = code.value(f"icmp ne i64 {begin}, {low}")
            with code.loop("0", str(SQUARE)) as place:
                x, y = self.at(gradients, (place, row_stride)), self.at(squares, (place, stride))
                code.line(
                    f"call void @multiply(ptr {x}, i64 {lead}, i64 1, ptr {y}, i64 {lead}, "
                    f"ptr {self.at(out, (place, plane))}, i64 {channels}, i64 {rows}, "
                    f"i64 {columns}, i64 {count}, i1 {later}, ptr null)"
                )

    def transform_gradient(self) -> str:
        """A h A' of all tiles of a block, row by row."""
        code, gemm = Code(), self.gemm

        def line(h: list[str]) -> list[str]:
            first, second = h
            sums = [
                code.value(f"{add} {gemm.vector} {first}, {second}") for add in ("fadd", "fsub")
            ]
            return [first, *sums, code.value(f"fneg {gemm.vector} {second}")]

        with code.loop("0", "%rows") as row, code.loop("0", "%pieces") as index:
            _, way, place, _, _, bits, bits_second = self.piece(code, index)
            start = gemm.at(code, "%from", (row, "%row_from"), (way, "1"))
            square = [
                self.apart(code, gemm.at(code, start, (str(i), "%down")), self.mask(code, here))
                for i, here in enumerate((bits, bits_second))
            ]
            self.store_square(code, twice(square, line), row, place)
        given = (
            "ptr noalias %from, i64 %rows, i64 %row_from, i64 %down, ptr noalias %list, "
            "i64 %pieces, ptr noalias %to, i64 %stride, i64 %lead"
        )
        return gemm.function(code, "transform_gradient", given)


class FilterSumsWriter(WinogradWriter):
    """Writes the kernel that sums all chunks, and turns the sums into filters."""

    def __init__(self, dtype: Any) -> None:
        super().__init__(dtype, SUM_NUMBERS, sides=0)

    def text(self) -> str:
        code, number, gemm = self.code, self.number, self.gemm
        vector, channels, lanes = gemm.vector, number["channels"], gemm.lanes
        plane = self.times(number["rows"], channels)
        chunk = self.times(plane, str(SQUARE))
        with code.loop("%low", "%high") as step, code.loop("0", channels, lanes) as first:
            group, row = self.divided(step, number["rows"])
            begin = self.times(self.times(group, number["chunks"]), chunk)
            start = self.at("%partial0", (begin, "1"), (row, channels), (first, "1"))
            count = self.least(code.value(f"sub nsw i64 {channels}, {first}"), str(lanes))
            mask = gemm.first_lanes(code, count)
            cells = [[gemm.cell(code) for _ in range(4)] for _ in range(4)]
            with code.loop("0", number["chunks"]) as index:
                here = self.at(start, (index, chunk))
                for i, row_of_cells in enumerate(cells):
                    for j, cell in enumerate(row_of_cells):
                        found = gemm.load_some(code, self.at(here, (str(4 * i + j), plane)), mask)
                        old = code.value(f"load {vector}, ptr {cell}")
                        total = code.value(f"fadd {vector} {old}, {found}")
                        code.line(f"store {vector} {total}, ptr {cell}")
            square = [[code.value(f"load {vector}, ptr {cell}") for cell in row] for row in cells]
            out = self.at(
                "%p0",
                *((group, number["group_out"]), (row, number["row_out"])),
                (first, number["channel_out"]),
            )
            self.scatter(twice(square, self.line), out, count)
        code.line("ret void")
        return with_entry(code, 1, partials=1, numbers=self.count)

    def line(self, m: list[str]) -> list[str]:
        """m0 + (m1 + m2) / 2, (m1 - m2) / 2, (m1 + m2) / 2 + m3."""
        code, vector, kind = self.code, self.gemm.vector, self.gemm.kind
        half = ", ".join([f"{kind} {literal(0.5, self.dtype).text}"] * self.gemm.lanes)
        both = [code.value(f"{add} {vector} {m[1]}, {m[2]}") for add in ("fadd", "fsub")]
        middle, second = (code.value(f"fmul {vector} {x}, <{half}>") for x in both)
        ends = [code.value(f"fadd {vector} {middle}, {x}") for x in (m[0], m[3])]
        return [ends[0], second, ends[1]]

    def scatter(self, square: list[list[str]], out: str, count: str) -> None:
        """Store filters, one channel in each lane."""
        code, number = self.code, self.number
        held = [[self.gemm.cell(code) for _ in row] for row in square]
        for cells, row in zip(held, square, strict=True):
            for cell, value in zip(cells, row, strict=True):
                code.line(f"store {self.gemm.vector} {value}, ptr {cell}")
        with code.loop("0", count, rolled=True) as lane:
            target = self.at(out, (lane, number["channel_out"]))
            for i, cells in enumerate(held):
                for j, cell in enumerate(cells):
                    element = code.load(code.element(cell, self.dtype, lane), self.dtype)
                    terms = ((str(i), number["down_out"]), (str(j), number["across_out"]))
                    code.store(element, self.at(target, *terms))


@functools.cache
def gradient_texts_of(dtype: Any) -> tuple[str, str]:
    """The kernel that sums over tiles, and the one that turns the sums into filters."""
    return TileSumsWriter(dtype).text(), FilterSumsWriter(dtype).text()
