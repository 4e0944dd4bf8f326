"""Variants: recordings of one signature, each with the world in which it was made.

A `Signature` is the state of all calls with like arguments. A `Variant` has one world, and either a
replay with its effects on Python objects, or a reason to run eagerly. Several variants may share a
replay, as training and evaluation of a model without dropout do. Called by `compiled.py` and
`explain.py`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from ...core.tensor import Tensor
from ..cpu.entries import find_walk
from ..guards.facts import facts_of
from ..guards.kinds import Unguardable
from ..guards.references import Reference
from ..guards.scope import Scope
from ..guards.world import World
from ..trace.effects import Effects
from ..trace.signature import Arguments, aliasing_of, unlike
from .replay import Replay

#: most variants of one signature; past that, the least recently used one is dropped
MOST_VARIANTS = 32
#: most recordings that wait for another one to agree with
MOST_PENDING = 16


class Variant:
    """One world, with the replay or the reason to run eagerly."""

    def __init__(
        self,
        world: World,
        replay: Replay | None,
        eager: str | None = None,
        effects: Effects | None = None,
        moving: list[tuple[Reference, Any]] | None = None,
        sharing: Any = (),
        pattern: tuple[Any, ...] = (),
        overlap: list[tuple[int, ...]] | None = None,
    ) -> None:
        self.world = world
        self.replay = replay
        self.eager = eager
        self.effects = Effects() if effects is None else effects
        #: references to tensors that each call replaces, with the facts of the recorded ones; these
        #: tensors follow the arguments
        self.moving = moving or []
        self.overlaps = sharing
        #: the class of each leaf's gradient, or None; variants that share a replay may differ in it
        self.pattern = pattern
        #: for each argument, the captured tensors that it overlapped
        self.overlap = overlap or []
        self._has_pattern: Callable[[list[Tensor]], bool] | None = None

    def tensors(self, call: Arguments) -> list[Tensor] | None:
        """The arguments of a call, then the tensors of `moving`; None if one does not fit."""
        if not self.moving:
            return call.tensors
        found = call.tensors.copy()
        for reference, facts in self.moving:
            tensor = reference.read()
            if not isinstance(tensor, Tensor) or facts_of(tensor) != facts:
                return None
            found.append(tensor)
        return found if aliasing_of(found) == self.overlaps else None

    def fits(self, call: Arguments) -> list[Tensor] | None:
        """The tensors to replay on; None if the variant does not fit this call."""
        tensors = self.tensors(call)
        if tensors is None or not self.world.holds(tensors, call.objects, find_walk):
            return None
        if call.containers and not self.world.reach.seen.keys().isdisjoint(
            map(id, call.containers)
        ):
            return None  # the walk also reaches a container of the arguments
        return tensors if self._refused_on(tensors) is None else None

    def _refused_on(self, tensors: list[Tensor]) -> str | None:
        """Why the replay does not fit; None if it does, or if there is no replay."""
        if self.replay is None:
            return None
        if self._has_pattern is None:
            self._has_pattern = self.replay.pattern_test(self.pattern)
        if not self._has_pattern(tensors):
            return "a .grad that was None is not, or the other way round"
        if tensors and self.replay.overlap(tensors) != self.overlap:
            return "an argument shares memory with a captured tensor, or no longer does"
        return self.replay.refusal(tensors)

    def look(self, call: Arguments) -> World:
        """The world as it is now."""
        tensors = self.tensors(call)
        given = call.tensors if tensors is None else tensors
        return World(self.world.scope, self.world.roots, given, call.objects)

    def difference(self, call: Arguments) -> str | None:
        """What has changed in the world; if nothing has, the world adopts the current objects."""
        quick = self.world.changed_value()
        if quick is not None:
            return quick
        try:
            world = self.look(call)
        except Unguardable as error:
            return str(error)
        found = self.world.difference(world)
        if found is None and self.world.stores_objects():
            return "an object that it stores may have been replaced"
        if found is None:
            self.world.adopt(world)
        return found

    def refusal(self, call: Arguments) -> str:
        """Why a recording does not fit although its world does."""
        tensors = self.tensors(call)
        if tensors is None:
            return "a tensor has another shape, dtype or layout"
        return self._refused_on(tensors) or "tensors share memory in another way"


class Signature:
    """The state of all calls with like arguments."""

    def __init__(self, key: Any, shown: str) -> None:
        self.key = key
        self.shown = shown
        #: a quick test of arguments: if it says yes, they have this key
        self.is_like: Callable[[tuple[Any, ...]], bool] = unlike
        self.variants: list[Variant] = []
        #: whether a recording met a collective
        self.communicates = False
        self.scope: Scope | None = None
        #: hook functions of tensors, with names for them
        self.hooked: list[tuple[str, Any]] = []
        #: recordings that are not confirmed yet, with their worlds
        self.pending: list[tuple[World | None, Replay]] = []
        self.recordings = 0
        #: recordings since the latest replay; those of them that disagreed in an equal world
        self.strikes = 0
        self.disagreements = 0
        self.reasons: list[str] = []
        self.eager: str | None = None
        self.difference: str | None = None
        #: the world of the latest recording
        self.latest: World | None = None
        #: tensor ids by place in the latest recording; the places whose tensors change
        self._tensors: dict[tuple[int, str], int] = {}
        self._changing: set[tuple[int, str]] = set()
        self._references: list[tuple[Reference, Any]] = []
        self._sharing: Any = ()
        self._overlapping: weakref.WeakValueDictionary[int, Tensor] | None = None

    @property
    def sharing(self) -> list[Tensor] | None:
        """Captured tensors that overlap others where one is written to; None if none does."""
        return None if self._overlapping is None else list(self._overlapping.values())

    def learn_sharing(self, tensors: list[Tensor]) -> bool:
        """Note captured tensors that overlap others; whether one of them is new."""
        known = self._overlapping
        if known is None:
            known = self._overlapping = weakref.WeakValueDictionary()
        elif all(t.id in known for t in tensors):
            return False
        known.update({t.id: t for t in tensors})
        return True

    @property
    def replays(self) -> list[Replay]:
        """The confirmed recordings, each once."""
        found = {id(v.replay): v.replay for v in self.variants if v.replay is not None}
        return list(found.values())

    def look(self, call: Arguments, roots: list[tuple[str, Any]]) -> World | None:
        """The world of a call that is about to be recorded; None before the first recording."""
        if self.scope is None:
            return None
        return World(self.scope, roots, call.tensors, call.objects)

    def moving(self, world: World | None) -> list[Tensor]:
        """Tensors that each call must look up again, because they are replaced between calls."""
        self._references = []
        if world is None:
            return []
        found: dict[int, Tensor] = {}
        now: dict[tuple[int, str], int] = {}
        for at, tensor in world.tensors.items():
            reference = world.marks[at].reference
            key = (id(reference.owner), world.path(at))  # `latest` keeps the owner alive
            now[key] = tensor.id
            if self._tensors.get(key, tensor.id) != tensor.id or world.is_rewritten(at):
                self._changing.add(key)
            known = tensor.id in world.arguments or tensor.id in found
            if key in self._changing and not known and reference.is_stored():
                found[tensor.id] = tensor
                self._references.append((reference, facts_of(tensor)))
        self._tensors = now
        self._sharing = aliasing_of([*world.given, *found.values()]) if found else ()
        count = len(world.given)
        world.arguments |= {tensor_id: count + i for i, tensor_id in enumerate(found)}
        return list(found.values())

    def cover(self, seen: Scope) -> bool:
        """Add the code that ran to the scope; whether the scope covered it before."""
        if self.scope is None:
            self.scope = seen
            return False
        if self.scope.covers(seen):
            return True
        self.scope = self.scope.joined(seen)
        return False

    def compare(self, world: World | None, replay: Replay) -> Replay | None:
        """An earlier recording of an equal world that agrees; the new one joins `pending`."""
        agreeing = None
        waiting = []
        for earlier, other in self.pending[-MOST_PENDING:]:
            known = earlier is not None and world is not None
            same = earlier is None or world is None or earlier.difference(world) is None
            alike = other.recording.case == replay.recording.case
            # The first recording had no scope yet, so its effects are unknown.
            difference = other.recording.difference(replay.recording, ends=known)
            if difference is None and same:
                agreeing = other
                continue
            if not same or not alike:
                waiting.append((earlier, other))
            elif known:
                self.disagreements += 1
                self.difference = difference
        self.pending = [*waiting, (world, replay)]
        return agreeing

    def enter(
        self,
        world: World | None,
        replay: Replay,
        effects: Effects,
        pattern: tuple[Any, ...],
        tensors: list[Tensor],
    ) -> None:
        """Keep a variant for a world, if the world is known."""
        if world is None:
            return
        self.pending = [pair for pair in self.pending if pair[1] is not replay]
        world.settle_for(replay.recording)
        overlap = replay.overlap(tensors)
        variant = Variant(
            world, replay, None, effects, self._references, self._sharing, pattern, overlap
        )
        self.keep(variant)
        self.disagreements = self.strikes = 0

    def keep(self, variant: Variant) -> None:
        """Keep a variant; past the limit, drop the least recently used one."""
        self.variants.insert(0, variant)
        del self.variants[MOST_VARIANTS:]  # variants keep the user's objects alive
