"""`compile`: a function that is recorded for its first calls and replayed natively afterwards.

A call is looked up by its signature. A signature replays once two consecutive recordings agree, as
long as what they took for granted (`Replay.refusal`) still holds. Everything else runs eagerly, is
recorded, and is replaced by what the recording gives (`rehearsal.py`).
"""

from __future__ import annotations

import functools
import os
import sys
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .. import casting, dtypes, locks, mutation
from ..state import AUTOCAST, GRAD, INFERENCE, STATE
from ..tensor import Tensor
from . import native
from .check import Check
from .names import Names
from .recording import Recording
from .rehearsal import Rehearsal
from .repeat import Replay
from .signature import Signature, describe, shown
from .watch import Watch

#: recordings of one signature that may differ from one another before that is an error
PATIENCE = 4


#: names of `backend`: whether they compile
BACKENDS = {"inductor": True, "native": True, "eager": False}
MODES = (None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


@dataclass(frozen=True, slots=True)
class Options:
    """What a user asked for when compiling."""

    max_signatures: int = 32
    keep_grads: bool = True
    check: bool = False
    backend: str = "inductor"


class Compiled:
    """A compiled function; made by `tapegrad.compile`."""

    def __init__(self, function: Callable[..., Any], options: Options | None = None) -> None:
        functools.update_wrapper(self, function, updated=())
        self.function = function
        self.name: str = getattr(function, "__qualname__", type(function).__qualname__)
        self.options = options or Options()
        self._names: Names | None = None
        self._signatures: dict[Any, Signature] = {}
        self._lock = locks.new()
        self._warned: set[str] = set()
        self.why_eager: str | None = None
        if os.environ.get("TAPEGRAD_COMPILE", "1") == "0":
            self.why_eager = "TAPEGRAD_COMPILE=0"
        elif not BACKENDS[self.options.backend]:
            self.why_eager = f"backend={self.options.backend!r}"
        self._off = self.why_eager is not None

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __reduce__(self) -> Any:
        """Copies and pickles are compiled anew; a function of a module is found by its name."""
        module = sys.modules.get(getattr(self.function, "__module__", ""))
        if getattr(module, self.name, None) is self:
            return self.name
        return Compiled, (self.function, self.options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # Under a tape, a capture or a check, the operations themselves are wanted.
        if self._off or STATE.mode & ~(GRAD | INFERENCE | AUTOCAST):
            return self._plainly(args, kwargs)
        with self._lock:
            return self._run(args, kwargs)

    def _plainly(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function itself."""
        if self.options.keep_grads:
            return self.function(*args, **kwargs)
        with Watch() as watch:
            result = self.function(*args, **kwargs)
        watch.drop_grads()
        return result

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tensors: list[Tensor] = []
        objects: list[Any] = []
        parts: list[Any] = [STATE.mode, dtypes.get_default_dtype(), casting.key()]
        describe(args, parts, tensors, objects)
        if kwargs:
            describe(kwargs, parts, tensors, objects)
        if len(tensors) > 1:
            owners = [id(mutation.owner_of(t._array)) for t in tensors]
            parts.append(tuple([owners.index(o) for o in owners]))
        if self._names is None:
            # Not before the first call: names may be defined later than the function.
            self._names = Names(self.function, args)
        describe(self._names.values(args), parts, None, objects)
        key = tuple(parts)
        signature = self._signatures.get(key)
        if signature is None:
            most = self.options.max_signatures
            if len(self._signatures) >= most:
                return self._eagerly(
                    f"it was called with more than {most} signatures; what varies should be a "
                    "tensor, or raise max_signatures",
                    args,
                    kwargs,
                )
            signature = self._signatures[key] = Signature(shown(args, kwargs), objects)
        if signature.eager is not None:
            return self._eagerly(signature.eager, args, kwargs)
        why = "it is new"
        for replay in signature.replays:
            refusal = replay.refusal(tensors)
            if refusal is None:
                if replay.executable is None:
                    if not native.available():
                        self._off = True
                        return self._eagerly("llvmlite is not installed", args, kwargs)
                    replay.build()
                if self.options.check:
                    return self._checked(replay, args, kwargs, tensors)
                return replay.run(tensors)
            why = refusal
        if signature.difference is not None and not signature.replays:
            why = signature.difference
        return self._record(signature, why, args, kwargs, tensors)

    def _eagerly(self, reason: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.why_eager = reason
        if reason not in self._warned:
            self._warned.add(reason)
            warnings.warn(f"compiled function {self.name} runs eagerly: {reason}", stacklevel=4)
        return self._plainly(args, kwargs)

    def _checked(
        self,
        replay: Replay,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        tensors: list[Tensor],
    ) -> Any:
        """Run eagerly, go back, replay, and compare."""
        check = Check(replay, tensors)
        with check.witness:
            returned = self.function(*args, **kwargs)
            if not self.options.keep_grads:
                check.witness.drop_grads()
            check.saw(returned)
        return check.run()

    def _record(
        self,
        signature: Signature,
        why: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        tensors: list[Tensor],
    ) -> Any:
        """Run eagerly, write down what happens, and do that instead."""
        if signature.since_agreement >= PATIENCE:
            raise RuntimeError(
                f"a compiled function did something else in each of {PATIENCE} recordings, so it "
                f"cannot be replayed: {signature.difference}"
            )
        signature.reasons.append(why)
        capture = Rehearsal(tensors)
        with capture:
            result = self.function(*args, **kwargs)
            if not self.options.keep_grads:
                capture.drop_grads()
            recording = capture.finish(result)
        signature.recordings += 1
        if recording.obstacle is not None:
            signature.eager = recording.obstacle
            return result
        if capture.passing:
            return result
        undo = capture.undo()
        del capture  # it knows every tensor: only what others know may stay
        replay = self._compare(signature, recording, tensors)
        if replay is None or not native.available():
            return result
        return undo.replayed(replay, tensors, result)

    def _compare(
        self, signature: Signature, recording: Recording, tensors: list[Tensor]
    ) -> Replay | None:
        """Confirm a recording by one that agrees with it; returns what replays it."""
        if recording.once:
            signature.difference = "it made or replaced tensors of an optimizer's state"
            signature.since_agreement += 1
            return None
        for replay in signature.replays:
            if replay.recording.difference(recording) is None:
                replay.confirm(recording, tensors)
                signature.since_agreement = 0
                return replay
        signature.difference = "two recordings that agree were not seen yet"
        for earlier in (signature.previous, signature.last.get(recording.case)):
            if earlier is None:
                continue
            difference = earlier.recording.difference(recording)
            if difference is None:
                earlier.confirm(recording, tensors)
                signature.replays.append(earlier)
                signature.last.pop(recording.case, None)
                signature.previous = signature.difference = None
                signature.since_agreement = 0
                return earlier
            signature.difference = difference
        replay = Replay(recording, tensors, self.name)
        signature.previous = signature.last[recording.case] = replay
        signature.since_agreement += 1
        return replay

    # -- telling -----------------------------------------------------------------------------

    @property
    def replays(self) -> list[Replay]:
        """The recordings that calls replay, of all kinds of arguments."""
        return [r for s in self._signatures.values() for r in s.replays]

    def explain(self, programs: bool = False, code: str | None = None) -> str:
        """What was captured, what became of it, and why calls were recorded, in words.

        With `programs`, the recorded programs follow, one operation in a line; with `code="llvm"`
        or `code="assembly"`, the text of each kernel before and after LLVM has compiled it.
        """
        from .explain import explain

        return explain(self, programs, code)


def compile(
    model: Callable[..., Any] | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str = "inductor",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
    keep_grads: bool = True,
    check: bool = False,
    max_signatures: int = 32,
) -> Any:
    """Record a function's tensor operations and run them as one native program from then on.

    Works on whole training steps: tensors from outside (parameters, buffers, optimizer state) are
    read and changed in their own memory. The first two calls with new shapes run eagerly too, and
    are recorded. What a call did, and why, `explain()` tells. A module is returned as one of its
    class that shares everything with it.

    With `keep_grads=False` every `.grad` that the function touches is None afterwards, so gradients
    need no memory of their own. With `check=True` every replay is compared with an eager run.
    `disable=True` returns the function as it is, and `backend="eager"` never compiles. The other
    keywords are PyTorch's: they are checked and change nothing, since there is one compiler, which
    records whole functions and each shape by itself.

    >>> import tapegrad
    >>> @tapegrad.compile
    ... def f(x):
    ...     return (x * 2 + 1).sum()
    >>> [f(tapegrad.ones(3) * i).item() for i in range(4)]
    [3.0, 9.0, 15.0, 21.0]
    """
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}")
    if mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(map(str, MODES))}, got {mode!r}")
    if options is not None and not isinstance(options, dict):
        raise TypeError(f"options must be a dict or None, got {type(options).__name__}")
    chosen = Options(max_signatures, keep_grads, check, backend)

    def compiled(function: Callable[..., Any]) -> Any:
        if not callable(function):
            raise TypeError(f"compile needs a function, got {type(function).__name__}")
        if disable:
            return function
        if hasattr(function, "_compiled_copy"):
            return function._compiled_copy(chosen)  # a module
        return Compiled(function, chosen)

    return compiled if model is None else compiled(model)
