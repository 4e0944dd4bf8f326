"""Compiled functions: replay equals eager, in values, in state, in errors."""

from __future__ import annotations

import ast
import itertools
import os
import pathlib
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import pytest
from sweep import NAMES, flat, generator

import tapegrad as tg
from tapegrad import nn, optim
from tapegrad.ops import TABLE
from tapegrad.replay import CaptureError, native, pool, runtime_number
from tapegrad.replay.compiled import Compiled
from tapegrad.tensor import Tensor
from tapegrad.testing import make_arguments

F = nn.functional

pytest.importorskip("llvmlite")


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = pool.pool.threads
    yield
    pool.pool.threads = before


def randn(*shape: int, seed: int = 0) -> Tensor:
    return tg.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def close(a: Any, b: Any, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(
        a.detach().numpy(), b.detach().numpy(), rtol=tolerance, atol=tolerance
    )


def replayed(function: Compiled) -> int:
    return sum(replay.count for replay in function.replays)


def callbacks(function: Compiled) -> list[str]:
    return [
        c.primitive.name
        for replay in function.replays
        if replay.executable is not None
        for c in replay.executable.callbacks
    ]


def same_as_eager(
    function: Callable[..., Any], *shapes: tuple[int, ...], calls: int = 5
) -> Compiled:
    """Call the compiled and the plain function on fresh data, and compare."""
    compiled: Compiled = tg.compile(function)
    for i in range(calls):
        given = [randn(*shape, seed=100 * i + j) for j, shape in enumerate(shapes)]
        for a, b in zip(flat(function(*given)), flat(compiled(*given)), strict=True):
            assert a.dtype is b.dtype
            assert a.shape == b.shape
            close(a, b)
    assert replayed(compiled) == calls - 2
    return compiled


# -- plain functions -----------------------------------------------------------------------------


def test_elementwise_chain_is_one_kernel() -> None:
    f = same_as_eager(lambda x, y: ((x * y + x).exp() - 1).tanh() * 0.5, (5, 7), (5, 7))
    (replay,) = f.replays
    assert replay.executable is not None
    assert len(replay.executable.emitted.kernels) == 1
    assert callbacks(f) == []


def test_broadcasting_and_views() -> None:
    same_as_eager(
        lambda x, y: x * y.unsqueeze(1) + y.reshape(2, 2, 1).sum(0).mean(), (4, 4, 3), (4, 1)
    )
    same_as_eager(lambda x: x.T.reshape(-1)[1:9:2] * 2, (3, 4))
    same_as_eager(lambda x: x.permute(2, 0, 1).contiguous() + 1, (2, 3, 4))
    same_as_eager(lambda x: x.flip(0) + x.roll((1, -1), (0, 1)), (3, 4))
    same_as_eager(lambda x, y: tg.cat([x, y], 0) @ tg.stack([y, x]).sum(0).T, (3, 4), (3, 4))


@pytest.mark.parametrize("dims", [(), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)])
def test_reductions(dims: tuple[int, ...]) -> None:
    def f(x: Any) -> Any:
        y = x * 2 + 1
        return y.sum(dims), y.amax(dims), y.amin(dims, keepdim=True), (y > 0).any(), y.mean(dims)

    assert callbacks(same_as_eager(f, (3, 5, 4))) == []


def test_large_sums_are_accurate() -> None:
    f = tg.compile(lambda x: x.sum())
    x = tg.tensor(np.random.default_rng(0).random(1_000_003).astype(np.float32))
    exact = float(x.numpy().astype(np.float64).sum())
    for _ in range(3):
        assert abs(f(x).item() / exact - 1) < 1e-6


def test_softmax_gelu_and_layer_norm_have_no_callback() -> None:
    for f in (
        lambda x: F.softmax(x, 1),
        lambda x: F.log_softmax(x, 0),
        F.gelu,
        lambda x: F.gelu(x, approximate="tanh"),
        lambda x: F.layer_norm(x, (8,)),
        lambda x: x.var(1) + x.std(),
    ):
        assert callbacks(same_as_eager(f, (6, 8))) == []


def test_results_and_arguments_in_structures() -> None:
    @tg.compile
    def f(batch: dict[str, Any], scale: float, *rest: Any) -> Any:
        x, y = batch["pair"]
        return {"sum": x + y, "parts": [x * scale, *rest], "name": "kept"}

    for i in range(4):
        x, y, z = (randn(3, seed=10 * i + j) for j in range(3))
        out = f({"pair": (x, y)}, 2.0, z)
        close(out["sum"], x + y)
        close(out["parts"][0], x * 2)
        assert out["parts"][1] is z
        assert out["name"] == "kept"


def test_integers_and_booleans() -> None:
    @tg.compile
    def f(x: Any, i: Any) -> Any:
        return x * 2 + i, (x > 3) & (i < 2), (x == i).sum(), x.to(tg.float32) / 2

    for k in range(4):
        x, i = tg.arange(6) + k, tg.tensor([0, 1, 2, 3, 4, 5])
        for a, b in zip(f(x, i), f.function(x, i), strict=True):
            assert a.dtype is b.dtype
            assert a.tolist() == b.tolist()


def test_nan_and_infinity_propagate() -> None:
    values = tg.tensor([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0])

    def f(x: Any) -> Any:
        return x.exp(), x.log(), x.tanh(), x.relu(), x.maximum(x * 0), x.sum(), x.amax(), x * 0

    compiled = tg.compile(f)
    for _ in range(3):
        found = compiled(values)
    for a, b in zip(f(values), found, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6)


def test_empty_tensors() -> None:
    same_as_eager(lambda x: (x * 2).sum(1) + 1, (3, 0))
    same_as_eager(lambda x: x @ x.T + x.sum(), (0, 4))


def test_layouts_are_part_of_the_signature() -> None:
    f = tg.compile(lambda x: x * 2 + x.sum(0))
    for i in range(6):
        x = randn(4, 4, seed=i)
        x = x.T if i % 2 else x
        close(f(x), x * 2 + x.sum(0))
    assert len(f._signatures) == 2


# -- training steps ------------------------------------------------------------------------------


class Mlp:
    """A network of plain tensors with its training step."""

    def __init__(self, *sizes: int, rate: float = 0.1) -> None:
        rng = np.random.default_rng(0)
        self.rate = rate
        self.parameters: list[Tensor] = []
        for a, b in itertools.pairwise(sizes):
            w = (rng.standard_normal((b, a)) / a**0.5).astype(np.float32)
            self.parameters += [
                tg.tensor(w, requires_grad=True),
                tg.zeros(b, requires_grad=True),
            ]

    def loss(self, x: Any, y: Any) -> Any:
        w1, b1, w2, b2 = self.parameters
        z = (x @ w1.T + b1).relu() @ w2.T + b2
        top = z.detach().amax(1, keepdim=True)
        total = (z - top).exp().sum(1, keepdim=True).log() + top
        return -(z - total).gather(1, y.unsqueeze(1)).mean()

    def step(self, x: Any, y: Any) -> Any:
        for p in self.parameters:
            p.grad = None
        loss = self.loss(x, y)
        loss.backward()
        with tg.no_grad():
            for p in self.parameters:
                p -= self.rate * p.grad
        return loss


def batches(count: int, rows: int = 16, width: int = 24, classes: int = 5) -> Iterator[Any]:
    rng = np.random.default_rng(1)
    for _ in range(count):
        yield (
            tg.tensor(rng.standard_normal((rows, width)).astype(np.float32)),
            tg.tensor(rng.integers(0, classes, rows)),
        )


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_mlp_step_equals_eager(threads: int) -> None:
    pool.set_num_threads(threads)
    # Wide enough for products and loops to be divided among threads.
    eager, compiled = Mlp(200, 256, 10), Mlp(200, 256, 10)
    step = tg.compile(compiled.step)
    for x, y in batches(20, rows=64, width=200, classes=10):
        a, b = eager.step(x, y), step(x, y)
        assert abs(a.item() - b.item()) <= 1e-4 * abs(a.item())
        for p, q in zip(eager.parameters, compiled.parameters, strict=True):
            close(p, q)
            assert q.requires_grad
            assert q.is_leaf
            assert q.grad is not None
            assert p.grad is not None
            close(p.grad, q.grad)
    assert replayed(step) == 18
    assert callbacks(step) == []


def test_history_of_the_loss_is_spent_as_in_eager() -> None:
    network = Mlp(24, 8, 5)
    step = tg.compile(network.step)
    for x, y in batches(4):
        loss = step(x, y)
        assert loss.requires_grad
        with pytest.raises(RuntimeError, match="freed what it had saved"):
            loss.backward()


def test_gradients_own_their_memory() -> None:
    network = Mlp(24, 8, 5)
    step = tg.compile(network.step)
    kept: list[Any] = []
    for x, y in batches(6):
        step(x, y)
        kept.append([(p.grad, p.grad.numpy().copy()) for p in network.parameters])
    for grads in kept:
        for grad, copy in grads:
            np.testing.assert_array_equal(grad.numpy(), copy)
    memory = {g.data_ptr() for grads in kept for g, _ in grads}
    assert len(memory) == 6 * len(network.parameters)


def test_gradient_accumulation_and_outside_resets() -> None:
    eager, compiled = Mlp(24, 8, 5), Mlp(24, 8, 5)

    def accumulate(network: Mlp) -> Callable[..., Any]:
        def step(x: Any, y: Any) -> Any:
            loss = network.loss(x, y)
            loss.backward()
            return loss.detach()

        return step

    plain, fast = accumulate(eager), tg.compile(accumulate(compiled))
    for i, (x, y) in enumerate(batches(18)):
        if i % 3 == 0:
            for p in (*eager.parameters, *compiled.parameters):
                p.grad = None
        close(plain(x, y), fast(x, y))
        for p, q in zip(eager.parameters, compiled.parameters, strict=True):
            close(p.grad, q.grad)
    assert len(fast.replays) == 2
    assert replayed(fast) >= 8


def test_gradients_of_gradients_inside() -> None:
    w = randn(4, 4).requires_grad_()

    def f(x: Any) -> Any:
        y = (x @ w).tanh().sum()
        (g,) = tg.autograd.grad(y, w, create_graph=True)
        penalty = (g * g).sum()
        (gg,) = tg.autograd.grad(penalty, w)
        return gg, penalty.detach()

    assert callbacks(same_as_eager(f, (3, 4))) == []


def test_gradients_of_arguments() -> None:
    def f(x: Any) -> Any:
        ((x * 3).tanh().sum()).backward()

    fast = tg.compile(f)
    for i in range(5):
        a, b = randn(3, seed=i).requires_grad_(), randn(3, seed=i).requires_grad_()
        f(a)
        fast(b)
        close(a.grad, b.grad)
    assert replayed(fast) == 3


def model_and_optimizer(make: Callable[[Any], Any]) -> Any:
    tg.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 5)
    )
    optimizer = make(model.parameters())

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, optimizer, step


@pytest.mark.parametrize(
    "make",
    [
        lambda p: optim.SGD(p, lr=0.1),
        lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-3, nesterov=True),
        lambda p: optim.Adam(p, lr=1e-2),
        lambda p: optim.AdamW(p, lr=1e-2, amsgrad=True),
        lambda p: optim.RMSprop(p, lr=1e-3),
    ],
)
def test_optimizers_and_schedules(make: Callable[[Any], Any]) -> None:
    eager, compiled = model_and_optimizer(make), model_and_optimizer(make)
    fast = tg.compile(compiled[2])
    for i, (x, y) in enumerate(batches(16)):
        for _, optimizer, _ in (eager, compiled):
            group = optimizer.param_groups[0]
            group["lr"] = 0.05 / (1 + i)
            if i == 10:
                group["weight_decay"] = 0.05
        a, b = eager[2](x, y), fast(x, y)
        assert abs(a.item() - b.item()) <= 1e-4 * abs(a.item())
    for p, q in zip(eager[0].parameters(), compiled[0].parameters(), strict=True):
        close(p, q)
    assert replayed(fast) >= 9
    assert callbacks(fast) == []


def test_runtime_numbers_decide_by_joining_the_signature() -> None:
    class Holder:
        options: ClassVar = {"scale": 2.0}

    def f(x: Any) -> Any:
        scale = runtime_number(Holder.options, "scale")
        return x * scale if scale > 1 else x - scale

    fast = tg.compile(f)
    for scale in (2.0, 3.0, 4.0, 5.0, 0.5, 0.25, 0.125, 0.0625, 6.0):
        Holder.options["scale"] = scale
        x = randn(3)
        expected = x * scale if scale > 1 else x - scale
        close(fast(x), expected)
    assert len(fast.replays) == 2


def test_random_numbers_are_those_of_eager() -> None:
    def f(x: Any) -> Any:
        return F.dropout(x, 0.5) + tg.rand(3)

    fast = tg.compile(f)
    for i in range(5):
        x = randn(4, 3, seed=i)
        tg.manual_seed(i)
        a = f(x)
        tg.manual_seed(i)
        b = fast(x)
        close(a, b)
        assert tg.rand(1).item() != 0
    assert replayed(fast) == 3


def test_train_and_eval_are_seen() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))

    def f(x: Any) -> Any:
        with tg.no_grad():
            return model(x)

    fast = tg.compile(f)
    x = randn(8, 4)
    for mode in (True, False, True, False):
        model.train(mode)
        for i in range(4):
            tg.manual_seed(i)
            a = f(x)
            tg.manual_seed(i)
            close(a, fast(x))


# -- state ---------------------------------------------------------------------------------------


def test_captured_tensors_are_read_and_written_in_place() -> None:
    state, scale = tg.zeros(3), tg.ones(3)
    memory = state.data_ptr()

    @tg.compile
    def f(x: Any) -> Any:
        state.mul_(0.5)
        state.add_(x)
        return state * scale

    expected = np.zeros(3, np.float32)
    for i in range(6):
        x = randn(3, seed=i)
        if i == 4:
            with tg.no_grad():
                scale *= 3
        expected = expected * 0.5 + x.numpy()
        out = f(x)
        np.testing.assert_allclose(state.numpy(), expected, rtol=1e-6)
        np.testing.assert_allclose(out.numpy(), expected * scale.numpy(), rtol=1e-6)
    assert state.data_ptr() == memory
    assert replayed(f) == 4


def test_replaced_memory_is_seen() -> None:
    w = tg.ones(3)
    f = tg.compile(lambda x: x * w)
    for i in range(6):
        if i == 4:
            w.data = tg.full((3,), 5.0)
        x = randn(3, seed=i)
        close(f(x), x * w)
    w.data = tg.full((2, 3), 5.0)
    close(f(x), x * w)


def test_partial_writes_and_views_of_state() -> None:
    def run(compiled: bool) -> Any:
        state = tg.zeros(4, 3)
        row = state[1]

        def f(x: Any) -> Any:
            state[0] = x
            row.add_(x * 2)
            state[2:, 1] += 1
            state.detach()[3].mul_(2)
            return state.sum(0) + row

        g = tg.compile(f) if compiled else f
        outs = [g(randn(3, seed=i)) for i in range(6)]
        return state, outs, row

    (a, outs, row), (b, found, seen) = run(False), run(True)
    close(a, b)
    close(row, seen)
    for x, y in zip(outs, found, strict=True):
        close(x, y)


def test_data_is_the_tensor_itself() -> None:
    w = tg.ones(3, requires_grad=True)

    @tg.compile
    def f(x: Any) -> Any:
        w.data -= x
        return (w * 2).detach()

    total = np.ones(3, np.float32)
    for i in range(5):
        x = randn(3, seed=i)
        total -= x.numpy()
        np.testing.assert_allclose(f(x).numpy(), total * 2, rtol=1e-5)
        np.testing.assert_allclose(w.detach().numpy(), total, rtol=1e-5)
    assert replayed(f) == 3


def test_state_exchanged_between_tensors() -> None:
    a, b = tg.zeros(3), tg.ones(3)

    @tg.compile
    def swap() -> None:
        old = a.clone()
        a.copy_(b)
        b.copy_(old)

    for i in range(5):
        swap()
        assert a.tolist() == [float((i + 1) % 2)] * 3
        assert b.tolist() == [float(i % 2)] * 3


def test_results_do_not_alias() -> None:
    f = tg.compile(lambda x: (x * 2, x + 1))
    outs = [f(tg.full((3,), float(i))) for i in range(6)]
    for i, (double, more) in enumerate(outs):
        assert double.tolist() == [2.0 * i] * 3
        assert more.tolist() == [i + 1.0] * 3
    assert len({t.data_ptr() for pair in outs for t in pair}) == 12


def test_arguments_that_share_memory() -> None:
    def f(x: Any, y: Any) -> Any:
        x.add_(1)
        return x + y

    fast = tg.compile(f)
    for i in range(4):
        x = randn(3, seed=i)
        close(fast(x.clone(), x.clone()), x + 1 + x)
    for i in range(4):
        x, y = randn(3, seed=i), randn(3, seed=i)
        close(fast(x, x), f(y, y))


def test_version_counters_see_a_replay() -> None:
    w = tg.ones(3, requires_grad=True)

    @tg.compile
    def f() -> None:
        with tg.no_grad():
            w.mul_(2)

    for _ in range(3):
        f()
    y = (w * w).sum()
    f()
    with pytest.raises(RuntimeError, match="changed in place"):
        y.backward()


# -- signatures ----------------------------------------------------------------------------------

RATE = 2.0
CONFIG = {"shift": 1.0}


def _helper(x: Any) -> Any:
    return x * RATE + CONFIG["shift"]


def test_globals_closures_and_arguments_are_never_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    factor = 1.0

    @tg.compile
    def f(x: Any, power: int) -> Any:
        return _helper(x) * factor + x**power

    x = randn(3)
    for rate in (2.0, 3.0):
        monkeypatch.setitem(globals(), "RATE", rate)
        for shift in (1.0, 5.0):
            monkeypatch.setitem(CONFIG, "shift", shift)
            for factor in (1.0, 2.0):
                for power in (2, 3):
                    for _ in range(3):
                        close(f(x, power), (x * rate + shift) * factor + x**power)


def test_new_shapes_record_anew() -> None:
    f = tg.compile(lambda x: x * 2)
    for n in (3, 4, 3, 4, 3, 4, 3, 4):
        close(f(tg.ones(n)), tg.ones(n) * 2)
    assert len(f._signatures) == 2
    assert replayed(f) == 4


def test_too_many_signatures_run_eagerly_and_say_so() -> None:
    f = tg.compile(lambda x: x * 2, max_signatures=2)
    f(tg.ones(1))
    f(tg.ones(2))
    with pytest.warns(UserWarning, match="more than 2 signatures"):
        assert f(tg.ones(3)).tolist() == [2, 2, 2]
    assert f(tg.ones(4)).tolist() == [2, 2, 2, 2]


def test_freezing_a_parameter_is_seen() -> None:
    network = Mlp(24, 8, 5)
    step = tg.compile(lambda x, y: network.loss(x, y).backward() and None)
    for i, (x, y) in enumerate(batches(12)):
        for p in network.parameters:
            p.grad = None
        network.parameters[0].requires_grad_(i < 6)
        step(x, y)
        assert (network.parameters[0].grad is not None) == (i < 6)
        assert network.parameters[1].grad is not None


def test_grad_mode_is_part_of_the_signature() -> None:
    w = tg.ones(3, requires_grad=True)

    @tg.compile
    def f(x: Any) -> Any:
        y = (x * w).sum()
        return y.requires_grad and bool(y.backward() is not None)

    for _ in range(3):
        assert f(randn(3)) is True
        with tg.no_grad():
            assert f(randn(3)) is False


def test_state_born_in_the_first_call() -> None:
    state: dict[str, Any] = {}

    @tg.compile
    def f(x: Any) -> Any:
        if "mean" not in state:
            state["mean"] = tg.zeros(3)
        state["mean"].mul_(0.5).add_(x)
        return state["mean"] * 1

    total = np.zeros(3, np.float32)
    for i in range(6):
        x = randn(3, seed=i)
        total = total * 0.5 + x.numpy()
        np.testing.assert_allclose(f(x).numpy(), total, rtol=1e-6)
    assert replayed(f) >= 2


def test_state_in_ever_new_tensors_is_an_error() -> None:
    state = {"hidden": tg.zeros(3)}
    box = [state]

    class Holder:
        hidden = tg.zeros(3)

    @tg.compile
    def f(x: Any) -> Any:
        Holder.hidden = (Holder.hidden + x).detach()
        return Holder.hidden * 1

    for i in range(4):
        f(randn(3, seed=i))
    before = Holder.hidden
    with pytest.raises(RuntimeError, match="another tensor was read"):
        f(randn(3))
    assert Holder.hidden is before
    assert box


def test_numpy_arguments_are_refused() -> None:
    f = tg.compile(lambda x: x)
    with pytest.raises(TypeError, match="from_numpy"):
        f(np.ones(3))


# -- what a replay cannot do -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "read",
    [
        lambda y: y.item(),
        float,
        bool,
        lambda y: y.numpy(),
        lambda y: y.tolist(),
        lambda y: 1 if y > 0 else 2,
        lambda y: tg.tensor([1.0, 2.0])[y > 0],
        lambda y: y.reshape(1).nonzero(),
    ],
)
def test_reading_a_value_names_the_line_and_the_fix(read: Callable[[Any], Any]) -> None:
    def f(x: Any) -> Any:
        y = x.sum().detach()
        read(y)
        return y

    with pytest.raises(CaptureError, match=r"test_replay.py:\d+.*(where|masked_fill)"):
        tg.compile(f)(randn(3))


def test_constants_made_inside_may_be_read() -> None:
    f = tg.compile(lambda x: x * tg.tensor([2.0]).item() + tg.arange(3))
    for i in range(4):
        x = randn(3, seed=i)
        close(f(x), x * 2 + tg.arange(3))


def test_an_error_while_recording_leaves_what_eager_leaves() -> None:
    state = tg.zeros(3)
    fail = [True]

    @tg.compile
    def f(x: Any) -> Any:
        state.add_(x)
        if fail[0]:
            raise KeyError("stop")
        return state * 2

    with pytest.raises(KeyError):
        f(tg.ones(3))
    assert state.tolist() == [1, 1, 1]
    assert tg.is_grad_enabled()
    assert (tg.ones(2, requires_grad=True) * 2).requires_grad
    fail[0] = False
    for i in range(4):
        assert f(tg.ones(3)).tolist() == [2.0 * (i + 2)] * 3


def test_bad_labels_are_errors_before_anything_changes() -> None:
    network = Mlp(24, 8, 5)
    step = tg.compile(network.step)
    for x, y in batches(4):
        step(x, y)
    before = [p.detach().clone() for p in network.parameters]
    with pytest.raises(IndexError, match=r"out of range, at .*test_replay.py:\d+"):
        step(x, y * 0 + 7)
    for p, q in zip(network.parameters, before, strict=True):
        np.testing.assert_array_equal(p.detach().numpy(), q.numpy())
    assert step(x, y).item() > 0


def test_results_with_history_run_eagerly_and_say_so() -> None:
    w = tg.ones(3, requires_grad=True)
    f = tg.compile(lambda x: (x * w).sum())
    f(randn(3))
    with pytest.warns(UserWarning, match="can still be differentiated"):
        f(randn(3)).backward()
    assert w.grad is not None
    assert "can still be differentiated" in f.explain()


def test_memory_shared_by_accident_runs_eagerly() -> None:
    memory = np.zeros(4, np.float32)
    a, b = tg.from_numpy(memory[:3]), tg.from_numpy(memory[1:])

    @tg.compile
    def f(x: Any) -> Any:
        a.add_(x)
        return b * 2

    f(tg.ones(3))
    with pytest.warns(UserWarning, match="memory another tensor shares"):
        assert f(tg.ones(3)).tolist() == [4, 4, 0]


def test_tapes_see_the_operations_of_a_compiled_function() -> None:
    f = tg.compile(lambda x: (x * x).sum())
    x = randn(3)
    for _ in range(3):
        f(x)
    with tg.Tape() as tape:
        f(x)
    assert len(tape) == 2


def test_compiled_functions_inside_compiled_functions() -> None:
    inner = tg.compile(lambda x: x * 2)
    outer = tg.compile(lambda x: inner(x) + 1)
    for i in range(4):
        close(outer(randn(3, seed=i)), randn(3, seed=i) * 2 + 1)
    assert replayed(outer) == 2
    assert len(inner._signatures) == 0


def test_methods_can_be_compiled() -> None:
    class Scaled:
        def __init__(self, factor: float) -> None:
            self.factor = tg.tensor(factor)

        @tg.compile
        def run(self, x: Any) -> Any:
            """Doc."""
            return x * self.factor

    a, b = Scaled(2.0), Scaled(3.0)
    for i in range(4):
        x = randn(3, seed=i)
        close(a.run(x), x * 2)
        close(b.run(x), x * 3)
    assert Scaled.run.__doc__ == "Doc."


# -- being told ----------------------------------------------------------------------------------


def test_explain_and_programs_read_like_code() -> None:
    network = Mlp(24, 8, 5)
    step = tg.compile(network.step)
    for x, y in batches(4):
        step(x, y)
    text = step.explain()
    for part in (
        "float32[16,24], int64[16]",
        "recorded 1 time(s) because it is new",
        "replayed 2 time(s)",
        "0 callbacks",
        "arena",
        "compiled in",
        "test_replay.py:",
    ):
        assert part in text
    (replay,) = step.replays
    recorded = str(replay.recording.program)
    assert "matmul(" in recorded
    assert "write tensor" in recorded
    assert replay.executable is not None
    lowered = str(replay.executable.program)
    assert "loop [16, 8]:" in lowered
    assert "product(" in lowered


def test_callbacks_are_visible() -> None:
    f = same_as_eager(lambda x: (x * 2).cumsum(0) + 1, (4, 3))
    assert callbacks(f) == ["cumsum"]
    assert "callback cumsum" in f.explain()


@pytest.mark.parametrize("skipped", ["constants", "common", "dead", "fuse", "trim"])
def test_every_pass_can_be_left_out(skipped: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPEGRAD_WITHOUT", skipped)
    eager, compiled = Mlp(24, 8, 5), Mlp(24, 8, 5)
    step = tg.compile(compiled.step)
    for x, y in batches(5):
        close(eager.step(x, y), step(x, y))
    for p, q in zip(eager.parameters, compiled.parameters, strict=True):
        close(p, q)


def test_compilation_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPEGRAD_COMPILE", "0")
    f = tg.compile(lambda x: float(x.sum()))
    assert [f(tg.ones(2)) for _ in range(4)] == [2.0] * 4
    assert "TAPEGRAD_COMPILE=0" in f.explain()


def test_without_llvmlite_it_runs_eagerly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "available", lambda: False)
    f = tg.compile(lambda x: x * 2)
    f(tg.ones(2))
    f(tg.ones(2))
    with pytest.warns(UserWarning, match="llvmlite is not installed"):
        assert f(tg.ones(2)).tolist() == [2, 2]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert f(tg.ones(2)).tolist() == [2, 2]


def test_without_blas_products_are_callbacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "blas", lambda: False)
    assert callbacks(same_as_eager(lambda x: x @ x.T, (3, 4))) == ["matmul"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_replay_after_a_fork() -> None:
    code = """
import os, numpy as np, tapegrad as tg
from tapegrad.replay import set_num_threads
set_num_threads(2)
f = tg.compile(lambda x: (x @ x.T).sum())
x = tg.ones(300, 300)
for _ in range(4):
    f(x)
child = os.fork()
ok = f(x).item() == 300.0**3
if child == 0:
    os._exit(0 if ok else 1)
assert ok
assert os.waitpid(child, 0)[1] == 0
"""
    root = pathlib.Path(__file__).parent.parent
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONWARNINGS": "ignore"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=120)


def test_replay_knows_no_operation_by_name() -> None:
    folder = pathlib.Path(tg.__file__).parent / "replay"
    for file in folder.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert not (node.module or "").startswith("ops"), file
                names = {alias.name for alias in node.names}
                assert not names & {"ops", "PRIMITIVES"}, file
            if isinstance(node, ast.Compare):
                compared = [node.left, *node.comparators]
                assert not any(
                    isinstance(x, ast.Attribute)
                    and x.attr == "name"
                    and isinstance(x.value, ast.Attribute)
                    and x.value.attr == "primitive"
                    for x in compared
                ), file


# -- scalar functions ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "low", "high", "ulps"),
    [
        ("exp", -104, 89, 1.0),
        ("exp2", -150, 129, 1.0),
        ("log", 0, 100, 1.0),
        ("tanh", -10, 10, 1.5),
        ("sigmoid", -20, 20, 2.5),
        ("erf", -5, 5, 1.5),
    ],
)
def test_functions_are_accurate(name: str, low: float, high: float, ulps: float) -> None:
    import scipy.special

    rng = np.random.default_rng(0)
    spread = rng.uniform(low, high, 200_000)
    near = np.exp(rng.uniform(-30, 2, 50_000)) * rng.choice([1, -1] if low < 0 else [1], 50_000)
    x = np.concatenate([spread, near]).astype(np.float32)
    function = tg.compile(getattr(tg, name))
    for _ in range(3):
        found = function(tg.from_numpy(x)).numpy()
    reference = {"erf": scipy.special.erf, "sigmoid": scipy.special.expit}.get(name)
    reference = reference or getattr(np, name)
    exact = reference(x.astype(np.float64))
    rounded = exact.astype(np.float32)
    finite = np.isfinite(rounded)
    np.testing.assert_array_equal(found[~finite], rounded[~finite])
    error = np.abs(found[finite] - exact[finite]) / np.spacing(np.abs(rounded[finite]))
    assert error.max() <= ulps


# -- every operation -------------------------------------------------------------------------------

REFUSED = {"argwhere", "masked_select", "nonzero", "nn.functional.one_hot"}


@pytest.mark.parametrize("name", NAMES)
def test_first_sample_of_every_operation(name: str) -> None:
    """Values and gradients of an op, recorded on other data than it is replayed on."""
    op = TABLE[name]
    assert op.samples is not None
    sample = op.samples()[0]

    def f(*args: Any, **kwargs: Any) -> Any:
        out = op.function(*args, **kwargs)
        outs = [o for o in flat(out) if isinstance(o, Tensor)]
        given = [x for x in flat([args, list(kwargs.values())]) if isinstance(x, Tensor)]
        inputs = [x for x in given if x.requires_grad]
        total = sum((o * o).sum() for o in outs if o.requires_grad)
        values = [o.detach() if isinstance(o, Tensor) else o for o in flat(out)]
        if not inputs or not isinstance(total, Tensor):
            return values
        return values, tg.autograd.grad(total, inputs, allow_unused=True)

    fast = tg.compile(f)
    for i in range(4):
        results = []
        for function in (f, fast):
            args, kwargs = make_arguments(sample, generator(name, i), tg.float32, True)
            tg.manual_seed(i)
            try:
                results.append(flat(function(*args, **kwargs)))
            except CaptureError:
                assert name in REFUSED
                return
        for a, b in zip(*results, strict=True):
            if isinstance(a, Tensor):
                assert (a.dtype, a.shape) == (b.dtype, b.shape)
                close(a, b, 2e-5)
            else:
                assert a == b or a != a
    assert replayed(fast) == 2
