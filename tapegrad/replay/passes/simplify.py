"""Simplification: fold constants, merge equal values, remove dead code.

Comes in: a recorded program. Goes out: a program with the same meaning. The passes here run before
lowering, on primitives; `dead` also runs after it. Called by `pipeline.py`; other passes and
`cpu/budget.py` use `dead` and `trimmed`.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np

from ...core.primitive import ELEMENTWISE, OPAQUE
from ...core.tape import Value
from ..ir.expressions import NoLowering
from ..ir.failing import can_fail, failing_nodes, finds_bad_data
from ..ir.program import Apply, Callback, Compute, Instruction, Loop, Program, size_of
from ..ir.target import Machine

#: most elements of a result that constant folding keeps: a larger constant would occupy memory as
#: long as the program exists, so each run computes it
MAX_FOLDED_CONSTANT_ELEMENTS = 4096


def dead(program: Program, machine: Machine) -> Program:
    """Remove instructions whose results are dead, unless they may find bad data."""
    needed = {v.number for v in program.needed()}
    kept: list[Instruction] = []
    for instruction in reversed(program.instructions):
        if isinstance(instruction, Loop):
            instruction = trimmed(instruction, needed)
        impure = isinstance(instruction, (Apply, Callback)) and not instruction.primitive.pure
        read = any(v.number in needed for v in instruction.writes())
        if read or impure or _can_fail(instruction, machine):
            kept.append(instruction)
            needed.update(v.number for v in instruction.reads())
    used = [(value, array) for value, array in program.constants if value.number in needed]
    return replace(program, instructions=tuple(reversed(kept)), constants=tuple(used))


def _can_fail(instruction: Instruction, machine: Machine) -> bool:
    """Whether an instruction may find bad data once it is lowered."""
    if not isinstance(instruction, Apply):
        return can_fail(instruction)
    primitive = instruction.primitive
    if primitive.kind != ELEMENTWISE or primitive.expression is None:
        return bool(primitive.kind == OPAQUE)
    types = [x.dtype if isinstance(x, Value) else x for x in instruction.inputs]
    dtype = instruction.outputs[0].dtype
    try:
        return machine.examine(primitive, instruction.params, types, dtype).fails
    except NoLowering:
        return False  # arithmetic of complex numbers, which takes all data


def trimmed(loop: Loop, needed: set[int]) -> Loop:
    """A loop without dead stores, folds and nodes."""
    failing = failing_nodes(loop)
    stores = tuple(
        s
        for s in loop.stores
        if s.access.value.number in needed or s.node in failing or finds_bad_data(s)
    )
    folds = tuple(f for f in loop.folds if f.access.value.number in needed or f.node in failing)
    wanted = {s.node for s in stores} | {f.node for f in folds}
    if loop.scan is not None:
        return loop
    for i in reversed(range(len(loop.nodes))):
        node = loop.nodes[i]
        if i in wanted and isinstance(node, Compute):
            wanted.update(o for o in node.operands if isinstance(o, int))
    if (
        len(stores) == len(loop.stores)
        and len(folds) == len(loop.folds)
        and len(wanted) == len(loop.nodes)
    ):
        return loop
    renumbered = {old: new for new, old in enumerate(sorted(wanted))}
    nodes = []
    for i in sorted(wanted):
        node = loop.nodes[i]
        if isinstance(node, Compute):
            operands = tuple(renumbered[o] if isinstance(o, int) else o for o in node.operands)
            node = replace(node, operands=operands)
        nodes.append(node)
    return replace(
        loop,
        nodes=tuple(nodes),
        stores=tuple(replace(s, node=renumbered[s.node]) for s in stores),
        folds=tuple(replace(f, node=renumbered[f.node]) for f in folds),
    )


def common(program: Program) -> Program:
    """Merge equal computations: readers of the later ones read the first one.

    Equal constants, such as the masks of several layers, are merged too. The rerun of a
    checkpointed function takes nothing from its first run, which would have to keep it.
    """
    first: dict[Any, tuple[Value, ...]] = {}
    same: dict[int, Value] = {}
    kept: list[Instruction] = []
    for value, array in program.constants:
        found = first.setdefault((array.shape, array.dtype, _content(array)), (value,))
        if found[0] is not value:
            same[value.number] = found[0]

    def now(x: Any) -> Any:
        return same.get(x.number, x) if isinstance(x, Value) else x

    for apply in program.instructions:
        assert isinstance(apply, Apply)
        apply = replace(apply, inputs=tuple(map(now, apply.inputs)))
        if apply.primitive.pure:
            key = (
                apply.primitive.name,
                apply.region,
                repr(apply.params),
                tuple(
                    x.number if isinstance(x, Value) else (type(x), repr(x)) for x in apply.inputs
                ),
                tuple((v.shape, v.dtype) for v in apply.outputs),
            )
            found = first.setdefault(key, apply.outputs)
            if found is not apply.outputs:
                same.update(zip((v.number for v in apply.outputs), found, strict=True))
                continue
        kept.append(apply)
    return replace(
        program,
        instructions=tuple(kept),
        writes=tuple((target, now(value)) for target, value in program.writes),
        results=tuple(map(now, program.results)),
    )


def _content(array: Any) -> bytes:
    return hashlib.blake2b(array.tobytes()).digest()


def constants(program: Program) -> Program:
    """Fold constants: compute now what depends on constants alone."""
    known = {value.number: array for value, array in program.constants}
    held = list(program.constants)
    kept: list[Instruction] = []
    for apply in program.instructions:
        assert isinstance(apply, Apply)
        ready = apply.primitive.pure and all(
            not isinstance(x, Value) or x.number in known for x in apply.inputs
        )
        if not ready or any(size_of(v.shape) > MAX_FOLDED_CONSTANT_ELEMENTS for v in apply.outputs):
            kept.append(apply)
            continue
        given = [known[x.number] if isinstance(x, Value) else x for x in apply.inputs]
        made = apply.primitive.kernel(*given, **apply.params)
        arrays = made if isinstance(made, tuple) else (made,)
        for value, array in zip(apply.outputs, arrays, strict=False):
            known[value.number] = np.array(array, value.dtype)
            held.append((value, known[value.number]))
    return replace(program, instructions=tuple(kept), constants=tuple(held))
