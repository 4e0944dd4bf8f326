"""Recomputation: values are computed a second time instead of being kept, to stay within a budget.

Comes in: a program after all other passes, the bytes that each of its values takes, and how many
may be live at once. Goes out: the program with copies of some instructions shortly before their
results are read again. What nobody reads any more, the pass `dead` drops. Called by
`cpu/budget.py`.

At the moment at which most bytes are live, every value that is only read later could be dropped and
computed again before that. What it is computed from must be there then: because it is kept anyway,
or was computed again already, or is computed again itself, as far back as that takes. The value
goes that saves most bytes for the least work, as long as bytes are live that exceed the budget.
A copy computes the same on the same data; but a loop with fewer results, or in other memory, is
other code for LLVM, which may round a product and a sum once or twice.
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

#: how many multiplications of a product take as long as reading or writing an element of a loop
MULTIPLICATIONS_PER_ACCESS = 8
#: instructions that are repeated for one value, at most
MAX_REPEATED = 64
#: an operand of which so many are as large as the value is kept for it, and not computed again
MIN_SIZE_RATIO_OF_KEPT_OPERAND = 4
#: values that are smaller than this part of all that is live are not worth it
MIN_SHARE = 1 / 4096
#: ways to save memory that are tried at one moment before the pass gives up
MAX_TRIALS = 64


def recomputed(
    program: Program, sizes: Mapping[int, int], limit: int, most: float = math.inf
) -> Program:
    """With values computed again, until at most `limit` bytes are live, or nothing helps.

    `sizes` are the bytes of the values that count, by their numbers. `most` is how much more work
    there may be, as a part of all.
    """
    most *= sum(map(work_of, program.instructions))
    schedule = _Lifetimes(program, sizes)
    while schedule.excess(limit) and schedule.improve(limit, most):
        pass
    schedule.check()
    return program.with_instructions(step.instruction for step in schedule.steps)


def work_of(instruction: Instruction) -> float:
    """About how long an instruction takes, in multiplications of a product."""
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
    """An instruction with the numbers of what it reads and writes."""

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
    """The instructions in their order, with what is live at each of them."""

    def __init__(self, program: Program, sizes: Mapping[int, int]) -> None:
        self.sizes = dict(sizes)
        self.needed = {v.number for v in program.needed()}
        self.outside = {i.value.number for i in program.inputs}
        self.outside |= {value.number for value, _ in program.constants}
        self.written_to = {target.number: value.number for target, value in program.writes}
        self.values = {v.number: v for i in program.instructions for v in i.writes()}
        self.next_number = program.next_number()
        #: that of all that is computed again
        self.work = 0.0
        #: by number: the value that this one is, computed again; and all that are the same
        self.root: dict[int, int] = {}
        self.versions: dict[int, list[int]] = defaultdict(list)
        self.set([_step(instruction) for instruction in program.instructions])

    def set(self, steps: list[_Step]) -> None:
        """Take an order of instructions, and find where its values are made and read."""
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
        """Bytes of what a loop reads for the last time, and can write its results to."""
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
        """Drop a value where most is live, and compute it again later; whether that can be."""
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
        """Every value is made before it is read: a copy in a wrong place must not go unnoticed."""
        for number, at in self.read.items():
            if at and number not in self.outside and at[0] < self.made.get(number, 0):
                raise AssertionError(f"%{number} is read before it is made")

    def _way(self, number: int, at: int) -> _Way:
        """How to do without a value at a moment."""
        use = min(i for i in self.read[number] if i > at)
        again = _Again(self, at, use, self.sizes[number])
        value = again.version(number, itself=False)
        return _Way(number, use, value, again, sum(map(work_of, again.instructions)))

    def new(self, number: int) -> Value:
        """Another value like this one."""
        old = self.values[number]
        value = Value(self.next_number, old.shape, old.dtype)
        self.next_number += 1
        self.values[value.number] = value
        if number in self.sizes:
            self.sizes[value.number] = self.sizes[number]
        return value

    def _is_unchanged(self, number: int, use: int) -> bool:
        """Whether memory from outside has not been written to yet at a moment."""
        written = self.written_to.get(number)
        return written is None or self.made.get(written, use + 1) > use

    def is_repeatable(self, number: int, use: int) -> bool:
        """Whether what makes a value gives the same again later, and does nothing else."""
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
    """How a value need not be kept."""

    number: int
    use: int  # where it is read next
    value: Value  # what is read then
    again: _Again
    work: float


def _with(steps: list[_Step], way: _Way) -> list[_Step]:
    """Instructions in the order in which a value is not kept."""
    names = {way.number: way.value}
    later = [
        _step(renamed(step.instruction, names)) if way.number in step.reads else step
        for step in steps[way.use :]
    ]
    return [*steps[: way.use], *map(_step, way.again.instructions), *later]


class _Again:
    """The instructions that compute a value again, right before it is used."""

    def __init__(self, schedule: _Lifetimes, at: int, use: int, size: int) -> None:
        self.schedule = schedule
        self.at, self.use, self.size = at, use, size
        self.instructions: list[Instruction] = []
        #: what is computed again, and the new value
        self.made: list[tuple[int, Value]] = []
        self._known: dict[int, Value] = {}
        self._count = 0

    def version(self, number: int, itself: bool = True) -> Value:
        """A value that is equal to this one and is there when it is used.

        That is the value itself where nothing else can be done: it is then kept until then.
        """
        if number not in self._known:
            found = self._there(number) if itself else self._computed_again(number)
            if found is not None or not self._repeat(number):
                found = number if found is None else found
                self._known[number] = self.schedule.values[found]
        return self._known[number]

    def _there(self, number: int) -> int | None:
        """The value, if it is kept anyway or is small; or one that was computed again."""
        schedule = self.schedule
        size = schedule.sizes.get(number, 0)
        is_small = size * MIN_SIZE_RATIO_OF_KEPT_OPERAND <= self.size
        if is_small or schedule.last[number] >= self.use:
            return number
        return self._computed_again(number)

    def _computed_again(self, number: int) -> int | None:
        """An equal value that is made between the moment and the use."""
        root = self.schedule.root.get(number, number)
        made = self.schedule.made
        found = [n for n in (root, *self.schedule.versions[root]) if self.at < made[n] < self.use]
        return max(found, key=made.__getitem__, default=None)

    def _repeat(self, number: int) -> bool:
        """Compute a value again, if its instruction can be repeated."""
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
