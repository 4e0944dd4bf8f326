"""Fuses runs of elementwise entries in the reverse walk into one native program each.

Comes in: an entry that the walk has reached, with its large gradient. Goes out: the gradients that
the run of elementwise entries beginning there sends to edges outside the run, added to the pending
ones. Neither gradients between the entries nor single terms of a sum are stored: large elementwise
rules are bound by memory traffic. Entries are visited in the order of the walk, and results are new
arrays, so no shared array is written. Called by `engine.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core import numeric, storage
from ..core.primitive import ELEMENTWISE, NEVER, Link, accelerator
from ..core.tape import FREED, Entry, node_of
from ..core.tensor import Tensor

if TYPE_CHECKING:
    from .engine import Walk

#: most entries of a run: longer programs take longer to compile and save no more traffic
MOST = 16


class _Member(NamedTuple):
    entry: Entry
    edges: tuple[Any, ...]
    saved: tuple[Any, ...]


def run(walk: Walk, entry: Entry, g: Any, edges: tuple[Any, ...], saved: tuple[Any, ...]) -> bool:
    """Visit `entry` and those that follow as one run; False, with nothing done, if not fusible."""
    if not _may_join(walk, edges) or not numeric.is_numpy_float(g.dtype):
        return False
    first = _Member(entry, edges, saved)
    if not _is_elementwise(first, g.shape):
        return False
    members, taken = _gathered(walk, first, g.shape)
    ends, links = _linked(members)
    before = [_waiting(walk, end, g) for end in ends]
    waiting = [g, *(walk.pending.get(member.entry) for member in members[1:]), *before]
    if len(members) > 1 or _is_sum(links[0], before):
        results = accelerator().chain(links, waiting)
        if results is not NotImplemented:
            seen = {id(x) for x in (*waiting, *(x for link in links for x in link.saved))}
            _leave(walk, members)
            _deliver(walk, ends, before, results, seen)
            if walk.hurries:
                walk.visited([edge for member in members for edge in member.edges])
            return True
    for other in taken:
        heappush(walk.heap, (-other.number, other))
    return False


def _may_join(walk: Walk, edges: tuple[Any, ...]) -> bool:
    """Whether a gradient goes on to an entry or is added to another one at a leaf; cheap."""
    leaves = set()
    for edge in edges:
        if edge.__class__ is Entry:
            return True
        if isinstance(edge, Tensor):
            if edge.id in walk.leaves or edge.id in leaves:
                return True
            leaves.add(edge.id)
    return False


def _is_sum(link: Link, before: Sequence[Any]) -> bool:
    """Whether some result of a single rule is added to another gradient."""
    targets = [to for to in link.targets if to is not None]
    return len(set(targets)) < len(targets) or any(total is not None for total in before)


def _is_elementwise(member: _Member, shape: tuple[int, ...]) -> bool:
    """Whether a rule can run natively, and its gradients have the given shape and one dtype."""
    entry, edges, saved = member
    p = entry.primitive
    if p.kind != ELEMENTWISE or p.native_size == NEVER or not p.pure or len(p.outputs) > 1:
        return False
    if any(value.__class__ is list for value in saved) or any(s[0] == "dtype" for s in p.slots):
        return False
    shapes = entry.shapes
    if shapes is None:
        return True
    return all(e is None or s == shape for e, s in zip(edges, shapes, strict=True))


def _gathered(
    walk: Walk, first: _Member, shape: tuple[int, ...]
) -> tuple[list[_Member], list[Entry]]:
    """The run of entries, in the walk's order, and those of them taken off the walk's heap."""
    members, taken = [first], []
    reached: list[tuple[int, Entry]] = []
    known: set[int] = set()
    while True:
        for node in map(node_of, members[-1].edges):
            if node.__class__ is Entry and id(node) not in known:
                known.add(id(node))
                heappush(reached, (-node.number, node))
        if not reached or len(members) == MOST:
            break
        number, entry = reached[0]
        heap = walk.heap
        if heap and heap[0][0] < number:
            break  # an entry outside comes first and may send it a gradient
        member = _joining(walk, entry)
        if member is None or not _is_elementwise(member, shape):
            break
        heappop(reached)
        if heap and heap[0][0] == number:
            taken.append(heappop(heap)[1])
        members.append(member)
    return members, taken


def _joining(walk: Walk, entry: Entry) -> _Member | None:
    """The inputs of an entry's rule; None if the walk must visit the entry itself."""
    saved, edges = entry.saved, entry.edges
    if entry.hooks is not None or saved.__class__ is not tuple:
        return None
    if walk.wanted is not None and (entry.number, 0) in walk.wanted:
        return None
    if entry.number < storage.latest and any(_is_stale(value, entry) for value in saved):
        return None
    if walk.needed is not None:
        edges = tuple([e if id(node_of(e)) in walk.needed else None for e in edges])
        if all(e is None for e in edges):
            return None
    return _Member(entry, edges, saved)


def _is_stale(value: Any, entry: Entry) -> bool:
    return hasattr(value, "nbytes") and storage.changed_since(value, entry.number) is not None


def _linked(members: Sequence[_Member]) -> tuple[list[Any], list[Link]]:
    """The edges that leave the run, and the rules with the indices of the gradients they add to."""
    index_of = {id(member.entry): i for i, member in enumerate(members)}
    ends: list[Any] = []
    links = []
    for entry, edges, saved in members:
        targets: list[int | None] = []
        for edge in edges:
            if edge is not None and id(edge) not in index_of:
                index_of[id(edge)] = len(members) + len(ends)
                ends.append(edge)
            targets.append(None if edge is None else index_of[id(edge)])
        links.append(Link(entry.primitive, entry.params, saved, tuple(targets)))
    return ends, links


def _waiting(walk: Walk, end: Any, g: Any) -> Any:
    """The gradient already pending at an edge, if this run can add to it."""
    total: Any
    if end.__class__ is Entry:
        total = walk.pending.get(end)
    elif isinstance(end, Tensor):
        total = walk.leaves[end.id][1] if end.id in walk.leaves else None
    else:
        return None
    if total.__class__ is g.__class__ and total.shape == g.shape and total.dtype == g.dtype:
        return total
    return None


def _leave(walk: Walk, members: Sequence[_Member]) -> None:
    """Mark the entries as visited: remove their pending gradients and free what they saved."""
    for member in members:
        walk.pending.pop(member.entry, None)
        if not walk.retain and member.saved and member.entry.primitive.keeps_values:
            member.entry.saved = FREED


def _deliver(
    walk: Walk, ends: Sequence[Any], before: Sequence[Any], results: Sequence[Any], seen: set[int]
) -> None:
    """Store the results at their edges; `seen` holds id() of arrays that have other references."""
    for end, total, r in zip(ends, before, results, strict=True):
        if r is None or r is total:
            continue
        # A rule may return its input, and two edges may get the same array.
        fresh = r.base is None and id(r) not in seen and sum(r is x for x in results) == 1
        if total is None:
            walk.send(end, r, fresh)
        elif end.__class__ is Entry:
            walk.pending[end] = r
        else:
            walk.leaves[end.id] = (end, r, fresh)
