"""Layers in compiled training steps: each does what it does eagerly."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from replaying import callbacks, close, replayed

import tapegrad as tg
from tapegrad import nn

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
