"""Failing: which instructions may find bad data, such as an index out of range.

They run even if nobody reads what they make, since the eager function would raise an error.
"""

from __future__ import annotations

from ...core.primitive import ELEMENTWISE, OPAQUE
from ...core.tape import Value
from ..cpu import scalar
from .program import Apply, Callback, Compute, Instruction, Loop, Node, Read, Store


def can_fail(instruction: Instruction) -> bool:
    """Whether an instruction may find bad data: an index out of range, an error in NumPy."""
    if isinstance(instruction, Loop):
        return any(map(finds_bad_data, (*instruction.nodes, *instruction.stores)))
    if isinstance(instruction, Apply):
        return _can_fail_once_lowered(instruction)
    return isinstance(instruction, Callback)


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
        return any(not pick.checked for pick in part.access.picks)
    return isinstance(part, Compute) and part.fails


def _can_fail_once_lowered(apply: Apply) -> bool:
    primitive = apply.primitive
    if primitive.kind != ELEMENTWISE or primitive.expression is None:
        return bool(primitive.kind == OPAQUE)
    types = [x.dtype if isinstance(x, Value) else x for x in apply.inputs]
    fails, _ = scalar.examine(primitive, apply.params, types, apply.outputs[0].dtype)
    return fails
