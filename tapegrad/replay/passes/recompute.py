"""Recomputation: values are computed a second time instead of being kept, to stay within a budget.

Comes in: a program after all other passes, the bytes that each of its values takes, and how many
may be live at once. Goes out: the program with copies of some instructions shortly before their
results are read again. `dead` removes what is dead then. Called by `cpu/budget.py`.

At the instruction where most bytes are live, each live value that is only read later can be freed
and recomputed before that read. Its operands must exist then: they are live anyway, were recomputed
before, or are recomputed too, as far back as necessary. The pass frees the value with the least
work per byte, and repeats that while more bytes are live than the budget allows.
A copy computes the same on the same data. But LLVM compiles a loop with fewer results, or in other
memory, to other code, which may or may not fuse a product and a sum, and so round differently.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ...core.tape import Value
from ..ir.failing import can_fail
from ..ir.program import (
    Attention,
    Callback,
    Contraction,
    Instruction,
    Loop,
    Product,
    Program,
    Read,
    size_of,
)
from ..ir.renaming import renamed
from .simplify import trimmed

#: multiplications of a product that take as long as one read or write of an element in a loop
MULTIPLICATIONS_PER_ACCESS = 8
#: most instructions that are repeated for one value
MAX_REPEATED = 64
#: an operand is kept, not recomputed, if the value is at least so many times as large
MIN_SIZE_RATIO_OF_KEPT_OPERAND = 4
#: smallest value that is worth freeing, as a share of the bytes live at the peak
MIN_SHARE = 1 / 4096
#: values that are tried at one peak before the pass gives up
MAX_TRIALS = 64


def recomputed(
    program: Program, sizes: Mapping[int, int], limit: int, most: float = math.inf
) -> Program:
    """Recompute values until at most `limit` bytes are live, or nothing helps.

    `sizes` has the bytes of the values that count, by number. `most` limits the added work, as a
    share of the program's work.
    """
    most *= sum(map(work_of, program.instructions))
    schedule = _Lifetimes(program, sizes)
    while schedule.excess(limit) and schedule.improve(limit, most):
        pass
    schedule.check()
    return program.with_instructions(step.instruction for step in schedule.steps)


def work_of(instruction: Instruction) -> float:
    """The estimated cost of an instruction, in multiplications of a product."""
    if isinstance(instruction, Product):
        matrix = instruction.rows * instruction.inner * instruction.columns
        return size_of(instruction.batch) * matrix / (2 if instruction.triangle else 1)
    if isinstance(instruction, Contraction):
        return float(size_of(instruction.shape))
    if isinstance(instruction, Attention):
        pairs = size_of(instruction.batch) * instruction.queries * instruction.keys
        passes = 2.5 if instruction.backward else 1.0
        features = instruction.features + instruction.value_features
        return pairs * features * passes / (2 if instruction.causal else 1)
    if isinstance(instruction, Loop):
        accesses = len(instruction.stores) + len(instruction.folds)
        accesses += sum(isinstance(node, Read) for node in instruction.nodes)
        each = MULTIPLICATIONS_PER_ACCESS * accesses + len(instruction.nodes)
        return float(size_of(instruction.shape) * each)
    return 0.0


@dataclass(frozen=True, slots=True)
class _Step:
    """An instruction with the numbers of the values that it reads and writes."""

    instruction: Instruction
    reads: tuple[int, ...]
    writes: tuple[int, ...]


def _step(instruction: Instruction) -> _Step:
    return _Step(
        instruction,
        tuple({v.number for v in instruction.reads()}),
        tuple({v.number for v in instruction.writes()}),
    )


class _Lifetimes:
    """The instructions in order, with the bytes that are live at each of them."""

    def __init__(self, program: Program, sizes: Mapping[int, int]) -> None:
        self.sizes = dict(sizes)
        self.needed = {v.number for v in program.needed()}
        self.outside = {i.value.number for i in program.inputs}
        self.outside |= {value.number for value, _ in program.constants}
        self.written_to = {target.number: value.number for target, value in program.writes}
        self.values = {v.number: v for i in program.instructions for v in i.writes()}
        self.next_number = program.next_number()
        #: the work of all recomputed instructions so far
        self.work = 0.0
        #: by number of a recomputed value: its original; by original: all its recomputed values
        self.root: dict[int, int] = {}
        self.versions: dict[int, list[int]] = defaultdict(list)
        self.set([_step(instruction) for instruction in program.instructions])

    def set(self, steps: list[_Step]) -> None:
        """Take a list of instructions, and find where values are made, read and live."""
        self.steps = steps
        self.made: dict[int, int] = {}
        self.makers: dict[int, list[int]] = defaultdict(list)
        self.read: dict[int, list[int]] = defaultdict(list)
        for i, step in enumerate(steps):
            for number in step.writes:
                self.makers[number].append(i)
                self.made.setdefault(number, i)
            for number in step.reads:
                self.read[number].append(i)
        end = len(steps)
        self.last = {
            number: end
            if number in self.needed
            else max([*self.makers[number], *self.read[number]])
            for number in self.made
        }
        change = [0] * (end + 2)
        for number, first in self.made.items():
            size = self.sizes.get(number, 0)
            change[first] += size
            change[self.last[number] + 1] -= size
        self.live: list[int] = []
        total = 0
        for step, more in zip(steps, change, strict=False):
            total += more
            self.live.append(total - self._taken_over(step, len(self.live)))

    def _taken_over(self, step: _Step, at: int) -> int:
        """Bytes of an operand that dies in a loop, so that a result can take its memory."""
        if not isinstance(step.instruction, Loop) or not step.writes:
            return 0
        size = max(self.sizes.get(number, 0) for number in step.writes)
        ends = any(
            self.sizes.get(number) == size and self.last.get(number) == at for number in step.reads
        )
        return size if ends else 0

    def excess(self, limit: int) -> int:
        """The bytes above a limit, summed over all instructions."""
        return sum(max(0, live - limit) for live in self.live)

    def improve(self, limit: int, most: float) -> bool:
        """Free one value at the peak and recompute it later; whether that was possible."""
        peak = max(self.live)
        at = self.live.index(peak)
        ways = [
            self._way(number, at)
            for number, first in self.made.items()
            if first < at < self.last[number]
            and number not in self.needed
            and self.sizes.get(number, 0) > MIN_SHARE * peak
            and at not in self.read[number]
            and at not in self.makers[number]
            and self.last[number] > self.makers[number][-1]
        ]
        ways = [way for way in ways if way.value.number != way.number]
        ways.sort(key=lambda way: way.work / self.sizes[way.number])
        before, excess = self.steps, self.excess(limit)
        for way in ways[:MAX_TRIALS]:
            if self.work + way.work > most:
                break
            self.set(_with(before, way))
            if self.excess(limit) < excess:
                self.work += way.work
                for number, new in way.again.made:
                    root = self.root[new.number] = self.root.get(number, number)
                    self.versions[root].append(new.number)
                return True
        self.set(before)
        return False

    def check(self) -> None:
        """Raise if a value is read before it is made: a copy would be in a wrong place."""
        for number, at in self.read.items():
            if at and number not in self.outside and at[0] < self.made.get(number, 0):
                raise AssertionError(f"%{number} is read before it is made")

    def _way(self, number: int, at: int) -> _Way:
        """How to free a value at an instruction, and recompute it before its next use."""
        use = min(i for i in self.read[number] if i > at)
        again = _Again(self, at, use, self.sizes[number])
        value = again.version(number, itself=False)
        return _Way(number, use, value, again, sum(map(work_of, again.instructions)))

    def new(self, number: int) -> Value:
        """A new value with the shape, dtype and size of this one."""
        old = self.values[number]
        value = Value(self.next_number, old.shape, old.dtype)
        self.next_number += 1
        self.values[value.number] = value
        if number in self.sizes:
            self.sizes[value.number] = self.sizes[number]
        return value

    def _is_unchanged(self, number: int, use: int) -> bool:
        """Whether memory from outside is not written to until an instruction."""
        written = self.written_to.get(number)
        return written is None or self.made.get(written, use + 1) > use

    def is_repeatable(self, number: int, use: int) -> bool:
        """Whether the instruction that makes a value gives the same later, without side effects."""
        at, *more = self.makers[number]
        step = self.steps[at]
        instruction = step.instruction
        if more or isinstance(instruction, Callback) or can_fail(instruction):
            return False
        if any(len(self.makers[other]) > 1 for other in step.writes):
            return False
        for other in step.reads:
            if other in self.outside:
                if not self._is_unchanged(other, use):
                    return False
            elif not self.makers[other] or self.makers[other][-1] > at:
                return False
        adds = isinstance(instruction, Product) and instruction.adds
        return not adds and not (
            isinstance(instruction, Loop) and any(store.adds for store in instruction.stores)
        )


class _Way(NamedTuple):
    """How a value need not be kept between two instructions."""

    number: int
    use: int  # the instruction that reads it next
    value: Value  # the value that is read there instead
    again: _Again
    work: float


def _with(steps: list[_Step], way: _Way) -> list[_Step]:
    """The instructions after a value is recomputed before its next use."""
    names = {way.number: way.value}
    later = [
        _step(renamed(step.instruction, names)) if way.number in step.reads else step
        for step in steps[way.use :]
    ]
    return [*steps[: way.use], *map(_step, way.again.instructions), *later]


class _Again:
    """The instructions that recompute a value right before its use."""

    def __init__(self, schedule: _Lifetimes, at: int, use: int, size: int) -> None:
        self.schedule = schedule
        self.at, self.use, self.size = at, use, size
        self.instructions: list[Instruction] = []
        #: pairs: the number of a recomputed value, and its new value
        self.made: list[tuple[int, Value]] = []
        self._known: dict[int, Value] = {}
        self._count = 0

    def version(self, number: int, itself: bool = True) -> Value:
        """A value that is equal to this one and is live at the use.

        If it cannot be recomputed, it is the value itself, which then stays live until the use.
        """
        if number not in self._known:
            found = self._there(number) if itself else self._computed_again(number)
            if found is not None or not self._repeat(number):
                found = number if found is None else found
                self._known[number] = self.schedule.values[found]
        return self._known[number]

    def _there(self, number: int) -> int | None:
        """The value, if it is live anyway or small; or an earlier recomputation of it."""
        schedule = self.schedule
        size = schedule.sizes.get(number, 0)
        is_small = size * MIN_SIZE_RATIO_OF_KEPT_OPERAND <= self.size
        if is_small or schedule.last[number] >= self.use:
            return number
        return self._computed_again(number)

    def _computed_again(self, number: int) -> int | None:
        """The latest equal value that is made between the peak and the use."""
        root = self.schedule.root.get(number, number)
        made = self.schedule.made
        found = [n for n in (root, *self.schedule.versions[root]) if self.at < made[n] < self.use]
        return max(found, key=made.__getitem__, default=None)

    def _repeat(self, number: int) -> bool:
        """Recompute a value, if its instruction can be repeated; whether it can."""
        schedule = self.schedule
        if self._count >= MAX_REPEATED or not schedule.is_repeatable(number, self.use):
            return False
        self._count += 1
        source = schedule.steps[schedule.made[number]].instruction
        if isinstance(source, Loop):
            source = trimmed(source, {number})
        names = {
            v.number: self.version(v.number)
            for v in source.reads()
            if v.number not in schedule.outside
        }
        for written in {value.number for value in source.writes()}:
            new = names[written] = self._known[written] = schedule.new(written)
            self.made.append((written, new))
        self.instructions.append(renamed(source, names))
        return True
