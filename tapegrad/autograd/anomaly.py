"""Anomaly detection: raise at the operation that makes the first NaN, and name the user's line.

The contexts here set a bit of the thread's mode. `core/primitive.py` reads it and checks after each
kernel, `engine.py` after each rule. Called by users, as `torch.autograd.detect_anomaly`.
"""

from __future__ import annotations

from typing import Any

from ..core.modes import ANOMALY, STATE


class set_detect_anomaly:
    """Turn the NaN checks on or off: as a call, at once; as a context manager, for its block."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self._before = STATE.mode & ANOMALY
        STATE.mode = (STATE.mode & ~ANOMALY) | (ANOMALY if mode and check_nan else 0)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exc: object) -> None:
        STATE.mode = (STATE.mode & ~ANOMALY) | self._before


class detect_anomaly(set_detect_anomaly):
    """Inside, the first NaN of a forward or backward pass raises an error that names its line.

    >>> import tapegrad
    >>> x = tapegrad.tensor(-1.0, requires_grad=True)
    >>> with tapegrad.autograd.detect_anomaly():
    ...     x.sqrt()
    Traceback (most recent call last):
    RuntimeError: sqrt made the first NaN of the forward pass, at <doctest ...
    """

    def __init__(self, check_nan: bool = True) -> None:
        super().__init__(True, check_nan)


def is_anomaly_enabled() -> bool:
    """Whether this thread checks for NaN."""
    return bool(STATE.mode & ANOMALY)
