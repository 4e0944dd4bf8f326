"""Compiled functions among others: reruns, threads, interrupts, errors, leaks, shared tensors."""

from __future__ import annotations

import copy
import functools
import gc
import os
import signal
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from replaying import Mlp, batches, callbacks, close, randn, recorded, replayed

import tapegrad as tg
from tapegrad import nn, optim
from tapegrad.core.primitive import OPAQUE, PRIMITIVES, define
from tapegrad.replay.cpu.collector import gc_paused
from tapegrad.replay.use.undo import Undo

F = nn.functional

pytest.importorskip("llvmlite")


def twins(make: Callable[[], Any]) -> tuple[Any, Any]:
    """The same model twice."""
    tg.manual_seed(0)
    model = make()
    return model, copy.deepcopy(model)


def trained(model: Any, optimizer: Any, loss: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        value = loss(model(x), y)
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return value

    return step


def same_training(
    make: Callable[[], Any], steps: int = 8, change: Callable[[Any, int], None] | None = None
) -> Any:
    """Train two equal models, one compiled; they and their buffers stay equal."""
    eager, compiled = twins(make)
    optimizers = [
        optim.SGD(m.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
        for m in (eager, compiled)
    ]
    plain = trained(eager, optimizers[0], F.cross_entropy)
    fast = tg.compile(trained(compiled, optimizers[1], F.cross_entropy))
    for i, (x, y) in enumerate(batches(steps)):
        losses = []
        for run, optimizer in zip((plain, fast), optimizers, strict=True):
            if change is not None:
                change(optimizer.param_groups[0], i)
            tg.manual_seed(i)
            losses.append(run(x, y).item())
        assert abs(losses[0] - losses[1]) <= 1e-4 * abs(losses[0])
    for a, b in zip(eager.state_dict().values(), compiled.state_dict().values(), strict=True):
        close(a, b, 1e-4)
    return fast


# -- what steps are made of ------------------------------------------------------------------------


def test_batch_norm_dropout_and_clipping_inside() -> None:
    fast = same_training(
        lambda: nn.Sequential(
            nn.Linear(24, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 5)
        )
    )
    assert replayed(fast) >= 5


def test_numbers_of_the_optimizer_change_between_calls() -> None:
    def change(group: dict[str, Any], i: int) -> None:
        group["lr"] = 0.1 / (1 + i)
        group["momentum"] = 0.5 + 0.04 * i
        group["weight_decay"] = 1e-3 * i
        group["dampening"] = 0.1 * (i % 2)

    fast = same_training(lambda: nn.Linear(24, 5), 12, change)
    assert replayed(fast) >= 5


class Checkpointed(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            [nn.Sequential(nn.Linear(24, 24), nn.Tanh(), nn.Dropout(dropout)) for _ in range(4)]
        )
        self.head = nn.Linear(24, 5)

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = tg.checkpoint(block, x)
        return self.head(x)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_checkpoints_inside(dropout: float) -> None:
    fast = same_training(lambda: Checkpointed(dropout))
    assert replayed(fast) >= 5


def test_what_a_checkpoint_computes_again_is_not_kept() -> None:
    """Common subexpressions and fusion stay within a rerun, so the arena is smaller."""

    def arena(checkpointed: bool) -> int:
        tg.manual_seed(0)
        weights = [randn(64, 64, seed=i).requires_grad_() for i in range(4)]

        def block(x: Any, w: Any) -> Any:
            for _ in range(4):
                x = (x @ w).tanh()
            return x

        @tg.compile
        def f(x: Any) -> Any:
            for w in weights:
                w.grad = None
            for w in weights:
                x = tg.checkpoint(block, x, w) if checkpointed else block(x, w)
            x.sum().backward()
            return x.detach()

        for _ in range(3):
            f(randn(256, 64))
        (replay,) = [r for r in f.replays if r.executable is not None]
        return int(replay.executable.plan.arena)

    assert arena(True) < 0.6 * arena(False)


def test_a_function_that_sets_the_generator() -> None:
    def f(x: Any) -> Any:
        tg.manual_seed(7)
        return x + tg.rand(3)

    fast = tg.compile(f)
    for i in range(4):
        close(fast(randn(3, seed=i)), f(randn(3, seed=i)))
    assert replayed(fast) == 2


# -- several compiled functions --------------------------------------------------------------------


def test_two_compiled_steps_share_parameters() -> None:
    def make() -> Any:
        tg.manual_seed(0)
        body, heads = nn.Linear(24, 8), [nn.Linear(8, 5), nn.Linear(8, 5)]
        steps = []
        for head in heads:
            optimizer = optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
            model = nn.Sequential(body, nn.Tanh(), head)
            steps.append(trained(model, optimizer, F.cross_entropy))
        return body, steps

    (eager, plain), (compiled, steps) = make(), make()
    fast = [tg.compile(step) for step in steps]
    for i, (x, y) in enumerate(batches(12)):
        close(plain[i % 2](x, y), fast[i % 2](x, y), 1e-4)
        close(eager.weight, compiled.weight)
    assert replayed(fast[0]) == replayed(fast[1]) == 4


def test_a_compiled_step_calls_a_compiled_model() -> None:
    model, other = twins(lambda: nn.Sequential(nn.Linear(24, 8), nn.ReLU(), nn.Linear(8, 5)))
    optimizers = [optim.Adam(m.parameters(), lr=0.01) for m in (model, other)]
    inner = tg.compile(other)
    for x, _ in batches(3):
        inner(x)
    assert replayed(inner) == 1
    fast = tg.compile(trained(inner, optimizers[1], F.cross_entropy))
    plain = trained(model, optimizers[0], F.cross_entropy)
    for x, y in batches(6):
        close(plain(x, y), fast(x, y), 1e-4)
    assert replayed(fast) >= 3
    assert replayed(inner) == 1


def test_threads_share_a_compiled_function() -> None:
    model = nn.Sequential(nn.Linear(24, 8), nn.Tanh(), nn.Linear(8, 5))
    fast = tg.compile(model)
    expected = {}
    for i in range(4):
        x = randn(16, 24, seed=i).requires_grad_()
        (expected[i],) = tg.autograd.grad(model(x).square().sum(), x)
    errors: list[BaseException] = []

    def work(i: int) -> None:
        try:
            for _ in range(50):
                x = randn(16, 24, seed=i).requires_grad_()
                (g,) = tg.autograd.grad(fast(x).square().sum(), x)
                close(g, expected[i])
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not errors
    assert replayed(fast) >= 190


def test_collections_wait_until_the_last_thread_has_recorded() -> None:
    usual = gc.get_threshold()
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with gc_paused():
            entered.set()
            leave.wait(20)

    worker = threading.Thread(target=other)
    with gc_paused():
        worker.start()
        entered.wait(20)
        with gc_paused():
            pass
        assert gc.get_threshold()[0] == 0
    assert gc.get_threshold()[0] == 0
    if hasattr(os, "fork"):
        child = os.fork()
        if child == 0:  # the other thread is not in this process
            os._exit(0 if gc.get_threshold() == usual else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    leave.set()
    worker.join()
    assert gc.get_threshold() == usual


# -- things that go wrong --------------------------------------------------------------------------


def test_interrupts_leave_a_function_that_works() -> None:
    eager, compiled = Mlp(24, 64, 5), Mlp(24, 64, 5)
    step = tg.compile(compiled.step)
    data = list(batches(4))
    for x, y in data:
        step(x, y)
    for delay in (0.002, 0.005, 0.01, 0.02):
        before = signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            with pytest.raises(KeyboardInterrupt):
                _for_ever(lambda: step(*data[0]), delay)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
    with tg.no_grad():
        for p, q in zip(eager.parameters, compiled.parameters, strict=True):
            q.copy_(p)
    count = replayed(step)
    for x, y in data:
        close(eager.step(x, y), step(x, y))
    assert replayed(step) == count + 4


def _for_ever(function: Callable[[], Any], delay: float) -> None:
    """Call a function until an alarm rings."""
    signal.setitimer(signal.ITIMER_REAL, delay)
    end = time.monotonic() + 30
    while time.monotonic() < end:
        function()


def test_an_error_in_a_callback_can_be_survived(monkeypatch: pytest.MonkeyPatch) -> None:
    state = tg.zeros(3)

    @tg.compile
    def f(x: Any) -> Any:
        state.add_(x)
        return x.argsort(0) + state

    for _ in range(3):
        f(tg.ones(3))
    assert callbacks(f) == ["argsort"]

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(PRIMITIVES["argsort"], "kernel", broken)
        with pytest.raises(KeyboardInterrupt):
            f(tg.ones(3))
    assert state.tolist() == [3, 3, 3]
    assert f(tg.ones(3)).tolist() == [4, 5, 6]


def test_an_error_while_recording_caches_nothing() -> None:
    fail = [1]
    w = randn(3).requires_grad_()

    @tg.compile
    def f(x: Any) -> Any:
        y = (x * w).sum()
        y.backward()
        if fail[0]:
            raise ValueError("stop")
        return y.detach()

    for _ in range(6):
        w.grad = None
        with pytest.raises(ValueError, match="stop"):
            f(randn(3))
        assert w.grad is not None
    assert not f.replays
    assert all(s.recordings == 0 for s in f._signatures)
    fail[0] = 0
    for _ in range(4):
        w.grad = None
        f(randn(3))
    assert replayed(f) == 2


def test_nothing_leaks_over_ten_thousand_calls() -> None:
    network = Mlp(8, 4, 3)
    step = tg.compile(network.step)
    w = randn(8).requires_grad_()
    outside = tg.compile(lambda x: (x * w).tanh().sum())
    ((x, y),) = batches(1, 4, 8, 3)

    def run(count: int) -> None:
        for _ in range(count):
            step(x, y)
            w.grad = None
            outside(x).backward()

    run(200)
    gc.collect()
    # Every array is at least a block of Python's own memory.
    before = sys.getallocatedblocks()
    run(10_000)
    gc.collect()
    assert sys.getallocatedblocks() - before < 1000


def test_recorded_graphs_are_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording keeps no arrays of the run that it was made from."""
    monkeypatch.setattr(Undo, "back", recorded)  # native code has memory of its own
    w = randn(100, 100).requires_grad_()
    earlier, fast = (tg.compile(lambda x: (x @ w).tanh().sum()) for _ in range(2))
    for _ in range(2):
        earlier(randn(100, 100)).backward()  # fills what is kept for all functions
    tracemalloc.start()
    for _ in range(2):
        fast(randn(100, 100)).backward()
    gc.collect()
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert np.float32(0).itemsize * 100 * 100 * 3 > kept


def test_code_of_the_user_is_observed_inside_of_operations() -> None:
    """Recordings do not watch kernels and rules of the library; those of others they do."""
    assert all(p.internal for p in PRIMITIVES.values() if p.pure)
    rate = {"now": 2.0}

    def kernel(x: Any) -> Any:
        return x * rate["now"]

    def rule(g: Any) -> Any:
        return g * rate["now"]

    made = [
        define("scaled_of_a_test", kernel, kind=OPAQUE, composite=True, vjp=lambda g: g * 2),
        define("partial_of_a_test", functools.partial(kernel), kind=OPAQUE, inputs=("x",)),
        define("rule_of_a_test", np.negative, kind=OPAQUE, inputs=("x",), vjp=rule),
    ]
    try:
        assert not any(p.internal for p in made)
        scaled = tg.compile(lambda x: made[0](x))
        for now in (2.0, 2.0, 2.0, 3.0, 3.0, 3.0, 2.0):
            rate["now"] = now
            assert scaled(tg.ones(1)).item() == now
        assert scaled.replays
    finally:
        for p in made:
            del PRIMITIVES[p.name]
