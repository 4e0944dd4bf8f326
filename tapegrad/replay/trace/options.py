"""Options: numbers and settings that compiled code reads again in every run.

Comes in: a dict of options and a key. Goes out: in eager code, the plain value. While a function is
captured, a number becomes a tensor that stands for it, and a setting that decides which operations
run is noted. Called by optimizers, learning rate schedules and gradient scalers.
"""

from __future__ import annotations

from numbers import Real
from typing import Any

from ...core.modes import STATE, capturing
from ...core.tensor import Tensor
from .capture import Capture
from .slots import Number


def innermost_capture() -> Capture | None:
    """The innermost capture of this thread, if there is one."""
    if not capturing():
        return None
    return next((tape for tape in reversed(STATE.tapes) if isinstance(tape, Capture)), None)


def runtime_number(holder: Any, key: Any, index: int | None = None) -> Any:
    """`holder[key]`, or `holder[key][index]`: a number that compiled code reads in every run.

    In eager code it is the plain number. While a function is captured it is a 0-d float64 tensor,
    so use it in arithmetic; the outcome of an `if` on it becomes part of the signature.
    """
    value = holder[key] if index is None else holder[key][index]
    capture = innermost_capture()
    if capture is None:
        return value
    number = Number(holder, key, index)
    capture.decide(number, _kind)
    if isinstance(value, bool) or not isinstance(value, Real):
        return value
    return capture.number(number, value)


def decided(holder: Any, key: Any) -> bool:
    """The truth of `holder[key]`, which decides what runs: it becomes part of the signature."""
    truth = bool(holder[key])
    capture = innermost_capture()
    if capture is not None:
        capture.decide(Number(holder, key, None), bool)
    return truth


def given(holder: Any, key: Any, index: int | None = None) -> bool:
    """Whether `holder[key]`, or an element of it, is not None: that is part of the signature."""
    capture = innermost_capture()
    if capture is not None:
        capture.decide(Number(holder, key, index), _is_given)
    return _is_given(holder[key] if index is None else holder[key][index])


def _kind(value: Any) -> Any:
    """What must not change: for a number, that it is a real number; for the rest, the value."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return id(value) if isinstance(value, Tensor) else value
    return Real


def _is_given(value: Any) -> bool:
    return value is not None


def _itself(value: Any) -> Any:
    return value


def setting(holder: Any, key: Any, index: int | None = None) -> Any:
    """`holder[key]`, or an element of it: a name or a count that is part of the signature."""
    value = holder[key] if index is None else holder[key][index]
    capture = innermost_capture()
    if capture is not None:
        capture.decide(Number(holder, key, index), _itself)
    return value


def happens_once() -> None:
    """Mark the run as never to be replayed: Python keeps a tensor that it makes."""
    capture = innermost_capture()
    if capture is not None:
        capture.once = True


def as_known_code(method: Any, *args: Any) -> None:
    """Call a method of the library; count all code that it can call as having run.

    Observing which code runs would take longer than the rest of a recording.
    """
    capture = innermost_capture()
    if capture is None:
        method(*args)
        return
    if capture.observer is not None:
        capture.unobserved(capture.observer.know, type(method.__self__), method.__func__)
    capture.unobserved(method, *args)
