"""Emission: the instructions of a program become launches of kernels and calls of libraries.

Comes in: a `Plan`. Goes out: steps in the order in which they run, one after another, and the texts
of the kernels. Libraries are given addresses once and for all, so operands whose memory moves from
run to run are copied for them. Nothing here runs; `executable.py` does that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...core.source import Location
from ...core.tape import Value
from ..ir.failing import can_fail, culprit
from ..ir.program import (
    Access,
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
)
from ..native.plan import Allocation, Plan
from ..passes.builder import COPY
from . import tuning
from .kernel import GridKernel
from .loops import GridSettings, loop
from .sums import added, loop_of_contraction, loop_of_product


@dataclass(frozen=True, slots=True)
class ValuePointer:
    """Memory that a kernel is given: a value, and bytes from its beginning."""

    value: int
    offset: int


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """One kernel on a grid."""

    text: str
    blocks: int
    threads: int
    pointers: tuple[ValuePointer, ...]
    #: the word of its own status among those of all failures; None if it checks nothing
    status: int | None
    #: whether it is given the word that says that bad data were found
    failed: bool
    #: where in the scratch memory each of its partial results begins
    partials: tuple[int, ...]
    instruction: Instruction


@dataclass(frozen=True, slots=True)
class Multiply:
    """A product that a library computes."""

    product: Product


GridStep = KernelLaunch | Multiply | Callback


@dataclass(frozen=True, slots=True)
class GridSteps:
    """The steps of a program."""

    steps: tuple[GridStep, ...]
    #: memory of all values, with what was added for libraries
    allocations: dict[int, Allocation]
    #: bytes of that memory
    arena: int
    #: what it means when a word of the status is set
    failures: tuple[tuple[str, Location | None], ...]
    #: bytes of scratch memory, for what one kernel leaves for the next
    scratch: int


class GridEmitter:
    """Makes the steps of one program."""

    def __init__(self, plan: Plan, settings: GridSettings) -> None:
        self._program = plan.program
        self._allocations = dict(plan.allocations)
        self._arena = plan.arena
        self._settings = settings
        self._steps: list[GridStep] = []
        self._failures: list[tuple[str, Location | None]] = []
        self._scratch = 0
        self._number = max(self._allocations, default=0)

    def run(self) -> GridSteps:
        for instruction in self._program.instructions:
            if isinstance(instruction, Callback):
                self._steps.append(instruction)
            elif isinstance(instruction, Product) and self._is_for_library(instruction):
                self._multiply(instruction)
            else:
                self._loop(instruction)
        return GridSteps(
            tuple(self._steps),
            self._allocations,
            self._arena,
            tuple(self._failures),
            self._scratch,
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
        guarded = bool(self._failures) and any(map(self._outlasts, instruction.writes()))
        self._launch(instruction, loop(written, self._allocations, self._settings, guarded))

    def _add(self, product: Product) -> None:
        """A product of loops that is added to what is there."""
        shape = (*product.batch, product.rows, product.columns)
        out = self._new(product.out, shape)
        self._loop(replace(product, out=out, adds=False))
        self._loop(added(product.out, out, shape, product.origins))

    def _outlasts(self, value: Value) -> bool:
        """Whether a value lies in memory from outside, which bad data must not change."""
        return self._allocations[value.number].kind == "input"

    def _launch(self, instruction: Instruction, kernels: Sequence[GridKernel]) -> None:
        for kernel in kernels:
            starts, position = [], 0
            for size in kernel.partials:
                starts.append(position)
                position += _rounded_up(size)
            self._scratch = max(self._scratch, position)
            self._steps.append(
                KernelLaunch(
                    kernel.text,
                    kernel.blocks,
                    kernel.threads,
                    tuple(ValuePointer(*where) for where in kernel.pointers),
                    len(self._failures) if kernel.checks else None,
                    kernel.checks or kernel.guarded,
                    tuple(starts),
                    instruction,
                )
            )
        if can_fail(instruction):
            self._failures.append(culprit(instruction))

    # -- libraries ---------------------------------------------------------------------------

    def _is_for_library(self, product: Product) -> bool:
        sizes = (*product.batch, product.rows, product.inner, product.columns)
        return not product.triangle and all(sizes) and self._settings.computes(product)

    def _multiply(self, product: Product) -> None:
        """A product on memory that stays where it is."""
        x = self._still(product, product.x, product.rows, product.inner)
        y = self._still(product, product.y, product.inner, product.columns)
        shape = (*product.batch, product.rows, product.columns)
        moves = product.out.value.number in self._settings.moving
        # A library does not ask whether bad data were found.
        if moves or (self._failures and self._outlasts(product.out.value)):
            out = self._new(product.out, shape)
            if product.adds:
                self._copy(out, product.out, shape, product.origins)
            self._steps.append(Multiply(replace(product, x=x, y=y, out=out)))
            self._copy(product.out, out, shape, product.origins)
        else:
            self._steps.append(Multiply(replace(product, x=x, y=y)))

    def _still(self, product: Product, given: Access, rows: int, columns: int) -> Access:
        """An operand in memory that stays where it is: its own, or a copy's."""
        if given.value.number not in self._settings.moving:
            return given
        shape = (*product.batch, rows, columns)
        copy = self._new(given, shape)
        self._copy(copy, given, shape, product.origins)
        return copy

    def _new(self, like: Access, shape: Shape) -> Access:
        """Memory for a copy of what an access reads; dimensions in the same order."""
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


def _rounded_up(size: int) -> int:
    return -(-size // tuning.ALIGNMENT) * tuning.ALIGNMENT


def emit(plan: Plan, settings: GridSettings) -> GridSteps:
    """The steps of a planned program."""
    return GridEmitter(plan, settings).run()
