"""The worker processes of one iterator: started, asked for batches, supervised, and stopped.

Comes in: a `Source` and the number of workers. `begin` and `request` send requests; `wait` returns
what arrives, and raises an error that names the worker if one has died. `stop` leaves nothing
behind; it also runs when the crew is garbage and when the program ends. Called by `iterate.py`.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from . import channel as channels
from .blocks import BlockReader, PackedBatch
from .channel import Channel
from .fetch import Source
from .worker import BEGIN, GRACE, MAKE, WorkItem, main

_HINTS = {
    signal.SIGKILL: "; the system does this when memory runs out",
    signal.SIGBUS: "; the system does this when there is no memory left for shared blocks",
    signal.SIGSEGV: "; native code that the dataset calls has failed",
}


class Reply(NamedTuple):
    """What a worker answered for a batch."""

    kind: int
    epoch: int
    batch_index: int
    packed: PackedBatch
    error: Any
    worker: int


class _WorkerHandle:
    """One worker, as the loader sees it."""

    def __init__(self, process: Any, channel: Channel) -> None:
        self.process = process
        self.channel = channel
        self.blocks = BlockReader()


class Crew:
    """Worker processes and the connections to them."""

    def __init__(
        self,
        source: Source,
        count: int,
        seed: int,
        context: Any,
        init: Callable[[int], Any] | None,
    ) -> None:
        if not channels.available():
            raise RuntimeError(
                "worker processes of a DataLoader need Unix sockets, which this system does not "
                "have; use num_workers=0"
            )
        from ..replay.cpu import pool  # noqa: F401  # once here instead of in every forked worker

        self._workers: list[_WorkerHandle] = []
        self._poll = select.poll()
        self._by_file: dict[int, int] = {}
        self._pid = os.getpid()
        self.stop = weakref.finalize(self, _stop, self._pid, self._workers)
        try:
            for worker_id in range(count):
                self._start(WorkItem(source, worker_id, count, seed + worker_id, init), context)
        except BaseException:
            self.stop()
            raise

    def _start(self, job: WorkItem, context: Any) -> None:
        channel, theirs = channels.pair()
        process = context.Process(
            target=main, args=(job, theirs), daemon=True, name=f"tapegrad-data-{job.worker_id}"
        )
        try:
            with warnings.catch_warnings():
                # Python 3.12 warns about forks while threads run. Those of native code allow it:
                # see `replay/cpu/pool.py`.
                warnings.filterwarnings("ignore", ".*multi-threaded.*", DeprecationWarning)
                with _outside_of_job():
                    process.start()
        except BaseException:
            channel.close()
            raise
        finally:
            theirs.close()
        self._workers.append(_WorkerHandle(process, channel))
        for file in (channel.socket.fileno(), process.sentinel):
            self._by_file[file] = job.worker_id
            self._poll.register(file, select.POLLIN)

    @property
    def is_stopped(self) -> bool:
        """Whether there are no workers; a fork of this process has none either."""
        return not self.stop.alive or os.getpid() != self._pid

    def begin(self, epoch: int, seed: int) -> None:
        """Tell all workers that an epoch begins; requests of other epochs are cancelled."""
        for worker_id in range(len(self._workers)):
            self._post(worker_id, BEGIN, epoch, seed)

    def request(
        self, worker_id: int, epoch: int, batch_index: int, indices: Any, wanted: bool
    ) -> None:
        """Ask a worker for a batch; if it is not wanted, the worker only skips it."""
        self._post(worker_id, MAKE, epoch, batch_index, indices, wanted)

    def _post(self, worker_id: int, *request: Any) -> None:
        worker = self._workers[worker_id]
        worker.channel.post(pickle.dumps((*request, worker.blocks.take_returned()), 5))
        self._poll_for_writing(worker)

    def _poll_for_writing(self, worker: _WorkerHandle) -> None:
        """Poll a connection for writing too, while it has unsent bytes."""
        events = select.POLLIN | (select.POLLOUT if worker.channel.has_unsent else 0)
        self._poll.modify(worker.channel.socket.fileno(), events)

    def unpack(self, reply: Reply) -> Any:
        return self._workers[reply.worker].blocks.unpack(reply.packed)

    def discard(self, reply: Reply) -> None:
        self._workers[reply.worker].blocks.discard(reply.packed)

    def wait(self, seconds: float | None) -> list[Reply]:
        """The replies that arrive next; an empty list after so many seconds."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            events = self._poll.poll(None if left is None else left * 1000)
            replies: list[Reply] = []
            ended: list[int] = []
            for file, event in events:
                worker_id = self._by_file[file]
                worker = self._workers[worker_id]
                if event & select.POLLOUT:
                    worker.channel.flush()
                    self._poll_for_writing(worker)
                if event & ~select.POLLOUT:
                    replies += self._received(worker_id, ended)
                if file == worker.process.sentinel and worker_id not in ended:
                    ended.append(worker_id)
            if ended and not replies:
                self._fail(ended[0])
            if replies or not events:
                return replies

    def _received(self, worker_id: int, ended: list[int]) -> list[Reply]:
        worker = self._workers[worker_id]
        try:
            messages = worker.channel.receive(wait=False)
        except EOFError:
            ended.append(worker_id)
            return []
        replies = []
        for data, files in messages:
            kind, epoch, batch_index, packed, error = pickle.loads(data)
            reply = Reply(kind, epoch, batch_index, PackedBatch(*packed), error, worker_id)
            worker.blocks.arrived(reply.packed, files)
            for file in files:
                os.close(file)
            replies.append(reply)
        return replies

    def _fail(self, worker_id: int) -> None:
        """Raise the error for a worker that is gone."""
        process = self._workers[worker_id].process
        process.join(GRACE)
        pid, code = process.pid, process.exitcode
        which = f"DataLoader worker (pid {pid}), number {worker_id} of {len(self._workers)},"
        self.stop()
        if code is None:
            raise RuntimeError(f"{which} has closed its connection without ending")
        if code >= 0:
            raise RuntimeError(
                f"{which} exited unexpectedly with exit code {code}; "
                "what it had to say is in its error output"
            )
        raise RuntimeError(f"{which} is killed by signal: {_signal_name(-code)}")


#: prefixes of the variables by which MPI tells a process which rank it is
_OF_JOB = ("PMI", "HYDI_", "MPI_", "MPIR_", "OMPI_", "PRTE_")


@contextmanager
def _outside_of_job() -> Iterator[None]:
    """Inside, the environment is that of a process outside of any job.

    Otherwise a worker of a rank that imports mpi4py would take itself for that rank.
    """
    removed = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith(_OF_JOB)}
    try:
        yield
    finally:
        os.environ.update(removed)


def _signal_name(number: int) -> str:
    try:
        found = signal.Signals(number)
    except ValueError:
        return str(number)
    return f"{found.name}{_HINTS.get(found, '')}"


def _stop(pid: int, workers: list[_WorkerHandle]) -> None:
    """End the workers: first by closing their connections, then by signals."""
    if os.getpid() != pid:
        return  # a fork of the process that they belong to
    for worker in workers:
        worker.channel.end()
    processes = [worker.process for worker in workers]
    for end in (None, "terminate", "kill"):
        for process in processes:
            if end is not None and process.is_alive():
                getattr(process, end)()
        deadline = time.monotonic() + GRACE
        for process in processes:
            process.join(max(0.0, deadline - time.monotonic()))
    for process in processes:
        if process.exitcode is not None:
            process.close()
