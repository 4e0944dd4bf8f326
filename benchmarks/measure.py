"""Timing: all candidates take turns in many rounds, and medians count.

Comes in: a name and a function for each library. Goes out: the median seconds of each. Because of
the turns, a slow moment of the machine affects all candidates. A turn is a block of calls, of which
the first are not counted: the thread pools of two libraries need a moment to leave the cores to
each other (calls that alternate one by one take six times as long, in both; JAX's MLP step takes
700 µs in the first 0.05 s of its turn and 475 µs after 0.1 s).
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from typing import Any


def interleaved(
    candidates: dict[str, Callable[[], object]],
    rounds: int,
    block: int = 20,
    settle_seconds: float = 0.15,
    least_seconds: float = 0.1,
    most_seconds: float = 0.5,
) -> dict[str, float]:
    """Median seconds of one call of each candidate, over all calls of all rounds.

    A turn counts `block` calls, and more if they take less than `least_seconds`: a disturbance of a
    few milliseconds must not be most of a turn. It ends after `most_seconds` at the latest.
    """
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(rounds):
        for name, function in candidates.items():
            gc.collect()
            start = time.perf_counter()
            while time.perf_counter() - start < (settle_seconds if turn else 3 * settle_seconds):
                function()
            began = stop = time.perf_counter()
            counted = times[name]
            enough = len(counted) + block
            while stop < began + (most_seconds if len(counted) < enough else least_seconds):
                start = time.perf_counter()
                function()
                stop = time.perf_counter()
                counted.append(stop - start)
    return {name: statistics.median(values) for name, values in times.items()}


def callbacks(step: Any) -> int:
    """The number of operations of a compiled function that run as NumPy callbacks."""
    return sum(len(replay.executable.callbacks) for replay in step.replays if replay.executable)


def check_native(step: Any) -> None:
    """Raise unless a compiled function is replayed and all of it is native code."""
    if callbacks(step) or not any(replay.count for replay in step.replays):
        raise ValueError(f"not all of it is native code:\n{step.explain(full=True)}")


def alone(function: Callable[[], object], seconds: float, least_calls: int = 3) -> float:
    """Median seconds of a call, for a process in which no other library runs.

    Calls run for a third of `seconds` as warm-up, then for `seconds`; at least `least_calls` count.
    """
    start = time.perf_counter()
    while time.perf_counter() - start < seconds / 3:
        function()
    times: list[float] = []
    began = stop = time.perf_counter()
    while stop < began + seconds or len(times) < least_calls:
        start = time.perf_counter()
        function()
        stop = time.perf_counter()
        times.append(stop - start)
    return statistics.median(times)


class Report:
    """Rows of one table: what was measured, the figures, and whether the target holds."""

    def add(
        self,
        what: str,
        figures: str,
        value: float,
        target: float,
        unit: str = "",
        at_least: bool = False,
    ) -> None:
        """Print a row; the value should be at most the target, or with `at_least` not below it."""
        verdict = "holds" if (value >= target if at_least else value <= target) else "MISSED"
        limit = f"{'>=' if at_least else '<='} {target:g}{unit}"
        print(f"{what:<40} {figures:<46} {f'{value:.3g}{unit}':>8}  {limit}  {verdict}", flush=True)

    def say(self, what: str, figures: str) -> None:
        print(f"{what:<40} {figures}", flush=True)


def duration(seconds: float | None) -> str:
    """Seconds as µs or ms; a dash if nothing was measured."""
    if seconds is None:
        return "-"
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} µs"
    return f"{seconds * 1e3:.2f} ms"


def verdict(value: float, target: float) -> str:
    """A ratio with its target, and a mark if it misses the target."""
    return f"{value:.2f} {'<=' if value <= target else 'MISSED'} {target:g}"


class Columns:
    """A table of fixed columns, printed row by row."""

    def __init__(self, *names: str, width: int = 14, first: int = 28) -> None:
        self.first, self.width = first, width
        self.row(*names)

    def row(self, *cells: str) -> None:
        head, *rest = cells
        print(f"{head:<{self.first}}" + "".join(f"{c:>{self.width}}" for c in rest), flush=True)
