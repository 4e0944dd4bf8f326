"""Failing: which instructions may find bad data, such as an index out of range.

Comes in: an instruction. Goes out: whether it may fail. Such instructions run even if their results
are dead, because the eager function would raise an error. Called by passes, by `native/plan.py` and
by targets.
"""

from __future__ import annotations

from ...core.source import Location
from .program import Callback, Compute, Instruction, Loop, Node, Read, Store


def can_fail(instruction: Instruction) -> bool:
    """Whether a lowered instruction may find bad data: a bad index, an error in NumPy."""
    if isinstance(instruction, Loop):
        return any(map(finds_bad_data, (*instruction.nodes, *instruction.stores)))
    return isinstance(instruction, Callback) and not instruction.primitive.collective


def failing_nodes(loop: Loop) -> set[int]:
    """The positions of nodes that may find bad data, or are computed from such nodes."""
    found: set[int] = set()
    for i, node in enumerate(loop.nodes):
        operands = node.operands if isinstance(node, Compute) else ()
        if finds_bad_data(node) or not found.isdisjoint(o for o in operands if isinstance(o, int)):
            found.add(i)
    return found


def finds_bad_data(part: Node | Store) -> bool:
    """Whether a part of a loop may find bad data itself."""
    if isinstance(part, (Read, Store)):
        return any(not (pick.checked or pick.known) for pick in part.access.picks)
    return isinstance(part, Compute) and part.fails


def culprit(instruction: Instruction) -> tuple[str, Location | None]:
    """The origin of an instruction that may find bad data: a primitive's name and its location."""
    nodes = instruction.nodes if isinstance(instruction, Loop) else ()
    failing = {n.primitive.name for n in nodes if isinstance(n, Compute) and n.fails}
    found = (origin for origin in instruction.origins if origin.name in failing)
    return next(found, instruction.origins[0])[:2]
