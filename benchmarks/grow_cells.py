"""Times of many cells in several libraries, for the suites that compare rates cell by cell.

Comes in: the name of a job of `grow_child.py`, its settings, and cells. Goes out: GFLOP/s of each
library and cell, and ratios. Called by `grow_products.py` and `grow_convolutions.py`.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar

from .measure import Columns

C = TypeVar("C", bound=Hashable)


def thread_counts() -> list[int]:
    """One thread and all cores, or the counts of `--threads=2`."""
    asked = [a.removeprefix("--threads=") for a in sys.argv if a.startswith("--threads=")]
    return sorted(map(int, asked)) if asked else sorted({1, len(os.sched_getaffinity(0))})


class Times(Generic[C]):
    """The shortest seconds of every library and cell, for one job and its settings.

    `operations` counts the floating-point operations of a cell. A ratio is the rate of the first
    library divided by the best of the others.
    """

    def __init__(
        self,
        ask: Callable[..., Any],
        job: str,
        libraries: Sequence[str],
        operations: Callable[[C], float],
        **settings: Any,
    ) -> None:
        self.ask, self.job, self.libraries = ask, job, libraries
        self.operations, self.settings = operations, settings
        self.best: dict[tuple[str, C], float] = {}

    @property
    def title(self) -> str:
        threads, dtype = self.settings["threads"], self.settings.get("dtype")
        counted = f"{threads} thread{'s' if threads > 1 else ''}"
        return f"{dtype}, {counted}" if dtype else counted

    def measure(self, cells: Sequence[C]) -> None:
        """Measure each cell once in every library, cell by cell."""
        for cell in cells:
            for library in self.libraries:
                label = f"{self.job}, {library}, {self.title}"
                found = self.ask(
                    label, job=self.job, library=library, cells=[cell], **self.settings
                )
                if found:
                    (seconds,) = found["seconds"]
                    key = (library, cell)
                    self.best[key] = min(self.best.get(key, math.inf), seconds)

    def measure_low(self, cells: Sequence[C], low: float, times: int) -> None:
        """Measure cells whose ratio is below `low` again, up to `times` times."""
        for _ in range(times):
            if some := [cell for cell in cells if self.ratio(cell) < low]:
                self.measure(some)

    def rate(self, library: str, cell: C) -> float:
        """GFLOP/s; NaN if nothing was measured."""
        return 1e-9 * self.operations(cell) / self.best.get((library, cell), math.nan)

    def ratio(self, cell: C) -> float:
        """The first library's rate divided by the best of the others; NaN if either is missing."""
        first, *others = self.libraries
        known = [r for r in (self.rate(o, cell) for o in others) if not math.isnan(r)]
        return self.rate(first, cell) / max(known) if known else math.nan

    def ratios(self, cells: Sequence[C]) -> dict[C, float]:
        """The ratios of the cells that have one."""
        found = {cell: self.ratio(cell) for cell in cells}
        return {cell: ratio for cell, ratio in found.items() if not math.isnan(ratio)}

    def show(self, ratios: dict[C, float], name: Callable[[C], str], few: int, width: int) -> None:
        """Print the cells with the lowest ratios, or with `--all` every cell in order."""
        order = (
            list(ratios) if "--all" in sys.argv else sorted(ratios, key=ratios.__getitem__)[:few]
        )
        table = Columns("cell (GFLOP/s)", *self.libraries, "ratio", width=12, first=width)
        for cell in order:
            rates = (f"{self.rate(library, cell):.1f}" for library in self.libraries)
            table.row(name(cell), *rates, f"{ratios[cell]:.2f}")
