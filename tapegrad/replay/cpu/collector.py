"""Python's garbage collector, paused while functions are recorded and programs compiled.

`gc_paused` is a context. Entered by `use/compiled.py` around recordings, and by `executable.py`
around passes and emission.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Iterator[None]:
    """Without collections of cycles.

    Passes make hundreds of thousands of objects and no cycle: without collections the first calls
    of a small GPT take 0.92 s instead of 0.98 s. And a collection runs finalizers and callbacks
    that have nothing to do with the function which is being recorded.
    """
    threshold = gc.get_threshold()  # gc.disable() would be seen by a function that asks
    try:
        gc.set_threshold(0)
        yield
    finally:
        if threshold[0]:  # else another thread has paused it, and resumes it
            gc.set_threshold(*threshold)
