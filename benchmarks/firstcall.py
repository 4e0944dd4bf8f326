"""The time of the first calls of a training step, in fresh processes.

Four models with Adam, each in a process of its own, with an empty cache folder (cold) and again
with the cache that this left (warm). `compiled`: seconds of all calls up to and including the first
replay. `eager`: seconds of the first eager step. Importing tapegrad and making model and data do
not count.

`python -m benchmarks.firstcall model compiled|eager` measures one in this process.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .measure import Report
from .problems import Problem, generator, normal, training

#: most seconds of the first calls with a warm cache
WARM = 1.0
ROUNDS = 3


def language_model(lib: ModuleType, steps: int = 50, batch: int = 16, width: int = 128) -> Problem:
    """An LSTM of two layers that predicts the next of 50 letters."""
    nn, letters = lib.nn, 50
    model = nn.ModuleDict(
        {
            "embed": nn.Embedding(letters, width),
            "lstm": nn.LSTM(width, width, num_layers=2, batch_first=True),
            "head": nn.Linear(width, letters),
        }
    )

    def loss(x: Any, y: Any) -> Any:
        seen, _ = model["lstm"](model["embed"](x))
        logits = model["head"](seen).reshape(-1, letters)
        return nn.functional.cross_entropy(logits, y.reshape(-1))

    text = generator().integers(0, letters, (batch, steps + 1))
    inputs = (lib.tensor(text[:, :-1].copy()), lib.tensor(text[:, 1:].copy()))
    return training(lib, model, inputs, loss, "Adam", lr=1e-3)


def unet(lib: ModuleType, batch: int = 4, size: int = 64) -> Problem:
    """A U-Net of three levels (16, 32 and 64 channels) with batch norm and skip connections."""
    nn = lib.nn

    def convolved(inside: int, outside: int) -> Any:
        return nn.Sequential(
            nn.Conv2d(inside, outside, 3, padding=1),
            nn.BatchNorm2d(outside),
            nn.ReLU(),
            nn.Conv2d(outside, outside, 3, padding=1),
            nn.BatchNorm2d(outside),
            nn.ReLU(),
        )

    model = nn.ModuleDict(
        {
            "down1": convolved(1, 16),
            "down2": convolved(16, 32),
            "bottom": convolved(32, 64),
            "up2": nn.ConvTranspose2d(64, 32, 2, stride=2),
            "join2": convolved(64, 32),
            "up1": nn.ConvTranspose2d(32, 16, 2, stride=2),
            "join1": convolved(32, 16),
            "head": nn.Conv2d(16, 1, 1),
        }
    )
    pool = nn.MaxPool2d(2)

    def loss(x: Any, y: Any) -> Any:
        first = model["down1"](x)
        second = model["down2"](pool(first))
        below = model["bottom"](pool(second))
        second = model["join2"](lib.cat([model["up2"](below), second], 1))
        first = model["join1"](lib.cat([model["up1"](second), first], 1))
        return nn.functional.binary_cross_entropy_with_logits(model["head"](first), y)

    inputs = (
        normal(lib, batch, 1, size, size),
        (normal(lib, batch, 1, size, size, seed=2) > 0).float(),
    )
    return training(lib, model, inputs, loss, "Adam", lr=1e-3)


def transformer(lib: ModuleType, batch: int = 8, length: int = 16, width: int = 64) -> Problem:
    """nn.Transformer with two layers on each side, with dropout and a causal mask."""
    nn = lib.nn
    model = nn.Transformer(width, 4, 2, 2, 2 * width, batch_first=True)
    mask = nn.Transformer.generate_square_subsequent_mask(length)

    def loss(x: Any, y: Any, wanted: Any) -> Any:
        return ((model(x, y, tgt_mask=mask) - wanted) ** 2).mean()

    inputs = tuple(normal(lib, batch, length, width, seed=seed) for seed in (1, 2, 3))
    return training(lib, model, inputs, loss, "Adam", lr=1e-3)


def neural_ode(lib: ModuleType, steps: int = 30, batch: int = 64, width: int = 32) -> Problem:
    """A network as a vector field in the plane: points follow it for 30 Runge-Kutta steps."""
    nn = lib.nn
    field = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 2))
    h = 1 / steps

    def loss(x: Any, y: Any) -> Any:
        for _ in range(steps):
            a = field(x)
            b = field(x + h / 2 * a)
            c = field(x + h / 2 * b)
            d = field(x + h * c)
            x = x + h / 6 * (a + 2 * b + 2 * c + d)
        return ((x - y) ** 2).mean()

    inputs = (normal(lib, batch, 2), normal(lib, batch, 2, seed=2))
    return training(lib, field, inputs, loss, "Adam", lr=1e-3)


MODELS: dict[str, Callable[[ModuleType], Problem]] = {
    "LSTM": language_model,
    "U-Net": unet,
    "nn.Transformer": transformer,
    "neural ODE": neural_ode,
}


def compiled_calls(problem: Problem) -> list[float]:
    """Seconds of each call of a compiled step, up to and including the first replay."""
    import tapegrad

    step = tapegrad.compile(problem.step)
    times = []
    for _ in range(10):
        start = time.perf_counter()
        step(*problem.inputs)
        times.append(time.perf_counter() - start)
        if any(replay.count for replay in step.replays):
            return times
    raise SystemExit(f"the step was not replayed:\n{step.explain()}")


def eager_call(problem: Problem) -> list[float]:
    """Seconds of the first eager step."""
    start = time.perf_counter()
    problem()
    return [time.perf_counter() - start]


def measured(name: str, what: str) -> list[float]:
    """Seconds of the first calls of a model in this process."""
    import tapegrad

    problem = MODELS[name](tapegrad)
    return {"compiled": compiled_calls, "eager": eager_call}[what](problem)


def child(name: str, what: str, folder: str) -> list[float]:
    """The same in a fresh process, with its cache in `folder`."""
    command = [sys.executable, "-m", "benchmarks.firstcall", name, what]
    environment = {**os.environ, "TAPEGRAD_CACHE": folder, "TAPEGRAD_QUIET": "1"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return [float(word) for word in done.stdout.split()]


def run(report: Report) -> None:
    for name in MODELS:
        for what in ("compiled", "eager"):
            cold, warm = [], []
            for _ in range(ROUNDS):
                with tempfile.TemporaryDirectory() as folder:
                    cold.append(sum(child(name, what, folder)))
                    calls = child(name, what, folder)
                    warm.append(sum(calls))
            figures = f"cold {statistics.median(cold):.2f} s"
            figures += f", warm calls {' '.join(f'{seconds:.2f}' for seconds in calls)} s"
            report.add(f"{name}, {what}", figures, statistics.median(warm), WARM, " s")


if __name__ == "__main__":
    print(*measured(*sys.argv[1:]))
