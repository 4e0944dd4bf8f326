"""Kernels of contractions as matrix products over patches, which are gathered a part at a time.

Comes in: a `Contraction` of a convolution's kind: one operand is a matrix in memory, the other one
shows overlapping windows ("patches"). Goes out: a `Kernel`, or None where the operands are not of
that kind or another way is faster. Called by `emit.py`.

The patches are a matrix of taps (the positions in a window, of every channel) times positions (of
the windows). A part of it that fits the cache is copied into scratch memory, in rows of positions,
and multiplied by `@multiply` of `gemm.py`:

    positions are kept     out = matrix @ patches          results, and gradients of an input
    positions are summed   out = (patches @ matrix.T).T    gradients of a filter

Every element is summed in the same order however threads divide the work. Sizes and strides are
numbers in the kernel's table, so that few functions serve all convolutions.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from ..ir.program import Access, Contraction, size_of
from . import tuning, vectors
from .gemm import GemmWriter
from .kernel import Kernel, with_entry
from .llvm import INT64, Code

#: dimensions that a function has for taps (channel, and three of a window), for positions of the
#: patches and of the other side (sample, and three of an image), and for samples of a sum
TAPS, POSITIONS, SAMPLES = 4, 4, 2
#: the numbers of every kernel, before those of the dimensions
NUMBERS = (
    *("rows", "taps", "positions", "row_matrix", "column_matrix", "row_out", "column_out"),
    *("group_matrix", "group_patches", "group_out", "depth", "width", "lead", "block_rows"),
    *("row_blocks", "block_positions", "position_blocks", "samples", "run"),
    *("pieces_at", "patches_at", "sums_at"),
)


class Dimension(NamedTuple):
    """A size, the step of the patches along it, and that of the other side."""

    size: int
    patches: int
    other: int


# -- the text --------------------------------------------------------------------------------------


class PatchWriter:
    """Writes the function for one dtype; `step` lies between neighbours of a row of patches."""

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
        """The numbers of some dimensions: size, and both steps."""
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
        """How many of `size` steps from `begin` on there are before the end."""
        return self.least(self.code.value(f"sub nsw i64 {whole}, {begin}"), size)

    def scratch(self, name: str) -> str:
        return self.code.value(f"getelementptr inbounds i8, ptr %partial0, i64 {self.number[name]}")

    def divided(self, x: str, by: str) -> tuple[str, str]:
        """Quotient and remainder."""
        code = self.code
        return code.value(f"udiv i64 {x}, {by}"), code.value(f"urem i64 {x}, {by}")

    def offset(self, index: str, dims: Sequence[tuple[str, str, str]], side: int) -> str:
        """How far a joint index of dimensions is from the beginning, on one side."""
        terms, rest = [], index
        for dimension in reversed(dims):
            rest, here = self.divided(rest, dimension[0])
            terms.append((here, dimension[1 + side]))
        return self.code.position("0", terms)

    def list_taps(self) -> None:
        """A table of how far each tap is from the first one, at the beginning of the scratch."""
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
        """Positions in parts that follow each other on one side: begin, how many, how far."""
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
        """A table of the positions from `low` to `high` in pieces of a vector at most.

        For each: how far it is from the first position in memory and in a row of patches, and a
        mask of what is read: bit i stands for what is i elements away. Returns how many there are.
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
            # All that lies between the first and the last position of the piece is read as well.
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
            group, across = self.divided(rest, number["position_blocks"])
            top = code.value(f"mul nsw i64 {down}, {number['block_rows']}")
            rows = self.part(number["rows"], top, number["block_rows"])
            matrix = self.at("%p0", (group, number["group_matrix"]), (top, number["row_matrix"]))
            source = self.at("%p1", (group, number["group_patches"]))
            out = self.at("%p2", (group, number["group_out"]), (top, number["row_out"]))
            low = code.value(f"mul nsw i64 {across}, {number['block_positions']}")
            high = code.value(f"add nsw i64 {low}, {number['block_positions']}")
            high = self.least(high, number["positions"])
            begin = stack.enter_context(code.loop(low, high, number["width"]))
            count = self.part(high, begin, number["width"])
            end = code.value(f"add nsw i64 {begin}, {count}")
            # Sums of one pass are written at once, where positions follow in the result as here.
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
            group, across = self.divided(block, number["position_blocks"])
            first = code.value(f"mul nsw i64 {across}, {number['block_positions']}")
            count = self.part(number["taps"], first, number["block_positions"])
            matrix = self.at("%p0", (group, number["group_matrix"]))
            source = self.at("%p1", (group, number["group_patches"]))
            out = self.at("%p2", (group, number["group_out"]), (first, number["column_out"]))
            with ExitStack() as stack:
                sample = stack.enter_context(code.loop("0", number["samples"]))
                begin = stack.enter_context(
                    code.loop("0", number["positions"], number["depth"])
                )
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

        Rows of many positions are written one after another, narrow ones piece by piece: those lie
        side by side, and the inner loop has nothing but one piece to copy.
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
                # What this writes beyond the piece is written again by the next one.
                gemm.store(code, value, target)
            else:
                gemm.store_some(code, value, target, mask)
            # What comes next in each row: rows lie so far apart that no processor foresees it.
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
        """A vector of elements that are `step` apart, of those that a mask names."""
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
        """Put sums into the result: in vectors, or element by element."""
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
    """The function for one dtype, one way and one step between positions."""
    return PatchWriter(dtype, summed, step).text()


# -- which contractions are of this kind -----------------------------------------------------------


class Sides(NamedTuple):
    """A contraction with one side as a matrix: dimensions by what they are to it."""

    matrix: Access
    patches: Access
    groups: list[int]
    rows: list[int]  # of the matrix alone
    kept: list[int]  # of the patches alone
    summed: list[int]


def _sides(c: Contraction) -> Iterator[Sides]:
    """Both ways to see a contraction; none if an operand is repeated in a sum or in the result."""
    dims = [d for d, n in enumerate(c.shape) if n > 1]
    summed = [d for d in dims if d in c.dims]
    kept = [d for d in dims if d not in c.dims]
    x, y = c.x.strides, c.y.strides
    if any(not x[d] or not y[d] for d in summed) or any(not x[d] and not y[d] for d in kept):
        return
    groups = [d for d in kept if x[d] and y[d]]
    only_x = [d for d in kept if not y[d]]
    only_y = [d for d in kept if not x[d]]
    yield Sides(c.x, c.y, groups, only_x, only_y, summed)
    yield Sides(c.y, c.x, groups, only_y, only_x, summed)


def _flat(c: Contraction, access: Access, dims: Sequence[int]) -> int | None:
    """The one step with which an access walks dimensions, in this order; None if it has several."""
    step = None
    for d in reversed(dims):
        if step is None:
            step, way = access.strides[d], access.strides[d] * c.shape[d]
        elif access.strides[d] != way:
            return None
        else:
            way *= c.shape[d]
    return 1 if step is None else step


def _joined(c: Contraction, dims: Sequence[int], x: Access, y: Access) -> list[Dimension]:
    """Dimensions with the steps of two accesses; those that both walk as one are joined."""
    found: list[Dimension] = []
    for d in dims:
        n, a, b = c.shape[d], x.strides[d], y.strides[d]
        if found and (found[-1].patches, found[-1].other) == (a * n, b * n):
            found[-1] = Dimension(found[-1].size * n, a, b)
        else:
            found.append(Dimension(n, a, b))
    return found


def _padded(dims: list[Dimension], count: int) -> list[int]:
    """The numbers of dimensions, of which a function has `count`."""
    filled = [Dimension(1, 0, 0)] * (count - len(dims)) + dims
    return [number for dimension in filled for number in dimension]


class Shape(NamedTuple):
    """A contraction in numbers; what `Layout.kernel` needs to know about it."""

    matrix: Access
    patches: Access
    rows: int
    taps: list[Dimension]
    positions: list[Dimension]
    outside: list[Dimension]  # positions kept: those of the result; summed: the samples
    group: Dimension
    group_matrix: int
    row_matrix: int
    column_matrix: int
    row_out: int
    column_out: int
    run: int  # positions that follow each other in the result
    step: int
    summed: bool


def _kept(c: Contraction, s: Sides) -> Shape | None:
    """Positions are kept: lanes run along them, in the patches and in the result."""
    taps = sorted(s.summed, key=lambda d: -abs(s.matrix.strides[d]))
    positions = sorted(s.kept, key=lambda d: -abs(c.out.strides[d]))
    row, column = _flat(c, s.matrix, s.rows), _flat(c, s.matrix, taps)
    row_out, group = _flat(c, c.out, s.rows), _group(c, s)
    if not positions or None in (row, column, row_out) or group is None:
        return None
    assert row is not None and column is not None and row_out is not None
    places = _joined(c, positions, s.patches, c.out)
    outside = _joined(c, positions, c.out, c.out)
    step = places[-1].patches
    if not 1 <= step <= tuning.MAX_VECTOR_STEP or places[-1].other < 1:
        return None
    run = outside[-1].size if outside[-1].other == 1 and row_out >= outside[-1].size else 0
    return Shape(
        *(s.matrix, s.patches, size_of(tuple(c.shape[d] for d in s.rows))),
        *(_joined(c, taps, s.patches, s.patches), places, outside),
        *(group[0], group[1], row, column, row_out, outside[-1].other, run, step, False),
    )


def _summed(c: Contraction, s: Sides) -> Shape | None:
    """Positions are summed: the sums of all rows lie side by side, one tap after another."""
    positions = sorted(s.summed, key=lambda d: -abs(s.matrix.strides[d]))
    taps = sorted(s.kept, key=lambda d: -abs(c.out.strides[d]))
    samples: list[int] = []
    while positions and _flat(c, s.matrix, positions) != 1:
        samples.append(positions.pop(0))
    row, row_out = _flat(c, s.matrix, s.rows), _flat(c, c.out, s.rows)
    column_out, group = _flat(c, c.out, taps), _group(c, s)
    if not positions or None in (row, row_out, column_out) or group is None:
        return None
    assert row is not None and column_out is not None and row_out is not None
    places = _joined(c, positions, s.patches, s.matrix)
    step = places[-1].patches
    inside = size_of(tuple(c.shape[d] for d in positions))
    if not 1 <= step <= tuning.MAX_VECTOR_STEP or row < inside:
        return None
    return Shape(
        *(s.matrix, s.patches, size_of(tuple(c.shape[d] for d in s.rows))),
        *(_joined(c, taps, s.patches, s.patches), places),
        _joined(c, samples, s.patches, s.matrix),
        *(group[0], group[1], row, 1, row_out, column_out, 0, step, True),
    )


def _group(c: Contraction, s: Sides) -> tuple[Dimension, int] | None:
    """The groups as one dimension, and the step of the matrix along it."""
    found = _joined(c, s.groups, s.patches, c.out)
    step = _flat(c, s.matrix, s.groups)
    if len(found) > 1 or step is None:
        return None
    return (found[0], step) if found else (Dimension(1, 0, 0), 0)


def _shape(c: Contraction, lanes: int) -> Shape | None:
    """A contraction as a product over patches, if it can be seen as one: the cheapest way."""
    found = []
    for sides in _sides(c):
        for shape in (_kept(c, sides), _summed(c, sides)):
            if shape is None or len(shape.taps) > TAPS or len(shape.positions) > POSITIONS:
                continue
            if len(shape.outside) <= (SAMPLES if shape.summed else POSITIONS):
                found.append(shape)
    return min(found, key=lambda shape: _copying(shape, lanes), default=None)


def _copying(s: Shape, lanes: int) -> float:
    """What copies take for each multiplication of a vector, in the time of one."""
    row = s.positions[-1].size
    filled = row / (-(-row // lanes) * lanes)
    gathering = tuning.MULTIPLICATIONS_PER_GATHERED_VECTOR / (filled * s.rows)
    # `@multiply` transposes the matrix for each block of taps.
    packing = tuning.MULTIPLICATIONS_PER_TRANSPOSED_VECTOR / min(_count(s.taps), tuning.MAX_PATCH_ROWS)
    return gathering + packing * s.summed


# -- how it is divided -----------------------------------------------------------------------------


def _even(whole: int, most: int, grain: int = 1) -> int:
    """The size of equal parts of at most `most` steps, in multiples of `grain`."""
    parts = -(-whole // most)
    return min(-(-whole // parts // grain) * grain, max(most, grain))


def _count(dims: Sequence[Dimension]) -> int:
    return size_of(tuple(d.size for d in dims))


def patches(c: Contraction, threads: int) -> Kernel | None:
    """The kernel of a contraction as a product over patches; None where another way is better."""
    dtype = c.out.value.dtype
    size = dtype.itemsize
    lanes = vectors.registers()[0] // size
    s = _shape(c, lanes)
    if s is None or not _pays(s, lanes):
        return None
    taps, positions, samples = _count(s.taps), _count(s.positions), _count(s.outside)
    width = lanes * tuning.MAX_PANEL_VECTORS
    row_blocks, run = 1, 0
    if s.summed:
        depth = _even(positions, tuning.MAX_PATCH_POSITIONS)
        wanted = -(-threads // s.group.size)
        block = _even(taps, min(-(-taps // wanted), tuning.MAX_PATCH_ROWS), tuning.ROW_GRAIN)
        blocks, block_rows = -(-taps // block), s.rows
        lead = depth + lanes
        gathered, sums = block * lead, block * s.rows
    else:
        depth = _even(taps, tuning.MAX_PATCH_TAPS)
        block, block_rows = _blocks(s, positions, width, threads)
        blocks, row_blocks = -(-positions // block), -(-s.rows // block_rows)
        lead, samples = width, 1
        run = s.run if depth == taps else 0
        gathered, sums = depth * width, block_rows * width
    line = tuning.CACHE_LINE_BYTES
    starts = [0]
    span = depth if s.summed else width
    for length in (8 * taps, 24 * span, (gathered + lanes) * size, sums * size):
        starts.append(starts[-1] + -(-length // line) * line)
    numbers = [
        *(s.rows, taps, positions, s.row_matrix, s.column_matrix, s.row_out, s.column_out),
        *(s.group_matrix, s.group.patches, s.group.other, depth, width, lead, block_rows),
        *(row_blocks, block, blocks, samples, max(run, 1), *starts[1:4]),
        *_padded(s.taps, TAPS),
        *_padded(s.positions, POSITIONS),
        *_padded(s.outside, SAMPLES if s.summed else POSITIONS),
    ]
    work = 2 * size_of(c.shape)
    extent = s.group.size * blocks * row_blocks
    accesses = (s.matrix, s.patches, c.out)
    return Kernel(
        "contraction",
        text_of(dtype, s.summed, s.step),
        [(a.value.number, a.offset * size) for a in accesses],
        extent,
        1,
        extent < 2,
        work < tuning.MIN_PRODUCT_OPERATIONS_TO_SHARE,
        work,
        [(s.matrix.value.number, None), (s.patches.value.number, None)],
        [(c.out.value.number, None)],
        numbers,
        scratch=starts[-1],
    )


def _blocks(s: Shape, positions: int, width: int, threads: int) -> tuple[int, int]:
    """Positions and rows of a block: enough of them for all threads, and else as large as fit."""
    wanted = -(-threads // s.group.size)
    panels = -(-positions // width)
    across = min(panels, wanted)
    down = min(-(-wanted // across), -(-s.rows // tuning.ROW_GRAIN))
    return _even(panels, -(-panels // across)) * width, _even(s.rows, -(-s.rows // down), tuning.ROW_GRAIN)


def _pays(s: Shape, lanes: int) -> bool:
    """Whether copying patches takes less time than what reading them in place would waste."""
    if s.rows < tuning.MIN_ROWS_FOR_PATCHES:
        return False
    if s.summed:
        return True
    # In place, a tile's vectors go along a row of positions, and each plane of taps is met once.
    row = s.positions[-1]
    whole = row.size % lanes == 0 and s.step == 1
    planes = s.taps[0].size if len(s.taps) > 1 else _count(s.taps)
    return not (whole and _count(s.taps) >= tuning.MIN_TAPS_PER_PLANE * planes)
