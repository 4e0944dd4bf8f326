"""Locks that are free in a forked child even if another thread of the parent held them.

A forked child has only the thread that forked. A lock that another thread held at that moment would
stay locked for ever. So every lock of the package is made here, by `new`, and after a fork the
child frees those that its thread does not hold. The data that they protect is consistent at every
switch between threads. Called by every module that has a lock.
"""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from typing import Any

#: dead references are removed each time so many locks have been made
PRUNED_EVERY = 1024

# A `WeakSet` would run Python code wherever a lock is dropped, even inside a function that is being
# recorded.
_locks: dict[int, weakref.ref[Any]] = {}
_counter = itertools.count(1)


def new() -> Any:
    """A new reentrant lock."""
    lock = threading.RLock()
    count = next(_counter)
    _locks[count] = weakref.ref(lock)
    if count % PRUNED_EVERY == 0:
        for old, reference in list(_locks.items()):
            if reference() is None:
                _locks.pop(old, None)
    return lock


def _free_in_child() -> None:
    for reference in list(_locks.values()):
        lock = reference()
        if lock is not None and not lock._is_owned():
            lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_in_child)
