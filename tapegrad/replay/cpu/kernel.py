"""Kernels: what a native function is to its caller, and how it gets its arguments.

Comes in: the body of a function, written by `loops.py`, `products.py` or `contraction.py`. Goes
out: a `Kernel`: its text, the pointers and numbers of its table, how threads may share it, and
which bytes each step reads and writes (`ByteRange`), from which `emit.py` decides where threads
must wait for each other.
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
    """The bytes of a value that one step touches: from `first` to `end`, `stride` further each.

    With `group`, so many steps touch the same bytes, or parts of them.
    """

    first: int
    end: int
    stride: int
    group: int = 1

    def of(self, low: int, high: int) -> tuple[int, int]:
        """The bytes that the steps from `low` to `high` touch, and what lies between them."""
        if high <= low:
            return 0, 0
        ends = (low // self.group * self.stride, (high - 1) // self.group * self.stride)
        return self.first + min(ends), self.end + max(ends)


def byte_range_of(access: Access, stride: int, others: list[int], group: int = 1) -> ByteRange:
    """The byte range of an access; `others` are the ways that its other dimensions go."""
    size = access.value.dtype.itemsize
    low = access.offset + sum(way for way in others if way < 0)
    high = access.offset + sum(way for way in others if way > 0)
    return ByteRange(low * size, (high + 1) * size, stride * size, group)


@dataclass(frozen=True, slots=True)
class Partial:
    """What each thread leaves of a fold, for the first one to combine: `count` elements."""

    fold: LoopFold
    count: int
    dtype: Any

    @property
    def stride(self) -> int:
        """Bytes from the part of one thread to that of the next."""
        line = tuning.CACHE_LINE_BYTES
        return -(-self.count * int(self.dtype.itemsize) // line) * line


@dataclass(slots=True)
class Kernel:
    """A function `NAME(low, high, thread, table)`, and what its caller must know.

    The table holds its pointers, then the address of its status if it checks, the address and the
    stride of each partial result, those of the scratch memory that all threads share, those of each
    thread's own, and its numbers.
    """

    what: str
    text: str
    pointers: list[tuple[int, int]]  # for each pointer: the value, and an offset in bytes
    extent: int  # steps that threads share
    grain: int  # steps that stay together
    serial: bool  # one thread must do it alone
    worth: int  # how many threads gain something
    work: int
    reads: list[tuple[int, ByteRange | None]]  # values, and the part of each that a step touches
    writes: list[tuple[int, ByteRange | None]]
    numbers: list[int] = field(default_factory=list)
    checks: bool = False
    partials: list[Partial] = field(default_factory=list)
    scratch: int | None = None  # bytes that each thread has for itself while it runs
    #: bytes of scratch memory that all threads share: a kernel fills it for the next one
    shared: int = 0
    fills: bool = False
    #: parts that it may be cut into beyond the number of threads, so that fast ones do more
    pieces: int = 0


def with_entry(
    code: Code, pointers: int, checks: bool = False, partials: int = 0, numbers: int = 0
) -> str:
    """The text of a kernel: its body, and the function that takes its arguments from a table.

    The body has its pointers as parameters because that is where LLVM is told that they are apart.
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
    """How many steps stay together: large powers of two divide alike whatever a step is."""
    each, left = divmod(extent, tuning.BLOCKS_PER_KERNEL)
    return least if left else max(each, least)
