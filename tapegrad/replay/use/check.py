"""Checking: compare a replay with an eager run, and find the first operation where they differ.

Comes in: a replay and a call. Goes out: the result, or a `CheckError`. `compile(check=True)` calls
the function eagerly under a `Witness`, which keeps a copy of every value. It then restores memory,
replays, and compares everything that a call leaves behind. If something differs, it runs a program
that returns every value, to find the operation. Called by `compiled.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...core import numeric
from ...core.arrays import allocator, filled, host_copy, on_host
from ...core.source import describe
from ...core.tape import Entry, Output, Value
from ...core.tensor import Tensor
from ..ir.program import Apply
from ..trace.capture import Capture
from ..trace.recording import Made
from ..trace.results import matched
from ..trace.slots import Cotangent, Number
from .replay import Replay
from .snapshot import Snapshot

#: by bytes of an element: largest difference, relative to the element and to the largest finite one
TOLERANCE = {2: (5e-2, 1e-2), 4: (1e-3, 1e-4), 8: (1e-8, 1e-9)}


class CheckError(AssertionError):
    """A replay gave another result than the eager function."""


class Witness(Capture):
    """A capture that keeps a copy of every value."""

    def __init__(self, arguments: Sequence[Tensor], sharing: Sequence[Tensor] | None) -> None:
        super().__init__(arguments, sharing=sharing)
        self.copies: dict[int, Any] = {}

    def write(self, entry: Entry, inputs: Sequence[Any], outputs: tuple[Tensor, ...]) -> None:
        super().write(entry, inputs, outputs)
        for tensor in outputs:
            self.copies[tensor.id] = host_copy(tensor._array)

    def _enter(self, tensor: Tensor) -> None:
        super()._enter(tensor)
        self.copies[tensor.id] = host_copy(tensor._array)


class Check:
    """One call that is checked."""

    def __init__(self, replay: Replay, tensors: list[Tensor], call: Any) -> None:
        self.replay = replay
        self.call = call
        self.tensors = tensors
        self.witness = Witness(tensors, replay.sharing_memory)
        self.program = replay.recording.program
        #: by number of a value in the program: the eager array
        self.seen: dict[int, Any] = {}
        self.written = [slot.find(tensors)._array for slot in replay.written]
        leaves = [slot.find(tensors) for slot in replay.recording.leaves]
        grads = [leaf._grad._array for leaf in leaves if leaf._grad is not None]
        flagged = [slot.find(tensors) for slot, _, _ in replay.recording.flags]
        self.before = Snapshot([*self.written, *grads], leaves, flagged)

    def saw(self, returned: Any, known: Callable[[Any], Any]) -> None:
        """After the eager function has returned, compare what it did with the recording."""
        recording = self.witness.finish(returned, known)
        difference = self.replay.recording.difference(recording)
        if difference is not None:
            raise CheckError(f"the function no longer does what was recorded: {difference}")
        self.seen = {
            value.number: self.witness.copies[number]
            for number, value in self.witness.renamed.items()
        }

    def run(self) -> Any:
        """Restore the state before the eager call, replay, and compare."""
        self.before.restore()
        result = self.replay.run(self.tensors, self.call)
        for value, array in self._left(result):
            if not _close(array, self.seen[value.number]):
                raise CheckError(self._report(value, array))
        return result

    def _left(self, result: Any) -> Iterator[tuple[Value, Any]]:
        """Values of the program, each with the array in which the replay left it."""
        recording, results = self.replay.recording, self.program.results
        entry = None
        for expected, leaf in matched(recording.results, result):
            if isinstance(expected, Made):
                yield results[expected.index], leaf._array
                if expected.output is not None:
                    entry = leaf._edge.entry if isinstance(leaf._edge, Output) else leaf._edge
        for slot, at in recording.grads:
            if isinstance(at, int):
                yield results[at], slot.find(self.tensors)._grad._array
        for (_, value), array in zip(self.program.writes, self.written, strict=True):
            yield value, array
        if entry is not None:
            yield from self._gradients(entry)

    def _gradients(self, entry: Entry) -> Iterator[tuple[Value, Any]]:
        """The gradients of the compiled backward pass on ones, which the witness used too."""
        vjp, derivative = self.replay.vjp, self.replay.recording.derivative
        assert vjp is not None
        assert derivative is not None
        results = self.program.results
        device_of = self.program.device_of
        ones = [
            filled(device_of(v), v.shape, v.dtype, 1)
            for v in (results[i] for i in derivative.outputs)
        ]
        found = vjp.pull(ones, entry.edges, entry.saved, {})
        for at, array in zip(derivative.gradients, found, strict=True):
            yield results[at], array

    # -- the report --------------------------------------------------------------------------

    def _report(self, value: Value, array: Any) -> str:
        self.before.restore()
        found = self._first()
        where = "no single operation differs, so it happens when they are fused"
        if found is not None:
            apply, output, other = found
            where = (
                f"the first operation that differs is {apply.primitive.name}, at "
                f"{describe(apply.location)}: {_shown(other, self.seen[output.number])}"
            )
        maker = next((x for x in self.program.applied() if value in x.outputs), None)
        name = "an input" if maker is None else maker.primitive.name
        line = "" if maker is None else f" at {describe(maker.location)}"
        return (
            f"a replay differs from eager in the result of {name}{line}: "
            f"{_shown(array, self.seen[value.number])}; {where}"
        )

    def _first(self) -> tuple[Apply, Value, Any] | None:
        """The first operation whose result differs in a program that keeps every value."""
        applied = self.program.applied()
        made = [(x, v) for x in applied for v in x.outputs]
        probe = replace(
            self.program, instructions=applied, writes=(), results=tuple(v for _, v in made)
        )
        executable = self.replay.target.build(probe)
        executable.expect(range(len(probe.inputs)))
        given = [self._given(i) for i in range(len(probe.inputs))]
        arrays = [allocator(probe.device_of(v))(v.shape, v.dtype) for _, v in made]
        executable.run((*given, *arrays))
        for (apply, value), array in zip(made, arrays, strict=True):
            if not _close(array, self.seen[value.number]):
                return apply, value, array
        return None

    def _given(self, index: int) -> Any:
        slot, value = self.replay.recording.slots[index], self.program.inputs[index].value
        if isinstance(slot, Number):
            return np.asarray(slot.read(), np.float64)
        if isinstance(slot, Cotangent):
            return filled(self.program.device_of(value), value.shape, value.dtype, 1)
        return slot.find(self.tensors)._array


def _close(found: Any, expected: Any) -> bool:
    found = on_host(found)
    if not numeric.is_floating(found.dtype):
        return bool(np.array_equal(found, expected))
    relative, overall = TOLERANCE[found.dtype.itemsize]
    a, b = found.astype(np.float64), expected.astype(np.float64)
    finite = b[np.isfinite(b)]
    slack = overall * np.abs(finite).max() if finite.size else 0.0
    return bool(np.allclose(a, b, rtol=relative, atol=slack + 1e-30, equal_nan=True))


def _shown(found: Any, expected: Any) -> str:
    """Where two arrays differ most."""
    a, b = (
        np.atleast_1d(on_host(found)).astype(np.float64),
        np.atleast_1d(expected).astype(np.float64),
    )
    gap = np.where(
        (a == b) | (np.isnan(a) & np.isnan(b)), 0, np.nan_to_num(np.abs(a - b), nan=np.inf)
    )
    index = np.unravel_index(int(gap.argmax()), gap.shape)
    at = list(map(int, index)) if np.ndim(expected) else []
    return f"{a[index]:.8g} instead of {b[index]:.8g} at {at}"
