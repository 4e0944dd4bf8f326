"""Kernels of a grid: all that a launch needs to know of a kernel.

Comes in: the body of a kernel, written by `loops.py`. Goes out: a `GridKernel`: its text, its
pointers, and its numbers of blocks and threads. `emit.py` makes launches of kernels.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from .grid import Grid, KernelParameter


@dataclass(slots=True)
class GridKernel:
    """A kernel and its grid.

    Its parameters are its pointers; its own status word, if it checks data; the word that is set
    once any kernel has found bad data, if it checks or is guarded; its partial results; and its
    numbers. A guarded kernel does nothing once bad data were found.
    """

    what: str
    text: str
    blocks: int
    threads: int
    pointers: list[tuple[int, int]]  # for each pointer: the value, and an offset in bytes
    checks: bool = False
    guarded: bool = False
    #: bytes of scratch memory for each of its partial results
    partials: list[int] = field(default_factory=list)
    #: sizes and strides that are parameters rather than constants in the text
    numbers: list[int] = field(default_factory=list)


def parameters(
    pointers: list[tuple[int, int]],
    moving: Collection[int],
    held: Collection[int],
    checks: bool,
    guarded: bool,
    partials: int,
    numbers: int,
) -> list[KernelParameter]:
    """The parameters of a kernel; it looks up the addresses of values that move."""
    found = [
        KernelParameter(
            f"%p{i}",
            found=number in moving,
            offset=offset if number in moving else 0,
            held=number in held,
        )
        for i, (number, offset) in enumerate(pointers)
    ]
    found += [KernelParameter("%status", apart=False)] * checks
    found += [KernelParameter("%failed", apart=False)] * (checks or guarded)
    found += [KernelParameter(f"%partial{i}") for i in range(partials)]
    return found + [KernelParameter(f"%number{i}", whole=True) for i in range(numbers)]


def unravelled(grid: Grid, flat: str, sizes: list[str], total: int) -> list[str]:
    """The indices of the element at a flat row-major position; there are `total` elements."""
    code = grid.code
    if len(sizes) == 1:
        return [flat]
    # 32-bit divisions are several times as fast as 64-bit ones.
    kind = "i32" if total < 1 << 31 else "i64"
    rest = flat if kind == "i64" else code.value(f"trunc i64 {flat} to i32")
    indices: list[str] = []
    for size in reversed(sizes[1:]):
        known = kind == "i64" or size.isdigit()
        n = size if known else code.value(f"trunc i64 {size} to i32")
        above = code.value(f"udiv {kind} {rest}, {n}")
        whole = code.value(f"mul {kind} {above}, {n}")
        indices.append(code.value(f"sub {kind} {rest}, {whole}"))
        rest = above
    indices.append(rest)
    if kind == "i32":
        indices = [code.value(f"zext nneg i32 {index} to i64") for index in indices]
    return indices[::-1]
