"""The world of a recording: the plain Python values that its code can reach by name.

Comes in: a scope, roots and arguments. A `World` stores what a walk has found (`reach.py`) in two
forms: a list of **marks** in the order of the walk, used to compare two worlds, and lists of
owners, keys and values, from which `holds` generates a function of `is` tests. If a test fails,
another walk decides: it accepts equal values in other objects, and reports a difference by path.
Called by `use/compiled.py`, `use/variant.py` and `trace/effects.py`.

`docs/design.md` defines the roots, and what is walked, compared and refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import getitem, is_
from typing import TYPE_CHECKING, Any

from ...core.tensor import Tensor
from .conjunction import Conjunction
from .counters import same_answers
from .entries import Walk
from .facts import facts_of
from .kinds import is_tensor, path_of
from .reach import Reach
from .references import (
    MISSING,
    Mark,
    Reference,
    dict_item,
    instance_dict,
    is_atom,
    itself,
    same_atom,
)
from .scope import Scope

if TYPE_CHECKING:
    from ..trace.recording import Recording


class World:
    """The values that the code of one recording can reach, at the time of the walk."""

    def __init__(
        self,
        scope: Scope,
        roots: Iterable[tuple[str, Any]],
        arguments: Iterable[Tensor] = (),
        objects: Iterable[Any] = (),
    ) -> None:
        self.scope = scope
        self.roots = list(roots)
        #: the objects and the tensors among the arguments of the call
        self.objects = list(objects)
        self.given = list(arguments)
        self.arguments = {t.id: i for i, t in reversed(list(enumerate(self.given)))}
        self.recording: Recording | None = None
        self._twins: dict[int, int] | None = None
        #: positions of values that code may set but left unchanged: they must be the same again
        self.held: frozenset[int] = frozenset()
        #: by position of a counter with questions: its increase in the call
        self.risen: dict[int, int] = {}
        self._test: Callable[[], bool] | None = None
        size = -1
        while size != scope.size():
            # The walk may add names to the scope: then it is repeated.
            size = scope.size()
            self.reach = Reach(scope, self.roots, self.objects)
        self.marks, self.tensors = self.reach.marks, self.reach.tensors
        self.compared = self.reach.compared
        #: tensors with the ids of their current gradients, which are not kept alive
        self._grads = [
            (t, t._grad.id) for t in (*self.tensors.values(), *self.given) if t._grad is not None
        ]
        self.settle(frozenset())

    def members(self) -> Iterator[tuple[int, dict[str, Any], list[str]]]:
        """Positions of objects, with their current attributes and the names that the walk found."""
        for at, value, names in self.reach.members:
            entries = instance_dict(value)
            assert entries is not None
            yield at, entries, names

    def mark_of(self, value: Any) -> Mark | None:
        """The mark of an object that the walk found, else None."""
        at = self.reach.seen.get(id(value))
        return None if at is None else self.marks[at]

    # -- comparison ---------------------------------------------------------------------------

    def settle_for(self, recording: Recording) -> None:
        """Compare by identity tensors that a recording reads; ignore numbers that it rereads."""
        self.recording = recording
        read = recording.tensors()
        numbers = {
            (id(n.holder), n.key) for n in recording.numbers() if n.key not in self.scope.strings
        }
        if numbers:
            for mark in self.marks:
                if (id(mark.reference.owner), mark.reference.key) in numbers:
                    mark.kind = "number"
            self.compared.entries = self.compared.entries.without(numbers)
        self.settle(frozenset(at for at, t in self.tensors.items() if t.id in read))

    def hold(self) -> None:
        """After a call: compare from now on values that it may set but left unchanged."""
        self.held = frozenset(
            at
            for at, mark in enumerate(self.marks)
            if mark.kind in ("written", "counted")
            and not mark.detail
            and mark.reference.read() is mark.raw
        )
        self.risen = {
            at: mark.reference.read() - mark.raw
            for at, mark in enumerate(self.marks)
            if mark.kind == "counted" and mark.detail
        }
        self._test = None

    def settle(self, fixed: frozenset[int]) -> None:
        """Compare tensors at the positions in `fixed` by identity: the program reads them.

        Of others, the facts are compared. Where an argument was, the same argument of the next call
        must be.
        """
        # Code that stored the same tensor again may have read it elsewhere: fix it there too.
        raws = [self.marks[at].raw for at in self.held]
        kept = {raw.id: raw for raw in raws if is_tensor(raw)}
        self.fixed = fixed = fixed | {at for at, t in self.tensors.items() if t.id in kept}
        self._loose: list[tuple[Reference, Any]] = []
        self._bound: list[tuple[Reference, int]] = []
        self._solid: list[tuple[Reference, Tensor]] = []
        self._test = None
        for at, tensor in self.tensors.items():
            reference = self.marks[at].reference
            index = self.arguments.get(tensor.id)
            if index is not None:
                self._bound.append((reference, index))
            elif at not in fixed:
                self._loose.append((reference, self.marks[at].detail))
            elif reference.get is not itself:
                self._solid.append((reference, tensor))
        for at in self.held:
            index = self._argument_held(at)
            if index is not None:
                self._bound.append((self.marks[at].reference, index))
        self._own_grads: list[tuple[Tensor, Tensor]] = []
        self._given_grads: list[tuple[int, Tensor]] = []
        for tensor, number in self._grads:
            index = self.arguments.get(tensor.id)
            if number in kept and index is not None:
                self._given_grads.append((index, kept[number]))
            elif number in kept:
                self._own_grads.append((tensor, kept[number]))
        self._bound_indices = {index for _, index in self._bound}
        self._ids = {t.id for t in self.tensors.values()}
        self._solid_ids = {self.tensors[at].id for at in fixed}
        self._pattern = _pattern([reference.read() for reference, _ in self._loose])

    def _argument_held(self, at: int) -> int | None:
        """The index of the argument that was already stored where code may set it, else None."""
        raw = self.marks[at].raw
        return self.arguments.get(raw.id) if is_tensor(raw) else None

    def holds(
        self,
        arguments: Sequence[Tensor],
        objects: Sequence[Any] = (),
        find_walk: Callable[[], Walk | None] | None = None,
    ) -> bool:
        """Whether every value is still the same object; an equal one may fail here.

        `find_walk` returns a native function that compares dictionaries, or None.
        """
        try:
            if self._test is None:
                self._test = self._written(find_walk)
            return self._test() and self._tensors_hold(arguments, objects)
        except (KeyError, IndexError, AttributeError, ValueError, TypeError, RuntimeError):
            return False

    def _written(self, find_walk: Callable[[], Walk | None] | None) -> Callable[[], bool]:
        """One function with all tests that do not depend on arguments."""
        tests = Conjunction()
        self.compared.write(tests)
        for at in self.held:
            if self._argument_held(at) is None:
                _add_reference(tests, self.marks[at].reference, self.marks[at].raw)
        for at, risen in self.risen.items():
            mark = self.marks[at]
            same = functools.partial(_answers_hold, mark.reference, mark.detail, mark.raw, risen)
            tests.add(f"{tests.name(same)}()")
        for reference, tensor in self._solid:
            _add_reference(tests, reference, tensor)
        for leaf, grad in self._own_grads:
            tests.add_is(f"{tests.name(leaf)}._grad", grad)
        return tests.function(find_walk=find_walk)

    def _tensors_hold(self, arguments: Sequence[Tensor], objects: Sequence[Any]) -> bool:
        """Whether arguments are where they were, and tensors that the program does not read fit."""
        for i, t in enumerate(arguments):
            if t.id in self._ids and i not in self._bound_indices:
                return False
        if self.objects and not all(map(is_, objects, self.objects)):
            return False
        for i, grad in self._given_grads:
            if arguments[i]._grad is not grad:
                return False
        if not self._loose and not self._bound:
            return True
        loose = [reference.get(reference.owner, reference.key) for reference, _ in self._loose]
        for found, (_, facts) in zip(loose, self._loose, strict=True):
            if not isinstance(found, Tensor) or facts_of(found) != facts:
                return False
            if any(t is found for t in arguments) or found.id in self._solid_ids:
                return False
        if loose and _pattern(loose) != self._pattern:
            return False
        for reference, index in self._bound:
            if reference.get(reference.owner, reference.key) is not arguments[index]:
                return False
        return True

    def changed_value(self) -> str | None:
        """Describe a plain value in a dictionary that has changed, without a walk; else None."""
        table = self.compared.entries
        for owner, key, before in table:
            now = dict.get(owner, key, MISSING)
            if now is before or not is_atom(before) or not is_atom(now) or same_atom(before, now):
                continue
            for at, mark in enumerate(self.marks):
                if mark.reference.owner is owner and mark.reference.key is key:
                    where = self.scope.line_of(str(key))
                    return f"{self.path(at)} was {_brief(before)} and is {_brief(now)}{where}"
        return None

    def is_rewritten(self, at: int) -> bool:
        """Whether code that ran may store another tensor in place of this one."""
        mark = self.marks[at]
        name = mark.step.lstrip(".")
        return name in self.scope.stored and mark.reference.is_stored()

    def difference(self, other: World) -> str | None:
        """Describe the first difference from another world; None if the two are equivalent."""
        for at, (mine, theirs) in enumerate(zip(self.marks, other.marks, strict=False)):
            if not self._same(at, mine, theirs, other):
                where = self.scope.line_of(self.marks[at].step.lstrip("."))
                return f"{self.path(at)} was {_shown(mine)} and is {_shown(theirs)}{where}"
        if len(self.marks) != len(other.marks):
            longer = self if len(self.marks) > len(other.marks) else other
            at = min(len(self.marks), len(other.marks))
            return f"{longer.path(at)} is there in one of two calls"
        return None

    def _same(self, at: int, mine: Mark, theirs: Mark, other: World) -> bool:
        if mine.kind == "number" or theirs.kind == "number":
            return (id(theirs.reference.owner), theirs.reference.key) == (
                id(mine.reference.owner),
                mine.reference.key,
            )
        if mine.kind != theirs.kind or mine.step != theirs.step or mine.parent != theirs.parent:
            return False
        if mine.kind == "tensor":
            if self._twin(at) != other._twin(at):
                return False
            a, b = self.arguments.get(mine.value.id), other.arguments.get(theirs.value.id)
            if a is not None or b is not None:
                return a == b
            if mine.detail != theirs.detail:
                return False
            return at not in self.fixed or mine.value is theirs.value
        if at in self.held:
            a, b = mine.raw, theirs.raw
            index = self._argument_held(at)
            if index is not None:
                return is_tensor(b) and other.arguments.get(b.id) == index
            return a is b or (is_atom(a) and is_atom(b) and same_atom(a, b))
        if mine.kind == "counted":
            alike = mine.detail == theirs.detail and type(theirs.raw) is int
            return alike and same_answers(mine.detail, mine.raw, theirs.raw, self.risen.get(at, 0))
        if mine.kind == "atom":
            return same_atom(mine.value, theirs.value)
        if mine.kind in ("same", "cache", "class", "module", "object", "function"):
            return mine.value is theirs.value and mine.detail == theirs.detail
        return bool(mine.value == theirs.value) and _same_detail(mine.detail, theirs.detail)

    def _twin(self, at: int) -> int:
        """The position where the walk first found the tensor at `at`."""
        if self._twins is None:
            first: dict[int, int] = {}
            self._twins = {p: first.setdefault(t.id, p) for p, t in self.tensors.items()}
        return self._twins[at]

    def stores_objects(self) -> bool:
        """Whether code may set something but left an object there, which must be the same again."""
        return any(not is_atom(self.marks[at].raw) for at in self.held)

    def adopt(self, other: World) -> None:
        """Take over the objects of an equivalent world."""
        fixed, recording, held, risen = self.fixed, self.recording, self.held, self.risen
        for mine, theirs in zip(self.marks, other.marks, strict=True):
            mine.reference.owner, mine.reference.key = theirs.reference.owner, theirs.reference.key
            theirs.reference = mine.reference
        self.__dict__.update(other.__dict__)
        self.held, self.risen = held, risen
        if recording is not None:
            self.settle_for(recording)
        else:
            self.settle(fixed)

    # -- messages ------------------------------------------------------------------------------

    def path(self, at: int) -> str:
        """The path of a mark, as a user would write it."""
        mark = self.marks[at]
        return path_of(self.marks, mark.parent, mark.step)

    def moved(self) -> str | None:
        """The path of an object whose hidden state has changed since the walk, else None."""
        for at, state, before in self.reach.movers:
            if state() != before:
                return self.path(at)
        return None


# -- helpers ------------------------------------------------------------------------------------


def _add_reference(tests: Conjunction, reference: Reference, value: Any) -> None:
    """Add a test that a reference still holds this value."""
    owner, key, get = reference.owner, reference.key, reference.get
    if value is MISSING:
        tests.add_is(f"{tests.name(reference)}.read()", value)
    elif get is dict_item:
        tests.add_entry(owner, key, value)
    elif get is getattr:
        tests.add_is(f"{tests.name(owner)}.{key}", value)
    elif get is getitem and type(owner) in (list, tuple):
        tests.add_is(f"{tests.name(owner)}[{key}]", value)
    else:
        tests.add_is(f"{tests.name(reference)}.read()", value)


def _answers_hold(reference: Reference, questions: Any, before: int, risen: int) -> bool:
    now = reference.read()
    return type(now) is int and same_answers(questions, before, now, risen)


def _same_detail(a: Any, b: Any) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same_atom, a, b))
    return bool(a == b)


def _pattern(tensors: list[Any]) -> list[int]:
    """For each tensor, the index of its first occurrence."""
    ids = [id(t) for t in tensors]
    return [ids.index(i) for i in ids]


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 60 else text[:57] + "..."


def _shown(mark: Mark) -> str:
    if mark.kind == "tensor":
        return (
            "another tensor" if not mark.detail else f"a tensor of shape {tuple(mark.value.shape)}"
        )
    if mark.kind == "atom":
        return _brief(mark.value)
    if mark.kind in ("written", "counted"):
        return _brief(mark.raw) if is_atom(mark.raw) else f"a {type(mark.raw).__name__}"
    if mark.kind == "list":
        return f"a {mark.value.__name__} of {mark.detail}"
    if mark.kind == "dict":
        return f"a {mark.value.__name__} with keys {mark.detail}"[:80]
    kind = mark.value if isinstance(mark.value, type) else type(mark.value)
    return f"a {kind.__name__}"
