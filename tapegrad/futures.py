"""`tapegrad.futures`: values that are computed at the latest when `wait()` is called.

`get_future()` of a background collective returns one, and so do communication hooks. Nothing runs
by itself: the first `wait()` computes the value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")
S = TypeVar("S")


class Future(Generic[T]):
    """A value that `wait()` returns, and computes if necessary.

    >>> from tapegrad.futures import Future
    >>> future = Future()
    >>> doubled = future.then(lambda done: 2 * done.value())
    >>> future.set_result(21)
    >>> doubled.wait()
    42
    """

    def __init__(self, compute: Callable[[], T] | None = None, *, devices: Any = None) -> None:
        self._compute = compute
        self._value: Any = None
        self._error: BaseException | None = None
        self._is_set = False
        self._callbacks: list[Callable[[Future[T]], Any]] = []

    def set_result(self, result: T) -> None:
        """Set the value."""
        self._finish(result, None)

    def set_exception(self, result: BaseException) -> None:
        """Set an exception for `wait()` to raise."""
        if not isinstance(result, BaseException):
            raise TypeError(f"set_exception expected an exception, got {type(result).__name__}")
        self._finish(None, result)

    def _finish(self, value: Any, error: BaseException | None) -> None:
        if self._is_set:
            raise RuntimeError("the result of this future is set already")
        self._value, self._error, self._is_set = value, error, True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    def wait(self) -> T:
        """The value, computed now if it is not there yet."""
        if not self._is_set:
            if self._compute is None:
                raise RuntimeError("nobody has set the result of this future")
            try:
                value = self._compute()
            except BaseException as error:
                self._finish(None, error)
            else:
                self._finish(value, None)
        if self._error is not None:
            raise self._error
        found: T = self._value
        return found

    def value(self) -> T:
        """The value, as `wait()`."""
        return self.wait()

    def done(self) -> bool:
        """Whether the value is there."""
        return self._is_set

    def then(self, callback: Callable[[Future[T]], S]) -> Future[S]:
        """A future of a function's result for this future."""

        def compute() -> S:
            if not self._is_set:
                self.wait()
            return callback(self)

        return Future(compute)

    def add_done_callback(self, callback: Callable[[Future[T]], Any]) -> None:
        """Call a function with this future when its value is there."""
        if self._is_set:
            callback(self)
        else:
            self._callbacks.append(callback)


def collect_all(futures: list[Future[Any]]) -> Future[list[Future[Any]]]:
    """A future of all futures of a list, when they are done."""

    def compute() -> list[Future[Any]]:
        wait_all(futures)
        return futures

    return Future(compute)


def wait_all(futures: list[Future[Any]]) -> list[Any]:
    """The values of all futures of a list."""
    return [future.wait() for future in futures]


__all__ = ["Future", "collect_all", "wait_all"]
