"""Regrouping: composites that a target runs whole replace their parts.

Comes in: a recorded program, and which composites the target takes. Goes out: the same program with
one `Apply` for each of those, and without the parts that are dead then. Composites whose parts were
changed, or whose results are made in another way, stay in parts. Called by targets, such as
`reference/target.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...core.primitive import Primitive
from ..ir.program import Apply, Program


def regroup(program: Program, takes: Callable[[Primitive], bool]) -> Program:
    """Put the composites that `takes` accepts in the place of their parts."""
    found = [whole for whole in program.wholes if takes(whole.primitive)]
    if not found:
        return program
    instructions = list(program.applied())
    live = _live(program)
    unread = {id(x) for x in instructions} - live  # kept: they may find bad data
    for whole in found:
        instructions = _replaced(program, instructions, whole)
    grouped = replace(program, instructions=tuple(instructions))
    kept = _live(grouped) | unread
    return grouped.with_instructions(x for x in instructions if id(x) in kept)


def _replaced(program: Program, instructions: list[Apply], whole: Apply) -> list[Apply]:
    """Replace the instructions that make a composite's results by the composite, if possible."""
    made = {value.number for value in whole.outputs}
    makers = [i for i, x in enumerate(instructions) if any(v.number in made for v in x.outputs)]
    names = {v.number for i in makers for v in instructions[i].outputs}
    if names != made:
        return instructions  # results that are inputs, or that an instruction makes with others
    known = {given.value.number for given in program.inputs}
    known |= {value.number for value, _ in program.constants}
    known |= {v.number for x in instructions[: makers[0]] for v in x.outputs}
    if not all(value.number in known for value in whole.reads()):
        return instructions
    if any(instructions[i].region != whole.region for i in makers):
        return instructions
    rest = [x for i, x in enumerate(instructions) if i not in makers]
    return [*rest[: makers[0]], whole, *rest[makers[0] :]]


def _live(program: Program) -> set[int]:
    """id() of the instructions that are live: their results are read, or they are not pure."""
    needed = {value.number for value in program.needed()}
    live = set()
    for x in reversed(program.applied()):
        if not x.primitive.pure or any(v.number in needed for v in x.outputs):
            live.add(id(x))
            needed.update(v.number for v in x.reads())
    return live
