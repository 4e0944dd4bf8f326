"""Contractions as products of matrices, so that a library computes them.

Comes in: a `Contraction`, such as a convolution over windows. Goes out: an `Arrangement`: which of
its dimensions are batches, rows, sums and columns, in the order of the result's memory; and the
strides of operands whose memory already has that order. Called by `emit.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ..ir.program import Access, Contraction, Shape, size_of

Dims = tuple[int, ...]


class Arrangement(NamedTuple):
    """The dimensions of a contraction that are batches, rows, sums and columns of a product."""

    batch: Dims
    rows: Dims
    inner: Dims
    columns: Dims
    #: whether y is the left factor
    swapped: bool


def arranged(contraction: Contraction) -> Arrangement | None:
    """A contraction as a product that writes its result in order; None if it is none."""
    shape, dims = contraction.shape, contraction.dims
    wide = [d for d, n in enumerate(shape) if n > 1]
    in_x, in_y = ({d for d in wide if a.strides[d]} for a in (contraction.x, contraction.y))
    summed = [d for d in wide if d in dims]
    kept = [d for d in wide if d not in dims]
    steps = contraction.out.strides
    if not set(summed) <= in_x & in_y or not set(kept) <= in_x | in_y:
        return None
    if not kept or not all(steps[d] for d in kept):
        return None
    kept.sort(key=lambda d: -abs(steps[d]))
    last, other = (in_x, in_y) if kept[-1] in in_x else (in_y, in_x)
    columns = _run(kept, last - other)
    rows = _run(kept[: len(kept) - len(columns)], other - last)
    if not columns or not rows or not summed:
        return None
    batch = kept[: len(kept) - len(columns) - len(rows)]

    def elements(dims: set[int]) -> int:
        return size_of(tuple(shape[d] for d in dims))

    smaller = contraction.x if elements(in_x) < elements(in_y) else contraction.y
    summed.sort(key=lambda d: -abs(smaller.strides[d]))
    return Arrangement(
        tuple(batch), tuple(rows), tuple(summed), tuple(columns), swapped=last is in_x
    )


def _run(dims: Sequence[int], wanted: set[int]) -> list[int]:
    """The longest run of wanted dimensions at the end."""
    found: list[int] = []
    for d in reversed(dims):
        if d not in wanted:
            break
        found.insert(0, d)
    return found


def grouped(access: Access, shape: Shape, groups: Sequence[Dims]) -> Access | None:
    """An access with each group of dimensions as one; None if their strides do not allow it."""
    found = []
    for group in groups:
        steps = [(access.strides[d], shape[d]) for d in group]
        for (step, _), (next_step, n) in itertools.pairwise(steps):
            if step != next_step * n:
                return None
        found.append(steps[-1][0] if steps else 0)
    return replace(access, strides=tuple(found))
