"""Functions that multiply a matrix with patches: the text for any convolution of one dtype.

Comes in: a dtype, whether positions are summed, and the stride of neighbouring positions. Goes out:
text that defines `@NAME`. Sizes and strides are numbers in the kernel's table, so few functions
serve all convolutions. Called by `patches.py`, which says what patches are.

A part of the patches that fits the cache is copied into scratch memory, in rows of positions, and
multiplied by `@multiply` of `gemm.py`. The scratch begins with a table of the offset of each tap;
another table says where the pieces of a row lie. Every element is summed in the same order however
threads divide the work.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from ..native.code import INT64, Code
from .gemm import GemmWriter
from .kernel import with_entry

#: dimensions that a function has for taps (channel, and three of a window), for positions of the
#: patches and of the result (sample, and three of an image), and for samples of a sum
TAPS, POSITIONS, SAMPLES = 4, 4, 2
#: the numbers of every kernel; those of the dimensions follow: size, stride of the patches, and
#: stride of the other side
NUMBERS = (
    *("rows", "taps", "positions", "row_matrix", "column_matrix", "row_out", "column_out"),
    *("group_matrix", "group_patches", "group_out", "depth", "width", "lead", "block_rows"),
    *("row_blocks", "block", "blocks", "samples", "run"),
    *("pieces_at", "patches_at", "sums_at"),
)


class PatchWriter:
    """Writes the function for one dtype; `step` is the stride in a row of patches."""

    def __init__(self, dtype: Any, summed: bool, step: int) -> None:
        self.dtype, self.summed, self.step = dtype, summed, step
        self.gemm = GemmWriter(dtype, transposed_y=summed, triangle="")
        self.code = Code()
        count = len(NUMBERS)
        self.number = {name: f"%number{i}" for i, name in enumerate(NUMBERS)}
        self.taps = self._dimensions(count, TAPS)
        self.positions = self._dimensions(count + 3 * TAPS, POSITIONS)
        self.outside = self._dimensions(
            count + 3 * (TAPS + POSITIONS), SAMPLES if summed else POSITIONS
        )
        self.count = count + 3 * (TAPS + POSITIONS + len(self.outside))

    @staticmethod
    def _dimensions(first: int, count: int) -> list[tuple[str, str, str]]:
        """The numbers of some dimensions: size, and both strides."""
        return [
            (f"%number{i}", f"%number{i + 1}", f"%number{i + 2}")
            for i in range(first, first + 3 * count, 3)
        ]

    def text(self) -> str:
        code = self.code
        self.list_taps()
        (self.write_summed if self.summed else self.write_kept)()
        code.line("ret void")
        parts = [self.gather(), self.scatter(), self.gemm.text()]
        code.declared -= self.gemm.declared  # which `gemm.text()` declares
        return "".join(parts) + with_entry(code, 3, partials=1, numbers=self.count)

    # -- what both ways use ----------------------------------------------------------------------

    def at(self, pointer: str, *terms: tuple[str, str]) -> str:
        return self.gemm.at(self.code, pointer, *terms)

    def least(self, x: str, y: str) -> str:
        return self.gemm.least(self.code, x, y)

    def part(self, whole: str, begin: str, size: str) -> str:
        """The length of a block of `size` from `begin` on, which ends at `whole` at the latest."""
        return self.least(self.code.value(f"sub nsw i64 {whole}, {begin}"), size)

    def scratch(self, name: str) -> str:
        return self.code.value(f"getelementptr inbounds i8, ptr %partial0, i64 {self.number[name]}")

    def divided(self, x: str, by: str) -> tuple[str, str]:
        """Quotient and remainder."""
        code = self.code
        return code.value(f"udiv i64 {x}, {by}"), code.value(f"urem i64 {x}, {by}")

    def offset(self, index: str, dims: Sequence[tuple[str, str, str]], side: int) -> str:
        """The offset of a flat index of dimensions, on one side."""
        terms, rest = [], index
        for dimension in reversed(dims):
            rest, here = self.divided(rest, dimension[0])
            terms.append((here, dimension[1 + side]))
        return self.code.position("0", terms)

    def list_taps(self) -> None:
        """Fill the table of offsets of taps, at the beginning of the scratch."""
        code = self.code
        with ExitStack() as stack:
            index, way = "0", "0"
            for size, step, _ in self.taps:
                i = stack.enter_context(code.loop("0", size))
                index = code.position(i, [(index, size)])
                way = code.position(way, [(i, step)])
            pointer = code.value(f"getelementptr inbounds i64, ptr %partial0, i64 {index}")
            code.line(f"store i64 {way}, ptr {pointer}")

    @contextmanager
    def runs(
        self, low: str, high: str, dims: Sequence[tuple[str, str, str]], side: int
    ) -> Iterator[tuple[str, str, str]]:
        """A loop over runs of positions along the last dimension: begin, length, offset."""
        code, length = self.code, self.code.name()
        with code.loop(low, high, length) as index:
            row, inside = self.divided(index, dims[-1][0])
            left = code.value(f"sub nsw i64 {dims[-1][0]}, {inside}")
            way = self.offset(row, dims[:-1], side)
            way = code.position(way, [(inside, dims[-1][1 + side])])
            found = self.least(left, code.value(f"sub nsw i64 {high}, {index}"))
            code.line(f"{length} = add nsw i64 {found}, 0")
            yield code.value(f"sub nsw i64 {index}, {low}"), length, way

    def list_pieces(self, low: str, high: str) -> str:
        """Fill the table of pieces (a vector at most) of the positions from `low` to `high`.

        A piece has its offsets in memory and in a row of patches, and a mask of what is read: bit i
        stands for the element at offset i. Returns how many pieces there are.
        """
        code, lanes = self.code, self.gemm.lanes
        table, cell = self.scratch("pieces_at"), code.cell(INT64)
        code.line(f"store i64 0, ptr {cell}")
        with (
            self.runs(low, high, self.positions, 0) as (begin, length, way),
            code.loop("0", length, lanes) as first,
        ):
            number = code.value(f"load i64, ptr {cell}")
            entry = code.value(f"mul nsw i64 {number}, 3")
            # The gaps between the positions of the piece are read as well.
            count = self.part(length, first, str(lanes))
            reach = code.value(f"mul nsw i64 {count}, {self.step}")
            beyond = code.value(f"sub nsw i64 {64 + self.step - 1}, {reach}")
            found = (
                code.position(way, [(first, str(self.step))]),
                code.value(f"add nsw i64 {begin}, {first}"),
                code.value(f"lshr i64 -1, {beyond}"),
            )
            for i, text in enumerate(found):
                at = code.value(f"add nsw i64 {entry}, {i}")
                pointer = code.value(f"getelementptr inbounds i64, ptr {table}, i64 {at}")
                code.line(f"store i64 {text}, ptr {pointer}")
            following = code.value(f"add nsw i64 {number}, 1")
            code.line(f"store i64 {following}, ptr {cell}")
        return code.value(f"load i64, ptr {cell}")

    def gather_block(
        self, source: str, taps: tuple[str, str], pieces: str, to: str, lead: str
    ) -> None:
        """Copy all pieces of some taps (first, count) into rows."""
        first, count = taps
        table = self.code.value(f"getelementptr inbounds i64, ptr %partial0, i64 {first}")
        ahead = self.number["depth" if self.summed else "width"]
        self.code.line(
            f"call void @gather(ptr {source}, ptr {table}, i64 {count}, "
            f"ptr {self.scratch('pieces_at')}, i64 {pieces}, ptr {to}, i64 {lead}, i64 {ahead})"
        )

    # -- positions are kept ----------------------------------------------------------------------

    def write_kept(self) -> None:
        """out[row, position] = sum over taps of matrix[row, tap] * patches[tap, position]."""
        code, number = self.code, self.number
        patches, sums = self.scratch("patches_at"), self.scratch("sums_at")
        with ExitStack() as stack:
            block = stack.enter_context(code.loop("%low", "%high"))
            rest, down = self.divided(block, number["row_blocks"])
            group, across = self.divided(rest, number["blocks"])
            top = code.value(f"mul nsw i64 {down}, {number['block_rows']}")
            rows = self.part(number["rows"], top, number["block_rows"])
            matrix = self.at("%p0", (group, number["group_matrix"]), (top, number["row_matrix"]))
            source = self.at("%p1", (group, number["group_patches"]))
            out = self.at("%p2", (group, number["group_out"]), (top, number["row_out"]))
            low = code.value(f"mul nsw i64 {across}, {number['block']}")
            high = code.value(f"add nsw i64 {low}, {number['block']}")
            high = self.least(high, number["positions"])
            begin = stack.enter_context(code.loop(low, high, number["width"]))
            count = self.part(high, begin, number["width"])
            end = code.value(f"add nsw i64 {begin}, {count}")
            # Sums of a single pass are written directly if positions are contiguous in the result.
            _, inside = self.divided(begin, number["run"])
            inside = code.value(f"add nsw i64 {inside}, {count}")
            direct = code.value(f"icmp sle i64 {inside}, {number['run']}")
            there = self.at(out, (self.offset(begin, self.outside, 1), "1"))
            target = code.value(f"select i1 {direct}, ptr {there}, ptr {sums}")
            lead = code.value(f"select i1 {direct}, i64 {number['row_out']}, i64 {number['width']}")
            pieces = self.list_pieces(begin, end)
            with code.loop("0", number["taps"], number["depth"]) as first:
                depth = self.part(number["taps"], first, number["depth"])
                self.gather_block(source, (first, depth), pieces, patches, number["width"])
                later = code.value(f"icmp ne i64 {first}, 0")
                x = self.at(matrix, (first, number["column_matrix"]))
                code.line(
                    f"call void @multiply(ptr {x}, i64 {number['row_matrix']}, "
                    f"i64 {number['column_matrix']}, ptr {patches}, i64 {number['width']}, "
                    f"ptr {target}, i64 {lead}, i64 {rows}, i64 {count}, i64 {depth}, i1 {later}, "
                    "ptr null)"
                )
            stack.enter_context(code.when(code.value(f"xor i1 {direct}, true")))
            with self.runs(begin, end, self.outside, 1) as (start, length, way):
                code.line(
                    f"call void @scatter(ptr {self.at(sums, (start, '1'))}, "
                    f"i64 {number['width']}, i64 1, ptr {self.at(out, (way, '1'))}, "
                    f"i64 {number['row_out']}, i64 {number['column_out']}, i64 {rows}, "
                    f"i64 {length})"
                )

    # -- positions are summed --------------------------------------------------------------------

    def write_summed(self) -> None:
        """out[row, tap] = sum over positions of matrix[row, position] * patches[tap, position]."""
        code, number = self.code, self.number
        patches, sums = self.scratch("patches_at"), self.scratch("sums_at")
        with code.loop("%low", "%high") as block:
            group, across = self.divided(block, number["blocks"])
            first = code.value(f"mul nsw i64 {across}, {number['block']}")
            count = self.part(number["taps"], first, number["block"])
            matrix = self.at("%p0", (group, number["group_matrix"]))
            source = self.at("%p1", (group, number["group_patches"]))
            out = self.at("%p2", (group, number["group_out"]), (first, number["column_out"]))
            with ExitStack() as stack:
                sample = stack.enter_context(code.loop("0", number["samples"]))
                begin = stack.enter_context(code.loop("0", number["positions"], number["depth"]))
                depth = self.part(number["positions"], begin, number["depth"])
                end = code.value(f"add nsw i64 {begin}, {depth}")
                here = self.at(source, (self.offset(sample, self.outside, 0), "1"))
                pieces = self.list_pieces(begin, end)
                self.gather_block(here, (first, count), pieces, patches, number["lead"])
                way = self.offset(sample, self.outside, 1)
                y = self.at(matrix, (way, "1"), (begin, "1"))
                later = code.value(f"icmp ne i64 {code.value(f'or i64 {sample}, {begin}')}, 0")
                code.line(
                    f"call void @multiply(ptr {patches}, i64 {number['lead']}, i64 1, ptr {y}, "
                    f"i64 {number['row_matrix']}, ptr {sums}, i64 {number['rows']}, i64 {count}, "
                    f"i64 {number['rows']}, i64 {depth}, i1 {later}, ptr null)"
                )
            code.line(
                f"call void @scatter(ptr {sums}, i64 1, i64 {number['rows']}, ptr {out}, "
                f"i64 {number['row_out']}, i64 {number['column_out']}, i64 {number['rows']}, "
                f"i64 {count})"
            )

    # -- copies ----------------------------------------------------------------------------------

    def gather(self) -> str:
        """Copy the pieces of `taps` into rows; both tables are in the scratch.

        Long rows are written one after another. Rows of a panel are narrow, so all taps of a piece
        are written in turn: the inner loop then copies only that piece.
        """
        code, gemm = Code(), self.gemm
        with ExitStack() as stack:
            if self.summed:
                tap = stack.enter_context(code.loop("0", "%taps"))
                piece = stack.enter_context(code.loop("0", "%pieces"))
            else:
                piece = stack.enter_context(code.loop("0", "%pieces"))
            entry = code.value(f"getelementptr inbounds [3 x i64], ptr %list, i64 {piece}")
            way, begin, bits = (
                code.value(
                    "load i64, ptr "
                    + code.value(f"getelementptr inbounds i64, ptr {entry}, i64 {i}")
                )
                for i in range(3)
            )
            if not self.summed:
                reach = code.call("i64", "llvm.ctpop.i64", ("i64", bits))
                count = code.value(f"add nsw i64 {reach}, {self.step - 1}")
                mask = gemm.first_lanes(code, code.value(f"udiv i64 {count}, {self.step}"))
                tap = stack.enter_context(code.loop("0", "%taps"))
            entry = code.value(f"getelementptr inbounds i64, ptr %table, i64 {tap}")
            start = gemm.at(code, "%from", (code.value(f"load i64, ptr {entry}"), "1"))
            pointer = gemm.at(code, start, (way, "1"))
            value = self.load(code, pointer, bits)
            target = gemm.at(code, "%to", (tap, "%lead"), (begin, "1"))
            if self.summed:
                # Lanes beyond the piece are overwritten by the next piece.
                gemm.store(code, value, target)
            else:
                gemm.store_some(code, value, target, mask)
            # Prefetch the next part of each row: rows lie too far apart for the hardware to do so.
            code.call(
                "void",
                "llvm.prefetch.p0",
                ("ptr", gemm.at(code, pointer, ("%ahead", str(self.step)))),
                *(("i32", "0"), ("i32", "2"), ("i32", "1")),
                pure=False,
            )
        given = (
            "ptr %from, ptr noalias %table, i64 %taps, ptr noalias %list, i64 %pieces, "
            "ptr noalias %to, i64 %lead, i64 %ahead"
        )
        return gemm.function(code, "gather", given)

    def load(self, code: Code, pointer: str, bits: str) -> str:
        """A vector of elements that are `step` apart, read where a mask is set."""
        gemm, lanes = self.gemm, self.gemm.lanes * self.step
        wide, mask = f"<{lanes} x {gemm.kind}>", f"<{lanes} x i1>"
        if lanes < 64:
            bits = code.value(f"trunc i64 {bits} to i{lanes}")
        within = code.value(f"bitcast i{lanes} {bits} to {mask}")
        found = code.call(
            wide,
            f"llvm.masked.load.v{lanes}f{8 * self.dtype.itemsize}.p0",
            *(("ptr", pointer), ("i32", str(self.dtype.itemsize)), (mask, within)),
            (wide, "zeroinitializer"),
            pure=False,
        )
        if self.step == 1:
            return found
        picked = ", ".join(f"i32 {i * self.step}" for i in range(gemm.lanes))
        kind = f"<{gemm.lanes} x i32> <{picked}>"
        return code.value(f"shufflevector {wide} {found}, {wide} poison, {kind}")

    def scatter(self) -> str:
        """Copy sums into the result: in vectors, or element by element."""
        code, gemm = Code(), self.gemm
        plain = code.value("icmp eq i64 %column_to, 1")
        straight = code.value("icmp eq i64 %column_from, 1")
        fast = code.value(f"and i1 {plain}, {straight}")
        with code.when(fast), code.loop("0", "%columns", gemm.lanes) as first:
            mask = gemm.first_lanes(code, code.value(f"sub nsw i64 %columns, {first}"))
            with code.loop("0", "%rows") as row:
                source = gemm.at(code, "%from", (row, "%row_from"), (first, "1"))
                target = gemm.at(code, "%to", (row, "%row_to"), (first, "1"))
                gemm.store_some(code, gemm.load_some(code, source, mask), target, mask)
        with code.when(code.value(f"xor i1 {fast}, true")), code.loop("0", "%rows") as row:
            source = gemm.at(code, "%from", (row, "%row_from"))
            target = gemm.at(code, "%to", (row, "%row_to"))
            with code.loop("0", "%columns") as column:
                number = code.load(gemm.at(code, source, (column, "%column_from")), self.dtype)
                code.store(number, gemm.at(code, target, (column, "%column_to")))
        given = (
            "ptr noalias %from, i64 %row_from, i64 %column_from, ptr noalias %to, i64 %row_to, "
            "i64 %column_to, i64 %rows, i64 %columns"
        )
        return gemm.function(code, "scatter", given)


@functools.cache
def text_of(dtype: Any, summed: bool, step: int) -> str:
    """The function for one dtype, one way and one stride of positions."""
    return PatchWriter(dtype, summed, step).text()
