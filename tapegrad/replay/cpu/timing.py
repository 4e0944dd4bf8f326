"""Timing: how long the kernels of a compiled program take, measured on demand.

Comes in: an executable, and values for its inputs where they are known. Goes out: a `Timing`. The
program runs on copies and on its own memory, one kernel at a time, so it changes no user's data.
Called by `use/explain.py`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core import numeric
from ...core.primitive import Primitive
from ..ir.program import Callback, Input, View, bytes_of, contiguous
from . import pool, stored, tuning
from .blueprint import blueprint_of
from .driver_layout import END
from .emit import Segment, Step, one_by_one
from .executable import Frame, Layout, NativeProgram

#: errors that NumPy kernels raise for values unlike those of a real call
UNFIT = (ValueError, RuntimeError, ArithmeticError, IndexError)


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds that the parts of a program take; None if they were not measured.

    Each is the fastest of several rounds: other processes delayed the others.
    """

    kernels: tuple[float | None, ...]  # in the order of `Emitted.kernels`
    callbacks: tuple[float | None, ...]
    whole: float | None
    threads: int  # used for the measurement
    why_not: str | None = None  # why nothing could be measured


def measure(executable: NativeProgram, values: Sequence[Any]) -> Timing:
    """Time each kernel; `values` has an array for each input, or None for one that is made up."""
    program = executable.program
    own = [given.value for given in program.inputs] + list(program.results)
    size = int(executable.plan.arena) + sum(map(bytes_of, own))
    if size > tuning.MAX_MEASURING_BYTES:
        why = f"that would take {size / 2**30:.0f} GiB more memory"
    else:
        found = _SeparateKernels(executable, values).measured()
        if found is not None:
            return found
        why = "made-up arguments do not suit it"
    nothing = (None,) * len(executable.emitted.kernels)
    return Timing(nothing, (None,) * len(executable.callbacks), None, 1, why)


class _SeparateKernels(NativeProgram):
    """A compiled program with its own memory, whose kernels are separate segments."""

    def __init__(self, executable: NativeProgram, values: Sequence[Any]) -> None:
        self.__dict__.update(executable.__dict__)
        made, emitted, before = self.plan, self.emitted, self._layout
        self._threads = emitted.threads
        apart = one_by_one(emitted).segments
        nothing = Segment((Step(END, None, 0, 1, (), 1),))
        # One frame holds the separate kernels, the whole program and an empty one, so that all
        # three run on the same memory.
        together = replace(emitted, segments=(*apart, *emitted.segments, nothing))
        functions = list(self.functions.values())
        made_of = (before.planned, made, together)
        blueprint = blueprint_of(made, together)
        self._layout = layout = Layout(self._recorded, before.asked, blueprint, functions, made_of)
        inputs = self._recorded.inputs
        self._memory = [_filled(*given) for given in zip(inputs, values, strict=True)]
        self._memory += [np.zeros(v.shape, v.dtype) for v in self._recorded.results]
        addresses = [array.__array_interface__["data"][0] for array in self._memory]
        layout.buffers[: len(inputs)] = addresses[: len(inputs)]
        layout.buffers[layout.first_result : layout.arena_at] = addresses[len(inputs) :]
        self._frame = frame = Frame(layout, layout.buffers, shared=False)
        frame.arena = np.zeros(layout.scratch + 64, np.uint8)
        arena = -(-frame.arena.ctypes.data // 64) * 64
        layout.buffers[layout.arena_at] = arena
        layout.buffers[layout.arena_at + 2] = arena + layout.partials_offset
        self._segments = frame.parts[: len(apart)]
        self._whole = frame.parts[len(apart) : -1]
        self._empty = frame.parts[-1:]

    def measured(self) -> Timing | None:
        """The times of all parts; None if the values do not suit the program."""
        whole = _rounds(lambda: self._round(self._whole), least=2)
        rounds = _rounds(lambda: self._round(self._segments))
        launches = _rounds(lambda: self._round(self._empty))
        if not whole or not rounds or not launches:
            return None
        launch = min(one[0] for one in launches)
        kernels: list[float | None] = []
        callbacks: list[float | None] = []
        for segment, times in zip(self._segments, zip(*rounds, strict=True), strict=True):
            if not isinstance(segment, Callback):
                kernels.append(max(min(times) - launch, 0.0))
            else:
                callbacks.append(None if None in times else min(times))
        total = None if None in callbacks else min(sum(one) for one in whole)
        return Timing(tuple(kernels), tuple(callbacks), total, self._threads)

    def _round(self, segments: Sequence[Any]) -> list[Any] | None:
        """The times of all segments, run in order; None if one finds bad data."""
        times: list[Any] = []
        for segment in segments:
            began = time.perf_counter()
            if isinstance(segment, Callback):
                ran = self._ran(segment)
            elif pool.pool.run(segment, self._threads, 0):
                return None
            else:
                ran = True
            times.append(time.perf_counter() - began if ran else None)
        return times

    def _ran(self, callback: Callback) -> bool:
        """Run a callback if it is known to have no side effects; otherwise zero its results."""
        if _is_own(callback.primitive):
            try:
                self._call(callback, self._layout, self._frame)
            except UNFIT:
                pass
            else:
                return True
        for value in callback.outputs:
            view = View(value, 0, value.shape, contiguous(value.shape))
            self._array(view, self._layout, self._frame)[...] = 0
        return False


def _is_own(primitive: Primitive) -> bool:
    """Whether a primitive is one of tapegrad's, whose kernels only compute."""
    return stored.is_own(primitive) and primitive.pure


def _rounds(run: Any, least: int = 1) -> list[Any]:
    """The times of some rounds; without the first if there are several: its caches are cold."""
    found: list[Any] = []
    began = time.perf_counter()
    while len(found) <= tuning.MAX_MEASURING_ROUNDS:
        if len(found) >= least and time.perf_counter() - began >= tuning.MAX_MEASURING_SECONDS:
            break
        times = run()
        if times is None:
            break
        found.append(times)
    return found[1:] or found


def _filled(given: Input, array: Any) -> Any:
    """An array with the layout of an input, and a copy of its values or made-up ones.

    Made-up integers are zeros, which are valid indices; other numbers lie between 0.1 and 0.9,
    which are valid probabilities.
    """
    value = given.value
    steps = [(n - 1) * s for n, s in zip(value.shape, given.strides, strict=True) if n > 1]
    low, high = sum(s for s in steps if s < 0), sum(s for s in steps if s > 0)
    memory = np.zeros(high - low + 1, value.dtype)
    strides = [s * value.dtype.itemsize for s in given.strides]
    found: Any = np.ndarray(value.shape, value.dtype, memory, -low * value.dtype.itemsize, strides)
    if array is not None:
        found[...] = array
    elif not numeric.is_exact(value.dtype):
        found[...] = np.random.default_rng(0).uniform(0.1, 0.9, value.shape).astype(value.dtype)
    return found
