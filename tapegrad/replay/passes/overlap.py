"""Overlap: communication runs while other instructions compute.

Comes in: a recorded program. Goes out: the same program, in which each collective that can be cut
in two (`Primitive.halves`) is begun early and waited for late. Called by `pipeline.py`.

- A collective is begun where it stood, and waited for just before an instruction computes with its
  result; views of the result come after the wait too.
- A gather (its result is larger than its operand) of what only moves from the program's inputs is
  begun where the gather before it in its group stood, and waited for where it stood itself: at most
  one gather is ahead, and no more memory than its result is taken for that.
- After the last collective has begun, instructions go in the order in which the collectives that
  they need were begun: what reads the first result is computed while the last is under way.
- A reduction whose operand is larger than its result is waited for before the next such one is
  begun, so that at most one operand is kept for it.

The places depend on the collectives' order alone, so that all ranks begin them in the same order.
After lowering, `in_place` lets a collective work in the memory of its operand where nobody else
reads that, and tells those beside which nothing is computed.
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
    """With collectives begun early and waited for late."""
    applied = program.applied()
    if not any(x.primitive.halves or x.primitive.half for x in applied):
        return program
    schedule = _Schedule(program, applied)
    for x in applied:
        schedule.add(x)
    return program.with_instructions(schedule.ended(program))


class _Schedule:
    """The instructions in their new order, while they are put there one after another."""

    def __init__(self, program: Program, applied: Sequence[Apply]) -> None:
        self._number = program.next_number()
        self._made: list[Instruction] = []
        #: by the number of a value: what gives it, once somebody computes with it
        self._late: dict[int, Apply] = {}
        self._makers = {value.number: x for x in applied for value in x.outputs}
        self._moved = _moved(program, applied)
        #: by the number of a gather's result: the gather that is begun there, and a handle
        self._next: dict[int, Apply] = {}
        self._handles: dict[int, Value] = {}
        #: numbers of values that the instructions so far make
        self._there: set[int] = set()
        #: the result of the latest reduction whose operand is larger
        self._reduced: Value | None = None
        latest: dict[Any, Apply] = {}
        for x in applied:
            if self._is_early(x):
                before = latest.get(x.params["group"])
                if before is not None:
                    self._next[before.outputs[0].number] = x
                latest[x.params["group"]] = x

    def _is_early(self, x: Apply) -> bool:
        """Whether it is a gather that may begin before its place."""
        if x.primitive.halves is None or _operand_size(x) >= size_of(x.outputs[0].shape):
            return False
        return all(value.number in self._moved for value in x.reads())

    def add(self, x: Apply) -> None:
        """Put the next instruction of the program into the order."""
        if x.outputs and x.outputs[0].number in self._there:
            return  # it was put before its place
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
        """Put what gives a value into the order, now that it is needed."""
        x = self._late.pop(value.number, None)
        if x is not None:
            for read in x.reads():
                self._bring(read)
            self._put(x)

    def _put_early(self, value: Value) -> None:
        """Put what moves inputs to a value into the order, before its place."""
        x = self._makers.get(value.number)
        if x is not None and value.number not in self._there:
            for read in x.reads():
                self._put_early(read)
            self._put(x)

    def _put(self, x: Apply) -> None:
        self._made.append(x)
        self._there.update(value.number for value in x.outputs)

    def ended(self, program: Program) -> list[Instruction]:
        """All instructions; a collective that was begun must end, whoever reads its result."""
        for value in program.needed():
            self._bring(value)
        for number, x in list(self._late.items()):
            if x.primitive.half == "wait" and number in self._late:
                self._bring(x.outputs[0])
        return _by_arrival(self._made)


def _by_arrival(instructions: list[Instruction]) -> list[Instruction]:
    """With what comes after the last begin in the order of the begins that it waits for."""
    begun: dict[int, int] = {}  # by the number of a handle: how many were begun up to it
    last = 0
    for i, x in enumerate(instructions):
        if isinstance(x, Apply) and x.primitive.half == "start":
            begun[x.outputs[0].number] = len(begun) + 1
            last = i + 1
    tail = [x for x in instructions[last:] if isinstance(x, Apply)]
    if any(not (x.primitive.pure or x.primitive.half == "wait") for x in tail):
        return instructions
    arrival: dict[int, int] = {}  # by the number of a value: the latest begin that it waits for
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
    """Numbers of values that are inputs and constants, or such values moved."""
    found = {i.value.number for i in program.inputs}
    found |= {value.number for value, _ in program.constants}
    for x in applied:
        if x.primitive.kind == MOVEMENT and all(value.number in found for value in x.reads()):
            found |= {value.number for value in x.outputs}
    return found


def _operand_size(x: Apply) -> int:
    return size_of(next(x.reads()).shape)


def in_place(program: Program) -> Program:
    """With collectives in the memory of their operands, where only they read those."""
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
    """With `alone` said to starts that have nothing but other callbacks before their waits."""
    found = list(instructions)
    begun: dict[int, int] = {}  # by the number of a handle: where it was begun
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
    """The number of the value that one half of a collective works on, if it is a whole array."""
    at = {"start": 0, "wait": 1}.get(x.primitive.half or "")
    if at is None:
        return None
    view = x.inputs[at]
    if not isinstance(view, View) or view.offset:
        return None
    if size_of(view.shape) != size_of(view.root.shape):
        return None
    return view.root.number if in_order(view.shape, view.strides) else None
