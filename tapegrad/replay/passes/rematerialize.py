"""Rematerialization: cheap values are recomputed by each reader instead of being stored.

Comes in: a program whose loops are fused. Goes out: the same program with fewer values in memory.
Called by `pipeline.py`, after fusion.

A loop that reads x - mean can read x and the mean, and compute the difference itself, so that no
loop stores it. That takes a few instructions; a round trip to memory takes as long as sixteen.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import replace

from ...core.tape import Value
from ..ir.expressions import parsed
from ..ir.program import (
    Compute,
    Instruction,
    Literal,
    Loop,
    Node,
    Program,
    Read,
    bytes_of,
    size_of,
)
from ..ir.target import Machine
from .fuse import MAX_NODES_PER_LOOP, join, pair, plain, renumber
from .simplify import trimmed

#: most instructions that a reader may repeat: half of what a round trip to memory costs
MAX_RECOMPUTED_INSTRUCTIONS = 8
#: reading an operand counts as free if the value is at least so many times as large: the mean of a
#: row, for example, is read once for the whole row
MIN_SIZE_RATIO_OF_FREE_OPERAND = 8


def rematerialize(program: Program, machine: Machine) -> Program:
    """Let each reader recompute values that are cheap.

    Their stores become dead, and `trim` removes them.
    """
    instructions = list(program.instructions)
    readers: dict[int, list[int]] = defaultdict(list)
    writers: dict[int, list[int]] = defaultdict(list)
    for i, instruction in enumerate(instructions):
        for number in {v.number for v in instruction.reads()}:
            readers[number].append(i)
        for number in {v.number for v in instruction.writes()}:
            writers[number].append(i)
    needed = {v.number for v in program.needed()}
    # By value from outside: the first instruction that may change its memory.
    changes = {target.number: min(writers[v.number], default=-1) for target, v in program.writes}
    for i in range(len(instructions)):
        loop = instructions[i]
        if not isinstance(loop, Loop) or not plain(loop):
            continue
        for value in [store.access.value for store in loop.stores]:
            at = readers[value.number]
            if value.number in needed or writers[value.number] != [i] or min(at, default=-1) <= i:
                continue
            rounded = _rounded(loop, value)
            source = trimmed(rounded, {value.number})
            stay = all(
                max(writers[v.number], default=-1) < i
                and changes.get(v.number, at[-1] + 1) > at[-1]
                for v in source.reads()
            )
            if not stay or len(source.stores) > 1 or not _quick(source, machine):
                continue
            changed = [
                _with(source, instructions[j], value) or _through(source, instructions[j], value)
                for j in at
            ]
            if all(new is not None for new in changed):
                instructions[i] = loop = rounded
                for j, new in zip(at, changed, strict=True):
                    assert new is not None
                    instructions[j] = new
                for v in source.reads():
                    readers[v.number] = sorted({*readers[v.number], *at})
    return program.with_instructions(instructions)


def _with(source: Loop, reader: Instruction, value: Value) -> Loop | None:
    """A reader that computes a value itself, if it then reads no more bytes than before."""
    loops = pair(source, reader, value)
    if loops is None or not _pays(*loops, value):
        return None
    both = join([*loops])
    stores = tuple(s for s in both.stores if s.access.value.number != value.number)
    return replace(both, stores=stores, origins=reader.origins)


def _through(source: Loop, reader: Instruction, value: Value) -> Loop | None:
    """A reader of another shape that reads the value's operand, which has the same layout.

    A loss gathers one logit of each row by its label. If autocast has rounded the logits, the
    gather then converts what it picks, and no loop stores all logits in float32.
    """
    made, (store,) = source.nodes, source.stores
    if not isinstance(reader, Loop) or reader.region != source.region:
        return None
    reads = [node.access for node in made if isinstance(node, Read)]
    if len(reads) != 1 or not isinstance(made[0], Read) or reads[0].strides != store.access.strides:
        return None
    (given,) = reads
    as_large = size_of(given.value.shape) == size_of(value.shape)
    if (
        not as_large
        or bytes_of(given.value) > bytes_of(value)
        or given.offset
        or store.access.offset
    ):
        return None
    # A loop that gathers is not vectorised, and may read an element many times.
    if size_of(reader.shape) > size_of(value.shape):
        return None
    at: dict[int, int] = {}
    nodes: list[Node] = []
    for i, node in enumerate(reader.nodes):
        if isinstance(node, Read) and node.access.value.number == value.number:
            first = len(nodes)
            nodes.append(Read(replace(node.access, value=given.value)))
            nodes += [renumber(x, {j: first + j for j in range(len(made))}) for x in made[1:]]
            at[i] = first + store.node
        else:
            nodes.append(renumber(node, at))
            at[i] = len(nodes) - 1
    changed = replace(
        reader,
        nodes=tuple(nodes),
        stores=tuple(replace(s, node=at[s.node]) for s in reader.stores),
        folds=tuple(replace(f, node=at[f.node]) for f in reader.folds),
        scan=None if reader.scan is None else replace(reader.scan, node=at[reader.scan.node]),
    )
    few = len(nodes) <= MAX_NODES_PER_LOOP
    return changed if few and all(v.number != value.number for v in changed.reads()) else None


def _pays(source: Loop, reader: Loop, value: Value) -> bool:
    """Whether computing a value in a loop reads no more bytes than reading the value."""
    there = {node.access for node in reader.nodes if isinstance(node, Read)}
    more = 0
    for access in {node.access for node in source.nodes if isinstance(node, Read)} - there:
        size = bytes_of(access.value)
        if MIN_SIZE_RATIO_OF_FREE_OPERAND * size > bytes_of(value):
            more += size
            if access.strides != source.stores[0].access.strides:
                return False
        elif access.strides[-1] not in (0, 1):
            return False
    return more <= bytes_of(value)


def _rounded(loop: Loop, value: Value) -> Loop:
    """A loop that rounds as all readers will: x - max(x) must stay at or below 0."""
    wanted = {s.node for s in loop.stores if s.access.value.number == value.number}
    nodes = list(loop.nodes)
    for i in reversed(range(len(nodes))):
        node = nodes[i]
        if i in wanted and isinstance(node, Compute):
            wanted.update(o for o in node.operands if isinstance(o, int))
            nodes[i] = replace(node, rounded=node.rounded or _multiplies(node))
    return replace(loop, nodes=tuple(nodes))


def _multiplies(node: Compute) -> bool:
    """Whether LLVM may fuse a node with a sum that reads it, and round once."""
    expression = parsed(node.primitive.expression or "0")
    return isinstance(expression, ast.BinOp) and isinstance(expression.op, ast.Mult)


def _quick(loop: Loop, machine: Machine) -> bool:
    """Whether a loop does nothing but a little arithmetic."""
    count = 0
    for node in loop.nodes:
        if isinstance(node, Compute):
            if node.fails:
                return False
            kinds = tuple(
                o.number if isinstance(o, Literal) else loop.nodes[o].dtype for o in node.operands
            )
            count += machine.examine(node.primitive, node.params, kinds, node.dtype).instructions
        elif not isinstance(node, Read) or node.access.picks:
            return False
    return count <= MAX_RECOMPUTED_INSTRUCTIONS
