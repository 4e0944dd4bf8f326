"""The watch: a thread in each rank that ends the job when an operation waits for nothing.

Comes in: what runs in each thread (`running`, which `process_group.py` fills), messages of other
ranks, and Ctrl-C. Goes out: `Job.abort` with the rank, the operation and the line, if another rank
has left, if the timeout is over, or after Ctrl-C. Ranks that wait long tell the others where, so
that a timeout names the lines of all of them. Started by `job.py`.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..core import source

#: seconds an operation takes before the watch looks for ranks that have left
PATIENCE = 1.0
#: seconds between two looks at what runs
INTERVAL = 0.25
#: seconds after Ctrl-C until a rank that waits for others ends the job
GRACE = 2.0
#: tags of messages: a rank leaves; a rank waits in an operation
LEAVING, WAITING = 1, 2


class Watch:
    """A thread that notices operations which will not end."""

    def __init__(self, job: Any) -> None:
        self.job = job
        #: by thread: what runs there, where it was called, when it began, and for whom it waits
        self.running: dict[int, tuple[str, Any, float, Any]] = {}
        self._ended = threading.Event()
        self._interrupted = 0.0
        self._left: set[int] = set()
        #: by rank: what it said last of where it waits, and when
        self._waits: dict[int, tuple[str, float]] = {}
        #: when the operations began of which the others know that this rank waits in them
        self._told: set[float] = set()
        self._sent: list[Any] = []
        self._wakeup = -1

    def start(self) -> None:
        self._listen()
        threading.Thread(target=self._run, name="tapegrad-watch", daemon=True).start()

    def stop(self) -> None:
        self._ended.set()

    @contextmanager
    def during(self, what: str, location: Any, ranks: Any) -> Iterator[None]:
        """Inside, this thread waits for `ranks` in the operation `what`."""
        thread = threading.get_ident()
        before = self.running.get(thread)
        self.running[thread] = (what, location, time.monotonic(), ranks)
        try:
            yield
        finally:
            if before is None:
                self.running.pop(thread, None)
            else:
                self.running[thread] = before

    def _listen(self) -> None:
        """Hear of Ctrl-C while the main thread is inside of MPI, where Python does not run."""
        if threading.current_thread() is not threading.main_thread():
            return
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)
        before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        if before != -1:  # somebody else listens there
            signal.set_wakeup_fd(before)
            os.close(reading)
            os.close(writing)
            return
        self._wakeup = reading

    def _run(self) -> None:
        while not self._ended.wait(INTERVAL):
            now = time.monotonic()
            self._hear(now)
            for what, location, began, ranks in list(self.running.values()):
                self._look(now, what, location, began, ranks)

    def _hear(self, now: float) -> None:
        if self._wakeup < 0:
            return
        try:
            if signal.SIGINT in os.read(self._wakeup, 64):
                self._interrupted = now
        except BlockingIOError:
            pass

    def _look(self, now: float, what: str, location: Any, began: float, ranks: Any) -> None:
        waited = now - began
        if waited < min(PATIENCE, self.job.timeout / 2):
            return
        at = f"{what} at {source.describe(location)}"
        if self._interrupted > began and now - self._interrupted > GRACE:
            self.job.abort(f"interrupted while it waited in {at}", 130)
        self._receive()
        gone = sorted(self._left.intersection(ranks))
        if gone:
            self.job.abort(f"{at} waits for rank {gone[0]}, which has ended its program")
        if waited > self.job.timeout / 2 and began not in self._told:
            self._told = {began, *(b for _, _, b, _ in self.running.values() if b in self._told)}
            self._tell(at)
        if waited > self.job.timeout:
            others = [r for r in ranks if r != self.job.rank]
            self.job.abort(f"{at} did not end within {self.job.timeout:g} s; {self._where(others)}")

    def _receive(self) -> None:
        """Take what other ranks say of themselves."""
        control, status = self.job.control, self.job.mpi.Status()
        while control.Iprobe(status=status):
            said = bytearray(status.Get_count(self.job.mpi.BYTE))
            control.Recv(said, status.source, status.tag)
            if status.tag == LEAVING:
                self._left.add(status.source)
            else:
                self._waits[status.source] = (json.loads(said), time.monotonic())

    def _tell(self, at: str) -> None:
        """Tell all others that this rank waits."""
        said = json.dumps(at[:2000]).encode()
        control = self.job.control
        others = [r for r in range(self.job.size) if r != self.job.rank]
        # the memory of a message must stay until it is sent
        self._sent = [(control.Isend(said, r, WAITING), said) for r in others]

    def _where(self, others: list[int]) -> str:
        """Where other ranks wait, as far as they have said so lately."""
        since = time.monotonic() - self.job.timeout
        lines = []
        for rank in others[:8]:
            said, when = self._waits.get(rank, ("", 0.0))
            waits = f"waits in {said}" if when > since else "waits in no collective"
            lines.append(f"\n  rank {rank} {waits}")
        return f"the other ranks:{''.join(lines)}" if lines else "it waits for no other rank"
