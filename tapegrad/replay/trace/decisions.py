"""Decisions: what Python read from runtime numbers, such as options of an optimizer.

Comes in: a tensor that Python reads while a call is recorded. Goes out: a `Decision`, or None. A
replay runs no Python, so an `if` on such a number was decided when the call was recorded. The
recording keeps the computation of that number; it must give the same outcome before each replay.
Called by `log.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.arrays import host_copy, on_host
from ...core.tape import Entry, Value
from ...core.tensor import Tensor
from .slots import Number

if TYPE_CHECKING:
    from .log import CaptureLog


@dataclass(frozen=True, slots=True)
class Decision:
    """A value that Python read from runtime numbers: it must be the same when replayed."""

    numbers: tuple[Number, ...]
    #: (primitive, params, inputs); the numbers of values are positions among numbers and steps
    steps: tuple[tuple[Any, dict[str, Any], tuple[Any, ...]], ...]
    outcome: Any
    #: if there are no steps: what was read of the number, for example its truth
    look: Callable[[Any], Any] = bool

    def holds(self) -> bool:
        """Whether the current numbers give the same outcome."""
        if not self.steps:
            return bool(self.look(self.numbers[0].read()) == self.outcome)
        values: list[Any] = [np.asarray(n.read(), np.float64) for n in self.numbers]
        for primitive, params, inputs in self.steps:
            given = [values[x.number] if isinstance(x, Value) else x for x in inputs]
            values.append(primitive.kernel(*given, **params))
        return bool(np.array_equal(values[-1], self.outcome, equal_nan=True))


def decision_of(capture: CaptureLog, tensor: Tensor) -> Decision | None:
    """The tensor read, as a computation on runtime numbers; None if it depends on more."""
    found: list[Number] = []
    entries: dict[int, Entry] = {}
    stack = [capture.value_of(tensor).number]
    positions: dict[int, int] = {}
    while stack:
        number = stack.pop()
        slot = capture.slots.get(number)
        if isinstance(slot, Number):
            if number not in positions:
                positions[number] = len(found)
                found.append(slot)
        elif number in capture.makers:
            entry = capture.makers[number]
            entries[entry.number] = entry
            assert entry.log is not None
            stack += [x.number for x in entry.log[0] if isinstance(x, Value)]
        elif number not in capture.constants:
            return None

    def position(x: Any) -> Any:
        if not isinstance(x, Value):
            return x
        if x.number in positions:
            return Value(positions[x.number], x.shape, x.dtype)
        return on_host(capture.constants[x.number])

    steps: list[tuple[Any, dict[str, Any], tuple[Any, ...]]] = []
    for entry in sorted(entries.values(), key=lambda e: e.number):
        assert entry.log is not None
        given = tuple(map(position, entry.log[0]))
        positions[entry.log[1][0].number] = len(found) + len(steps)
        steps.append((entry.primitive, entry.params, given))
    if not steps:
        steps = [(_IDENTITY, {}, (Value(0, (), None),))]
    return Decision(tuple(found), tuple(steps), host_copy(tensor._array))


class _Identity:
    """The primitive of a runtime number that is read without any computation."""

    @staticmethod
    def kernel(x: Any) -> Any:
        return x


_IDENTITY = _Identity()
