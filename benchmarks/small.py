"""Eager operations on 10 to 1,000 elements against PyTorch, on one thread.

`python -m benchmarks small` measures the families of `small_cases.py`, forward and with backward;
`--family=products` only those with such a name, `--only=cat` only such operations, `--all` prints
every operation instead of the slowest. Each library runs in a process of its own, in turn; a time
is that of the fastest of many blocks of calls, in all turns. A family's geometric mean should be at
most `MEAN` of PyTorch's time, and no operation above `WORST` of it.
"""

from __future__ import annotations

import statistics
import sys

from .grow import ask
from .measure import Report
from .small_cases import FAMILIES

MEAN, WORST = 1.0, 1.5
LIBRARIES = ("torch", "tapegrad")
TURNS = 2
#: seconds for each operation, size and direction in a turn
SECONDS = 0.015
#: how many operations are printed of each family
SHOWN = 6


def run(report: Report) -> None:
    wanted = _option("--family=")
    for family in FAMILIES:
        if wanted in family:
            _family(report, family)


def _option(name: str) -> str:
    return next((word.removeprefix(name) for word in sys.argv if word.startswith(name)), "")


def _family(report: Report, family: str) -> None:
    times: dict[str, dict[str, float]] = {library: {} for library in LIBRARIES}
    for _ in range(TURNS):
        for library, best in times.items():
            job = {"library": library, "family": family, "only": _option("--only=")}
            found = ask(f"{family}, {library}", job="small", threads=1, seconds=SECONDS, **job)
            if found is None:
                return
            for key, seconds in found.items():
                best[key] = min(best.get(key, seconds), seconds)
    theirs, mine = times["torch"], times["tapegrad"]
    ratios = {key: seconds / theirs[key] for key, seconds in mine.items()}
    if not ratios:
        return
    slowest = sorted(ratios, key=lambda key: -ratios[key])
    mean = statistics.geometric_mean(ratios.values())
    report.add(family, f"geometric mean of {len(ratios)}", mean, MEAN)
    for key in slowest if "--all" in sys.argv else slowest[:SHOWN]:
        name, size, direction = key.split("|")
        figures = f"tapegrad {mine[key] * 1e6:.2f} µs, torch {theirs[key] * 1e6:.2f} µs"
        report.add(f"  {name}, {size}, {direction}", figures, ratios[key], WORST)
