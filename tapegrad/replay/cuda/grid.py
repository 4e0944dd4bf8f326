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


class KernelParameter(NamedTuple):
    """What a kernel is given: the address of memory, or of a word that holds one."""

    name: str
    #: whether no other parameter leads to the same bytes
    apart: bool = True
    #: whether the address is found when the kernel runs, because it changes from run to run: then
    #: the parameter is the address of the word that holds it, and the memory begins `offset` bytes
    #: from there
    found: bool = False
    offset: int = 0

    def declared(self) -> str:
        return f"ptr{' noalias' * self.apart} {self.name}"


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
        if any(parameter.found for parameter in parameters):
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
        given = []
        for parameter in parameters:
            pointer = parameter.name
            if parameter.found:
                # All of this is global memory, which is faster to reach than memory of any kind.
                word = code.value(f"load ptr addrspace(1), ptr {pointer}")
                if parameter.offset:
                    step = f"ptr addrspace(1) {word}, i64 {parameter.offset}"
                    word = code.value(f"getelementptr inbounds i8, {step}")
                pointer = code.value(f"addrspacecast ptr addrspace(1) {word} to ptr")
            given.append(f"ptr {pointer}")
        code.line(f"call void @body({', '.join(given)})")
        code.line("ret void")
        names = ", ".join(f"ptr {parameter.name}" for parameter in parameters)
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
            pointer = entry.value(f"load ptr, ptr {at}")
            if parameter.found:
                pointer = entry.value(f"load ptr, ptr {pointer}")
                pointer = entry.value(f"getelementptr i8, ptr {pointer}, i64 {parameter.offset}")
            given.append(f"ptr {pointer}")
        with entry.loop("%low", "%high") as block:
            entry.line(f"call void @body({', '.join([f'i64 {block}', *given])})")
        entry.line("ret void")
        head = "define void @NAME(i64 %low, i64 %high, i64 %thread, ptr %table) nounwind"
        names = "\n".join(sorted(self.code.declared | entry.declared))
        return f"{self.code.function(body)}{entry.function(head)}{names}\n"
