"""Python's garbage collector, paused while functions are recorded and programs compiled.

`gc_paused` is a context. Entered by `use/compiled.py` around recordings, and by `executable.py`
around passes and emission.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ...core import locks

_lock = locks.new()
#: the threads that have paused it, as often as each did so
_pausing: list[int] = []
_threshold = (0, 0, 0)


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause the garbage collector until the last thread has left such a context.

    Passes make hundreds of thousands of objects but no cycles: without collections the first calls
    of a small GPT take 0.92 s instead of 0.98 s. A collection would also run finalizers and
    callbacks that have nothing to do with the function which is being recorded.
    """
    global _threshold
    thread = threading.get_ident()
    with _lock:
        if not _pausing:
            _threshold = gc.get_threshold()  # a recorded function could notice gc.disable()
            gc.set_threshold(0)
        _pausing.append(thread)
    try:
        yield
    finally:
        with _lock:
            _pausing.remove(thread)
            _resume()


def _resume() -> None:
    """Restore the threshold, unless a thread still pauses, or other code has set another one."""
    if not _pausing and gc.get_threshold()[0] == 0:
        gc.set_threshold(*_threshold)


def _in_child() -> None:
    """After a fork: only this thread is still there."""
    if _pausing:
        _pausing[:] = [thread for thread in _pausing if thread == threading.get_ident()]
        _resume()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
