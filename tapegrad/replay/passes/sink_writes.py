"""Sinking writes: values are computed where they are needed, instead of being copied there.

Comes in: a lowered program. Goes out: the same program with less memory traffic. Called by
`pipeline.py`, before fusion.

    sums     of values that are zero except for a part (gradients of slices): each part is added to
             one total, which is not filled with zeros first if the parts cover it
    products that are added to other products, or to memory from outside (the gradients of a
             weight that is used several times): each accumulates in the memory of the total
    copies   of a value that nothing else reads (a transpose made contiguous, a part of a
             concatenation): the value is written to the memory of the copy directly
"""

from __future__ import annotations

import ast
import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ...core import numeric
from ...core.tape import Value
from ..ir.expressions import parsed
from ..ir.program import (
    Access,
    Attention,
    Compute,
    Contraction,
    Instruction,
    Literal,
    Loop,
    LoopFold,
    Product,
    Program,
    Read,
    Store,
    size_of,
)
from ..ir.shapes import joined
from .builder import COPY

#: most blocks of a value for which the writes to each block are counted, to learn whether parts
#: cover the value: that takes a byte per block, and a pass over the blocks of each part
MAX_BLOCKS_TO_COUNT_WRITES = 1 << 22


class WriteSinker:
    """A program under change: its instructions, and the writers and readers of each value."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.instructions: list[Instruction | None] = list(program.instructions)
        self.writers: dict[int, list[int]] = defaultdict(list)
        self.readers: dict[int, list[int]] = defaultdict(list)
        for i, instruction in enumerate(program.instructions):
            for number in {v.number for v in instruction.writes()}:
                self.writers[number].append(i)
            for number in {v.number for v in instruction.reads()}:
                self.readers[number].append(i)
        self.changed = {(target.number, value.number) for target, value in program.writes}
        self.fixed = {i.value.number for i in program.inputs}
        self.fixed |= {value.number for value, _ in program.constants}
        self.fixed |= {value.number for value in program.needed()}

    def run(self) -> Program:
        for i in range(len(self.instructions)):
            self._sum(i)
        for i in range(len(self.instructions)):
            self._product(i)
        for number in list(self.writers):
            self._without_zeros(number)
        for i in range(len(self.instructions)):
            self._copy(i)
        return self.program.with_instructions(i for i in self.instructions if i is not None)

    def _written(self, number: int) -> list[Instruction]:
        """The instructions that write a value."""
        found = (self.instructions[i] for i in self.writers[number])
        return [instruction for instruction in found if instruction is not None]

    def _only_for(self, value: Value, reader: int) -> bool:
        """Whether one instruction alone reads a value, and comes after all its writers."""
        number = value.number
        return (
            number not in self.fixed
            and self.readers[number] == [reader]
            and bool(self.writers[number])
            and max(self.writers[number]) < reader
        )

    # -- sums ------------------------------------------------------------------------------------

    def _sum(self, position: int) -> None:
        """If one term of a sum is zero except for a part, add that part to the other term."""
        loop = self.instructions[position]
        terms = _terms(loop)
        if terms is None:
            return
        assert isinstance(loop, Loop)
        total = loop.stores[0].access.value
        if self.writers[total.number] != [position]:
            return
        for whole, part in (terms, terms[::-1]):
            if whole.number == part.number or whole.dtype != part.dtype:
                continue
            piece = self._piece(part, position)
            if piece is None or not self._only_for(whole, position):
                continue
            if not all(isinstance(i, (Loop, Product)) for i in self._written(whole.number)):
                continue
            fill, copy = self.writers[part.number]
            self._rename(whole, total)
            added = replace(piece.stores[0], adds=True)
            added = replace(added, access=replace(added.access, value=total))
            self.instructions[position] = replace(piece, stores=(added,))
            self.instructions[fill] = self.instructions[copy] = None
            for number in {v.number for v in piece.reads()}:
                readers = self.readers[number]
                readers[:] = sorted({position if i == copy else i for i in readers})
            del self.writers[part.number], self.readers[part.number]
            return

    def _product(self, position: int) -> None:
        """If a sum adds a product to products, or to written memory, let the product accumulate."""
        terms = _terms(self.instructions[position])
        if terms is None:
            return
        loop = self.instructions[position]
        assert isinstance(loop, Loop)
        total = loop.stores[0].access.value
        if self.writers[total.number] != [position]:
            return
        for whole, term in (terms, terms[::-1]):
            if whole.number == term.number or not self._only_for(term, position):
                continue
            found = self._written(term.number)
            if len(found) != 1 or not _multiplies(found[0]):
                continue
            (made_at,) = self.writers[term.number]
            product = found[0]
            if (whole.number, total.number) in self.changed:
                if self.readers[whole.number] != [position]:
                    continue
                start = _copy_of(loop, whole)
                self.writers[total.number] = [made_at, position]
                self.readers[whole.number] = [made_at]
            elif self._only_for(whole, position) and all(
                _multiplies(i) for i in self._written(whole.number)
            ):
                start = None
                self._rename(whole, total)
            else:
                continue
            self.instructions[made_at] = start
            adding = _renamed(product, term, total)
            assert isinstance(adding, Product)
            self.instructions[position] = replace(adding, adds=True)
            for number in {v.number for v in product.reads()}:
                readers = self.readers[number]
                readers[:] = sorted({position if i == made_at else i for i in readers})
            del self.writers[term.number], self.readers[term.number]
            return

    def _piece(self, value: Value, reader: int) -> Loop | None:
        """The loop that writes the nonzero part of a value, if there is one."""
        if not self._only_for(value, reader) or len(self.writers[value.number]) != 2:
            return None
        zeros, piece = self._written(value.number)
        if not (_fills(zeros, value) and _stores_once(piece)):
            return None
        assert isinstance(piece, Loop)
        return None if any(v.number == value.number for v in piece.reads()) else piece

    def _rename(self, value: Value, to: Value) -> None:
        """Let the writers of a value write another value of the same size instead."""
        for i in self.writers[value.number]:
            instruction = self.instructions[i]
            if instruction is not None:
                self.instructions[i] = _renamed(instruction, value, to)
        self.writers[to.number] = sorted({*self.writers[value.number], *self.writers[to.number]})
        del self.writers[value.number], self.readers[value.number]

    def _without_zeros(self, number: int) -> None:
        """Remove the fill with zeros if parts write each element of a value exactly once."""
        positions = self.writers.get(number, [])
        if len(positions) < 2 or min(self.readers[number], default=1 << 60) <= positions[-1]:
            return
        first, *others = self._written(number)
        value = next(v for v in first.writes() if v.number == number)
        if not _fills(first, value) or not all(_stores_once(i) for i in others):
            return
        counts = self._counts(value, others)
        if counts is None or not (counts == 1).all():
            return
        self.instructions[positions[0]] = None
        for i in positions[1:]:
            loop = self.instructions[i]
            assert isinstance(loop, Loop)
            self.instructions[i] = replace(loop, stores=(replace(loop.stores[0], adds=False),))
        del positions[0]

    # -- copies ----------------------------------------------------------------------------------

    def _copy(self, position: int) -> None:
        """If a loop copies a value that nothing else reads, compute the value in the copy."""
        loop = self.instructions[position]
        source = copied(loop)
        if source is None or not self._only_for(source.value, position):
            return
        assert isinstance(loop, Loop)
        (store,) = loop.stores
        target, value = store.access.value, source.value
        if target.number == value.number or target.dtype != value.dtype:
            return
        if size_of(loop.shape) != size_of(value.shape):
            return
        alone = self.writers[target.number] == [position]
        if not alone and not self._apart(target):
            return
        table = _table(loop.shape, source, store.access)
        if table is None:
            return
        positions = self.writers[value.number]
        changed = []
        for instruction in self._written(value.number):
            try:
                moved = _written_to_copy(instruction, value, table, store.access)
            except _Unfit:
                return
            changed.append(moved)
        for i, instruction in zip(positions, changed, strict=True):
            self.instructions[i] = instruction
        self.instructions[position] = None
        kept = [i for i in self.writers[target.number] if i != position]
        self.writers[target.number] = sorted({*kept, *positions})
        del self.writers[value.number], self.readers[value.number]

    def _apart(self, target: Value) -> bool:
        """Whether the writers of a value share no element, so that their order does not matter."""
        if min(self.readers[target.number], default=1 << 60) <= max(self.writers[target.number]):
            return False
        counts = self._counts(target, self._written(target.number))
        return counts is not None and bool((counts <= 1).all())

    @staticmethod
    def _counts(value: Value, writers: list[Instruction]) -> Any:
        """How many writers each block of a value has: 0, 1, or 2 for any larger number.

        All elements of a block have the same writers. None if the counts are hard to find.
        """
        parts: list[_Part] = []
        for writer in writers:
            found = _parts_written(writer, value)
            if found is None:
                return None
            parts += [_part(*one) for one in found]
        grain = math.gcd(size_of(value.shape), *(part.grain for part in parts))
        if not 0 < size_of(value.shape) <= grain * MAX_BLOCKS_TO_COUNT_WRITES:
            return None
        counts = np.zeros(size_of(value.shape) // grain, np.uint8)
        for part in parts:
            part.add_to(counts, grain)
        return counts


class _Part(NamedTuple):
    """The elements that an instruction writes: contiguous runs at equal strides."""

    offset: int
    sizes: list[int]
    strides: list[int]
    run: int  # contiguous elements

    @property
    def grain(self) -> int:
        """The largest block, in elements, that divides the offset, all strides and the run."""
        return math.gcd(self.offset, self.run, *self.strides)

    def add_to(self, counts: Any, grain: int) -> None:
        """Add 1 to each block that is written, up to 2: a byte would overflow after 255."""
        shape = (*self.sizes, self.run // grain)
        strides = (*(stride // grain for stride in self.strides), 1)
        part = np.lib.stride_tricks.as_strided(counts[self.offset // grain :], shape, strides)
        part += part < 2


def _part(access: Access, shape: tuple[int, ...]) -> _Part:
    sizes, (strides,), _ = joined(shape, [access.strides], set())
    run = sizes.pop() if strides and strides[-1] == 1 else 1
    return _Part(access.offset, sizes, strides[: len(sizes)], run)


class _Unfit(Exception):
    """A writer cannot write to other memory."""


def sink_writes(program: Program) -> Program:
    """Compute values in the memory where they are needed."""
    return WriteSinker(program).run()


# -- what loops do ---------------------------------------------------------------------------------


def _plain(instruction: Instruction | None) -> bool:
    """Whether an instruction is a loop with one store and nothing else."""
    return (
        isinstance(instruction, Loop)
        and instruction.scan is None
        and not instruction.folds
        and len(instruction.stores) == 1
    )


def _stores_once(instruction: Instruction | None) -> bool:
    """Whether a loop writes one value, each element at most once, and does not scatter."""
    if not _plain(instruction):
        return False
    assert isinstance(instruction, Loop)
    (store,) = instruction.stores
    steps = zip(store.access.strides, instruction.shape, strict=True)
    return not store.access.picks and all(s or n == 1 for s, n in steps)


def _parts_written(
    writer: Instruction, value: Value
) -> list[tuple[Access, tuple[int, ...]]] | None:
    """The accesses that write a value, with their shapes; None if they may repeat elements."""
    if isinstance(writer, Product):
        return [(writer.out, (*writer.batch, writer.rows, writer.columns))]
    if isinstance(writer, Attention):
        results = zip(writer.results, writer.shapes(), strict=True)
        return [(access, shape) for access, shape in results if access.value.number == value.number]
    if not isinstance(writer, Loop) or writer.scan is not None:
        return None
    found = []
    sinks: tuple[Store | LoopFold, ...] = (*writer.stores, *writer.folds)
    for sink in sinks:
        access, shape = sink.access, writer.shape
        if access.value.number != value.number:
            continue
        if isinstance(sink, LoopFold):  # it writes along the dimensions that it keeps
            steps = zip(access.strides, shape, strict=True)
            shape = tuple(n if step else 1 for step, n in steps)
        steps = zip(access.strides, shape, strict=True)
        if access.picks or not all(step or n == 1 for step, n in steps):
            return None
        found.append((access, shape))
    return found


def _is_whole(access: Access, shape: tuple[int, ...]) -> bool:
    """Whether an access visits all elements of its value in order."""
    sizes, (strides,), _ = joined(shape, [access.strides], set())
    single = not sizes or (len(sizes) == 1 and strides == [1])
    same = size_of(shape) == size_of(access.value.shape)
    return single and same and access.offset == 0 and not access.picks


def _multiplies(instruction: Instruction) -> bool:
    """Whether an instruction is a product that writes all of its value, in order."""
    if not isinstance(instruction, Product) or instruction.out.value.dtype.itemsize < 4:
        return False
    if instruction.triangle == "out":  # it writes zeros above the diagonal, so it cannot add
        return False
    shape = (*instruction.batch, instruction.rows, instruction.columns)
    return _is_whole(instruction.out, shape)


def _copy_of(loop: Loop, value: Value) -> Loop:
    """A loop that copies one term of a sum to the memory of the sum."""
    read = next(n for n in loop.nodes if isinstance(n, Read) and n.access.value is value)
    nodes = (read, Compute(COPY, {}, (0,), value.dtype))
    return replace(loop, nodes=nodes, stores=(replace(loop.stores[0], node=1),))


def _fills(instruction: Instruction | None, value: Value) -> bool:
    """Whether a loop fills a value with zeros."""
    if not _plain(instruction):
        return False
    assert isinstance(instruction, Loop)
    (store,) = instruction.stores
    if store.adds or store.access.value.number != value.number or len(instruction.nodes) != 1:
        return False
    (node,) = instruction.nodes
    if not isinstance(node, Compute) or node.primitive is not COPY:
        return False
    (operand,) = node.operands
    zero = isinstance(operand, Literal) and not isinstance(operand.number, bool)
    return zero and operand.number == 0 and _is_whole(store.access, instruction.shape)


def _terms(instruction: Instruction | None) -> tuple[Value, Value] | None:
    """The two whole values that a loop adds, if it does nothing else."""
    if not _plain(instruction):
        return None
    assert isinstance(instruction, Loop)
    (store,), shape = instruction.stores, instruction.shape
    if len(instruction.nodes) != 3 or store.adds or not _is_whole(store.access, shape):
        return None
    first, second, total = instruction.nodes
    if not (isinstance(first, Read) and isinstance(second, Read) and isinstance(total, Compute)):
        return None
    if total.operands not in ((0, 1), (1, 0)) or not _adds(total) or store.node != 2:
        return None
    values = (first.access.value, second.access.value)
    whole = _is_whole(first.access, shape) and _is_whole(second.access, shape)
    alike = all(v.dtype == store.access.value.dtype == total.dtype for v in values)
    return values if whole and alike else None


def _adds(node: Compute) -> bool:
    """Whether a node is the sum of its two operands."""
    if node.params or not (numeric.is_numpy_float(node.dtype) or numeric.is_half(node.dtype)):
        return False
    expression = parsed(node.primitive.expression or "0")
    return (
        isinstance(expression, ast.BinOp)
        and isinstance(expression.op, ast.Add)
        and isinstance(expression.left, ast.Name)
        and isinstance(expression.right, ast.Name)
        and expression.left.id != expression.right.id
    )


def copied(instruction: Instruction | None) -> Access | None:
    """The access that a loop copies, if it does nothing else."""
    if not _stores_once(instruction):
        return None
    assert isinstance(instruction, Loop)
    (store,) = instruction.stores
    first, *rest = instruction.nodes
    if not isinstance(first, Read) or first.access.picks or store.adds:
        return None
    for node in rest:
        if not (isinstance(node, Compute) and node.primitive is COPY and node.operands == (0,)):
            return None
        if node.dtype != first.dtype:
            return None
    return first.access


# -- redirecting writes ----------------------------------------------------------------------------


def _table(shape: tuple[int, ...], source: Access, to: Access) -> list[tuple[int, int, int]] | None:
    """How a copy maps positions: for each dimension the old stride, the new stride and the size.

    None unless it reads a whole contiguous value. The largest strides come first.
    """
    sizes, (before, after), _ = joined(shape, [source.strides, to.strides], set())
    found = sorted(zip(before, after, sizes, strict=True), reverse=True)
    step = 1
    for old, _, n in reversed(found):
        if old != step:
            return None
        step *= n
    return found if source.offset == 0 else None


def _moved(access: Access, shape: tuple[int, ...], table: Any, to: Access) -> Access:
    """An access to a value, redirected to where a copy puts its elements."""
    digits = []
    offset, rest = to.offset, access.offset
    for old, new, _ in table:
        digit, rest = divmod(rest, old)
        digits.append(digit)
        offset += digit * new
    strides = []
    for stride, n in zip(access.strides, shape, strict=True):
        if n == 1 or stride == 0:
            strides.append(0)
            continue
        row = next((i for i, (old, _, _) in enumerate(table) if 0 < old <= stride), None)
        if row is None or stride % table[row][0]:
            raise _Unfit
        times = stride // table[row][0]
        digits[row] += times * (n - 1)
        strides.append(times * table[row][1])
    if any(digit >= n for digit, (_, _, n) in zip(digits, table, strict=True)):
        raise _Unfit
    return Access(to.value, offset, tuple(strides))


def _last(strides: tuple[int, ...], shape: tuple[int, ...]) -> int:
    """The stride along the last dimension with more than one element."""
    return next((s for s, n in zip(strides[::-1], shape[::-1], strict=True) if n > 1), 1)


def _renamed(instruction: Instruction, value: Value, to: Value) -> Instruction:
    """An instruction that writes the value `to` instead of `value`."""

    def new(access: Access, shape: tuple[int, ...]) -> Access:
        return replace(access, value=to) if access.value.number == value.number else access

    return _redirected(instruction, new)


def _written_to_copy(instruction: Instruction, value: Value, table: Any, to: Access) -> Instruction:
    """An instruction that writes a value to where a copy would put it."""

    def new(access: Access, shape: tuple[int, ...]) -> Access:
        if access.value.number != value.number:
            return access
        if access.picks:
            raise _Unfit
        moved = _moved(access, shape, table, to)
        # Loops are vectorised along strides of one element, and a product needs them.
        if _last(moved.strides, shape) != _last(access.strides, shape):
            raise _Unfit
        return moved

    changed = _redirected(instruction, new)
    narrow = isinstance(changed, Product) and 0 < changed.out.strides[-2] < changed.columns
    if narrow:
        raise _Unfit
    return changed


def _redirected(
    instruction: Instruction, new: Callable[[Access, tuple[int, ...]], Access]
) -> Instruction:
    """An instruction whose writes go where `new` redirects them."""
    if isinstance(instruction, Loop):
        shape, scan = instruction.shape, instruction.scan
        stores = tuple(replace(s, access=new(s.access, shape)) for s in instruction.stores)
        folds = tuple(replace(f, access=new(f.access, shape)) for f in instruction.folds)
        if scan is not None:
            scan = replace(scan, access=new(scan.access, shape))
        return replace(instruction, stores=stores, folds=folds, scan=scan)
    if isinstance(instruction, Product):
        shape = (*instruction.batch, instruction.rows, instruction.columns)
        return replace(instruction, out=new(instruction.out, shape))
    if isinstance(instruction, Contraction):
        return replace(instruction, out=new(instruction.out, instruction.shape))
    if isinstance(instruction, Attention):
        results = tuple(map(new, instruction.results, instruction.shapes()))
        return replace(instruction, results=results)
    raise _Unfit
