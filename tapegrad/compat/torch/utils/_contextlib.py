"""`torch.utils._contextlib`: contexts that are decorators too."""

from __future__ import annotations

import functools
import inspect
from typing import Any, cast


class _DecoratorContextManager:
    """A context manager that can stand before a function: each call then runs inside of it."""

    def __call__(self, orig_func: Any) -> Any:
        if inspect.isgeneratorfunction(orig_func):
            return self._around_generator(orig_func)

        @functools.wraps(orig_func)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with cast(Any, self.clone()):
                return orig_func(*args, **kwargs)

        return inside

    def _around_generator(self, function: Any) -> Any:
        """A generator each of whose steps runs inside; between them, the caller's modes count."""

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
        """A context of the same class, for one call."""
        return self.__class__()


class _NoParamDecoratorContextManager(_DecoratorContextManager):
    """The same, where the class itself can stand before a function too."""

    def __new__(cls, orig_func: Any = None) -> Any:
        return super().__new__(cls) if orig_func is None else cls()(orig_func)
