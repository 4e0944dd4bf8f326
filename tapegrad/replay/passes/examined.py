"""Examined indices: an index that an earlier loop has examined cannot be out of range later.

Comes in: a program whose loops are final. Goes out: the same program, in which fewer instructions
may find bad data. Called by `pipeline.py`.

An error must be found before the first change of memory from outside. The backward pass of an
embedding looks up the same indices as its forward pass, near the end of a step. If it could still
fail, all parameters that were computed before it would wait for it in memory of their own, and be
copied where they belong at the end: that takes as long as half of Adam.
"""

from __future__ import annotations

from dataclasses import replace

from ..ir.program import Access, Instruction, Loop, Pick, Program, Read, Shape, size_of

#: the number of a value whose elements are indices, and how many elements they choose from
Range = tuple[int, int]


def examined(program: Program) -> Program:
    """With `known` set where an earlier loop fails if the same indices are out of range."""
    ranges: set[Range] = set()
    return program.with_instructions([_known(x, ranges) for x in program.instructions])


def _known(instruction: Instruction, ranges: set[Range]) -> Instruction:
    """An instruction that relies on what is known; what it examines itself is known after it."""
    if not isinstance(instruction, Loop) or not size_of(instruction.shape):
        return instruction
    found: set[Range] = set()

    def looked_up(access: Access) -> Access:
        picks = []
        for pick in access.picks:
            key = (pick.index.value.number, pick.size)
            if not pick.checked and key in ranges:
                pick = replace(pick, known=True)
            elif _examines_all(pick, instruction.shape):
                found.add(key)
            picks.append(pick)
        return replace(access, picks=tuple(picks))

    if not any(access.picks for access in _accesses(instruction)):
        return instruction
    nodes = [
        replace(n, access=looked_up(n.access)) if isinstance(n, Read) else n
        for n in instruction.nodes
    ]
    stores = [replace(s, access=looked_up(s.access)) for s in instruction.stores]
    ranges |= found
    return replace(instruction, nodes=tuple(nodes), stores=tuple(stores))


def _accesses(loop: Loop) -> list[Access]:
    return [n.access for n in loop.nodes if isinstance(n, Read)] + [s.access for s in loop.stores]


def _examines_all(pick: Pick, shape: Shape) -> bool:
    """Whether a loop of a shape looks at all elements of the value whose elements are indices."""
    index = pick.index
    if pick.checked or pick.known or index.offset or index.picks:
        return False
    steps = sorted((s, n) for s, n in zip(index.strides, shape, strict=True) if s and n > 1)
    reached = 1
    for step, count in steps:
        if step != reached:
            return False
        reached *= count
    return reached == size_of(index.value.shape)
