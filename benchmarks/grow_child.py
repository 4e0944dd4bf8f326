"""`python -m benchmarks.grow_child`: jobs of the suite `grow`, in a process of its own.

Comes in: jobs as lines of JSON on standard input. Goes out: the answer to each, as a line of JSON.
A library is imported only in the processes that measure it (torch also in those of JAX, where it
makes the initial parameters): its threads would spin on the cores that another library needs.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from . import gpu_steps, grow_convolutions, grow_products
from .child import forget_peak, give_back, resident
from .grow_models import made
from .measure import alone, callbacks
from .peers import Absent, Step, started_by_torch
from .problems import Problem
from .small_cases import measured as small
from .small_cases import measured_steps as small_steps

#: calls after which every step is replayed
RECORDED = 4


@dataclass
class Started:
    """A step that has run at least once."""

    problem: Problem
    run: Step
    loss: float
    callbacks: int = 0


def step(library: str, model: str, small: bool, seconds: float) -> dict[str, Any]:
    """Seconds of a training step, its first loss and its number of callbacks."""
    started = STARTERS[library](model, small)
    spent = alone(started.run, seconds)
    return {"seconds": spent, "loss": started.loss, "callbacks": started.callbacks}


def memory(library: str, model: str, small: bool) -> dict[str, Any]:
    """Peak bytes of a step, without parameters, gradients and optimizer state."""
    start = STARTERS[library]
    start(model, True)  # what the library loads at first use does not count
    before = resident("VmRSS")
    started = start(model, small)
    give_back()
    forget_peak()
    for _ in range(3):
        started.run()
    peak = resident("VmHWM")
    known = 2 * 4 * sum(math.prod(p.shape) for p in started.problem.parameters.values())
    optimizer = started.problem.optimizer
    for state in optimizer.state.values() if optimizer is not None else ():
        known += sum(4 * math.prod(x.shape) for x in state.values() if hasattr(x, "shape"))
    return {"bytes": peak - before - known}


def floor(model: str, small: bool, seconds: float) -> Any:
    """Seconds of a step's products alone, and of one pass over its state."""
    from . import grow_floor

    return grow_floor.floor(model, small, seconds)


# -- starting a step of each library --------------------------------------------------------------


def _eager(lib: ModuleType, model: str, small: bool) -> Started:
    problem = made(lib, model, small)
    return Started(problem, problem, problem().item())


def _tapegrad_eager(model: str, small: bool) -> Started:
    import tapegrad

    return _eager(tapegrad, model, small)


def _torch_eager(model: str, small: bool) -> Started:
    import torch

    return _eager(torch, model, small)


def _tapegrad_compiled(model: str, small: bool) -> Started:
    import tapegrad

    problem = made(tapegrad, model, small)
    compiled = tapegrad.compile(problem.step)

    def run() -> Any:
        return compiled(*problem.inputs)

    loss = run().item()
    for _ in range(RECORDED - 1):
        run()
    if not any(replay.count for replay in compiled.replays):
        raise Absent(f"it was not replayed: {compiled.explain()}")
    return Started(problem, run, loss, callbacks(compiled))


def _torch_compiled(model: str, small: bool) -> Started:
    import torch

    problem = made(torch, model, small)
    return Started(problem, *started_by_torch(problem))


def _jax(model: str, small: bool) -> Started:
    import torch

    from . import grow_jax

    problem = made(torch, model, small)
    run = grow_jax.step(model, problem)
    return Started(problem, run, float(run()))


STARTERS: dict[str, Callable[[str, bool], Started]] = {
    "tapegrad": _tapegrad_compiled,
    "tapegrad eager": _tapegrad_eager,
    "torch eager": _torch_eager,
    "torch.compile": _torch_compiled,
    "jax.jit": _jax,
}

JOBS: dict[str, Callable[..., Any]] = {
    "step": step,
    "memory": memory,
    "floor": floor,
    "small": small,
    "small steps": small_steps,
    "products": grow_products.measured,
    "convolutions": grow_convolutions.measured,
    "gpu": gpu_steps.measured,
}


def main() -> None:
    # Send what libraries print to standard error: standard output is for answers only.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for line in sys.stdin:
        job = json.loads(line)
        try:
            found = JOBS[job.pop("job")](**job)
        except Absent as reason:
            found = {"absent": str(reason)}
        print(json.dumps(found), file=answers, flush=True)


if __name__ == "__main__":
    main()
