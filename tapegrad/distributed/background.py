"""Collectives in the background: a thread runs them while others compute.

MPI makes no progress by itself, so a collective that overlaps with computation needs a thread
inside MPI. `Background` has one, with communicators of its own. It runs collectives in the order in
which they were submitted, which is the same on all ranks. If all cores compute, a second thread
would only take time from them; the collectives then run, in the same order, when a thread waits for
one of them. Called by `process_group.py`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from queue import SimpleQueue
from typing import Any

from ..core import locks
from ..futures import Future
from . import spans


class Work:
    """A collective that was started: `wait()` returns when it is done."""

    def __init__(self, run: Callable[[], Any], finish: Callable[[Any], Any] | None = None) -> None:
        self._run = run
        self._finish = finish
        self._done = threading.Event()
        self._result: Any = None
        self._error: BaseException | None = None
        self._waiter: Background | None = None
        self._kept: Any = None
        #: the tensors that the collective changes
        self.outputs: Sequence[Any] = ()

    def run(self) -> None:
        """Run the collective in the calling thread."""
        try:
            self._result = self._run()
        except BaseException as error:
            self._error = error
        self._done.set()

    def wait(self, timeout: Any = None) -> bool:
        """Wait until the collective is done and its result can be used."""
        if not self._done.is_set():
            assert self._waiter is not None
            self._waiter.wait_for(self)
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if self._finish is not None:
            finish, self._finish = self._finish, None
            self._result = finish(self._result)
        return True

    def keep(self, memory: Any) -> None:
        """Keep memory alive with a collective that nothing will wait for."""
        self._kept = memory

    def is_completed(self) -> bool:
        """Whether `wait()` would return at once."""
        return self._done.is_set()

    def is_success(self) -> bool:
        """Whether the collective is done and did not fail."""
        return self._done.is_set() and self._error is None

    def result(self) -> Any:
        """Wait for the collective, and return its result."""
        self.wait()
        return self._result

    def synchronize(self) -> None:
        self.wait()

    def get_future(self) -> Future[list[Any]]:
        """A future of the tensors that the collective changes."""

        def compute() -> list[Any]:
            self.wait()
            return list(self.outputs)

        return Future(compute)


class Done(Work):
    """A collective that is already done."""

    def __init__(self, result: Any = None, outputs: Sequence[Any] = ()) -> None:
        super().__init__(lambda: result)
        self._result = result
        self.outputs = outputs
        self._done.set()


class Requested(Work):
    """A message that MPI sends or receives by itself.

    The context `watched` is entered during a wait. `finish` is called with the status of `request`.
    """

    def __init__(
        self,
        request: Any,
        status: Any,
        watched: Callable[[], AbstractContextManager[None]],
        finish: Callable[[Any], Any] | None = None,
        keeps: Any = None,
    ) -> None:
        super().__init__(lambda: None, finish)
        self._request = request
        self._result = self._status = status
        self._watched = watched
        self._keeps = keeps  # the memory that is being sent

    def wait(self, timeout: Any = None) -> bool:
        with self._watched():
            if not self._done.is_set():
                self._request.Wait(self._status)
                self._done.set()
            return super().wait(timeout)

    def is_completed(self) -> bool:
        if not self._done.is_set() and self._request.Test(self._status):
            self._done.set()
        return self._done.is_set()


class Background:
    """Runs collectives in order: in the background thread, or in a thread that waits for one.

    A waiting thread runs those that the background thread has not taken yet, because waking a
    thread takes longer than reducing a small array.
    """

    def __init__(self, threaded: bool) -> None:
        self.threaded = threaded
        self._pending: deque[Work] = deque()
        #: held from taking a pending collective until it is done
        self._turn = locks.new()
        #: wakes the thread: an item for each collective that was submitted with `wakes`, even if
        #: a waiting thread has already run it
        self._words: SimpleQueue[None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, work: Work, wakes: bool = True) -> Work:
        """Add a pending collective; with `wakes`, wake the background thread if there is one."""
        work._waiter = self
        self._pending.append(work)
        if self.threaded and wakes:
            self._words.put(None)
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name="tapegrad-mpi", daemon=True)
                self._thread.start()
        return work

    def is_beside(self) -> bool:
        """Whether the calling thread is the background thread."""
        return threading.current_thread() is self._thread

    def _loop(self) -> None:
        while True:
            self._words.get()
            while self._pending:
                with self._turn:
                    self._run_next()

    def _run_next(self) -> None:
        if self._pending:
            self._pending.popleft().run()

    def wait_for(self, work: Work) -> None:
        """Wait for a collective, and run pending ones meanwhile."""
        while not work.is_completed():
            if not self._turn.acquire(blocking=False):
                began = spans.clock()
                self._turn.acquire()
                if spans.is_taken():
                    spans.note_wait("a collective", began)
            try:
                if not work.is_completed():
                    self._run_next()
            finally:
                self._turn.release()

    def drain(self) -> None:
        """Run all pending collectives, and wait for the one that is running."""
        while self._pending:
            with self._turn:
                self._run_next()
        with self._turn:
            pass  # the collective that the thread was running is done

    def run_pending(self) -> None:
        """Without a thread, run pending collectives before the next one of the calling thread."""
        if not self.threaded and self._pending:
            self.drain()
