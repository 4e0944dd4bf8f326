"""Collectives in the background: a thread that works through them while others compute.

MPI makes no progress by itself, so a collective that should overlap with computing needs a thread
inside of MPI. `Background` has one, with communicators of its own. It takes collectives in the
order in which they were given, which is the same on all ranks. Where all cores compute, a second
thread would only take time from them; the collectives then run when somebody waits for one of them,
in the same order. Called by `process_group.py`.
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
        #: the tensors that it changes
        self.outputs: Sequence[Any] = ()

    def run(self) -> None:
        """Do it, in the thread that calls this."""
        try:
            self._result = self._run()
        except BaseException as error:
            self._error = error
        self._done.set()

    def wait(self, timeout: Any = None) -> bool:
        """Return when the collective is done and its result can be used."""
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
        """Keep something until the collective is done, for which nobody will wait."""
        self._kept = memory

    def is_completed(self) -> bool:
        """Whether `wait()` would return at once."""
        return self._done.is_set()

    def is_success(self) -> bool:
        """Whether the collective is done and did not fail."""
        return self._done.is_set() and self._error is None

    def result(self) -> Any:
        """What the collective gives, after waiting for it."""
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
    """A collective that is done already."""

    def __init__(self, result: Any = None, outputs: Sequence[Any] = ()) -> None:
        super().__init__(lambda: result)
        self._result = result
        self.outputs = outputs
        self._done.set()


class Requested(Work):
    """A message that MPI sends or receives by itself.

    `watched` is entered while this waits for it. `finish` gets the status that `request` ends with.
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
        self._keeps = keeps  # the memory that is sent

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
    """Works through collectives in order: in a thread, or when somebody waits.

    Whoever waits does what the thread has not come to: to wake a thread takes longer than to reduce
    a small array.
    """

    def __init__(self, threaded: bool) -> None:
        self.threaded = threaded
        self._pending: deque[Work] = deque()
        #: held while a collective is taken from what is pending, and until it is done
        self._turn = locks.new()
        #: a word for the thread for each collective, which somebody else may have done by then;
        #: none for those that are done by whoever waits for them
        self._words: SimpleQueue[None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, work: Work, wakes: bool = True) -> Work:
        """Start a collective, or take it down as the next one."""
        work._waiter = self
        self._pending.append(work)
        if self.threaded and wakes:
            self._words.put(None)
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name="tapegrad-mpi", daemon=True)
                self._thread.start()
        return work

    def is_beside(self) -> bool:
        """Whether the calling thread is the one that works beside the others."""
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
        """Return when one collective is done."""
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
        """Return when nothing is left to do."""
        while self._pending:
            with self._turn:
                self._run_next()
        with self._turn:
            pass  # what the thread was at is done

    def run_pending(self) -> None:
        """Before a collective of the calling thread: do what would otherwise come after it."""
        if not self.threaded and self._pending:
            self.drain()
