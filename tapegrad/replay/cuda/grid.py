"""Grids: the text of a kernel whose blocks of threads do the same work on different elements.

Comes in: what one thread does, written with the methods of `Code`, in phases. All threads of a
block end a phase before one of them begins the next, and what they leave for each other lies in
memory that the block shares. Goes out: the text of a kernel. There are two kinds of grids with one
interface: `DeviceGrid` writes a kernel of a GPU, where a phase begins with a barrier; `HostGrid`
writes a function of the CPU, where a phase is a loop over the threads of a block. So everything
that is written with grids is tested without a GPU. Called by `loops.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, Protocol

from ..native.code import Code, memory_type

#: the number of the metadata that says how many threads a kernel has: above those of loops
_LIMIT = 1 << 20

#: what functions of the C library have before their names in the library for GPUs
LIBRARY_PREFIX = "__nv_"


class GridCode(Code):
    """Text of a kernel: what may fail also says so where all later kernels look."""

    def fail(self, condition: str, failure: int) -> None:
        self.fails = True
        with self.when(condition):
            self.line(f"store i64 {failure}, ptr %status")
            self.line("store i64 1, ptr %failed")


class DeviceCode(GridCode):
    """Text for a GPU, which has functions in a library of its own (libdevice)."""

    def library(self, name: str, single: bool) -> str:
        return f"{LIBRARY_PREFIX}{name}{'f' if single else ''}"

    def quotient(self, x: str, y: str) -> str:
        # An exact one has a branch, and nothing is read ahead of that.
        return self.call("float", "llvm.nvvm.div.approx.f", ("float", x), ("float", y))


class KernelParameter(NamedTuple):
    """What a kernel is given: the address of memory, or of a word that holds one, or a number."""

    name: str
    #: whether no other parameter leads to the same bytes
    apart: bool = True
    #: whether the address is found when the kernel runs, because it changes from run to run: then
    #: the parameter is the address of the word that holds it, and the memory begins `offset` bytes
    #: from there
    found: bool = False
    offset: int = 0
    #: whether the parameter is no address but a word with the bytes of one number, which the body
    #: reads as if it were in memory
    held: bool = False
    #: whether it is a whole number, such as a size
    whole: bool = False

    def declared(self) -> str:
        """The parameter of the body of a kernel."""
        if self.whole:
            return f"i64 {self.name}"
        return f"ptr{' noalias' * self.apart} {self.name}"

    @property
    def kind(self) -> str:
        """The type of what the kernel itself is given."""
        return "i64" if self.held or self.whole else "ptr"

    def passed_on(self, code: Code, given: str, space: str) -> str:
        """What the body gets for what the kernel was given."""
        if self.whole:
            return f"i64 {given}"
        if self.held:
            number = code.name()
            code.first.append(f"  {number} = alloca i64")
            code.line(f"store i64 {given}, ptr {number}")
            return f"ptr {number}"
        if not self.found:
            return f"ptr {given}"
        word = code.value(f"load ptr{space}, ptr {given}")
        if self.offset:
            word = code.value(f"getelementptr inbounds i8, ptr{space} {word}, i64 {self.offset}")
        return f"ptr {code.value(f'addrspacecast ptr{space} {word} to ptr') if space else word}"


class Grid(Protocol):
    """What writers of kernels need: threads, phases, shared memory."""

    code: Code
    #: threads of a block
    threads: int

    def guard(self) -> None:
        """Do nothing from here on if a kernel has found bad data."""

    def phase(self, in_warp: bool = False) -> Any:
        """A context in which all threads of a block do something; gives the number of the thread.

        If it is enough that the 32 threads of each warp have ended the phase before, it is
        `in_warp`. Nothing that a thread has in registers lasts from one phase to the next.
        """

    def shared(self, dtype: Any, count: int) -> str:
        """A pointer to `count` elements that the threads of a block share."""

    def add(self, pointer: str, dtype: Any, text: str) -> None:
        """Add to an element that other threads may add to at the same time."""

    def text(self, parameters: list[KernelParameter]) -> str:
        """The text of the kernel, which the parameters are given to."""


class _Guarded:
    """What both kinds of grids do when they begin and end."""

    code: Code

    def __init__(self) -> None:
        self._guards = ExitStack()

    def guard(self) -> None:
        failed = self.code.value("load i64, ptr %failed")
        self._guards.enter_context(self.code.when(self.code.value(f"icmp eq i64 {failed}, 0")))

    def _end(self) -> None:
        self._guards.close()
        self.code.line("ret void")


class DeviceGrid(_Guarded):
    """A kernel of a GPU. `%block` is the number of the block."""

    def __init__(self, threads: int) -> None:
        super().__init__()
        self.code: Code = DeviceCode()
        self.threads = threads
        self._phases = 0
        self._shared: list[str] = []
        block = self.code.call("i32", "llvm.nvvm.read.ptx.sreg.ctaid.x")
        self.code.line(f"%block = zext nneg i32 {block} to i64")
        lane = self.code.call("i32", "llvm.nvvm.read.ptx.sreg.tid.x")
        self.code.line(f"%lane = zext nneg i32 {lane} to i64")

    @contextmanager
    def phase(self, in_warp: bool = False) -> Iterator[str]:
        if self._phases and in_warp:
            self.code.call("void", "llvm.nvvm.bar.warp.sync", ("i32", "-1"), pure=False)
        elif self._phases:
            self.code.call("void", "llvm.nvvm.barrier0", pure=False)
        self._phases += 1
        yield "%lane"

    def shared(self, dtype: Any, count: int) -> str:
        name = f"@shared{len(self._shared)}"
        kind = f"[{count} x {memory_type(dtype)}]"
        self._shared.append(f"{name} = internal addrspace(3) global {kind} undef, align 16")
        return self.code.value(f"addrspacecast ptr addrspace(3) {name} to ptr")

    def add(self, pointer: str, dtype: Any, text: str) -> None:
        kind = memory_type(dtype)
        operation = "fadd" if kind in ("float", "double") else "add"
        self.code.line(f"atomicrmw {operation} ptr {pointer}, {kind} {text} monotonic")

    def text(self, parameters: list[KernelParameter]) -> str:
        self._end()
        given = ", ".join(parameter.declared() for parameter in parameters)
        declared = [*self._shared, *sorted(self.code.declared)]
        if any(parameter.found or parameter.held for parameter in parameters):
            # A function tells LLVM that its pointers are apart, also where it is inlined.
            body = self.code.function(f"define internal void @body({given}) alwaysinline nounwind")
            kernel = body + self._entry(parameters)
        else:
            kernel = self.code.function(f"define ptx_kernel void @NAME({given}) nounwind")
        limit = f'!{_LIMIT} = !{{ptr @NAME, !"maxntidx", i32 {self.threads}}}'
        limits = f"!nvvm.annotations = !{{!{_LIMIT}}}"
        return "\n".join([*declared, kernel, limit, limits, ""])

    def _entry(self, parameters: list[KernelParameter]) -> str:
        """A kernel that looks up addresses."""
        code = Code()
        # All of this is global memory, which is faster to reach than memory of any kind.
        found = [p.passed_on(code, p.name, " addrspace(1)") for p in parameters]
        code.line(f"call void @body({', '.join(found)})")
        code.line("ret void")
        names = ", ".join(f"{parameter.kind} {parameter.name}" for parameter in parameters)
        return code.function(f"define ptx_kernel void @NAME({names}) nounwind")


class HostGrid(_Guarded):
    """The same as a function of the CPU for the blocks from `low` to `high`.

    It has the interface of all native functions here: see `cpu/kernel.py`.
    """

    def __init__(self, threads: int) -> None:
        super().__init__()
        self.code: Code = GridCode()
        self.threads = threads

    @contextmanager
    def phase(self, in_warp: bool = False) -> Iterator[str]:
        with self.code.loop("0", str(self.threads)) as lane:
            yield lane

    def shared(self, dtype: Any, count: int) -> str:
        name = self.code.name()
        self.code.first.append(f"  {name} = alloca [{count} x {memory_type(dtype)}], align 16")
        return name

    def add(self, pointer: str, dtype: Any, text: str) -> None:
        kind = memory_type(dtype)
        old = self.code.value(f"load {kind}, ptr {pointer}")
        operation = "fadd" if kind in ("float", "double") else "add"
        new = self.code.value(f"{operation} {kind} {old}, {text}")
        self.code.line(f"store {kind} {new}, ptr {pointer}")

    def text(self, parameters: list[KernelParameter]) -> str:
        self._end()
        declared = ["i64 %block", *(parameter.declared() for parameter in parameters)]
        body = f"define internal void @body({', '.join(declared)}) nounwind"
        entry = Code()
        given = []
        for i, parameter in enumerate(parameters):
            at = entry.value(f"getelementptr inbounds i64, ptr %table, i64 {i}")
            word = entry.value(f"load {parameter.kind}, ptr {at}")
            given.append(parameter.passed_on(entry, word, ""))
        with entry.loop("%low", "%high") as block:
            entry.line(f"call void @body({', '.join([f'i64 {block}', *given])})")
        entry.line("ret void")
        head = "define void @NAME(i64 %low, i64 %high, i64 %thread, ptr %table) nounwind"
        names = "\n".join(sorted(self.code.declared | entry.declared))
        return f"{self.code.function(body)}{entry.function(head)}{names}\n"
