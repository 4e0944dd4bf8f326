"""Eager mode against PyTorch: small operations, a long tape, memory, import."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
import tracemalloc
from types import ModuleType
from typing import Any

import torch

import tapegrad

from .measure import Report, interleaved
from .models import MODELS
from .problems import Problem


def chain(lib: ModuleType, length: int = 200) -> Any:
    """A chain of mul and add on 10-element tensors, forward and backward."""
    x = lib.ones(10, requires_grad=True)
    a = lib.full((10,), 1.001, requires_grad=True)
    b = lib.full((10,), 0.001, requires_grad=True)

    def run() -> None:
        y = x
        for _ in range(length // 2):
            y = y * a
            y = y + b
        y.sum().backward()

    return run


def measure_chain(report: Report) -> None:
    times = interleaved({"torch": chain(torch), "tapegrad": chain(tapegrad)}, rounds=20)
    mine, theirs = times["tapegrad"] / 200 * 1e6, times["torch"] / 200 * 1e6
    figures = f"tapegrad {mine:.2f} µs, torch {theirs:.2f} µs per op"
    report.add("chain of 200 mul/add, fwd+bwd", figures, mine / theirs, 0.75)


def measure_long_tape(report: Report, length: int = 400_000) -> None:
    times: dict[str, float] = {}
    for name, lib in (("torch", torch), ("tapegrad", tapegrad)):
        run = chain(lib, length)
        gc.collect()
        start = time.perf_counter()
        run()
        times[name] = time.perf_counter() - start
        gc.collect()
    figures = f"tapegrad {times['tapegrad']:.2f} s, torch {times['torch']:.2f} s"
    report.add(f"tape of {length} ops, time", figures, times["tapegrad"] / times["torch"], 1.0)

    x = tapegrad.ones(10, requires_grad=True)
    a = tapegrad.full((10,), 1.001, requires_grad=True)
    tracemalloc.start()
    y = x
    count = 40_000
    for _ in range(count // 2):
        y = y * a
        y = y + a
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    report.add("bytes per recorded op", f"{count} ops measured", used / count, 700)
    y.sum().backward()


def measure_million(report: Report) -> None:
    x = tapegrad.ones(1, requires_grad=True)
    start = time.perf_counter()
    y = x
    for _ in range(1_000_000):
        y = y + 1.0
    y.sum().backward()
    seconds = time.perf_counter() - start
    assert x.grad.item() == 1.0
    del y
    report.say("chain of 1,000,000 ops", f"differentiated in {seconds:.1f} s")


def kept_by_torch(problem: Problem) -> int:
    """Bytes that PyTorch saves for backward; each storage counts once."""
    sizes: dict[int, int] = {}

    def pack(t: Any) -> Any:
        sizes[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        loss = problem.loss(*problem.inputs)
    del loss
    return sum(sizes.values())


def kept_by_tapegrad(problem: Problem) -> int:
    """The same for tapegrad, over the entries reachable from the loss."""
    from tapegrad.core.tape import entries_of
    from tapegrad.insight.memory import memory_stats

    return memory_stats(entries_of(problem.loss(*problem.inputs))).saved_bytes


def measure_kept(report: Report) -> None:
    for name in ("MLP", "CNN"):
        ours, theirs = kept_by_tapegrad(MODELS[name](tapegrad)), kept_by_torch(MODELS[name](torch))
        figures = f"tapegrad {ours / 2**20:.3f} MB, torch {theirs / 2**20:.3f} MB"
        report.add(f"kept for backward by the {name}", figures, ours / theirs, 1.0)


def measure_import(report: Report) -> None:
    code = (
        "import time, numpy; t = time.perf_counter(); import tapegrad;"
        "print(time.perf_counter() - t)"
    )
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    seconds = [
        float(subprocess.check_output([sys.executable, "-c", code], env=environment))
        for _ in range(7)
    ]
    best = sorted(seconds)[len(seconds) // 2]
    report.add("import, above numpy's", "median of 7", best, 0.05, " s")


def run(report: Report) -> None:
    measure_chain(report)
    measure_kept(report)
    measure_import(report)
    measure_long_tape(report)
    measure_million(report)
