"""Prefetch: the next unit's parameters are gathered while this one computes.

Comes in: the units that a forward pass calls, and the bundles whose values it saves for backward. A
forward pass is a call of a unit outside the call of any other; its units are expected in the order
of the previous pass. Backward needs the calls that saved something, in reverse order. At most one
unit is gathered ahead. A started gather that is not needed is abandoned when the pass ends. During
capture nothing is started here: the compiler does that (`replay/passes/overlap.py`). Called by
`units.py`.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

from ..autograd.api import queue_callback
from ..core.modes import LISTENING, STATE

if TYPE_CHECKING:
    from .units import Unit


class _Ahead:
    """The unit whose gather was started before it is needed, if there is one."""

    def __init__(self) -> None:
        self._unit: Unit | None = None
        #: handles, by bundle index
        self._begun: dict[int, int] = {}

    def begin(self, unit: Unit, bundles: Any) -> None:
        """Start to gather bundles of a unit; abandon the gathers started before."""
        self.abandon()
        self._unit = unit
        self._begun = {index: unit.bundles[index].begin() for index in bundles}

    def take(self, unit: Unit, index: int) -> int | None:
        """Remove and return the handle of a bundle's gather; None if it was not started."""
        return self._begun.pop(index, None) if unit is self._unit else None

    def keep_only(self, unit: Unit) -> None:
        """Abandon the started gathers, unless they are this unit's."""
        if unit is not self._unit:
            self.abandon()

    def abandon(self) -> None:
        for handle in self._begun.values():
            assert self._unit is not None
            self._unit.group.abandon(handle)
        self._unit, self._begun = None, {}


class UnitCall:
    """One call of a unit in a forward pass, and the bundles of which it has saved values."""

    def __init__(self, unit: Unit, saved: list[UnitCall]) -> None:
        self.unit = unit
        self.bundles: set[int] = set()
        self._saved = saved
        self._position = -1

    def saves(self, index: int) -> None:
        """Note that backward will need a bundle."""
        if not self.bundles:
            self._position = len(self._saved)
            self._saved.append(self)
        self.bundles.add(index)

    def before(self) -> UnitCall | None:
        """The call that backward needs after this one."""
        return self._saved[self._position - 1] if self._position > 0 else None


class ForwardPass:
    """An outermost call of a unit, and the calls of units inside it."""

    def __init__(self, root: Unit) -> None:
        self.root = root
        self.ahead = _Ahead()
        self._called: list[Unit] = []
        self._saved: list[UnitCall] = []
        self._expected = _PASSES.orders.get(root, ())
        self._is_expected = not STATE.mode & LISTENING

    def enter(self, unit: Unit) -> None:
        """Note that a unit is called now; abandon the started gathers of other units."""
        _PASSES.roots[unit] = ref(self.root)
        position = len(self._called)
        self._called.append(unit)
        if self._is_expected:
            self.ahead.keep_only(unit)
            expected = self._expected[position : position + 1]
            self._is_expected = bool(expected) and expected[0]() is unit

    def begin_next(self) -> None:
        """Start to gather the unit that is expected next; the current one is gathered."""
        if STATE.mode & LISTENING:
            self._is_expected = False
        if self._is_expected and len(self._called) < len(self._expected):
            unit = self._expected[len(self._called)]()
            if unit is not None and not unit.is_gathered:
                self.ahead.begin(unit, range(len(unit.bundles)))

    def take(self, unit: Unit, index: int) -> int | None:
        """The handle of a bundle's started gather; None during capture: programs have their own."""
        return None if STATE.mode & LISTENING else self.ahead.take(unit, index)

    def call(self, unit: Unit) -> UnitCall:
        return UnitCall(unit, self._saved)

    def end(self, is_complete: bool) -> None:
        """End the pass; if it is complete, the next pass expects its order of units."""
        self.ahead.abandon()
        if is_complete and not STATE.mode & LISTENING:
            _PASSES.orders[self.root] = tuple(ref(unit) for unit in self._called)


class _Passes(threading.local):
    """The passes of this thread."""

    def __init__(self) -> None:
        #: the running forward pass
        self.forward: ForwardPass | None = None
        #: the latest backward pass that gathers ahead: its `STATE.endings`, and the unit ahead
        self.backward: tuple[Any, _Ahead] | None = None
        #: by the outermost unit: the units of its latest pass, in order
        self.orders: WeakKeyDictionary[Unit, Any] = WeakKeyDictionary()
        #: by unit: the outermost unit of its latest pass
        self.roots: WeakKeyDictionary[Unit, Any] = WeakKeyDictionary()


_PASSES = _Passes()


def current() -> ForwardPass | None:
    """The running forward pass of this thread."""
    return _PASSES.forward


def set_current(forward: ForwardPass | None) -> None:
    """Set the running forward pass of this thread."""
    _PASSES.forward = forward


def root_of(unit: Unit) -> Unit:
    """The outermost unit of the latest pass in which a unit was called."""
    found = _PASSES.roots.get(unit)
    root: Unit | None = found() if found is not None else None
    return unit if root is None else root


def backward_ahead() -> _Ahead:
    """The unit that the backward pass of this thread gathers ahead."""
    if _PASSES.backward is None or _PASSES.backward[0] is not STATE.endings:
        if _PASSES.backward is not None:
            _PASSES.backward[1].abandon()
        ahead = _Ahead()
        _PASSES.backward = (STATE.endings, ahead)
        queue_callback(ahead.abandon)
    return _PASSES.backward[1]


def begin_before(call: UnitCall) -> None:
    """Start to gather for the call before `call`, for which backward has gathered."""
    before = call.before()
    if before is None or STATE.mode & LISTENING:
        return
    missing = sorted(before.bundles - before.unit.gathered_again().keys())
    if missing:
        backward_ahead().begin(before.unit, missing)
