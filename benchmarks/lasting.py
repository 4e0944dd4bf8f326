"""Processes that run one job after another, one process for each library, stopped between jobs.

The speed of a shared machine may change from second to second. So cells are measured in turn, each
in every library before the next one; starting a process for each would take longer than the
measurement. Waiting threads of a library may spin and slow the others, so its process is stopped
(SIGSTOP) until its next job.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from typing import IO, Any

#: most seconds for an answer
PATIENCE = 1200


class Child:
    """A process of `grow_child.py`, stopped after each job."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.errors: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115 - `end` closes it
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.grow_child"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )

    def answer(self, job: dict[str, Any]) -> Any:
        """The answer to a job; raises `ChildFailed` with the reason if the process fails."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._signal("SIGCONT")
        try:
            print(json.dumps(job), file=self.process.stdin, flush=True)
            with selectors.DefaultSelector() as selector:
                selector.register(self.process.stdout, selectors.EVENT_READ)
                if not selector.select(PATIENCE):
                    raise ChildFailed(f"took more than {PATIENCE} s")
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise ChildFailed(self._last_words())
        self._signal("SIGSTOP")
        return json.loads(line)

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.errors.close()

    def _signal(self, name: str) -> None:
        if hasattr(signal, name):  # not on Windows
            self.process.send_signal(getattr(signal, name))

    def _last_words(self) -> str:
        status = self.process.wait()
        self.errors.seek(0)
        return (self.errors.read().strip().splitlines() or [f"exit status {status}"])[-1]


class ChildFailed(Exception):
    """A process could not do its job; the message says why."""


class Lasting:
    """Children by library and number of threads; they end with the `with` statement."""

    def __init__(self) -> None:
        self.children: dict[tuple[str, int], Child] = {}

    def __enter__(self) -> Lasting:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self.children.values():
            child.end()
        self.children.clear()

    def ask(self, label: str, **job: Any) -> Any:
        """The answer to a job; None, with the reason printed, if it fails."""
        key = (job.get("library", ""), job.get("threads", 0))
        if key not in self.children:
            self.children[key] = Child(environment_of(job))
        try:
            found = self.children[key].answer(job)
        except ChildFailed as failure:
            self.children.pop(key).end()
            found = {"absent": str(failure)}
        if "absent" in found:
            print(f"{label}: {found['absent']}", flush=True)
            return None
        return found


def environment_of(job: dict[str, Any]) -> dict[str, str]:
    """The environment of a job's process; libraries read their number of threads from it."""
    environment = {**os.environ, "TAPEGRAD_QUIET": "1"}
    if "threads" in job:
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        environment |= dict.fromkeys(names, str(job["threads"]))
    return environment
