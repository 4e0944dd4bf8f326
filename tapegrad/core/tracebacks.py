"""Tracebacks of uncaught exceptions, without the frames of tapegrad.

Comes in: an uncaught exception. Goes out: a call of the previous hook, which prints it with
tracebacks that show only the user's frames. Then the exception gets its own tracebacks back, so a
debugger still sees every frame. Operations pay nothing for this.

`install` runs when tapegrad is imported; the import takes 0.2 ms longer for it. IPython and pytest
print tracebacks without these hooks.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from opcode import opmap
from types import TracebackType
from typing import Literal

from .source import LIBRARY, stacklevel

Owner = Literal["user", "tapegrad", "standard library", "installed package"]

_STANDARD_LIBRARY = os.path.dirname(threading.__file__) + os.sep

#: programs that come with tapegrad; their frames count as the user's
_PROGRAMS = (LIBRARY + "demos" + os.sep, LIBRARY + "cli.py", LIBRARY + "__main__.py")

#: raised for wrong arguments, files, or an interruption; other exceptions out of tapegrad are its
#: own faults unless a `raise` statement raised them
_USER_ERRORS = (
    *(RuntimeError, ValueError, TypeError, IndexError, OverflowError, OSError),
    *(Warning, KeyboardInterrupt),
)


def install() -> None:
    """Shorten what `sys.excepthook` and `threading.excepthook` print."""
    setting = os.environ.get("TAPEGRAD_TRACEBACK", "")
    if setting == "full":
        return
    if setting not in ("", "short"):
        warnings.warn(
            f"TAPEGRAD_TRACEBACK is 'short' (the default) or 'full', got {setting!r}; "
            "tracebacks will be short",
            stacklevel=stacklevel(),
        )
    program_hook, thread_hook = sys.excepthook, threading.excepthook

    def show(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        _with_short_tracebacks(error, traceback, lambda short: program_hook(kind, error, short))

    def show_in_thread(args: threading.ExceptHookArgs) -> None:
        kind, error, traceback, thread = args
        _with_short_tracebacks(
            error,
            traceback,
            lambda short: thread_hook(threading.ExceptHookArgs((kind, error, short, thread))),
        )

    sys.excepthook, threading.excepthook = show, show_in_thread


def shortened(
    error: BaseException, traceback: TracebackType | None
) -> tuple[TracebackType | None, int]:
    """A traceback of `error` without the frames of tapegrad, and how many were left out.

    A fault of tapegrad, or a traceback without a frame of the user, keeps all frames.
    """
    entries = list(_entries(traceback))
    owners = [_owner(entry) for entry in entries]
    if "user" not in owners or _is_fault(error, entries, owners):
        return traceback, 0
    shown = None
    hidden = 0
    hides = False
    for entry, owner in zip(reversed(entries), reversed(owners), strict=True):
        # Hide frames of `contextlib`, `functools` and `importlib` on the way into tapegrad too.
        hides = owner == "tapegrad" or (hides and owner == "standard library")
        if hides:
            hidden += 1
        else:
            shown = TracebackType(shown, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return (shown, hidden) if hidden else (traceback, 0)


def _with_short_tracebacks(
    error: BaseException | None,
    traceback: TracebackType | None,
    show: Callable[[TracebackType | None], object],
) -> None:
    """Call `show` while the exceptions that it prints have short tracebacks."""
    if error is None or isinstance(error, SystemExit):  # a thread that ends prints nothing
        show(traceback)
        return
    if traceback is None:
        traceback = error.__traceback__
    originals = [(one, one.__traceback__) for one in _printed_with(error)]
    total = 0
    try:
        for one, original in originals:
            short, hidden = shortened(one, traceback if one is error else original)
            total += hidden
            # Python's own hook prints `__traceback__`, not what it is given. An assignment would
            # fail for a frozen dataclass.
            BaseException.with_traceback(one, short)
        show(error.__traceback__)
    finally:
        for one, original in originals:
            BaseException.with_traceback(one, original)
    if total and sys.stderr is not None:
        frames = "1 frame" if total == 1 else f"{total} frames"
        print(
            f"({frames} inside tapegrad not shown; to see all, set TAPEGRAD_TRACEBACK=full)",
            file=sys.stderr,
        )


def _printed_with(error: BaseException) -> list[BaseException]:
    """The exceptions printed with one: itself, its causes and contexts, and parts of groups."""
    found: dict[int, BaseException] = {}
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in found:
            continue
        found[id(one)] = one
        waiting.append(one.__cause__)
        if not one.__suppress_context__:
            waiting.append(one.__context__)
        if isinstance(one, BaseExceptionGroup):
            waiting.extend(one.exceptions)
    return list(found.values())


def _entries(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _owner(entry: TracebackType) -> Owner:
    """Whose code a frame runs."""
    name = entry.tb_frame.f_code.co_filename
    if name.startswith(LIBRARY):
        return "user" if name.startswith(_PROGRAMS) else "tapegrad"
    if "site-packages" in name or "dist-packages" in name:
        return "installed package"
    if name.startswith((_STANDARD_LIBRARY, "<frozen ")):
        return "standard library"
    return "user"


def _is_fault(
    error: BaseException, entries: Sequence[TracebackType], owners: Sequence[Owner]
) -> bool:
    """Whether the error is a fault of tapegrad itself, so that its frames are needed."""
    # Errors raised in a package that tapegrad calls count as its own. A user's frame exists here.
    last = max(i for i, owner in enumerate(owners) if owner in ("user", "tapegrad"))
    if owners[last] == "user" or isinstance(error, _USER_ERRORS):
        return False
    if type(error).__module__.startswith("tapegrad."):
        return False
    if last + 1 < len(entries) or isinstance(error, AssertionError):
        return True
    code = entries[last].tb_frame.f_code
    if code.co_name == "__getattr__" and owners[last - 1] == "tapegrad":
        return True  # tapegrad itself read a missing attribute
    return code.co_code[entries[last].tb_lasti] != opmap["RAISE_VARARGS"]
