"""Recomputation: what is quickly computed is computed again, instead of being kept in memory.

Comes in: a program whose loops are fused. Goes out: the same program with fewer values in memory.
Called as a pass of `run.py`, after fusion.

A loop that reads x - mean reads x as well, or could: it may compute the difference itself, and
nobody needs to write it. That takes a few instructions, while the way to memory and back takes as
long as sixteen.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import replace
from typing import Any

from ..tape import Value
from . import scalar
from .fuse import LARGEST, join, plain
from .program import Compute, Instruction, Literal, Loop, Program, Read, size_of
from .shapes import common, divided
from .simplify import trimmed

#: instructions that are done again, at most
FEW = 8
#: a value of this fraction of another one's size is read along with it at no cost
SMALL = 8


def again(program: Program) -> Program:
    """With values that are quickly computed made by the loops that read them.

    Nobody reads their stores then; the pass `trim` drops them.
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
    #: by value from outside: when its memory may change
    changes = {target.number: min(writers[v.number], default=-1) for target, v in program.writes}
    for i in range(len(instructions)):
        loop = instructions[i]
        if not isinstance(loop, Loop) or not plain(loop):
            continue
        for value in [store.access.value for store in loop.stores]:
            at = readers[value.number]
            if value.number in needed or writers[value.number] != [i] or min(at, default=-1) <= i:
                continue
            source = trimmed(loop, {value.number})
            stay = all(
                max(writers[v.number], default=-1) < i
                and changes.get(v.number, at[-1] + 1) > at[-1]
                for v in source.reads()
            )
            if not stay or len(source.stores) > 1 or not _quick(source):
                continue
            changed = [_with(source, instructions[j], value) for j in at]
            if all(new is not None for new in changed):
                for j, new in zip(at, changed, strict=True):
                    assert new is not None
                    instructions[j] = new
                for v in source.reads():
                    readers[v.number] = sorted({*readers[v.number], *at})
    return program.with_instructions(instructions)


def _with(source: Loop, reader: Instruction, value: Value) -> Loop | None:
    """A loop that computes a value itself, if it then need not read more than now."""
    pair = _pair(source, reader, value)
    if pair is None or not _pays(*pair, value) or _rounds_otherwise(*pair, value):
        return None
    both = join([*pair])
    stores = tuple(s for s in both.stores if s.access.value.number != value.number)
    return replace(both, stores=stores, origins=reader.origins)


def _pair(source: Loop, reader: Any, value: Value) -> tuple[Loop, Loop] | None:
    """Both loops in one shape, if the reader is at the element that the other one computes."""
    if not isinstance(reader, Loop) or not plain(reader) or reader.region != source.region:
        return None
    shape = common(source.shape, reader.shape)
    if shape is None or len(reader.nodes) + len(source.nodes) > LARGEST:
        return None
    source, reader = divided(source, shape), divided(reader, shape)
    reads = [node.access for node in reader.nodes if isinstance(node, Read)]
    # A loop that looks up indices is not vectorised, which arithmetic should not share.
    if any(access.picks for access in reads):
        return None
    mine = [access for access in reads if access.value.number == value.number]
    return (source, reader) if all(a == source.stores[0].access for a in mine) else None


def _pays(source: Loop, reader: Loop, value: Value) -> bool:
    """Whether computing a value in a loop takes no more reading than the value itself."""
    there = {node.access for node in reader.nodes if isinstance(node, Read)}
    more = 0
    for access in {node.access for node in source.nodes if isinstance(node, Read)} - there:
        size = _bytes(access.value)
        if SMALL * size > _bytes(value):
            more += size
            if access.strides != source.stores[0].access.strides:
                return False
        elif access.strides[-1] not in (0, 1):
            return False
    return more <= _bytes(value)


def _rounds_otherwise(source: Loop, reader: Loop, value: Value) -> bool:
    """Whether a reader could take a value before it is rounded: x - max(x) must not be above 0."""
    made = source.nodes[source.stores[0].node]
    mine = {
        i
        for i, node in enumerate(reader.nodes)
        if isinstance(node, Read) and node.access.value.number == value.number
    }
    users = [n for n in reader.nodes if isinstance(n, Compute) and not mine.isdisjoint(n.operands)]
    return isinstance(made, Compute) and any(_contracted(user, made) for user in users)


def _quick(loop: Loop) -> bool:
    """Whether a loop only does a little arithmetic, to the same bits wherever it is done."""
    count = 0
    for node in loop.nodes:
        if isinstance(node, Compute):
            if node.fails:
                return False
            kinds = tuple(
                o.number if isinstance(o, Literal) else loop.nodes[o].dtype for o in node.operands
            )
            count += scalar.examine(node.primitive, node.params, kinds, node.dtype)[1]
            inner = [loop.nodes[o] for o in node.operands if isinstance(o, int)]
            if any(isinstance(x, Compute) and _contracted(node, x) for x in inner):
                return False
        elif not isinstance(node, Read) or node.access.picks:
            return False
    return count <= FEW


def _contracted(outer: Compute, inner: Compute) -> bool:
    """Whether LLVM may round two computations only once, depending on who else reads them."""
    sums, below = (scalar.parsed(c.primitive.expression or "0") for c in (outer, inner))
    adds = any(isinstance(part, (ast.Add, ast.Sub)) for part in ast.walk(sums))
    return adds and isinstance(below, ast.BinOp) and isinstance(below.op, ast.Mult)


def _bytes(value: Value) -> int:
    return size_of(value.shape) * int(value.dtype.itemsize)
