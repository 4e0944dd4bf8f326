"""Elements: the LLVM text that reads, computes and stores one element of a loop.

Comes in: a `Loop` and the memory of its values. Goes out: text for the element at given indices,
and the nested loops around it. Dimensions that all accesses can treat as one are joined first; LLVM
then vectorises the innermost loop. `LoopWriter` in `loops.py` inherits from `ElementWriter` and
decides in which order the elements are visited.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from ...core import numeric
from ..ir.failing import can_fail
from ..ir.program import (
    Access,
    Compute,
    Literal,
    Loop,
    Position,
    Read,
    Store,
)
from ..ir.shapes import joined
from . import scalar, tuning
from .code import BOOL, FLOAT32, FLOAT64, INT64, Code, Register, type_of
from .plan import Allocation

#: operands with which LLVM simplifies the computation if it knows them
SIMPLIFYING = (0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5)
#: integers up to this one are exact in float64
MAX_EXACT_INTEGER = 1 << 53


def accesses_of(loop: Loop) -> Iterator[Access]:
    """All accesses of a loop, including those of indices."""

    def with_picks(access: Access) -> Iterator[Access]:
        yield access
        for pick in access.picks:
            yield from with_picks(pick.index)

    for node in loop.nodes:
        if isinstance(node, Read):
            yield from with_picks(node.access)
    for store in loop.stores:
        yield from with_picks(store.access)
    for fold in loop.folds:
        yield fold.access
    if loop.scan is not None:
        yield loop.scan.access


class ElementWriter:
    """Writes the text of a loop for one element.

    Sizes, strides and numbers are read from the kernel's table, so that other sizes and models
    share the text. Small ones are written into the text, except in `general` kernels.
    """

    def __init__(self, loop: Loop, allocations: dict[int, Allocation], general: bool) -> None:
        self.loop = loop
        self.allocations = allocations
        self.general = general
        self.numbers: list[int] = []
        self.number_indices: dict[Any, int] = {}
        self.code = Code()
        accesses = list(dict.fromkeys(accesses_of(loop)))
        positions = [n for n in loop.nodes if isinstance(n, Position)]
        walked: list[Access | Position] = [*accesses, *dict.fromkeys(positions)]
        folded = set(loop.folds[0].dims) if loop.folds else set()
        folded |= set() if loop.scan is None else {loop.scan.dim}
        sizes, strides, flags = joined(loop.shape, [w.strides for w in walked], folded)
        self.sizes, self.flags = sizes or [1], flags or [False]
        self.strides = {w: (s or [0]) for w, s in zip(walked, strides, strict=True)}
        self.written = {self._memory(a) for a in self._sinks()}
        self.offsets: dict[Any, set[int]] = {}
        for access in accesses:
            self.offsets.setdefault(self._memory(access), set()).add(access.offset)
        self.pointers: dict[Any, tuple[str, int, int]] = {}
        self.checks = can_fail(loop)
        #: by node: its work for one element; the unit is loading and storing an element
        self.work: dict[int, int] = {}

    def _sinks(self) -> list[Access]:
        stored = [s.access for s in self.loop.stores]
        scanned = [] if self.loop.scan is None else [self.loop.scan.access]
        return stored + [f.access for f in self.loop.folds] + scanned

    def _memory(self, access: Access) -> tuple[str, int]:
        allocation = self.allocations[access.value.number]
        return allocation.kind, allocation.index

    # -- elements ----------------------------------------------------------------------------

    def number(self, number: int, role: object = "size") -> str:
        """The text of an integer, such as a size or a stride: its digits, or an entry of the table.

        Equal numbers of one role share an entry: LLVM must see that an in-place loop reads and
        writes the same element. A size that happens to equal some stride has a separate entry;
        otherwise each such coincidence would need another kernel.
        """
        largest = 1 if self.general else tuning.MAX_NUMBER_IN_TEXT
        if 0 <= number <= largest:
            return str(number)
        key = (role, number)
        if key not in self.number_indices:
            self.number_indices[key] = len(self.numbers)
            self.numbers.append(number)
        return f"%number{self.number_indices[key]}"

    def literal(self, number: Any, node: Compute, operands: list[Any]) -> Any:
        """A number as an operand; those of floating-point arithmetic are read from the table.

        They may depend on sizes, as the count in a mean does. Numbers that simplify the computation
        stay in the text, except in general kernels. Infinities are always read from the table: LLVM
        turns a maximum over `where(mask, x, -inf)` with a known -inf into branches, and does not
        vectorise them (600 instead of 50 µs for 131,072 elements).
        """
        dtype, is_integer = node.dtype, isinstance(number, int)
        if dtype == BOOL:  # a comparison
            dtype = next((o.dtype for o in operands if isinstance(o, Register)), dtype)
        if not numeric.is_numpy_float(dtype) or isinstance(number, bool):
            return number
        if any(isinstance(o, Register) and o.dtype not in (dtype, BOOL) for o in operands):
            return number
        if number in SIMPLIFYING and (node.dtype == BOOL or not self.general):
            return number
        is_called = "(" in (node.primitive.expression or "")
        if is_called and (is_integer or not (self.general or math.isinf(number))):
            return number  # LLVM may turn a power into a product or a root
        if is_integer and abs(number) > MAX_EXACT_INTEGER:
            return number
        return self._real(number, dtype)

    def _real(self, number: float, dtype: Any) -> Register:
        """A floating-point number that is read from the table."""
        self.numbers.append(struct.unpack("<q", struct.pack("<d", number))[0])
        bits = f"i64 %number{len(self.numbers) - 1}"
        wide = Register(self.code.value(f"bitcast {bits} to double"), FLOAT64)
        return converted(self.code, wide, dtype)

    def _factors(self, node: Compute, operands: list[Any]) -> dict[str, Any]:
        """The parameters of a node; those that are factors of elements are read from the table.

        One is the scale of dropout: all rates share a kernel.
        """
        if not node.params:
            return node.params
        if node.dtype not in (FLOAT32, FLOAT64) or any(
            isinstance(o, Register) and o.dtype not in (node.dtype, BOOL) for o in operands
        ):
            return node.params
        names = scalar.factors(node.primitive)
        return {
            name: self._real(x, node.dtype) if name in names and isinstance(x, float) else x
            for name, x in node.params.items()
        }

    def pointer(self, access: Access, indices: dict[int, str]) -> str:
        """A pointer to the element of an access at the given indices."""
        memory, base = self._memory(access), self._base(access)
        several = memory in self.written and len(self.offsets[memory]) > 1
        key = (memory, 0 if several else base)
        if key not in self.pointers:
            size = access.value.dtype.itemsize
            name = f"%p{len(self.pointers)}"
            self.pointers[key] = (name, access.value.number, key[1] * size)
        strides = self.strides[access]
        terms = [(index, self._step(strides, d)) for d, index in indices.items()]
        for pick in access.picks:
            terms.append((self.picked(pick, indices), self.number(pick.stride, "pick")))
        if access.offset > base:
            terms.append((str(access.offset - base), "1"))
        offset = self.number(base, "offset") if several else "0"
        position = self.code.position(offset, terms)
        return self.code.element(self.pointers[key][0], access.value.dtype, position)

    def _step(self, strides: list[int], d: int) -> str:
        """The text of a stride; small ones of the last dimension are known, for vectorisation."""
        last = d == len(self.sizes) - 1 and abs(strides[d]) <= tuning.MAX_VECTOR_STRIDE_ELEMENTS
        return str(strides[d]) if last else self.number(strides[d], d)

    def _base(self, access: Access) -> int:
        """The lowest offset of the accesses whose elements interleave with those of this one.

        With one pointer for all of them, LLVM reads and writes their elements in whole vectors.
        """
        offsets, step = self.offsets[self._memory(access)], abs(self.strides[access][-1])
        base = access.offset
        while 1 < step <= tuning.MAX_VECTOR_STRIDE_ELEMENTS:
            lower = [o for o in offsets if base - step < o < base and access.offset - o < step]
            if not lower:
                break
            base = min(lower)
        return base

    def picked(self, pick: Any, indices: dict[int, str]) -> str:
        """An index read from memory, counted from the front; bad ones set the status and give 0."""
        code, size = self.code, self.number(pick.size)
        raw = code.load(self.pointer(pick.index, indices), pick.index.value.dtype)
        index = scalar.Scalar(code, {}, INT64, "").convert(raw, INT64).text
        if pick.checked:
            return index
        negative = code.value(f"icmp slt i64 {index}, 0")
        wrapped = code.value(f"add nsw i64 {index}, {size}")
        index = code.value(f"select i1 {negative}, i64 {wrapped}, i64 {index}")
        bad = code.value(f"icmp uge i64 {index}, {size}")
        if not pick.known:  # a kernel runs to its end after a failure, so it needs a valid index
            code.fail(bad, pick.failure)
        return code.value(f"select i1 {bad}, i64 0, i64 {index}")

    def reads(self, indices: dict[int, str]) -> dict[int, Register]:
        """The values that `Read` nodes load at one element, by number of the node."""
        return {
            i: self.code.load(self.pointer(node.access, indices), node.dtype)
            for i, node in enumerate(self.loop.nodes)
            if isinstance(node, Read)
        }

    def nodes(
        self, indices: dict[int, str], reads: dict[int, Register] | None = None
    ) -> list[Register]:
        """The values of all nodes at one element; `reads` has those that were loaded before."""
        found: list[Register] = []
        for i, node in enumerate(self.loop.nodes):
            if reads is not None and i in reads:
                found.append(reads[i])
            elif isinstance(node, Read):
                found.append(self.code.load(self.pointer(node.access, indices), node.dtype))
            elif isinstance(node, Position):
                strides = self.strides[node]
                terms = [(index, self.number(strides[d], d)) for d, index in indices.items()]
                position = self.code.position(self.number(node.offset, "offset"), terms)
                found.append(Register(position, node.dtype))
            else:
                found.append(self._compute(node, found))
        return found

    def _compute(self, node: Compute, found: list[Register]) -> Register:
        given = [o.number if isinstance(o, Literal) else found[o] for o in node.operands]
        operands = [o if isinstance(o, Register) else self.literal(o, node, given) for o in given]
        params = self._factors(node, given)
        before = len(self.code.lines)
        flags = "" if node.rounded else "contract"
        result = scalar.emit(self.code, node.primitive, params, operands, node.dtype, flags)
        instructions = len(self.code.lines) - before
        self.work[len(found)] = 1 + instructions // tuning.INSTRUCTIONS_PER_MEMORY_TRIP
        return result

    def store(self, store: Store, values: list[Register], indices: dict[int, str]) -> None:
        pointer = self.pointer(store.access, indices)
        value = values[store.node]
        if store.adds:
            old = self.code.load(pointer, value.dtype)
            kind = type_of(value.dtype)
            add = "fadd" if kind in ("float", "double") else "or" if kind == "i1" else "add"
            value = Register(self.code.value(f"{add} {kind} {old.text}, {value.text}"), value.dtype)
            if numeric.is_half(value.dtype):
                value = self.code.rounded(value.text, value.dtype)
        self.code.store(value, pointer)

    def apart(self, access: Access, split: int) -> bool:
        """Whether different indices of one dimension always access different elements."""
        strides = self.strides[access]
        step = abs(strides[split])
        others = [(abs(strides[d]), n) for d, n in enumerate(self.sizes) if d != split and n > 1]
        others += [(abs(pick.stride), pick.size) for pick in access.picks if pick.size > 1]
        # Smaller strides must span less than one step; larger ones must exceed all steps together.
        within = sum((n - 1) * s for s, n in others if s < step)
        beyond = math.gcd(*[s for s, _ in others if s >= step])
        return within < step and (not beyond or (self.sizes[split] - 1) * step + within < beyond)

    # -- loops -------------------------------------------------------------------------------

    @contextmanager
    def over(
        self, dims: list[int], split: int | None, indices: dict[int, str]
    ) -> Iterator[dict[int, str]]:
        """Nested loops over dimensions; `split` is the one that runs from %low to %high."""
        with ExitStack() as stack:
            inner = dict(indices)
            for d in dims:
                bounds = ("%low", "%high") if d == split else ("0", self._end(d))
                rolled = d == dims[-1] and not bounds[1].isdigit()
                inner[d] = stack.enter_context(self.code.loop(*bounds, rolled=rolled))
            yield inner

    def _end(self, d: int) -> str:
        """The text of a dimension's size; LLVM unrolls a short last one if it knows the size."""
        is_last = d == len(self.sizes) - 1
        short = is_last and self.sizes[d] < tuning.MIN_ROLLED_LOOP_ELEMENTS
        return str(self.sizes[d]) if short and not self.general else self.number(self.sizes[d])


def converted(code: Code, value: Register, dtype: Any) -> Register:
    """A register converted to another dtype."""
    return scalar.Scalar(code, {}, dtype, "").convert(value, dtype)
