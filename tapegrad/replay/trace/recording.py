"""Recordings: what one captured run did, and where two of them differ.

Comes in: the findings of `Capture.finish`. Goes out: the first difference between two recordings,
or None. A function is replayed only after two runs have left equal recordings. Values are numbered
in order of appearance, so equal runs have equal numbers. Compared by `use/compiled.py`, run by
`use/replay.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...core import source
from ...core.tape import Entry, Value
from ..guards.references import is_atom
from ..ir.program import Apply, Program
from .decisions import Decision
from .derivative import Derivative
from .results import leaves
from .slots import Argument, Captured, GradOf, Number, Slot, Span


@dataclass(frozen=True, slots=True)
class Made:
    """In the tree of results: a tensor that the program makes; `spent` is its used-up history."""

    index: int
    spent: Entry | None
    output: int | None  # its index among the results that can be differentiated
    arguments: tuple[Argument, ...] = ()  # arguments to which its used-up history leads
    order: tuple[int, ...] = ()  # its dimensions in memory order, if it is not contiguous


@dataclass(frozen=True, slots=True)
class Given:
    """In the tree of results: a tensor from outside, or the view that a chain makes of it."""

    slot: Any
    chain: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """In the tree of results: a view of another result."""

    base: Any
    chain: tuple[Any, ...]
    requires: bool


@dataclass(frozen=True, slots=True)
class AliasResult:
    """In the tree of results: a new tensor on the array of a tensor from outside."""

    slot: Any


@dataclass(frozen=True, slots=True)
class GradResult:
    """In the tree of results: the `.grad` that a leaf has when the call ends."""

    slot: Any


@dataclass(frozen=True, slots=True)
class FromArguments:
    """In the tree of results: an object or a container that was among the arguments."""

    container: bool
    index: int


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """In the tree of results: an object that existed before, read through its reference."""

    mark: Any


@dataclass(frozen=True, slots=True)
class Plain:
    """In the tree of results: anything that is not a tensor."""

    value: Any


@dataclass(slots=True)
class Recording:
    """What one run did."""

    program: Program
    slots: tuple[Slot, ...]  # one for each input of the program
    twins: tuple[Any, ...]  # further tensors on the arrays of captured ones
    leaves: tuple[Any, ...]  # slots of the tensors whose .grad the run read or changed
    pattern: tuple[Any, ...]  # for each of them, the class of .grad at the beginning, or None
    grads: tuple[tuple[Any, Any], ...]  # (leaf, None | Slot | index of the result) at the end
    #: (leaf, before, after) for each whose requires_grad the run set
    flags: tuple[tuple[Any, bool, bool], ...]
    results: Any  # the tree that the function returned
    decisions: tuple[Decision, ...]
    derivative: Derivative | None  # the backward pass of the results
    obstacle: str | None  # why this run can only be repeated eagerly
    used: frozenset[int]  # ids of all tensors from outside that the run used
    once: bool  # whether the run made state for later runs, so it is never replayed

    @property
    def case(self) -> Any:
        """The known conditions that decide what a run does: gradients, flags, outcomes, spans."""
        flags = tuple(before for _, before, _ in self.flags)
        spans = [s for s in self.slots if isinstance(s, Span)]
        return self.pattern, flags, repr([d.outcome for d in self.decisions]), spans

    def tensors(self) -> set[int]:
        """The ids of the tensors from outside that the run read, wrote or returned."""
        slots: list[Any] = [*self.slots, *self.leaves, *(slot for slot, _, _ in self.flags)]
        slots += [x for pair in self.grads for x in pair]
        slots += [
            x.slot for x in leaves(self.results) if isinstance(x, (Given, GradResult, AliasResult))
        ]
        slots += self.derivative.inputs if self.derivative is not None else ()
        slots = [s.leaf if isinstance(s, GradOf) else s for s in slots]
        slots += [member for s in slots if isinstance(s, Span) for member in s.members]
        captured = {s.tensor.id for s in slots if isinstance(s, Captured)}
        return captured | self.used | {t.id for t in self.twins}

    def numbers(self) -> list[Number]:
        """The numbers that each replay reads again."""
        found = [s for s in self.slots if isinstance(s, Number)]
        return [*found, *(n for d in self.decisions for n in d.numbers)]

    def difference(self, other: Recording, ends: bool = True) -> str | None:
        """The first difference from another recording, as text; None if the two agree.

        Without `ends`, results and side effects are not compared.
        """
        mine, theirs = self.program.applied(), other.program.applied()
        for first, second in zip(mine, theirs, strict=False):
            if first.primitive is not second.primitive or not _same(first.params, second.params):
                return f"{_show(first)} in one recording and {_show(second)} in the next"
        if len(mine) != len(theirs):
            longer = mine if len(mine) > len(theirs) else theirs
            return f"only one of two recordings has {_show(longer[min(len(mine), len(theirs))])}"
        for before, after in zip(self.slots, other.slots, strict=False):
            if before != after:
                return (
                    f"another tensor was read ({before}, then {after}); keep state in one tensor "
                    "and change it in place, for example with copy_()"
                )
        if len(self.slots) != len(other.slots):
            return "another number of tensors from outside was read"
        for first, second in zip(mine, theirs, strict=True):
            if not _same(_shown(first), _shown(second)):
                return f"{_show(first)} got other operands in the next recording: {_show(second)}"
        for (a, x), (b, y) in zip(self.program.constants, other.program.constants, strict=False):
            if (a.number, x.dtype, x.shape) != (b.number, y.dtype, y.shape) or (
                x.tobytes() != y.tobytes()
            ):
                return (
                    f"the tensor {a}, made from Python values at {_first_use(self.program, a)}, "
                    "changed; pass what changes as an argument"
                )
        if _inputs(self.program) != _inputs(other.program):
            return "a tensor from outside has another shape, dtype or layout"
        if not ends:
            return None
        if _ends(self) != _ends(other) or not _same(_plain(self), _plain(other)):
            return "the function returned or changed something else"
        if not _same([d.outcome for d in self.decisions], [d.outcome for d in other.decisions]):
            return "a number that decides what is computed changed"
        return None


def _same(a: Any, b: Any) -> bool:
    """Equality by type and repr: NaN equals itself; 1, 1.0 and True differ."""
    return type(a) is type(b) and repr(a) == repr(b)


def _shown(apply: Apply) -> Any:
    return [
        (x.number, x.shape, x.dtype.str) if isinstance(x, Value) else x
        for x in (*apply.inputs, *apply.outputs)
    ]


def _show(apply: Apply) -> str:
    return f"{apply.primitive.name} ({source.describe(apply.location)})"


def _first_use(program: Program, value: Value) -> str:
    for apply in program.instructions:
        if isinstance(apply, Apply) and any(v.number == value.number for v in apply.reads()):
            return source.describe(apply.location)
    return "an unknown line"


def _inputs(program: Program) -> list[Any]:
    return [
        (i.value.number, i.value.shape, i.value.dtype, i.strides, i.aliased) for i in program.inputs
    ]


def _ends(recording: Recording) -> Any:
    program = recording.program
    found = list(leaves(recording.results))
    made = [x for x in found if isinstance(x, Made)]
    return (
        [(t.number, v.number) for t, v in program.writes],
        [v.number for v in program.results],
        recording.leaves,
        recording.grads,
        recording.flags,
        recording.derivative,
        [(x.index, x.spent is None, x.output, x.arguments, x.order) for x in made],
        [(type(x), x.slot) for x in found if isinstance(x, (Given, GradResult, AliasResult))],
        [repr(x.chain) for x in found if isinstance(x, Part)],
        [x for x in found if isinstance(x, FromArguments)],
        [x.mark.step for x in found if isinstance(x, Found)],
    )


def _plain(recording: Recording) -> Any:
    """The plain values among the results; `_ends` has the other leaves."""
    return [_shown_value(x.value) if isinstance(x, Plain) else 0 for x in leaves(recording.results)]


def _shown_value(value: Any) -> Any:
    """A plain value, or the identity of any other object."""
    return value if is_atom(value) else (type(value), id(value))
