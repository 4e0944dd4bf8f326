"""`torch.utils._contextlib`: context managers that are also decorators."""

from __future__ import annotations

import functools
import inspect
from typing import Any, cast


class _DecoratorContextManager:
    """A context manager that also decorates functions: each call then runs inside of it."""

    def __call__(self, orig_func: Any) -> Any:
        if inspect.isgeneratorfunction(orig_func):
            return self._around_generator(orig_func)

        @functools.wraps(orig_func)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with cast(Any, self.clone()):
                return orig_func(*args, **kwargs)

        return inside

    def _around_generator(self, function: Any) -> Any:
        """A generator function each step of which runs inside; the caller's code does not."""

        @functools.wraps(function)
        def steps(*args: Any, **kwargs: Any) -> Any:
            with cast(Any, self.clone()):
                generator = function(*args, **kwargs)
            send, given = generator.send, None
            while True:
                try:
                    with cast(Any, self.clone()):
                        value = send(given)
                except StopIteration as end:
                    return end.value
                try:
                    given = yield value
                except GeneratorExit:
                    with cast(Any, self.clone()):
                        generator.close()
                    raise
                except BaseException as error:
                    send, given = generator.throw, error
                else:
                    send = generator.send

        return steps

    def __enter__(self) -> None:
        raise NotImplementedError

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        raise NotImplementedError

    def clone(self) -> Any:
        """A new context of the same class, for one call."""
        return self.__class__()


class _NoParamDecoratorContextManager(_DecoratorContextManager):
    """The same, but the class itself can also decorate a function."""

    def __new__(cls, orig_func: Any = None) -> Any:
        return super().__new__(cls) if orig_func is None else cls()(orig_func)
