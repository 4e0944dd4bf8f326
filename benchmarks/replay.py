"""Compiled training steps against torch eager, torch.compile and jax.jit: the main table.

For every row, all libraries take turns in one process. What needs a fresh process (the first calls
with an empty cache, peak memory) is measured by `child.py`.
"""

from __future__ import annotations

import functools
import inspect
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import torch

import tapegrad

from .measure import Columns, Report, callbacks, duration, interleaved, verdict
from .models import MODELS, tiny_chain, tiny_step
from .peers import Absent, compiled_by_jax, compiled_by_torch
from .problems import Problem, normal

#: the largest (replay / best peer, eager / torch eager) of each model
TARGETS = {
    "MLP": (0.8, 0.8),
    "CNN": (0.6, 1.0),
    "GPT": (0.65, 1.0),
    "gelu": (0.5, 0.6),
    "RNN": (0.65, 0.8),
}
MLP_WITHOUT_GRADS = 0.7
GEOMETRIC_MEAN = 0.62

PEERS = ("torch eager", "torch.compile", "jax.jit")
WITHOUT_GRADS = "keep_grads=False"


def compiled(problem: Problem, **options: Any) -> tuple[Any, Callable[[], Any]]:
    """A problem's step under tapegrad.compile, and a call of it."""
    step = tapegrad.compile(problem.step, **options)
    return step, functools.partial(step, *problem.inputs)


def candidates(name: str) -> tuple[dict[str, Callable[[], Any]], Any]:
    """The functions to time for a model, and the compiled one."""
    step, replay = compiled(MODELS[name](tapegrad))
    found: dict[str, Callable[[], Any]] = {"torch eager": MODELS[name](torch)}
    peers = {
        "torch.compile": lambda: compiled_by_torch(MODELS[name](torch)),
        "jax.jit": lambda: compiled_by_jax(name),
    }
    for peer, make in peers.items():
        try:
            found[peer] = make()
        except Absent as reason:
            print(f"{name}: {peer} is left out: {reason}", flush=True)
    found |= {"eager": MODELS[name](tapegrad), "replay": replay}
    if name == "MLP" and "keep_grads" in inspect.signature(tapegrad.compile).parameters:
        found[WITHOUT_GRADS] = compiled(MODELS[name](tapegrad), keep_grads=False)[1]
    return found, step


def measure_models(report: Report, rounds: int = 8) -> None:
    names = ("step", *PEERS, "eager", "replay")
    table = Columns(*names, "replay / peer", "eager / torch", width=18, first=20)
    ratios: list[float] = []
    counts: dict[str, int] = {}
    for name, (replay_target, eager_target) in TARGETS.items():
        functions, step = candidates(name)
        times = interleaved(functions, rounds)
        best = min(times[p] for p in PEERS if p in times)
        ratios.append(times["replay"] / best)
        counts[name] = callbacks(step)
        table.row(
            name,
            *(duration(times.get(column)) for column in names[1:]),
            verdict(ratios[-1], replay_target),
            verdict(times["eager"] / times["torch eager"], eager_target),
        )
        if WITHOUT_GRADS in times:
            ratio = verdict(times[WITHOUT_GRADS] / best, MLP_WITHOUT_GRADS)
            table.row(f"  {WITHOUT_GRADS}", *[""] * 4, duration(times[WITHOUT_GRADS]), ratio)
    mean = statistics.geometric_mean(ratios)
    report.add("replay / best peer, geometric mean", "", mean, GEOMETRIC_MEAN)
    for name, count in counts.items():
        report.add(f"callbacks in the {name} step", "", count, 0)


def child(*arguments: str, **environment: str) -> list[float]:
    """The numbers that `child.py` prints in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.child", *arguments]
    output = subprocess.check_output(command, env={**os.environ, **environment}, text=True)
    return [float(word) for word in output.splitlines()[-1].split()]


def measure_first_calls(report: Report, repeats: int = 3) -> None:
    cold: list[float] = []
    warm: list[float] = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            cold += child("first", "GPT", TAPEGRAD_CACHE=folder)
            warm += child("first", "GPT", TAPEGRAD_CACHE=folder)
    what = f"median of {repeats} processes"
    report.add("GPT, calls until replay, no cache", what, statistics.median(cold), 4.0, " s")
    report.add("GPT, calls until replay, warm cache", what, statistics.median(warm), 1.0, " s")


def measure_memory(report: Report) -> None:
    for name in ("GPT", "CNN"):
        theirs, mine = child("memory", name, "torch"), child("memory", name, "replay")
        figures = [
            f"tapegrad {m / 2**20:.1f} MB, torch {t / 2**20:.1f} MB"
            for m, t in zip(mine, theirs, strict=True)
        ]
        report.add(f"peak memory of {name} replays", figures[0], mine[0] / theirs[0], 1.0)
        report.say("  recording and compiling included", figures[1])


def measure_tiny(report: Report) -> None:
    chain, problem = tiny_chain(tapegrad), tiny_step(tapegrad)
    measured: dict[str, tuple[Any, Any]] = {
        "50 ops of 10 elements": (chain, (normal(tapegrad, 10),)),
        "with backward and SGD": (problem.step, problem.inputs),
    }
    for what, (function, inputs) in measured.items():
        replay = functools.partial(tapegrad.compile(function), *inputs)
        eager = functools.partial(function, *inputs)
        times = interleaved({"replay": replay, "eager": eager}, 10, 200)
        figures = f"eager {times['eager'] * 1e6:.0f} µs"
        report.add(f"compiled, {what}", figures, times["replay"] * 1e6, 15, " µs")


def run(report: Report) -> None:
    measure_models(report)
    measure_tiny(report)
    measure_first_calls(report)
    measure_memory(report)
