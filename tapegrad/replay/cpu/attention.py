"""Kernels of attention in tiles: scores of some queries and some keys at a time.

Comes in: an `Attention`. Goes out: a `Kernel`. No thread ever has more than a tile of the scores,
so memory grows with the length of a sequence and not with its square.

    forward    a step is a block of queries. It goes over the keys, and keeps the largest score and
               the sum of exponentials of each row; when a larger score comes, the row of `out` so
               far is scaled down ("online softmax").
    backward   recomputes each tile of probabilities from `lse`. A step is a whole batch; if there
               are too few batches for the threads, it is a block of keys or a block of queries, and
               every tile is recomputed twice.

Sizes and strides are numbers in the kernel's table, so one function serves all lengths and head
sizes of a dtype and a kind of mask. `gemm.py` writes the products of tiles. Causal attention uses
products with triangles on the diagonal, and skips keys that come after a query. Called by
`emit.py`.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
import struct
from contextlib import ExitStack
from typing import Any

from ...core.primitive import ELEMENTWISE, Primitive
from ..ir.program import Access, Attention, size_of
from ..ir.shapes import joined
from ..native import scalar
from ..native.code import BOOL, FLOAT32, INT64, Code, Register, literal, type_of
from . import tuning, vectors
from .attention_dropout import dropped, row_elements, table_numbers, write_factors
from .gemm import multiplication, packed_bytes
from .kernel import Kernel, with_entry

#: the numbers in a kernel's table; then come the row strides of all operands, the mask's column
#: stride, and for each batch dimension its size and the strides of all operands
NUMBERS = (
    *("queries", "keys", "features", "value_features", "scale", "down", "across", "whole"),
    *("threshold", "kept"),
)
FORWARD = ("q", "k", "v", "out", "lse")
BACKWARD = ("q", "k", "v", "g", "lse", "delta", "g_q", "g_k", "g_v")

#: what is computed for an element; `power` is the exponential function
POWER = Primitive("power", lambda x: x, ELEMENTWISE, ("x",), expression="power(x)")
LOGARITHM = Primitive("logarithm", lambda x: x, ELEMENTWISE, ("x",), expression="log(x)")


class AttentionWriter:
    """Writes the function for one dtype and one kind of mask; see `text_of`."""

    def __init__(
        self,
        dtype: Any,
        dimensions: int,
        backward: bool,
        causal: bool,
        mask: Any,
        dense: bool,
        drops: bool,
        safe: bool,
    ) -> None:
        self.code = Code()
        self.dtype, self.kind = dtype, type_of(dtype)
        self.causal, self.mask, self.dense = causal, mask, dense
        self.drops, self.safe = drops, safe
        self.lanes = vectors.registers()[0] // dtype.itemsize
        self.vector = f"<{self.lanes} x {self.kind}>"
        self.dimensions, self.backward = dimensions, backward
        self.names = names_of(backward, mask is not None, drops)
        self.number = {name: f"%number{i}" for i, name in enumerate(NUMBERS)}
        rows = len(NUMBERS)
        self.row = {name: f"%number{rows + i}" for i, name in enumerate(self.names)}
        self.column = f"%number{rows + len(self.names)}"  # of the mask
        self.first_batch = rows + len(self.names) + 1
        self.products: set[tuple[bool, str]] = set()
        self.tile = tile_of(backward)

    def text(self) -> str:
        code = self.code
        self.scale, self.kept = (self.real(self.number[name]) for name in ("scale", "kept"))
        size, rows = self.tile.elements, self.tile.rows
        starts = itertools.accumulate((0, size, size, rows, rows, self.tile.row_elements))
        scores, second, top, total, self.factors, self.scratch = (
            code.element("%partial0", self.dtype, str(start)) for start in starts
        )
        with code.loop("%low", "%high") as step:
            if self.backward:
                self.gradients(step, scores, second)
            else:
                self.forward(step, scores, top, total)
        code.line("ret void")
        numbers = self.first_batch + self.dimensions * (1 + len(self.names))
        entry = with_entry(code, len(self.names), partials=1, numbers=numbers)
        parts = [_product_text(self.dtype, *which) for which in sorted(self.products)]
        return _joined([*parts, entry])

    # -- what both directions use ----------------------------------------------------------------

    def real(self, bits: str) -> str:
        """A float from a number of the table, which holds the bits of a double."""
        double = self.code.value(f"bitcast i64 {bits} to double")
        if self.dtype != FLOAT32:
            return double
        return self.code.value(f"fptrunc double {double} to float")

    def least(self, x: str, y: str) -> str:
        return self.code.call("i64", "llvm.smin.i64", ("i64", x), ("i64", y))

    def most(self, x: str, y: str) -> str:
        return self.code.call("i64", "llvm.smax.i64", ("i64", x), ("i64", y))

    def alternating(self, turn: str, blocks: str) -> str:
        """The block of a turn, in the order first, last, second, ...: in causal attention, each
        pair of neighbours then has the same work, so threads can share a head evenly.
        """
        code = self.code
        half = code.value(f"lshr i64 {turn}, 1")
        back = code.value(f"sub nsw i64 {blocks}, 1")
        back = code.value(f"sub nsw i64 {back}, {half}")
        odd = code.value(f"trunc i64 {turn} to i1")
        return code.value(f"select i1 {odd}, i64 {back}, i64 {half}")

    def bases(self, batch: str) -> dict[str, str]:
        """Pointers to the operands of a batch; sets `self.batch`, its number."""
        code, self.batch = self.code, batch
        terms: dict[str, list[tuple[str, str]]] = {name: [] for name in self.names}
        rest = batch
        for d in reversed(range(self.dimensions)):
            at = self.first_batch + d * (1 + len(self.names))
            index = code.value(f"srem i64 {rest}, %number{at}")
            rest = code.value(f"sdiv i64 {rest}, %number{at}")
            for i, name in enumerate(self.names):
                terms[name].append((index, f"%number{at + 1 + i}"))
        found = {}
        for i, name in enumerate(self.names):
            found[name] = code.element(
                f"%p{i}", self.dtype_of(name), code.position("0", terms[name])
            )
        return found

    def dtype_of(self, name: str) -> Any:
        return self.mask if name == "mask" else INT64 if name == "state" else self.dtype

    def at(self, name: str, base: str, row: str) -> str:
        """A pointer to a row of an operand."""
        position = self.code.position("0", [(row, self.row[name])])
        return self.code.element(base, self.dtype_of(name), position)

    def multiply(
        self,
        x: tuple[str, str, str],
        y: tuple[str, str],
        out: tuple[str, str],
        sizes: tuple[str, str, str],
        adds: str,
        transposed: bool = False,
        first: str | None = None,
        triangle: str = "",
    ) -> None:
        """Call a product of tiles: pointers with strides; `sizes` are rows, columns and steps."""
        self.products.add((transposed, triangle))
        rows, columns, inner = sizes
        given = (
            f"ptr {x[0]}, i64 {x[1]}, i64 {x[2]}, ptr {y[0]}, i64 {y[1]}, ptr {out[0]}, "
            f"i64 {out[1]}, i64 {rows}, i64 {columns}, i64 {inner}, i1 {adds}, ptr {self.scratch}"
        )
        given += f", i64 {first}" if triangle else ""
        self.code.line(f"call void @{_prefix(transposed, triangle)}multiply({given})")

    def counting(
        self,
        x: tuple[str, str, str],
        y: tuple[str, str],
        out: tuple[str, str],
        sizes: tuple[str, str, str],
        adds: str,
        diagonal: tuple[str, str, str],
    ) -> None:
        """A product with a tile of probabilities: with a triangle if the tile crosses the diagonal.

        `diagonal` says whether it does, where, and which triangle of x is used.
        """
        code = self.code
        crosses, first, triangle = diagonal
        if not self.causal:
            self.multiply(x, y, out, sizes, adds)
            return
        with code.when(crosses):
            self.multiply(x, y, out, sizes, adds, first=first, triangle=triangle)
        with code.when(code.value(f"xor i1 {crosses}, true")):
            self.multiply(x, y, out, sizes, adds)

    def limit(self, query: str, left: str, columns: str) -> str:
        """How many columns of a tile that begins at key `left` a query attends to."""
        if not self.causal:
            return columns
        code = self.code
        own = code.value(f"add nsw i64 {code.value(f'sub nsw i64 {query}, {left}')}, 1")
        return self.most(self.least(own, columns), "0")

    def padded(self, count: str) -> str:
        """A number of elements rounded up to LLVM's unrolling of loops."""
        whole = tuning.ATTENTION_ROW_GRAIN
        return self.code.value(
            f"and i64 {self.code.value(f'add i64 {count}, {whole - 1}')}, {-whole}"
        )

    def apply(self, primitive: Primitive, x: str) -> str:
        return scalar.emit(self.code, primitive, {}, [Register(x, self.dtype)], self.dtype).text

    def load(self, pointer: str) -> str:
        return self.code.load(pointer, self.dtype).text

    def store(self, value: str, pointer: str) -> None:
        self.code.store(Register(value, self.dtype), pointer)

    def op(self, operation: str, x: str, y: str) -> str:
        return self.code.value(f"{operation} {self.kind} {x}, {y}")

    def constant(self, number: float) -> str:
        return literal(number, self.dtype).text

    def score(self, found: str, mask: str, column: str) -> str:
        """A score from the product of a query and a key."""
        code = self.code
        scaled = self.op("fmul contract", found, self.scale)
        if self.mask is None:
            return scaled
        given = self.given(mask, column)
        if self.mask == BOOL:
            low = self.constant(-math.inf)
            return code.value(f"select i1 {given}, {self.kind} {scaled}, {self.kind} {low}")
        return self.op("fadd contract", scaled, given)

    def given(self, mask: str, column: str) -> str:
        """An element of a row of the mask."""
        stride = "1" if self.dense else self.column
        there = self.code.element(mask, self.mask, self.code.position("0", [(column, stride)]))
        return self.code.load(there, self.mask).text

    def factors_of(self, base: dict[str, str], query: str, left: str, count: str) -> str:
        """The factors of dropout for `count` scores of a query from key `left` on."""
        code, number = self.code, self.number
        row = code.position(query, [(self.batch, number["queries"])])
        first = code.position(left, [(row, number["keys"])])
        kept = Register(self.kept, self.dtype)
        return write_factors(
            code, base["state"], first, count, number["threshold"], kept, self.factors
        )

    def dropped(self, x: str, factors: str, column: str) -> str:
        return dropped(self.code, Register(x, self.dtype), factors, column).text

    def clear(self, name: str, base: str, first: str, end: str, columns: str) -> None:
        """Fill some rows of a result with zeros."""
        code = self.code
        size = code.value(f"mul nsw i64 {columns}, {self.dtype.itemsize}")
        with code.loop(first, end) as row:
            pointer = self.at(name, base, row)
            arguments = (("ptr", pointer), ("i8", "0"), ("i64", size), ("i1", "false"))
            code.call("void", "llvm.memset.p0.i64", *arguments, pure=False)

    # -- forward ---------------------------------------------------------------------------------

    def forward(self, step: str, scores: str, top: str, total: str) -> None:
        """Attend with one block of queries."""
        code, number, tile = self.code, self.number, self.tile
        base = self.bases(code.value(f"sdiv i64 {step}, {number['down']}"))
        turn = code.value(f"srem i64 {step}, {number['down']}")
        block = self.alternating(turn, number["down"])
        first = code.value(f"mul nsw i64 {block}, {tile.rows}")
        left_over = code.value(f"sub nsw i64 {number['queries']}, {first}")
        rows = self.least(left_over, str(tile.rows))
        after = code.value(f"add nsw i64 {first}, {rows}")
        end = self.least(after, number["keys"]) if self.causal else number["keys"]
        low = self.constant(-math.inf)
        with code.loop("0", rows) as row:
            self.store(low, code.element(top, self.dtype, row))
            self.store(self.constant(0.0), code.element(total, self.dtype, row))
        q, out = self.at("q", base["q"], first), self.at("out", base["out"], first)
        with code.loop("0", end, tile.columns) as left:
            columns = self.least(code.value(f"sub nsw i64 {end}, {left}"), str(tile.columns))
            k, v = self.at("k", base["k"], left), self.at("v", base["v"], left)
            self.multiply(
                (q, self.row["q"], "1"), (k, self.row["k"]), (scores, str(tile.lead)),
                (rows, columns, number["features"]), "false", transposed=True,
            )  # fmt: skip
            later = code.value(f"icmp sgt i64 {left}, 0")
            with code.loop("0", rows) as row:
                query = code.value(f"add nsw i64 {first}, {row}")
                self.soften(base, scores, row, query, left, columns, later, (top, total))
            gap = code.value(f"sub nsw i64 {first}, {left}")
            crosses = code.value(f"icmp sgt i64 {columns}, {code.value(f'add nsw i64 {gap}, 1')}")
            self.counting(
                (scores, str(tile.lead), "1"), (v, self.row["v"]), (out, self.row["out"]),
                (rows, number["value_features"], columns), later, (crosses, gap, "lower"),
            )  # fmt: skip
        with code.loop("0", rows) as row:
            query = code.value(f"add nsw i64 {first}, {row}")
            self.finish(base, row, query, top, total)

    def soften(
        self,
        base: dict[str, str],
        scores: str,
        row: str,
        query: str,
        left: str,
        columns: str,
        later: str,
        running: tuple[str, str],
    ) -> None:
        """Replace a row of scores by exponentials, scaled so that the largest so far is 1."""
        code = self.code
        limit = self.limit(query, left, columns)
        line = code.element(scores, self.dtype, code.position("0", [(row, str(self.tile.lead))]))
        if self.mask is not None:
            mask = self.at("mask", base["mask"], query)
            stride = "1" if self.dense else self.column
            mask = code.element(mask, self.mask, code.position("0", [(left, stride)]))
            with code.loop("0", limit) as column:
                there = code.element(line, self.dtype, column)
                self.store(self.score(self.load(there), mask, column), there)
        top, total = (code.element(cell, self.dtype, row) for cell in running)
        before = self.load(top)
        largest = self.largest(line, limit, before)
        finite = self.shift_of(largest)
        part = code.cell(self.dtype)
        self.store(self.constant(0.0), part)
        with code.loop("0", self.padded(limit)) as column:
            there = code.element(line, self.dtype, column)
            power = self.apply(POWER, self.op("fsub", self.load(there), finite))
            self.store(power, there)
            self.store(self.op("fadd reassoc", self.load(part), power), part)
        if self.drops:
            factors = self.factors_of(base, query, left, limit)
            with code.loop("0", limit) as column:
                there = code.element(line, self.dtype, column)
                self.store(self.dropped(self.load(there), factors, column), there)
        factor = self.apply(POWER, self.op("fsub", before, finite))
        old = self.op("fmul", self.load(total), factor)
        self.store(self.op("fadd", old, self.load(part)), total)
        self.store(largest, top)
        changed = code.value(f"fcmp une {self.kind} {factor}, {self.constant(1.0)}")
        with code.when(code.value(f"and i1 {changed}, {later}")):
            self.scale_row(base, query, factor)

    def scale_row(self, base: dict[str, str], query: str, factor: str) -> None:
        code, out = self.code, self.at("out", base["out"], query)
        with code.loop("0", self.number["value_features"]) as column:
            there = code.element(out, self.dtype, column)
            self.store(self.op("fmul", self.load(there), factor), there)

    def shift_of(self, largest: str) -> str:
        """What is subtracted from the scores of a row: their maximum, or 0 if all are -inf."""
        endless, zero = self.is_infinite(largest), self.constant(0.0)
        return self.code.value(f"select i1 {endless}, {self.kind} {zero}, {self.kind} {largest}")

    def is_infinite(self, x: str) -> str:
        size = "f32" if self.dtype == FLOAT32 else "f64"
        distance = self.code.call(self.kind, f"llvm.fabs.{size}", (self.kind, x))
        return self.code.value(f"fcmp oeq {self.kind} {distance}, {self.constant(math.inf)}")

    def largest(self, line: str, limit: str, before: str) -> str:
        """The largest of a row of scores and of those before; it may ignore NaN.

        Pads the row with -inf, as far as the next loop goes. Written in vectors, because LLVM
        vectorises no comparison whose result for NaN is defined.
        """
        code, lanes, vector = self.code, self.lanes, self.vector
        bits, wide = f"<{lanes} x i1>", f"<{lanes} x i64>"
        zeros = f"<{lanes} x i32> zeroinitializer"

        def spread(value: str, kind: str) -> str:
            one = code.value(f"insertelement <{lanes} x {kind}> poison, {kind} {value}, i64 0")
            pair = f"<{lanes} x {kind}> {one}, <{lanes} x {kind}> poison"
            return code.value(f"shufflevector {pair}, {zeros}")

        low, scale = spread(self.constant(-math.inf), self.kind), spread(self.scale, self.kind)
        numbers = ", ".join(f"i64 {i}" for i in range(lanes))
        cell = code.name()
        code.first.append(f"  {cell} = alloca {vector}")
        code.line(f"store {vector} {low}, ptr {cell}")
        align = self.dtype.itemsize
        with code.loop("0", self.padded(limit), lanes) as column:
            there = code.element(line, self.dtype, column)
            found = code.value(f"load {vector}, ptr {there}, align {align}")
            if self.mask is None:
                found = code.value(f"fmul {vector} {found}, {scale}")
            left = spread(code.value(f"sub nsw i64 {limit}, {column}"), "i64")
            counts = code.value(f"icmp slt {wide} <{numbers}>, {left}")
            found = code.value(f"select {bits} {counts}, {vector} {found}, {vector} {low}")
            code.line(f"store {vector} {found}, ptr {there}, align {align}")
            best = code.value(f"load {vector}, ptr {cell}")
            larger = code.value(f"fcmp ogt {vector} {found}, {best}")
            best = code.value(f"select {bits} {larger}, {vector} {found}, {vector} {best}")
            code.line(f"store {vector} {best}, ptr {cell}")
        best = code.value(f"load {vector}, ptr {cell}")
        suffix = f"v{lanes}f{8 * align}"
        inside = code.call(self.kind, f"llvm.vector.reduce.fmax.{suffix}", (vector, best))
        larger = code.value(f"fcmp ogt {self.kind} {inside}, {before}")
        return code.value(f"select i1 {larger}, {self.kind} {inside}, {self.kind} {before}")

    def finish(self, base: dict[str, str], row: str, query: str, top: str, total: str) -> None:
        """Divide a row of `out` by its sum of exponentials, and store the log-sum-exp in `lse`."""
        code = self.code
        sum_ = self.load(code.element(total, self.dtype, row))
        empty = code.value(f"fcmp oeq {self.kind} {sum_}, {self.constant(0.0)}")
        one = self.constant(1.0)
        sum_ = code.value(f"select i1 {empty}, {self.kind} {one}, {self.kind} {sum_}")
        largest = self.load(code.element(top, self.dtype, row))
        factor = self.op("fdiv", one, sum_)
        lse = self.op("fadd", self.shift_of(largest), self.apply(LOGARITHM, sum_))
        if not self.safe:
            endless, nan = self.is_infinite(largest), self.constant(math.nan)
            factor, lse = (
                code.value(f"select i1 {endless}, {self.kind} {nan}, {self.kind} {x}")
                for x in (factor, lse)
            )
        self.scale_row(base, query, factor)
        self.store(lse, self.at("lse", base["lse"], query))

    # -- backward --------------------------------------------------------------------------------

    def gradients(self, step: str, probabilities: str, slopes: str) -> None:
        """The gradients of a whole batch, or of one block of its keys or queries."""
        code, number, tile = self.code, self.number, self.tile
        whole = code.value(f"icmp ne i64 {number['whole']}, 0")

        def chosen(yes: str, no: str, kind: str = "i64") -> str:
            return code.value(f"select i1 {whole}, {kind} {yes}, {kind} {no}")

        blocks = self.most(number["down"], number["across"])
        pair = code.value(f"lshr i64 {step}, 1")
        of_queries = code.value(f"trunc i64 {step} to i1")
        of_keys = code.value(f"xor i1 {of_queries}, true")
        base = self.bases(chosen(step, code.value(f"sdiv i64 {pair}, {blocks}")))
        turn = code.value(f"srem i64 {pair}, {blocks}")
        block = self.alternating(turn, blocks)
        following = code.value(f"add nsw i64 {block}, 1")

        def bounds(alone: str, count: str) -> tuple[str, str]:
            """The blocks along one side: one alone, or all of them."""
            alone = code.value(f"and i1 {alone}, {code.value(f'xor i1 {whole}, true')}")
            low = code.value(f"select i1 {alone}, i64 {block}, i64 0")
            high = code.value(f"select i1 {alone}, i64 {following}, i64 {count}")
            return low, self.least(high, count)

        down, across = bounds(of_queries, number["down"]), bounds(of_keys, number["across"])
        makes_q, makes_k = (code.value(f"or i1 {whole}, {x}") for x in (of_queries, of_keys))

        def elements(side: tuple[str, str], size: int, count: str) -> tuple[str, str]:
            first, end = (code.value(f"mul nsw i64 {edge}, {size}") for edge in side)
            return first, self.least(end, count)

        for wanted, names, side in (
            (makes_q, ("g_q",), elements(down, tile.rows, number["queries"])),
            (makes_k, ("g_k", "g_v"), elements(across, tile.columns, number["keys"])),
        ):
            with code.when(wanted):
                for name in names:
                    size = number["value_features" if name == "g_v" else "features"]
                    self.clear(name, base[name], *side, size)
        with code.loop(*across) as right, code.loop(*down) as below:
            left = code.value(f"mul nsw i64 {right}, {tile.columns}")
            first = code.value(f"mul nsw i64 {below}, {tile.rows}")
            self.tile_gradients(base, (probabilities, slopes), first, left, (makes_q, makes_k))

    def tile_gradients(
        self,
        base: dict[str, str],
        tiles: tuple[str, str],
        first: str,
        left: str,
        wanted: tuple[str, str],
    ) -> None:
        """Add the share of one tile of scores to the gradients."""
        code, number, lead = self.code, self.number, str(self.tile.lead)
        probabilities, slopes = tiles
        rows = code.value(f"sub nsw i64 {number['queries']}, {first}")
        rows = self.least(rows, str(self.tile.rows))
        end = number["keys"]
        if self.causal:
            end = self.least(end, code.value(f"add nsw i64 {first}, {rows}"))
        columns = self.least(code.value(f"sub nsw i64 {end}, {left}"), str(self.tile.columns))
        q, g, g_q = (self.at(name, base[name], first) for name in ("q", "g", "g_q"))
        k, v, g_k, g_v = (self.at(name, base[name], left) for name in ("k", "v", "g_k", "g_v"))
        row, features, value_features = self.row, number["features"], number["value_features"]
        gap = code.value(f"sub nsw i64 {first}, {left}")
        back = code.value(f"sub nsw i64 {left}, {first}")
        crosses = code.value(f"icmp sgt i64 {columns}, {code.value(f'add nsw i64 {gap}, 1')}")
        with ExitStack() as stack:
            stack.enter_context(code.when(code.value(f"icmp sgt i64 {columns}, 0")))
            self.multiply(
                (q, row["q"], "1"), (k, row["k"]), (probabilities, lead),
                (rows, columns, features), "false", transposed=True,
            )  # fmt: skip
            self.multiply(
                (g, row["g"], "1"), (v, row["v"]), (slopes, lead),
                (rows, columns, value_features), "false", transposed=True,
            )  # fmt: skip
            with code.loop("0", rows) as index:
                query = code.value(f"add nsw i64 {first}, {index}")
                self.slope_row(base, tiles, index, query, left, columns)
            with code.when(wanted[1]):
                self.counting(
                    (probabilities, "1", lead), (g, row["g"]), (g_v, row["g_v"]),
                    (columns, value_features, rows), "true", (crosses, back, "upper"),
                )  # fmt: skip
                self.counting(
                    (slopes, "1", lead), (q, row["q"]), (g_k, row["g_k"]),
                    (columns, features, rows), "true", (crosses, back, "upper"),
                )  # fmt: skip
            with code.when(wanted[0]):
                self.counting(
                    (slopes, lead, "1"), (k, row["k"]), (g_q, row["g_q"]),
                    (rows, features, columns), "true", (crosses, gap, "lower"),
                )  # fmt: skip

    def slope_row(
        self,
        base: dict[str, str],
        tiles: tuple[str, str],
        index: str,
        query: str,
        left: str,
        columns: str,
    ) -> None:
        """Replace scores by probabilities, and gradients of probabilities by those of q @ k.T."""
        code = self.code
        limit = self.limit(query, left, columns)
        inside = code.position("0", [(index, str(self.tile.lead))])
        powers, slopes = (code.element(tile, self.dtype, inside) for tile in tiles)
        lse = self.load(self.at("lse", base["lse"], query))
        delta = self.load(self.at("delta", base["delta"], query))
        mask = ""
        if self.mask is not None:
            mask = self.at("mask", base["mask"], query)
            stride = "1" if self.dense else self.column
            mask = code.element(mask, self.mask, code.position("0", [(left, stride)]))
        # Beyond `limit`, the mask must not be read and there are no factors; the tile may be
        # overwritten there, because nothing reads it.
        count = self.padded(limit) if self.mask is None and not self.drops else limit
        factors = self.factors_of(base, query, left, limit) if self.drops else ""
        with code.loop("0", count) as column:
            here, there = (code.element(line, self.dtype, column) for line in (powers, slopes))
            score = self.score(self.load(here), mask, column)
            power = self.apply(POWER, self.op("fsub contract", score, lse))
            slope = self.load(there)
            if self.drops:
                self.store(self.dropped(power, factors, column), here)
                slope = self.dropped(slope, factors, column)
            else:
                self.store(power, here)
            slope = self.op("fsub", slope, delta)
            slope = self.op("fmul", power, slope)
            slope = self.op("fmul", slope, self.scale)
            if not self.safe and self.mask == BOOL:  # also of NaN
                zero, shown = self.constant(0.0), self.given(mask, column)
                slope = code.value(f"select i1 {shown}, {self.kind} {slope}, {self.kind} {zero}")
            self.store(slope, there)


# -- text ------------------------------------------------------------------------------------------


def names_of(backward: bool, masked: bool, drops: bool) -> tuple[str, ...]:
    """The operands and results in the order of the table."""
    names = BACKWARD if backward else FORWARD
    return (*names[:3], *["mask"] * masked, *["state"] * drops, *names[3:])


class Tile:
    """The size of a tile of scores, and the layout of its rows in memory."""

    def __init__(self, rows: int, columns: int) -> None:
        self.rows, self.columns = rows, columns
        self.lead = columns + tuning.ATTENTION_LEAD_PADDING
        self.elements = rows * self.lead
        self.row_elements = row_elements(columns)  # of the factors of dropout


def tile_of(backward: bool) -> Tile:
    if backward:
        return Tile(tuning.ATTENTION_GRADIENT_QUERIES, tuning.ATTENTION_GRADIENT_KEYS)
    return Tile(tuning.ATTENTION_QUERIES, tuning.ATTENTION_KEYS)


def _prefix(transposed: bool, triangle: str) -> str:
    return f"{'transposed' if transposed else 'plain'}_{triangle}{'_' if triangle else ''}"


@functools.cache
def _product_text(dtype: Any, transposed: bool, triangle: str) -> str:
    """The functions of a product, with a prefix to their names."""
    text = multiplication(dtype, transposed, triangle)
    prefix = _prefix(transposed, triangle)
    names = "|".join(re.findall(r"define internal void @(\w+)\(", text))
    return re.sub(rf"@({names})\(", rf"@{prefix}\1(", text)


def _joined(parts: list[str]) -> str:
    """The texts joined, with every declaration once."""
    declared: dict[str, str] = {}
    lines = []
    for line in "".join(parts).splitlines():
        found = re.match(r"declare .*?@([\w.]+)\(", line)
        if found is None:
            lines.append(line)
        else:
            declared[found[1]] = line
    return "\n".join([*lines, *(declared[name] for name in sorted(declared)), ""])


@functools.cache
def text_of(
    dtype: Any,
    dimensions: int,
    backward: bool,
    causal: bool,
    mask: Any,
    dense: bool,
    drops: bool,
    safe: bool,
) -> str:
    """The function for `dimensions` batch dimensions; a `dense` mask has a column stride of 1."""
    return AttentionWriter(dtype, dimensions, backward, causal, mask, dense, drops, safe).text()


def attention(a: Attention, threads: int) -> Kernel | None:
    """The kernel of attention or of its gradients, for `threads` threads."""
    dtype = a.results[0].value.dtype
    optional = [x for x in (a.mask, a.state) if x is not None]
    accesses: tuple[Access, ...] = (*a.operands[:3], *optional, *a.operands[3:], *a.results)
    sizes, strides, _ = joined(a.batch, [x.strides[:-2] for x in accesses], set())
    batches = size_of(tuple(sizes))
    tile = tile_of(a.backward)
    down, across = -(-a.queries // tile.rows), -(-a.keys // tile.columns)
    # Whole batches need 5 products per tile, blocks of keys or queries 7.
    whole = 5 * -(-batches // threads) <= 7 * batches / threads
    extent = batches * down
    if a.backward:
        extent = batches if whole else 2 * batches * max(down, across)
    (scale,) = struct.unpack("<q", struct.pack("<d", a.scale))
    numbers = [a.queries, a.keys, a.features, a.value_features, scale, down, across, int(whole)]
    numbers += table_numbers(a.dropout)
    numbers += [x.strides[-2] for x in accesses]
    column = 0 if a.mask is None else a.mask.strides[-1]
    numbers.append(column)
    for d, n in enumerate(sizes):
        numbers += [n, *(s[d] for s in strides)]
    dimensions = max(len(sizes), tuning.MIN_PRODUCT_BATCH_DIMENSIONS)
    numbers += [1, *[0] * len(accesses)] * (dimensions - len(sizes))
    products = 7 if a.backward else 2
    work = products * batches * a.queries * a.keys * (a.features + a.value_features)
    return Kernel(
        "attention",
        text_of(
            *(dtype, dimensions, a.backward, a.causal),
            *(None if a.mask is None else a.mask.value.dtype, column == 1),
            *(a.state is not None, a.safe),
        ),
        [(x.value.number, x.offset * x.value.dtype.itemsize) for x in accesses],
        extent,
        1,
        False,
        1 + work // tuning.PRODUCT_OPERATIONS_PER_THREAD,
        work,
        [(value.number, None) for value in a.reads()],
        [(value.number, None) for value in a.writes()],
        numbers,
        scratch=_scratch_bytes(dtype, tile, a),
    )


def _scratch_bytes(dtype: Any, tile: Tile, a: Attention) -> int:
    """Bytes for two tiles, two numbers per row, a row of factors, and packed operands."""
    own = (2 * tile.elements + 2 * tile.rows + tile.row_elements) * int(dtype.itemsize)
    wide, deep = max(a.features, a.value_features), max(tile.rows, tile.columns)
    packed = max(
        packed_bytes(dtype, tile.rows, wide, tile.columns, ""),
        packed_bytes(dtype, deep, deep, wide, ""),
    )
    return own + packed
