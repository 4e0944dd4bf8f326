"""Kernels of contractions as matrix products over patches, which are gathered a part at a time.

Comes in: a `Contraction` of a convolution's kind: one operand is a matrix in memory, the other one
shows overlapping windows ("patches"). Goes out: a `Kernel`, or None where the operands are not of
that kind or another way is faster. `gather.py` writes the text. Called by `emit.py`.

The patches are a matrix of taps (the positions in a window, of every channel) times positions (of
the windows):

    positions are kept     out = matrix @ patches          results, and gradients of an input
    positions are summed   out = (patches @ matrix.T).T    gradients of a filter
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..ir.program import Access, Contraction, size_of
from . import tuning, vectors
from .gather import POSITIONS, SAMPLES, TAPS, text_of
from .kernel import Kernel


class Dimension(NamedTuple):
    """A size, the step of the patches along it, and that of the other side."""

    size: int
    patches: int
    other: int


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


class Patches(NamedTuple):
    """A contraction as a product over patches, in numbers."""

    summed: bool  # the positions
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

    @property
    def step(self) -> int:
        """Elements between neighbouring positions."""
        return self.positions[-1].patches


def _kept(c: Contraction, s: Sides) -> Patches | None:
    """Positions are kept: lanes run along them, in the patches and in the result."""
    taps = sorted(s.summed, key=lambda d: -abs(s.matrix.strides[d]))
    positions = sorted(s.kept, key=lambda d: -abs(c.out.strides[d]))
    row, column = _flat(c, s.matrix, s.rows), _flat(c, s.matrix, taps)
    row_out, group = _flat(c, c.out, s.rows), _group(c, s)
    if not positions or row is None or column is None or row_out is None or group is None:
        return None
    inside = _joined(c, positions, s.patches, c.out)
    outside = _joined(c, positions, c.out, c.out)
    if not 1 <= inside[-1].patches <= tuning.MAX_VECTOR_STEP or inside[-1].other < 1:
        return None
    last = outside[-1]
    return Patches(
        summed=False,
        matrix=s.matrix,
        patches=s.patches,
        rows=size_of(tuple(c.shape[d] for d in s.rows)),
        taps=_joined(c, taps, s.patches, s.patches),
        positions=inside,
        outside=outside,
        group=group,
        group_matrix=_flat(c, s.matrix, s.groups) or 0,
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
    while positions and _flat(c, s.matrix, positions) != 1:
        samples.append(positions.pop(0))
    row, row_out = _flat(c, s.matrix, s.rows), _flat(c, c.out, s.rows)
    column_out, group = _flat(c, c.out, taps), _group(c, s)
    if not positions or row is None or row_out is None or column_out is None or group is None:
        return None
    inside = _joined(c, positions, s.patches, s.matrix)
    if not 1 <= inside[-1].patches <= tuning.MAX_VECTOR_STEP or row < _count(inside):
        return None
    return Patches(
        summed=True,
        matrix=s.matrix,
        patches=s.patches,
        rows=size_of(tuple(c.shape[d] for d in s.rows)),
        taps=_joined(c, taps, s.patches, s.patches),
        positions=inside,
        outside=_joined(c, samples, s.patches, s.matrix),
        group=group,
        group_matrix=_flat(c, s.matrix, s.groups) or 0,
        row_matrix=row,
        column_matrix=1,
        row_out=row_out,
        column_out=column_out,
        run=1,
    )


def _group(c: Contraction, s: Sides) -> Dimension | None:
    """The groups as one dimension; None if an access walks them with several steps."""
    found = _joined(c, s.groups, s.patches, c.out)
    if len(found) > 1 or _flat(c, s.matrix, s.groups) is None:
        return None
    return found[0] if found else Dimension(1, 0, 0)


def _shape(c: Contraction, lanes: int) -> Patches | None:
    """A contraction as a product over patches, if it can be seen as one: the cheapest way."""
    found = []
    for sides in _sides(c):
        for shape in (_kept(c, sides), _summed(c, sides)):
            if shape is None or len(shape.taps) > TAPS or len(shape.positions) > POSITIONS:
                continue
            if len(shape.outside) <= (SAMPLES if shape.summed else POSITIONS):
                found.append(shape)
    return min(found, key=lambda shape: _copying(shape, lanes), default=None)


def _filled(s: Patches, lanes: int) -> float:
    """Which part of the lanes of its vectors a row of positions fills; short ones have fewer."""
    row = s.positions[-1].size
    lanes = min(lanes, 1 << (row - 1).bit_length())
    return row / (-(-row // lanes) * lanes)


def _copying(s: Patches, lanes: int) -> float:
    """What copies take for each multiplication of a vector, in the time of one."""
    gathering = tuning.MULTIPLICATIONS_PER_GATHERED_VECTOR / (_filled(s, lanes) * s.rows)
    # `@multiply` transposes the matrix for each block of taps.
    packing = tuning.MULTIPLICATIONS_PER_TRANSPOSED_VECTOR / min(
        _count(s.taps), tuning.MAX_PATCH_ROWS
    )
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
    row_blocks, run = 1, 1
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
        1 + work // tuning.PRODUCT_OPERATIONS_PER_THREAD,
        work,
        [(s.matrix.value.number, None), (s.patches.value.number, None)],
        [(c.out.value.number, None)],
        numbers,
        scratch=starts[-1],
    )


def _blocks(s: Patches, positions: int, width: int, threads: int) -> tuple[int, int]:
    """Positions and rows of a block: enough of them for all threads, and else as large as fit."""
    wanted = -(-threads // s.group.size)
    panels = -(-positions // width)
    across = min(panels, wanted)
    down = min(-(-wanted // across), -(-s.rows // tuning.ROW_GRAIN))
    rows = _even(s.rows, -(-s.rows // down), tuning.ROW_GRAIN)
    return _even(panels, -(-panels // across)) * width, rows


def _pays(s: Patches, lanes: int) -> bool:
    """Whether copying patches takes less time than what reading them in place would waste."""
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
