"""The watch: a thread in each rank that ends the job when an operation waits in vain.

Comes in: the operation that each thread runs (`running`, filled by `process_group.py`), messages of
other ranks, and Ctrl-C. Goes out: `Job.abort` with the rank, the operation and the line, if another
rank has left, after the timeout, or after Ctrl-C.

A rank that waits long in a collective tells its neighbours in the group which one it is. A
neighbour that called another one instead (`order.py`) ends the job with both lines. Neighbours are
enough: if members called different collectives, then so did two neighbours. After half of the
timeout it tells all ranks, so that a timeout names the lines of all of them. Started by `job.py`.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from ..core import source
from ..replay.use.agreement import SILENT
from . import checks
from .order import Order

#: seconds that an operation may take before the watch examines it
PATIENCE = 1.0
#: seconds between two looks at the running operations
INTERVAL = 0.25
#: seconds after Ctrl-C until a rank that waits for others ends the job
GRACE = 2.0
#: tags of messages: a rank leaves; a rank waits in an operation
LEAVING, WAITING = 1, 2


class Operation(NamedTuple):
    """What a thread runs: description, location, time of its start, ranks that it waits for."""

    what: str
    location: Any
    began: float
    ranks: Any
    #: of a collective: the order of its group, and its number there
    order: Order | None = None
    number: int = 0
    #: whether the thread that called it waits for it before it calls anything else
    is_blocking: bool = False
    #: the compiled function that it is part of, and the number of the call
    inside: tuple[str, int] | None = None


class Notice(NamedTuple):
    """What a rank tells others about an operation in which it waits."""

    #: the description with its line, the description alone, and the line alone
    text: str
    what: str
    line: str
    #: of a collective: the key of its order, and its number there; else an empty key
    key: str
    number: int
    is_blocking: bool
    #: by key of an order: how many collectives the rank has called
    counts: dict[str, int]
    #: the compiled function that it is part of, and the number of the call
    inside: tuple[str, int] | None


class Watch:
    """A thread that detects operations that will not end."""

    def __init__(self, job: Any) -> None:
        self.job = job
        #: by thread: its operation, as a plain tuple of the fields of `Operation` (made faster)
        self.running: dict[int, tuple[Any, ...]] = {}
        #: the orders of groups and quorums, by key
        self.orders: dict[str, Order] = {}
        #: the thread that called the last collective, and whether several threads have called some
        self.caller: int | None = None
        self.has_several_callers = False
        self._ended = threading.Event()
        self._interrupted = 0.0
        self._left: set[int] = set()
        #: by rank: its last notice, and when it arrived
        self._waits: dict[int, tuple[Notice, float]] = {}
        #: by the start of an operation that neighbours know of: whether all ranks do
        self._told: dict[float, bool] = {}
        self._sent: list[Any] = []
        self._wakeup = -1

    def start(self) -> None:
        self._listen()
        self._thread = threading.Thread(target=self._run, name="tapegrad-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; return after its last call of MPI, or after 5 s."""
        self._ended.set()
        if self._thread is not threading.current_thread():
            self._thread.join(5.0)

    def order(self, key: str) -> Order:
        """The order of a group or quorum, whose key is the same on all members."""
        return self.orders.setdefault(key, Order(key))

    def called_by(self, thread: int) -> None:
        """Note that a collective is called by another thread than the last one was."""
        self.has_several_callers = self.caller is not None
        self.caller = thread

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
        """Receive Ctrl-C even while the main thread is inside MPI, where Python does not run."""
        if threading.current_thread() is not threading.main_thread():
            return
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)
        before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        if before != -1:  # other code uses it
            signal.set_wakeup_fd(before)
            os.close(reading)
            os.close(writing)
            return
        self._wakeup = reading

    def _run(self) -> None:
        while not self._ended.wait(INTERVAL):
            now = time.monotonic()
            self._hear(now)
            self._receive()
            running = [Operation(*one) for one in list(self.running.values())]
            for operation in running:
                self._look(now, operation)
            for rank, (notice, _) in self._waits.items():
                self._compare(rank, notice, running)

    def _hear(self, now: float) -> None:
        if self._wakeup < 0:
            return
        try:
            if signal.SIGINT in os.read(self._wakeup, 64):
                self._interrupted = now
        except BlockingIOError:
            pass

    def _look(self, now: float, operation: Operation) -> None:
        waited, ranks, timeout = now - operation.began, operation.ranks, self.job.timeout
        if waited < min(PATIENCE, timeout / 2):
            return
        at = f"{operation.what} at {source.describe(operation.location)}"
        if self._interrupted > operation.began and now - self._interrupted > GRACE:
            self.job.abort(f"interrupted while it waited in {at}", 130)
        gone = sorted(self._left.intersection(ranks))
        if gone:
            self.job.abort(f"{at} waits for rank {gone[0]}, which has ended its program")
        known = self._told.get(operation.began)
        if known is None or (not known and waited > timeout / 2):
            latest = {one[2] for one in list(self.running.values())}
            self._told = {began: all for began, all in self._told.items() if began in latest}
            self._told[operation.began] = waited > timeout / 2
            self._tell(operation, waited > timeout / 2)
        if waited > timeout:
            others = [r for r in ranks if r != self.job.rank]
            self.job.abort(f"{at} did not end within {timeout:g} s; {self._where(others)}")

    def _compare(self, rank: int, theirs: Notice, running: list[Operation]) -> None:
        """End the job if a rank waits in a collective and this one called another instead."""
        if theirs.inside is not None:
            name, number = theirs.inside
            calls, location = SILENT.get(name, (0, None))
            if calls >= number:
                said = f"call {calls} of the compiled function {name}, without a collective"
                self._differ(rank, theirs, said, location)
        order = self.orders.get(theirs.key)
        if order is None:
            return
        called = order.called(theirs.number)
        if called is not None:
            if called[0] != theirs.what:
                self._differ(rank, theirs, *called)
            return
        # This rank has not called it yet. If the order is the same on all ranks, it will, unless it
        # waits in one that the other rank has not called yet.
        if self.has_several_callers or not theirs.is_blocking or order.count >= theirs.number:
            return
        for mine in running:
            if (
                mine.order is not None
                and mine.is_blocking
                and rank in mine.ranks
                and theirs.counts.get(mine.order.key, 0) < mine.number
            ):
                called = mine.order.called(mine.number)
                assert called is not None
                self._differ(rank, theirs, *called)

    def _differ(self, rank: int, theirs: Notice, what: str, location: Any) -> None:
        said = [(self.job.rank, what, source.describe(location)), (rank, theirs.what, theirs.line)]
        self.job.abort(checks.told(sorted(said)))

    def _receive(self) -> None:
        """Receive the messages of other ranks."""
        control, status = self.job.control, self.job.mpi.Status()
        while control.Iprobe(status=status):
            said = bytearray(status.Get_count(self.job.mpi.BYTE))
            control.Recv(said, status.source, status.tag)
            if status.tag == LEAVING:
                self._left.add(status.source)
            else:
                self._waits[status.source] = (Notice(*json.loads(said)), time.monotonic())

    def _tell(self, operation: Operation, all_ranks: bool) -> None:
        """Send a notice that this rank waits to all ranks, or to its neighbours in the group."""
        order, line = operation.order, source.describe(operation.location)[:2000]
        what = operation.what
        if order is not None:
            called = order.called(operation.number)
            what = what if called is None else called[0]
        notice = Notice(
            f"{operation.what} at {line}",
            what,
            line,
            "" if order is None else order.key,
            operation.number,
            operation.is_blocking and not self.has_several_callers,
            {key: order.count for key, order in list(self.orders.items())},
            operation.inside,
        )
        said = json.dumps(notice).encode()
        control, rank = self.job.control, self.job.rank
        others = list(range(self.job.size) if all_ranks else operation.ranks)
        if not all_ranks and rank in others:
            here = others.index(rank)
            others = [others[here - 1], others[(here + 1) % len(others)]]
        # the memory of a message must live until it is sent
        self._sent = [one for one in self._sent if not one[0].Test()]
        self._sent += [(control.Isend(said, r, WAITING), said) for r in {*others} - {rank}]

    def _where(self, others: list[int]) -> str:
        """Where other ranks wait, from their notices within the last timeout."""
        since = time.monotonic() - self.job.timeout
        lines = []
        for rank in others[:8]:
            said, when = self._waits.get(rank, (None, 0.0))
            waits = f"waits in {said.text}" if said and when > since else "waits in no collective"
            lines.append(f"\n  rank {rank} {waits}")
        return f"the other ranks:{''.join(lines)}" if lines else "it waits for no other rank"
