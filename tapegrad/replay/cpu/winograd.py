"""Kernels of contractions by Winograd's algorithm: windows of 3x3 that move by 1, in float32.

Comes in: a `Contraction` of a convolution's kind: the result of one, the gradient of its input,
whose windows are flipped, or that of its filters. Goes out: two kernels, or None if the operands
are not of that kind or another way is faster. `winograd_result.py` explains the algorithm and
writes the text; `winograd_gradient.py` writes it for gradients of filters. Called by `emit.py`.

For a result, the first kernel transforms the filters into scratch memory that all threads share.
The second one goes over blocks of tiles: it transforms the input, multiplies, and transforms the
sums. For filters, the first kernel leaves sums over tiles in that memory; the second one sums them.

A sum has about the error of a plain one. Rows of a result that are not finite are recomputed with
plain sums. A filter's gradient is not recomputed: all of its 9 elements are then NaN.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Sequence
from typing import NamedTuple

from ..ir.program import Access, Contraction, size_of
from ..native.code import FLOAT32
from . import tuning, vectors
from .gemm import GemmWriter
from .kernel import Kernel
from .sides import (
    Dimension,
    Sides,
    count_of,
    even_part,
    flat_step,
    joined_dimensions,
    padded_numbers,
    sides_of,
)
from .winograd_gradient import gradient_texts_of
from .winograd_result import texts_of
from .winograd_tiles import CHANNELS, IMAGES, PIECE, SQUARE

WINDOW = 3


class Tiles(NamedTuple):
    """Sizes and strides of a convolution with 3x3 windows; `image` is its result or gradient."""

    summed: bool  # over the image: the filters are the result
    input: Access
    filters: Access
    image: Access
    first_input: int  # offset of its first element in memory
    first_filter: int  # offset of the filter's element that is multiplied with it
    rows: int
    row_filter: int
    row_image: int
    height: int  # of the image
    width: int
    down: int  # step from one row of the input to the next
    down_image: int
    down_filter: int
    across_filter: int
    channels: list[Dimension]  # with the strides of the input and of the filters
    channel_filter: int | None  # the stride of the filters, if all channels have the same
    samples: list[Dimension]  # with the strides of the input and of the image
    groups: int
    group_input: int
    group_filter: int
    group_image: int

    @property
    def tiles(self) -> int:
        """Tiles of all images; those at the end of an odd size are half empty."""
        return count_of(self.samples) * -(-self.height // 2) * -(-self.width // 2)


def _window(
    c: Contraction, steps: Sequence[int], image: Access, inner: list[int], outer: list[int]
) -> tuple[int, int, int, int] | None:
    """The dimensions of a window, and those of the image along which it moves: i, j, y, x."""
    taps = [d for d in inner if c.shape[d] == WINDOW]
    for x in (d for d in outer if steps[d] == image.strides[d] == 1):
        for j in (d for d in taps if abs(steps[d]) == 1):
            for y in (d for d in reversed(outer) if d != x and steps[d] > c.shape[x] + WINDOW - 2):
                for i in (d for d in taps if d != j and abs(steps[d]) == steps[y]):
                    return i, j, y, x
    return None


def _tiles(c: Contraction, s: Sides, summed: bool) -> Tiles | None:
    """A contraction as a convolution: the result of one, or the gradient of its filters."""
    filters, image = (c.out, s.matrix) if summed else (s.matrix, c.out)
    inner, outer = (s.kept, s.summed) if summed else (s.summed, s.kept)
    steps, matrix = s.patches.strides, filters.strides
    found = _window(c, steps, image, inner, outer)
    if found is None:
        return None
    i, j, y, x = found
    row, row_image = (flat_step(c, side, s.rows) for side in (filters, image))
    groups = [flat_step(c, side, s.groups) for side in (s.patches, filters, image)]
    inner, outer = ([d for d in dims if d not in found] for dims in (inner, outer))
    channels = joined_dimensions(c, inner, s.patches, filters)
    samples = joined_dimensions(c, outer, s.patches, image)
    if row is None or row_image is None or len(channels) > CHANNELS or len(samples) > IMAGES:
        return None
    known = [step for step in groups if step is not None]
    if len(known) < len(groups):
        return None
    flipped = [d for d in (i, j) if steps[d] < 0]
    last = WINDOW - 1
    return Tiles(
        summed,
        s.patches,
        filters,
        image,
        first_input=s.patches.offset + sum(last * steps[d] for d in flipped),
        first_filter=filters.offset + sum(last * matrix[d] for d in flipped),
        rows=size_of(tuple(c.shape[d] for d in s.rows)),
        row_filter=row,
        row_image=row_image,
        height=c.shape[y],
        width=c.shape[x],
        down=steps[y],
        down_image=image.strides[y],
        down_filter=-matrix[i] if i in flipped else matrix[i],
        across_filter=-matrix[j] if j in flipped else matrix[j],
        channels=channels,
        channel_filter=flat_step(c, filters, inner),
        samples=samples,
        groups=size_of(tuple(c.shape[d] for d in s.groups)),
        group_input=known[0],
        group_filter=known[1],
        group_image=known[2],
    )


def _pays(t: Tiles, lanes: int) -> bool:
    """Whether this takes less time than products over patches, counted in multiplications."""
    channels = count_of(t.channels)
    in_row = -(-t.width // 2)
    filled = in_row / (-(-in_row // lanes) * lanes)
    positions = count_of(t.samples) * t.height * t.width
    transforms = tuning.MULTIPLICATIONS_PER_TRANSFORMED_TILE * t.tiles / filled
    filters = t.rows * channels
    ours = filters * (SQUARE * t.tiles + tuning.MULTIPLICATIONS_PER_TRANSFORMED_FILTER)
    ours_and_transforms = ours + (t.rows + channels) * transforms
    return ours_and_transforms * tuning.MIN_GAIN_OF_WINOGRAD < filters * WINDOW**2 * positions


def allowed() -> bool:
    """Whether the user has not switched it off."""
    return os.environ.get("TAPEGRAD_WINOGRAD", "1") != "0"


def winograd(c: Contraction, threads: int) -> list[Kernel] | None:
    """The kernels of a contraction by Winograd's algorithm; None if another way is better."""
    dtype = c.out.value.dtype
    if dtype != FLOAT32 or not allowed():
        return None
    lanes = vectors.registers()[0] // dtype.itemsize
    ways = ((s, summed) for s in sides_of(c) for summed in (False, True))
    t = next((t for s, summed in ways if (t := _tiles(c, s, summed)) is not None), None)
    if t is None or not _pays(t, lanes) or (t.summed and t.channel_filter is None):
        return None
    return _gradient(t, lanes, threads) if t.summed else _result(t, lanes, threads)


def _kernel(
    what: str, text: str, accesses: Sequence[tuple[Access, int]], extent: int, work: int, worth: int
) -> Kernel:
    """A kernel whose steps may touch all of its operands; `accesses` come with first elements."""
    pointers = [(a.value.number, first * a.value.dtype.itemsize) for a, first in accesses]
    return Kernel(what, text, pointers, extent, 1, extent < 2, 1 + worth, work, [], [])


def _starts(*lengths: int) -> list[int]:
    """Where parts of the scratch memory begin, given their lengths in bytes, and where it ends."""
    line = tuning.CACHE_LINE_BYTES
    return list(itertools.accumulate((-(-n // line) * line for n in lengths), initial=0))


def _result(t: Tiles, lanes: int, threads: int) -> list[Kernel]:
    """A kernel that transforms the filters into shared memory, and one that does the rest."""
    dtype = t.image.value.dtype
    tall = GemmWriter(dtype, transposed_y=False, triangle="").tallest
    channels, lead = count_of(t.channels), lanes * tuning.MAX_PANEL_VECTORS
    row_tiles, tiles, size = -(-t.rows // tall), t.tiles, dtype.itemsize
    filter_text, text = texts_of(dtype)
    input, filters = (t.input, t.first_input), (t.filters, t.first_filter)
    work = t.groups * t.rows * channels * SQUARE
    worth = work // tuning.LOOP_WORK_PER_THREAD
    first = _kernel("filters", filter_text, [filters], t.groups * row_tiles, work, worth)
    first.reads = [(t.filters.value.number, None)]
    first.shared, first.fills = t.groups * SQUARE * row_tiles * tall * channels * size, True
    numbers = padded_numbers(t.channels, CHANNELS)
    first.numbers = [
        *(t.rows, channels, t.row_filter, t.down_filter, t.across_filter, t.group_filter),
        *(row_tiles, *itertools.chain(*zip(numbers[::3], numbers[2::3], strict=True))),
    ]
    block, block_rows = _blocks(t, lead, threads)
    blocks, row_blocks = -(-tiles // block), -(-t.rows // block_rows)
    squares, sums = (SQUARE * (n * lead + lanes) + lanes for n in (channels, block_rows))
    starts = _starts(16 * channels, 8 * PIECE * lead, squares * size, sums * size)
    work = 2 * t.groups * SQUARE * t.rows * channels * tiles
    worth = work // tuning.PRODUCT_OPERATIONS_PER_THREAD
    accesses = [input, (t.image, t.image.offset), filters]
    extent = t.groups * blocks * row_blocks
    second = _kernel("contraction", text, accesses, extent, work, worth)
    second.reads = [(t.input.value.number, None), (t.filters.value.number, None)]
    second.writes = [(t.image.value.number, None)]
    second.shared, second.scratch = first.shared, starts[-1]
    second.numbers = [
        *(t.rows, channels, tiles, t.height, t.width, t.down, t.row_image, t.down_image),
        *(t.group_input, t.group_image, block, blocks, row_blocks, block_rows),
        *(t.row_filter, t.down_filter, t.across_filter, t.group_filter),
        *(even_part(channels, tuning.MAX_PATCH_TAPS), *starts[1:4]),
        *numbers,
        *padded_numbers(t.samples, IMAGES),
    ]
    return [first, second]


def _blocks(t: Tiles, lead: int, threads: int) -> tuple[int, int]:
    """Tiles and rows of a block: enough blocks for all threads, but as large as possible."""
    wanted = -(-threads // t.groups)
    panels = -(-t.tiles // lead)
    across = min(panels, wanted)
    down = min(-(-wanted // across), -(-t.rows // tuning.ROW_GRAIN))
    grain = tuning.ROW_GRAIN  # a multiple of a tile's rows, which are packed together
    rows = -(-t.rows // down // grain) * grain
    return even_part(panels, -(-panels // across)) * lead, rows


def _gradient(t: Tiles, lanes: int, threads: int) -> list[Kernel]:
    """A kernel that leaves sums over chunks of tiles in shared memory, and one that sums those."""
    dtype = t.image.value.dtype
    channels, tiles, size = count_of(t.channels), t.tiles, dtype.itemsize
    sums = SQUARE * t.rows * channels * size
    most = min(tuning.MAX_TILE_CHUNKS, tuning.MAX_CHUNK_SUM_BYTES // (t.groups * sums))
    chunk = even_part(tiles, max(tuning.MIN_CHUNK_TILES, -(-tiles // max(most, 1))))
    chunks = -(-tiles // chunk)
    depth = even_part(chunk, tuning.MAX_TILES_OF_A_PASS)
    lead = -(-depth // lanes) * lanes + lanes
    block, block_rows = _parts_of_filters(
        t, channels, lanes, depth, -(-threads // (t.groups * chunks))
    )
    blocks, row_blocks = -(-channels // block), -(-t.rows // block_rows)
    squares, gradients = (SQUARE * (n * lead + lanes) + lanes for n in (block, block_rows))
    starts = _starts(8 * channels, 8 * PIECE * depth, squares * size, gradients * size)
    text, sum_text = gradient_texts_of(dtype)
    work = 2 * t.groups * SQUARE * t.rows * channels * tiles
    worth = work // tuning.PRODUCT_OPERATIONS_PER_THREAD
    accesses = [(t.input, t.first_input), (t.image, t.image.offset)]
    extent = t.groups * chunks * blocks * row_blocks
    first = _kernel("contraction", text, accesses, extent, work, worth)
    first.reads = [(t.input.value.number, None), (t.image.value.number, None)]
    first.shared, first.fills, first.scratch = t.groups * chunks * sums, True, starts[-1]
    numbers = padded_numbers(t.channels, CHANNELS)
    first.numbers = [
        *(t.rows, channels, tiles, t.height, t.width, t.down, t.row_image, t.down_image),
        *(t.group_input, t.group_image, chunk, chunks, block, blocks, row_blocks, block_rows),
        *(depth, lead, *starts[1:4]),
        *itertools.chain(*zip(numbers[::3], numbers[1::3], strict=True)),
        *padded_numbers(t.samples, IMAGES),
    ]
    work = t.groups * t.rows * channels * SQUARE * chunks
    worth = work // tuning.LOOP_WORK_PER_THREAD
    filters = [(t.filters, t.first_filter)]
    second = _kernel("filters", sum_text, filters, t.groups * t.rows, work, worth)
    second.writes = [(t.filters.value.number, None)]
    second.shared = first.shared
    assert t.channel_filter is not None
    second.numbers = [
        *(t.rows, channels, chunks, t.row_filter, t.channel_filter),
        *(t.down_filter, t.across_filter, t.group_filter),
    ]
    second.numbers += [1] * CHANNELS
    return [first, second]


def _parts_of_filters(
    t: Tiles, channels: int, lanes: int, depth: int, wanted: int
) -> tuple[int, int]:
    """Channels and rows of a block; `wanted` blocks that are nearly square transform the least."""
    down = min(math.isqrt(wanted), -(-t.rows // tuning.ROW_GRAIN))
    across = min(-(-wanted // down), -(-channels // lanes))
    # `@multiply` gets no scratch memory here, so it cannot pack more rows.
    most = tuning.MIN_BYTES_TO_PACK // (depth * t.image.value.dtype.itemsize) - tuning.ROW_GRAIN
    rows = min(-(-t.rows // down), most)
    return -(-channels // across // lanes) * lanes, -(-rows // tuning.ROW_GRAIN) * tuning.ROW_GRAIN
