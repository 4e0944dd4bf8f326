"""Errors that a device finds asynchronously, raised at the next synchronization.

Comes in: checks, which wait for a device and return the error found there. Goes out: that error, at
the next call of `settle`: wherever values of a device are read or waited for. Programs for a GPU
register here (`replay/cuda/executable.py`).
"""

from __future__ import annotations

from typing import Protocol


class DeferredCheck(Protocol):
    """A check whose outcome is not known yet."""

    def settled(self) -> Exception | None:
        """Wait for the outcome: the error that was found, or None."""


#: checks whose outcome is not known yet
_unsettled: list[DeferredCheck] = []


def defer(check: DeferredCheck) -> None:
    """Queue a check for the next `settle`; a check that is queued already is not added again."""
    if check not in _unsettled:
        _unsettled.append(check)


def settle() -> None:
    """Wait for all deferred checks, and raise the first error."""
    errors = []
    while _unsettled:
        error = _unsettled.pop(0).settled()
        if error is not None:
            errors.append(error)
    if errors:
        raise errors[0]
