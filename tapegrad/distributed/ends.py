"""Ends of a rank: an error that ends one rank ends the whole job.

`end_together` replaces the hooks that Python calls at the end of a program: for exceptions on any
thread, for `sys.exit` or another SystemExit with an error, and `os._exit`. They act only in the
rank's own process, never in processes forked from it. Called by `job.py`.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
import traceback
from types import TracebackType
from typing import Any, NoReturn

from ..core import source


def end_together(job: Any) -> None:
    """Install hooks by which an error that ends this rank ends the whole job."""
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
    """A SystemExit with an error unwinds the program as usual, and then ends the job.

    The interpreter reads the `code` of an uncaught SystemExit, so that attribute becomes a property
    that ends the job. Attributes of a built-in class can be changed only through its dict. What
    sys.exit raises may reach the interpreter as a bare number, so sys.exit is replaced by a
    function that raises an object.
    """
    plain = SystemExit.__dict__["code"]

    def code(self: SystemExit) -> Any:
        status = plain.__get__(self)
        # Without a calling frame, the interpreter itself reads it: the program has ended.
        if sys._getframe().f_back is None and job.is_own_process() and not job.has_left:
            _end_with_status(job, self, status)
        return status

    attributes = gc.get_referents(SystemExit.__dict__)[0]
    attributes["code"] = property(code, plain.__set__, plain.__delete__)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(SystemExit))

    def exit(status: Any = None, /) -> NoReturn:
        raised = SystemExit(*status) if isinstance(status, tuple) else SystemExit(status)
        raised._location = source.outside(sys._getframe(1))  # type: ignore[attr-defined]
        raise raised

    sys.exit = exit


def _end_with_status(job: Any, raised: SystemExit, status: Any) -> None:
    """End the job if the program of this rank has ended with an error status."""
    if status is None or status == 0:
        return
    if not isinstance(status, int):
        print(status, file=sys.stderr)
    shown = status & 0xFF if isinstance(status, int) else 1
    if hasattr(raised, "_location"):
        what = f"sys.exit({status!r}) at {source.describe(raised._location)}"
    else:
        what = f"SystemExit({status!r}){_raised_at(raised.__traceback__ or _last_traceback())}"
    job.abort(what, shown or 1)


def _last_traceback() -> TracebackType | None:
    """The traceback made last; up to Python 3.11 an uncaught exception may have lost its own.

    It is that of the outermost frame, which is unwound last.
    """
    for generation in range(3):
        for found in reversed(gc.get_objects(generation)):
            if type(found) is TracebackType and found.tb_frame.f_back is None:
                return found
    return None


def _end_at_once(job: Any) -> None:
    """Make `os._exit` report to the launcher; MPI then ends the other ranks."""
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
    """An exception in one sentence, with the innermost line outside tapegrad."""
    return f"{kind.__name__}: {error}{_raised_at(trace)}"


def _raised_at(trace: TracebackType | None) -> str:
    """The innermost line of a traceback outside tapegrad and `exit()`."""
    frames = traceback.extract_tb(trace) if trace is not None else []
    library = (source.LIBRARY, "<frozen ")
    own = [f for f in frames if not f.filename.startswith(library)] or list(frames)
    return f" at {own[-1].filename}:{own[-1].lineno}" if own else ""
