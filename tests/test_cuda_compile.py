"""Compiled functions on a GPU: the same as eager code there, and the same as on the CPU.

Where there is no GPU, these tests run on a stand-in for CuPy (`stand_in_cupy.py`).
"""

import copy
import math
import warnings

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import nn
from tapegrad.replay.cuda.target import CUDA

pytestmark = pytest.mark.usefixtures("gpu")

F = nn.functional
CALLS = 6


def array_of(x):
    return x.detach().cpu().numpy()


def on(device, array):
    return tg.tensor(array, device=device)


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def close(a, b, rtol=2e-4, atol=2e-5):
    np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


def replays(compiled):
    return sum(r.count for r in compiled.replays)


# -- training ----------------------------------------------------------------------------------


class Perceptron(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 3))

    def forward(self, x):
        return self.layers(x)


class Convolutional(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.25)
        self.out = nn.Linear(4 * 3 * 3, 3)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv(x.reshape(-1, 1, 6, 6)))), 2)
        return self.out(self.drop(x.flatten(1)))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(36, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.out = nn.Linear(8, 3)

    def forward(self, x):
        tokens = (x.abs() * 10).clamp(max=35).to(tg.int64)
        return self.out(self.encoder(self.embed(tokens)).mean(1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(6, 8, batch_first=True)
        self.out = nn.Linear(8, 3)

    def forward(self, x):
        found, _ = self.lstm(x.reshape(x.shape[0], -1, 6))
        return self.out(found[:, -1])


MODELS = {
    Perceptron: (6, lambda p: tg.optim.SGD(p, lr=0.05, momentum=0.9)),
    Convolutional: (36, lambda p: tg.optim.Adam(p, lr=0.01)),
    # Biases of keys have gradients of rounding errors, which a small eps would make steps of.
    Transformer: (36, lambda p: tg.optim.AdamW(p, lr=0.01, eps=1e-3, weight_decay=0.1)),
    Recurrent: (36, lambda p: tg.optim.RMSprop(p, lr=0.01)),
}


def trained(kind, device, compiled, **options):
    """Losses and the state of a model after some steps of training, with a schedule."""
    tg.manual_seed(3)
    features, optimizer_of = MODELS[kind]
    model = kind().to(device)
    optimizer = optimizer_of(model.parameters())
    schedule = tg.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1 / (1 + n))

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        return loss

    if compiled:
        step = tg.compile(step, fullgraph=True, **options)
    losses = []
    for i in range(CALLS):
        x = on(device, numbers(5, features, seed=i))
        y = on(device, np.random.default_rng(i).integers(0, 3, 5))
        losses.append(step(x, y))
        schedule.step()
    if compiled:
        assert replays(step) >= 2, step.explain()
    assert all(loss.device.type == device for loss in losses)
    state = [array_of(t) for t in (*model.state_dict().values(), tg.rand(2))]
    return [loss.item() for loss in losses], state


@pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind.__name__)
def test_training(kind):
    on_cpu, eager, compiled = (
        trained(kind, *how) for how in (("cpu", False), ("cuda", False), ("cuda", True))
    )
    close(compiled[0], eager[0])
    close(compiled[0], on_cpu[0], rtol=2e-3)
    for a, b, c in zip(compiled[1], eager[1], on_cpu[1], strict=True):
        close(a, b)
        close(a, c, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("kind", [Perceptron, Convolutional], ids=lambda kind: kind.__name__)
def test_every_replay_is_checked(kind):
    close(trained(kind, "cuda", True, check=True)[0], trained(kind, "cuda", False)[0])


def test_backends():
    own = CUDA().missing() is None
    for backend in ("cuda" if own else "cupy", "numpy", "native"):
        double = tg.compile(lambda x: x * 2 + 1, backend=backend, fullgraph=True)
        for i in range(4):
            assert double(on("cuda", np.full(3, i, np.float32))).tolist() == [2 * i + 1] * 3
        assert replays(double) >= 2
    assert ("kernel" if own else "CuPy") in double.explain(full=True)
    assert "replay" in double.explain()
    only = tg.compile(lambda x: x * 2, backend="cuda" if own else "cupy")
    with pytest.warns(UserWarning, match="no programs for tensors on cpu"):
        found = [only(tg.ones(2)).tolist() for _ in range(4)]
    assert found == [[2, 2]] * 4


def test_one_function_on_both_devices():
    double = tg.compile(lambda x: (x * 2).sum(), fullgraph=True)
    for i in range(8):
        device = ("cpu", "cuda")[i % 2]
        out = double(tg.ones(3, device=device) * i)
        assert out.device.type == device
        assert out.item() == 6 * i


# -- gradients ---------------------------------------------------------------------------------


def test_functions_that_are_differentiated_outside():
    w = on("cuda", numbers(4, 4)).requires_grad_()
    function = tg.compile(lambda x: ((x @ w).tanh(), (x * 2).sum()), fullgraph=True)
    for i in range(5):
        x = on("cuda", numbers(3, 4, seed=i)).requires_grad_()
        y, total = function(x)
        (y.sum() + total).backward()
        mine, w.grad = (array_of(x.grad), array_of(w.grad)), None
        x2 = x.detach().clone().requires_grad_()
        ((x2 @ w).tanh().sum() + (x2 * 2).sum()).backward()
        for a, b in zip(mine, (x2.grad, w.grad), strict=True):
            close(a, array_of(b))
        w.grad = None
    assert replays(function) >= 2


def test_backward_of_one_output_and_twice():
    function = tg.compile(lambda x: (x * x * x, x.exp()), fullgraph=True)
    for i in range(5):
        x = on("cuda", numbers(3, seed=i)).requires_grad_()
        cubes, powers = function(x)
        (g,) = tg.autograd.grad(cubes.sum(), x, create_graph=True)
        (gg,) = tg.autograd.grad(g.sum(), x)
        close(array_of(gg), 6 * array_of(x))
        assert gg.is_cuda
        assert powers.is_cuda
    assert replays(function) >= 2


def test_gradients_accumulate_and_stay_the_callers():
    w = tg.ones(3, device="cuda", requires_grad=True)

    @tg.compile(fullgraph=True)
    def step(x):
        (w * x).sum().backward()

    kept = []
    for i in range(6):
        step(tg.full((3,), float(i), device="cuda"))
        assert w.grad.is_cuda
        assert w.grad.tolist() == [sum(range(i + 1))] * 3
    w.grad = None

    @tg.compile(fullgraph=True)
    def anew(x):
        w.grad = None
        (w * x).sum().backward()

    for i in range(6):
        anew(tg.full((3,), float(i), device="cuda"))
        kept.append(w.grad)
    assert [g.tolist() for g in kept] == [[float(i)] * 3 for i in range(6)]


def test_a_gradient_is_on_the_device_of_its_tensor():
    w = tg.ones(3, device="cuda", requires_grad=True)
    with pytest.raises(RuntimeError, match="cannot be on cpu"):
        w.grad = tg.ones(3)


def test_hooks_and_frozen_parameters():
    w = tg.ones(2, device="cuda", requires_grad=True)
    w.register_hook(lambda g: g * 10)

    @tg.compile(fullgraph=True)
    def step(x):
        w.grad = None
        (w * x).sum().backward()
        return w.grad * 1

    for _ in range(5):
        assert step(tg.ones(2, device="cuda")).tolist() == [10, 10]


# -- memory ------------------------------------------------------------------------------------


def test_views_as_arguments():
    base = on("cuda", numbers(6, 8))
    function = tg.compile(lambda x: x * 2 + 1, fullgraph=True)
    for i in range(3):
        for part in (base[i : i + 2], base[:, i], base.T[i : i + 3], base[::2, ::3]):
            close(array_of(function(part)), array_of(part) * 2 + 1)
    assert replays(function) >= 2


def test_arguments_that_move_or_overlap():
    @tg.compile(fullgraph=True)
    def add(a, b):
        a.add_(b)
        return a.sum()

    for i in range(8):
        memory = on("cuda", np.arange(8, dtype=np.float32) + i)
        expected = memory.clone()
        first, second = memory[: 4 + i % 2], memory[3 - i % 2 : 7]
        first, second = first[:4], second[:4]
        want = first.clone() + second.clone()
        out = add(first, second)
        close(array_of(first), array_of(want))
        assert out.item() == pytest.approx(want.sum().item())
        close(array_of(memory[7:]), array_of(expected[7:]))
    x = tg.ones(3, device="cuda")
    for i in range(4):  # the same tensor twice
        add(x, x)
        assert x.tolist() == [2.0 ** (i + 1)] * 3


def test_captured_tensors_that_are_replaced():
    w = on("cuda", numbers(3))
    state = tg.zeros(3, device="cuda")

    @tg.compile(fullgraph=True)
    def function(x):
        state.add_(x)
        return x * w

    for i in range(8):
        if i % 3 == 2:
            w.data = on("cuda", numbers(3, seed=i))
            state.data = state.data.clone()
        x = tg.full((3,), float(i), device="cuda")
        close(array_of(function(x)), array_of(w) * i)
        assert state.tolist() == [sum(range(i + 1))] * 3
    assert replays(function) >= 3
    w.data = w.data.cpu()
    state.data = state.data.cpu()
    for _ in range(3):
        assert not function(tg.ones(3)).is_cuda


def test_results_are_kept():
    losses, function = [], tg.compile(lambda x: (x * x).sum(), fullgraph=True)
    for i in range(6):
        losses.append(function(tg.full((2,), float(i), device="cuda")))
    assert [x.item() for x in losses] == [2.0 * i * i for i in range(6)]


def test_results_that_are_views_or_arguments():
    @tg.compile(fullgraph=True)
    def function(x):
        y = x * 2
        return y, y[0], y.T, x, {"part": x[1]}

    for i in range(5):
        x = on("cuda", numbers(2, 3, seed=i))
        y, row, turned, same, parts = function(x)
        assert same is x
        y.zero_()
        assert not row.any()
        assert not turned.any()
        parts["part"].fill_(7.0)
        assert x[1].tolist() == [7, 7, 7]


def test_tensors_made_inside():
    @tg.compile(fullgraph=True)
    def function(x):
        mask = tg.arange(3, device=x.device) < 2
        shift = tg.tensor([1.0, 2.0, 3.0], device=x.device)
        return tg.where(mask, x + shift, tg.zeros(3, device=x.device)), tg.zeros_like(x)

    for i in range(5):
        out, zeros = function(tg.full((3,), float(i), device="cuda"))
        assert out.tolist() == [i + 1, i + 2, 0]
        assert zeros.tolist() == [0, 0, 0]
        zeros.fill_(5.0)


# -- errors and mixed devices ------------------------------------------------------------------


def test_a_bad_label_changes_nothing():
    tg.manual_seed(0)
    model = nn.Linear(4, 3).to("cuda")
    optimizer = tg.optim.Adam(model.parameters(), lr=0.1)
    count = tg.zeros(1, device="cuda")

    @tg.compile(fullgraph=True)
    def step(x, y):
        optimizer.zero_grad()
        count.add_(1)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    x, good = on("cuda", numbers(2, 4)), tg.tensor([0, 2], device="cuda")
    for _ in range(4):
        step(x, good)
    before = [array_of(t) for t in model.parameters()]
    with pytest.raises((IndexError, RuntimeError, ValueError)):
        step(x, tg.tensor([0, 3], device="cuda")).item()
    for a, b in zip(before, model.parameters(), strict=True):
        np.testing.assert_array_equal(a, array_of(b))
    step(x, good)
    with pytest.raises(IndexError):
        tg.compile(lambda x, i: x[i])(x, tg.tensor([5], device="cuda"))


def test_several_devices_run_eagerly():
    host, there = tg.ones(3), tg.ones(3, device="cuda")

    @tg.compile
    def both(x):
        return (x * 2).cpu() + host

    with pytest.warns(UserWarning, match=r"several devices \(cpu and cuda:0\)"):
        found = [both(there * i).tolist() for i in range(4)]
    assert found == [[2 * i + 1] * 3 for i in range(4)]
    assert "several devices" in both.explain()
    pair = tg.compile(lambda x, y: (x + 1, y + 1))
    with pytest.warns(UserWarning, match="several devices"):
        found = [[t.is_cuda for t in pair(host, there)] for _ in range(3)]
    assert found == [[False, True]] * 3
    strict = tg.compile(lambda x: x.sum().cpu(), fullgraph=True)
    with pytest.raises(RuntimeError, match="several devices"):
        [strict(there) for _ in range(3)]
    wrong = tg.compile(lambda x: x + host)
    with pytest.raises(RuntimeError, match="different devices"):
        wrong(there)


def test_numbers_on_the_cpu_join():
    scale, bias = tg.tensor(3.0), tg.tensor(1.0, device="cuda")
    steps = tg.tensor(0.0)

    @tg.compile(fullgraph=True)
    def function(x, y):
        steps.add_(1)
        return x * scale + bias * y + steps, steps * 2

    for i in range(6):
        scale.fill_(float(i))
        out, twice = function(tg.ones(2, device="cuda"), tg.tensor(float(i)))
        assert out.is_cuda
        assert out.tolist() == [i + i + i + 1] * 2
        assert not twice.is_cuda
        assert twice.item() == 2 * (i + 1)
    assert replays(function) >= 3


def test_random_numbers_are_those_of_the_cpu():
    def draw(x):
        noise = tg.randn(4, device=x.device)
        return F.dropout(x, 0.5) + noise + tg.rand_like(x), tg.randperm(5, device=x.device)

    def drawn(device, function):
        tg.manual_seed(5)
        found = [function(tg.ones(4, device=device)) for _ in range(6)]
        assert all(t.device.type == device for pair in found for t in pair)
        return [array_of(t) for pair in found for t in pair] + [array_of(tg.rand(3))]

    compiled = tg.compile(draw, fullgraph=True)
    results = [drawn("cpu", draw), drawn("cuda", draw), drawn("cuda", compiled)]
    assert replays(compiled) >= 2
    for a, b, c in zip(*results, strict=True):
        close(b, a)
        close(c, b)


# -- around training ---------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_checkpoint(rate):
    tg.manual_seed(0)
    layer = nn.Linear(4, 4).to("cuda")

    def step(x):
        layer.zero_grad()
        loss = tg.utils.checkpoint.checkpoint(
            lambda x: F.dropout(layer(x).tanh(), rate), x, use_reentrant=False
        ).sum()
        loss.backward()
        return loss, layer.weight.grad.clone()

    def run(function):
        tg.manual_seed(1)
        found = [function(on("cuda", numbers(3, 4, seed=i))) for i in range(5)]
        return [array_of(t) for pair in found for t in pair]

    compiled = tg.compile(step, fullgraph=True)
    for a, b in zip(run(compiled), run(step), strict=True):
        close(a, b)
    assert replays(compiled) >= 2


@pytest.mark.parametrize("dtype", [tg.float16, tg.bfloat16], ids=str)
def test_autocast_and_scaler(dtype):
    def run(compiled):
        tg.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).to("cuda")
        optimizer = tg.optim.SGD(model.parameters(), lr=0.01)
        scaler = tg.amp.GradScaler("cuda", init_scale=64.0, growth_interval=2)

        def step(x):
            optimizer.zero_grad()
            with tg.autocast("cuda", dtype=dtype):
                loss = model(x).square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            return loss

        function = tg.compile(step) if compiled else step
        losses = [function(on("cuda", numbers(3, 4, seed=i))).item() for i in range(5)]
        if compiled:
            assert replays(function) >= 2, function.explain()
        return losses, scaler.get_scale(), [array_of(p) for p in model.parameters()]

    compiled, eager = run(True), run(False)
    close(compiled[0], eager[0], rtol=2e-2, atol=1e-3)
    assert compiled[1] == eager[1]
    for a, b in zip(compiled[2], eager[2], strict=True):
        close(a, b, rtol=2e-2, atol=1e-3)


def test_states_move_between_devices(tmp_path):
    def make(device):
        tg.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)).to(device)
        optimizer = tg.optim.AdamW(model.parameters(), lr=0.01)

        @tg.compile(fullgraph=True)
        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return model, optimizer, step

    model, optimizer, step = make("cuda")
    for i in range(4):
        step(on("cuda", numbers(3, 4, seed=i)))
    path = tmp_path / "state"
    tg.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    expected = step(on("cuda", numbers(3, 4, seed=9))).item()
    for device in ("cpu", "cuda"):
        model, optimizer, step = make(device)
        for i in range(3):  # compiled for other state
            step(on(device, numbers(3, 4, seed=i)))
        state = tg.load(path, map_location=device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        found = step(on(device, numbers(3, 4, seed=9)))
        assert found.device.type == device
        assert math.isclose(found.item(), expected, rel_tol=1e-3)
        for _ in range(3):
            step(on(device, numbers(3, 4, seed=9)))


def test_modules_compiled_then_moved():
    tg.manual_seed(0)
    model = nn.Linear(3, 2)
    fast = tg.compile(model)
    x = numbers(4, 3)
    on_cpu = [array_of(fast(on("cpu", x))) for _ in range(3)][-1]
    model.to("cuda")
    for _ in range(4):
        out = fast(on("cuda", x))
        assert out.is_cuda
        close(array_of(out), on_cpu)
    again = copy.deepcopy(model)
    assert again.weight.is_cuda


def test_optimizer_steps_outside_of_compiled_functions():
    def run(device):
        tg.manual_seed(0)
        parameters = [nn.Parameter(tg.randn(8, device=device)) for _ in range(20)]
        optimizer = tg.optim.AdamW(parameters, lr=0.1)
        for i in range(4):
            optimizer.zero_grad()
            sum((p * p).sum() for p in parameters).backward()
            optimizer.param_groups[0]["lr"] = 0.1 / (i + 1)
            optimizer.step()
        return [array_of(p) for p in parameters], optimizer

    (on_cpu, _), (there, optimizer) = run("cpu"), run("cuda")
    assert optimizer._updates.replays
    for a, b in zip(there, on_cpu, strict=True):
        close(a, b)


def test_nothing_warns_in_ordinary_use():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        function = tg.compile(lambda x: x.softmax(-1))
        for i in range(4):
            function(on("cuda", numbers(2, 3, seed=i)))
