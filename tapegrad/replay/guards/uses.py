"""Uses: names whose values decide nothing, as far as the code that ran can tell.

Comes in: a name, its value and the scope. Goes out: a `Use`, or None for an ordinary read. A value
need not be the same in the next call if code only sets it, only puts things into it, only counts it
up, or only asks a fixed question about it. Called by the walk (`walk.py`), for each value that it
finds under a name.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from .counters import Question
from .kinds import fits
from .references import Reference
from .scope import Scope

#: containers of which code may read single items
_CONTAINERS = (list, dict, tuple, deque, defaultdict, OrderedDict, Counter)


@dataclass(frozen=True, slots=True)
class Use:
    """How code uses what stands under a name: "written", "counted" or "collected"."""

    kind: str
    questions: tuple[Question, ...] = ()  # that are asked of a counter
    puts: Collection[tuple[str, Any]] = ()  # what is done to a container, and the key
    keys: Collection[Any] = ()  # of items that are read


def use_of(scope: Scope, name: str, value: Any, reference: Reference) -> Use | None:
    """How a value is used under a name; None if everything may depend on it."""
    if name in scope.read or scope.everything:
        return None
    puts, keys = scope.collected.get(name, set()), scope.indexed.get(name, set())
    counted, asked = name in scope.counted, scope.asked.get(name, set())
    if counted and type(value) is list:  # `+=` puts items into the list itself
        puts, counted = {*puts, ("append", None)}, False
    if not counted and not asked:
        if puts or keys:
            fitting = type(value) in _CONTAINERS and fits(value, puts)
            return Use("collected", puts=puts, keys=keys) if fitting else None
        return Use("written") if name in scope.stored else None
    if puts or keys or type(value) is not int or name in scope.assigned:
        return None
    if not asked:
        return Use("counted")
    found = [question.resolved(reference.owner) for question in sorted(asked, key=repr)]
    if name in scope.moved or any(question is None for question in found):
        return None
    return Use("counted", tuple(q for q in found if q is not None))
