"""Emission: the instructions of a program become launches of kernels and calls of libraries.

Comes in: a `Plan`. Goes out: steps in the order in which they run, and the texts of the kernels.
Calls of libraries have constant addresses, so operands whose memory moves from run to run are
copied for them. Nothing runs here; `executable.py` runs the steps.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...core.source import Location
from ...core.tape import Value
from ..ir.failing import can_fail, culprit
from ..ir.program import (
    Access,
    Attention,
    Callback,
    Compute,
    Contraction,
    Instruction,
    Loop,
    Origin,
    Product,
    Read,
    Shape,
    Store,
    contiguous,
    size_of,
)
from ..native.plan import Allocation, Plan
from ..passes.builder import COPY
from . import tuning
from .gemm import by_columns
from .kernel import GridKernel
from .loops import GridSettings, loop
from .matrices import Dims, arranged, grouped
from .rows import is_large_half, with_gap
from .sums import added, loop_of_contraction, loop_of_product, triangle_of


@dataclass(frozen=True, slots=True)
class ValuePointer:
    """A pointer argument of a kernel: a value, and an offset in bytes."""

    value: int
    offset: int


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """One kernel on a grid."""

    text: str
    blocks: int
    threads: int
    pointers: tuple[ValuePointer, ...]
    #: index of its own status word among those of all failures; None if it checks nothing
    status: int | None
    #: whether one of its arguments is the word that is set if any kernel finds bad data
    failed: bool
    #: the offset in scratch memory and the size of each of its partial results, in bytes
    partials: tuple[tuple[int, int], ...]
    #: sizes and strides that are not in the text
    numbers: tuple[int, ...]
    instruction: Instruction


@dataclass(frozen=True, slots=True)
class Multiply:
    """A product that a library computes."""

    instruction: Product


@dataclass(frozen=True, slots=True)
class Attend:
    """Attention that a library computes."""

    instruction: Attention


GridStep = KernelLaunch | Multiply | Attend | Callback


@dataclass(frozen=True, slots=True)
class GridSteps:
    """The steps of a program."""

    steps: tuple[GridStep, ...]
    #: memory of all values, and of copies for libraries
    allocations: dict[int, Allocation]
    #: bytes of the arena
    arena: int
    #: the meaning of each status word, if it is set
    failures: tuple[tuple[str, Location | None], ...]
    #: bytes of scratch memory, for partial results
    scratch: int
    #: memory of the arena that must initially be zero: offset and size in bytes
    zeros: tuple[tuple[int, int], ...]


class GridEmitter:
    """Makes the steps of one program."""

    def __init__(self, plan: Plan, settings: GridSettings, gaps: frozenset[int]) -> None:
        self._program = plan.program
        self._gaps = gaps
        self._allocations = dict(plan.allocations)
        self._arena = plan.arena
        self._settings = settings
        self._steps: list[GridStep] = []
        self._failures: list[tuple[str, Location | None]] = []
        self._scratch = 0
        self._number = max(self._allocations, default=0)
        #: memory of the arena whose gaps must be zero: offset and size in bytes
        self._zeros: list[tuple[int, int]] = []
        #: copies for libraries, by value and by the elements that are read of it
        self._copies: dict[int, dict[Any, Access]] = {}

    def run(self) -> GridSteps:
        for instruction in self._program.instructions:
            if isinstance(instruction, Callback):
                self._steps.append(instruction)
            elif isinstance(instruction, Product) and self._is_for_library(instruction):
                self._multiply(instruction)
            elif isinstance(instruction, Contraction):
                self._contract(instruction)
            elif isinstance(instruction, Attention):
                self._attend(instruction)
            else:
                self._loop(instruction)
        return GridSteps(
            tuple(self._steps),
            self._allocations,
            self._arena,
            tuple(self._failures),
            self._scratch,
            tuple(self._zeros),
        )

    # -- kernels -----------------------------------------------------------------------------

    def _loop(self, instruction: Instruction) -> None:
        written = instruction
        if isinstance(instruction, Product):
            if instruction.adds:
                self._add(instruction)
                return
            written = loop_of_product(instruction)
        elif isinstance(instruction, Contraction):
            written = loop_of_contraction(instruction)
        assert isinstance(written, Loop), f"no kernel for {type(written).__name__}"
        for value in instruction.writes():
            self._copies.pop(value.number, None)
        guarded = bool(self._failures) and any(map(self._outlasts, instruction.writes()))
        self._launch(instruction, loop(written, self._allocations, self._settings, guarded))

    def _add(self, product: Product) -> None:
        """A product as a loop, whose result is added to the old values."""
        shape = (*product.batch, product.rows, product.columns)
        out = self._new(product.out, shape)
        self._loop(replace(product, out=out, adds=False))
        self._loop(added(product.out, out, shape, product.origins))

    def _outlasts(self, value: Value) -> bool:
        """Whether a value lies in an input's memory, which must not change after bad data."""
        return self._allocations[value.number].kind == "input"

    def _launch(self, instruction: Instruction, kernels: Sequence[GridKernel]) -> None:
        position = self._scratch
        for kernel in kernels:
            # Both kernels of a reduction in parts share partial results; other kernels may run at
            # the same time and get their own.
            starts, self._scratch = [], position
            for size in kernel.partials:
                starts.append((self._scratch, size))
                self._scratch += _rounded_up(size)
            self._steps.append(
                KernelLaunch(
                    kernel.text,
                    kernel.blocks,
                    kernel.threads,
                    tuple(ValuePointer(*where) for where in kernel.pointers),
                    len(self._failures) if kernel.checks else None,
                    kernel.checks or kernel.guarded,
                    tuple(starts),
                    tuple(kernel.numbers),
                    instruction,
                )
            )
        if can_fail(instruction):
            self._failures.append(culprit(instruction))

    # -- libraries ---------------------------------------------------------------------------

    def _is_for_library(self, product: Product) -> bool:
        sizes = (*product.batch, product.rows, product.inner, product.columns)
        of_sum = product.triangle == "out" and product.adds
        return not of_sum and all(sizes) and self._settings.computes(product)

    def _multiply(self, product: Product) -> None:
        """A product on memory that suits a library, with zeros outside a triangle."""
        batch, origins = product.batch, product.origins
        shapes = [
            (*batch, product.rows, product.inner),
            (*batch, product.inner, product.columns),
            (*batch, product.rows, product.columns),
        ]
        if product.triangle == "out":
            self._multiply(replace(product, triangle=""))
            self._loop(triangle_of(product.out, product.out, shapes[2], "out", origins))
            return
        if product.triangle:
            x = self._new(product.x, shapes[0])
            self._loop(triangle_of(x, product.x, shapes[0], product.triangle, origins))
            product = replace(product, x=x, triangle="")
        inner, columns = (
            self._padded(product, product.inner),
            self._padded(product, product.columns),
        )
        deep, wide = inner > product.inner, columns > product.columns
        x = self._operand(product.x, shapes[0], origins, (False, deep))
        y = self._operand(product.y, shapes[1], origins, (deep, wide))
        made = replace(product, x=x, y=y, inner=inner, columns=columns)
        stays = not self._is_elsewhere(product.out) and self._has_room(product.out, (False, wide))
        if stays and self._is_fit(product.out, shapes[2]):
            self._steps.append(Multiply(made))
            self._changed(product.out)
            return
        steps = self._dense_like(shapes[2])
        out = self._aligned(steps, shapes[2], product.out.value.dtype, columns > product.columns)
        if product.adds:
            self._copy(out, product.out, shapes[2], origins)
        self._steps.append(Multiply(replace(made, out=out)))
        self._copy(product.out, out, shapes[2], origins)

    def _padded(self, product: Product, count: int) -> int:
        """The steps or columns of a product, rounded up if it is large, to suit a library."""
        return with_gap(count) if is_large_half(product) else count

    def _has_room(self, given: Access, odd: tuple[bool, bool]) -> bool:
        """Whether the memory of a matrix has gaps behind the dimensions that are `odd`."""
        has_gaps = given.value.number in self._gaps
        steps = zip(odd, given.strides[-2:], strict=True)
        return all(has_gaps and step == 1 for is_odd, step in steps if is_odd)

    def _operand(
        self,
        given: Access,
        shape: Shape,
        origins: tuple[Origin, ...],
        beyond: tuple[bool, bool] = (False, False),
    ) -> Access:
        """A factor on memory that suits a library: its own, or that of a copy.

        A copy keeps the order of dimensions, and serves all products that read the same elements.
        It has zeros `beyond` its last rows or columns.
        """
        moves = given.value.number in self._settings.moving
        if not moves and self._has_room(given, beyond) and self._is_fit(given, shape):
            return given
        odd = any(beyond)
        steps = given.strides if _collapses(given, shape) else contiguous(shape)
        order = sorted(range(len(shape)), key=lambda d: (-abs(steps[d]), d))
        large = self._is_large(shape, given.value.dtype)
        key = (odd or large, given.offset, *((given.strides[d], shape[d]) for d in order))
        copies = self._copies.setdefault(given.value.number, {})
        found = copies.get(key)
        if found is None:
            inner = tuple(shape[d] for d in order)
            plain = self._dense_like(
                tuple(n if steps[d] else 1 for n, d in zip(inner, order, strict=True))
            )
            to = self._aligned(plain, inner, given.value.dtype, odd)
            there = replace(given, strides=tuple(given.strides[d] for d in order))
            self._copy(to, there, inner, origins)
            found = copies[key] = to
        strides = [0] * len(shape)
        for d, step in zip(order, found.strides, strict=True):
            strides[d] = step
        return replace(found, strides=tuple(strides))

    def _is_fit(self, given: Access, shape: Shape) -> bool:
        """Whether memory suits a library: one call per batch, and aligned rows if it is large."""
        if not _collapses(given, shape):
            return False
        if not self._is_large(shape, given.value.dtype):
            return True
        distance = max(map(abs, given.strides[-2:]))
        return not distance * int(given.value.dtype.itemsize) % tuning.ROW_ALIGNMENT

    @staticmethod
    def _is_large(shape: Shape, dtype: Any) -> bool:
        """Whether a matrix is large enough to copy it for aligned rows."""
        return size_of(shape) * int(dtype.itemsize) >= tuning.MIN_BYTES_TO_ALIGN

    @staticmethod
    def _dense_like(shape: Shape) -> tuple[int, ...]:
        """Strides without gaps; those of dimensions of one element are 0."""
        steps = contiguous(shape)
        return tuple(0 if n == 1 else step for n, step in zip(shape, steps, strict=True))

    def _aligned(
        self, steps: tuple[int, ...], shape: Shape, dtype: Any, odd: bool = False
    ) -> Access:
        """New memory with strides like `steps`, but with aligned rows.

        If it is large or `odd`, there are zeros behind each row, and behind the last row.
        """
        size = int(dtype.itemsize)
        wide = [d for d, step in enumerate(steps) if step]
        count = size_of(tuple(shape[d] for d in wide))
        found = list(steps)
        if wide and (odd or self._is_large(shape, dtype)):
            unit = tuning.ROW_ALIGNMENT // size
            last = shape[wide[-1]]
            padded = _up_to(last, unit)
            for d in wide[:-1]:
                found[d] = steps[d] // last * padded
            # There is room for further rows too, which nothing else writes.
            count = _up_to(count // last, unit) * padded
            self._zeros.append((self._arena, count * size))
        self._number += 1
        value = Value(self._number, (count,), dtype)
        self._allocations[self._number] = Allocation("arena", self._arena, count * size)
        self._arena += _rounded_up(count * size)
        return Access(value, 0, tuple(found))

    def _contract(self, contraction: Contraction) -> None:
        """Sums of products, as a product of a library if possible."""
        found, shape = arranged(contraction), contraction.shape
        operands = (contraction.out, contraction.x, contraction.y)
        known = self._settings.computes(Product((), 1, 1, 1, *operands, contraction.origins))
        same = contraction.x.value.dtype == contraction.y.value.dtype
        many = size_of(shape) >= tuning.MIN_OPERATIONS_FOR_LIBRARY
        if found is None or not (known and same and many):
            self._loop(contraction)
            return
        batch, rows, inner, columns, swapped = found
        factors = (contraction.y, contraction.x) if swapped else (contraction.x, contraction.y)
        count, down, deep, across = (
            size_of(tuple(shape[d] for d in dims)) for dims in (batch, rows, inner, columns)
        )
        out = grouped(contraction.out, shape, (batch, rows, columns))
        x = self._matrix(factors[0], contraction, (batch, rows, inner))
        y = self._matrix(factors[1], contraction, (batch, inner, columns))
        product = Product((count,), down, deep, across, x, x, y, contraction.origins)
        if out is not None and out.strides[2] == 1:
            self._multiply(replace(product, out=out))
        else:
            made = (count, down, across)
            dense = self._aligned(self._dense_like(made), made, contraction.out.value.dtype)
            self._multiply(replace(product, out=dense))
            order = (*batch, *rows, *columns)
            inside = tuple(shape[d] for d in order)
            to = replace(contraction.out, strides=tuple(contraction.out.strides[d] for d in order))
            given = _within(dense, inside, (batch, rows, columns))
            self._copy(to, given, inside, product.origins)

    def _matrix(
        self, given: Access, contraction: Contraction, groups: tuple[Dims, Dims, Dims]
    ) -> Access:
        """A factor with each group of dimensions as one: its own memory, or that of a copy."""
        shape = contraction.shape
        found = grouped(given, shape, groups)
        rows, columns = (size_of(tuple(shape[d] for d in group)) for group in groups[1:])
        if found is not None and by_columns(rows, columns, (found.strides[1], found.strides[2])):
            return found
        batch = groups[0] if any(given.strides[d] for d in groups[0]) else ()
        lead = tuple(shape[d] for d in (*batch, *groups[1]))
        last = tuple(shape[d] for d in groups[2])
        made = (*lead, columns)
        matrix = self._aligned(self._dense_like(made), made, given.value.dtype)
        to = replace(matrix, strides=(*matrix.strides[:-1], *contiguous(last)))
        order = (*batch, *groups[1], *groups[2])
        there = replace(given, strides=tuple(given.strides[d] for d in order))
        self._copy(to, there, (*lead, *last), contraction.origins)
        step_of = dict(zip(order, to.strides, strict=True))
        used = (batch, *groups[1:])
        return replace(to, strides=tuple(step_of[g[-1]] if g else 0 for g in used))

    def _attend(self, attention: Attention) -> None:
        """Attention on memory that does not move."""
        origins = attention.origins
        of_queries, of_keys = ((*attention.batch, n) for n in (attention.queries, attention.keys))
        shapes = [
            *((*of_queries, attention.features), (*of_keys, attention.features)),
            *((*of_keys, attention.value_features), (*of_queries, attention.value_features)),
            *((*of_queries, 1), (*of_queries, attention.value_features)),
        ]
        operands = tuple(
            self._dense(access, shape, origins)
            for access, shape in zip(attention.operands, shapes, strict=False)
        )
        found = [
            self._new(access, shape) if self._is_elsewhere(access) else access
            for access, shape in zip(attention.results, attention.shapes(), strict=True)
        ]
        self._steps.append(Attend(replace(attention, operands=operands, results=tuple(found))))
        for to, given, shape in zip(attention.results, found, attention.shapes(), strict=True):
            self._changed(to)
            if to is not given:
                self._copy(to, given, shape, origins)

    def _dense(self, given: Access, shape: Shape, origins: tuple[Origin, ...]) -> Access:
        """An operand in fixed memory, without repeated elements: its own, or that of a copy."""
        moves = given.value.number in self._settings.moving
        if not moves and all(step or n == 1 for step, n in zip(given.strides, shape, strict=True)):
            return given
        copy = self._plain(shape, given.value.dtype)
        self._copy(copy, given, shape, origins)
        return copy

    def _is_elsewhere(self, out: Access) -> bool:
        """Whether a library cannot write a result in place.

        It does not check whether bad data were found, and cannot look up memory that moves.
        """
        moves = out.value.number in self._settings.moving
        return moves or (bool(self._failures) and self._outlasts(out.value))

    def _changed(self, out: Access) -> None:
        """Forget the copies of a value that has changed."""
        self._copies.pop(out.value.number, None)

    def _plain(self, shape: Shape, dtype: Any) -> Access:
        """New memory without gaps."""
        return self._new(Access(Value(0, (), dtype), 0, contiguous(shape)), shape)

    def _new(self, like: Access, shape: Shape) -> Access:
        """Memory for a copy of an access, with dimensions in the same order."""
        order = sorted(range(len(shape)), key=lambda d: -abs(like.strides[d]))
        strides, step = [0] * len(shape), 1
        for d in reversed(order):
            if like.strides[d] or d >= len(shape) - 2:  # elements that are repeated stay one
                strides[d] = step
                step *= shape[d]
        self._number += 1
        value = Value(self._number, (step,), like.value.dtype)
        size = step * int(value.dtype.itemsize)
        self._allocations[self._number] = Allocation("arena", self._arena, size)
        self._arena += _rounded_up(size)
        return Access(value, 0, tuple(strides))

    def _copy(self, to: Access, given: Access, shape: Shape, origins: tuple[Origin, ...]) -> None:
        once = tuple(n if to.strides[d] else 1 for d, n in enumerate(shape))
        nodes = (Read(given), Compute(COPY, {}, (0,), given.value.dtype))
        self._loop(Loop(once, nodes, (Store(to, 1),), (), origins))


def _collapses(given: Access, shape: Shape) -> bool:
    """Whether the matrices of a batch have one stride, so that one call computes all."""
    batch = [(s, n) for s, n in zip(given.strides[:-2], shape[:-2], strict=True) if n != 1]
    return all(s == t * n for (s, _), (t, n) in itertools.pairwise(batch))


def _within(dense: Access, inside: Shape, groups: tuple[Dims, Dims, Dims]) -> Access:
    """An access by groups of dimensions, split into its single dimensions."""
    strides: list[int] = []
    position = 0
    for group, step in zip(groups, dense.strides, strict=True):
        sizes = inside[position : position + len(group)]
        position += len(group)
        strides += [step * n for n in contiguous(sizes)]
    return replace(dense, strides=tuple(strides))


def _up_to(number: int, unit: int) -> int:
    """The next multiple of a unit."""
    return -(-number // unit) * unit


def _rounded_up(size: int) -> int:
    return _up_to(size, tuning.ALIGNMENT)


def emit(plan: Plan, settings: GridSettings, gaps: frozenset[int] = frozenset()) -> GridSteps:
    """The steps of a planned program; `gaps` are the values with gaps behind their rows."""
    return GridEmitter(plan, settings, gaps).run()
