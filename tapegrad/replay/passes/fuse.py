"""Fusion: loops over the same elements become one, and values in between stay in registers.

Comes in: a lowered program. Goes out: the same program with fewer loops. `inline` moves a value
that only one loop reads into that loop. `fuse` then lets a loop join an earlier group of loops of
the same shape, if everything that it reads was made before that group, or inside it at the same
element. Computations of a single element are repeated inside the loops that read them; LLVM moves
them out of the loop. Called by `pipeline.py`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ...core.tape import Value
from ..ir.program import (
    Access,
    Compute,
    Instruction,
    Loop,
    LoopFold,
    Node,
    Position,
    Program,
    Read,
    Shape,
    Store,
    bytes_of,
    size_of,
)
from ..ir.shapes import common, divided, simplest

#: most nodes of one loop: more would cost more in registers than they save in memory traffic
MAX_NODES_PER_LOOP = 200


class FusionGroup:
    """Loops that will become one, or a single instruction of another kind."""

    def __init__(self, first: Instruction) -> None:
        self.members = [first]
        self.loop = first if isinstance(first, Loop) else None
        self.made = {v.number for v in first.writes()}
        self.nodes = len(first.nodes) if isinstance(first, Loop) else 0
        #: by value: the ranges (first element, last element) that are read or written
        self.touched: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self._touch(first)

    def add(self, loop: Loop) -> None:
        """Add a loop that `matched` returned, and give the group's loops its shape."""
        assert self.loop is not None
        if self.loop.shape != loop.shape:
            members = [m for m in self.members if isinstance(m, Loop)]
            self.members = [divided(member, loop.shape) for member in members]
        self.members.append(loop)
        self.loop = self.members[0] if isinstance(self.members[0], Loop) else None
        self.made.update(v.number for v in loop.writes())
        self._touch(loop)
        self.nodes += len(loop.nodes)

    def _touch(self, instruction: Instruction) -> None:
        if isinstance(instruction, Loop):
            for access in _accesses(instruction):
                self.touched[access.value.number].append(_ends(access, instruction.shape))

    def shares(self, reads: list[tuple[int, tuple[int, int]]]) -> bool:
        """Whether the group touches a range that overlaps one of these reads."""
        touched = self.touched
        return any(
            low <= last and first <= high
            for number, (first, last) in reads
            if number in touched
            for low, high in touched[number]
        )

    def matched(self, loop: Loop) -> Loop | None:
        """A loop in a shape in which it can be fused with this group, if there is one."""
        if self.loop is None or not plain(self.loop):
            return None
        if self.nodes + len(loop.nodes) > MAX_NODES_PER_LOOP:
            return None
        if self.loop.region != loop.region:
            return None  # a checkpointed function's rerun must not run in the forward pass
        if any(fold.access.value.number in self.made for fold in loop.folds):
            return None
        shape = common(self.loop.shape, loop.shape)
        if shape is None:
            return None
        loop = divided(loop, shape)
        members = [divided(m, shape) for m in self.members if isinstance(m, Loop)]
        if len({f.dims for member in (*members, loop) for f in member.folds}) > 1:
            return None
        stores = [store.access for member in members for store in member.stores]
        others = {fold.access.value.number for member in members for fold in member.folds}
        for store in loop.stores:
            number = store.access.value.number
            before = [a for a in stores if a.value.number == number]
            if number in others or not all(_are_apart(a, store.access, shape) for a in before):
                return None
        # By value: the access of its only store in the group.
        times = Counter(a.value.number for a in stores)
        stored = {a.value.number: a for a in stores if times[a.value.number] == 1 and not a.picks}
        for node in loop.nodes:
            if isinstance(node, Read):
                for value in node.access.values():
                    inside = value.number in self.made
                    if inside and stored.get(value.number) != node.access:
                        return None
        return loop


def _accesses(loop: Loop, stored: bool = True) -> Iterator[Access]:
    """The accesses of a loop: reads, the indices that they look up, and writes if `stored`."""
    for node in loop.nodes:
        if isinstance(node, Read):
            yield node.access
            yield from (pick.index for pick in node.access.picks)
    if stored:
        yield from (store.access for store in loop.stores)
        yield from (fold.access for fold in loop.folds)


def _ends(access: Access, shape: Shape) -> tuple[int, int]:
    """The first and the last element of a value that an access may reach."""
    if access.picks:
        return 0, size_of(access.value.shape)
    ways = [(n - 1) * stride for n, stride in zip(shape, access.strides, strict=True)]
    low = access.offset + sum(way for way in ways if way < 0)
    return low, access.offset + sum(way for way in ways if way > 0)


def _are_apart(x: Access, y: Access, shape: Shape) -> bool:
    """Whether two accesses of a loop touch different elements, as the parts of a `cat` do.

    Either their ranges do not overlap, or they interleave: both have the same strides, and stay
    apart within the longest one.
    """
    if x.picks or y.picks:
        return False
    (low, high), (first, last) = _ends(x, shape), _ends(y, shape)
    if high < first or last < low:
        return True
    if x.strides != y.strides or min(x.strides, default=-1) < 0:
        return False
    stride = max(x.strides)
    inside = high - low - (shape[x.strides.index(stride)] - 1) * stride
    return inside < (y.offset - x.offset) % max(stride, 1) < stride - inside


def plain(loop: Loop) -> bool:
    """Whether a loop neither scans, adds nor scatters: others may then be fused with it."""
    return loop.scan is None and all(not s.adds and not s.access.picks for s in loop.stores)


def inline(program: Program) -> Program:
    """Move the computation of a value into the only loop that reads it, if at the same element.

    Not if that keeps operands alive that take more memory than the value does.
    """
    instructions: list[Instruction | None] = [
        simplest(i) if isinstance(i, Loop) else i for i in program.instructions
    ]
    readers: dict[int, list[int]] = defaultdict(list)
    writers: dict[int, list[int]] = defaultdict(list)
    for i, instruction in enumerate(program.instructions):
        for number in {v.number for v in instruction.reads()}:
            readers[number].append(i)
        for number in {v.number for v in instruction.writes()}:
            writers[number].append(i)
    fixed = {v.number for v in program.needed()}
    outside = {i.value.number for i in program.inputs} | {v.number for v, _ in program.constants}
    kept = fixed | outside
    for i in range(len(instructions)):
        loop = instructions[i]
        if not isinstance(loop, Loop) or not plain(loop) or loop.folds or len(loop.stores) != 1:
            continue
        value = loop.stores[0].access.value
        if value.number in fixed or writers[value.number] != [i]:
            continue
        if len(readers[value.number]) != 1:
            continue
        (at,) = readers[value.number]
        reader = instructions[at]
        loops = pair(loop, reader, value)
        if loops is None:
            continue
        read = {v.number: v for v in loop.reads()}
        if any(writers[number] and writers[number][-1] > i for number in read):
            continue
        ending = [v for n, v in read.items() if readers[n][-1] == i and n not in kept]
        if sum(map(bytes_of, ending)) > bytes_of(value):
            continue
        both = join([*loops])
        stores = tuple(s for s in both.stores if s.access.value.number != value.number)
        instructions[at] = replace(both, stores=stores)
        instructions[i] = None
        for number in read:
            readers[number] = sorted({at if j == i else j for j in readers[number]})
    return program.with_instructions(i for i in instructions if i is not None)


def pair(loop: Loop, reader: Any, value: Value) -> tuple[Loop, Loop] | None:
    """Both loops in one common shape, if the reader can compute the value that `loop` stores."""
    if not isinstance(reader, Loop) or reader.region != loop.region or not plain(reader):
        return None
    shape = common(loop.shape, reader.shape)
    if shape is None or len(reader.nodes) + len(loop.nodes) > MAX_NODES_PER_LOOP:
        return None
    loop, reader = divided(loop, shape), divided(reader, shape)
    reads = [node.access for node in reader.nodes if isinstance(node, Read)]
    # A loop that gathers is not vectorised; inlined arithmetic would become scalar too.
    if any(access.picks for access in reads):
        return None
    mine = [access for access in reads if access.value.number == value.number]
    return (loop, reader) if all(a == loop.stores[0].access for a in mine) else None


def fuse(program: Program) -> Program:
    """Fuse loops where that saves memory traffic."""
    groups: list[FusionGroup] = []
    alike: dict[int, list[int]] = {}  # by the number of elements: the groups of loops
    position: dict[int, int] = {}  # by value: the last group that writes it
    single: dict[int, Loop] = {}  # by value: the loop of one element that makes it
    writers = Counter(v.number for x in program.instructions for v in x.writes())
    for instruction in program.instructions:
        found = None
        if isinstance(instruction, Loop):
            instruction = simplest(_with_singles(instruction, single))
            if plain(instruction):
                near = alike.get(size_of(instruction.shape), [])
                found = _group_to_join(instruction, groups, near, position)
                if size_of(instruction.shape) == 1 and not instruction.folds:
                    for store in instruction.stores:
                        if writers[store.access.value.number] == 1:
                            single[store.access.value.number] = instruction
        if found is None:
            index = len(groups)
            groups.append(FusionGroup(instruction))
            if isinstance(instruction, Loop):
                alike.setdefault(size_of(instruction.shape), []).append(index)
        else:
            index, loop = found
            groups[index].add(loop)
        for value in instruction.writes():
            position[value.number] = index
    return program.with_instructions(_joined(group) for group in groups)


def _group_to_join(
    loop: Loop, groups: list[FusionGroup], alike: list[int], position: dict[int, int]
) -> tuple[int, Loop] | None:
    """The group that a loop should join, and the loop in its shape; None if there is none."""
    values = [*loop.reads(), *loop.writes()]
    earliest = max((position.get(v.number, -1) for v in values), default=-1)
    reads = [
        (access.value.number, _ends(access, loop.shape))
        for access in dict.fromkeys(_accesses(loop, stored=False))
    ]
    for index in alike[bisect_left(alike, max(earliest, 0)) :]:
        # Fusing pays if the group makes or reads something that the loop reads. Another part of
        # the same value does not count: it may be another step of a sequence.
        if groups[index].shares(reads):
            matched = groups[index].matched(loop)
            if matched is not None:
                return index, matched
    return None


def _with_singles(loop: Loop, single: dict[int, Loop]) -> Loop:
    """A loop that computes values of one element itself instead of reading them."""
    if not any(isinstance(n, Read) and n.access.value.number in single for n in loop.nodes):
        return loop
    nodes: list[Node] = []
    renumbered: dict[int, int] = {}
    rank = len(loop.shape)
    origins = loop.origins
    for i, node in enumerate(loop.nodes):
        source = single.get(node.access.value.number) if isinstance(node, Read) else None
        if source is not None and isinstance(node, Read):
            inner: dict[int, int] = {}
            for j, part in enumerate(source.nodes):
                if isinstance(part, Read):
                    nodes.append(Read(_everywhere(part.access, rank)))
                elif isinstance(part, Position):
                    nodes.append(replace(part, strides=(0,) * rank))
                else:
                    nodes.append(renumber(part, inner))
                inner[j] = len(nodes) - 1
            (store,) = [
                s for s in source.stores if s.access.value.number == node.access.value.number
            ]
            renumbered[i] = inner[store.node]
        else:
            nodes.append(renumber(node, renumbered))
            renumbered[i] = len(nodes) - 1
    return Loop(
        loop.shape,
        tuple(nodes),
        tuple(replace(s, node=renumbered[s.node]) for s in loop.stores),
        tuple(replace(f, node=renumbered[f.node]) for f in loop.folds),
        origins,
        None if loop.scan is None else replace(loop.scan, node=renumbered[loop.scan.node]),
        loop.region,
    )


def _everywhere(access: Access, rank: int) -> Access:
    """The access of a loop of one element, broadcast to a loop of `rank` dimensions."""
    picks = tuple(replace(p, index=_everywhere(p.index, rank)) for p in access.picks)
    return replace(access, strides=(0,) * rank, picks=picks)


def renumber(node: Any, numbers: dict[int, int]) -> Any:
    if not isinstance(node, Compute):
        return node
    operands = tuple([numbers[o] if o.__class__ is int else o for o in node.operands])
    if operands == node.operands:
        return node
    return replace(node, operands=operands)


def _joined(group: FusionGroup) -> Instruction:
    if len(group.members) == 1:
        return group.members[0]
    return join([member for member in group.members if isinstance(member, Loop)])


def join(loops: list[Loop]) -> Loop:
    """Fuse loops into one: a value that one stores and another reads stays in a register."""
    nodes: list[Node] = []
    stores: list[Store] = []
    folds: list[LoopFold] = []
    at: dict[Any, int] = {}  # by the key of a node: its position in the fused loop
    made: dict[int, int] = {}  # by value: the node that was stored to it
    for loop in loops:
        renumbered: dict[int, int] = {}
        for i, node in enumerate(loop.nodes):
            if isinstance(node, Read) and node.access.value.number in made:
                renumbered[i] = made[node.access.value.number]
                continue
            node = renumber(node, renumbered)
            key = _key(node)
            if key not in at:
                nodes.append(node)
                at[key] = len(nodes) - 1
            renumbered[i] = at[key]
        for store in loop.stores:
            stores.append(replace(store, node=renumbered[store.node]))
            made[store.access.value.number] = renumbered[store.node]
        folds += [replace(f, node=renumbered[f.node]) for f in loop.folds]
    origins = tuple(o for loop in loops for o in loop.origins)
    made_of = tuple(nodes), tuple(stores), tuple(folds)
    return Loop(loops[0].shape, *made_of, origins, region=loops[0].region)


def _key(node: Node) -> Any:
    if not isinstance(node, Compute):
        return node
    operands = tuple([o if o.__class__ is int else repr(o) for o in node.operands])
    params = repr(node.params) if node.params else ""
    return node.primitive.name, params, operands, node.dtype, node.rounded
