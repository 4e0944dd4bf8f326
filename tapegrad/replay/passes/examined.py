"""Examined indices: an index that an earlier loop has checked cannot be out of range later.

Comes in: a program whose loops are final. Goes out: the same program, in which fewer instructions
may find bad data. Called by `pipeline.py`.

An error must be found before the first write to memory from outside. The backward pass of an
embedding looks up the same indices as its forward pass, near the end of a step. If it could still
fail, all parameters updated before it would wait in scratch memory and be copied to their own
memory at the end: that takes half as long as Adam.
"""

from __future__ import annotations

from dataclasses import replace

from ..ir.program import Access, Instruction, Loop, Pick, Program, Read, Shape, size_of

#: the number of a value whose elements are indices, and how many elements they choose from
Range = tuple[int, int]


def examined(program: Program) -> Program:
    """Set `known` on picks whose indices an earlier loop has checked for the same size."""
    ranges: set[Range] = set()
    return program.with_instructions([_known(x, ranges) for x in program.instructions])


def _known(instruction: Instruction, ranges: set[Range]) -> Instruction:
    """Mark the known picks of an instruction; add what it checks itself to `ranges`."""
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
    """Whether a loop over `shape` reads, and so checks, every index of a pick."""
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
