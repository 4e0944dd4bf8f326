"""Functions that multiply matrices: the text of one product of any size, for one dtype.

Comes in: a dtype, and whether the memory of y holds its transpose. Goes out: text that defines
`@multiply`, out = x @ y or out += x @ y. Called by `products.py` and others.

    columns   are divided into panels of up to three vectors
    a panel   of y is read in place if its rows are few and whole vectors; otherwise it is packed
    panels    that fit the cache together are all packed first, and 32 rows are multiplied with all
              of them before the next 32 are: the result is then written row by row
    rows      are divided into tiles as tall as the registers allow; the rest into halves of those
    a tile    of out is summed in registers, over as many columns of x as fit the cache
    large x   is packed too, tile by tile: rows that lie a power of two apart in memory would evict
              each other from the cache

Every element is summed in the same order whatever the tile. So results do not depend on how threads
divide a product, nor on where an element lies.

A product with a triangle (see `program.Product`) skips the tiles beside the diagonal, and sums a
tile on the diagonal row by row, so that exactly the triangle is summed.

Operands of half precision are always packed, because packing converts them (`packing.py`). Their
sums are float32: between passes they wait in scratch memory, for blocks of so many rows and columns
that they take a few megabytes; the last pass rounds them.
"""

from __future__ import annotations

import functools
from contextlib import ExitStack
from typing import Any

from ...core import numeric
from ..native.code import Code
from . import tuning, vectors
from .packing import PackWriter, WidenedElements, masked_load, masked_store, packing_of

#: the parameters of `@multiply`, in this order. `lead_*` are the strides of rows, `row_x` and
#: `column_x` those of x's rows and columns, in elements. `scratch` has `packed_bytes` bytes; if it
#: is null, only one panel is packed at a time (half precision needs it). With a triangle, the
#: number of the first row follows.
ARGUMENTS = (
    *("ptr %x", "i64 %row_x", "i64 %column_x", "ptr %y", "i64 %lead_y"),
    *("ptr %out", "i64 %lead_out", "i64 %rows", "i64 %columns", "i64 %inner", "i1 %adds"),
    *("ptr %scratch",),
)
#: further parameters of `@multiply_one_of_many`: whether to prefetch the matrices of the next
#: product, and pointers to these, each without gaps
FOLLOWING = ("i1 %asks", "ptr %next_x", "ptr %next_y", "ptr %next_out")


class GemmWriter(PackWriter):
    """Writes the functions for one dtype and one layout of the operands."""

    def __init__(self, dtype: Any, transposed_y: bool, triangle: str) -> None:
        super().__init__(dtype, transposed_y)
        assert not (self.half and triangle)
        self.triangle = triangle
        self.asks = not (self.half or triangle)
        if triangle:
            self.widest = tuning.MAX_TRIANGLE_PANEL_VECTORS

    def text(self) -> str:
        """All functions; those of tiles first."""
        parts = [self.pack(), self.pack_rows(), *self.panels()]
        if self.triangle == "out":
            parts.append(self.clear())
        parts.append(self.multiply())
        if self.half:
            parts.append(self.in_blocks())
        return "".join(parts) + "\n".join(sorted(self.declared)) + "\n"

    def panels(self) -> list[str]:
        """The functions of tiles and panels, from one vector to the widest."""
        heights = [self.tallest]
        while heights[-1] > 1:
            heights.append(1 if self.triangle else heights[-1] // 2)
        parts = []
        for across in range(1, self.widest + 1):
            parts += [self.tile(rows, across) for rows in heights]
            parts.append(self.panel(heights, across))
        return parts

    # -- memory -----------------------------------------------------------------------------------

    def sums_at(self, code: Code, pointer: str, *terms: tuple[str, str]) -> str:
        return code.element(pointer, self.packing.sums, code.position("0", list(terms)))

    def load(self, code: Code, pointer: str) -> str:
        return code.value(f"load {self.vector}, ptr {pointer}, align {self.packing.sums.itemsize}")

    def store(self, code: Code, value: str, pointer: str) -> None:
        align = self.packing.sums.itemsize
        code.line(f"store {self.vector} {value}, ptr {pointer}, align {align}")

    def load_some(self, code: Code, pointer: str, mask: str) -> str:
        return masked_load(code, self.kind, self.dtype.itemsize, pointer, self.lanes, mask)

    def store_some(self, code: Code, value: str, pointer: str, mask: str) -> None:
        masked_store(code, self.kind, self.dtype.itemsize, value, pointer, self.lanes, mask)

    # -- tiles and panels ------------------------------------------------------------------------

    #: parameters of a tile and of a panel
    BOTH = (
        "ptr %x, i64 %row_x, i64 %column_x, ptr %panel, i64 %lead_panel, ptr %out, i64 %lead_out, "
        "i64 %inner, i64 %last, i1 %adds"
    )
    #: of a tile: the address that the first step prefetches, and its stride per step
    AHEAD = ", ptr %ahead, i64 %lead_ahead"
    #: of half precision: where a tile's sums wait for the next pass, and whether this is the last
    SUMS = ", ptr %sums, i64 %lead_sums, i1 %ends"
    #: of a product with a triangle: where the diagonal crosses the first row
    DIAGONAL = ", i64 %diagonal"
    #: of a panel: `tile_x` is the stride in x between tallest tiles; `fetches` tells whether the
    #: result is so large that its lines are prefetched before they are written
    ALL_ROWS = ", i64 %rows, i64 %tile_x, i1 %fetches"
    #: of a panel in a batch of products: see `FOLLOWING`, and the number of the panel's first tile
    ASKED = ", i1 %asks, ptr %next_x, ptr %next_y, ptr %next_out, i64 %tile"

    @property
    def tile_arguments(self) -> str:
        diagonal = self.DIAGONAL if self.triangle in ("lower", "upper") else ""
        return self.BOTH + self.AHEAD + diagonal + (self.SUMS if self.half else "")

    @property
    def panel_arguments(self) -> str:
        arguments = self.BOTH + self.ALL_ROWS + (self.DIAGONAL if self.triangle else "")
        return arguments + (self.SUMS if self.half else self.ASKED if self.asks else "")

    def tile(self, rows: int, across: int) -> str:
        """The function that sums a tile; `%last` counts the lanes of its last vectors."""
        code = Code()
        # The asm hides from LLVM that one offset follows from another; it would compute them in
        # each step. On Intel, the units that multiply also add addresses: a quarter of the time.
        ways = [code.value(f"mul nsw i64 {i}, %row_x") for i in range(1, rows)]
        self.ways = ["0", *(code.value(f'call i64 asm "", "=r,0"(i64 {way})') for way in ways)]
        cells = {(i, j): self.cell(code) for i in range(rows) for j in range(across)}
        low, high = "0", "%inner"
        if self.triangle == "lower":
            high = self.clamped(code, "%diagonal")
        elif self.triangle == "upper":
            self.corner(code, cells, rows)
            low = self.clamped(code, code.value(f"add nsw i64 %diagonal, {rows}"))
        with code.loop(low, high) as step:
            self.step(code, cells, step, range(rows))
        if self.triangle == "lower":
            self.corner(code, cells, rows)
        if self.half:
            self.finish_half(code, cells)
        else:
            self.finish(code, cells)
        return self.function(code, f"tile{rows}x{across}", self.tile_arguments)

    def finish(self, code: Code, cells: dict[tuple[int, int], str]) -> None:
        """Store the sums of a tile, or add them to what is there."""
        vector = self.vector
        rows, across = (1 + max(places) for places in zip(*cells, strict=True))
        with code.when("%adds"):
            for (i, j), cell in cells.items():
                pointer = self.out_at(code, i, j)
                if j < across - 1:
                    old = self.load(code, pointer)
                else:
                    old = self.load_some(code, pointer, self.first_lanes(code, "%last"))
                new = code.value(f"load {vector}, ptr {cell}")
                total = code.value(f"fadd {vector} {old}, {new}")
                code.line(f"store {vector} {total}, ptr {cell}")
        for (i, j), cell in cells.items():
            if j < across - 1:
                value = code.value(f"load {vector}, ptr {cell}")
                self.store(code, value, self.out_at(code, i, j))
        mask = self.first_lanes(code, "%last")
        for i in range(rows):
            value = code.value(f"load {vector}, ptr {cells[i, across - 1]}")
            self.store_some(code, value, self.out_at(code, i, across - 1), mask)

    def finish_half(self, code: Code, cells: dict[tuple[int, int], str]) -> None:
        """Add the sums of earlier passes; then round the sums of a tile, or keep them."""
        assert isinstance(self.packing, WidenedElements)
        across = 1 + max(j for _, j in cells)

        def waiting(i: int, j: int) -> str:
            terms = ((str(i), "%lead_sums"), (str(j * self.lanes), "1"))
            return self.sums_at(code, "%sums", *terms)

        with code.when("%adds"):
            for (i, j), cell in cells.items():
                new = code.value(f"load {self.vector}, ptr {cell}")
                total = code.value(f"fadd {self.vector} {self.load(code, waiting(i, j))}, {new}")
                code.line(f"store {self.vector} {total}, ptr {cell}")
        with code.when("%ends"):
            mask = self.first_lanes(code, "%last")
            for (i, j), cell in cells.items():
                value = code.value(f"load {self.vector}, ptr {cell}")
                narrow = self.packing.narrowed(code, value, self.lanes)
                pointer = self.out_at(code, i, j)
                if j < across - 1:
                    code.line(f"store <{self.lanes} x i16> {narrow}, ptr {pointer}, align 2")
                else:
                    masked_store(code, "i16", 2, narrow, pointer, self.lanes, mask)
        with code.when(code.value("xor i1 %ends, true")):
            for (i, j), cell in cells.items():
                value = code.value(f"load {self.vector}, ptr {cell}")
                self.store(code, value, waiting(i, j))

    def number(self, code: Code, row: int, step: str) -> str:
        """The element of x in a row of the tile."""
        first = self.packed_at(code, "%x", (step, "%column_x"))
        return code.load(
            self.packed_at(code, first, (self.ways[row], "1")), self.packing.packed
        ).text

    def step(self, code: Code, cells: dict[tuple[int, int], str], step: str, rows: range) -> None:
        """Add the products of one step to the sums of some rows."""
        vector, across = self.vector, 1 + max(j for _, j in cells)
        packed = f"<{self.lanes} x {self.packed_kind}>"
        row = self.packed_at(code, "%panel", (step, "%lead_panel"))
        loaded = []
        for j in range(across):
            pointer = self.packed_at(code, row, (str(j * self.lanes), "1"))
            align = self.packing.packed.itemsize
            loaded.append(code.value(f"load {packed}, ptr {pointer}, align {align}"))
        ahead = self.packed_at(code, "%ahead", (step, "%lead_ahead"))
        for j in range(across):
            self.prefetch(code, self.packed_at(code, ahead, (str(j * self.lanes), "1")))
        for i in rows:
            number = self.number(code, i, step)
            one = code.value(f"insertelement {packed} poison, {self.packed_kind} {number}, i64 0")
            zeros = f"<{self.lanes} x i32> zeroinitializer"
            spread = code.value(f"shufflevector {packed} {one}, {packed} poison, {zeros}")
            for j in range(across):
                old = code.value(f"load {vector}, ptr {cells[i, j]}")
                total = self.packing.multiplied(code, vector, old, loaded[j], spread)
                code.line(f"store {vector} {total}, ptr {cells[i, j]}")

    def corner(self, code: Code, cells: dict[tuple[int, int], str], rows: int) -> None:
        """The steps at which the diagonal crosses a tile: each is added to some of its rows."""
        for t in range(rows):
            step = code.value(f"add nsw i64 %diagonal, {t}")
            with code.when(code.value(f"icmp ult i64 {step}, %inner")):
                counting = range(t, rows) if self.triangle == "lower" else range(t + 1)
                self.step(code, cells, step, counting)

    def clamped(self, code: Code, step: str) -> str:
        """A step, clamped to the range from 0 to `inner`."""
        positive = code.call("i64", "llvm.smax.i64", ("i64", step), ("i64", "0"))
        return self.least(code, positive, "%inner")

    def cell(self, code: Code) -> str:
        """A vector variable, initialised with zero."""
        name = code.name()
        code.first.append(f"  {name} = alloca {self.vector}")
        code.line(f"store {self.vector} zeroinitializer, ptr {name}")
        return name

    def out_at(self, code: Code, i: int, j: int) -> str:
        return self.at(code, "%out", (str(i), "%lead_out"), (str(j * self.lanes), "1"))

    def panel(self, heights: list[int], across: int) -> str:
        """The function that multiplies all rows with a panel, in tiles from the tallest on down."""
        code = Code()

        tallest, *lower = heights

        # The hardware does not prefetch rows that lie in different pages.
        later = code.value(f"mul nsw i64 %lead_panel, {tuning.PREFETCHED_STEPS}")
        soon = self.packed_at(code, "%panel", (later, "1")), "%lead_panel"

        def call(rows: int, first: str, ahead: tuple[str, str] = soon) -> None:
            tile = code.value(f"sdiv i64 {first}, {tallest}")
            inside = code.value(f"and i64 {first}, {tallest - 1}")
            x = self.packed_at(code, "%x", (tile, "%tile_x"), (inside, "%row_x"))
            out = self.at(code, "%out", (first, "%lead_out"))
            given = (
                f"ptr {x}, i64 %row_x, i64 %column_x, ptr %panel, i64 %lead_panel, ptr {out}, "
                f"i64 %lead_out, i64 %inner, i64 %last, i1 %adds, ptr {ahead[0]}, i64 {ahead[1]}"
            )
            if self.triangle in ("lower", "upper"):
                given += f", i64 {code.value(f'add nsw i64 %diagonal, {first}')}"
            if self.half:
                sums = self.sums_at(code, "%sums", (first, "%lead_sums"))
                given += f", ptr {sums}, i64 %lead_sums, i1 %ends"
            code.line(f"call void @tile{rows}x{across}({given})")

        most = code.value(f"and i64 %rows, {-tallest}")
        begin = "0"
        if self.triangle == "out":
            # The rows before `begin` have nothing in this panel.
            begin = code.call("i64", "llvm.smax.i64", ("i64", "%diagonal"), ("i64", "0"))
            begin = code.value(f"and i64 {begin}, {-tallest}")
        with code.loop(begin, most, tallest) as first:
            if self.asks:
                self.ask_for_next(code, first, across)
            call(tallest, first, self.following(code, first, across, soon) if self.asks else soon)
        if self.triangle:
            rest = code.call("i64", "llvm.smax.i64", ("i64", begin), ("i64", most))
            with code.loop(rest, "%rows") as first:
                call(1, first)
            return self.function(code, f"panel{across}", self.panel_arguments)
        for rows in lower:
            some = code.value(f"and i64 %rows, {rows}")
            with code.when(code.value(f"icmp ne i64 {some}, 0")):
                call(rows, code.value(f"and i64 %rows, {-2 * rows}"))
        return self.function(code, f"panel{across}", self.panel_arguments)

    def ask_for_next(self, code: Code, first: str, across: int) -> None:
        """Prefetch the lines of a large result that the next tile writes."""
        line = tuning.CACHE_LINE_BYTES // self.dtype.itemsize
        with code.when("%fetches"):
            for i in range(self.tallest):
                row = code.value(f"add nsw i64 {first}, {self.tallest + i}")
                for column in range(0, across * self.lanes + line, line):
                    there = self.at(code, "%out", (row, "%lead_out"), (str(column), "1"))
                    self.prefetch(code, there, write=True)

    def following(
        self, code: Code, first: str, across: int, soon: tuple[str, str]
    ) -> tuple[str, str]:
        """What a tile prefetches: a part of the next product's matrices if `asks`, else `soon`.

        Tiles take turns with x, y and out; each prefetches as many lines as it reads of its panel.
        """
        tile = code.value(f"sdiv i64 {first}, {self.tallest}")
        tile = code.value(f"add nsw i64 %tile, {tile}")
        turn, part = code.value(f"urem i64 {tile}, 3"), code.value(f"udiv i64 {tile}, 3")
        wide = str(across * self.lanes)
        pointer = "%next_x"
        for i, other in enumerate(("%next_y", "%next_out"), 1):
            here = code.value(f"icmp eq i64 {turn}, {i}")
            pointer = code.value(f"select i1 {here}, ptr {other}, ptr {pointer}")
        part = code.value(f"mul nsw i64 {part}, %inner")
        pointer = self.at(code, pointer, (part, wide))
        return (
            code.value(f"select i1 %asks, ptr {pointer}, ptr {soon[0]}"),
            code.value(f"select i1 %asks, i64 {wide}, i64 {soon[1]}"),
        )

    def clear(self) -> str:
        """Zero a panel above the diagonal, which crosses its first column at row `diagonal`."""
        code = Code()
        ends = code.value("add nsw i64 %diagonal, %columns")
        with code.loop("0", self.least(code, "%rows", ends)) as row:
            after = code.value(f"add nsw i64 {row}, 1")
            after = code.value(f"sub nsw i64 {after}, %diagonal")
            with code.loop("0", "%columns", self.lanes) as column:
                counting = self.first_lanes(code, code.value(f"sub nsw i64 {after}, {column}"))
                there = self.first_lanes(code, code.value(f"sub nsw i64 %columns, {column}"))
                ones = f"<{', '.join(['i1 true'] * self.lanes)}>"
                above = code.value(f"xor {self.bits} {counting}, {ones}")
                above = code.value(f"and {self.bits} {above}, {there}")
                pointer = self.at(code, "%out", (row, "%lead_out"), (column, "1"))
                self.store_some(code, "zeroinitializer", pointer, above)
        given = "ptr %out, i64 %lead_out, i64 %rows, i64 %columns, i64 %diagonal"
        return self.function(code, "clear", given)

    # -- the product -----------------------------------------------------------------------------

    def multiply(self) -> str:
        code, lanes, widest = Code(), self.lanes, self.widest
        panel = code.name()
        most = tuning.MAX_PANEL_STEPS
        room = f"[{most * widest * lanes} x {self.packed_kind}]"
        code.first.append(f"  {panel} = alloca {room}, align {64}")
        most *= self.packing.steps
        vectors = code.value(f"add nsw i64 %columns, {lanes - 1}")
        vectors = code.value(f"sdiv i64 {vectors}, {lanes}")
        panels = code.value(f"add nsw i64 {vectors}, {widest - 1}")
        panels = code.value(f"sdiv i64 {panels}, {widest}")
        # Widths 3, 3, ..., 2, 2 rather than 3, 3, ..., 3, 1: a narrow panel reads x too often.
        missing = code.value(f"mul nsw i64 {panels}, {widest}")
        missing = code.value(f"sub nsw i64 {missing}, {vectors}")
        narrow_from = code.value(f"sub nsw i64 {panels}, {missing}")
        alone = code.value(f"icmp eq i64 {vectors}, 1")
        in_columns = code.value("icmp eq i64 %row_x, 1")
        far = self.is_far(code, "%column_x", tuning.FAR_COLUMN_BYTES)
        far = code.value(f"and i1 {in_columns}, {far}")
        least = (tuning.MIN_COLUMNS_TO_PACK_FAR_ROWS, tuning.MIN_COLUMNS_TO_PACK_ROWS)
        size = (tuning.MIN_BYTES_TO_PACK_FAR_ROWS, tuning.MIN_BYTES_TO_PACK)
        packs_rows = self.worth(code, "%columns", far, least, "%rows", size)
        has_room = code.value("icmp ne ptr %scratch, null")
        if packs_rows not in ("true", "false"):
            packs_rows = code.value(f"and i1 {packs_rows}, {has_room}")
        far = self.is_far(code, "%lead_y", tuning.FAR_BYTES)
        least = (tuning.MIN_ROWS_TO_PACK_FAR_PANELS, tuning.MIN_ROWS_TO_PACK_PANELS)
        size = (tuning.MIN_BYTES_TO_PACK, tuning.MIN_BYTES_TO_PACK)
        packs_panels = self.worth(code, "%rows", far, least, "%columns", size)
        # Passes of the same length: a short one would have too little to do for each sum.
        passes = code.value(f"add nsw i64 %inner, {most - 1}")
        passes = code.value(f"sdiv i64 {passes}, {most}")
        passes = code.call("i64", "llvm.smax.i64", ("i64", passes), ("i64", "1"))
        length = code.value(f"sdiv i64 %inner, {passes}")
        length = code.value(f"add nsw i64 {length}, {tuning.PANEL_STEPS_GRAIN - 1}")
        length = code.value(f"and i64 {length}, {-tuning.PANEL_STEPS_GRAIN}")
        length = self.least(code, length, str(most))
        keeps, group = self.kept_panels(code, panels, length, packs_rows, has_room)
        block = code.value(f"select i1 {packs_rows}, i64 {tuning.MAX_PACKED_ROWS}, i64 %rows")
        block = code.value(f"select i1 {keeps}, i64 {tuning.ROWS_BETWEEN_PANELS}, i64 {block}")
        block = code.call("i64", "llvm.smax.i64", ("i64", block), ("i64", "1"))
        span = code.value("mul nsw i64 %rows, %lead_out")
        limit = tuning.MIN_RESULT_BYTES_TO_PREFETCH // self.dtype.itemsize
        fetches = code.value(f"icmp sge i64 {span}, {limit}")

        def place(index: str) -> tuple[str, str, str, str]:
            """Of a panel: its vectors, first column, width in columns, and columns that exist."""
            narrow = code.value(f"icmp sge i64 {index}, {narrow_from}")
            across = code.value(f"select i1 {narrow}, i64 {widest - 1}, i64 {widest}")
            across = code.value(f"select i1 {alone}, i64 1, i64 {across}")
            over = code.value(f"sub nsw i64 {index}, {narrow_from}")
            over = code.call("i64", "llvm.smax.i64", ("i64", over), ("i64", "0"))
            first = code.value(f"mul nsw i64 {index}, {widest}")
            first = code.value(f"sub nsw i64 {first}, {over}")
            first = code.value(f"select i1 {alone}, i64 0, i64 {first}")
            column = code.value(f"mul nsw i64 {first}, {lanes}")
            width = code.value(f"mul nsw i64 {across}, {lanes}")
            left = code.value(f"sub nsw i64 %columns, {column}")
            return across, column, width, self.least(code, width, left)

        def pack(y: str, panel: str, width: str, count: str, depth: str) -> None:
            code.line(
                f"call void @pack(ptr {y}, i64 %lead_y, ptr {panel}, i64 {width}, i64 {count}, "
                f"i64 {depth})"
            )

        with ExitStack() as stack:
            start = stack.enter_context(code.loop("0", "%inner", length))
            depth = self.least(code, code.value(f"sub nsw i64 %inner, {start}"), length)
            first = stack.enter_context(code.loop("0", panels, group))
            ends = self.least(code, code.value(f"add nsw i64 {first}, {group}"), panels)
            _, left, _, _ = place(first)
            kept = self.packed_at(code, "%scratch", (str(tuning.ROWS_BETWEEN_PANELS), depth))

            def kept_at(column: str) -> str:
                inside = code.value(f"sub nsw i64 {column}, {left}")
                return self.packed_at(code, kept, (inside, depth))

            if keeps != "false":
                with code.when(keeps), code.loop(first, ends) as index:
                    _, column, width, count = place(index)
                    pack(self.y_at(code, start, column), kept_at(column), width, count, depth)
            top = stack.enter_context(code.loop("0", "%rows", block))
            rows = self.least(code, code.value(f"sub nsw i64 %rows, {top}"), block)
            x = self.x_at(code, top, start)
            with code.when(packs_rows):
                code.line(
                    f"call void @pack_rows(ptr {x}, i64 %row_x, i64 %column_x, ptr %scratch, "
                    f"i64 {rows}, i64 {depth})"
                )

            def chosen(kind: str, packed: str, plain: str) -> str:
                return code.value(f"select i1 {packs_rows}, {kind} {packed}, {kind} {plain}")

            tall = self.tallest
            x = chosen("ptr", "%scratch", x)
            row_x, column_x = chosen("i64", "1", "%row_x"), chosen("i64", str(tall), "%column_x")
            deep = self.count(code, depth)
            packed_tile = code.value(f"mul nsw i64 {deep}, {tall}")
            tile_x = chosen("i64", packed_tile, code.value(f"mul nsw i64 %row_x, {tall}"))
            index = stack.enter_context(code.loop(first, ends))
            later = code.value(f"icmp ne i64 {start}, 0")
            adds = code.value(f"or i1 %adds, {later}")
            across, column, width, count = place(index)
            y = self.y_at(code, start, column)
            out = self.at(code, "%out", (top, "%lead_out"), (column, "1"))
            packs = code.value(f"xor i1 {keeps}, true")
            if not self.transposed_y and not self.half:
                wanted = code.value(f"icmp slt i64 {count}, {width}")
                wanted = code.value(f"or i1 {wanted}, {packs_panels}")
                packs = code.value(f"and i1 {packs}, {wanted}")
            with code.when(packs):
                pack(y, panel, width, count, depth)
            lies = code.value(f"select i1 {packs}, ptr {panel}, ptr {y}")
            lies = code.value(f"select i1 {keeps}, ptr {kept_at(column)}, ptr {lies}")
            packed = code.value(f"or i1 {keeps}, {packs}")
            lead = code.value(f"select i1 {packed}, i64 {width}, i64 %lead_y")
            last = code.value(f"sub nsw i64 {width}, {lanes}")
            last = code.value(f"sub nsw i64 {count}, {last}")
            given = (
                f"ptr {x}, i64 {row_x}, i64 {column_x}, ptr {lies}, i64 {lead}, ptr {out}, "
                f"i64 %lead_out, i64 {deep}, i64 {last}, i1 {adds}, i64 {rows}, i64 {tile_x}, "
                f"i1 {fetches}"
            )
            if self.half:
                sums = self.sums_at(code, "%sums", (top, "%lead_sums"), (column, "1"))
                reached = code.value(f"add nsw i64 {start}, {depth}")
                ends = code.value(f"icmp sge i64 {reached}, %inner")
                given += f", ptr {sums}, i64 %lead_sums, i1 {ends}"
            if self.asks:
                tiles = code.value(f"sdiv i64 %rows, {tall}")
                tile = code.value(f"mul nsw i64 {index}, {tiles}")
                given += ", i1 %asks, ptr %next_x, ptr %next_y, ptr %next_out, i64 " + tile
            diagonal = ""
            if self.triangle:
                ends = f"{column}, %first" if self.triangle == "out" else f"%first, {start}"
                diagonal = code.value(f"sub nsw i64 {ends}")
                given += f", i64 {diagonal}"
            for n in range(1, widest + 1):
                with code.when(code.value(f"icmp eq i64 {across}, {n}")):
                    code.line(f"call void @panel{n}({given})")
            if self.triangle == "out":
                code.line(
                    f"call void @clear(ptr {out}, i64 %lead_out, i64 %rows, i64 {count}, "
                    f"i64 {diagonal})"
                )
        if self.half:
            arguments = ", ".join([*ARGUMENTS, "ptr %sums", "i64 %lead_sums"])
            return self.function(code, "multiply_block", arguments)
        if self.asks:
            arguments = ", ".join([*ARGUMENTS, *FOLLOWING])
            return self.function(code, "multiply_one_of_many", arguments) + self.alone()
        return self.function(code, "multiply", ", ".join([*ARGUMENTS, "i64 %first"]))

    def alone(self) -> str:
        """A product alone, which prefetches nothing of a next one."""
        code = Code()
        given = ", ".join([*ARGUMENTS, "i1 false", *["ptr null"] * 3])
        code.line(f"call void @multiply_one_of_many({given})")
        return self.function(code, "multiply", ", ".join(ARGUMENTS))

    def in_blocks(self) -> str:
        """A product of half precision, in blocks of rows and columns whose sums fit the scratch."""
        code = Code()
        with (
            code.loop("0", "%rows", tuning.MAX_PACKED_ROWS) as top,
            code.loop("0", "%columns", tuning.MAX_SUM_COLUMNS) as column,
        ):
            left = code.value(f"sub nsw i64 %rows, {top}")
            rows = self.least(code, left, str(tuning.MAX_PACKED_ROWS))
            left = code.value(f"sub nsw i64 %columns, {column}")
            columns = self.least(code, left, str(tuning.MAX_SUM_COLUMNS))
            x, y = self.x_at(code, top, "0"), self.y_at(code, "0", column)
            out = self.at(code, "%out", (top, "%lead_out"), (column, "1"))
            padded = code.value(f"add nsw i64 {rows}, {tuning.TALL_TILE_ROWS - 1}")
            padded = code.value(f"and i64 {padded}, {-tuning.TALL_TILE_ROWS}")
            sums = self.packed_at(code, "%scratch", (padded, str(tuning.MAX_PANEL_STEPS)))
            lead = code.value(f"add nsw i64 {columns}, {self.lanes - 1}")
            lead = code.value(f"and i64 {lead}, {-self.lanes}")
            code.line(
                f"call void @multiply_block(ptr {x}, i64 %row_x, i64 %column_x, ptr {y}, "
                f"i64 %lead_y, ptr {out}, i64 %lead_out, i64 {rows}, i64 {columns}, i64 %inner, "
                f"i1 false, ptr %scratch, ptr {sums}, i64 {lead})"
            )
        return self.function(code, "multiply", ", ".join(ARGUMENTS))

    def kept_panels(
        self, code: Code, panels: str, length: str, packs_rows: str, has_room: str
    ) -> tuple[str, str]:
        """Whether several panels are packed at once and kept for a few rows at a time; how many.

        If all panels of a pass fit the cache, all are kept. Otherwise groups of them are, if x has
        few rows and is not packed: it would be packed again for every group.
        """
        if self.half or self.triangle:
            return "false", code.call("i64", "llvm.smax.i64", ("i64", panels), ("i64", "1"))
        panel_bytes = self.widest * self.lanes * self.dtype.itemsize
        size = code.value(f"mul nsw i64 {length}, {panel_bytes}")
        size = code.call("i64", "llvm.smax.i64", ("i64", size), ("i64", "1"))
        few = code.value(f"icmp sle i64 %rows, {tuning.MAX_ROWS_FOR_GROUPS}")
        small = code.value(f"and i1 {few}, {code.value(f'xor i1 {packs_rows}, true')}")
        limits = (tuning.MAX_KEPT_GROUP_BYTES, tuning.MAX_KEPT_PANEL_BYTES)
        limit = code.value(f"select i1 {small}, i64 {limits[0]}, i64 {limits[1]}")
        group = code.value(f"sdiv i64 {limit}, {size}")
        fits = code.value(f"icmp sge i64 {group}, {panels}")
        fits = code.value(f"or i1 {fits}, {small}")
        several = code.value(f"icmp sgt i64 {panels}, 1")
        often = code.value(f"icmp sge i64 %rows, {tuning.MIN_ROWS_TO_KEEP_PANELS}")
        keeps = code.value(f"and i1 {fits}, {code.value(f'and i1 {several}, {often}')}")
        keeps = code.value(f"and i1 {keeps}, {has_room}")
        group = code.value(f"select i1 {keeps}, i64 {group}, i64 {panels}")
        return keeps, code.call("i64", "llvm.smax.i64", ("i64", group), ("i64", "1"))

    def is_far(self, code: Code, lead: str, least: int) -> str:
        """Whether a stride of `lead` elements is at least `least` bytes."""
        return code.value(f"icmp sge i64 {lead}, {least // self.dtype.itemsize}")

    def worth(
        self,
        code: Code,
        uses: str,
        far: str,
        least: tuple[int, int],
        count: str,
        size: tuple[int, int],
    ) -> str:
        """Whether to pack a matrix of `count` rows or columns; its elements have `uses` uses.

        If `far`, this takes at least `least[0]` uses and `size[0]` bytes, else `least[1]` and
        `size[1]`.
        """
        if self.half:
            return "true"
        if self.triangle:
            return "false"
        needed = code.value(f"select i1 {far}, i64 {least[0]}, i64 {least[1]}")
        often = code.value(f"icmp sge i64 {uses}, {needed}")
        elements = code.value(f"mul nsw i64 {count}, %inner")
        limits = [number // self.dtype.itemsize for number in size]
        limit = code.value(f"select i1 {far}, i64 {limits[0]}, i64 {limits[1]}")
        large = code.value(f"icmp sge i64 {elements}, {limit}")
        return code.value(f"and i1 {often}, {large}")


@functools.cache
def multiplication(dtype: Any, transposed_y: bool, triangle: str = "") -> str:
    """The text that defines `@multiply` for one dtype, layout of y and triangle."""
    return GemmWriter(dtype, transposed_y, triangle).text()


def packed_bytes(dtype: Any, rows: int, inner: int, columns: int, triangle: str) -> int:
    """Bytes of scratch memory that a product of this size, or a part of it, needs.

    They hold packed rows of x, kept panels, and in half precision the sums between passes.
    """
    packing = packing_of(dtype)
    padded = -(-min(rows, tuning.MAX_PACKED_ROWS) // tuning.TALL_TILE_ROWS) * tuning.TALL_TILE_ROWS
    count = -(-inner // packing.steps)
    packed = padded * min(count, tuning.MAX_PANEL_STEPS) * int(packing.packed.itemsize)
    if numeric.is_half(dtype):
        lanes = vectors.registers()[0] // packing.sums.itemsize
        wide = -(-min(columns, tuning.MAX_SUM_COLUMNS) // lanes) * lanes
        several = count > tuning.MAX_PANEL_STEPS
        return packed + int(several * padded * wide * packing.sums.itemsize)
    if triangle:
        return 0
    large = rows * inner * dtype.itemsize >= tuning.MIN_BYTES_TO_PACK_FAR_ROWS
    needed = packed * (large and columns >= tuning.MIN_COLUMNS_TO_PACK_FAR_ROWS)
    if rows < tuning.MIN_ROWS_TO_KEEP_PANELS:
        return needed
    lanes = vectors.registers()[0] // dtype.itemsize
    length = min(inner, tuning.MAX_PANEL_STEPS) * int(dtype.itemsize)
    kept = min(-(-columns // lanes) * lanes * length, tuning.MAX_KEPT_PANEL_BYTES)
    return int(max(needed, tuning.ROWS_BETWEEN_PANELS * length + kept))
