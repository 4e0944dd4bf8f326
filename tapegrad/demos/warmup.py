"""`tapegrad warmup`: compile kernels into the cache on disk in advance.

Comes in: nothing, for the kernels of common layers, losses and optimizers (`common_forms.py`), or
a script and its arguments, for the kernels that this script needs. Goes out: a report on stdout,
and the exit status. The script runs in this process as `__main__`. Called by `cli.py`.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import runpy
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .. import manual_seed
from ..insight.installation import why_no_replay
from ..replay.cpu import cache, jit, progress
from .common_forms import GROUPS


def run(script: Path | None, arguments: Sequence[str], seconds: int | None) -> int:
    """Fill the cache; returns the exit status."""
    reason = why_no_replay() or cache.problem()
    if reason is not None:
        print(f"tapegrad warmup: {reason}", file=sys.stderr)
        return 1
    began = time.perf_counter()
    before = jit.counts.compiled
    status = _common_forms() if script is None else _script(script, arguments, seconds)
    _report(jit.counts.compiled - before, time.perf_counter() - began)
    return status


def _report(compiled: int, seconds: float) -> None:
    if compiled:
        print(f"compiled {_kernels(compiled)} in {seconds:.1f} s")
    else:
        print(f"all kernels were there already: compiled none, in {seconds:.1f} s")
    folder, sizes = cache.folder(), {"k": [0], "p": [0]}
    assert folder is not None
    for entry in os.scandir(folder):
        if cache.OWN.fullmatch(entry.name) and entry.name[0] in sizes:
            with contextlib.suppress(FileNotFoundError):  # another process has replaced it
                sizes[entry.name[0]].append(entry.stat().st_size)
    kernels, programs = (len(found) - 1 for found in sizes.values())
    total = sum(map(sum, sizes.values())) / 1e6
    print(f"cache: {folder} ({kernels} kernels, {programs} programs, {total:.1f} MB)")


def _kernels(count: int) -> str:
    return f"{count} new kernel{'' if count == 1 else 's'}"


# -- common forms --------------------------------------------------------------------------------


def _common_forms() -> int:
    """Run small steps of common models, group by group."""
    before, progress.is_quiet = progress.is_quiet, True
    try:
        for name, steps in GROUPS.items():
            began, compiled = time.perf_counter(), jit.counts.compiled
            manual_seed(0)
            steps()
            new = jit.counts.compiled - compiled
            print(
                f"{name:<24} {new:5} new kernels {time.perf_counter() - began:6.1f} s", flush=True
            )
    finally:
        progress.is_quiet = before
    return 0


# -- a script ------------------------------------------------------------------------------------


class _Deadline:
    """Interrupts the main thread, as Ctrl-C would, after some seconds.

    A process that a shell started in the background ignores interrupts, except inside this context.
    """

    def __init__(self, seconds: int | None) -> None:
        self.has_come = False
        self._handler: Any = None
        self._timer = None if seconds is None else threading.Timer(seconds, self._interrupt)

    def _interrupt(self) -> None:
        self.has_come = True
        _thread.interrupt_main()

    def __enter__(self) -> _Deadline:
        if self._timer is not None:
            self._handler = signal.signal(signal.SIGINT, signal.default_int_handler)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
            signal.signal(signal.SIGINT, self._handler)


@contextlib.contextmanager
def _as_started(script: Path, arguments: Sequence[str]) -> Iterator[None]:
    """Set `sys.argv` and `sys.path` as `python script arguments` would."""
    argv, path = sys.argv, sys.path[:]
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, path


def _script(script: Path, arguments: Sequence[str], seconds: int | None) -> int:
    """Run a script to its end, or until some seconds are over; returns its exit status."""
    try:
        with _Deadline(seconds) as deadline, _as_started(script, arguments):
            runpy.run_path(str(script), run_name="__main__")
    except KeyboardInterrupt:
        if not deadline.has_come:
            raise
        jit.finish()  # kernels still being compiled are stored, and counted
        print(f"stopped {script} after {seconds} s")
    except SystemExit as ended:
        if ended.code not in (None, 0):
            return _failed(script, ended.code)
    except Exception as error:
        _show(error, script)
        return _failed(script, 1)
    return 0


def _failed(script: Path, code: object) -> int:
    status = code if isinstance(code, int) else 1
    if not isinstance(code, int):
        print(code, file=sys.stderr)  # as Python does with sys.exit("a message")
    print(
        f"tapegrad warmup: {script} ended with status {status}; the kernels so far are kept",
        file=sys.stderr,
    )
    return status


def _show(error: Exception, script: Path) -> None:
    """The traceback of an error of the script, from its own first line on."""
    found = error.__traceback__
    while found is not None and found.tb_frame.f_code.co_filename != str(script):
        found = found.tb_next
    shown = error.with_traceback(found or error.__traceback__)
    traceback.print_exception(shown, file=sys.stderr)
