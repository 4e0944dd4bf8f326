"""Text of LLVM IR: registers, blocks and loops of one function.

Comes in: calls of the methods of `Code`. Goes out: the text of a function; LLVM parses text anyway.
A `Register` is a typed value of one element. Memory holds booleans as bytes. float16 and bfloat16
exist only in memory: a register holds a float whose value is rounded to that dtype. Complex numbers
are copied as integers, and have no arithmetic. Called by all code that writes kernels.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from ...core import numeric
from ..ir.expressions import NoLowering

BOOL = np.dtype(np.bool_)
INT32 = np.dtype(np.int32)
INT64 = np.dtype(np.int64)
UINT64 = np.dtype(np.uint64)
FLOAT16 = np.dtype(np.float16)
FLOAT32 = np.dtype(np.float32)
FLOAT64 = np.dtype(np.float64)

#: the LLVM type of an element in a register
TYPES: dict[Any, str] = {
    BOOL: "i1",
    np.dtype(np.uint8): "i8",
    np.dtype(np.int8): "i8",
    np.dtype(np.int16): "i16",
    INT32: "i32",
    INT64: "i64",
    UINT64: "i64",
    FLOAT32: "float",
    FLOAT64: "double",
}


#: metadata of loops that must not be unrolled
ROLLED = '!0 = !{!"llvm.loop.unroll.disable"}'


class Register(NamedTuple):
    """A typed value of one element."""

    text: str
    dtype: Any


def type_of(dtype: Any) -> str:
    if numeric.is_half(dtype):
        return "float"
    try:
        return TYPES[dtype]
    except KeyError:
        raise NoLowering(f"{dtype} has no native arithmetic here") from None


def memory_type(dtype: Any) -> str:
    if numeric.is_half(dtype):
        return "half" if dtype == FLOAT16 else "i16"
    if numeric.is_complex(dtype) or numeric.is_only_stored(dtype):
        return f"i{dtype.itemsize * 8}"
    return "i8" if dtype == BOOL else type_of(dtype)


def _alignment(dtype: Any) -> str:
    """The alignment of a load or store: that of a complex number is that of its parts."""
    return f", align {dtype.itemsize // 2}" if numeric.is_complex(dtype) else ""


def literal(number: Any, dtype: Any) -> Register:
    """A number as a constant of the given type."""
    if numeric.is_floating(dtype):
        wide = float(dtype.type(float(number)))
        return Register(f"0x{struct.unpack('<Q', struct.pack('<d', wide))[0]:016X}", dtype)
    if dtype == BOOL:
        return Register("true" if number else "false", dtype)
    if numeric.is_complex(dtype):
        return Register(str(int.from_bytes(np.asarray(number, dtype).tobytes(), "little")), dtype)
    type_of(dtype)
    if int(number) != number:
        raise NoLowering(f"{number} does not fit into {dtype}")
    return Register(str(int(number) % 2**64 if dtype == UINT64 else int(number)), dtype)


class Code:
    """The body of one function under construction."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.first: list[str] = []  # goes to the beginning of the function
        self.declared: set[str] = set()
        self.count = 0
        self.block = "entry"
        self.fails = False  # whether the code may set %status

    def name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def line(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def value(self, operation: str) -> str:
        """A new register for the result of an operation."""
        name = self.name()
        self.line(f"{name} = {operation}")
        return name

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self.block = name

    def call(
        self, result: str, function: str, *arguments: tuple[str, str], pure: bool = True
    ) -> str:
        """Call a function by name, and declare it."""
        types = ", ".join(kind for kind, _ in arguments)
        notes = " nounwind willreturn memory(none)" if pure else " nounwind"
        self.declared.add(f"declare {result} @{function}({types}){notes}")
        given = ", ".join(f"{kind} {text}" for kind, text in arguments)
        if result == "void":
            self.line(f"call void @{function}({given})")
            return ""
        return self.value(f"call {result} @{function}({given})")

    def library(self, name: str, single: bool) -> str:
        """The name of a function of the C library, for float32 or for float64."""
        return f"{name}f" if single else name

    def quotient(self, x: str, y: str) -> str:
        """A quotient of float32 whose last bits may be wrong."""
        return self.value(f"fdiv float {x}, {y}")

    def cell(self, dtype: Any) -> str:
        """A variable; LLVM turns it into registers."""
        name = self.name()
        self.first.append(f"  {name} = alloca {memory_type(dtype)}")
        return name

    def load(self, pointer: str, dtype: Any) -> Register:
        kind = memory_type(dtype)
        text = self.value(f"load {kind}, ptr {pointer}{_alignment(dtype)}")
        if dtype == BOOL:
            text = self.value(f"icmp ne i8 {text}, 0")
        elif kind == "half":
            text = self.value(f"fpext half {text} to float")
        elif numeric.is_half(dtype):
            wide = self.value(f"zext i16 {text} to i32")
            text = self.value(f"bitcast i32 {self.value(f'shl i32 {wide}, 16')} to float")
        return Register(text, dtype)

    def store(self, register: Register, pointer: str) -> None:
        text = register.text
        if register.dtype == BOOL:
            text = self.value(f"zext i1 {text} to i8")
        elif register.dtype == FLOAT16:
            text = self.value(f"fptrunc float {text} to half")
        elif numeric.is_half(register.dtype):
            bits = self.value(f"bitcast float {text} to i32")
            text = self.value(f"trunc i32 {self.value(f'lshr i32 {bits}, 16')} to i16")
        aligned = _alignment(register.dtype)
        self.line(f"store {memory_type(register.dtype)} {text}, ptr {pointer}{aligned}")

    def rounded(self, text: str, dtype: Any, lanes: int = 0) -> Register:
        """A float, or a vector of `lanes`, rounded to the nearest half value, ties to even."""

        def kind(name: str) -> str:
            return f"<{lanes} x {name}>" if lanes else name

        def constant(number: int) -> str:
            return f"<{', '.join([f'i32 {number}'] * lanes)}>" if lanes else str(number)

        wide, integer = kind("float"), kind("i32")
        if dtype == FLOAT16:
            narrow = self.value(f"fptrunc {wide} {text} to {kind('half')}")
            return Register(self.value(f"fpext {kind('half')} {narrow} to {wide}"), dtype)
        bits = self.value(f"bitcast {wide} {text} to {integer}")
        last = self.value(f"lshr {integer} {bits}, {constant(16)}")
        last = self.value(f"and {integer} {last}, {constant(1)}")
        up = self.value(f"add {integer} {bits}, {constant(32767)}")
        up = self.value(f"add {integer} {up}, {last}")
        quiet = self.value(f"or {integer} {bits}, {constant(4194304)}")
        unordered = self.value(f"fcmp uno {wide} {text}, {text}")
        choice = f"{kind('i1')} {unordered}, {integer} {quiet}, {integer} {up}"
        chosen = self.value(f"select {choice}")
        cut = self.value(f"and {integer} {chosen}, {constant(-65536)}")
        return Register(self.value(f"bitcast {integer} {cut} to {wide}"), dtype)

    def fail(self, condition: str, failure: int) -> None:
        """Set the status if an i1 is true; `core/failures.py` has the codes."""
        self.fails = True
        with self.when(condition):
            self.line(f"store i64 {failure}, ptr %status")

    def element(self, pointer: str, dtype: Any, position: str) -> str:
        """A pointer to the element at a position from `pointer`."""
        if position == "0":
            return pointer
        return self.value(
            f"getelementptr inbounds {memory_type(dtype)}, ptr {pointer}, i64 {position}"
        )

    def position(self, offset: str, terms: list[tuple[str, str]]) -> str:
        """offset + sum of index * stride, as text of an i64."""
        total = "" if offset == "0" else offset
        for index, stride in terms:
            if stride == "0":
                continue
            part = index if stride == "1" else self.value(f"mul nsw i64 {index}, {stride}")
            total = self.value(f"add nsw i64 {total}, {part}") if total else part
        return total or "0"

    @contextmanager
    def loop(self, low: str, high: str, step: int | str = 1, rolled: bool = False) -> Iterator[str]:
        """A counted loop; yields the register of its index.

        LLVM unrolls short loops and then may vectorise the loop around them, with a gather for
        every element; a `rolled` loop is not unrolled and is vectorised itself.
        """
        self.count += 1
        tag = self.count
        index, following = f"%i{tag}", f"%n{tag}"
        before = self.block
        self.line(f"br label %head{tag}")
        self.label(f"head{tag}")
        self.line(f"{index} = phi i64 [ {low}, %{before} ], [ {following}, %latch{tag} ]")
        more = self.value(f"icmp slt i64 {index}, {high}")
        self.line(f"br i1 {more}, label %body{tag}, label %exit{tag}")
        self.label(f"body{tag}")
        yield index
        self.line(f"br label %latch{tag}")
        self.label(f"latch{tag}")
        self.line(f"{following} = add nsw i64 {index}, {step}")
        if rolled:
            self.declared |= {f"!{tag} = distinct !{{!{tag}, !0}}", ROLLED}
        self.line(f"br label %head{tag}{f', !llvm.loop !{tag}' if rolled else ''}")
        self.label(f"exit{tag}")

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """A block that runs only if an i1 is true."""
        self.count += 1
        tag = self.count
        self.line(f"br i1 {condition}, label %then{tag}, label %done{tag}")
        self.label(f"then{tag}")
        yield
        self.line(f"br label %done{tag}")
        self.label(f"done{tag}")

    def function(self, head: str) -> str:
        """The text of the function."""
        body = "\n".join(["entry:", *self.first, *self.lines])
        return f"{head} {{\n{body}\n}}\n"
