"""Recorded calls leave what their replays give: the same bits in every call from the first on."""

from __future__ import annotations

import gc
import time
from typing import Any

import numpy as np
import pytest
from replaying import randn, replayed

import tapegrad as tg
from tapegrad import nn, optim
from tapegrad.replay.trace.results import kept_elsewhere
from tapegrad.replay.use import undo
from tapegrad.replay.use.replay import Replay

pytest.importorskip("llvmlite")


def bits(*tensors: Any) -> list[bytes]:
    return [t.detach().numpy().tobytes() for t in tensors]


def test_every_call_has_the_bits_of_a_replay() -> None:
    w = randn(40, 40).requires_grad_()
    x = randn(40, 40)

    @tg.compile
    def f(x: Any) -> Any:
        y = (x @ w).softmax(1).log().tanh()
        return y, (y * y).mean()

    results = []
    for _ in range(4):
        y, loss = f(x)
        w.grad = None
        loss.backward()
        results.append(bits(y, loss, w.grad))
    assert replayed(f) == 2
    assert all(r == results[0] for r in results)


def test_what_a_call_changes_is_changed_once() -> None:
    count, state = tg.zeros(1), tg.ones(6)
    part = state[1:3]  # a view from outside

    @tg.compile
    def f(x: Any) -> Any:
        count.add_(1)
        part.mul_(2)
        state[4:] += x
        x.sub_(1)
        return state.sum()

    x = tg.zeros(2)
    for number in range(1, 6):
        assert f(x).item() == state.sum().item()
        assert count.item() == number
        assert state.tolist() == [1, 2.0**number, 2.0**number, 1] + [1 - sum(range(number))] * 2
        assert x.tolist() == [-number] * 2


def test_memory_that_is_only_written() -> None:
    buffer = tg.full((3,), 7.0)

    @tg.compile
    def f(x: Any) -> Any:
        buffer.zero_()
        buffer.add_(x)
        return buffer * 2

    for number in range(4):
        assert f(tg.full((3,), float(number))).tolist() == [2.0 * number] * 3
        assert buffer.tolist() == [number] * 3


def test_gradients_add_up_once() -> None:
    w = tg.ones(3, requires_grad=True)

    @tg.compile
    def f(x: Any) -> None:
        (w * x).sum().backward()

    for number in range(1, 6):
        f(tg.ones(3))
        assert w.grad is not None
        assert w.grad.tolist() == [number] * 3


def test_random_numbers_are_drawn_once() -> None:
    @tg.compile
    def f(x: Any) -> Any:
        return x + tg.rand(3) + tg.rand(3)

    tg.manual_seed(0)
    expected = [tg.rand(3) + tg.rand(3) for _ in range(5)]
    tg.manual_seed(0)
    for e in expected:
        np.testing.assert_allclose(f(tg.zeros(3)).numpy(), e.numpy(), rtol=1e-6)


def test_a_tensor_that_somebody_else_keeps_stays_as_it_is() -> None:
    kept: list[Any] = []

    @tg.compile
    def f(x: Any) -> Any:
        y = x * 3
        kept.append(y)
        return y + 1

    for number in range(2):
        x = tg.full((2,), float(number))
        assert f(x).tolist() == [3.0 * number + 1] * 2
        assert kept[number].tolist() == [3.0 * number] * 2


def test_new_state_of_an_optimizer_is_made_by_the_first_call() -> None:
    model = nn.Linear(3, 2)
    optimizer = optim.Adam(model.parameters(), lr=0.1)
    other = nn.Linear(3, 2)
    other.load_state_dict(model.state_dict())
    reference = optim.Adam(other.parameters(), lr=0.1)

    @tg.compile
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(5):
        x = randn(4, 3)
        step(x)
        reference.zero_grad()
        other(x).square().mean().backward()
        reference.step()
        for p, q in zip(model.parameters(), other.parameters(), strict=True):
            np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), atol=1e-5)
            assert optimizer.state[p]["step"].item() == reference.state[q]["step"].item()


def test_a_replay_that_is_refused_leaves_the_recorded_call(monkeypatch: pytest.MonkeyPatch) -> None:
    count = tg.zeros(1)

    @tg.compile
    def f(x: Any) -> Any:
        count.add_(1)
        return x * 2

    monkeypatch.setattr(Replay, "refusal", lambda *_: "never")
    for number in range(1, 4):
        assert f(tg.ones(2)).tolist() == [2, 2]
        assert count.item() == number


def test_a_tensor_with_other_memory_after_the_call() -> None:
    w = tg.ones(2)

    @tg.compile
    def f(x: Any) -> Any:
        y = w * x
        w.data = w + 1
        return y

    with pytest.warns(UserWarning, match=r"setting .data at .*test_replay_undo.py"):
        assert f(tg.ones(2)).tolist() == [1, 1]
    assert w.tolist() == [2, 2]
    assert f(tg.ones(2)).tolist() == [2, 2]


def test_functions_that_are_called_without_native_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tapegrad.replay.cpu.jit.available", lambda: False)
    monkeypatch.setattr(undo.Undo, "back", None)
    f = tg.compile(lambda x: x * 2)
    assert f(tg.ones(2)).tolist() == [2, 2]


def test_collections_of_garbage_are_not_part_of_a_call() -> None:
    """Callbacks of the collector, as Hypothesis has one, run in the midst of any function."""
    clock = []
    threshold = gc.get_threshold()

    def callback(phase: str, info: dict[str, int]) -> None:
        clock.append(time.perf_counter())

    def step(x):
        rows = [[i] for i in range(100)]
        return x * len(rows)

    compiled = tg.compile(step, fullgraph=True)
    gc.callbacks.append(callback)
    try:
        gc.set_threshold(1)
        for _ in range(4):
            assert compiled(tg.ones(3)).tolist() == [100.0] * 3
            assert gc.get_threshold()[0] == 1
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(callback)
    assert clock
    assert compiled.replays


def test_what_is_changed_several_times_is_copied_once() -> None:
    from tapegrad.replay.use.undo import UndoableCapture

    x = tg.ones(3)
    with UndoableCapture([]) as capture:
        for _ in range(5):
            x.mul_(2)
    ((tensor, _, copy),) = capture.overwritten
    assert tensor is x
    assert copy.tolist() == [1, 1, 1]


def test_a_result_that_frozen_objects_hold_counts_as_kept() -> None:
    holder = {"result": [1.0]}
    gc.collect()
    gc.freeze()  # after that, Python does not say who refers to an object
    try:
        witness = object()
        assert kept_elsewhere(holder["result"], witness, set())
    finally:
        gc.unfreeze()
