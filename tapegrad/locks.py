"""Locks that are free in a forked child, whoever held them in the parent.

A child has only the thread that forked. A lock that another thread held at that moment would stay
taken for ever, so every lock of the package is made here, and those are freed that the forking
thread does not hold itself. What they protect is consistent at every switch between threads.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def new() -> Any:
    """A new reentrant lock."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def _free_in_child() -> None:
    for lock in list(_locks):
        if not lock._is_owned():
            lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_in_child)
