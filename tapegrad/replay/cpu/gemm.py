"""Functions that multiply matrices: the text of one product of any size, for one dtype.

Comes in: a dtype, and whether the memory of y holds its transpose. Goes out: text that defines
`@multiply`, out = x @ y or out += x @ y. Called by `products.py`.

    columns   go in panels of up to three vectors
    a panel   of y is read in place if its rows are vectors and few, and else is copied ("packed")
    rows      go in tiles of as many as the registers hold; the rest in halves of that
    a tile    of out is summed in registers, over as many of x's columns as fit the cache
    large x   is packed too, tile by tile: rows that lie a power of two apart in memory would push
              each other out of the cache

Every element is summed in the same order whatever the tile. So results do not depend on how threads
divide a product, nor on where an element lies.

In a product with a triangle (see `program.Product`), tiles beside the diagonal are left out, and a
tile on the diagonal is summed row by row: exactly what counts is summed.
"""

from __future__ import annotations

import functools
from contextlib import ExitStack
from typing import Any

from . import tuning, vectors
from .llvm import Code, type_of

#: what `@multiply` takes, in this order; a leading dimension counts the elements between two rows,
#: `row_x` and `column_x` those between rows and columns of x. `scratch` has `packed_bytes` bytes.
#: With a triangle the number of the first row follows.
ARGUMENTS = (
    *("ptr %x", "i64 %row_x", "i64 %column_x", "ptr %y", "i64 %lead_y"),
    *("ptr %out", "i64 %lead_out", "i64 %rows", "i64 %columns", "i64 %inner", "i1 %adds"),
    *("ptr %scratch",),
)


class GemmWriter:
    """Writes the functions for one dtype and one layout of the operands."""

    def __init__(self, dtype: Any, transposed_y: bool, triangle: str) -> None:
        size, sums = vectors.registers()
        self.triangle = triangle
        self.dtype, self.kind = dtype, type_of(dtype)
        self.transposed_y = transposed_y
        self.lanes = size // dtype.itemsize
        self.vector = f"<{self.lanes} x {self.kind}>"
        self.bits = f"<{self.lanes} x i1>"
        self.suffix = f"v{self.lanes}f{8 * dtype.itemsize}"
        widest, tall = tuning.MAX_PANEL_VECTORS, tuning.TALL_TILE_ROWS
        self.tallest = tall if sums >= tall * widest else tuning.SHORT_TILE_ROWS
        self.widest = tuning.MAX_TRIANGLE_PANEL_VECTORS if triangle else widest
        self.declared: set[str] = set()

    def text(self) -> str:
        """All functions; those of tiles first."""
        parts = [self.pack(), self.pack_rows()]
        for across in range(1, self.widest + 1):
            heights = [self.tallest]
            while heights[-1] > 1:
                heights.append(1 if self.triangle else heights[-1] // 2)
            parts += [self.tile(rows, across) for rows in heights]
            parts.append(self.panel(heights, across))
        if self.triangle == "out":
            parts.append(self.clear())
        parts.append(self.multiply())
        return "".join(parts) + "\n".join(sorted(self.declared)) + "\n"

    # -- what all functions use ------------------------------------------------------------------

    def function(self, code: Code, name: str, arguments: str, inline: str = "noinline") -> str:
        code.line("ret void")
        self.declared |= code.declared
        return code.function(f"define internal void @{name}({arguments}) {inline} nounwind")

    def at(self, code: Code, pointer: str, *terms: tuple[str, str]) -> str:
        return code.element(pointer, self.dtype, code.position("0", list(terms)))

    def x_at(self, code: Code, row: str, step: str) -> str:
        """A pointer to x[row, step]."""
        return self.at(code, "%x", (row, "%row_x"), (step, "%column_x"))

    def y_at(self, code: Code, step: str, column: str) -> str:
        """A pointer to y[step, column]."""
        if self.transposed_y:
            return self.at(code, "%y", (column, "%lead_y"), (step, "1"))
        return self.at(code, "%y", (step, "%lead_y"), (column, "1"))

    def load(self, code: Code, pointer: str) -> str:
        return code.value(f"load {self.vector}, ptr {pointer}, align {self.dtype.itemsize}")

    def store(self, code: Code, value: str, pointer: str) -> None:
        code.line(f"store {self.vector} {value}, ptr {pointer}, align {self.dtype.itemsize}")

    def first_lanes(self, code: Code, count: str) -> str:
        """A mask of the first `count` lanes."""
        wide = f"<{self.lanes} x i64>"
        numbers = ", ".join(f"i64 {i}" for i in range(self.lanes))
        one = code.value(f"insertelement {wide} poison, i64 {count}, i64 0")
        zeros = f"<{self.lanes} x i32> zeroinitializer"
        all_ = code.value(f"shufflevector {wide} {one}, {wide} poison, {zeros}")
        return code.value(f"icmp slt {wide} <{numbers}>, {all_}")

    def load_some(self, code: Code, pointer: str, mask: str) -> str:
        return code.call(
            self.vector,
            f"llvm.masked.load.{self.suffix}.p0",
            *(("ptr", pointer), ("i32", str(self.dtype.itemsize)), (self.bits, mask)),
            (self.vector, "zeroinitializer"),
            pure=False,
        )

    def store_some(self, code: Code, value: str, pointer: str, mask: str) -> None:
        code.call(
            "void",
            f"llvm.masked.store.{self.suffix}.p0",
            *((self.vector, value), ("ptr", pointer), ("i32", str(self.dtype.itemsize))),
            (self.bits, mask),
            pure=False,
        )

    def least(self, code: Code, x: str, y: str) -> str:
        return code.call("i64", "llvm.smin.i64", ("i64", x), ("i64", y))

    # -- tiles and panels ------------------------------------------------------------------------

    TILE = (
        "ptr %x, i64 %row_x, i64 %column_x, ptr %panel, i64 %lead_panel, ptr %out, i64 %lead_out, "
        "i64 %inner, i64 %last, i1 %adds"
    )
    #: `tile_x` is the way in x from one of the tallest tiles to the next
    PANEL = f"{TILE}, i64 %rows, i64 %tile_x"
    #: of a product with a triangle: where the diagonal meets the first row
    DIAGONAL = ", i64 %diagonal"

    @property
    def tile_arguments(self) -> str:
        return self.TILE + (self.DIAGONAL if self.triangle in ("lower", "upper") else "")

    def tile(self, rows: int, across: int) -> str:
        """The sums of some rows times some vectors; `last` counts the lanes of the last one."""
        code, vector = Code(), self.vector
        # LLVM would compute one of these from another in every step, if it knew that it can. On
        # Intel, the units that multiply also add addresses: that takes a quarter of the time.
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
        return self.function(code, f"tile{rows}x{across}", self.tile_arguments)

    def number(self, code: Code, row: int, step: str) -> str:
        """The element of x in a row of the tile."""
        first = self.at(code, "%x", (step, "%column_x"))
        return code.load(self.at(code, first, (self.ways[row], "1")), self.dtype).text

    def step(self, code: Code, cells: dict[tuple[int, int], str], step: str, rows: range) -> None:
        """Add the products of one step to the sums of some rows."""
        vector, across = self.vector, 1 + max(j for _, j in cells)
        row = self.at(code, "%panel", (step, "%lead_panel"))
        loaded = [
            self.load(code, self.at(code, row, (str(j * self.lanes), "1"))) for j in range(across)
        ]
        # The processor does not foresee rows that lie in different pages.
        later = code.value(f"mul nsw i64 %lead_panel, {tuning.PREFETCHED_STEPS}")
        ahead = self.at(code, row, (later, "1"))
        for j in range(across):
            code.call(
                "void",
                "llvm.prefetch.p0",
                ("ptr", self.at(code, ahead, (str(j * self.lanes), "1"))),
                *(("i32", "0"), ("i32", "3"), ("i32", "1")),
                pure=False,
            )
        for i in rows:
            number = self.number(code, i, step)
            one = code.value(f"insertelement {vector} poison, {self.kind} {number}, i64 0")
            zeros = f"<{self.lanes} x i32> zeroinitializer"
            spread = code.value(f"shufflevector {vector} {one}, {vector} poison, {zeros}")
            for j in range(across):
                old = code.value(f"load {vector}, ptr {cells[i, j]}")
                product = code.value(f"fmul contract {vector} {loaded[j]}, {spread}")
                total = code.value(f"fadd contract {vector} {old}, {product}")
                code.line(f"store {vector} {total}, ptr {cells[i, j]}")

    def corner(self, code: Code, cells: dict[tuple[int, int], str], rows: int) -> None:
        """The steps at which the diagonal crosses a tile: each counts for some of its rows."""
        for t in range(rows):
            step = code.value(f"add nsw i64 %diagonal, {t}")
            with code.when(code.value(f"icmp ult i64 {step}, %inner")):
                counting = range(t, rows) if self.triangle == "lower" else range(t + 1)
                self.step(code, cells, step, counting)

    def clamped(self, code: Code, step: str) -> str:
        """A step, or the nearest one that there is."""
        positive = code.call("i64", "llvm.smax.i64", ("i64", step), ("i64", "0"))
        return self.least(code, positive, "%inner")

    def cell(self, code: Code) -> str:
        """A variable for a vector, beginning with zero."""
        name = code.name()
        code.first.append(f"  {name} = alloca {self.vector}")
        code.line(f"store {self.vector} zeroinitializer, ptr {name}")
        return name

    def out_at(self, code: Code, i: int, j: int) -> str:
        return self.at(code, "%out", (str(i), "%lead_out"), (str(j * self.lanes), "1"))

    def panel(self, heights: list[int], across: int) -> str:
        """All rows times a panel: tiles from the tallest to a row alone."""
        code = Code()

        tallest, *lower = heights

        def call(rows: int, first: str) -> None:
            tile = code.value(f"sdiv i64 {first}, {tallest}")
            inside = code.value(f"and i64 {first}, {tallest - 1}")
            x = self.at(code, "%x", (tile, "%tile_x"), (inside, "%row_x"))
            out = self.at(code, "%out", (first, "%lead_out"))
            given = (
                f"ptr {x}, i64 %row_x, i64 %column_x, ptr %panel, i64 %lead_panel, ptr {out}, "
                "i64 %lead_out, i64 %inner, i64 %last, i1 %adds"
            )
            if self.triangle in ("lower", "upper"):
                given += f", i64 {code.value(f'add nsw i64 %diagonal, {first}')}"
            code.line(f"call void @tile{rows}x{across}({given})")

        most = code.value(f"and i64 %rows, {-tallest}")
        begin = "0"
        if self.triangle == "out":
            # The rows before that have nothing in this panel.
            begin = code.call("i64", "llvm.smax.i64", ("i64", "%diagonal"), ("i64", "0"))
            begin = code.value(f"and i64 {begin}, {-tallest}")
        with code.loop(begin, most, tallest) as first:
            call(tallest, first)
        if self.triangle:
            rest = code.call("i64", "llvm.smax.i64", ("i64", begin), ("i64", most))
            with code.loop(rest, "%rows") as first:
                call(1, first)
            return self.function(code, f"panel{across}", self.PANEL + self.DIAGONAL)
        for rows in lower:
            some = code.value(f"and i64 %rows, {rows}")
            with code.when(code.value(f"icmp ne i64 {some}, 0")):
                call(rows, code.value(f"and i64 %rows, {-2 * rows}"))
        return self.function(code, f"panel{across}", self.PANEL)

    def clear(self) -> str:
        """Zeros above the diagonal of a panel of the result, which meets row `diagonal` first."""
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

    # -- packing ---------------------------------------------------------------------------------

    def pack(self) -> str:
        """Copy `columns` of y, `inner` steps of each, so that they lie in rows of `width`."""
        code = Code()
        if self.transposed_y:
            self.pack_transposed(code)
        else:
            with code.loop("0", "%inner") as step, code.loop("0", "%width", self.lanes) as column:
                left = code.value(f"sub nsw i64 %columns, {column}")
                pointer = self.y_at(code, step, column)
                value = self.load_some(code, pointer, self.first_lanes(code, left))
                self.store(code, value, self.at(code, "%panel", (step, "%width"), (column, "1")))
        given = "ptr %y, i64 %lead_y, ptr %panel, i64 %width, i64 %columns, i64 %inner"
        return self.function(code, "pack", given)

    def pack_transposed(self, code: Code) -> None:
        """Squares of as many columns as a vector has lanes; the last one may overlap the others.

        Columns beyond the last one repeat it: nobody reads what becomes of them.
        """
        lanes = str(self.lanes)
        last = code.value("sub nsw i64 %columns, 1")
        with code.loop("0", "%width", self.lanes) as first:
            columns = [
                self.least(code, code.value(f"add nsw i64 {first}, {i}"), last)
                for i in range(self.lanes)
            ]
            fits = code.value(f"icmp sge i64 %inner, {lanes}")
            with code.when(fits), code.loop("0", "%inner", self.lanes) as start:
                furthest = code.value(f"sub nsw i64 %inner, {lanes}")
                step = self.least(code, start, furthest)
                rows = [self.load(code, self.y_at(code, step, column)) for column in columns]
                for i, row in enumerate(self.transposed(code, rows)):
                    here = code.value(f"add nsw i64 {step}, {i}")
                    self.store(code, row, self.at(code, "%panel", (here, "%width"), (first, "1")))
            short = code.value(f"xor i1 {fits}, true")
            with code.when(short), code.loop("0", "%inner") as step:
                for i, column in enumerate(columns):
                    number = code.load(self.y_at(code, step, column), self.dtype)
                    there = self.at(code, "%panel", (step, "%width"), (first, "1"), (str(i), "1"))
                    code.store(number, there)

    def transposed(self, code: Code, rows: list[str]) -> list[str]:
        """The transpose of a square: interleaving halves, as often as it can be halved."""
        size = len(rows)
        half, lanes = size // 2, range(size // 2)
        low = ", ".join(f"i32 {i}, i32 {i + size}" for i in lanes)
        high = ", ".join(f"i32 {i + half}, i32 {i + half + size}" for i in lanes)
        kind, vector = f"<{size} x i32>", f"<{size} x {self.kind}>"
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

        Rows that the last tile has beyond the last one are not written, nor read.
        """
        code, tall = Code(), self.tallest
        size = f"<{tall} x {self.kind}>"
        align = self.dtype.itemsize
        whole = code.value(f"and i64 %rows, {-tall}")
        in_rows = code.value("icmp eq i64 %column_x, 1")
        in_columns = code.value("icmp eq i64 %row_x, 1")
        blocks = code.value(f"and i64 %inner, {-tall}")
        with code.loop("0", whole, tall) as first:
            target = self.at(code, "%packed", (first, "%inner"))
            with code.when(in_columns), code.loop("0", "%inner") as step:
                pointer = self.x_at(code, first, step)
                value = code.value(f"load {size}, ptr {pointer}, align {align}")
                there = self.at(code, target, (step, str(tall)))
                code.line(f"store {size} {value}, ptr {there}, align {align}")
            apart = code.value(f"xor i1 {in_columns}, true")
            with code.when(apart):
                begin = code.value(f"select i1 {in_rows}, i64 {blocks}, i64 0")
                with code.loop("0", begin, tall) as step:
                    rows = []
                    for i in range(tall):
                        row = code.value(f"add nsw i64 {first}, {i}")
                        pointer = self.x_at(code, row, step)
                        rows.append(code.value(f"load {size}, ptr {pointer}, align {align}"))
                    for i, value in enumerate(self.transposed(code, rows)):
                        here = code.value(f"add nsw i64 {step}, {i}")
                        there = self.at(code, target, (here, str(tall)))
                        code.line(f"store {size} {value}, ptr {there}, align {align}")
                with code.loop(begin, "%inner") as step, code.loop("0", str(tall)) as down:
                    row = code.value(f"add nsw i64 {first}, {down}")
                    number = code.load(self.x_at(code, row, step), self.dtype)
                    code.store(number, self.at(code, target, (step, str(tall)), (down, "1")))
        target = self.at(code, "%packed", (whole, "%inner"))
        with code.loop(whole, "%rows") as row, code.loop("0", "%inner") as step:
            number = code.load(self.x_at(code, row, step), self.dtype)
            inside = code.value(f"and i64 {row}, {tall - 1}")
            code.store(number, self.at(code, target, (step, str(tall)), (inside, "1")))
        given = "ptr %x, i64 %row_x, i64 %column_x, ptr %packed, i64 %rows, i64 %inner"
        return self.function(code, "pack_rows", given)

    # -- the product -----------------------------------------------------------------------------

    def multiply(self) -> str:
        code, lanes, widest = Code(), self.lanes, self.widest
        panel = code.name()
        most = tuning.MAX_PANEL_STEPS
        code.first.append(f"  {panel} = alloca [{most * widest * lanes} x {self.kind}], align {64}")
        vectors = code.value(f"add nsw i64 %columns, {lanes - 1}")
        vectors = code.value(f"sdiv i64 {vectors}, {lanes}")
        panels = code.value(f"add nsw i64 {vectors}, {widest - 1}")
        panels = code.value(f"sdiv i64 {panels}, {widest}")
        # Widths 3, 3, ..., 2, 2 rather than 3, 3, ..., 3, 1: a narrow panel reads x too often.
        missing = code.value(f"mul nsw i64 {panels}, {widest}")
        missing = code.value(f"sub nsw i64 {missing}, {vectors}")
        narrow_from = code.value(f"sub nsw i64 {panels}, {missing}")
        alone = code.value(f"icmp eq i64 {vectors}, 1")
        packs_rows = self.worth(code, "%columns", tuning.MIN_COLUMNS_TO_PACK_ROWS, "%rows")
        packs_panels = self.worth(code, "%rows", tuning.MIN_ROWS_TO_PACK_PANELS, "%columns")
        block = code.value(f"select i1 {packs_rows}, i64 {tuning.MAX_PACKED_ROWS}, i64 %rows")
        block = code.call("i64", "llvm.smax.i64", ("i64", block), ("i64", "1"))
        # Passes of the same length: a short one would have too little to do for each sum.
        passes = code.value(f"add nsw i64 %inner, {most - 1}")
        passes = code.value(f"sdiv i64 {passes}, {most}")
        passes = code.call("i64", "llvm.smax.i64", ("i64", passes), ("i64", "1"))
        length = code.value(f"sdiv i64 %inner, {passes}")
        length = code.value(f"add nsw i64 {length}, {tuning.PANEL_STEPS_GRAIN}")
        length = code.value(f"and i64 {length}, {-tuning.PANEL_STEPS_GRAIN}")
        length = self.least(code, length, str(most))
        with ExitStack() as stack:
            start = stack.enter_context(code.loop("0", "%inner", length))
            depth = self.least(code, code.value(f"sub nsw i64 %inner, {start}"), length)
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
            packed_tile = code.value(f"mul nsw i64 {depth}, {tall}")
            tile_x = chosen("i64", packed_tile, code.value(f"mul nsw i64 %row_x, {tall}"))
            index = stack.enter_context(code.loop("0", panels))
            later = code.value(f"icmp ne i64 {start}, 0")
            adds = code.value(f"or i1 %adds, {later}")
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
            count = self.least(code, width, left)
            y = self.y_at(code, start, column)
            out = self.at(code, "%out", (top, "%lead_out"), (column, "1"))
            packs = "true"
            if not self.transposed_y:
                packs = code.value(f"icmp slt i64 {count}, {width}")
                packs = code.value(f"or i1 {packs}, {packs_panels}")
            with code.when(packs):
                code.line(
                    f"call void @pack(ptr {y}, i64 %lead_y, ptr {panel}, i64 {width}, "
                    f"i64 {count}, i64 {depth})"
                )
            lies = code.value(f"select i1 {packs}, ptr {panel}, ptr {y}")
            lead = code.value(f"select i1 {packs}, i64 {width}, i64 %lead_y")
            last = code.value(f"sub nsw i64 {width}, {lanes}")
            last = code.value(f"sub nsw i64 {count}, {last}")
            given = (
                f"ptr {x}, i64 {row_x}, i64 {column_x}, ptr {lies}, i64 {lead}, ptr {out}, "
                f"i64 %lead_out, i64 {depth}, i64 {last}, i1 {adds}, i64 {rows}, i64 {tile_x}"
            )
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
        arguments = [*ARGUMENTS, "i64 %first"] if self.triangle else ARGUMENTS
        return self.function(code, "multiply", ", ".join(arguments))

    def worth(self, code: Code, uses: str, least: int, size: str) -> str:
        """Whether a matrix with `size` rows or columns is packed, whose elements have `uses`."""
        if self.triangle:
            return "false"
        often = code.value(f"icmp sge i64 {uses}, {least}")
        elements = code.value(f"mul nsw i64 {size}, %inner")
        limit = tuning.MIN_BYTES_TO_PACK // self.dtype.itemsize
        large = code.value(f"icmp sge i64 {elements}, {limit}")
        return code.value(f"and i1 {often}, {large}")


@functools.cache
def multiplication(dtype: Any, transposed_y: bool, triangle: str = "") -> str:
    """The text that defines `@multiply` for one dtype, layout of y and triangle."""
    return GemmWriter(dtype, transposed_y, triangle).text()


def packed_bytes(dtype: Any, rows: int, inner: int, columns: int, triangle: str) -> int:
    """Bytes of scratch memory that a product of this size, or a part of it, needs for rows of x."""
    large = rows * inner * dtype.itemsize >= tuning.MIN_BYTES_TO_PACK
    if triangle or columns < tuning.MIN_COLUMNS_TO_PACK_ROWS or not large:
        return 0
    padded = -(-min(rows, tuning.MAX_PACKED_ROWS) // tuning.TALL_TILE_ROWS) * tuning.TALL_TILE_ROWS
    return padded * min(inner, tuning.MAX_PANEL_STEPS) * int(dtype.itemsize)
