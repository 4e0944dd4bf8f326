"""Tiles of Winograd's algorithm: what its kernels share, for windows of 3x3 that move by 1.

Comes in: a dtype. Goes out: text that lists the tiles of a block and transforms their input. Called
by `winograd_result.py`, which explains the algorithm, and by `winograd_gradient.py`.

Lanes run along tiles that are neighbours in a row of the image; a piece is a vector of such tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from ..native.code import INT64, Code
from .gemm import GemmWriter

#: positions in a square of a tile's input
SQUARE = 16
#: dimensions that a function has for channels, and for images
CHANNELS, IMAGES = 3, 3
#: words of a piece in the table of pieces: its offsets in the input and on the other side, its
#: position in the block, and masks of the elements that exist in rows of the input (the first
#: three, and the last one), and in both rows of the other side
PIECE = 7


def _names(numbers: Sequence[str]) -> dict[str, str]:
    return {name: f"%number{i}" for i, name in enumerate(numbers)}


def _dimensions(first: int, count: int, steps: int) -> list[tuple[str, ...]]:
    """The numbers of `count` dimensions: size, and as many strides as `steps`."""
    width = 1 + steps
    return [tuple(f"%number{first + i * width + k}" for k in range(width)) for i in range(count)]


class WinogradWriter:
    """Writes what both kernels share."""

    def __init__(
        self, dtype: Any, numbers: Sequence[str], sides: int = 1, transposed_y: bool = False
    ) -> None:
        self.dtype = dtype
        self.gemm = GemmWriter(dtype, transposed_y, triangle="")
        self.code = Code()
        self.number = _names(numbers)
        self.channels = _dimensions(len(numbers), CHANNELS, sides)
        self.count = len(numbers) + (1 + sides) * CHANNELS

    def at(self, pointer: str, *terms: tuple[str, str]) -> str:
        return self.gemm.at(self.code, pointer, *terms)

    def least(self, x: str, y: str) -> str:
        return self.gemm.least(self.code, x, y)

    def times(self, x: str, y: str) -> str:
        return self.code.value(f"mul nsw i64 {x}, {y}")

    def divided(self, x: str, by: str) -> tuple[str, str]:
        """Quotient and remainder."""
        code = self.code
        return code.value(f"udiv i64 {x}, {by}"), code.value(f"urem i64 {x}, {by}")

    @contextmanager
    def each_channel(self) -> Iterator[tuple[str, list[str]]]:
        """A loop over channels: the number of the channel, and its offset on each side."""
        code = self.code
        with ExitStack() as stack:
            index, ways = "0", ["0"] * (len(self.channels[0]) - 1)
            for size, *steps in self.channels:
                i = stack.enter_context(code.loop("0", size))
                index = code.position(i, [(index, size)])
                ways = [
                    code.position(way, [(i, step)]) for way, step in zip(ways, steps, strict=True)
                ]
            yield index, ways


def twice(square: list[list[str]], line: Callable[[list[str]], list[str]]) -> list[list[str]]:
    """A square transformed along its columns, and then along its rows."""
    columns = [line(list(column)) for column in zip(*square, strict=True)]
    return [line(list(row)) for row in zip(*columns, strict=True)]


class TilesWriter(WinogradWriter):
    """Writes kernels that go over tiles; `numbers` has the size of the result and row strides.

    Dimensions of images follow those of channels: size, and strides of the input and other side.
    """

    def __init__(self, dtype: Any, numbers: Sequence[str], sides: int, transposed_y: bool) -> None:
        super().__init__(dtype, numbers, sides, transposed_y)
        self.images = _dimensions(self.count, IMAGES, 2)
        self.count += 3 * IMAGES
        self.lanes = self.gemm.lanes

    def scratch(self, name: str) -> str:
        return self.code.value(f"getelementptr inbounds i8, ptr %partial1, i64 {self.number[name]}")

    def entry(self, table: str, index: str) -> str:
        return self.code.value(f"getelementptr inbounds i64, ptr {table}, i64 {index}")

    def list_channels(self) -> None:
        """Fill the tables of offsets of channels, one for each side."""
        with self.each_channel() as (channel, ways):
            for side, way in enumerate(ways):
                table = self.side(side)
                self.code.line(f"store i64 {way}, ptr {self.entry(table, channel)}")

    def side(self, side: int) -> str:
        """Where the table of a side begins."""
        return self.entry("%partial1", self.times(self.number["channels"], str(side)))

    def part(self, whole: str, begin: str, size: str) -> str:
        """The length of a block of `size` from `begin` on, which ends at `whole` at the latest."""
        return self.least(self.code.value(f"sub nsw i64 {whole}, {begin}"), size)

    def list_pieces(self, low: str, high: str) -> str:
        """Fill the table of pieces for the tiles from `low` to `high`; returns their number."""
        code, number, lanes = self.code, self.number, self.lanes
        table, cell, length = self.scratch("pieces_at"), code.cell(INT64), code.name()
        in_row, in_column = (
            code.value(f"lshr i64 {code.value(f'add nsw i64 {number[n]}, 1')}, 1")
            for n in ("width", "height")
        )
        code.line(f"store i64 0, ptr {cell}")
        with code.loop(low, high, length) as tile:
            rest, across = self.divided(tile, in_row)
            image, down = self.divided(rest, in_column)
            left = code.value(f"sub nsw i64 {in_row}, {across}")
            found = self.part(high, tile, self.least(left, str(lanes)))
            code.line(f"{length} = add nsw i64 {found}, 0")
            x, y = (code.value(f"shl nsw i64 {n}, 1") for n in (across, down))
            ways = [x, x]
            for size, *steps in reversed(self.images):
                image, here = self.divided(image, size)
                ways = [
                    code.position(way, [(here, step)])
                    for way, step in zip(ways, steps, strict=True)
                ]
            ways[0] = code.position(ways[0], [(y, number["down"])])
            ways[1] = code.position(ways[1], [(y, number["down_out"])])
            wide = code.value(f"shl nsw i64 {length}, 1")
            there = self.part(number["width"], x, wide)
            bits_out = self.first_bits(there)
            more = code.value(f"add nsw i64 {wide}, 2")
            bits = self.first_bits(
                self.part(code.value(f"add nsw i64 {number['width']}, 2"), x, more)
            )
            second = code.value(f"add nsw i64 {y}, 1")
            both = code.value(f"icmp slt i64 {second}, {number['height']}")
            bits_last, bits_second = (
                code.value(f"select i1 {both}, i64 {b}, i64 0") for b in (bits, bits_out)
            )
            place = code.value(f"sub nsw i64 {tile}, {low}")
            piece = code.value(f"load i64, ptr {cell}")
            entry = self.times(piece, str(PIECE))
            for i, text in enumerate((*ways, place, bits, bits_last, bits_out, bits_second)):
                code.line(
                    f"store i64 {text}, "
                    f"ptr {self.entry(table, code.value(f'add nsw i64 {entry}, {i}'))}"
                )
            code.line(f"store i64 {code.value(f'add nsw i64 {piece}, 1')}, ptr {cell}")
        return code.value(f"load i64, ptr {cell}")

    def first_bits(self, count: str) -> str:
        """A number whose lowest `count` bits are set; `count` is at least 1."""
        beyond = self.code.value(f"sub nsw i64 64, {count}")
        return self.code.value(f"lshr i64 -1, {beyond}")

    # -- functions that transform ------------------------------------------------------------------

    def piece(self, code: Code, index: str) -> list[str]:
        """The words of a piece in the table."""
        entry = code.value(f"getelementptr inbounds [{PIECE} x i64], ptr %list, i64 {index}")
        pointers = [
            code.value(f"getelementptr inbounds i64, ptr {entry}, i64 {i}") for i in range(PIECE)
        ]
        return [code.value(f"load i64, ptr {pointer}") for pointer in pointers]

    def mask(self, code: Code, bits: str, first: int = 0) -> str:
        """The mask of two vectors, from bit `first` on."""
        wide = 2 * self.lanes
        if first:
            bits = code.value(f"lshr i64 {bits}, {first}")
        cut = code.value(f"trunc i64 {bits} to i{wide}") if wide < 64 else bits
        return code.value(f"bitcast i{wide} {cut} to <{wide} x i1>")

    @property
    def wide(self) -> str:
        return f"<{2 * self.lanes} x {self.gemm.kind}>"

    @property
    def suffix(self) -> str:
        return f"v{2 * self.lanes}f{8 * self.dtype.itemsize}.p0"

    def apart(self, code: Code, pointer: str, mask: str) -> list[str]:
        """Two vectors: the elements at even positions, and those at odd ones."""
        size = self.dtype.itemsize
        found = code.call(
            self.wide,
            f"llvm.masked.load.{self.suffix}",
            *(("ptr", pointer), ("i32", str(size)), (f"<{2 * self.lanes} x i1>", mask)),
            (self.wide, "zeroinitializer"),
            pure=False,
        )
        picks = (", ".join(f"i32 {2 * i + k}" for i in range(self.lanes)) for k in range(2))
        both = f"{self.wide} {found}, {self.wide} poison"
        return [code.value(f"shufflevector {both}, <{self.lanes} x i32> <{p}>") for p in picks]

    def load_square(self, code: Code, start: str, bits: str, bits_last: str) -> list[list[str]]:
        """The input of a piece, in rows that are `%down` apart; missing elements are zero."""
        square = []
        for i in range(4):
            row = self.gemm.at(code, start, (str(i), "%down"))
            here = bits if i < 3 else bits_last
            first = self.apart(code, row, self.mask(code, here))
            row = self.gemm.at(code, row, ("2", "1"))
            square.append(first + self.apart(code, row, self.mask(code, here, 2)))
        return square

    def store_square(self, code: Code, square: list[list[str]], row: str, place: str) -> None:
        """Store a piece in a row of `%to`, for each position of the square.

        Lanes beyond the piece are overwritten by the next piece or row.
        """
        gemm = self.gemm
        target = gemm.at(code, "%to", (row, "%lead"), (place, "1"))
        for i, values in enumerate(square):
            for j, value in enumerate(values):
                gemm.store(code, value, gemm.at(code, target, (str(4 * i + j), "%stride")))

    def transform_input(self) -> str:
        """B' d B of all tiles of a block, channel by channel."""
        code, gemm = Code(), self.gemm

        def line(d: list[str]) -> list[str]:
            pairs = (("fsub", 0, 2), ("fadd", 1, 2), ("fsub", 2, 1), ("fsub", 1, 3))
            return [code.value(f"{add} {gemm.vector} {d[i]}, {d[j]}") for add, i, j in pairs]

        with code.loop("0", "%channels") as channel, code.loop("0", "%pieces") as index:
            way, _, place, bits, bits_last, _, _ = self.piece(code, index)
            entry = code.value(f"getelementptr inbounds i64, ptr %table, i64 {channel}")
            start = gemm.at(code, "%from", (code.value(f"load i64, ptr {entry}"), "1"), (way, "1"))
            square = self.load_square(code, start, bits, bits_last)
            self.store_square(code, twice(square, line), channel, place)
        given = (
            "ptr noalias %from, ptr noalias %table, i64 %channels, i64 %down, ptr noalias %list, "
            "i64 %pieces, ptr noalias %to, i64 %stride, i64 %lead"
        )
        return gemm.function(code, "transform_input", given)
