"""Layers in compiled training steps: each does what it does eagerly."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from replaying import callbacks, close, replayed

import tapegrad as tg
from tapegrad import nn
from tapegrad.optim.swa_utils import AveragedModel, get_ema_avg_fn, get_ema_multi_avg_fn

pytest.importorskip("llvmlite")

#: layer: (its arguments, the shapes of its inputs)
LAYERS: dict[str, tuple[tuple[Any, ...], list[tuple[int, ...]]]] = {
    **{name: ((), [(3, 4)]) for name in ("CELU", "ELU", "SELU", "Hardshrink", "Hardsigmoid")},
    **{name: ((), [(3, 4)]) for name in ("Hardswish", "LogSigmoid", "Mish", "PReLU", "ReLU6")},
    **{name: ((), [(3, 4)]) for name in ("Softplus", "Softshrink", "Softsign", "Tanhshrink")},
    **{name: ((), [(3, 4)]) for name in ("GELU", "ReLU", "LeakyReLU", "SiLU", "Sigmoid", "Tanh")},
    **{name: ((-1,), [(3, 4)]) for name in ("GLU", "LogSoftmax", "Softmax", "Softmin")},
    "Softmax2d": ((), [(2, 3, 2, 2)]),
    "Threshold": ((0.1, 2.0), [(3, 4)]),
    "AdaptiveAvgPool1d": ((3,), [(2, 3, 7)]),
    "AvgPool1d": ((2,), [(2, 3, 7)]),
    "MaxPool1d": ((2,), [(2, 3, 7)]),
    "Bilinear": ((3, 4, 2), [(5, 3), (5, 4)]),
    "CosineSimilarity": ((), [(5, 4), (5, 4)]),
    "PairwiseDistance": ((), [(5, 4), (5, 4)]),
    "CircularPad1d": ((1,), [(2, 3, 5)]),
    "CircularPad2d": ((1,), [(2, 3, 4, 5)]),
    "ConstantPad2d": ((1, 0.5), [(2, 3, 4, 5)]),
    "ConstantPad3d": ((1, 0.5), [(1, 2, 3, 4, 5)]),
    "ReplicationPad1d": ((1,), [(2, 3, 5)]),
    "ReplicationPad3d": ((1,), [(1, 2, 3, 4, 5)]),
    "ZeroPad1d": ((1,), [(2, 3, 5)]),
    "ZeroPad3d": ((1,), [(1, 2, 3, 4, 5)]),
    "Conv1d": ((3, 4, 3), [(2, 3, 8)]),
    "LazyConv1d": ((4, 3), [(2, 3, 8)]),
    "LazyConv3d": ((2, 2), [(1, 2, 3, 3, 3)]),
    "LazyConvTranspose1d": ((4, 3), [(2, 3, 8)]),
    "LazyConvTranspose3d": ((2, 2), [(1, 2, 2, 2, 2)]),
    "LazyBatchNorm1d": ((), [(4, 3)]),
    "LazyBatchNorm3d": ((), [(2, 2, 2, 3, 3)]),
    "LazyInstanceNorm1d": ((), [(2, 3, 5)]),
    "LazyInstanceNorm3d": ((), [(2, 2, 2, 3, 3)]),
    "InstanceNorm1d": ((3, 1e-5, 0.1, True), [(2, 3, 5)]),
    "InstanceNorm2d": ((3,), [(2, 3, 4, 4)]),
    "RMSNorm": ((4,), [(3, 4)]),
    "Dropout1d": ((0.4,), [(2, 6, 5)]),
    "Dropout2d": ((0.4,), [(2, 6, 3, 3)]),
    "Fold": (((4, 5), (2, 2)), [(1, 8, 12)]),
    "Unfold": (((2, 2),), [(1, 2, 4, 5)]),
    "Unflatten": ((1, (2, 2)), [(3, 4)]),
    "TransformerDecoderLayer": ((8, 2, 16, 0.0), [(5, 2, 8), (4, 2, 8)]),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_in_a_compiled_step(name: str) -> None:
    arguments, shapes = LAYERS[name]
    tg.manual_seed(0)
    plain = getattr(nn, name)(*arguments)
    first = inputs(shapes, 99)
    plain(*first)  # lazy layers learn their sizes
    other = copy.deepcopy(plain)

    def step(layer: Any, *given: Any) -> list[Any]:
        given = [x.detach().requires_grad_() for x in given]
        out = layer(*given)
        parameters = list(layer.parameters())
        grads = tg.autograd.grad((out * out.detach().cos()).sum(), [*given, *parameters])
        with tg.no_grad():
            for parameter, g in zip(parameters, grads[len(given) :], strict=True):
                parameter -= 0.01 * g
        return [out.detach(), *grads]

    fast = tg.compile(lambda *given: step(other, *given))
    for seed in range(4):
        tg.manual_seed(seed)
        expected = step(plain, *inputs(shapes, seed))
        tg.manual_seed(seed)
        for a, b in zip(fast(*inputs(shapes, seed)), expected, strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            close(a, b, 2e-5)
    assert replayed(fast) >= 2
    assert callbacks(fast) == []


def inputs(shapes: list[tuple[int, ...]], seed: int) -> list[Any]:
    generator = np.random.default_rng(seed)
    return [tg.tensor(generator.normal(size=s).astype(np.float32)) for s in shapes]


@pytest.mark.parametrize("dims", [1, 3])
def test_unpooling_in_a_compiled_step(dims: int) -> None:
    pool = getattr(nn, f"MaxPool{dims}d")(2, return_indices=True)
    undo = getattr(nn, f"MaxUnpool{dims}d")(2)

    def step(x: Any) -> Any:
        x = x.detach().requires_grad_()
        out = undo(*pool(x))
        return out.detach(), tg.autograd.grad((out * out).sum(), x)[0]

    fast = tg.compile(step)
    for seed in range(4):
        (x,) = inputs([(2, 3, *[4] * dims)], seed)
        for a, b in zip(fast(x), step(x), strict=True):
            close(a, b)
    assert replayed(fast) >= 2


def test_losses_of_classes_in_a_compiled_step() -> None:
    ctc, nll = nn.CTCLoss(), nn.NLLLoss2d()
    targets, lengths = tg.tensor([[1, 2], [3, 1]]), (tg.tensor([6, 5]), tg.tensor([2, 1]))
    places = tg.tensor([[[0, 1], [2, 0]]])

    def step(x: Any, y: Any) -> Any:
        x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
        loss = ctc(x.log_softmax(-1), targets, *lengths) + nll(y.log_softmax(1), places)
        return (loss.detach(), *tg.autograd.grad(loss, (x, y)))

    fast = tg.compile(step)
    for seed in range(4):
        given = inputs([(6, 2, 4), (1, 3, 2, 2)], seed)
        for a, b in zip(fast(*given), step(*given), strict=True):
            close(a, b)
    assert replayed(fast) >= 2


def test_containers_of_parameters_in_a_compiled_step() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.some = nn.ParameterList([nn.Parameter(tg.full((3,), 1.0 + i)) for i in range(2)])
            self.named = nn.ParameterDict({"scale": nn.Parameter(tg.ones(3))})

        def forward(self, x: Any) -> Any:
            return (x * self.some[0] + self.some[1]).tanh() * self.named["scale"]

    plain = Net()
    other = copy.deepcopy(plain)
    updates = [tg.optim.SGD(net.parameters(), lr=0.1) for net in (plain, other)]

    def step(net: Any, update: Any, x: Any) -> Any:
        update.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        update.step()
        return loss

    fast = tg.compile(lambda x: step(other, updates[1], x))
    for seed in range(5):
        (x,) = inputs([(4, 3)], seed)
        close(fast(x), step(plain, updates[0], x))
    assert replayed(fast) >= 2


def test_a_decoder_in_a_compiled_step() -> None:
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, 0.0), 2)

    def step(x: Any, memory: Any) -> Any:
        out = decoder(x, memory)
        grads = tg.autograd.grad(out.square().sum(), list(decoder.parameters()))
        return (out.detach(), *grads)

    fast = tg.compile(step)
    for seed in range(4):
        given = inputs([(5, 2, 8), (4, 2, 8)], seed)
        for a, b in zip(fast(*given), step(*given), strict=True):
            close(a, b, 5e-5)
    assert replayed(fast) >= 2


#: layers whose buffers or random numbers differ from call to call, and the shape of their input
WITH_STATE: dict[str, tuple[Any, tuple[int, ...]]] = {
    "BatchNorm1d, mean of all": (lambda: nn.BatchNorm1d(4, momentum=None), (8, 4)),
    "BatchNorm2d, mean of all": (lambda: nn.BatchNorm2d(4, momentum=None), (8, 4, 3, 3)),
    "BatchNorm3d, mean of all": (lambda: nn.BatchNorm3d(4, momentum=None), (8, 4, 2, 3, 2)),
    "LazyBatchNorm1d": (lambda: nn.LazyBatchNorm1d(momentum=None), (8, 4)),
    "BatchNorm2d, not tracked": (
        lambda: nn.BatchNorm2d(4, track_running_stats=False),
        (8, 4, 3, 3),
    ),
    "InstanceNorm2d, tracked": (
        lambda: nn.InstanceNorm2d(4, affine=True, track_running_stats=True),
        (8, 4, 3, 3),
    ),
    "InstanceNorm1d, fixed": (
        lambda: nn.InstanceNorm1d(4, momentum=None, affine=True, track_running_stats=True),
        (8, 4, 3),
    ),
    "LazyInstanceNorm2d": (lambda: nn.LazyInstanceNorm2d(track_running_stats=True), (8, 4, 3, 3)),
    "LazyLinear": (lambda: nn.LazyLinear(5), (8, 4)),
    "LazyConv2d": (lambda: nn.LazyConv2d(5, 3), (2, 4, 5, 5)),
    "spectral_norm": (lambda: nn.utils.spectral_norm(nn.Linear(4, 5)), (8, 4)),
    "spectral_norm, new": (
        lambda: nn.utils.parametrizations.spectral_norm(nn.Conv2d(4, 5, 3)),
        (2, 4, 5, 5),
    ),
    "weight_norm": (lambda: nn.utils.weight_norm(nn.Linear(4, 5)), (8, 4)),
    "weight_norm, new": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 5)), (8, 4)),
    "RReLU": (lambda: nn.Sequential(nn.Linear(4, 4), nn.RReLU()), (8, 4)),
    "AlphaDropout": (lambda: nn.Sequential(nn.Linear(4, 4), nn.AlphaDropout(0.3)), (8, 4)),
}

AVERAGES: dict[str, Any] = {
    "none": None,
    "mean": lambda model: AveragedModel(model),
    "mean with buffers": lambda model: AveragedModel(model, use_buffers=True),
    "moving": lambda model: AveragedModel(model, avg_fn=get_ema_avg_fn(0.9)),
    "moving lists": lambda model: AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9)),
}


def _trained(make: Any, shape: tuple[int, ...], average: Any, compiled: bool) -> list[Any]:
    """Everything that six training steps give and change."""
    tg.manual_seed(0)
    rng = np.random.default_rng(0)
    data = [tg.tensor(rng.standard_normal(shape).astype(np.float32)) for _ in range(7)]
    model = make()
    model(data.pop())  # lazy layers learn their sizes
    averaged = None if average is None else average(model)
    parameters = list(model.parameters())
    optimizer = tg.optim.SGD(parameters, lr=0.1) if parameters else None

    def step(x: Any) -> Any:
        loss = model(x).square().mean()
        if optimizer is not None:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if averaged is not None:
            averaged.update_parameters(model)
        return loss

    run = tg.compile(step) if compiled else step
    kept = [model] if averaged is None else [model, averaged]
    seen = []
    for x in data:
        changing = [t for m in kept for t in (*m.parameters(), *m.buffers())]
        seen += [t.detach().numpy().copy() for t in (run(x), *changing)]
    if compiled:
        assert replayed(run) >= 4
    return seen


@pytest.mark.parametrize("name", WITH_STATE)
def test_a_layer_with_state_in_a_compiled_step(name: str) -> None:
    make, shape = WITH_STATE[name]
    eager, compiled = (_trained(make, shape, None, compiled=flag) for flag in (False, True))
    for a, b in zip(compiled, eager, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", AVERAGES)
def test_averages_of_weights_in_a_compiled_step(name: str) -> None:
    def make() -> Any:
        return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, momentum=None), nn.Linear(4, 4))

    eager, compiled = (_trained(make, (8, 4), AVERAGES[name], flag) for flag in (False, True))
    for a, b in zip(compiled, eager, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)
