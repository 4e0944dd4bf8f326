"""Compiled and eager training steps, each library in a process of its own.

A time is the better median of two turns. `run_compiled` compares tapegrad's compiled steps with
torch eager, torch.compile and jax.jit. A line holds if tapegrad takes at most `COMPILED` times as
long as the best peer, or at most `ABOVE_FLOOR` times as long as the floor (`grow_floor.py`).
`run_eager` compares eager steps, `run_memory` the peak memory of compiled steps with that of
PyTorch's eager steps. The first loss of every library must equal PyTorch's to 0.1%.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any

from .grow_models import EAGER, MODELS
from .measure import Columns, Report, duration, verdict

PEERS = ("torch eager", "torch.compile", "jax.jit")
COMPILED, ABOVE_FLOOR = 0.85, 1.15
EAGER_EACH, EAGER_MEAN = 1.0, 0.75
MEMORY = 0.8
TURNS = 2

Ask = Callable[..., Any]


def run_compiled(report: Report, ask: Ask) -> None:
    """The table of compiled steps."""
    libraries = ("tapegrad", *PEERS)
    peers: tuple[str, ...] = PEERS
    if reason := _no_compiler():
        print(f"torch.compile is left out: {reason}", flush=True)
        peers = tuple(peer for peer in PEERS if peer != "torch.compile")
    heads = ("ratio", "floor", "time/floor", "callbacks", "")
    table = Columns("compiled step", *libraries, *heads, width=15)
    for model in chosen(MODELS):
        times, found = turns(ask, model, ("tapegrad", *peers), 0.02 if small() else 2.0)
        lowest = _floor(ask, model)
        best = min((times[peer] for peer in peers if peer in times), default=None)
        mine = times.get("tapegrad")
        ratio = mine / best if mine and best else None
        above = mine / lowest if mine and lowest else None
        table.row(
            model,
            *(duration(times.get(library)) for library in libraries),
            shown(ratio),
            duration(lowest),
            shown(above),
            str(found.get("tapegrad", {}).get("callbacks", "-")),
            judged(ratio, above),
        )


def shown(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def judged(ratio: float | None, above: float | None) -> str:
    """Whether one of the two limits holds; a dash if neither was measured."""
    if ratio is None and above is None:
        return "-"
    met = (ratio is not None and ratio <= COMPILED) or (above is not None and above <= ABOVE_FLOOR)
    return "holds" if met else "MISSED"


def run_eager(report: Report, ask: Ask) -> None:
    """The table of eager steps."""
    libraries = ("tapegrad eager", "torch eager")
    table = Columns("eager step", *libraries, "ratio", width=18)
    ratios = []
    for model in chosen(EAGER):
        times, _ = turns(ask, model, libraries, 0.02 if small() else 1.0)
        ratio = None
        if len(times) == len(libraries):
            ratio = times["tapegrad eager"] / times["torch eager"]
            ratios.append(ratio)
        table.row(
            model,
            *(duration(times.get(library)) for library in libraries),
            "-" if ratio is None else verdict(ratio, EAGER_EACH),
        )
    if ratios:
        report.add("geometric mean", "", statistics.geometric_mean(ratios), EAGER_MEAN)


def turns(
    ask: Ask, model: str, libraries: Sequence[str], seconds: float
) -> tuple[dict[str, float], dict[str, Any]]:
    """The shortest median of each library, and the answer of its last turn.

    A library that fails, or whose first loss is not PyTorch's, has no median.
    """
    times: dict[str, float] = {}
    found: dict[str, Any] = {}
    failed: set[str] = set()
    for _ in range(TURNS):
        for library in libraries:
            if library in failed:
                continue
            job = {"job": "step", "library": library, "model": model, "small": small()}
            answer = ask(f"{model}, {library}", **job, seconds=seconds)
            if answer is None:
                failed.add(library)
            else:
                found[library] = answer
                times[library] = min(times.get(library, answer["seconds"]), answer["seconds"])
    expected = found.get("torch eager", {}).get("loss")
    for library, answer in found.items():
        if expected is not None and abs(answer["loss"] - expected) > 1e-3 * abs(expected):
            print(f"{model}, {library}: loss {answer['loss']}, PyTorch has {expected}", flush=True)
            failed.add(library)
    return {key: value for key, value in times.items() if key not in failed}, found


def chosen(models: Sequence[str] | dict[str, Any]) -> list[str]:
    """The models to measure: all, or those whose name contains the word of an `--only=`."""
    only = [word.removeprefix("--only=") for word in sys.argv if word.startswith("--only=")]
    return [model for model in models if not only or any(word in model for word in only)]


def small() -> bool:
    return "--small" in sys.argv


def _no_compiler() -> str:
    """Why torch.compile cannot run here, if it cannot."""
    compiler = os.environ.get("CXX", "g++")
    return "" if shutil.which(compiler) else f"there is no C++ compiler ({compiler})"


def _floor(ask: Ask, model: str) -> float | None:
    seconds = 0.005 if small() else 0.1
    found = ask(f"{model}, floor", job="floor", model=model, small=small(), seconds=seconds)
    return found["products"] + found["memory"] if found else None


def run_memory(report: Report, ask: Ask) -> None:
    """The table of peak memory, without parameters, gradients and optimizer state."""
    libraries = ("tapegrad", "torch eager")
    table = Columns("peak of a step", *libraries, "ratio", width=18)
    for model in chosen(MODELS):
        found: dict[str, float] = {}
        # The first process may compile kernels, and the compiler keeps some memory afterwards.
        for library in libraries * TURNS:
            label = f"{model}, memory, {library}"
            answer = ask(label, job="memory", library=library, model=model, small=small())
            if answer is not None:
                taken = answer["bytes"] / 1e6
                found[library] = min(taken, found.get(library, taken))
        ratio = found["tapegrad"] / found["torch eager"] if len(found) == len(libraries) else None
        table.row(
            model,
            *(f"{found[one]:.1f} MB" if one in found else "-" for one in libraries),
            "-" if ratio is None else verdict(ratio, MEMORY),
        )
