"""Residence: the device of a recorded program, and which of its values are in host memory.

Comes in: a program, and the devices of its values on GPUs. Goes out: the program with `device` and
`host` set, or the reason why it cannot be replayed. A program for a GPU has two kinds of values in
host memory, as eager code does: numbers, which are 0-d tensors, and states of generators. Host
values are computed from host values alone, so a target can compute them before it starts the GPU.
Called by `capture.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ...core.device import CPU, Device
from ...core.primitive import Primitive
from ...core.tape import Value
from ..ir.program import Program


def several_devices(found: Iterable[Device]) -> str:
    """The reason not to replay a call that mixes devices."""
    names = " and ".join(sorted(map(str, found)))
    return f"it works on tensors of several devices ({names}); move them to one before the call"


def placed(
    program: Program, places: Mapping[int, Device], known: Iterable[int]
) -> tuple[Program, str | None]:
    """The program with its device and host values, and why it cannot be replayed, or None.

    `places` has the devices, by number, of values that are not in host memory; `known` has the
    numbers of inputs that are states of generators.
    """
    values = {value.number: value for value in _values(program)}
    devices = {places[number] for number in values if number in places}
    if not devices:
        return program, None
    host = frozenset(number for number in values if number not in places)
    states = _states(program, host, known)
    whole = [n for n in host if values[n].shape and n not in states]
    returns = any(  # an instruction computes a host value from a value on a GPU
        any(v.number in host for v in x.outputs) and any(v.number in places for v in x.reads())
        for x in program.applied()
    )
    if len(devices) > 1 or whole or returns:
        return program, several_devices({*devices, CPU} if whole or returns else devices)
    (device,) = devices
    return replace(program, device=device, host=host), None


def draws(primitive: Primitive) -> bool:
    """Whether a primitive takes the state of a generator, which is in host memory."""
    return "state" in primitive.inputs


def _states(program: Program, host: frozenset[int], known: Iterable[int]) -> set[int]:
    """The states of generators: host values that draws read or write, and their copies."""
    states = set(known)
    others = [{to.number, value.number} for to, value in program.writes]
    for x in program.applied():
        touched = {value.number for value in (*x.reads(), *x.outputs)}
        if draws(x.primitive):
            states |= touched & host
        elif touched <= host:
            others.append(touched)
    count = -1
    while count != len(states):
        count = len(states)
        states.update(*(touched for touched in others if touched & states))
    return states


def _values(program: Program) -> Iterator[Value]:
    yield from (given.value for given in program.inputs)
    yield from (value for value, _ in program.constants)
    for x in program.applied():
        yield from x.outputs
