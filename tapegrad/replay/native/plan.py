"""Planning: assign memory to each value of a program.

Comes in: a lowered program. Goes out: a `Plan`: the same program with an `Allocation` for every
value. Intermediate values share one arena, each while it is live, or use the memory of a result
that is computed from them. A value to be written to memory from outside is computed directly there
if nothing later needs the old contents; otherwise it is copied there at the end. Called by
`executable.py`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from dataclasses import dataclass
from itertools import islice

from ...core.tape import Value
from ..ir.failing import can_fail
from ..ir.program import (
    Access,
    Callback,
    Compute,
    Input,
    Instruction,
    Loop,
    Origin,
    Program,
    Read,
    Store,
    bytes_of,
    contiguous,
    in_order,
)
from ..passes.builder import COPY
from ..passes.sink_writes import copied
from . import tuning


@dataclass(frozen=True, slots=True)
class Allocation:
    """Memory of a value: an input, constant or result by position, or a part of the arena."""

    kind: str  # "input", "constant", "result" or "arena"
    index: int  # the position, or the offset in bytes
    size: int  # bytes


@dataclass(frozen=True, slots=True)
class Plan:
    """A program with an allocation for each value."""

    program: Program
    allocations: dict[int, Allocation]
    arena: int  # bytes


def plan(program: Program, threads: int) -> Plan:
    """Assign memory to every value of a lowered program."""
    allocations: dict[int, Allocation] = {}
    for i, given in enumerate(program.inputs):
        allocations[given.value.number] = Allocation("input", i, bytes_of(given.value))
    for i, (value, _) in enumerate(program.constants):
        allocations[value.number] = Allocation("constant", i, bytes_of(value))
    for i, value in enumerate(program.results):
        allocations[value.number] = Allocation("result", i, bytes_of(value))
    program = _with_writes(program, allocations)
    _place_in_results(program, allocations)
    arena = _allocate(program, allocations, threads)
    return Plan(program, allocations, arena)


# -- writes to memory from outside ---------------------------------------------------------------


def _with_writes(program: Program, allocations: dict[int, Allocation]) -> Program:
    """Compute written values in their target memory where possible; else append copies."""
    inputs = {given.value.number: given for given in program.inputs}
    copies: list[Instruction] = []
    idle: list[Instruction] = []
    order = _Order(program.instructions)
    for target, value in program.writes:
        if _writes_through(order, inputs[target.number], value):
            allocations[value.number] = allocations[target.number]
            first = program.instructions[order.written[value.number]]
            source = copied(first)
            if source is not None and source.value.number == target.number:
                idle.append(first)  # the elements are there already
        else:
            strides = inputs[target.number].strides
            nodes = (
                Read(Access(value, 0, contiguous(target.shape))),
                Compute(COPY, {}, (0,), value.dtype),
            )
            store = Store(Access(target, 0, strides), 1)
            copies.append(Loop(target.shape, nodes, (store,), (), (Origin("write", None),)))
    kept = [i for i in program.instructions if not any(i is one for one in idle)]
    return program.with_instructions((*kept, *copies))


def _place_in_results(program: Program, allocations: dict[int, Allocation]) -> None:
    """Put values from which a result is computed elementwise into the memory of the result."""
    order = _Order(program.instructions)
    writers = Counter(v.number for i in program.instructions for v in set(i.writes()))
    for result in program.results:
        memory = allocations[result.number]
        target: Value | None = result
        while target is not None and memory.kind == "result" and writers[target.number] == 1:
            position = order.written[target.number]
            instruction = program.instructions[position]
            found = (
                v
                for v in instruction.reads()
                if v.number not in allocations
                and order.read[v.number] == position
                and bytes_of(v) == memory.size
                and v.dtype.itemsize == result.dtype.itemsize
                and _same_element(instruction, v, target)
            )
            target = next(found, None)
            if target is not None:
                allocations[target.number] = memory


class _Order:
    """The positions of each value's first write and last read, and of the last possible error."""

    def __init__(self, instructions: tuple[Instruction, ...]) -> None:
        self.instructions = instructions
        self.written: dict[int, int] = {}
        self.read: dict[int, int] = {}
        self.failing = -1
        for i, instruction in enumerate(instructions):
            for value in instruction.writes():
                self.written.setdefault(value.number, i)
            for value in instruction.reads():
                self.read[value.number] = i
            if can_fail(instruction):
                self.failing = i


def _writes_through(order: _Order, target: Input, value: Value) -> bool:
    """Whether a value may be computed in the memory of the input that it replaces."""
    shape = target.value.shape
    if target.aliased or not in_order(shape, target.strides) or value.dtype != target.value.dtype:
        return False
    first = order.written.get(value.number)
    # An error must be found before the first change of memory from outside.
    if first is None or order.failing >= first:
        return False
    if order.read.get(target.value.number, -1) > first:
        return False
    return _same_element(order.instructions[first], target.value, value)


def _same_element(instruction: Instruction, old: Value, new: Value) -> bool:
    """Whether an instruction reads from `old` only the element that it next writes to `new`."""
    if all(v.number != old.number for v in instruction.reads()):
        return True
    if isinstance(instruction, Callback):
        return bool(instruction.params.get("in_place"))
    if not isinstance(instruction, Loop):
        return False
    stores = [s.access for s in instruction.stores if s.access.value.number == new.number]
    if len(stores) != 1 or stores[0].picks:
        return False
    reads = [
        n.access
        for n in instruction.nodes
        if isinstance(n, Read) and any(v.number == old.number for v in n.access.values())
    ]
    return all(
        a.value.number == old.number
        and not a.picks
        and a.offset == stores[0].offset
        and _steps(a, instruction.shape) == _steps(stores[0], instruction.shape)
        for a in reads
    )


def _steps(access: Access, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(0 if n == 1 else s for n, s in zip(shape, access.strides, strict=True))


# -- the arena -----------------------------------------------------------------------------------
#
# Threads divide all values in the same way: the first of two threads has the first half of each. A
# value in the memory of an earlier one of its size is therefore written by the threads whose caches
# already hold those lines; in memory of other sizes it often is not. With threads on two parts of a
# processor that have separate caches, a CNN's step takes 6.0 ms if any free memory is used, 5.3 ms
# if each allocation serves one size, and 3.8 ms if those of different sizes do not overlap; 2.6 ms
# where threads share a cache.


class _Arena:
    """Memory for values, each while it is live."""

    def __init__(
        self, program: Program, allocations: dict[int, Allocation], separate_bytes: int
    ) -> None:
        self.allocations = dict(allocations)
        #: arena size in bytes up to which allocations of different sizes do not overlap
        self.separate_bytes = separate_bytes
        self.peak = 0
        self.live: dict[int, tuple[int, int]] = {}  # by value number: (offset, size)
        self.taken: list[tuple[int, int]] = []  # the same, sorted
        self.slots: set[tuple[int, int]] = set()  # all large allocations so far
        self.left: dict[int, dict[int, None]] = {}  # by size: freed offsets, in order of freeing
        self._fill(program)

    def _fill(self, program: Program) -> None:
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        values: dict[int, Value] = {}
        for i, instruction in enumerate(program.instructions):
            for value in (*instruction.writes(), *instruction.reads()):
                values[value.number] = value
                first.setdefault(value.number, i)
                last[value.number] = i
        live, unit = self.live, tuning.ARENA_ALIGNMENT_BYTES
        for i, instruction in enumerate(program.instructions):
            ending = {v.number for v in instruction.reads() if last[v.number] == i} & live.keys()
            # A value that is read but never written is empty; it gets memory like all others.
            for value in (*instruction.writes(), *instruction.reads()):
                number = value.number
                if number in self.allocations or first[number] != i:
                    continue
                size = -(-max(bytes_of(value), 1) // unit) * unit
                donor = next(
                    (
                        n
                        for n in ending
                        if live[n][1] == size
                        and values[n].dtype.itemsize == value.dtype.itemsize
                        and _same_element(instruction, values[n], value)
                    ),
                    None,
                )
                if donor is not None:
                    ending.discard(donor)
                    offset = live.pop(donor)[0]
                else:
                    offset = self._free(size)
                    insort(self.taken, (offset, size))
                live[number] = (offset, size)
                self.allocations[number] = Allocation("arena", offset, size)
                self.peak = max(self.peak, offset + size)
            for number in {v.number for v in (*instruction.writes(), *instruction.reads())}:
                if last[number] == i and number in live:
                    self._leave(live.pop(number))

    def _leave(self, allocation: tuple[int, int]) -> None:
        """Free an allocation."""
        del self.taken[bisect_left(self.taken, allocation)]
        left = self.left.setdefault(allocation[1], {})
        left.pop(allocation[0], None)
        left[allocation[0]] = None

    def _free(self, size: int) -> int:
        """An offset where `size` bytes are free."""
        left = self.left.get(size, {})
        for offset in islice(reversed(left), tuning.MAX_FREED_SLOTS_TRIED):
            following = bisect_left(self.taken, (offset, 0))
            before = self.taken[following - 1] if following else (0, 0)
            after = self.taken[following] if following < len(self.taken) else (offset + size, 0)
            if sum(before) <= offset and offset + size <= after[0]:
                del left[offset]
                return offset
        offset = _gap(self.taken, size)
        if self.separate_bytes and size >= tuning.MIN_SHARED_VALUE_BYTES:
            apart = _gap(sorted(self.slots.union(self.taken)), size)
            offset = apart if apart + size <= self.separate_bytes else offset
            self.slots.add((offset, size))
        return offset

    def foreign(self, program: Program, threads: int) -> int:
        """The bytes per run that threads write to memory last written by another thread."""
        owners: dict[int, int] = {}
        length = tuning.MIN_SHARED_VALUE_BYTES  # of a block
        found = 0
        for turn in range(2):
            for instruction in program.instructions:
                for value in instruction.writes():
                    allocation = self.allocations[value.number]
                    if allocation.kind != "arena" or allocation.size < length:
                        continue
                    end = allocation.index + allocation.size
                    for block in range(allocation.index // length, end // length):
                        inside = max(block * length - allocation.index, 0)
                        owner = inside * threads // allocation.size
                        found += turn and length * (owners.get(block, owner) != owner)
                        owners[block] = owner
        return found


def _allocate(program: Program, allocations: dict[int, Allocation], threads: int) -> int:
    """Assign the remaining values parts of one arena; returns its size in bytes."""
    arena = _Arena(program, allocations, 0)
    short = len(program.instructions) <= tuning.MAX_INSTRUCTIONS_TO_COMPARE_ARENAS
    if short and threads > 1 and arena.peak > threads * tuning.MIN_SHARED_VALUE_BYTES:
        apart = _Arena(program, allocations, int(tuning.MAX_ARENA_GROWTH * arena.peak))
        fits = program.budget is None or apart.peak <= program.budget
        spared = arena.foreign(program, threads) - apart.foreign(program, threads)
        if fits and spared > tuning.MIN_TRAFFIC_SAVED_PER_EXTRA_BYTE * (apart.peak - arena.peak):
            arena = apart
    allocations.update(arena.allocations)
    return arena.peak


def _gap(taken: list[tuple[int, int]], size: int) -> int:
    """The lowest offset where `size` bytes are free, given the sorted allocations."""
    offset = 0
    for start, length in taken:
        if start - offset >= size:
            break
        offset = max(offset, start + length)
    return offset
