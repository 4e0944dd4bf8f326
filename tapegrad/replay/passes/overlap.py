"""Overlap: communication runs while other instructions compute.

Comes in: a recorded program. Goes out: the same program, in which a collective that can be cut in
two (`Primitive.halves`) is begun where it stood and waited for just before its first reader. Begins
keep their order, which is the same on all ranks. After lowering, `in_place` lets a reduction work
in the memory of its operand where nobody else reads that. Called by `pipeline.py`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...core.tape import Value
from ..ir.program import Apply, Callback, Instruction, Program, View, in_order


def overlap(program: Program) -> Program:
    """With collectives begun early and waited for late."""
    applied = program.applied()
    if not any(x.primitive.halves or x.primitive.half for x in applied):
        return program
    number = program.next_number()
    begun: list[Instruction] = []
    waits: dict[int, Apply] = {}  # by the number of a value that only a wait gives
    for x in applied:
        if x.primitive.halves is None:
            for value in x.reads():
                _wait(waits, value, begun)
            if x.primitive.half == "wait":
                waits[x.outputs[0].number] = x
            else:
                begun.append(x)
            continue
        start, wait = x.primitive.halves
        (operand,) = x.reads()
        _wait(waits, operand, begun)
        handle = Value(number, (), np.dtype(np.int64))
        number += 1
        begun.append(replace(x, primitive=start, outputs=(handle,)))
        group = {"group": x.params["group"]}
        waits[x.outputs[0].number] = replace(
            x, primitive=wait, params=group, inputs=(handle, operand)
        )
    for value in [v for v in program.needed() if v.number in waits]:
        _wait(waits, value, begun)
    begun += waits.values()  # whose results nobody reads: a reduction that was begun must end
    return program.with_instructions(begun)


def _wait(waits: dict[int, Apply], value: Value, instructions: list[Instruction]) -> None:
    wait = waits.pop(value.number, None)
    if wait is not None:
        instructions.append(wait)


def in_place(program: Program) -> Program:
    """With reductions in the memory of their operands, where only they read those."""
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
        replace(x, params={**x.params, "in_place": True})
        if isinstance(x, Callback) and _operand(x) in alone
        else x
        for x in program.instructions
    )


def _operand(x: Callback) -> int | None:
    """The number of the value that one half of a reduction works on, if it is a whole array."""
    at = {"start": 0, "wait": 1}.get(x.primitive.half or "")
    if at is None:
        return None
    view = x.inputs[at]
    if not isinstance(view, View) or view.offset or view.shape != view.root.shape:
        return None
    return view.root.number if in_order(view.shape, view.strides) else None
