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
#: the threads that have paused it, once for each time
_pausing: list[int] = []
_threshold = (0, 0, 0)


@contextmanager
def gc_paused() -> Iterator[None]:
    """Without collections of cycles, until the last thread that wants this has left.

    Passes make hundreds of thousands of objects and no cycle: without collections the first calls
    of a small GPT take 0.92 s instead of 0.98 s. And a collection runs finalizers and callbacks
    that have nothing to do with the function which is being recorded.
    """
    global _threshold
    thread = threading.get_ident()
    with _lock:
        if not _pausing:
            _threshold = gc.get_threshold()  # gc.disable() would be seen by a function that asks
            gc.set_threshold(0)
        _pausing.append(thread)
    try:
        yield
    finally:
        with _lock:
            _pausing.remove(thread)
            _resume()


def _resume() -> None:
    """Unless some thread still pauses it, or somebody has set another threshold meanwhile."""
    if not _pausing and gc.get_threshold()[0] == 0:
        gc.set_threshold(*_threshold)


def _in_child() -> None:
    """After a fork: only this thread is still there."""
    if _pausing:
        _pausing[:] = [thread for thread in _pausing if thread == threading.get_ident()]
        _resume()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
