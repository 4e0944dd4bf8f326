"""The number of threads of compiled programs, as users set and read it.

The thread pool belongs to the whole process, and a replay takes as many threads as it finds there.
So a compiled function may neither set nor read the number: a replay would do neither.
"""

from __future__ import annotations

from ..cpu.pool import pool
from ..cpu.pool import set_num_threads as _set_num_threads
from ..trace.options import innermost_capture


def set_num_threads(threads: int) -> None:
    """Use this many threads for compiled programs."""
    _refuse("set_num_threads()")
    _set_num_threads(threads)


def get_num_threads() -> int:
    """How many threads compiled programs use."""
    _refuse("get_num_threads()")
    return pool.threads


def _refuse(called: str) -> None:
    capture = innermost_capture()
    if capture is not None:
        capture.refuse(
            f"it calls {called}, which does not happen when a compiled function is replayed; "
            "call it outside"
        )
