"""Scale: predict the time of a compiled step on more processes than there are here.

Comes in: a replay, the numbers of ranks, and the latency and bandwidth of a network. Goes out: a
`Scaling`, which prints as a table. Kernels are timed on this machine, on made-up data. A message of
n bytes costs `latency + n / bandwidth`, and a collective is the faster of a ring and a tree of
messages. A collective runs beside the kernels between its start and its wait. Every rank does the
work of one rank here (weak scaling). Called by `Compiled.scale`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..cpu.emit import one_by_one
from ..cpu.executable import NativeProgram
from ..cpu.timing import measure
from ..ir.program import Callback, View, size_of
from .explain import values_of
from .replay import Replay


@dataclass(frozen=True, slots=True)
class Network:
    """The latency of a message in seconds, and the bandwidth in bytes per second."""

    latency: float
    bandwidth: float

    def seconds(self, kind: str, size: int, ranks: int) -> float:
        """The seconds that a collective on `size` bytes of each rank takes."""
        if ranks < 2:
            return 0.0
        steps, sent = math.ceil(math.log2(ranks)), size / self.bandwidth
        share = (ranks - 1) / ranks
        ring = (ranks - 1) * self.latency + share * sent
        tree = steps * (self.latency + sent)
        kind = kind.removesuffix("_start")
        if kind in ("all_reduce", "all_extreme", "reduce_from"):
            return min(2 * ring, tree, 2 * steps * self.latency + 2 * share * sent)
        if kind in ("reduce_scatter", "all_to_all"):
            return min(ring, steps * self.latency + share * sent)
        if kind in ("all_gather", "unshard", "gather_from", "gather_to"):  # `size` of each rank
            whole = (ranks - 1) * sent
            return min((ranks - 1) * self.latency, steps * self.latency) + whole
        if kind in ("broadcast", "reduce", "scatter_from"):
            return min(tree, ring + steps * self.latency)
        return self.latency + sent  # one message


@dataclass(frozen=True, slots=True)
class Prediction:
    """A step on so many ranks: seconds in collectives, waiting for them, and in total."""

    ranks: int
    communication: float
    waiting: float
    step: float

    @property
    def efficiency(self) -> float:
        """The time of a step without collectives, divided by the time with them."""
        return (self.step - self.waiting) / self.step if self.step else 1.0


class Scaling(list[Prediction]):
    """Predictions, one for each number of ranks; prints as a table."""

    def __init__(self, found: Sequence[Prediction], network: Network) -> None:
        super().__init__(found)
        self.network = network

    def __repr__(self) -> str:
        latency, bandwidth = self.network.latency * 1e6, self.network.bandwidth / 1e9
        lines = [
            f"predicted for a latency of {latency:g} µs and {bandwidth:g} GB/s",
            f"{'ranks':>6}{'step':>14}{'collectives':>14}{'waiting':>14}{'efficiency':>12}",
        ]
        for p in self:
            times = "".join(f"{t * 1e3:11.3f} ms" for t in (p.step, p.communication, p.waiting))
            lines.append(f"{p.ranks:>6}{times}{p.efficiency:12.1%}")
        return "\n".join(lines)


def scale(
    replay: Replay, ranks: Sequence[int], latency: float, bandwidth: float, overlap: bool
) -> Scaling:
    """Predict a replay's time on other numbers of ranks."""
    executable = replay.executable
    if not isinstance(executable, NativeProgram):
        raise RuntimeError("scale() needs a function that was replayed as native code")
    if not latency >= 0 or not bandwidth > 0:
        raise ValueError(
            f"latency must be seconds and bandwidth bytes a second, got {latency} and {bandwidth}"
        )
    if any(not isinstance(n, int) or n < 1 for n in ranks):
        raise ValueError(f"ranks must be positive integers, got {ranks}")
    timing = measure(executable, values_of(replay))
    if timing.why_not is not None:
        raise RuntimeError(f"the kernels could not be timed: {timing.why_not}")
    kernels = iter(timing.kernels)
    parts: list[Any] = [
        part if isinstance(part, Callback) else next(kernels) or 0.0
        for part in one_by_one(executable.emitted).segments
    ]
    network = Network(latency, bandwidth)
    return Scaling([_simulated(parts, n, network.seconds, overlap) for n in ranks], network)


def _simulated(
    parts: Sequence[Any],
    ranks: int,
    seconds: Callable[[str, int, int], float],
    overlap: bool,
) -> Prediction:
    """Simulate a program: kernels one after another, started collectives beside them."""
    now = free = waiting = communication = 0.0
    ends: dict[int, float] = {}  # by handle of a started collective: the second when it ends
    for part in parts:
        if not isinstance(part, Callback):
            now += part
            continue
        if part.primitive.half == "wait":
            end = ends.pop(part.inputs[0].root.number, now)
        elif part.primitive.collective:
            took = seconds(part.primitive.name, _bytes(part), ranks)
            communication += took
            end = max(now, free) + took
            free = end
            if part.primitive.half == "start" and overlap:
                ends[part.outputs[0].number] = end
                continue
        else:
            continue
        waiting += max(end - now, 0.0)
        now = max(now, end)
    return Prediction(ranks, communication, waiting, now)


def _bytes(part: Callback) -> int:
    """The bytes of a collective's operands on this rank."""
    given = [x for x in part.inputs if isinstance(x, View)]
    return sum(size_of(x.shape) * int(x.root.dtype.itemsize) for x in given)
