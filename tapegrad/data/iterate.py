"""Iterators over batches: in this process, or with worker processes.

Comes in: an `Epoch`, which says which batches in which order. Goes out: batches; the epoch is told
which of them the consumer has received. With workers, `prefetch` batches of each worker are
requested in advance. Batch i of a dataset with indices always goes to worker i modulo the number of
workers. Workers with streams take turns, and a worker whose stream has ended drops out at its turn,
so the order never depends on timing. Called by `dataloader.py`.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from .collate import pinned
from .crew import Crew, Reply
from .fetch import EndOfStream, Source
from .position import Epoch, preserved
from .worker import END, ERROR, SKIPPED, described

if TYPE_CHECKING:
    from typing import Self

    from .dataloader import DataLoader


class LoaderSettings(NamedTuple):
    """The settings of a loader that its iterators need."""

    source: Source
    workers: int
    prefetch: int
    timeout: float
    context: Any
    init: Callable[[int], Any] | None
    in_order: bool
    persistent: bool
    #: the number of batches, or None if it is unknown
    length: int | None
    #: whether batches go into pinned memory
    pins: bool


class BatchIterator:
    """Base of the iterators over the batches of a loader; subclasses give `_next_data`."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._settings = loader._settings()
        self._count = _Count(self._settings)

    def _next_data(self) -> Any:
        """The next batch; raises StopIteration after the last one."""
        raise NotImplementedError(f"{type(self).__name__} needs a method _next_data")

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        batch = self._next_data()
        self._count.add()
        return pinned(batch) if self._settings.pins else batch

    def __len__(self) -> int:
        return self._count.length


class SerialIterator(BatchIterator):
    """Makes every batch on request, in this process."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        self._epoch = loader._next_epoch()
        source = self._settings.source
        self._fetch = source.fetcher()
        if source.is_stream and self._epoch.position:
            with preserved():
                self._go_forward()

    def _go_forward(self) -> None:
        """Skip the batches of a stream that were received before."""
        for _, nothing in itertools.islice(self._epoch.remaining, self._epoch.position):
            try:
                self._fetch(nothing)
            except EndOfStream:
                return

    def _next_data(self) -> Any:
        epoch = self._epoch
        try:
            batch_index, indices = next(epoch.remaining)
        except StopIteration:
            epoch.finished = True
            raise
        epoch.consumed(batch_index)
        try:
            return self._fetch(indices)
        except EndOfStream:
            epoch.finished = True
            epoch.remaining = iter(())
            raise StopIteration from None
        except StopIteration as error:  # the dataset's: it would look like the loader's end
            raise RuntimeError("the dataset has raised StopIteration") from error


class ParallelIterator(BatchIterator):
    """Lets worker processes make batches in advance."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        settings, epoch = self._settings, loader._next_epoch()
        seed = loader._seed_of_workers(epoch)
        self._epoch_count = 0
        self._arrived: dict[int, Reply] = {}
        self.crew = Crew(settings.source, settings.workers, seed, settings.context, settings.init)
        self.begin(epoch)

    def begin(self, epoch: Epoch) -> None:
        """Start an epoch; drop what is left of the previous one."""
        settings = self._settings
        for reply in self._arrived.values():
            self.crew.discard(reply)
        self._arrived.clear()
        self._epoch = epoch
        self._epoch_count += 1
        self._count = _Count(settings)
        self._asked: dict[int, int] = {}
        self._active = list(range(settings.workers))
        self._turns = itertools.cycle(range(settings.workers))
        self.crew.begin(self._epoch_count, epoch.seed)
        for _ in range(settings.prefetch * settings.workers):
            self._ask()

    def _ask(self) -> None:
        """Ask a worker for the next batch, if there is one."""
        if not self._active:
            return
        batch_index, indices = next(self._epoch.remaining, (None, None))
        if batch_index is None:
            return
        worker = self._choose(batch_index)
        stream = self._settings.source.is_stream
        wanted = not stream or batch_index >= self._epoch.resumed_at
        self._asked[batch_index] = worker
        self.crew.request(worker, self._epoch_count, batch_index, indices, wanted)

    def _choose(self, batch_index: int) -> int:
        if not self._settings.in_order:
            busy = list(self._asked.values())
            return min(self._active, key=busy.count)
        if not self._settings.source.is_stream:
            return batch_index % self._settings.workers
        return next(worker for worker in self._turns if worker in self._active)

    def _next_data(self) -> Any:
        while self._asked:
            reply = self._next_reply()
            worker = self._asked.pop(reply.batch_index)
            if reply.kind == END and worker in self._active:
                self._active.remove(worker)
            self._ask()
            self._epoch.consumed(reply.batch_index)
            if reply.kind == ERROR:
                raise described(reply.error)
            if reply.kind not in (END, SKIPPED):
                return self.crew.unpack(reply)
        self._epoch.finished = True
        if not self._settings.persistent:
            self.crew.stop()
        raise StopIteration

    def _next_reply(self) -> Reply:
        if self.crew.is_stopped:
            raise RuntimeError(
                "the workers of this DataLoader iterator have been stopped, or belong to the "
                "process that this one was forked from; iterate over the loader again"
            )
        if self._settings.in_order:
            batch_index = next(iter(self._asked))
            while batch_index not in self._arrived:
                self._wait()
            return self._arrived.pop(batch_index)
        while not self._arrived:
            self._wait()
        return self._arrived.pop(next(iter(self._arrived)))

    def _wait(self) -> None:
        timeout = self._settings.timeout or None
        replies = self.crew.wait(timeout)
        if not replies:
            raise RuntimeError(f"DataLoader timed out after {timeout} seconds")
        for reply in replies:
            if reply.epoch == self._epoch_count:
                self._arrived[reply.batch_index] = reply
            else:
                self.crew.discard(reply)


class _Count:
    """Counts batches, and warns when a stream gives more than its length promises."""

    def __init__(self, settings: LoaderSettings) -> None:
        self._promised = settings.length if settings.source.is_stream else None
        self._length = settings.length
        self._given = 0

    def add(self) -> None:
        self._given += 1
        if self._promised is not None and self._given > self._promised:
            warnings.warn(
                f"the length of an IterableDataset promises {self._promised} batches, but there "
                "are more; with several workers each one should give its part of the stream: "
                "see get_worker_info",
                stacklevel=3,
            )
            self._promised = None

    @property
    def length(self) -> int:
        if self._length is None:
            raise TypeError("how many batches there will be is not known")
        return self._length
