"""`tapegrad bench`: training steps on this machine, eager against replay, without other libraries.

Both alternate in blocks, so that a slow moment of the machine affects both; figures are medians.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

from .. import get_num_threads, manual_seed, nn, optim, randint, randn
from ..core.tensor import Tensor
from ..replay import compile
from . import digits, gpt, pinn
from .report import Report
from .training import FIRST, training_step

TURNS = 4

#: a module, its loss, and the inputs of a step
Case = tuple[Any, Callable[..., Tensor], tuple[Tensor, ...]]


def mlp() -> Case:
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
    inputs = (randn(64, 784), randint(0, 10, (64,)))
    return model, lambda x, y: nn.functional.cross_entropy(model(x), y), inputs


def cnn() -> Case:
    model = digits.make_model()
    inputs = (randn(64, 64), randint(0, 10, (64,)))
    return model, lambda x, y: digits.loss_of(model, x, y), inputs


def transformer() -> Case:
    model = gpt.Gpt(72)
    text = randint(0, 72, (1000,))
    return model, lambda x, y: gpt.loss_of(model, x, y), gpt.batch_of(text)


def equation() -> Case:
    model = pinn.Solution()
    return model, lambda: pinn.loss_of(model), ()


CASES: dict[str, Callable[[], Case]] = {
    "MLP 784-256-10, batch 64": mlp,
    "CNN of demo digits": cnn,
    "GPT of demo gpt": transformer,
    "network of demo pinn": equation,
}


def measure(case: Callable[[], Case], seconds: float) -> tuple[float, float, float]:
    """Seconds of an eager step, of a replayed one, and of the calls that compile."""
    manual_seed(0)
    model, loss, inputs = case()
    step = training_step(optim.AdamW(model.parameters(), lr=1e-4), loss)
    replayed: Callable[..., Tensor] = compile(step)
    start = time.perf_counter()
    for _ in range(FIRST):
        replayed(*inputs)
    compiling = time.perf_counter() - start
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(TURNS):
        for function, taken in zip((step, replayed), times, strict=True):
            function(*inputs)  # the first call of a block has cold caches
            end = time.perf_counter() + seconds / TURNS / 2
            while True:
                start = time.perf_counter()
                function(*inputs)
                stop = time.perf_counter()
                taken.append(stop - start)
                if stop > end:
                    break
    return median(times[0]), median(times[1]), compiling


def run(seconds: float = 2, cases: dict[str, Callable[[], Case]] = CASES) -> None:
    """Measure every case for about `seconds` and print a table."""
    report = Report()
    report.say(f"a training step with AdamW, {get_num_threads()} threads, medians")
    report.headline(f"{'':<26}{'eager':>12}{'replay':>12}{'faster':>9}{'first calls':>14}")
    for name, case in cases.items():
        eager, replay, compiling = measure(case, seconds)
        report.say(
            f"{name:<26}{eager * 1e3:>9.2f} ms{replay * 1e3:>9.2f} ms"
            f"{eager / replay:>8.1f}x{compiling:>12.2f} s"
        )
    report.say(
        f"The first {FIRST} calls record and compile; kernels that the cache has are not compiled "
        "again.\nFor a comparison with PyTorch and JAX, run `make bench` in the repository."
    )
