"""Overlap: communication runs while other instructions compute.

Comes in: a recorded program. Goes out: the same program, in which each collective that can be split
into a start and a wait (`Primitive.halves`) starts early and is waited for late. Called by
`pipeline.py`.

- A collective starts where it stood. The wait goes right before the first instruction that computes
  with its result; views of the result come after the wait too.
- A gather (its result is larger than its operand) whose operand is an input, or an input moved,
  starts where the gather before it in its group stood. Its wait goes where it stood itself: at most
  one gather is ahead, so that takes only the memory of its result.
- After the last start, instructions are sorted by the start of the latest collective that they
  need: what reads the first result is computed while the last collective runs.
- A reduction whose operand is larger than its result is waited for before the next such reduction
  starts, so at most one such operand is kept alive.

The order depends on the order of the collectives alone, so all ranks start them in the same order.
After lowering, `in_place` lets a collective work in the memory of its operand if nothing else reads
that, and marks collectives that overlap with no computation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...core.primitive import MOVEMENT
from ...core.tape import Value
from ..ir.program import Apply, Callback, Instruction, Program, View, in_order, size_of


def overlap(program: Program) -> Program:
    """Start collectives early, and wait for them late."""
    applied = program.applied()
    if not any(x.primitive.halves or x.primitive.half for x in applied):
        return program
    schedule = _Schedule(program, applied)
    for x in applied:
        schedule.add(x)
    return program.with_instructions(schedule.ended(program))


class _Schedule:
    """The instructions in their new order, to which `add` appends one after another."""

    def __init__(self, program: Program, applied: Sequence[Apply]) -> None:
        self._number = program.next_number()
        self._made: list[Instruction] = []
        #: by number of a value: the wait or view that makes it, put off until its first use
        self._late: dict[int, Apply] = {}
        self._makers = {value.number: x for x in applied for value in x.outputs}
        self._moved = _moved(program, applied)
        #: by number of a gather's result: the gather that starts there; by number of a
        #: collective's result: its handle
        self._next: dict[int, Apply] = {}
        self._handles: dict[int, Value] = {}
        #: numbers of the values that the instructions so far make
        self._there: set[int] = set()
        #: the result of the latest reduction whose operand is larger than its result
        self._reduced: Value | None = None
        latest: dict[Any, Apply] = {}
        for x in applied:
            if self._is_early(x):
                before = latest.get(x.params["group"])
                if before is not None:
                    self._next[before.outputs[0].number] = x
                latest[x.params["group"]] = x

    def _is_early(self, x: Apply) -> bool:
        """Whether it is a gather that may start before its place."""
        if x.primitive.halves is None or _operand_size(x) >= size_of(x.outputs[0].shape):
            return False
        return all(value.number in self._moved for value in x.reads())

    def add(self, x: Apply) -> None:
        """Append the next instruction of the program to the order."""
        if x.outputs and x.outputs[0].number in self._there:
            return  # `_put_early` has moved it ahead
        if self._is_early(x):
            if x.outputs[0].number not in self._handles:
                self._begin(x)
            self._put(self._wait(x))
            following = self._next.get(x.outputs[0].number)
            if following is not None:
                for value in following.reads():
                    self._put_early(value)
                self._begin(following)
            return
        if x.primitive.view and any(value.number in self._late for value in x.reads()):
            self._late[x.outputs[0].number] = x
            return
        for value in x.reads():
            self._bring(value)
        if x.primitive.half == "wait":
            self._late[x.outputs[0].number] = x
        elif x.primitive.halves is None:
            self._put(x)
        else:
            if _operand_size(x) > size_of(x.outputs[0].shape):
                if self._reduced is not None:
                    self._bring(self._reduced)
                self._reduced = x.outputs[0]
            self._begin(x)
            self._late[x.outputs[0].number] = self._wait(x)

    def _begin(self, x: Apply) -> None:
        assert x.primitive.halves is not None
        handle = Value(self._number, (), np.dtype(np.int64))
        self._number += 1
        self._handles[x.outputs[0].number] = handle
        start = x.primitive.halves[0]
        self._put(replace(x, primitive=start, inputs=x.inputs[:1], outputs=(handle,)))

    def _wait(self, x: Apply) -> Apply:
        assert x.primitive.halves is not None
        handle, group = self._handles[x.outputs[0].number], {"group": x.params["group"]}
        return replace(x, primitive=x.primitive.halves[1], params=group, inputs=(handle, *x.inputs))

    def _bring(self, value: Value) -> None:
        """Append the wait or view that makes a value, now that it is needed."""
        x = self._late.pop(value.number, None)
        if x is not None:
            for read in x.reads():
                self._bring(read)
            self._put(x)

    def _put_early(self, value: Value) -> None:
        """Append the movements that make a value of inputs, before their place."""
        x = self._makers.get(value.number)
        if x is not None and value.number not in self._there:
            for read in x.reads():
                self._put_early(read)
            self._put(x)

    def _put(self, x: Apply) -> None:
        self._made.append(x)
        self._there.update(value.number for value in x.outputs)

    def ended(self, program: Program) -> list[Instruction]:
        """All instructions; each start has a wait, even if its result is dead."""
        for value in program.needed():
            self._bring(value)
        for number, x in list(self._late.items()):
            if x.primitive.half == "wait" and number in self._late:
                self._bring(x.outputs[0])
        return _by_arrival(self._made)


def _by_arrival(instructions: list[Instruction]) -> list[Instruction]:
    """Sort the instructions after the last start by the latest start that they depend on."""
    begun: dict[int, int] = {}  # by number of a handle: its position among the starts, from 1
    last = 0
    for i, x in enumerate(instructions):
        if isinstance(x, Apply) and x.primitive.half == "start":
            begun[x.outputs[0].number] = len(begun) + 1
            last = i + 1
    tail = [x for x in instructions[last:] if isinstance(x, Apply)]
    if any(not (x.primitive.pure or x.primitive.half == "wait") for x in tail):
        return instructions
    arrival: dict[int, int] = {}  # by number of a value: the latest start that it depends on
    order: list[tuple[int, Apply]] = []
    for x in tail:
        reads = [value.number for value in x.reads()]
        waits = x.primitive.half == "wait"
        mine = max((arrival.get(n, begun.get(n, 0) if waits else 0) for n in reads), default=0)
        arrival.update((value.number, mine) for value in x.outputs)
        order.append((mine, x))
    order.sort(key=lambda pair: pair[0])
    return instructions[:last] + [x for _, x in order]


def _moved(program: Program, applied: Sequence[Apply]) -> set[int]:
    """Numbers of inputs and constants, and of values made from them by movements alone."""
    found = {i.value.number for i in program.inputs}
    found |= {value.number for value, _ in program.constants}
    for x in applied:
        if x.primitive.kind == MOVEMENT and all(value.number in found for value in x.reads()):
            found |= {value.number for value in x.outputs}
    return found


def _operand_size(x: Apply) -> int:
    return size_of(next(x.reads()).shape)


def in_place(program: Program) -> Program:
    """Let a collective work in the memory of its operand, if nothing else reads that."""
    readers: dict[int, list[Callback | None]] = {}
    for x in program.instructions:
        for value in x.reads():
            readers.setdefault(value.number, []).append(x if isinstance(x, Callback) else None)
    fixed = {i.value.number for i in program.inputs}
    fixed |= {value.number for value, _ in program.constants}
    fixed |= {value.number for value in program.needed()}
    alone = {
        number
        for number, found in readers.items()
        if number not in fixed and [x and x.primitive.half for x in found] == ["start", "wait"]
    }
    return program.with_instructions(
        _told_alone(
            [
                replace(x, params={**x.params, "in_place": True})
                if isinstance(x, Callback) and _operand(x) in alone
                else x
                for x in program.instructions
            ]
        )
    )


def _told_alone(instructions: list[Instruction]) -> list[Instruction]:
    """Set `alone` on starts that have nothing but other callbacks before their waits."""
    found = list(instructions)
    begun: dict[int, int] = {}  # by number of a handle: the position of its start
    for i, x in enumerate(instructions):
        if not isinstance(x, Callback):
            begun.clear()
        elif x.primitive.half == "start":
            begun[x.outputs[0].number] = i
        elif x.primitive.half == "wait":
            handle = x.inputs[0]
            at = begun.get(handle.root.number) if isinstance(handle, View) else None
            start = None if at is None else found[at]
            if at is not None and isinstance(start, Callback):
                found[at] = replace(start, params={**start.params, "alone": True})
    return found


def _operand(x: Callback) -> int | None:
    """The number of the value that a start or wait works on, if that is a whole array in order."""
    at = {"start": 0, "wait": 1}.get(x.primitive.half or "")
    if at is None:
        return None
    view = x.inputs[at]
    if not isinstance(view, View) or view.offset:
        return None
    if size_of(view.shape) != size_of(view.root.shape):
        return None
    return view.root.number if in_order(view.shape, view.strides) else None
