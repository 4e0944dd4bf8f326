"""Kernels of contractions as matrix products over patches, which are gathered a part at a time.

Comes in: a `Contraction` of a convolution's kind: one operand is a matrix in memory, the other one
shows overlapping windows ("patches"). Goes out: a `Kernel`, or None if the operands are not of that
kind or another way is faster. `gather.py` writes the text. Called by `emit.py`.

The patches are a matrix of taps (the positions in a window, of every channel) times positions (of
the windows):

    positions are kept     out = matrix @ patches          results, and gradients of an input
    positions are summed   out = (patches @ matrix.T).T    gradients of a filter
"""

from __future__ import annotations

from typing import NamedTuple

from ..ir.program import Access, Contraction, size_of
from . import tuning, vectors
from .gather import POSITIONS, SAMPLES, TAPS, text_of
from .kernel import Kernel
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


class Patches(NamedTuple):
    """A contraction as a product over patches: its sizes and strides."""

    summed: bool  # whether positions are summed
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
    run: int  # positions that are contiguous in the result

    @property
    def step(self) -> int:
        """Elements between neighbouring positions."""
        return self.positions[-1].patches


def _kept(c: Contraction, s: Sides) -> Patches | None:
    """Positions are kept: lanes run along them, in the patches and in the result."""
    taps = sorted(s.summed, key=lambda d: -abs(s.matrix.strides[d]))
    positions = sorted(s.kept, key=lambda d: -abs(c.out.strides[d]))
    row, column = flat_step(c, s.matrix, s.rows), flat_step(c, s.matrix, taps)
    row_out, group = flat_step(c, c.out, s.rows), group_of(c, s)
    if not positions or row is None or column is None or row_out is None or group is None:
        return None
    inside = joined_dimensions(c, positions, s.patches, c.out)
    outside = joined_dimensions(c, positions, c.out, c.out)
    if not 1 <= inside[-1].patches <= tuning.MAX_VECTOR_STEP or inside[-1].other < 1:
        return None
    last = outside[-1]
    return Patches(
        summed=False,
        matrix=s.matrix,
        patches=s.patches,
        rows=size_of(tuple(c.shape[d] for d in s.rows)),
        taps=joined_dimensions(c, taps, s.patches, s.patches),
        positions=inside,
        outside=outside,
        group=group,
        group_matrix=flat_step(c, s.matrix, s.groups) or 0,
        row_matrix=row,
        column_matrix=column,
        row_out=row_out,
        column_out=last.other,
        run=last.size if last.other == 1 and row_out >= last.size else 1,
    )


def _summed(c: Contraction, s: Sides) -> Patches | None:
    """Positions are summed: the sums of all rows lie side by side, one tap after another."""
    positions = sorted(s.summed, key=lambda d: -abs(s.matrix.strides[d]))
    taps = sorted(s.kept, key=lambda d: -abs(c.out.strides[d]))
    samples: list[int] = []
    while positions and flat_step(c, s.matrix, positions) != 1:
        samples.append(positions.pop(0))
    row, row_out = flat_step(c, s.matrix, s.rows), flat_step(c, c.out, s.rows)
    column_out, group = flat_step(c, c.out, taps), group_of(c, s)
    if not positions or row is None or row_out is None or column_out is None or group is None:
        return None
    inside = joined_dimensions(c, positions, s.patches, s.matrix)
    if not 1 <= inside[-1].patches <= tuning.MAX_VECTOR_STEP or row < count_of(inside):
        return None
    return Patches(
        summed=True,
        matrix=s.matrix,
        patches=s.patches,
        rows=size_of(tuple(c.shape[d] for d in s.rows)),
        taps=joined_dimensions(c, taps, s.patches, s.patches),
        positions=inside,
        outside=joined_dimensions(c, samples, s.patches, s.matrix),
        group=group,
        group_matrix=flat_step(c, s.matrix, s.groups) or 0,
        row_matrix=row,
        column_matrix=1,
        row_out=row_out,
        column_out=column_out,
        run=1,
    )


def _shape(c: Contraction, lanes: int) -> Patches | None:
    """The cheapest way to see a contraction as a product over patches; None if there is none."""
    found = []
    for sides in sides_of(c):
        for shape in (_kept(c, sides), _summed(c, sides)):
            if shape is None or len(shape.taps) > TAPS or len(shape.positions) > POSITIONS:
                continue
            if len(shape.outside) <= (SAMPLES if shape.summed else POSITIONS):
                found.append(shape)
    return min(found, key=lambda shape: _copying(shape, lanes), default=None)


def _filled(s: Patches, lanes: int) -> float:
    """The fraction of lanes that a row of positions fills; short rows use shorter vectors."""
    row = s.positions[-1].size
    lanes = min(lanes, 1 << (row - 1).bit_length())
    return row / (-(-row // lanes) * lanes)


def _copying(s: Patches, lanes: int) -> float:
    """The cost of copies per multiplication of a vector, in such multiplications."""
    gathering = tuning.MULTIPLICATIONS_PER_GATHERED_VECTOR / (_filled(s, lanes) * s.rows)
    # `@multiply` transposes the matrix for each block of taps.
    packing = tuning.MULTIPLICATIONS_PER_TRANSPOSED_VECTOR / min(
        count_of(s.taps), tuning.MAX_PATCH_ROWS
    )
    return gathering + packing * s.summed


# -- how it is divided -----------------------------------------------------------------------------


def patches(c: Contraction, threads: int) -> Kernel | None:
    """The kernel of a contraction as a product over patches; None if another way is better."""
    dtype = c.out.value.dtype
    size = dtype.itemsize
    lanes = vectors.registers()[0] // size
    s = _shape(c, lanes)
    if s is None or not _pays(s, lanes):
        return None
    taps, positions, samples = count_of(s.taps), count_of(s.positions), count_of(s.outside)
    width = lanes * tuning.MAX_PANEL_VECTORS
    row_blocks, run = 1, 1
    if s.summed:
        depth = even_part(positions, tuning.MAX_PATCH_POSITIONS)
        wanted = -(-threads // s.group.size)
        block = even_part(taps, min(-(-taps // wanted), tuning.MAX_PATCH_ROWS), tuning.ROW_GRAIN)
        blocks, block_rows = -(-taps // block), s.rows
        lead = depth + lanes
        gathered, sums = block * lead, block * s.rows
    else:
        depth = even_part(taps, tuning.MAX_PATCH_TAPS)
        block, block_rows = _blocks(s, positions, width, threads)
        blocks, row_blocks = -(-positions // block), -(-s.rows // block_rows)
        lead, samples = width, 1
        run = s.run if depth == taps else 1
        gathered, sums = depth * width, block_rows * width
    line = tuning.CACHE_LINE_BYTES
    starts = [0]
    span = depth if s.summed else width
    for length in (8 * taps, 24 * span, (gathered + lanes) * size, sums * size):
        starts.append(starts[-1] + -(-length // line) * line)
    numbers = [
        *(s.rows, taps, positions, s.row_matrix, s.column_matrix, s.row_out, s.column_out),
        *(s.group_matrix, s.group.patches, s.group.other, depth, width, lead, block_rows),
        *(row_blocks, block, blocks, samples, run, *starts[1:4]),
        *padded_numbers(s.taps, TAPS),
        *padded_numbers(s.positions, POSITIONS),
        *padded_numbers(s.outside, SAMPLES if s.summed else POSITIONS),
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
        1 + work // tuning.PRODUCT_OPERATIONS_PER_THREAD,
        work,
        [(s.matrix.value.number, None), (s.patches.value.number, None)],
        [(c.out.value.number, None)],
        numbers,
        scratch=starts[-1],
    )


def _blocks(s: Patches, positions: int, width: int, threads: int) -> tuple[int, int]:
    """Positions and rows of a block: enough blocks for all threads, but as large as possible."""
    wanted = -(-threads // s.group.size)
    panels = -(-positions // width)
    across = min(panels, wanted)
    down = min(-(-wanted // across), -(-s.rows // tuning.ROW_GRAIN))
    rows = even_part(s.rows, -(-s.rows // down), tuning.ROW_GRAIN)
    return even_part(panels, -(-panels // across)) * width, rows


def _pays(s: Patches, lanes: int) -> bool:
    """Whether copying patches takes less time than reading them in place would waste."""
    wide = s.summed or _filled(s, lanes) >= tuning.MIN_FILLED_VECTORS
    if s.rows < (tuning.MIN_ROWS_FOR_PATCHES if wide else tuning.MIN_ROWS_FOR_SHORT_PATCHES):
        return False
    if s.summed:
        return True
    # In place, vectors go along a row of positions, and each tile reads its patches again.
    whole = s.positions[-1].size % lanes == 0 and s.step == 1
    size = s.patches.value.dtype.itemsize
    span = size * sum((d.size - 1) * abs(d.patches) for d in s.taps)
    return not (whole and len(s.taps) > 1 and span <= tuning.MAX_PATCH_BYTES_IN_PLACE)
