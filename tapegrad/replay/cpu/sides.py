"""Contractions as products of a matrix: which dimensions belong to which side, and which join.

Comes in: a `Contraction`. Goes out: `Sides`, and dimensions with the strides of two accesses.
Called by `patches.py` and `winograd.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..ir.program import Access, Contraction, size_of


class Dimension(NamedTuple):
    """A size, with the strides of the patches and of the other side along it."""

    size: int
    patches: int
    other: int


class Sides(NamedTuple):
    """A contraction with one side as a matrix: dimensions by their role."""

    matrix: Access
    patches: Access
    groups: list[int]
    rows: list[int]  # of the matrix alone
    kept: list[int]  # of the patches alone
    summed: list[int]


def sides_of(c: Contraction) -> Iterator[Sides]:
    """Both ways to see a contraction; none if a sum broadcasts one operand, or the result both."""
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


def flat_step(c: Contraction, access: Access, dims: Sequence[int]) -> int | None:
    """The stride with which an access walks dimensions, in this order; None if it needs several."""
    step = None
    for d in reversed(dims):
        if step is None:
            step, way = access.strides[d], access.strides[d] * c.shape[d]
        elif access.strides[d] != way:
            return None
        else:
            way *= c.shape[d]
    return 1 if step is None else step


def joined_dimensions(c: Contraction, dims: Sequence[int], x: Access, y: Access) -> list[Dimension]:
    """Dimensions with the strides of two accesses; those that both walk as one are joined."""
    found: list[Dimension] = []
    for d in dims:
        n, a, b = c.shape[d], x.strides[d], y.strides[d]
        if found and (found[-1].patches, found[-1].other) == (a * n, b * n):
            found[-1] = Dimension(found[-1].size * n, a, b)
        else:
            found.append(Dimension(n, a, b))
    return found


def padded_numbers(dims: list[Dimension], count: int) -> list[int]:
    """The numbers of dimensions, padded to the `count` dimensions of a function."""
    filled = [Dimension(1, 0, 0)] * (count - len(dims)) + dims
    return [number for dimension in filled for number in dimension]


def group_of(c: Contraction, s: Sides) -> Dimension | None:
    """The groups as one dimension; None if an access walks them with several strides."""
    found = joined_dimensions(c, s.groups, s.patches, c.out)
    if len(found) > 1 or flat_step(c, s.matrix, s.groups) is None:
        return None
    return found[0] if found else Dimension(1, 0, 0)


def even_part(whole: int, most: int, grain: int = 1) -> int:
    """The size of equal parts of at most `most` steps, in multiples of `grain`."""
    parts = -(-whole // most)
    return min(-(-whole // parts // grain) * grain, max(most, grain))


def count_of(dims: Sequence[Dimension]) -> int:
    return size_of(tuple(d.size for d in dims))
