"""Kernels: the interface of a native function to its caller, and how it gets its arguments.

Comes in: the body of a function, written by `loops.py`, `products.py` or `contraction.py`. Goes
out: a `Kernel`: its text, the pointers and numbers of its table, how threads may share it, and
which bytes each step reads and writes (`ByteRange`). From these bytes `emit.py` decides where
threads must wait for each other.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from ..ir.program import (
    Access,
    LoopFold,
)
from ..native.code import Code
from . import tuning


@dataclass(frozen=True, slots=True)
class ByteRange:
    """The bytes of a value that a step touches: `first` to `end`, moved by `stride` per step.

    Each `group` of consecutive steps touches the same bytes, or parts of them.
    """

    first: int
    end: int
    stride: int
    group: int = 1

    def of(self, low: int, high: int) -> tuple[int, int]:
        """The bytes that the steps from `low` to `high` touch, with the gaps between them."""
        if high <= low:
            return 0, 0
        ends = (low // self.group * self.stride, (high - 1) // self.group * self.stride)
        return self.first + min(ends), self.end + max(ends)


def byte_range_of(access: Access, stride: int, others: list[int], group: int = 1) -> ByteRange:
    """The byte range of an access; `others` has the extents of its other dimensions in elements."""
    size = access.value.dtype.itemsize
    low = access.offset + sum(way for way in others if way < 0)
    high = access.offset + sum(way for way in others if way > 0)
    return ByteRange(low * size, (high + 1) * size, stride * size, group)


@dataclass(frozen=True, slots=True)
class Partial:
    """The partial results of a fold: each thread leaves `count` elements, to be combined."""

    fold: LoopFold
    count: int
    dtype: Any

    @property
    def stride(self) -> int:
        """Bytes between the partial results of neighbouring threads."""
        line = tuning.CACHE_LINE_BYTES
        return -(-self.count * int(self.dtype.itemsize) // line) * line


@dataclass(slots=True)
class Kernel:
    """A function `NAME(low, high, thread, table)`, and all that its caller must know.

    The table holds its pointers, the address of its status if it checks, the address and stride of
    each partial result, those of the scratch memory that all threads share, those of each thread's
    own scratch memory, and its numbers.
    """

    what: str
    text: str
    pointers: list[tuple[int, int]]  # for each pointer: the value, and an offset in bytes
    extent: int  # steps that threads share
    grain: int  # steps that stay together
    serial: bool  # one thread must do it alone
    worth: int  # the number of threads that pay
    work: int
    reads: list[tuple[int, ByteRange | None]]  # values, and the bytes of each that a step touches
    writes: list[tuple[int, ByteRange | None]]
    numbers: list[int] = field(default_factory=list)
    checks: bool = False
    partials: list[Partial] = field(default_factory=list)
    scratch: int | None = None  # bytes that each thread has for itself while it runs
    #: bytes of scratch memory that all threads share: a kernel fills it for the next one
    shared: int = 0
    fills: bool = False
    #: how many parts it may have, if more than threads are useful: fast threads do more of them
    pieces: int = 0


def with_entry(
    code: Code, pointers: int, checks: bool = False, partials: int = 0, numbers: int = 0
) -> str:
    """The text of a kernel: its body, and the function that takes its arguments from a table.

    The body has its pointers as parameters, because only parameters can be `noalias` for LLVM.
    """
    entry = Code()
    parameters, given = ["i64 %low", "i64 %high"], ["i64 %low", "i64 %high"]
    names = [f"ptr noalias %p{i}" for i in range(pointers)] + ["ptr %status"] * checks
    names += [f"ptr noalias %partial{i}" for i in range(partials)]
    names += [f"i64 %number{i}" for i in range(numbers)]
    positions = itertools.count()

    def following() -> str:
        return entry.value(f"getelementptr inbounds i64, ptr %table, i64 {next(positions)}")

    for name in names:
        kind = name.split()[0]
        found = entry.value(f"load {kind}, ptr {following()}")
        if "partial" in name:
            stride = entry.value(f"load i64, ptr {following()}")
            mine = entry.value(f"mul nsw i64 %thread, {stride}")
            found = entry.value(f"getelementptr inbounds i8, ptr {found}, i64 {mine}")
        parameters.append(name)
        given.append(f"{kind} {found}")
    entry.line(f"call void @body({', '.join(given)})")
    entry.line("ret void")
    head = "define void @NAME(i64 %low, i64 %high, i64 %thread, ptr %table) nounwind"
    body = f"define internal void @body({', '.join(parameters)}) noinline nounwind"
    declared = "\n".join(sorted(code.declared))
    return f"{code.function(body)}{entry.function(head)}{declared}\n"


def grain_of(extent: int, least: int) -> int:
    """How many steps stay together: large powers of two are divided alike, whatever a step is."""
    each, left = divmod(extent, tuning.BLOCKS_PER_KERNEL)
    return least if left else max(each, least)
