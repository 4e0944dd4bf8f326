"""How things are timed here: all candidates in turn, many rounds, medians.

Comes in: a name and a function for each library. Goes out: the median seconds of each. Taking
turns lets a slow moment of the machine hit everybody. A turn is a block of calls, of which the
first are not counted: the thread pools of two libraries need a moment to leave the cores to each
other (calls that alternate one by one take six times as long, in both).
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable


def interleaved(
    candidates: dict[str, Callable[[], object]],
    rounds: int,
    block: int = 20,
    settle_seconds: float = 0.05,
) -> dict[str, float]:
    """Median seconds of one call of each candidate, over all calls of all rounds."""
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(rounds):
        for name, function in candidates.items():
            gc.collect()
            start = time.perf_counter()
            while time.perf_counter() - start < (settle_seconds if turn else 10 * settle_seconds):
                function()
            for _ in range(block):
                start = time.perf_counter()
                function()
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


class Report:
    """Rows of one table: what was measured, the figures, and whether the target holds."""

    def add(self, what: str, figures: str, value: float, target: float, unit: str = "") -> None:
        verdict = "holds" if value <= target else "MISSED"
        shown = f"{value:.3g}{unit}"
        print(f"{what:<40} {figures:<46} {shown:>8}  <= {target:g}{unit}  {verdict}", flush=True)

    def say(self, what: str, figures: str) -> None:
        print(f"{what:<40} {figures}", flush=True)
