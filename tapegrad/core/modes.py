"""Modes of each thread: whether gradients are recorded, which tapes log, which checks run.

`STATE.mode` is a set of bits, so that the hot path of an operation reads one attribute. If it is at
most `GRAD`, no special mode is on. The contexts here (`no_grad`, `switched`, `unrecorded`,
`left_as_found`) change and restore it. The counter of sequence numbers is here too. Every operation
reads the mode, in `primitive.py` and its short paths.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import threading
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from .tape import Tape

GRAD = 1  # operations on tensors that require gradients leave entries
TAPE = 2  # an explicit Tape logs every operation
ANOMALY = 4  # results are checked for NaN as they appear
HOOKS = 8  # saved-tensor hooks of the user pack saved values
INFERENCE = 16  # inside inference_mode
AUTOCAST = 32  # operations choose the dtype that they run in, see `casting.py`
CAPTURE = 64  # one of the tapes captures a program: ask `capturing()`
OVERRIDDEN = 128  # a TorchFunctionMode intercepts all calls
LISTENING = TAPE | CAPTURE
TRANSFORM = 256  # inside vmap or forward mode: tensors may be wrapped, see `wrapped.py`

#: empty until a thread first enters inference_mode, so that until then checks are skipped
INFERRED: list[bool] = []

# The process's counter for sequence numbers of tensors, entries and changes: later is higher.
numbers = itertools.count(1)

F = TypeVar("F", bound=Callable[..., Any])


class ThreadState(threading.local):
    """One thread's modes."""

    mode: int = GRAD
    tapes: tuple[Tape, ...] = ()
    saved_hooks: tuple[tuple[Callable[..., Any], Callable[..., Any]], ...] = ()
    #: the transforms that run, the innermost last
    levels: tuple[Any, ...] = ()
    #: the settings of `casting.py`, None as long as nobody has changed them
    autocast: Any = None
    #: callbacks for the end of the running backward pass; None if none runs
    endings: list[Callable[[], Any]] | None = None
    #: the context that copies saved values before they are overwritten, or None
    mutations: Any = None
    #: why saved-tensor hooks may not be used now; None if they may
    without_saved_hooks: str | None = None
    #: the running backward pass
    walk: Any = None

    def __init__(self) -> None:
        # Runs once in each thread. np.errstate around every operation would cost 1.1 µs.
        np.seterr(all="ignore")


STATE = ThreadState()


def capturing() -> bool:
    """Whether the operations of this thread are being captured as a program.

    Then composites run part by part, backward passes run on Tensors, and random draws advance their
    generators by recorded operations.
    """
    return bool(STATE.mode & CAPTURE)


class switched:
    """Inside, some bits of the mode are off and others on; leaving restores them."""

    __slots__ = ("_before", "_off", "_on")

    def __init__(self, off: int = 0, on: int = 0) -> None:
        self._off, self._on = off, on

    def __enter__(self) -> None:
        self._before = before = STATE.mode
        STATE.mode = before & ~self._off | self._on

    def __exit__(self, *exc: object) -> None:
        bits = self._off | self._on
        STATE.mode = STATE.mode & ~bits | self._before & bits


class unrecorded:
    """Inside, no mode is on and no tape logs."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = STATE.mode, STATE.tapes
        STATE.mode, STATE.tapes = 0, ()

    def __exit__(self, *exc: object) -> None:
        STATE.mode, STATE.tapes = self._before


class transforming:
    """Inside, a transform runs; `levels` are all running ones, the innermost last."""

    __slots__ = ("_before", "_levels")

    def __init__(self, levels: tuple[Any, ...]) -> None:
        self._levels = levels

    def __enter__(self) -> None:
        self._before = STATE.mode & TRANSFORM, STATE.levels
        STATE.mode = STATE.mode | TRANSFORM if self._levels else STATE.mode & ~TRANSFORM
        STATE.levels = self._levels

    def __exit__(self, *exc: object) -> None:
        bit, STATE.levels = self._before
        STATE.mode = STATE.mode & ~TRANSFORM | bit


class left_as_found:
    """If the block raises, restore the tapes and the given bits of the mode.

    A signal handler may raise in the middle of entering or leaving another context.
    """

    __slots__ = ("_before", "_bits")

    def __init__(self, bits: int = -1) -> None:
        self._bits = bits

    def __enter__(self) -> None:
        self._before = STATE.mode, STATE.tapes

    def __exit__(self, kind: object, *exc: object) -> None:
        if kind is not None:
            mode, STATE.tapes = self._before
            STATE.mode = STATE.mode & ~self._bits | mode & self._bits


def restore_saved_hooks(hooks: Any) -> None:
    """End saved-tensor hooks that a hook has entered during backward, and go on with others."""
    STATE.saved_hooks = hooks


def reset() -> None:
    """Leave all modes and tapes; called in a process that was forked inside of them."""
    STATE.mode, STATE.tapes, STATE.saved_hooks, STATE.levels = GRAD, (), (), ()


class Mode:
    """Base of the mode switches: each is a context manager and a decorator."""

    def _new_mode(self, mode: int) -> int:
        raise NotImplementedError

    def __enter__(self) -> Any:
        stack = self.__dict__.setdefault("_previous", [])
        stack.append(STATE.mode)
        STATE.mode = self._new_mode(STATE.mode)
        return self

    def __exit__(self, *exc: object) -> None:
        bits = GRAD | INFERENCE
        STATE.mode = (STATE.mode & ~bits) | (self.__dict__["_previous"].pop() & bits)

    def __call__(self, function: F) -> F:
        if inspect.isclass(function):
            return self._around_constructor(function)  # type: ignore[no-any-return]
        if inspect.isgeneratorfunction(function):
            return self._around_generator(function)

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self._fresh():
                return function(*args, **kwargs)

        return wrapped  # type: ignore[return-value]  # wraps keeps the signature

    def _around_constructor(self, kind: Any) -> Any:
        """Apply the mode to the constructor alone and warn, as PyTorch does."""
        warnings.warn(
            "decorating a class changes the mode of its constructor alone, which is deprecated; "
            "decorate the methods",
            FutureWarning,
            stacklevel=3,
        )
        kind.__init__ = self(kind.__init__)
        return kind

    def _around_generator(self, function: F) -> F:
        """Apply the mode while the generator runs, but not while its consumer does."""

        @functools.wraps(function)
        def generate(*args: Any, **kwargs: Any) -> Any:
            generator = function(*args, **kwargs)
            step, given = generator.send, None
            while True:
                try:
                    with self._fresh():
                        item = step(given)
                except StopIteration as stop:
                    return stop.value
                try:
                    step, given = generator.send, (yield item)
                except GeneratorExit:
                    with self._fresh():
                        generator.close()
                    raise
                except BaseException as error:  # thrown in by the user, for the generator
                    step, given = generator.throw, error

        return generate  # type: ignore[return-value]  # wraps keeps the signature

    def _fresh(self) -> Mode:
        return type(self)()


class no_grad(Mode):
    """Operations inside leave no entries: results do not require gradients.

    >>> import tapegrad
    >>> x = tapegrad.ones(2, requires_grad=True)
    >>> with tapegrad.no_grad():
    ...     (x * 2).requires_grad
    False
    """

    def __new__(cls, function: Any = None) -> Any:
        self = super().__new__(cls)
        return self(function) if callable(function) else self

    def _new_mode(self, mode: int) -> int:
        return mode & ~GRAD


class enable_grad(no_grad):
    """Gradient recording is on inside, also within `no_grad`."""

    def _new_mode(self, mode: int) -> int:
        return mode | GRAD


class set_grad_enabled(Mode):
    """Turn gradient recording on or off: at once as a call, for its block in a `with`."""

    def __init__(self, mode: bool) -> None:
        self.enabled = bool(mode)
        self._before = STATE.mode
        STATE.mode = self._new_mode(STATE.mode)

    def _new_mode(self, mode: int) -> int:
        return mode | GRAD if self.enabled else mode & ~GRAD

    def __enter__(self) -> Any:
        super().__enter__()
        # The constructor has already switched the mode: leaving restores the one before it.
        self.__dict__["_previous"][-1] = self._before
        return self

    def __call__(self, function: F) -> F:
        STATE.mode = self._before
        return super().__call__(function)

    def _fresh(self) -> Mode:
        return type(self)(self.enabled)


class inference_mode(Mode):
    """No entries and no tracking inside, as `no_grad`; `is_inference_mode_enabled()` says so."""

    def __new__(cls, mode: Any = True) -> Any:
        self = super().__new__(cls)
        if callable(mode):
            self.enabled = True
            return self(mode)
        return self

    def __init__(self, mode: bool = True) -> None:
        self.enabled = bool(mode)

    def _new_mode(self, mode: int) -> int:
        if not self.enabled:
            return (mode & ~INFERENCE) | GRAD
        INFERRED[:] = [True]
        return (mode & ~GRAD) | INFERENCE

    def _fresh(self) -> Mode:
        return type(self)(self.enabled)


def is_grad_enabled() -> bool:
    """Whether operations on tensors that require gradients are recorded in this thread."""
    return bool(STATE.mode & GRAD)


def is_inference(tensor: Any) -> bool:
    """Whether a tensor was made inside of `inference_mode`."""
    return bool(tensor.is_inference())


def is_inference_mode_enabled() -> bool:
    """Whether this thread is inside `inference_mode`."""
    return bool(STATE.mode & INFERENCE)
