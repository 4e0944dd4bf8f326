"""Kernels of matrix products: each thread multiplies its part.

Comes in: a `Product`. Goes out: a `Kernel`. Sizes and strides are numbers in the kernel's table, so
one function serves all products of a dtype and layout with the same number of batch dimensions.
`gemm.py` writes the multiplication itself. Called by `emit.py` and `machine.py`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from ...core import numeric
from ..ir.program import Product, size_of
from ..ir.shapes import joined
from ..native.code import Code
from . import tuning, vectors
from .driver_layout import MAX_THREADS
from .gemm import multiplication, packed_bytes
from .kernel import ByteRange, Kernel, byte_range_of, grain_of, with_entry

#: the numbers in a product's table; then come, for each batch dimension, its size and the strides
#: of x, y and out
NUMBERS = (
    *("rows", "columns", "inner", "row_x", "column_x", "lead_y", "lead_out"),
    *("split", "step_x", "step_y", "step_out", "batches", "adds"),
    *("block_rows", "block_columns", "blocks_across", "blocks", "column_y"),
    *("next_x", "next_y", "next_out"),
)
BATCH, ROWS, COLUMNS, BLOCKS = range(4)  # what threads divide


def _transposed(strides: tuple[int, ...], rows: int, columns: int) -> tuple[bool, int]:
    """Whether memory holds the transpose of a matrix, and its leading dimension."""
    down, across = strides[-2:]
    if (across == 1 or columns == 1) and (down >= columns or rows == 1):
        return False, max(down if rows > 1 else columns, 1)
    return True, max(across if columns > 1 else rows, 1)


@functools.cache
def text_of(dtype: Any, dimensions: int, transposed_y: bool, triangle: str = "") -> str:
    """The function for products with `dimensions` batch dimensions."""
    code = Code()
    number = {name: f"%number{i}" for i, name in enumerate(NUMBERS)}

    def chosen(what: int, yes: str, no: str) -> str:
        condition = code.value(f"icmp eq i64 {number['split']}, {what}")
        return code.value(f"select i1 {condition}, i64 {yes}, i64 {no}")

    share = code.value("sub nsw i64 %high, %low")
    rows, columns = chosen(ROWS, share, number["rows"]), chosen(COLUMNS, share, number["columns"])
    start = chosen(BATCH, "0", "%low")
    first, last = chosen(BATCH, "%low", "0"), chosen(BATCH, "%high", number["batches"])
    adds = code.value(f"icmp ne i64 {number['adds']}, 0")
    some = code.value("icmp sgt i64 %high, %low")
    with ExitStack() as stack:
        stack.enter_context(code.when(some))
        top = left = "0"
        if not triangle:
            # A product in blocks does one block after another; other products run this loop once.
            every = stack.enter_context(
                code.loop(chosen(BLOCKS, "%low", "0"), chosen(BLOCKS, "%high", "1"))
            )
            start = chosen(BLOCKS, "0", start)
            which = code.value(f"sdiv i64 {every}, {number['blocks']}")
            block = code.value(f"srem i64 {every}, {number['blocks']}")
            first, last = (
                chosen(BLOCKS, which, first),
                chosen(BLOCKS, code.value(f"add nsw i64 {which}, 1"), last),
            )
            down = code.value(f"sdiv i64 {block}, {number['blocks_across']}")
            across = code.value(f"srem i64 {block}, {number['blocks_across']}")
            top = code.value(f"mul nsw i64 {down}, {number['block_rows']}")
            left = code.value(f"mul nsw i64 {across}, {number['block_columns']}")
            rows = chosen(BLOCKS, _part(code, number["block_rows"], number["rows"], top), rows)
            columns = chosen(
                BLOCKS, _part(code, number["block_columns"], number["columns"], left), columns
            )
        batch = stack.enter_context(code.loop(first, last))
        steps = {name: [(start, number[f"step_{name}"])] for name in ("x", "y", "out")}
        steps["x"].append((top, number["row_x"]))
        steps["y"].append((left, number["column_y"]))
        steps["out"] += [(top, number["lead_out"]), (left, "1")]
        terms = list(steps.values())
        rest = batch
        for d in reversed(range(dimensions)):
            at = len(NUMBERS) + 4 * d
            index = code.value(f"srem i64 {rest}, %number{at}")
            rest = code.value(f"sdiv i64 {rest}, %number{at}")
            for i, operand in enumerate(terms):
                operand.append((index, f"%number{at + 1 + i}"))
        x, y, out = (
            code.element(f"%p{i}", dtype, code.position("0", operand))
            for i, operand in enumerate(terms)
        )
        name, given = "multiply", f", i64 {start}" if triangle else ""
        if not triangle and not numeric.is_half(dtype):
            name = "multiply_one_of_many"
            asks = code.value(f"icmp ne i64 {number['next_out']}, 0")
            given = f", i1 {asks}"
            for pointer, which in ((x, "x"), (y, "y"), (out, "out")):
                given += f", ptr {code.element(pointer, dtype, number[f'next_{which}'])}"
        code.line(
            f"call void @{name}(ptr {x}, i64 {number['row_x']}, i64 {number['column_x']}, "
            f"ptr {y}, i64 {number['lead_y']}, ptr {out}, i64 {number['lead_out']}, i64 {rows}, "
            f"i64 {columns}, i64 {number['inner']}, i1 {adds}, ptr %partial0{given})"
        )
    code.line("ret void")
    entry = with_entry(code, 3, partials=1, numbers=len(NUMBERS) + 4 * dimensions)
    return multiplication(dtype, transposed_y, triangle) + entry


def _part(code: Code, size: str, whole: str, begin: str) -> str:
    """The length of a block of `size` that begins at `begin` and ends at `whole` at the latest."""
    left = code.value(f"sub nsw i64 {whole}, {begin}")
    enough = code.value(f"icmp sgt i64 {left}, {size}")
    return code.value(f"select i1 {enough}, i64 {size}, i64 {left}")


def _by_rows(rows: int, inner: int, columns: int, size: int, threads: int) -> bool:
    """Whether threads divide the rows of a product, rather than its columns.

    Each thread reads the other operand whole, so the larger one is divided. But rows are preferred
    if they are many, unless y is much larger than x, and if y is small: the next instruction often
    goes by rows, and then needs no new section and no data from another core's cache.
    """
    if rows >= columns:
        return True
    wide = columns >= tuning.MIN_COLUMNS_PER_ROW_TO_SHARE_COLUMNS * rows
    if rows >= tuning.MIN_ROWS_TO_SHARE_ROWS and not wide:
        return True
    if rows >= tuning.MIN_ROWS_PER_THREAD_WITH_SHORT_SUMS * threads and inner <= rows:
        return True
    small = size * inner * columns <= tuning.MAX_RIGHT_SIDE_BYTES_READ_BY_ALL
    return small and rows >= tuning.MIN_ROWS_WITH_SMALL_RIGHT_SIDE


def steps_of_part(rows: int, inner: int, columns: int, along: bool, threads: int) -> int:
    """Steps of each part of a product's sums, if threads should divide the sums too; else 0.

    `along`: the rows of x, or the columns of y if there are more, are contiguous. Parts are the
    passes of the whole product, summed in the same order, so the result has the same bits.
    """
    passes = -(-inner // tuning.MAX_PANEL_STEPS)
    steps, rest = divmod(inner, passes)
    if threads < tuning.MIN_THREADS_FOR_PARTS or passes == 1:
        return 0
    if rest or steps % tuning.PANEL_STEPS_GRAIN:
        return 0
    if along and max(rows, columns) >= tuning.MIN_LENGTH_TO_DIVIDE * threads:
        return 0
    few = rows * columns <= tuning.MAX_RESULT_PER_OPERAND_LENGTH * (rows + columns)
    work = 2 * rows * columns * inner
    return steps if few and work >= tuning.MIN_OPERATIONS_FOR_PARTS else 0


def is_better_sideways(rows: int, inner: int, columns: int, size: int) -> bool:
    """Whether a product whose x lies in columns is better computed as its transpose.

    A row of few columns fills few vectors, and x is read one scalar at a time; along a column of x,
    vectors are full.
    """
    lanes = vectors.registers()[0] // size
    few = columns <= tuning.MAX_VECTORS_OF_SIDEWAYS_ROWS * lanes
    many = rows >= tuning.MIN_ROWS_PER_COLUMN_OF_SIDEWAYS * columns
    return few and many and inner >= tuning.MIN_STEPS_OF_SIDEWAYS


class Blocks(NamedTuple):
    """A product that threads divide along rows and columns: sizes of a block, and how many."""

    rows: int
    columns: int
    down: int
    across: int

    @property
    def numbers(self) -> tuple[int, ...]:
        return self.rows, self.columns, self.across, self.down * self.across

    def is_large(self, inner: int) -> bool:
        """Whether a block has enough work to be taken by whichever thread is free."""
        return 2 * self.rows * self.columns * inner >= tuning.MIN_OPERATIONS_OF_BLOCK

    def cost(self, inner: int) -> float:
        """The operations of a thread, with those of packing its operands."""
        packed = (self.rows + self.columns) * tuning.OPERATIONS_PER_PACKED_ELEMENT
        return inner * (2 * self.rows * self.columns + packed)


def _blocks(rows: int, columns: int, down: int, across: int) -> Blocks:
    height = -(-rows // down // tuning.ROW_GRAIN) * tuning.ROW_GRAIN
    width = -(-columns // across // tuning.COLUMN_GRAIN) * tuning.COLUMN_GRAIN
    return Blocks(height, width, -(-rows // height), -(-columns // width))


def _in_blocks(p: Product, by_rows: bool, batches: int, threads: int) -> Blocks | None:
    """The blocks of a matrix, if threads have less to do with them than otherwise."""
    work = 2 * batches * p.rows * p.columns * p.inner
    worth = min(threads, 1 + work // tuning.PRODUCT_OPERATIONS_PER_THREAD)
    if p.triangle or threads < tuning.MIN_THREADS_FOR_BLOCKS:
        return None
    if batches >= tuning.MIN_PRODUCT_BATCHES_TO_SHARE:
        # Whole matrices, unless some threads would have none, or far fewer than others.
        turns = -(-batches // worth)
        if turns * worth < tuning.MIN_GAIN_OF_BLOCKS * batches:
            return None
        many = worth // math.gcd(worth, batches)
        ways = [_blocks(p.rows, p.columns, n, many // n) for n in _divisors(many)]
        return min(ways, key=lambda blocks: blocks.cost(p.inner))
    if work < tuning.MIN_OPERATIONS_FOR_BLOCKS:
        return None
    alone = _blocks(p.rows, p.columns, *((threads, 1) if by_rows else (1, threads)))
    best, least = None, batches * alone.cost(p.inner) * (1 + tuning.UNEVEN_SPEED)
    for turns in (1, 2, 4):
        many = -(-turns * threads // batches)
        if turns > 1 and (many * batches > MAX_THREADS or turns > tuning.MAX_BLOCKS_PER_THREAD):
            break
        for n in _divisors(many):
            way = _blocks(p.rows, p.columns, n, many // n)
            if turns > 1 and not way.is_large(p.inner):
                continue
            blocks = way.down * way.across * batches
            uneven = tuning.UNEVEN_SPEED * threads / max(blocks, threads)
            cost = -(-blocks // threads) * way.cost(p.inner) * (1 + uneven)
            if cost + tuning.OPERATIONS_PER_SECTION < least:
                best, least = way, cost + tuning.OPERATIONS_PER_SECTION
    return best


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


def _following(
    p: Product, sizes: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[int, ...]:
    """The strides from a product's matrices to the next product's, if it prefetches them; else 0.

    It does if they are small and have no gaps: the hardware does not prefetch them, and they stay
    in the cache until they are needed.
    """
    matrices = ((p.rows, p.inner), (p.inner, p.columns), (p.rows, p.columns))
    size = p.out.value.dtype.itemsize * sum(map(math.prod, matrices))
    dense = all(
        {access.strides[-2:]} <= {(width, 1), (1, height)}
        for access, (height, width) in zip((p.x, p.y, p.out), matrices, strict=True)
    )
    if not sizes or sizes[-1] == 1 or not dense or size > tuning.MAX_BYTES_TO_ASK_FOR_NEXT:
        return (0, 0, 0)
    return tuple(ways[-1] for ways in strides)


def product(p: Product, threads: int) -> Kernel:
    """The kernel of a matrix product, for `threads` threads."""
    dtype = p.out.value.dtype
    size = dtype.itemsize
    assert not (p.adds and numeric.is_half(dtype))  # sums would be rounded between two products
    accesses = (p.x, p.y, p.out)
    sizes, strides, _ = joined(p.batch, [a.strides[:-2] for a in accesses], set())
    batches = size_of(tuple(sizes))
    work = 2 * batches * p.rows * p.columns * p.inner
    steps = (0, 0, 0)
    by_rows = bool(p.triangle) or _by_rows(p.rows, p.inner, p.columns, size, threads)
    many = batches >= tuning.MIN_PRODUCT_BATCHES_TO_SHARE
    blocks = _in_blocks(p, by_rows, batches, threads)
    if blocks is not None:
        split, extent, grain = BLOCKS, batches * blocks.down * blocks.across, 1
    elif many:
        split, extent, grain = BATCH, batches, 1
    elif by_rows:
        least = tuning.ROW_GRAIN if p.rows >= tuning.MIN_ROWS_FOR_GRAIN else 1
        split, extent, grain = ROWS, p.rows, grain_of(p.rows, least)
        steps = (p.x.strides[-2], 0, p.out.strides[-2])
    else:
        grain = tuning.COLUMN_GRAIN if p.columns >= tuning.MIN_COLUMNS_FOR_GRAIN else 1
        split, extent = COLUMNS, p.columns
        steps = (0, p.y.strides[-1], p.out.strides[-1])
    x_transposed, x_lead = _transposed(p.x.strides, p.rows, p.inner)
    y_transposed, y_lead = _transposed(p.y.strides, p.inner, p.columns)
    numbers = [
        *(p.rows, p.columns, p.inner, *((1, x_lead) if x_transposed else (x_lead, 1))),
        *(y_lead, max(p.out.strides[-2], p.columns, 1)),
        *(split, *steps, batches, int(p.adds)),
        *(blocks.numbers if blocks is not None else (0, 0, 1, 1)),
        y_lead if y_transposed else 1,
        *_following(p, sizes, strides),
    ]
    for d, n in enumerate(sizes):
        numbers += [n, *(s[d] for s in strides)]
    dimensions = max(len(sizes), tuning.MIN_PRODUCT_BATCH_DIMENSIONS)
    numbers += [1, 0, 0, 0] * (dimensions - len(sizes))
    matrices = ((p.rows, p.inner), (p.inner, p.columns), (p.rows, p.columns))
    byte_ranges: list[ByteRange | None] = []
    for access, matrix, step, batch in zip(accesses, matrices, steps, strides, strict=True):
        ways = [(n - 1) * s for n, s in zip(matrix, access.strides[-2:], strict=True)]
        around = [(n - 1) * s for n, s in zip(sizes, batch, strict=True)]
        if split == BATCH:
            # Threads divide the batches in order; all but the first dimension lie inside a step.
            inner = [(n - 1) * s for n, s in zip(sizes[1:], batch[1:], strict=True)]
            group = size_of(tuple(sizes[1:]))
            byte_ranges.append(byte_range_of(access, batch[0], ways + inner, group))
        elif split == BLOCKS:
            byte_ranges.append(None)
        elif step == 0:
            byte_ranges.append(byte_range_of(access, 0, ways + around))
        else:
            ways[split - ROWS] = 0  # the dimension that is divided
            byte_ranges.append(byte_range_of(access, step, ways + around))
    return Kernel(
        "product",
        text_of(dtype, dimensions, y_transposed, p.triangle),
        [(a.value.number, a.offset * size) for a in accesses],
        extent,
        grain,
        False,
        1 + work // tuning.PRODUCT_OPERATIONS_PER_THREAD,
        work,
        [(p.x.value.number, byte_ranges[0]), (p.y.value.number, byte_ranges[1])],
        [(p.out.value.number, byte_ranges[2])],
        numbers,
        scratch=packed_bytes(dtype, p.rows, p.inner, p.columns, p.triangle),
        pieces=extent if blocks is not None and blocks.is_large(p.inner) else 0,
    )
