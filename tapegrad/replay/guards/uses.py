"""Uses: names whose values may differ in the next call, because of how code uses them.

Comes in: a name, its value and the scope. Goes out: a `Use`, or None for an ordinary read. A value
need not be the same in the next call if code only sets it, only puts values into it, only counts it
up, or only asks fixed questions about it. Called by the walk (`walk.py`), for each value that it
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
    """How code uses the value of a name: "written", "counted" or "collected"."""

    kind: str
    questions: tuple[Question, ...] = ()  # about a counter
    puts: Collection[tuple[str, Any]] = ()  # changes to a container: kind and key
    keys: Collection[Any] = ()  # of items that are read


def use_of(scope: Scope, name: str, value: Any, reference: Reference) -> Use | None:
    """How code uses the value of a name; None if anything may depend on it."""
    if name in scope.read or scope.everything:
        return None
    puts, keys = scope.collected.get(name, set()), scope.indexed.get(name, set())
    counted, asked = name in scope.counted, scope.asked.get(name, set())
    if counted and type(value) is list:  # `+=` extends the list in place
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
