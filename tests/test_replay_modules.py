"""Compiled modules, the keywords of `compile`, dropped gradients and checked replays."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from replaying import close, randn, replayed

import tapegrad as tg
from tapegrad import nn, optim
from tapegrad.replay import CheckError, Compiled

F = nn.functional

pytest.importorskip("llvmlite")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.norm = nn.BatchNorm1d(8)
        self.scale = 2.0

    def forward(self, x: Any) -> Any:
        return self.norm(self.first(x)).relu() * self.scale


# -- modules -------------------------------------------------------------------------------------


def test_a_compiled_module_is_used_as_the_module() -> None:
    net = Net()
    fast = tg.compile(net)
    assert isinstance(fast, Net)
    assert isinstance(fast, nn.Module)
    assert fast._orig_mod is net
    assert repr(fast) == repr(net)
    assert fast.first is net.first
    assert fast.scale == 2.0
    assert list(fast.state_dict()) == list(net.state_dict())
    for (a, p), (b, q) in zip(fast.named_parameters(), net.named_parameters(), strict=True):
        assert a == b
        assert p is q
    for i in range(4):
        close(fast(randn(5, 4, seed=i)), net(randn(5, 4, seed=i)))
    assert replayed(fast) == 2
    assert "replayed 2 time(s)" in fast.explain(full=True)


def test_changes_of_a_compiled_module_are_seen() -> None:
    net = Net()
    fast = tg.compile(net)
    x = randn(5, 4)

    def equal() -> None:
        for _ in range(4):
            state = copy.deepcopy(net.state_dict())
            expected = net(x)
            net.load_state_dict(state)
            close(fast(x), expected)

    equal()
    fast.eval()
    assert not net.training
    assert not net.norm.training
    equal()
    net.train()
    assert fast.training
    equal()
    fast.scale = 3.0
    assert net.scale == 3.0
    equal()
    fast.first = nn.Linear(4, 8)
    assert net.first is fast.first
    equal()
    net.first.weight = nn.Parameter(randn(8, 4, seed=3))
    equal()
    fast.requires_grad_(False)
    equal()
    assert not fast(x).requires_grad
    fast.load_state_dict(Net().state_dict())
    equal()
    fast.to(tg.float64)
    x = x.double()
    assert net.first.weight.dtype is tg.float64
    equal()
    assert replayed(fast) >= 10


def test_hooks_of_a_compiled_module_run_in_every_call() -> None:
    net, seen = Net(), []
    fast = tg.compile(net)
    fast.register_forward_hook(lambda module, args, out: seen.append(module) or out + 1)
    for i in range(5):
        x = randn(5, 4, seed=i)
        net.eval()
        close(fast(x), net.forward(x) + 1)
    assert len(seen) == 5
    assert replayed(fast) == 3


def test_compiled_modules_inside_modules() -> None:
    tg.manual_seed(0)
    inner = nn.Linear(4, 4)
    outer = nn.Sequential(tg.compile(inner), nn.ReLU())
    assert list(outer.state_dict()) == ["0.weight", "0.bias"]
    for i in range(4):
        x = randn(3, 4, seed=i)
        close(outer(x), inner(x).relu())
    assert replayed(outer[0]) == 2
    whole = tg.compile(outer)
    for i in range(4):
        x = randn(3, 4, seed=i)
        close(whole(x), inner(x).relu())
    assert replayed(whole) == 2
    assert replayed(outer[0]) == 2


def test_copies_and_pickles_are_compiled_anew() -> None:
    fast = tg.compile(nn.Linear(4, 3))
    x = randn(2, 4)
    for _ in range(3):
        fast(x)
    for other in (copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
        assert isinstance(other, nn.Linear)
        assert other.weight is not fast.weight
        with tg.no_grad():
            other.weight.mul_(2)
        for _ in range(4):
            close(other(x), F.linear(x, other.weight, other.bias))
        assert replayed(other) == 2


@tg.compile
def doubled(x: Any) -> Any:
    return x * 2


def test_functions_are_pickled_by_name() -> None:
    assert pickle.loads(pickle.dumps(doubled)) is doubled
    assert copy.deepcopy(doubled) is doubled


def test_compiling_in_place() -> None:
    net = Net()
    plain = copy.deepcopy(net)
    assert net.compile() is None
    for i in range(4):
        x = randn(5, 4, seed=i)
        for m in (net, plain):
            m.zero_grad()
            m(x).square().sum().backward()
        close(net.first.weight.grad, plain.first.weight.grad, 1e-4)
    assert replayed(net.forward) == 2
    assert list(net.state_dict()) == list(plain.state_dict())
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert other.forward is not net.forward
        for _ in range(3):
            other.eval()(x)
        assert replayed(other.forward) == 1
    net.compile(disable=True)
    assert not isinstance(net.forward, Compiled)


# -- keywords ------------------------------------------------------------------------------------


def test_keywords_of_pytorch() -> None:
    def f(x: Any) -> Any:
        return x * 2

    assert tg.compile(f, disable=True) is f
    assert tg.compile(disable=True)(f) is f
    module = nn.Linear(2, 2)
    assert tg.compile(module, disable=True) is module
    for options in (
        {"fullgraph": True, "dynamic": False},
        {"backend": "inductor", "mode": "reduce-overhead"},
        {"options": {"epilogue_fusion": True}, "dynamic": True},
        {"mode": "max-autotune"},
    ):
        fast = tg.compile(f, **options)
        for _ in range(3):
            assert fast(tg.ones(2)).tolist() == [2, 2]
        assert replayed(fast) == 1
    eager = tg.compile(f, backend="eager")
    for _ in range(3):
        assert eager(tg.ones(2)).tolist() == [2, 2]
    assert replayed(eager) == 0
    assert "backend='eager'" in eager.explain()
    with pytest.raises(ValueError, match="backend must be one of"):
        tg.compile(f, backend="tensorrt")
    with pytest.raises(ValueError, match="mode must be one of"):
        tg.compile(f, mode="fastest")
    with pytest.raises(TypeError, match="unexpected keyword"):
        tg.compile(f, fulgraph=True)
    with pytest.raises(TypeError, match="options must be a dict"):
        tg.compile(f, options="fast")
    with pytest.raises(TypeError, match="needs a function"):
        tg.compile(3)


# -- gradients that nobody keeps -------------------------------------------------------------------


def training(**options: Any) -> Any:
    tg.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = optim.AdamW(model.parameters(), lr=0.01)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return model, tg.compile(step, **options)


def test_gradients_can_be_dropped() -> None:
    (kept, slow), (dropped, fast) = training(), training(keep_grads=False)
    for i in range(8):
        x, y = randn(16, 64, seed=i), tg.tensor(np.arange(16) % 4)
        close(slow(x, y), fast(x, y))
        for p, q in zip(kept.parameters(), dropped.parameters(), strict=True):
            close(p, q)
            assert p.grad is not None
            assert q.grad is None
    assert replayed(fast) >= 5
    (replay,) = [r for r in fast.replays if r.count]
    assert len(replay.program.results) == 1
    for p in dropped.parameters():
        p.grad = tg.zeros_like(p)
    fast(x, y)
    assert all(p.grad is None for p in dropped.parameters())


def test_dropped_gradients_that_were_there_before_count() -> None:
    w = randn(3).requires_grad_()

    def f(x: Any) -> Any:
        (x * w).sum().backward()
        return w.grad * 1

    fast = tg.compile(f, keep_grads=False)
    for i in range(12):
        x = randn(3, seed=i)
        w.grad = tg.ones(3) if i % 3 == 0 else None
        close(fast(x), x + 1 if i % 3 == 0 else x)
        assert w.grad is None
    assert replayed(fast) >= 4


def test_gradients_are_dropped_in_eager_calls_too() -> None:
    w = randn(3).requires_grad_()

    def f(x: Any) -> Any:
        return (x * w).sum().backward()[w] * 2

    for fast in (
        tg.compile(f, keep_grads=False, backend="eager"),
        tg.compile(lambda x: tg.compile(f, keep_grads=False)(x)),
    ):
        for i in range(4):
            x = randn(3, seed=i)
            close(fast(x), 2 * x)
            assert w.grad is None


# -- checked replays -------------------------------------------------------------------------------


def test_checked_steps_equal_plain_ones() -> None:
    (kept, slow), (checked, fast) = training(), training(check=True)
    for i in range(6):
        x, y = randn(16, 64, seed=i), tg.tensor(np.arange(16) % 4)
        close(slow(x, y), fast(x, y))
        for p, q in zip(kept.parameters(), checked.parameters(), strict=True):
            close(p, q)
            close(p.grad, q.grad)
    assert replayed(fast) >= 3


def test_checked_functions_draw_the_same_numbers_once() -> None:
    w = randn(8).requires_grad_()
    f = lambda x: F.dropout(x * w, 0.5) + tg.rand(8)  # noqa: E731
    fast = tg.compile(f, check=True)
    for run in (f, fast):
        tg.manual_seed(0)
        outs = [run(randn(3, 8, seed=i)) for i in range(5)]
        if run is f:
            expected = outs
    for a, b in zip(outs, expected, strict=True):
        close(a, b)
    assert replayed(fast) == 3


def test_a_wrong_program_is_named_by_operation_and_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from tapegrad.core.primitive import PRIMITIVES

    monkeypatch.setattr(PRIMITIVES["tanh"], "expression", "sin(x)")
    w = randn(8).requires_grad_()

    def f(x: Any) -> Any:
        y = x * 3
        z = y.tanh()
        return z.exp() * w

    fast = tg.compile(f, check=True)
    for i in range(2):
        fast(randn(8, seed=i))
    with pytest.raises(CheckError, match=r"first operation that differs is tanh, at .*y.tanh\(\)"):
        fast(randn(8))


def test_what_is_not_seen_is_named() -> None:
    """Settings of other libraries are out of reach; a check notices that they have changed."""

    def factor() -> float:
        return float(np.get_printoptions()["precision"])

    fast = tg.compile(lambda x: (x + 1) * factor(), check=2)
    for _ in range(3):
        fast(randn(3))
    with (
        np.printoptions(precision=3),
        pytest.raises(CheckError, match="no longer does what was recorded: mul"),
    ):
        fast(randn(3))


def test_a_wrong_backward_pass_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    w = randn(8).requires_grad_()
    fast = tg.compile(lambda x: (x * w).sigmoid(), check=True)
    for i in range(4):
        fast(randn(8, seed=i))
    (replay,) = fast.replays
    pull = replay.vjp.pull
    monkeypatch.setattr(replay.vjp, "pull", lambda *a: [g + 1 for g in pull(*a)])
    with pytest.raises(CheckError, match="differs from eager in the result of"):
        fast(randn(8))
