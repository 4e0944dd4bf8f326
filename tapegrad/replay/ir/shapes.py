"""Shapes of loops: the same elements in the same order, with other dimensions.

Comes in: the shape of a loop and the strides of its accesses. Goes out: a shape with fewer or other
dimensions. Adjacent dimensions are joined where every access is contiguous across them, and any
dimension may be divided. Called by `passes/fuse.py`, which fuses loops of one shape, and by the
writers of kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

from .program import Access, Loop, Position, Read, Shape


def joined(
    shape: tuple[int, ...], columns: list[tuple[int, ...]], folded: set[int]
) -> tuple[list[int], list[list[int]], list[bool]]:
    """Join dimensions: the new sizes, the strides of each access, and which ones are folded."""
    sizes: list[int] = []
    strides: list[list[int]] = [[] for _ in columns]
    flags: list[bool] = []
    for d, n in enumerate(shape):
        if n == 1:
            continue
        flag = d in folded
        if (
            sizes
            and flags[-1] == flag
            and all(s[-1] == column[d] * n for s, column in zip(strides, columns, strict=True))
        ):
            sizes[-1] *= n
            for s, column in zip(strides, columns, strict=True):
                s[-1] = column[d]
        else:
            sizes.append(n)
            flags.append(flag)
            for s, column in zip(strides, columns, strict=True):
                s.append(column[d])
    return sizes, strides, flags


def simplest(loop: Loop) -> Loop:
    """A loop with as few dimensions as possible."""
    if loop.scan is not None or len(loop.shape) < 2:
        return loop
    folded = set(loop.folds[0].dims) if loop.folds else set()
    columns = list(dict.fromkeys(_strides(loop)))
    sizes, found, flags = joined(loop.shape, columns, folded)
    if len(sizes) == len(loop.shape):
        return loop
    new = {old: tuple(strides) for old, strides in zip(columns, found, strict=True)}
    if not sizes:
        sizes, flags, new = [1], [bool(folded)], dict.fromkeys(columns, (0,))
    dims = tuple(d for d, flag in enumerate(flags) if flag)
    if loop.folds and not dims:  # the folded dimensions have one element
        return loop
    return _reshaped(loop, tuple(sizes), new.__getitem__, dims)


def common(x: Shape, y: Shape) -> Shape | None:
    """The coarsest shape that divides the dimensions of both, if there is one."""
    if x == y:
        return x
    ends = sorted({*_ends(x), *_ends(y)})
    if 0 in ends or _ends(x)[-1] != _ends(y)[-1]:
        return None
    sizes = [(large // small, large % small) for small, large in pairwise(ends)]
    return None if any(rest for _, rest in sizes) else tuple(n for n, _ in reversed(sizes))


def _ends(shape: Shape) -> list[int]:
    """The products of the last 0, 1, 2, ... sizes of a shape."""
    found = [1]
    for n in reversed(shape):
        found.append(found[-1] * n)
    return found


def divided(loop: Loop, shape: Shape) -> Loop:
    """A loop whose dimensions are divided to give it a shape."""
    if loop.shape == shape:
        return loop
    ends = _ends(shape)
    parts: list[list[int]] = []  # for each dimension, the sizes that it is divided into
    low = 1
    for n in reversed(loop.shape):
        inside = [end for end in ends if low <= end <= low * n]
        parts.insert(0, [large // small for small, large in pairwise(inside)][::-1])
        low *= n

    def strides(old: tuple[int, ...]) -> tuple[int, ...]:
        new: list[int] = []
        for stride, sizes in zip(old, parts, strict=True):
            step, here = stride, list[int]()
            for n in reversed(sizes):
                here.insert(0, step)
                step *= n
            new += here
        return tuple(new)

    folded = set(loop.folds[0].dims) if loop.folds else set()
    flags = [d in folded for d, sizes in enumerate(parts) for _ in sizes]
    return _reshaped(loop, shape, strides, tuple(d for d, flag in enumerate(flags) if flag))


def _strides(loop: Loop) -> Iterator[tuple[int, ...]]:
    def within(access: Access) -> Iterator[tuple[int, ...]]:
        yield access.strides
        for pick in access.picks:
            yield from within(pick.index)

    for node in loop.nodes:
        if isinstance(node, Read):
            yield from within(node.access)
        elif isinstance(node, Position):
            yield node.strides
    for access in (*(s.access for s in loop.stores), *(f.access for f in loop.folds)):
        yield from within(access)


def _reshaped(
    loop: Loop,
    shape: Shape,
    strides: Callable[[tuple[int, ...]], tuple[int, ...]],
    dims: tuple[int, ...],
) -> Loop:
    """A loop over another shape, with other strides and other folded dimensions."""

    def moved(access: Access) -> Access:
        picks = tuple(replace(pick, index=moved(pick.index)) for pick in access.picks)
        return replace(access, strides=strides(access.strides), picks=picks)

    def node_of(node: Any) -> Any:
        if isinstance(node, Read):
            return Read(moved(node.access))
        if isinstance(node, Position):
            return replace(node, strides=strides(node.strides))
        return node

    return replace(
        loop,
        shape=shape,
        nodes=tuple(map(node_of, loop.nodes)),
        stores=tuple(replace(s, access=moved(s.access)) for s in loop.stores),
        folds=tuple(replace(f, access=moved(f.access), dims=dims) for f in loop.folds),
    )
