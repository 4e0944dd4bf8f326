"""Options: numbers and settings that compiled code reads anew in every run.

Comes in: a dict of options and a key. In eager code these functions return plain values. While a
function is captured they return tensors that stand for the numbers, and note the settings that
decide which operations there are. Called by optimizers, learning rate schedules and gradient
scalers.
"""

from __future__ import annotations

from numbers import Real
from typing import Any

from ...core.modes import STATE, capturing
from ...core.tensor import Tensor
from .capture import Capture
from .slots import Number


def innermost_capture() -> Capture | None:
    """The capture that records what this thread does, if there is one."""
    if not capturing():
        return None
    return next((tape for tape in reversed(STATE.tapes) if isinstance(tape, Capture)), None)


def runtime_number(holder: Any, key: Any, index: int | None = None) -> Any:
    """`holder[key]`, or `holder[key][index]`: a number that compiled code reads anew in every run.

    In eager code it is the plain number. While a function is captured it is a 0-d float64 tensor,
    so it must enter the computation by arithmetic; an `if` that depends on it joins the signature.
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
    """The truth of `holder[key]`, which decides what is computed: it joins the signature."""
    truth = bool(holder[key])
    capture = innermost_capture()
    if capture is not None:
        capture.decide(Number(holder, key, None), bool)
    return truth


def given(holder: Any, key: Any, index: int | None = None) -> bool:
    """Whether `holder[key]`, or an element of it, is not None: that joins the signature."""
    capture = innermost_capture()
    if capture is not None:
        capture.decide(Number(holder, key, index), _is_given)
    return _is_given(holder[key] if index is None else holder[key][index])


def _kind(value: Any) -> Any:
    """What must stay of a number: that it is one. Anything else must stay what it is."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return id(value) if isinstance(value, Tensor) else value
    return Real


def _is_given(value: Any) -> bool:
    return value is not None


def _itself(value: Any) -> Any:
    return value


def setting(holder: Any, key: Any, index: int | None = None) -> Any:
    """`holder[key]`, or an element of it, as it is: a name or a count that joins the signature."""
    value = holder[key] if index is None else holder[key][index]
    capture = innermost_capture()
    if capture is not None:
        capture.decide(Number(holder, key, index), _itself)
    return value


def happens_once() -> None:
    """Say that Python keeps a tensor made here: a replay would not, so this is not repeated."""
    capture = innermost_capture()
    if capture is not None:
        capture.once = True


def as_known_code(method: Any, *args: Any) -> None:
    """Call a method of the library; all that it can call counts as having run.

    Nobody need watch what does: that would take longer than all else in a recording.
    """
    capture = innermost_capture()
    if capture is None:
        method(*args)
        return
    if capture.observer is not None:
        capture.unobserved(capture.observer.know, type(method.__self__), method.__func__)
    capture.unobserved(method, *args)
