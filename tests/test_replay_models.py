"""The benchmarks' models: compiled steps train as eager ones do, repeat exactly, pass on NaN."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from replaying import replayed

import tapegrad as tg
from benchmarks.models import MODELS
from benchmarks.others import OTHERS
from benchmarks.problems import Problem
from tapegrad.replay import Compiled
from tapegrad.replay.cpu import pool

pytest.importorskip("llvmlite")

#: sizes for models whose own would take long
SMALLER: dict[str, dict[str, int]] = {
    "CNN": {"batch": 8},
    "GPT": {"layers": 2, "width": 32, "length": 16, "batch": 4, "words": 64},
    "gelu": {"count": 150_001},
    "RNN": {"steps": 12},
    "LSTM cell, 20 steps": {"steps": 6},
    "GRU cell, 20 steps": {"steps": 6},
    "CNN, batch norm, strides": {"batch": 8, "size": 16},
    "encoder with dropout": {"batch": 4, "length": 16},
    "Adam, 100 small tensors": {"count": 30},
    "deep MLP, layer norm": {"layers": 5},
}
EVERY = MODELS | OTHERS

#: calls after which every model has been replayed
RECORDED = 4


class Pair:
    """A model twice, plain and compiled and recorded, and the state that both can start from."""

    def __init__(self, name: str) -> None:
        make, sizes = EVERY[name], SMALLER.get(name, {})
        self.plain, self.fast = make(tg, **sizes), make(tg, **sizes)
        self.step: Compiled = tg.compile(self.fast.step)
        for i in range(RECORDED):
            run(self.plain.step, i, *self.plain.inputs)
            run(self.step, i, *self.fast.inputs)
        self.start = arrays(state(self.plain))
        self.before = replayed(self.step)
        assert self.before
        self.restore()

    def restore(self) -> None:
        with tg.no_grad():
            for problem in (self.plain, self.fast):
                for t, value in zip(state(problem), self.start, strict=True):
                    t.copy_(tg.tensor(value))

    def only_replayed(self, calls: int) -> bool:
        """Whether this many calls since the recordings were all replays."""
        return replayed(self.step) - self.before == calls


@pytest.fixture(scope="module", params=EVERY)
def recorded(request: pytest.FixtureRequest) -> Iterator[Pair]:
    threads = pool.pool.threads
    pool.set_num_threads(2)
    yield Pair(request.param)
    pool.pool.threads = threads


@pytest.fixture
def pair(recorded: Pair) -> Pair:
    """The two models in equal state."""
    recorded.restore()
    recorded.before = replayed(recorded.step)
    return recorded


def run(step: Callable[..., Any], seed: int, *inputs: Any) -> float:
    """One step with given random numbers; returns the loss."""
    tg.manual_seed(seed)
    return float(step(*inputs).item())


def state(problem: Problem) -> list[Any]:
    """The tensors that a step reads and changes: parameters and what the optimizer keeps."""
    found = list(problem.parameters.values())
    if problem.optimizer is not None:
        for p in problem.parameters.values():
            kept = problem.optimizer.state.get(p, {}).values()
            found += [value for value in kept if isinstance(value, tg.Tensor)]
    return found


def arrays(tensors: list[Any]) -> list[Any]:
    return [t.detach().numpy().copy() for t in tensors]


def gradients(problem: Problem) -> list[Any]:
    return arrays([p.grad for p in problem.parameters.values()])


def test_training_equals_eager(pair: Pair) -> None:
    for i in range(20):
        expected = run(pair.plain.step, i, *pair.plain.inputs)
        found = run(pair.step, i, *pair.fast.inputs)
        # A small loss is the difference of logits, which are of the order of 1 and rounded.
        assert abs(found - expected) <= max(1e-4 * abs(expected), 2e-7), f"step {i}"
        if i == 0:
            compare_parameters(pair)
    assert pair.only_replayed(20)


def compare_parameters(pair: Pair) -> None:
    """Equal to 1e-5, but where rounding decides the sign of a gradient that is zero."""
    for key, p in pair.plain.parameters.items():
        q = pair.fast.parameters[key]
        gradient = p.grad.numpy()
        largest = max(float(np.abs(gradient).max()), 1e-6)
        clear = np.abs(gradient) > 1e-4 * largest
        np.testing.assert_allclose(
            q.detach().numpy()[clear], p.detach().numpy()[clear], rtol=1e-5, atol=1e-5, err_msg=key
        )
        np.testing.assert_allclose(
            q.grad.numpy(), gradient, rtol=1e-3, atol=1e-5 * largest, err_msg=key
        )


def test_a_call_repeats_exactly(pair: Pair) -> None:
    results = []
    for _ in range(3):
        pair.restore()
        loss = run(pair.step, 7, *pair.fast.inputs)
        results.append([np.float64(loss), *arrays(state(pair.fast)), *gradients(pair.fast)])
    assert pair.only_replayed(3)
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_and_infinity_reach_what_they_reach_in_eager(pair: Pair, value: float) -> None:
    """One bad number among the inputs, or the parameters where inputs are integers or absent."""
    losses: list[float] = []
    for problem, step in ((pair.plain, pair.plain.step), (pair.fast, pair.step)):
        inputs = [x.clone() for x in problem.inputs]
        floating = [x for x in inputs if x.dtype is tg.float32]
        with tg.no_grad():
            # Of a GPT's parameters, the second holds the positions: all of them are used.
            spoilt = floating[0] if floating else list(problem.parameters.values())[1]
            spoilt.reshape(-1)[3] = value
        losses.append(run(step, 5, *inputs))
    assert pair.only_replayed(1)
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)
    assert not np.isfinite([losses[0], *(g.sum() for g in gradients(pair.plain))]).all()
    found = zip(pair.plain.parameters, gradients(pair.plain), gradients(pair.fast), strict=True)
    for key, a, b in found:
        for kind in (np.isnan, np.isposinf, np.isneginf):
            np.testing.assert_array_equal(kind(b), kind(a), err_msg=key)
