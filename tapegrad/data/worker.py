"""A worker process: takes requests for batches, makes them, and sends them to the loader.

Comes in: a `WorkItem` and a socket, from `crew.py`, which starts the process. Goes out: replies
over the socket. The process ends when the loader closes its end of the socket, also if the loader's
process was killed. If the dataset blocks that, a thread ends the process after `GRACE` seconds.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import socket
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from ..core import modes
from . import collate
from .blocks import BlockWriter, PackedBatch
from .channel import Channel
from .fetch import EndOfStream, Source
from .seeds import BatchSeeds

#: seconds that a worker has to end by itself
GRACE = 5.0

# Requests are pickled tuples: (BEGIN, epoch, seed, returned blocks) and
# (MAKE, epoch, batch_index, indices, whether the batch is wanted, returned blocks).
# Replies are: (kind, epoch, batch_index, a PackedBatch, the description of an error or None).
BEGIN, MAKE = range(2)
BATCH, ERROR, END, SKIPPED = range(4)


class WorkItem(NamedTuple):
    """What a worker process gets: its source of batches, its id and its settings."""

    source: Source
    worker_id: int
    workers: int
    seed: int
    init: Callable[[int], Any] | None


class WorkerInfo:
    """The worker that a dataset runs in; see `get_worker_info`."""

    def __init__(self, id: int, num_workers: int, seed: int, dataset: Any) -> None:
        self.id = id
        self.num_workers = num_workers
        self.seed = seed
        self.dataset = dataset

    def __repr__(self) -> str:
        return f"WorkerInfo(id={self.id}, num_workers={self.num_workers}, seed={self.seed})"


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """In a worker process its id, the number of workers, its seed and dataset; else None."""
    return _info


def main(job: WorkItem, end: socket.socket) -> None:
    """Run a worker until the loader closes the connection."""
    # Ctrl-C goes to all processes; the loader handles it and then ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _forget_parent()
    _use_one_thread()
    threading.Thread(target=_leave_with_loader, args=(end.fileno(),), daemon=True).start()
    channel = Channel(end)
    try:
        _WorkerLoop(job, channel).run()
    except (EOFError, ConnectionError):
        pass  # the loader has closed the connection
    finally:
        channel.close()


def _forget_parent() -> None:
    """Reset the modes that a forked worker inherits, so that it begins like a new process."""
    modes.reset()


def _use_one_thread() -> None:
    """Run native code on one thread: the workers themselves run in parallel."""
    from ..replay.cpu.pool import set_num_threads

    set_num_threads(1)


def _leave_with_loader(end: int) -> None:
    poll = select.poll()
    poll.register(end, 0)  # nothing but the end of the connection
    poll.poll()
    time.sleep(GRACE)
    os._exit(1)


class _WorkerLoop:
    def __init__(self, job: WorkItem, channel: Channel) -> None:
        self._job = job
        self._channel = channel
        self._waiting: deque[Any] = deque()
        self._blocks = BlockWriter()
        self._epoch = 0
        self._seed = 0
        self._fetch: Any = None
        self._failure: Any = None
        collate.allocate = self._blocks.empty
        self._seeds = BatchSeeds(job.seed)
        self._initialise()

    def _initialise(self) -> None:
        global _info
        job = self._job
        _info = WorkerInfo(job.worker_id, job.workers, job.seed, job.source.dataset)
        try:
            if job.init is not None:
                job.init(job.worker_id)
        except Exception as error:
            self._failure = describe(error, job.worker_id)
        self._seeds.initialised()

    def run(self) -> None:
        while True:
            self._take_requests()
            kind, epoch, *rest = self._waiting.popleft()
            if kind == BEGIN:
                self._epoch, self._seed = epoch, rest[0]
                self._fetch = None
            elif epoch == self._epoch:
                self._make(*rest)

    def _take_requests(self) -> None:
        """Read requests that have arrived, or wait; drop those of an earlier epoch."""
        for data, _ in self._channel.receive(wait=not self._waiting):
            *request, returned = pickle.loads(data)
            self._blocks.returned(returned)
            if request[0] == BEGIN:
                self._waiting.clear()
            self._waiting.append(request)

    def _make(self, batch_index: int, indices: Any, wanted: bool) -> None:
        self._blocks.begin()
        try:
            kind, batch, error = self._result(batch_index, indices)
            if not wanted and kind == BATCH:
                kind, batch = SKIPPED, None
            try:
                packed, files = self._blocks.pack(batch)
            except Exception as failure:
                kind, error = ERROR, describe(failure, self._job.worker_id)
                packed, files = PackedBatch(pickle.dumps(None)), ()
        finally:
            self._blocks.end()
        reply = pickle.dumps((kind, self._epoch, batch_index, tuple(packed), error), 5)
        self._channel.send(reply, files)
        self._blocks.sent(packed)

    def _result(self, batch_index: int, indices: Any) -> tuple[int, Any, Any]:
        """The kind of reply, the batch, the description of an error."""
        if self._failure is not None:
            return ERROR, None, self._failure
        try:
            if self._fetch is None:
                # A stream begins: each worker gets another seed.
                self._seeds.begin(self._seed + self._job.worker_id, -1)
                self._fetch = self._job.source.fetcher()
            self._seeds.begin(self._seed, batch_index)
            return BATCH, self._fetch(indices), None
        except EndOfStream:
            return END, None, None
        except Exception as error:
            return ERROR, None, describe(error, self._job.worker_id)


def describe(error: Exception, worker: int) -> tuple[bytes | None, str]:
    """An exception for another process: its type, if that can be pickled, and its traceback."""
    name = type(error).__name__
    text = "".join(traceback.format_exception(error))
    message = f"Caught {name} in DataLoader worker process {worker}.\nOriginal {text}"
    try:
        return pickle.dumps(type(error)), message
    except Exception:
        return None, message


class _Text(str):
    """A message that KeyError shows as it is, with its line breaks."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def described(description: tuple[bytes | None, str]) -> Exception:
    """The exception that a worker has described, with the worker's traceback as its message."""
    kind, message = description
    try:
        made = pickle.loads(kind)(_Text(message)) if kind is not None else None
    except Exception:  # an unknown type, or one that takes other arguments
        made = None
    # A StopIteration would look like the end of the loader.
    if not isinstance(made, Exception) or isinstance(made, StopIteration):
        made = RuntimeError(message)
    return made
