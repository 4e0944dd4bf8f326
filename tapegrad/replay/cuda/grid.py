"""Grids: the text of a kernel whose blocks of threads do the same work on different elements.

Comes in: the code of one thread, written with the methods of `Code`, in phases. All threads of a
block end a phase before any of them begins the next, and exchange data in the block's shared
memory. Goes out: the text of a kernel. There are two kinds of grids with one interface:
`DeviceGrid` writes a kernel of a GPU, in which a phase begins with a barrier; `HostGrid` writes a
function of the CPU, in which a phase is a loop over the threads of a block. So all code written
with grids can be tested without a GPU. Called by `loops.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, Protocol

from ..native.code import Code, memory_type

#: the number of the metadata for a kernel's thread count: above those of loops
_LIMIT = 1 << 20

#: the prefix of C library functions in the library for GPUs
LIBRARY_PREFIX = "__nv_"


class GridCode(Code):
    """Text of a kernel; a failure also sets the word that all later kernels check."""

    def fail(self, condition: str, failure: int) -> None:
        self.fails = True
        with self.when(condition):
            self.line(f"store i64 {failure}, ptr %status")
            self.line("store i64 1, ptr %failed")


class DeviceCode(GridCode):
    """Text for a GPU, whose C library is libdevice."""

    def library(self, name: str, single: bool) -> str:
        return f"{LIBRARY_PREFIX}{name}{'f' if single else ''}"

    def quotient(self, x: str, y: str) -> str:
        # An exact quotient has a branch, and LLVM hoists no loads above it.
        return self.call("float", "llvm.nvvm.div.approx.f", ("float", x), ("float", y))


class KernelParameter(NamedTuple):
    """A parameter of a kernel: an address, the address of a word that holds one, or a number."""

    name: str
    #: whether it aliases no other parameter
    apart: bool = True
    #: whether the kernel looks up the address when it runs, because the memory moves: then the
    #: parameter is the address of the word that holds it, and the memory begins `offset` bytes
    #: behind that address
    found: bool = False
    offset: int = 0
    #: whether it is a word with the bytes of one number, which the body reads as if it were in
    #: memory
    held: bool = False
    #: whether it is an integer, such as a size
    whole: bool = False

    def declared(self) -> str:
        """The declaration of the body's parameter."""
        if self.whole:
            return f"i64 {self.name}"
        return f"ptr{' noalias' * self.apart} {self.name}"

    @property
    def kind(self) -> str:
        """The type of the kernel's own parameter."""
        return "i64" if self.held or self.whole else "ptr"

    def passed_on(self, code: Code, given: str, space: str) -> str:
        """The body's argument, made of the kernel's argument `given`."""
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
        """Skip all that follows if a kernel has found bad data."""

    def phase(self, in_warp: bool = False) -> Any:
        """A context whose code all threads of a block run; gives the number of the thread.

        With `in_warp`, only the 32 threads of a warp wait for each other to end the phase before.
        Registers of a thread do not last from one phase to the next.
        """

    def shared(self, dtype: Any, count: int) -> str:
        """A pointer to `count` elements that the threads of a block share."""

    def add(self, pointer: str, dtype: Any, text: str) -> None:
        """Add to an element atomically."""

    def text(self, parameters: list[KernelParameter]) -> str:
        """The text of the kernel with these parameters."""


class _Guarded:
    """The common part of both kinds of grids."""

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
            # A function's parameters can be `noalias`, which inlining keeps.
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
        # All of it is global memory, which is faster to access than generic addresses.
        found = [p.passed_on(code, p.name, " addrspace(1)") for p in parameters]
        code.line(f"call void @body({', '.join(found)})")
        code.line("ret void")
        names = ", ".join(f"{parameter.kind} {parameter.name}" for parameter in parameters)
        return code.function(f"define ptx_kernel void @NAME({names}) nounwind")


class HostGrid(_Guarded):
    """The same as a function of the CPU, for the blocks from `low` to `high`.

    The function has the interface of all kernels of the CPU: see `cpu/kernel.py`.
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
