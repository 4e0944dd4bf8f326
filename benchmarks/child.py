"""`python -m benchmarks.child what model [library]`: numbers measured in a fresh process.

`first`: seconds of all calls of the compiled step up to and including the first replay.
`memory`: peak resident memory in bytes, minus that before the model was made: during the later
steps, and over all steps. A tiny model of the same library runs first, so that loading libraries,
thread pools and compilers does not count; the model, its gradients and its optimizer count. Before
the later steps, free memory is returned to the system, so what the first steps (for a compiled one,
recording and compiling) left behind is only in the second number.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from .models import MODELS
from .problems import Problem

STEPS = 12


def first_calls(name: str) -> float:
    """Seconds until a compiled step has been replayed once."""
    import tapegrad

    problem = MODELS[name](tapegrad)
    step = tapegrad.compile(problem.step)
    start = time.perf_counter()
    for _ in range(10):
        step(*problem.inputs)
        if any(replay.count for replay in step.replays):
            return time.perf_counter() - start
    raise SystemExit(f"{name} was not replayed:\n{step.explain()}")


def peak_memory(name: str, library: str) -> str:
    """Peak bytes that a model's later steps, and all its steps, add to the process."""
    stepper = replayed if library == "replay" else eager
    lib = import_module("tapegrad" if library == "replay" else library)
    repeat(stepper(MODELS["MLP"](lib, batch=2, width=4, hidden=4)))
    before = resident("VmRSS")
    forget_peak()
    step = stepper(MODELS[name](lib))
    repeat(step)
    whole = resident("VmHWM") - before
    give_back()
    forget_peak()
    repeat(step)
    return f"{resident('VmHWM') - before} {whole}"


def replayed(problem: Problem) -> Callable[[], Any]:
    import tapegrad

    step = tapegrad.compile(problem.step)
    return lambda: step(*problem.inputs)


def eager(problem: Problem) -> Callable[[], Any]:
    return problem


def repeat(step: Callable[[], Any]) -> None:
    for _ in range(STEPS):
        step()


def resident(field: str) -> int:
    """VmRSS (resident now) or VmHWM (peak resident) of this process, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"no {field} in /proc/self/status")


def forget_peak() -> None:
    """Reset VmHWM to the memory that is resident now."""
    Path("/proc/self/clear_refs").write_text("5")


def give_back() -> None:
    """Return free memory to the system."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    print({"first": first_calls, "memory": peak_memory}[what](*arguments))
