"""Rewriting: replace several instructions by one operation that computes the same.

Comes in: a recorded program. Goes out: the same program after the edits that operations have
registered in `core/rewrites.py`. Called by `pipeline.py`, and by `trace/derivative.py` before it
splits a program into forward and backward, because a rewrite may change the residuals.
"""

from __future__ import annotations

from ...core.rewrites import all_rewrites
from ..ir.program import Apply, Program


def rewrite(program: Program) -> Program:
    """Apply all rewrites."""
    return program.with_instructions(rewritten(program, 0)[1])


def rewritten(program: Program, forward: int) -> tuple[list[Apply], list[Apply]]:
    """The first `forward` instructions and the others, after all rewrites."""
    halves = list(program.applied()[:forward]), list(program.applied()[forward:])
    for each in all_rewrites().values():
        edit = each.edit(program)
        if not edit.dropped and not edit.added:
            continue
        for half in halves:
            half[:] = [
                new
                for old in half
                for new in (*edit.added.get(id(old), ()), *[old] * (id(old) not in edit.dropped))
            ]
        program = program.with_instructions([*halves[0], *halves[1]])
    return halves
