"""How things are timed here: all candidates in turn, many rounds, medians.

Comes in: a name and a function for each library. Goes out: the median seconds of each. Taking turns
lets a slow moment of the machine hit everybody.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable


def interleaved(
    candidates: dict[str, Callable[[], object]], rounds: int, warmup: int = 3
) -> dict[str, float]:
    """Median seconds of one call of each candidate."""
    for function in candidates.values():
        for _ in range(warmup):
            function()
    times: dict[str, list[float]] = {name: [] for name in candidates}
    gc.collect()
    for _ in range(rounds):
        for name, function in candidates.items():
            start = time.perf_counter()
            function()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


class Report:
    """Rows of one table: what was measured, the figures, and whether the target holds."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, str, str]] = []

    def add(self, what: str, figures: str, value: float, target: float, unit: str = "") -> None:
        verdict = "holds" if value <= target else "MISSED"
        self.rows.append((what, figures, f"{value:.3g}{unit}", f"<= {target:g}{unit}  {verdict}"))
        self.show(self.rows[-1])

    def show(self, row: tuple[str, str, str, str]) -> None:
        print(f"{row[0]:<44} {row[1]:<48} {row[2]:>10}  {row[3]}", flush=True)
