"""Ends of a rank: what ends one rank with an error ends the whole job.

`end_together` replaces the hooks that Python calls at the end of a program: for exceptions on any
thread, `sys.exit` with an error, and `os._exit`. They act in the rank's own process alone, never in
processes that it has forked. Called by `job.py`.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from types import TracebackType
from typing import Any, NoReturn

from ..core import source


def end_together(job: Any) -> None:
    """What ends this rank with an error ends all."""
    previous, previous_thread = sys.excepthook, threading.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        previous(kind, error, trace)
        status = 130 if issubclass(kind, KeyboardInterrupt) else 1
        if job.is_own_process():
            job.abort(described(kind, error, trace), status)

    def thread_hook(args: Any) -> None:
        previous_thread(args)
        if args.exc_type is not SystemExit and job.is_own_process():
            job.abort(described(args.exc_type, args.exc_value, args.exc_traceback))

    sys.excepthook, threading.excepthook = hook, thread_hook
    _end_with_exit(job)
    _end_at_once(job)


def _end_with_exit(job: Any) -> None:
    """`sys.exit(3)` unwinds the program as ever, and then ends the job."""

    class Exit(SystemExit):
        """A SystemExit that notices when the interpreter asks it for the status of the process."""

        def __init__(self, status: Any, location: Any) -> None:
            super().__init__(status)
            self._status, self._location = status, location

        @property
        def code(self) -> Any:
            # The interpreter asks when the program has ended: no function has called this.
            if sys._getframe().f_back is None and job.is_own_process() and not job.has_left:
                self._end()
            return self._status

        @code.setter
        def code(self, status: Any) -> None:
            self._status = status

        def _end(self) -> None:
            status = self._status
            if status is None or status == 0:
                return
            if not isinstance(status, int):
                print(status, file=sys.stderr)
            shown = status & 0xFF if isinstance(status, int) else 1
            at = source.describe(self._location)
            job.abort(f"sys.exit({status!r}) at {at}", shown or 1)

    Exit.__name__ = Exit.__qualname__ = "SystemExit"

    def exit(status: Any = None, /) -> NoReturn:
        if isinstance(status, tuple) and len(status) == 1:
            status = status[0]
        raise Exit(status, source.outside(sys._getframe(1)))

    sys.exit = exit


def _end_at_once(job: Any) -> None:
    """`os._exit` leaves word for the launcher; MPI then ends the other ranks."""
    plainly = os._exit

    def exit_at_once(status: int) -> NoReturn:
        if job.is_own_process() and not job.has_left:
            at = source.describe(source.outside(sys._getframe(1)))
            state = "failed" if status else "left"
            job.report(state, f"os._exit({status}) at {at}", status=status)
        plainly(status)

    os._exit = exit_at_once


def described(
    kind: type[BaseException], error: BaseException | None, trace: TracebackType | None
) -> str:
    """An exception in one sentence, with the innermost line that is not tapegrad's own."""
    frames = traceback.extract_tb(trace) if trace is not None else []
    library = (source.LIBRARY, "<frozen ")
    own = [f for f in frames if not f.filename.startswith(library)] or list(frames)
    at = f" at {own[-1].filename}:{own[-1].lineno}" if own else ""
    return f"{kind.__name__}: {error}{at}"
