"""Errors that a device finds after Python has gone on, raised where somebody waits for the device.

Comes in: checks, which wait for a device and return what went wrong there. Goes out: that error, at
the next call of `settle`: wherever values of a device are read or waited for. Programs for a GPU
register here (`replay/cuda/executable.py`).
"""

from __future__ import annotations

from typing import Protocol


class DeferredCheck(Protocol):
    """Something that may have gone wrong."""

    def settled(self) -> Exception | None:
        """Wait for it; what went wrong, or None."""


#: what is not known yet
_unsettled: list[DeferredCheck] = []


def defer(check: DeferredCheck) -> None:
    """Ask later whether something went wrong; once, however often it is deferred until then."""
    if check not in _unsettled:
        _unsettled.append(check)


def settle() -> None:
    """Wait for everything that was deferred, and raise the first error."""
    errors = []
    while _unsettled:
        error = _unsettled.pop(0).settled()
        if error is not None:
            errors.append(error)
    if errors:
        raise errors[0]
