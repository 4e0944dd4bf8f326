"""Eager operations on 10 to 1,000 elements against PyTorch, on one thread.

`python -m benchmarks small` measures the families of `small_cases.py`, forward and with backward.
`--family=products` selects families and `--only=cat` operations by a part of their name; `--all`
prints every operation instead of the slowest. Libraries take turns, each in a process of its own; a
time is that of the fastest of many blocks of calls, over all turns. Relative to PyTorch's time, the
geometric mean of a family should be at most `MEAN`, an operation `WORST`, a training step `STEP`.
"""

from __future__ import annotations

import statistics
import sys

from .grow import ask
from .measure import Report, duration
from .small_cases import FAMILIES

MEAN, WORST = 1.0, 1.5
TURNS = 2
#: seconds for each operation, size and direction in a turn
SECONDS = 0.015
#: the number of operations printed for each family
SHOWN = 6


STEP = 1.0
STEP_SECONDS = 0.5


def run(report: Report) -> None:
    wanted = _option("--family=")
    for family in FAMILIES:
        if wanted in family:
            _family(report, family)
    if wanted in "training steps":
        _steps(report)


def _option(name: str) -> str:
    return next((word.removeprefix(name) for word in sys.argv if word.startswith(name)), "")


def _times(label: str, seconds: float, **job: str) -> tuple[dict[str, float], dict[str, float]]:
    """The fastest times of PyTorch and of tapegrad."""
    theirs: dict[str, float] = {}
    mine: dict[str, float] = {}
    for _ in range(TURNS):
        for library, best in (("torch", theirs), ("tapegrad", mine)):
            options = {"library": library, "only": _option("--only="), "seconds": seconds}
            found = ask(f"{label}, {library}", threads=1, **options, **job) or {}
            for key, value in found.items():
                best[key] = min(best.get(key, value), value)
    return theirs, {key: value for key, value in mine.items() if key in theirs}


def _family(report: Report, family: str) -> None:
    theirs, mine = _times(family, SECONDS, job="small", family=family)
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


def _steps(report: Report) -> None:
    theirs, mine = _times("training steps", STEP_SECONDS, job="small steps")
    for name, seconds in mine.items():
        figures = f"tapegrad {duration(seconds)}, torch {duration(theirs[name])}"
        report.add(name, figures, seconds / theirs[name], STEP)
