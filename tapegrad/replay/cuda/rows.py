"""Rows: gaps behind the rows of matrices, which align them for cuBLAS.

Comes in: a program after all passes. Goes out: the same program, in which some values of half
precision have gaps, and the numbers of these values. Called by `executable.py`.

cuBLAS takes six times as long if rows of half precision are not aligned to 16 bytes, like those of
logits for 50,257 words. The emitter copies such a matrix to rows with gaps, or back. A value that
only instructions of the program read needs no copy: it gets gaps from the beginning. If a product
sums along its rows, the gaps are zeros.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from ...core.tape import Value
from ..ir.program import (
    Access,
    Compute,
    Instruction,
    Literal,
    Loop,
    Pick,
    Product,
    Program,
    Read,
    Shape,
    Store,
    size_of,
)
from ..ir.shapes import divided
from ..passes.builder import COPY
from . import tuning


def is_large_half(product: Product) -> bool:
    """Whether unaligned rows of a product's matrices cost more than gaps and padding."""
    sizes = (product.rows, product.inner, product.columns)
    few = size_of(sizes) < tuning.MIN_OPERATIONS_TO_PAD or 1 in sizes
    return not (few or product.batch or int(product.x.value.dtype.itemsize) > 2)


def with_gap(count: int) -> int:
    """The elements of a row of half precision with its gap, each of two bytes."""
    unit = tuning.ROW_ALIGNMENT // 2
    return -(-count // unit) * unit


def with_gaps(program: Program) -> tuple[Program, frozenset[int]]:
    """A program whose large unaligned matrices have gaps, and the numbers of these."""
    fixed = {i.value.number for i in program.inputs} | {v.number for v, _ in program.constants}
    fixed |= {value.number for value in program.needed()}
    found = set()
    for number, matrix in _odd_matrices(program).items():
        if number in fixed:
            continue
        changed = _Widening(matrix).applied(program)
        if changed is not None:
            program = changed
            found.add(number)
    return program, frozenset(found)


class _Matrix(NamedTuple):
    value: Value
    length: int  # elements of a row
    is_summed: bool  # whether sums of a product go along its rows


def _odd_matrices(program: Program) -> dict[int, _Matrix]:
    """By number: the values that products use only as one matrix, with unaligned rows."""
    found: dict[int, _Matrix] = {}
    differ = set()
    for product in program.instructions:
        if not isinstance(product, Product) or not is_large_half(product) or product.triangle:
            continue
        for access, shape, summed in _operands(product):
            value = access.value
            if access.strides[1] == 1:
                length, lead, along = shape[1], access.strides[0], summed == 1
            elif access.strides[0] == 1:
                length, lead, along = shape[0], access.strides[1], summed == 0
            else:
                continue
            if with_gap(length) == length:
                continue
            before = found.get(value.number, _Matrix(value, length, False))
            if lead != length or access.offset or before.length != length:
                differ.add(value.number)
            found[value.number] = before._replace(is_summed=before.is_summed or along)
    return {number: matrix for number, matrix in found.items() if number not in differ}


def _operands(product: Product) -> Iterator[tuple[Access, Shape, int | None]]:
    """The matrices of a product, their shapes, and their summed dimensions."""
    yield product.out, (product.rows, product.columns), None
    yield product.x, (product.rows, product.inner), 1
    yield product.y, (product.inner, product.columns), 0


class _NotByRows(Exception):
    """An access goes from a row to the next as if there were no gap."""


class _Widening:
    """Gives one value gaps."""

    def __init__(self, matrix: _Matrix) -> None:
        old, self.length, self.is_summed = matrix
        self.old = old
        self.wide = with_gap(self.length)
        self.rows = size_of(old.shape) // self.length
        self.new = Value(old.number, (self.rows, self.wide), old.dtype)

    def applied(self, program: Program) -> Program | None:
        """The program with gaps in the value; None if an instruction does not allow them."""
        made: list[Instruction] = []
        last = -1
        for instruction in program.instructions:
            used = (*instruction.reads(), *instruction.writes())
            if any(value.number == self.old.number for value in used):
                try:
                    instruction = self._changed(instruction)
                except _NotByRows:
                    return None
            made.append(instruction)
            if any(value.number == self.old.number for value in instruction.writes()):
                last = len(made)
        if self.is_summed:
            made.insert(last, self._zeros(made[last - 1]))
        return program.with_instructions(made)

    def _zeros(self, writer: Instruction) -> Loop:
        store = Store(Access(self.new, self.length, (self.wide, 1)), 0)
        node = Compute(COPY, {}, (Literal(0.0),), self.new.dtype)
        return Loop((self.rows, self.wide - self.length), (node,), (store,), (), writer.origins)

    def _changed(self, instruction: Instruction) -> Instruction:
        if isinstance(instruction, Product):
            shape = (*instruction.batch, instruction.rows, instruction.inner, instruction.columns)
            *batch, rows, inner, columns = shape
            return replace(
                instruction,
                out=self._moved(instruction.out, (*batch, rows, columns)),
                x=self._moved(instruction.x, (*batch, rows, inner)),
                y=self._moved(instruction.y, (*batch, inner, columns)),
            )
        if not isinstance(instruction, Loop) or instruction.scan is not None:
            raise _NotByRows
        loop = self._by_rows(instruction)
        return replace(
            loop,
            nodes=tuple(
                Read(self._moved(n.access, loop.shape)) if isinstance(n, Read) else n
                for n in loop.nodes
            ),
            stores=tuple(replace(s, access=self._moved(s.access, loop.shape)) for s in loop.stores),
            folds=tuple(replace(f, access=self._moved(f.access, loop.shape)) for f in loop.folds),
        )

    def _by_rows(self, loop: Loop) -> Loop:
        """A loop in which no dimension runs across several rows."""
        for access in _accesses(loop):
            if access.value.number != self.old.number:
                continue
            for d, (n, step) in enumerate(zip(loop.shape, access.strides, strict=True)):
                if step == 1 and n > self.length and n % self.length == 0:
                    rows = (n // self.length, self.length)
                    return divided(loop, (*loop.shape[:d], *rows, *loop.shape[d + 1 :]))
        return loop

    def _moved(self, access: Access, shape: Shape) -> Access:
        """An access to the same elements in memory with gaps."""
        if any(pick.index.value.number == self.old.number for pick in access.picks):
            raise _NotByRows
        if access.value.number != self.old.number:
            return access
        row, column = divmod(access.offset, self.length)
        reach = column  # the last position in a row
        strides = []
        for n, step in zip(shape, access.strides, strict=True):
            strides.append(self._step(step))
            reach += (n - 1) * step if 0 < step < self.length else 0
        picks: list[Pick] = []
        for pick in access.picks:
            picks.append(replace(pick, stride=self._step(pick.stride)))
            reach += (pick.size - 1) * pick.stride if 0 < pick.stride < self.length else 0
        if reach >= self.length:
            raise _NotByRows
        return Access(self.new, row * self.wide + column, tuple(strides), tuple(picks))

    def _step(self, step: int) -> int:
        if 0 < step < self.length:
            return step
        if step % self.length:
            raise _NotByRows
        return step // self.length * self.wide


def _accesses(loop: Loop) -> Iterator[Access]:
    yield from (node.access for node in loop.nodes if isinstance(node, Read))
    yield from (store.access for store in loop.stores)
    yield from (fold.access for fold in loop.folds)
