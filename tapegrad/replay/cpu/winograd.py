"""Kernels of contractions by Winograd's algorithm: windows of 3x3 that move by 1, in float32.

Comes in: a `Contraction` of a convolution's kind: the result of one, or the gradient of its input,
where windows are flipped. Goes out: two kernels, or None where the operands are not of that kind
or another way is faster. `winograd_result.py` has the algorithm and writes the text. Called by
`emit.py`.

The first kernel transforms the filters into scratch memory that all threads share. The second one
goes over blocks of tiles: it transforms the input, multiplies, and transforms the sums.

A result has about the error of a plain sum. With NaN or infinity it is that of plain sums: what is
not finite is computed again.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

from ..ir.program import Access, Contraction, size_of
from . import tuning, vectors
from .gemm import GemmWriter
from .kernel import Kernel
from .llvm import FLOAT32
from .sides import (
    Dimension,
    Sides,
    count_of,
    even_part,
    flat_step,
    group_of,
    joined_dimensions,
    padded_numbers,
    sides_of,
)
from .winograd_result import texts_of
from .winograd_tiles import CHANNELS, IMAGES, PIECE, SQUARE

WINDOW = 3


class Tiles(NamedTuple):
    """A convolution with windows of 3x3, in numbers."""

    filters: Access
    input: Access
    first_input: int  # offset of its first element in memory
    first_filter: int  # offset of the filter's element for that one
    rows: int
    row_filter: int
    row_out: int
    height: int  # of the result
    width: int
    down: int  # step from one row of the input to the next
    down_out: int
    down_filter: int
    across_filter: int
    channels: list[Dimension]  # with the steps of the input and of the filters
    images: list[Dimension]  # with the steps of the input and of the result
    group: Dimension
    group_filter: int

    @property
    def tiles(self) -> int:
        """Tiles of all images; those at the end of an odd size are half empty."""
        return count_of(self.images) * -(-self.height // 2) * -(-self.width // 2)


def _window(c: Contraction, s: Sides) -> tuple[int, int, int, int] | None:
    """The dimensions of a window, and those of the result along which it moves: i, j, y, x."""
    steps, out = s.patches.strides, c.out.strides
    taps = [d for d in s.summed if c.shape[d] == WINDOW]
    for x in s.kept:
        if steps[x] != 1 or out[x] != 1:
            continue
        for j in (d for d in taps if abs(steps[d]) == 1):
            for y in (d for d in s.kept if d != x and steps[d] > c.shape[x] + WINDOW - 2):
                for i in (d for d in taps if d != j and abs(steps[d]) == steps[y]):
                    return i, j, y, x
    return None


def _tiles(c: Contraction, s: Sides) -> Tiles | None:
    found = _window(c, s)
    if found is None:
        return None
    i, j, y, x = found
    row, row_out, group = (
        flat_step(c, s.matrix, s.rows),
        flat_step(c, c.out, s.rows),
        group_of(c, s),
    )
    if row is None or row_out is None or group is None:
        return None
    channels = joined_dimensions(c, [d for d in s.summed if d not in (i, j)], s.patches, s.matrix)
    images = joined_dimensions(c, [d for d in s.kept if d not in (y, x)], s.patches, c.out)
    if len(channels) > CHANNELS or len(images) > IMAGES:
        return None
    steps, matrix = s.patches.strides, s.matrix.strides
    flipped = [d for d in (i, j) if steps[d] < 0]
    last = WINDOW - 1
    return Tiles(
        filters=s.matrix,
        input=s.patches,
        first_input=s.patches.offset + sum(last * steps[d] for d in flipped),
        first_filter=s.matrix.offset + sum(last * matrix[d] for d in flipped),
        rows=size_of(tuple(c.shape[d] for d in s.rows)),
        row_filter=row,
        row_out=row_out,
        height=c.shape[y],
        width=c.shape[x],
        down=steps[y],
        down_out=c.out.strides[y],
        down_filter=-matrix[i] if i in flipped else matrix[i],
        across_filter=-matrix[j] if j in flipped else matrix[j],
        channels=channels,
        images=images,
        group=group,
        group_filter=flat_step(c, s.matrix, s.groups) or 0,
    )


def _pays(t: Tiles, lanes: int) -> bool:
    """Whether this takes less time than multiplying patches, counted in multiplications."""
    channels = count_of(t.channels)
    in_row = -(-t.width // 2)
    filled = in_row / (-(-in_row // lanes) * lanes)
    positions = count_of(t.images) * t.height * t.width
    transforms = tuning.MULTIPLICATIONS_PER_TRANSFORMED_TILE * t.tiles / filled
    filters = t.rows * channels
    ours = filters * (SQUARE * t.tiles + tuning.MULTIPLICATIONS_PER_TRANSFORMED_FILTER)
    ours_and_transforms = ours + (t.rows + channels) * transforms
    return ours_and_transforms * tuning.MIN_GAIN_OF_WINOGRAD < filters * WINDOW**2 * positions


def winograd(c: Contraction, threads: int) -> list[Kernel] | None:
    """The kernels of a contraction by Winograd's algorithm; None where another way is better."""
    dtype = c.out.value.dtype
    if dtype != FLOAT32:
        return None
    size = dtype.itemsize
    lanes = vectors.registers()[0] // size
    t = next((t for s in sides_of(c) if (t := _tiles(c, s)) is not None), None)
    if t is None or not _pays(t, lanes):
        return None
    tall = GemmWriter(dtype, transposed_y=False, triangle="").tallest
    channels, lead = count_of(t.channels), lanes * tuning.MAX_PANEL_VECTORS
    row_tiles, tiles, groups = -(-t.rows // tall), t.tiles, t.group.size
    shared = groups * SQUARE * row_tiles * tall * channels * size
    pairs = padded_numbers(t.channels, CHANNELS)
    filter_numbers = [
        *(t.rows, channels, t.row_filter, t.down_filter, t.across_filter, t.group_filter),
        *(row_tiles, *itertools.chain(*zip(pairs[::3], pairs[2::3], strict=True))),
    ]
    filter_text, text = texts_of(dtype)
    work = groups * t.rows * channels * SQUARE
    # A transformed filter is read by all threads, whichever have written it.
    first = Kernel(
        "filters",
        filter_text,
        [(t.filters.value.number, t.first_filter * size)],
        groups * row_tiles,
        1,
        groups * row_tiles < 2,
        1 + work // tuning.LOOP_WORK_PER_THREAD,
        work,
        [(t.filters.value.number, None)],
        [],
        filter_numbers,
        shared=shared,
        fills=True,
    )
    block, block_rows = _blocks(t, lead, threads)
    blocks, row_blocks = -(-tiles // block), -(-t.rows // block_rows)
    line, starts = tuning.CACHE_LINE_BYTES, [0]
    squares, sums = (SQUARE * (n * lead + lanes) + lanes for n in (channels, block_rows))
    for length in (16 * channels, 8 * PIECE * lead, squares * size, sums * size):
        starts.append(starts[-1] + -(-length // line) * line)
    numbers = [
        *(t.rows, channels, tiles, t.height, t.width, t.down, t.row_out, t.down_out),
        *(t.group.patches, t.group.other, block, blocks, row_blocks, block_rows),
        *(t.row_filter, t.down_filter, t.across_filter, t.group_filter),
        *(even_part(channels, tuning.MAX_PATCH_TAPS), *starts[1:4]),
        *padded_numbers(t.channels, CHANNELS),
        *padded_numbers(t.images, IMAGES),
    ]
    extent = groups * blocks * row_blocks
    work = 2 * groups * SQUARE * t.rows * channels * tiles
    second = Kernel(
        "contraction",
        text,
        [
            (t.input.value.number, t.first_input * size),
            (c.out.value.number, c.out.offset * size),
            (t.filters.value.number, t.first_filter * size),
        ],
        extent,
        1,
        extent < 2,
        1 + work // tuning.PRODUCT_OPERATIONS_PER_THREAD,
        work,
        [(t.input.value.number, None), (t.filters.value.number, None)],
        [(c.out.value.number, None)],
        numbers,
        scratch=starts[-1],
        shared=shared,
    )
    return [first, second]


def _blocks(t: Tiles, lead: int, threads: int) -> tuple[int, int]:
    """Tiles and rows of a block: enough of them for all threads, and else as large as fit."""
    wanted = -(-threads // t.group.size)
    panels = -(-t.tiles // lead)
    across = min(panels, wanted)
    down = min(-(-wanted // across), -(-t.rows // tuning.ROW_GRAIN))
    grain = tuning.ROW_GRAIN  # a multiple of a tile's rows, which are packed together
    rows = -(-t.rows // down // grain) * grain
    return even_part(panels, -(-panels // across)) * lead, rows
