"""Timing: how long the steps of a program for a GPU take, measured on demand.

Comes in: a `GridProgram`. Goes out: a `StepTiming` for each step, with the least bytes and
operations that it needs, so that its time can be compared with the limits of the GPU. The program
runs on copies and on its own memory, one step at a time, so it changes no user's data. Called by
`use/explain.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...core import numeric
from ..ir.program import (
    Access,
    Attention,
    Input,
    Instruction,
    Loop,
    Product,
    Read,
    View,
    bytes_of,
    contiguous,
    size_of,
)
from .emit import KernelLaunch
from .executable import GridProgram


class StepTiming(NamedTuple):
    """The seconds of one step, and the least bytes and operations that it needs."""

    seconds: float
    library: bool
    bytes: int
    operations: int
    instruction: Instruction


def measure(program: GridProgram) -> list[StepTiming]:
    """The times of all steps except callbacks, on made-up arguments."""
    device = program.device
    copies: list[Any] = []

    def address(value: Any, given: Input | None) -> int:
        made = _made_up(value, given)
        copies.append(device.upload(made))
        return int(copies[-1].address)

    def copied(given: Input, array: Any) -> Any:
        shape, strides = given.value.shape, given.strides
        if strides == contiguous(shape):
            return array.copy()
        first = sum((n - 1) * -s for n, s in zip(shape, strides, strict=True) if s < 0)
        return device.view(address(given.value, given), View(given.value, first, shape, strides))

    inputs = program.program.inputs
    bound = {
        i: array if program.is_host(i) else copied(inputs[i], array)
        for i, array in program.bound.items()
    }
    recorded = program.recorded_on(bound)
    places = [address(inputs[i].value, inputs[i]) for i in program.expected]
    places += [address(value, None) for value in program.program.results]
    recorded.place(places)
    found = []
    for step, alone in recorded.separate():
        seconds = device.seconds(alone)
        instruction = step.instruction
        found.append(
            StepTiming(
                seconds,
                not isinstance(step, KernelLaunch),
                _bytes(instruction),
                _operations(instruction),
                instruction,
            )
        )
    return found


def _made_up(value: Any, given: Input | None) -> Any:
    """Made-up numbers for the memory of a value: integers are zeros, which are valid indices."""
    if given is None:
        return np.zeros(size_of(value.shape), value.dtype)
    steps = [(n - 1) * abs(s) for n, s in zip(value.shape, given.strides, strict=True) if n > 1]
    count = sum(steps) + 1
    if numeric.is_exact(value.dtype):
        return np.zeros(count, value.dtype)
    return np.random.default_rng(0).uniform(0.1, 0.9, count).astype(value.dtype)


def _bytes(instruction: Instruction) -> int:
    """The bytes of all elements that are read or written, each counted once."""
    if isinstance(instruction, Loop):
        reads = [node.access for node in instruction.nodes if isinstance(node, Read)]
        written = [store.access for store in instruction.stores]
        written += [fold.access for fold in instruction.folds]
        written += [instruction.scan.access] if instruction.scan is not None else []
        return sum(_touched(access, instruction.shape) for access in (*reads, *written))
    found = {value.number: value for value in (*instruction.reads(), *instruction.writes())}
    return sum(map(bytes_of, found.values()))


def _touched(access: Access, shape: tuple[int, ...]) -> int:
    count = size_of(tuple(n for n, s in zip(shape, access.strides, strict=False) if s))
    count = max(count, size_of(shape)) if access.picks else count
    return min(count * int(access.value.dtype.itemsize), bytes_of(access.value))


def _operations(instruction: Instruction) -> int:
    if isinstance(instruction, Attention):
        scores = (*instruction.batch, instruction.queries, instruction.keys)
        wide, products = instruction.features, 5 if instruction.backward else 2
        return products * 2 * wide * size_of(scores) // (2 if instruction.causal else 1)
    if not isinstance(instruction, Product):
        return 0
    sizes = (*instruction.batch, instruction.rows, instruction.inner, instruction.columns)
    return 2 * size_of(sizes)
