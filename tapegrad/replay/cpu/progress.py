"""Progress: a line on stderr while something keeps the caller waiting.

Comes in: the name of a stage, such as compiling. A line appears if the stage takes longer than one
second, and ends with the seconds that it took. `TAPEGRAD_QUIET=1` prints nothing at all. Called by
`executable.py`, `jit.py` and `use/eager.py`.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Self

#: seconds that a caller waits before anything is printed
PATIENCE_SECONDS = 1.0

clock = time.perf_counter

#: set in all ranks of a job but the first, because they compile the same at the same time
is_quiet = False


def say(text: str) -> None:
    """Write to stderr, unless there is none or the user wants quiet."""
    if is_quiet or os.environ.get("TAPEGRAD_QUIET", "0") not in ("", "0"):
        return
    if sys.stderr is not None:
        sys.stderr.write(text)
        sys.stderr.flush()


class Progress:
    """A task that may take long, in stages."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._began = self._stage_began = clock()
        self._stage = ""
        self._said = self._over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._end()
        self._over = True  # work that goes on after an interrupt prints nothing

    def stage(self, doing: str) -> None:
        """Begin the next stage."""
        self._end()
        self._stage, self._stage_began, self._said = doing, clock(), False
        self.check()

    def check(self) -> None:
        """Print the current stage, once, if the caller has waited too long."""
        if not (self._said or self._over) and clock() - self._began > PATIENCE_SECONDS:
            self._said = True
            say(f"tapegrad: {self._what}: {self._stage} … ")

    def _end(self) -> None:
        self.check()
        if self._said and not self._over:
            say(f"{clock() - self._stage_began:.1f} s\n")
