"""`compile`: a function that is recorded for its first calls and replayed natively afterwards.

A call is looked up by its signature: the arguments, the modes, and the values that the function's code
names. A signature replays once two consecutive recordings agree, as long as what they took for granted
(`Replay.refusal`) still holds. Everything else runs eagerly and is recorded.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import types
import warnings
import weakref
from collections.abc import Callable
from operator import attrgetter, is_
from typing import Any

import numpy as np

from .. import dtypes, mutation, state
from ..inplace import through
from ..state import GRAD, INFERENCE, STATE
from ..tensor import Tensor, wrap
from ..tree import map_leaves
from . import native
from .capture import Argument, Capture, Captured, Given, GradOf, Made, Number, Plain, Recording
from .run import Executable, build

#: recordings of one signature that may differ from one another before that is an error
PATIENCE = 4

_array_of = attrgetter("_array")
_requires_of = attrgetter("_requires")


def _address(array: Any) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


# -- one replayable recording --------------------------------------------------------------------


class Replay:
    """A recording that was confirmed, and what must hold for it to be run again."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.patterns = {recording.pattern}
        self.structure = state.structure
        self.executable: Executable | None = None
        self.count = 0
        slots = recording.slots
        self.tensors = [s.tensor for s in slots if isinstance(s, Captured)]
        self.arrays = [t._array for t in self.tensors]
        self.requires = [t._requires for t in self.tensors]
        self.owners = {id(mutation.owner_of(a)) for a in self.arrays}
        self.numbers = [s for s in slots if isinstance(s, Number)]
        deciding = [n for d in recording.decisions for n in d.numbers]
        self.watched = list(dict.fromkeys([*self.numbers, *deciding]))
        self.seen: list[Any] | None = None  # what the watched numbers were when last looked at
        self.number_cells = np.zeros(max(len(self.numbers), 1))
        self.grads_read = {s.leaf for s in slots if isinstance(s, GradOf)}
        program = recording.program
        self.specs = [(v.shape, v.dtype) for v in program.results]
        self.grad_results = {at for _, at in recording.grads if isinstance(at, int)}
        position = {given.value.number: i for i, given in enumerate(program.inputs)}
        self.written = [slots[position[target.number]] for target, _ in program.writes]
        self.given_overlap: tuple[bool, ...] | None = None

    def overlap(self, tensors: list[Tensor]) -> tuple[bool, ...]:
        """For each argument, whether it shows memory of a captured tensor."""
        return tuple(id(mutation.owner_of(t._array)) in self.owners for t in tensors)

    def refusal(self, tensors: list[Tensor]) -> str | None:
        """Why this recording does not fit now; None if it does."""
        recording = self.recording
        if self.structure != state.structure:
            return "a hook, a module or a parameter group was changed"
        if not all(map(is_, map(_array_of, self.tensors), self.arrays)) and not self._moved():
            return "a captured tensor has another shape, dtype or layout"
        if list(map(_requires_of, self.tensors)) != self.requires:
            return "requires_grad of a captured tensor was changed"
        pattern = tuple([leaf.find(tensors)._grad is None for leaf in recording.leaves])
        if pattern not in self.patterns:
            return "a .grad that was None is not, or the other way round"
        if self.watched:
            values = [n.read() for n in self.watched]
            if values != self.seen:
                if not all(d.holds() for d in recording.decisions):
                    return "a number that decides what is computed was changed"
                self.seen = values
                for i in range(len(self.numbers)):
                    self.number_cells[i] = values[i]
        if self.overlap(tensors) != self.given_overlap:
            return "an argument shares memory with a captured tensor, or no longer does"
        for slot in recording.slots:
            if isinstance(slot, GradOf):
                grad, leaf = slot.find(tensors), slot.leaf.find(tensors)
                if not grad._array.flags.c_contiguous or grad._array.dtype != leaf._array.dtype:
                    return "a .grad has another layout"
        return None

    def _moved(self) -> bool:
        """Whether captured tensors with new memory can be taken as they are."""
        for tensor, array in zip(self.tensors, self.arrays, strict=True):
            now = tensor._array
            if now is not array and (
                type(now) is not np.ndarray
                or now.shape != array.shape
                or now.dtype != array.dtype
                or now.strides != array.strides
            ):
                return False
        self.arrays = [t._array for t in self.tensors]
        self.owners = {id(mutation.owner_of(a)) for a in self.arrays}
        if self.executable is not None:
            self._bind()
        return True

    def build(self) -> None:
        """Compile the recording."""
        self.executable = build(self.recording.program)
        self._bind()

    def _bind(self) -> None:
        """Fill in the addresses that stay the same from call to call."""
        assert self.executable is not None
        arrays = iter(self.arrays)
        cells = _address(self.number_cells)
        self.moving: list[tuple[int, Any]] = []
        for i, slot in enumerate(self.recording.slots):
            if isinstance(slot, Captured):
                self.executable.buffers[i] = _address(next(arrays))
            elif isinstance(slot, Number):
                self.executable.buffers[i] = cells + 8 * self.numbers.index(slot)
            else:
                self.moving.append((i, slot))

    # -- running -----------------------------------------------------------------------------

    def run(self, tensors: list[Tensor]) -> Any:
        """Replay: the effects and the result of the recorded run, on the memory of now."""
        executable = self.executable
        assert executable is not None
        recording = self.recording
        inputs = [-1] * len(recording.slots)
        for i, slot in self.moving:
            inputs[i] = _address(slot.find(tensors)._array)
        kept: dict[int, Tensor] = {}
        for leaf, at in recording.grads:
            if isinstance(at, int) and leaf not in self.grads_read:
                grad = _reusable(leaf.find(tensors), self.specs[at])
                if grad is not None:
                    kept[at] = grad
        made = [
            kept[i]._array if i in kept else np.empty(shape, dtype)
            for i, (shape, dtype) in enumerate(self.specs)
        ]
        executable.run(inputs, list(map(_address, made)))
        if self.written:
            mutation.note_all([slot.find(tensors)._array for slot in self.written])  # type: ignore[union-attr]
        for leaf, at in recording.grads:
            tensor = leaf.find(tensors)
            if at is None:
                tensor._grad = None
            elif not isinstance(at, int):
                tensor._grad = at.find(tensors)
            elif at not in kept:
                tensor._grad = wrap(made[at])
        self.count += 1
        return map_leaves(lambda leaf: _rebuilt(leaf, made, tensors), recording.results)


def _reusable(leaf: Tensor, spec: tuple[Any, Any]) -> Tensor | None:
    """A leaf's gradient if nobody else can see it, so that its memory may be written again."""
    grad = leaf._grad
    if grad is None or type(grad) is not Tensor:
        return None
    array = grad._array
    # Two references each: from the leaf or the tensor, and from this frame.
    if (
        sys.getrefcount(grad) - _COUNTING > 2
        or sys.getrefcount(array) - _COUNTING > 2
        or weakref.getweakrefcount(grad)
        or weakref.getweakrefcount(array)
    ):
        return None
    alone = grad._edge is None and grad._extra is None and grad._view is None
    fits = array.base is None and (array.shape, array.dtype) == spec and array.flags.c_contiguous
    return grad if alone and fits else None


def _counting() -> int:
    """What `sys.getrefcount` itself adds: it differs between versions of Python."""
    lone: list[Any] = []
    return sys.getrefcount(lone) - 1


_COUNTING = _counting()


def _rebuilt(leaf: Any, made: list[Any], tensors: list[Tensor]) -> Any:
    if isinstance(leaf, Plain):
        return leaf.value
    if isinstance(leaf, Given):
        return through(leaf.chain, leaf.slot.find(tensors))
    tensor = wrap(made[leaf.index])
    if leaf.spent is not None:
        tensor._edge, tensor._requires = leaf.spent, True
    return tensor


# -- signatures ----------------------------------------------------------------------------------

_PLAIN = (bool, int, float, complex, str, bytes, type(None), dtypes.DType)


class Signature:
    """What is known of one signature."""

    def __init__(self, shown: str, objects: list[Any]) -> None:
        self.shown = shown
        self.objects = objects  # kept, so that their ids are not given to others
        self.replays: list[Replay] = []
        self.last: dict[tuple[bool, ...], Recording] = {}
        self.previous: Recording | None = None
        self.recordings = 0
        self.since_agreement = 0
        self.reasons: list[str] = []
        self.eager: str | None = None
        self.difference: str | None = None


class _Names:
    """The globals and closure cells that a function's code names, its helpers' included."""

    def __init__(self, function: Any) -> None:
        self.found: list[tuple[Any, str]] = []
        self.cells: list[Any] = []
        plain = function
        while not isinstance(plain, types.FunctionType):
            inner = getattr(plain, "__func__", None) or getattr(plain, "__wrapped__", None)
            inner = inner or getattr(type(plain), "forward", None)
            if inner is None or inner is plain:
                return
            plain = inner
        self._visit(plain, set())

    def _visit(self, function: types.FunctionType, seen: set[int]) -> None:
        if id(function) in seen:
            return
        seen.add(id(function))
        self.cells += list(function.__closure__ or ())
        codes, names = [function.__code__], set()
        while codes:
            code = codes.pop()
            names.update(code.co_names)
            codes += [c for c in code.co_consts if isinstance(c, types.CodeType)]
        for name in sorted(names):
            if name in function.__globals__:
                self.found.append((function.__globals__, name))
        inner = [c.cell_contents for c in function.__closure__ or () if _filled(c)]
        inner += [function.__globals__[n] for n in names if n in function.__globals__]
        for value in inner:
            value = getattr(value, "__wrapped__", value)
            if isinstance(value, types.FunctionType) and value.__globals__ is function.__globals__:
                self._visit(value, seen)

    def values(self) -> list[Any]:
        found = [holder.get(name) for holder, name in self.found]
        return found + [cell.cell_contents for cell in self.cells if _filled(cell)]


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


class Compiled:
    """A compiled function; made by `tapegrad.compile`."""

    def __init__(self, function: Callable[..., Any], max_signatures: int) -> None:
        functools.update_wrapper(self, function, updated=())
        self.function = function
        self.max_signatures = max_signatures
        self._names = _Names(function)
        self._signatures: dict[Any, Signature] = {}
        self._lock = threading.RLock()
        self._off = os.environ.get("TAPEGRAD_COMPILE", "1") == "0"
        self._warned: set[str] = set()
        self.why_eager: str | None = "TAPEGRAD_COMPILE=0" if self._off else None

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # Under a tape, a capture or a check, the operations themselves are wanted.
        if self._off or STATE.mode & ~(GRAD | INFERENCE):
            return self.function(*args, **kwargs)
        with self._lock:
            return self._run(args, kwargs)

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tensors: list[Tensor] = []
        objects: list[Any] = []
        parts: list[Any] = [STATE.mode, dtypes.get_default_dtype()]
        _describe(args, parts, tensors, objects)
        if kwargs:
            _describe(kwargs, parts, tensors, objects)
        if len(tensors) > 1:
            owners = [id(mutation.owner_of(t._array)) for t in tensors]
            parts.append(tuple([owners.index(o) for o in owners]))
        _describe(self._names.values(), parts, None, objects)
        key = tuple(parts)
        signature = self._signatures.get(key)
        if signature is None:
            if len(self._signatures) >= self.max_signatures:
                return self._eagerly(
                    f"it was called with more than {self.max_signatures} signatures; what varies "
                    "should be a tensor, or raise max_signatures",
                    args,
                    kwargs,
                )
            signature = self._signatures[key] = Signature(_shown(args, kwargs), objects)
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
                return replay.run(tensors)
            why = refusal
        if signature.difference is not None and not signature.replays:
            why = signature.difference
        return self._record(signature, why, args, kwargs, tensors)

    def _eagerly(self, reason: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.why_eager = reason
        if reason not in self._warned:
            self._warned.add(reason)
            name = getattr(self.function, "__qualname__", repr(self.function))
            warnings.warn(f"compiled function {name} runs eagerly: {reason}", stacklevel=4)
        return self.function(*args, **kwargs)

    def _record(
        self,
        signature: Signature,
        why: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        tensors: list[Tensor],
    ) -> Any:
        """Run eagerly and write down what happens."""
        if signature.since_agreement >= PATIENCE:
            raise RuntimeError(
                f"a compiled function did something else in each of {PATIENCE} recordings, so it "
                f"cannot be replayed: {signature.difference}"
            )
        signature.reasons.append(why)
        capture = Capture(tensors)
        with capture:
            result = self.function(*args, **kwargs)
            recording = capture.finish(result)
        signature.recordings += 1
        if recording.obstacle is not None:
            signature.eager = recording.obstacle
            return result
        self._compare(signature, recording, tensors)
        return result

    def _compare(self, signature: Signature, recording: Recording, tensors: list[Tensor]) -> None:
        """Confirm a recording by one that agrees with it."""
        for replay in signature.replays:
            if replay.recording.difference(recording) is None:
                replay.patterns.add(recording.pattern)
                replay.structure = state.structure
                replay.requires = [t._requires for t in replay.tensors]
                replay.given_overlap = replay.overlap(tensors)
                signature.since_agreement = 0
                return
        signature.difference = "two recordings that agree were not seen yet"
        for earlier in (signature.previous, signature.last.get(recording.pattern)):
            if earlier is None:
                continue
            difference = earlier.difference(recording)
            if difference is None:
                replay = Replay(recording)
                replay.patterns.add(earlier.pattern)
                replay.given_overlap = replay.overlap(tensors)
                signature.replays.append(replay)
                signature.last.clear()
                signature.previous = signature.difference = None
                signature.since_agreement = 0
                return
            signature.difference = difference
        signature.previous = signature.last[recording.pattern] = recording
        signature.since_agreement += 1

    # -- telling -----------------------------------------------------------------------------

    @property
    def replays(self) -> list[Replay]:
        return [r for s in self._signatures.values() for r in s.replays]

    def explain(self) -> str:
        """What was captured, what became of it, and why calls were recorded, in words."""
        from .explain import explain

        return explain(self)


def _describe(
    value: Any, parts: list[Any], tensors: list[Tensor] | None, objects: list[Any]
) -> None:
    """Add to a signature what decides about a value.

    Tensors of the arguments are collected in `tensors` and count by shape, dtype and layout; those
    that a function's code names (`tensors` is None) are the function's own and count by identity, as
    do objects of other kinds, which are collected in `objects`.
    """
    if isinstance(value, Tensor):
        if tensors is None:
            parts.append(value.id)
            return
        tensors.append(value)
        array = value._array
        parts.append(
            (array.shape, array.dtype, array.strides, type(value), value._requires)
            if type(array) is np.ndarray
            else ("device", array.shape, array.dtype)
        )
    elif isinstance(value, _PLAIN):
        parts.append(type(value))
        parts.append(value)
    elif isinstance(value, (list, tuple)):
        parts.append((type(value), len(value)))
        for item in value:
            _describe(item, parts, tensors, objects)
    elif type(value) is dict and not _is_namespace(value):
        parts.append((dict, len(value)))
        for name, item in value.items():
            _describe(name, parts, tensors, objects)
            _describe(item, parts, tensors, objects)
    elif isinstance(value, np.ndarray) and tensors is not None:
        raise TypeError(
            "a compiled function got a NumPy array as an argument; make a tensor of it with "
            "tapegrad.from_numpy(...), so that a replay reads its contents"
        )
    else:
        objects.append(value)
        parts.append(id(value))


def _is_namespace(value: dict[Any, Any]) -> bool:
    return "__builtins__" in value or len(value) > 1000


def _shown(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    def show(x: Any) -> str:
        if isinstance(x, Tensor):
            return f"{x.dtype.name}[{','.join(map(str, x.shape))}]"
        return repr(x) if isinstance(x, _PLAIN) else type(x).__name__

    shown = [str(map_leaves(show, a)) for a in args]
    return f"({', '.join(shown + [f'{k}={map_leaves(show, v)}' for k, v in kwargs.items()])})"


def compile(function: Callable[..., Any] | None = None, *, max_signatures: int = 32) -> Any:
    """Record a function's tensor operations and run them as one native program from then on.

    Works on whole training steps: tensors from outside (parameters, buffers, optimizer state) are read
    and changed in their own memory. The first two calls with new shapes run eagerly and are recorded.

    >>> import tapegrad
    >>> @tapegrad.compile
    ... def f(x):
    ...     return (x * 2 + 1).sum()
    >>> [f(tapegrad.ones(3) * i).item() for i in range(4)]
    [3.0, 9.0, 15.0, 21.0]
    """
    if function is None:
        return functools.partial(compile, max_signatures=max_signatures)
    if not callable(function):
        raise TypeError(f"compile needs a function, got {type(function).__name__}")
    return Compiled(function, max_signatures)


__all__ = ["Argument", "Compiled", "Made", "Replay", "Signature", "compile"]
