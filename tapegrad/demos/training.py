"""Shared by the demos: the command line's options, a training step, the record of a run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from statistics import mean
from typing import Any

from ..core.tensor import Tensor
from ..replay import compile

Step = Callable[..., Tensor]

#: calls until a step replays: three are recorded (the optimizer makes its state in the first one),
#: the next one compiles
FIRST = 4


def training_step(optimizer: Any, loss: Step) -> Step:
    """Gradients of a loss and one update; returns the loss."""

    def step(*inputs: Tensor) -> Tensor:
        optimizer.zero_grad()
        value = loss(*inputs)
        value.backward()
        optimizer.step()
        return value

    return step


@dataclass(frozen=True)
class DemoOptions:
    """The options of the command line."""

    steps: int
    output: Path
    eager: bool = False
    seed: int = 0

    def step(self, optimizer: Any, loss: Step) -> Step:
        """A training step, compiled unless eager mode was asked for."""
        step: Step = compile(training_step(optimizer, loss), disable=self.eager)
        return step


@dataclass
class Run:
    """The losses and seconds of every step of one training run."""

    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def step(self, function: Callable[..., Tensor], *inputs: Tensor) -> float:
        """Run one step and time it, including the reading of its loss."""
        start = time.perf_counter()
        loss = float(function(*inputs))
        self.seconds.append(time.perf_counter() - start)
        self.losses.append(loss)
        return loss

    def curve(self, points: int = 250) -> tuple[list[float], list[float]]:
        """Steps and losses to draw: means of neighbours if there are more than `points`."""
        size = max(len(self.losses) // points, 1)
        starts = range(0, len(self.losses), size)
        groups = [self.losses[i : i + size] for i in starts]
        return [i + len(g) / 2 for i, g in zip(starts, groups, strict=True)], list(
            map(mean, groups)
        )

    def curve_over_time(self, points: int = 120) -> tuple[list[float], list[float]]:
        """The same curve over the seconds since the first step began."""
        steps, losses = self.curve(points)
        passed = list(accumulate(self.seconds))
        return [passed[int(step)] for step in steps], losses

    @property
    def total(self) -> float:
        return sum(self.seconds)
