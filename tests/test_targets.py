"""Targets: programs that others than the CPU run, and the border between them and the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import fuzz_replay
import numpy as np
import pytest
from replaying import close, randn, replayed

import tapegrad as tg
from tapegrad import nn
from tapegrad.nn import functional as F
from tapegrad.replay import register_target
from tapegrad.replay.reference.target import Interpreted, NumPyTarget
from tapegrad.replay.use import targets


class Counted(NumPyTarget):
    """A target of the user's own: it counts what it builds and runs."""

    name = "counted"

    def __init__(self, missing: str | None = None) -> None:
        self.built: list[str] = []
        self.runs = 0
        self.why_not = missing

    def missing(self) -> str | None:
        return self.why_not

    def build(self, program: Any, name: str = "a program") -> Any:
        self.built.append(name)
        target = self

        class Counting(Interpreted):
            def attempt(self, arrays: tuple[Any, ...]) -> Exception | None:
                target.runs += 1
                return super().attempt(arrays)

        return Counting(program)


@pytest.fixture
def counted() -> Iterator[Counted]:
    target = Counted()
    register_target(target)
    yield target
    del targets._targets["counted"]


def test_a_target_of_ones_own_builds_and_runs_programs(counted: Counted) -> None:
    fast = tg.compile(lambda x: (x * 2).sin(), backend="counted")
    for i in range(5):
        x = randn(3, seed=i)
        close(fast(x), (x * 2).sin())
    assert len(counted.built) == 1
    assert (counted.runs, replayed(fast)) == (5, 3)  # recorded calls are replayed as well
    assert "run by Counting" in fast.explain(full=True)
    assert "3 replays" in fast.explain()


def test_its_programs_are_differentiated(counted: Counted) -> None:
    fast = tg.compile(lambda x, w: (x @ w).tanh(), backend="counted")
    for i in range(4):
        x, w = randn(3, 4, seed=i), randn(4, 2, seed=i + 9).requires_grad_()
        fast(x, w).square().sum().backward()
        other = w.detach().clone().requires_grad_()
        (x @ other).tanh().square().sum().backward()
        close(w.grad, other.grad)
    assert len(counted.built) == 2
    assert "backward pass" in counted.built[1]


def test_a_target_that_is_missing_runs_eagerly_and_says_why(counted: Counted) -> None:
    counted.why_not = "its machine is switched off"
    fast = tg.compile(lambda x: x + 1, backend="counted")
    results = [fast(randn(3, seed=i)) for i in range(2)]
    with pytest.warns(UserWarning, match="switched off"):
        results.append(fast(randn(3, seed=2)))
    results.append(fast(randn(3, seed=3)))
    for i, found in enumerate(results):
        close(found, randn(3, seed=i) + 1)
    assert counted.built == []


def test_names_and_kinds_are_checked() -> None:
    with pytest.raises(ValueError, match=r"backend must be one of .*cpu, numpy, got 'tpu'"):
        tg.compile(lambda x: x, backend="tpu")
    with pytest.raises(TypeError, match="a target has a name"):
        register_target(object())  # type: ignore[arg-type]


def trained(backend: str) -> list[Any]:
    """A few steps of training with everything that a step may have."""
    tg.manual_seed(3)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
        nn.Dropout(0.2), nn.Linear(4 * 36, 5),
    )  # fmt: skip
    optimizer = tg.optim.AdamW(model.parameters(), lr=0.01)
    schedule = tg.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)

    @tg.compile(backend=backend)
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = []
    for i in range(7):
        y = tg.tensor(np.random.default_rng(i).integers(0, 5, 6))
        losses.append(step(randn(6, 1, 6, 6, seed=i), y))
        schedule.step()
    assert replayed(step) >= 4
    with pytest.raises(IndexError, match="label 9 is out of range"):
        step(randn(6, 1, 6, 6), tg.tensor([0, 1, 2, 3, 4, 9]))
    return [*losses, *(p.detach() for p in model.parameters()), *model.buffers()]


def test_training_is_the_same_on_both_targets() -> None:
    for a, b in zip(trained("native"), trained("numpy"), strict=True):
        close(a, b, 1e-4)


@pytest.mark.parametrize("seed", range(30))
def test_random_programs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_replay, "BACKEND", "numpy")
    _, outcome, text, _ = fuzz_replay.trial(1_700_000 + seed, "mixed")
    assert outcome not in ("different", "crashed"), text
