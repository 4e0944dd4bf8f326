"""Layers, losses and functions against PyTorch: values, gradients, state, names and texts.

Each case builds the same module in both libraries, copies PyTorch's weights over by name, and
compares outputs, gradients of inputs and of parameters, and buffers after the call.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as TF
from torch_oracle import assert_all_same, assert_same, to_torch

import tapegrad
from tapegrad import Tensor, nn
from tapegrad.nn import functional as F

RNG = np.random.default_rng(7)


def floats(*shape: int, low: float = -2.0, high: float = 2.0) -> Tensor:
    """A float64 leaf with values in a range."""
    return tapegrad.tensor(RNG.uniform(low, high, shape)).requires_grad_()


def labels(*shape: int, classes: int) -> Tensor:
    return tapegrad.tensor(RNG.integers(0, classes, shape))


def same_module(make: Any) -> tuple[Any, Any]:
    """The module that `make(nn)` builds in both libraries, in float64, with PyTorch's weights."""
    torch.manual_seed(0)
    ours, theirs = make(nn).double(), make(torch.nn).double()
    with torch.no_grad():
        for p in theirs.parameters():
            p.copy_(torch.tensor(RNG.normal(size=tuple(p.shape))))
    state = {k: tapegrad.tensor(v.numpy()) for k, v in theirs.state_dict().items()}
    assert list(ours.state_dict()) == list(state)
    ours.load_state_dict(state)
    return ours, theirs


def check_call(ours: Any, theirs: Any, args: tuple[Any, ...], what: str, **kwargs: Any) -> None:
    """Both calls give the same values and the same gradients of all floating arguments."""
    given = tuple(map(to_torch, args))
    options = {k: to_torch(v) for k, v in kwargs.items()}
    got, expected = ours(*args, **kwargs), theirs(*given, **options)
    assert_all_same(got, expected, what)
    first, wanted = (x[0] if isinstance(x, tuple) else x for x in (got, expected))
    if not wanted.requires_grad:
        assert not first.requires_grad, what
        return
    weights = RNG.normal(size=tuple(wanted.shape))
    first.backward(tapegrad.tensor(weights, dtype=first.dtype))
    wanted.backward(torch.tensor(weights, dtype=wanted.dtype))
    mine = [*args, *kwargs.values()]
    for x, y in zip(mine, [*given, *options.values()], strict=True):
        if isinstance(x, Tensor) and x.requires_grad:
            assert_gradient(x.grad, y.grad, what)
            x.grad = None


def assert_gradient(ours: Any, theirs: Any, what: str) -> None:
    if theirs is None:
        assert ours is None or not ours.any(), what
    else:
        assert ours is not None, what
        assert_same(ours, theirs, f"gradient of {what}", max(1.0, float(theirs.abs().max())))


def check_module(make: Any, *args: Any, calls: int = 1, training: bool = True) -> None:
    """A module in both libraries: outputs, gradients, buffers and text."""
    ours, theirs = same_module(make)
    what = repr(theirs)
    assert repr(ours) == what
    ours.train(training)
    theirs.train(training)
    for _ in range(calls):
        check_call(ours, theirs, args, what)
    for (name, p), (other, q) in zip(
        ours.named_parameters(), theirs.named_parameters(), strict=True
    ):
        assert name == other
        assert_gradient(p.grad, q.grad, f"{what}.{name}")
    for (name, b), (other, c) in zip(ours.named_buffers(), theirs.named_buffers(), strict=True):
        assert name == other
        assert_same(b, c, f"{what}.{name}")


# -- layers ------------------------------------------------------------------------------------

ACTIVATIONS: list[Any] = [
    lambda n: n.ReLU(),
    lambda n: n.ReLU6(),
    lambda n: n.ELU(),
    lambda n: n.ELU(0.7),
    lambda n: n.SELU(),
    lambda n: n.CELU(),
    lambda n: n.CELU(0.5),
    lambda n: n.GELU(),
    lambda n: n.GELU("tanh"),
    lambda n: n.GLU(),
    lambda n: n.GLU(0),
    lambda n: n.SiLU(),
    lambda n: n.Mish(),
    lambda n: n.LeakyReLU(),
    lambda n: n.LeakyReLU(0.3),
    lambda n: n.PReLU(),
    lambda n: n.PReLU(6),
    lambda n: n.Hardtanh(),
    lambda n: n.Hardtanh(-0.4, 1.3),
    lambda n: n.Hardswish(),
    lambda n: n.Softplus(),
    lambda n: n.Softplus(3, 1.5),
    lambda n: n.Softsign(),
    lambda n: n.Tanhshrink(),
    lambda n: n.Hardshrink(),
    lambda n: n.Hardshrink(0.9),
    lambda n: n.Softshrink(),
    lambda n: n.Softshrink(0.9),
    lambda n: n.LogSigmoid(),
    lambda n: n.Threshold(0.2, -3.0),
    lambda n: n.Sigmoid(),
    lambda n: n.Tanh(),
    lambda n: n.Softmax(1),
    lambda n: n.Softmax(dim=0),
    lambda n: n.LogSoftmax(-1),
    lambda n: n.Softmin(1),
    lambda n: n.Identity(3, other=4),
]


@pytest.mark.parametrize("number", range(len(ACTIVATIONS)))
def test_activations(number: int) -> None:
    check_module(ACTIVATIONS[number], floats(4, 6))
    check_module(ACTIVATIONS[number], floats(2, 6, 2, low=-7.0, high=7.0))


@pytest.mark.parametrize("name", ["ReLU", "ReLU6", "ELU", "SELU", "SiLU", "Mish", "LeakyReLU"])
def test_activations_in_place(name: str) -> None:
    def make(n: Any) -> Any:
        return n.Sequential(n.Linear(3, 4), getattr(n, name)(inplace=True))

    check_module(make, floats(2, 3))


def test_hardsigmoid() -> None:
    x = floats(3, 5, low=-5.0, high=5.0)
    out, y = F.hardsigmoid(x), to_torch(x)
    expected = TF.hardsigmoid(y)
    # PyTorch has a float32 sixth there.
    np.testing.assert_allclose(out.detach().numpy(), expected.detach().numpy(), atol=1e-7)
    out.sum().backward()
    expected.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), atol=1e-7)


def test_activations_at_their_kinks() -> None:
    """At the corners themselves PyTorch chooses a side."""
    x = tapegrad.tensor([-6.0, -3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0, 6.0]).double()
    for name in ("relu", "relu6", "elu", "leaky_relu", "hardtanh", "hardshrink", "softshrink"):
        check_call(getattr(F, name), getattr(TF, name), (x.requires_grad_(),), name)
    check_call(F.threshold, TF.threshold, (x, 0.5, 2.0), "threshold")


def test_activations_far_out() -> None:
    x = tapegrad.tensor([-1e4, -800.0, -90.0, 90.0, 800.0, 1e4]).double().requires_grad_()
    for name in (
        *("softplus", "logsigmoid", "silu", "gelu", "mish", "elu", "selu", "celu"),
        *("sigmoid", "tanh", "softsign"),
    ):
        check_call(getattr(F, name), getattr(TF, name), (x,), name)
    row = x.detach().reshape(2, 3).requires_grad_()
    for name in ("softmax", "log_softmax"):
        check_call(getattr(F, name), getattr(TF, name), (row,), name, dim=1)


LINEAR: list[tuple[Any, Any]] = [
    (lambda n: n.Linear(4, 3), lambda: [floats(5, 4)]),
    (lambda n: n.Linear(4, 3, bias=False), lambda: [floats(2, 5, 4)]),
    (lambda n: n.Linear(4, 3), lambda: [floats(4)]),
    (lambda n: n.Bilinear(3, 4, 2), lambda: [floats(5, 3), floats(5, 4)]),
    (lambda n: n.Bilinear(3, 4, 2, bias=False), lambda: [floats(2, 5, 3), floats(2, 5, 4)]),
    (lambda n: n.Flatten(), lambda: [floats(2, 3, 4)]),
    (lambda n: n.Flatten(0, 1), lambda: [floats(2, 3, 4)]),
    (lambda n: n.Unflatten(1, (2, 3)), lambda: [floats(2, 6)]),
    (lambda n: n.Embedding(7, 3), lambda: [labels(2, 5, classes=7)]),
    (lambda n: n.Embedding(7, 3, padding_idx=2), lambda: [labels(2, 5, classes=7)]),
    (
        lambda n: n.Embedding(7, 3, padding_idx=-1, scale_grad_by_freq=True),
        lambda: [labels(3, 9, classes=7)],
    ),
    (lambda n: n.Embedding(7, 3, max_norm=0.8), lambda: [labels(4, classes=7)]),
    (lambda n: n.CosineSimilarity(), lambda: [floats(3, 4), floats(3, 4)]),
    (lambda n: n.CosineSimilarity(0, 3.0), lambda: [floats(3, 4), floats(3, 4)]),
    (lambda n: n.PairwiseDistance(), lambda: [floats(3, 4), floats(3, 4)]),
    (lambda n: n.PairwiseDistance(1.0, keepdim=True), lambda: [floats(3, 4), floats(3, 4)]),
]


@pytest.mark.parametrize("number", range(len(LINEAR)))
def test_linear_maps_and_lookups(number: int) -> None:
    make, arguments = LINEAR[number]
    check_module(make, *arguments())


@pytest.mark.parametrize("size", [1, 3, (2, 3)])
@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 0, 1), (2, 1, 1), (1, 2, 2)])
@pytest.mark.parametrize("groups", [1, 2])
def test_conv2d(size: Any, stride: int, padding: int, dilation: int, groups: int) -> None:
    def make(n: Any) -> Any:
        return n.Conv2d(4, 6, size, stride, padding, dilation, groups, bias=groups == 1)

    check_module(make, floats(2, 4, 7, 8))
    check_module(make, floats(4, 7, 8))


@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("padding", ["same", "valid", 1, (2, 1)])
@pytest.mark.parametrize("size", [(3, 5), (2, 4)])
def test_conv2d_padding(mode: str, padding: Any, size: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns of even windows with padding="same"
        check_module(
            lambda n: n.Conv2d(2, 3, size, padding=padding, padding_mode=mode),
            floats(2, 2, 6, 7),
        )


def test_conv2d_as_depthwise_and_with_much_padding() -> None:
    check_module(lambda n: n.Conv2d(4, 8, 3, padding=1, groups=4), floats(2, 4, 5, 5))
    check_module(lambda n: n.Conv2d(2, 1, 2, padding=4), floats(2, 2, 3, 3))
    check_module(lambda n: n.Conv2d(1, 1, 1, stride=3), floats(2, 1, 8, 8))
    check_module(lambda n: n.Conv2d(1, 5, (5, 1), stride=(2, 3)), floats(2, 1, 8, 7))


CONV1D: list[Any] = [
    lambda n: n.Conv1d(4, 6, 3),
    lambda n: n.Conv1d(4, 6, 3, stride=2, padding=1, groups=2),
    lambda n: n.Conv1d(4, 6, 3, dilation=2, padding="same", bias=False),
    lambda n: n.Conv1d(4, 2, 3, padding=2, padding_mode="circular"),
    lambda n: n.Conv1d(4, 2, 3, padding=2, padding_mode="reflect"),
]


@pytest.mark.parametrize("number", range(len(CONV1D)))
def test_conv1d(number: int) -> None:
    check_module(CONV1D[number], floats(2, 4, 9))
    check_module(CONV1D[number], floats(4, 9))


POOLS: list[Any] = [
    lambda n: n.MaxPool2d(2),
    lambda n: n.MaxPool2d(3, 2, 1),
    lambda n: n.MaxPool2d((2, 3), stride=(1, 2), padding=(1, 0)),
    lambda n: n.MaxPool2d(2, dilation=2, stride=1),
    lambda n: n.MaxPool2d(3, 2, ceil_mode=True),
    lambda n: n.MaxPool2d(3, 2, 1, ceil_mode=True, return_indices=True),
    lambda n: n.AvgPool2d(2),
    lambda n: n.AvgPool2d(3, 2, 1),
    lambda n: n.AvgPool2d((2, 3), stride=(1, 2), padding=(1, 0), count_include_pad=False),
    lambda n: n.AvgPool2d(3, 2, 1, ceil_mode=True),
    lambda n: n.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False),
    lambda n: n.AvgPool2d(2, divisor_override=3),
    lambda n: n.AdaptiveAvgPool2d(1),
    lambda n: n.AdaptiveAvgPool2d((3, 4)),
    lambda n: n.AdaptiveAvgPool2d((None, 2)),
    lambda n: n.AdaptiveAvgPool2d(12),
    lambda n: n.Unfold((2, 3), dilation=2, padding=1, stride=2),
]


@pytest.mark.parametrize("number", range(len(POOLS)))
def test_pools(number: int) -> None:
    check_module(POOLS[number], floats(2, 3, 9, 8))
    check_module(POOLS[number], floats(3, 9, 8))


POOLS_1D: list[Any] = [
    lambda n: n.MaxPool1d(2),
    lambda n: n.MaxPool1d(3, 2, 1, ceil_mode=True),
    lambda n: n.MaxPool1d(3, dilation=2, return_indices=True),
    lambda n: n.AvgPool1d(2),
    lambda n: n.AvgPool1d(3, 2, 1, True, False),
    lambda n: n.AdaptiveAvgPool1d(4),
]


@pytest.mark.parametrize("number", range(len(POOLS_1D)))
def test_pools_of_sequences(number: int) -> None:
    check_module(POOLS_1D[number], floats(2, 3, 10))
    check_module(POOLS_1D[number], floats(3, 10))


def test_fold() -> None:
    check_module(lambda n: n.Fold((5, 6), 2, dilation=2, padding=1, stride=2), floats(2, 12, 9))


def test_max_pool_of_ties_and_nan() -> None:
    flat = tapegrad.zeros(1, 1, 4, 4, dtype=tapegrad.float64, requires_grad=True)
    check_call(F.max_pool2d, TF.max_pool2d, (flat, 2), "ties")
    check_call(F.max_pool2d, TF.max_pool2d, (flat, 3, 1, 1), "overlapping ties")
    odd = tapegrad.tensor([[[[1.0, math.nan], [3.0, 2.0]]]])
    assert math.isnan(F.max_pool2d(odd, 2).item())


@pytest.mark.parametrize("options", [(2,), (3, 1), (3, 2, 1)], ids=str)
def test_winners_of_max_pool_with_nan(options: Any) -> None:
    data = np.random.default_rng(0).choice([-np.inf, 0.0, 1.0, np.nan], (2, 3, 9, 9))
    ours, theirs = (lib.tensor(data, requires_grad=True) for lib in (tapegrad, torch))
    a, i = F.max_pool2d(ours, *options, return_indices=True)
    b, j = TF.max_pool2d(theirs, *options, return_indices=True)
    np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())
    np.testing.assert_array_equal(i.numpy(), j.numpy())
    a.sum().backward()
    b.sum().backward()
    np.testing.assert_array_equal(ours.grad.numpy(), theirs.grad.numpy())


NORMS: list[tuple[Any, Any]] = [
    (lambda n: n.BatchNorm1d(3), lambda: floats(6, 3)),
    (lambda n: n.BatchNorm1d(3), lambda: floats(4, 3, 5)),
    (lambda n: n.BatchNorm2d(3), lambda: floats(4, 3, 5, 2)),
    (lambda n: n.BatchNorm2d(3, eps=1e-2, momentum=0.3), lambda: floats(4, 3, 5, 2)),
    (lambda n: n.BatchNorm2d(3, momentum=None), lambda: floats(4, 3, 5, 2)),
    (lambda n: n.BatchNorm2d(3, affine=False), lambda: floats(4, 3, 5, 2)),
    (lambda n: n.BatchNorm2d(3, track_running_stats=False), lambda: floats(4, 3, 5, 2)),
    (lambda n: n.LayerNorm(5), lambda: floats(4, 3, 5)),
    (lambda n: n.LayerNorm((3, 5), eps=1e-2), lambda: floats(4, 3, 5)),
    (lambda n: n.LayerNorm(5, elementwise_affine=False), lambda: floats(4, 3, 5)),
    (lambda n: n.LayerNorm(5, bias=False), lambda: floats(4, 5)),
    (lambda n: n.GroupNorm(2, 6), lambda: floats(3, 6, 4)),
    (lambda n: n.GroupNorm(3, 6, eps=1e-2, affine=False), lambda: floats(3, 6, 2, 2)),
    (lambda n: n.GroupNorm(1, 6), lambda: floats(3, 6)),
    (lambda n: n.GroupNorm(2, 6, bias=False), lambda: floats(3, 6, 4)),
    (lambda n: n.BatchNorm2d(3, bias=False), lambda: floats(4, 3, 5, 2)),
    (lambda n: n.RMSNorm(5), lambda: floats(4, 3, 5)),
    (lambda n: n.RMSNorm((3, 5), eps=1e-2), lambda: floats(4, 3, 5)),
    (lambda n: n.RMSNorm(5, elementwise_affine=False), lambda: floats(4, 5)),
    (lambda n: n.InstanceNorm2d(3), lambda: floats(2, 3, 4, 5)),
    (lambda n: n.InstanceNorm2d(3, affine=True), lambda: floats(3, 4, 5)),
    (lambda n: n.InstanceNorm1d(3, affine=True, eps=1e-2), lambda: floats(2, 3, 7)),
    (lambda n: n.InstanceNorm2d(3, track_running_stats=True), lambda: floats(2, 3, 4, 5)),
]


@pytest.mark.parametrize("number", range(len(NORMS)))
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_norms(number: int, training: bool) -> None:
    make, argument = NORMS[number]
    check_module(make, argument(), calls=3, training=training)


# -- losses ------------------------------------------------------------------------------------


def chances(*shape: int) -> Tensor:
    return floats(*shape, low=0.05, high=0.95)


def signs(*shape: int) -> Tensor:
    return tapegrad.tensor(RNG.choice([-1.0, 1.0], shape))


LOSSES: list[tuple[str, Any, dict[str, Any]]] = [
    ("MSELoss", lambda: [floats(3, 4), floats(3, 4)], {}),
    ("L1Loss", lambda: [floats(3, 4), floats(3, 4)], {}),
    ("SmoothL1Loss", lambda: [floats(3, 4), floats(3, 4)], {}),
    ("SmoothL1Loss", lambda: [floats(3, 4), floats(3, 4)], {"beta": 0.3}),
    ("HuberLoss", lambda: [floats(3, 4), floats(3, 4)], {}),
    ("HuberLoss", lambda: [floats(3, 4), floats(3, 4)], {"delta": 0.3}),
    ("NLLLoss", lambda: [floats(3, 4), labels(3, classes=4)], {}),
    ("NLLLoss", lambda: [floats(3, 4, 2, 2), labels(3, 2, 2, classes=4)], {"ignore_index": 1}),
    ("NLLLoss", lambda: [floats(3, 4), labels(3, classes=4)], {"weight": (4,)}),
    ("CrossEntropyLoss", lambda: [floats(3, 4), labels(3, classes=4)], {}),
    ("CrossEntropyLoss", lambda: [floats(4), labels(classes=4)], {}),
    ("CrossEntropyLoss", lambda: [floats(5, 4), labels(5, classes=4)], {"ignore_index": 1}),
    ("CrossEntropyLoss", lambda: [floats(5, 4), labels(5, classes=4)], {"weight": (4,)}),
    ("CrossEntropyLoss", lambda: [floats(3, 4, 5), labels(3, 5, classes=4)], {"weight": (4,)}),
    ("CrossEntropyLoss", lambda: [floats(3, 4, 5), labels(3, 5, classes=4)],
     {"weight": (4,), "ignore_index": 2, "label_smoothing": 0.3}),
    ("CrossEntropyLoss", lambda: [floats(5, 4), labels(5, classes=4)], {"label_smoothing": 0.1}),
    ("CrossEntropyLoss", lambda: [floats(5, 4), labels(5, classes=4)],
     {"label_smoothing": 0.1, "ignore_index": 2}),
    ("CrossEntropyLoss", lambda: [floats(5, 4), chances(5, 4)], {}),
    ("CrossEntropyLoss", lambda: [floats(4), chances(4)], {}),
    ("CrossEntropyLoss", lambda: [floats(5, 4, 2), chances(5, 4, 2)],
     {"weight": (4,), "label_smoothing": 0.2}),
    ("BCELoss", lambda: [chances(3, 4), chances(3, 4)], {}),
    ("BCELoss", lambda: [chances(3, 4), chances(3, 4)], {"weight": (4,)}),
    ("BCEWithLogitsLoss", lambda: [floats(3, 4), chances(3, 4)], {}),
    ("BCEWithLogitsLoss", lambda: [floats(3, 4), chances(3, 4)],
     {"weight": (3, 1), "pos_weight": (4,)}),
    ("KLDivLoss", lambda: [floats(3, 4), chances(3, 4)], {}),
    ("KLDivLoss", lambda: [floats(3, 4), floats(3, 4)], {"log_target": True}),
    ("SoftMarginLoss", lambda: [floats(3, 4), signs(3, 4)], {}),
    ("MultiLabelSoftMarginLoss", lambda: [floats(3, 4), chances(3, 4)], {"weight": (4,)}),
    ("HingeEmbeddingLoss", lambda: [floats(3, 4), signs(3, 4)], {"margin": 0.7}),
    ("MarginRankingLoss", lambda: [floats(6), floats(6), signs(6)], {"margin": 0.3}),
    ("CosineEmbeddingLoss", lambda: [floats(6, 3), floats(6, 3), signs(6)], {"margin": 0.1}),
    ("TripletMarginLoss", lambda: [floats(5, 3), floats(5, 3), floats(5, 3)], {}),
    ("TripletMarginLoss", lambda: [floats(5, 3), floats(5, 3), floats(5, 3)],
     {"margin": 0.5, "p": 1.0, "swap": True}),
    ("PoissonNLLLoss", lambda: [floats(3, 4), floats(3, 4, low=0.0)], {}),
    ("PoissonNLLLoss", lambda: [floats(3, 4, low=0.2), floats(3, 4, low=0.0, high=5.0)],
     {"log_input": False, "full": True}),
    ("GaussianNLLLoss", lambda: [floats(3, 4), floats(3, 4), floats(3, 4, low=0.1)], {}),
    ("GaussianNLLLoss", lambda: [floats(3, 4), floats(3, 4), floats(3, 1, low=0.1)],
     {"full": True, "eps": 0.5}),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(LOSSES)))
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses(number: int, reduction: str) -> None:
    check_loss(*LOSSES[number], reduction)


def test_mean_over_the_batch() -> None:
    check_loss("KLDivLoss", lambda: [floats(3, 4), chances(3, 4)], {}, "batchmean")


def check_loss(name: str, arguments: Any, options: dict[str, Any], reduction: str) -> None:
    """A loss in both libraries; options that are tuples are shapes of weights."""
    given = {
        k: tapegrad.tensor(RNG.uniform(0.5, 2.0, v)) if isinstance(v, tuple) else v
        for k, v in options.items()
    }
    ours = getattr(nn, name)(**given, reduction=reduction)
    theirs = getattr(torch.nn, name)(
        **{k: to_torch(v) for k, v in given.items()}, reduction=reduction
    )
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert repr(ours) == repr(theirs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns of the mean of KLDivLoss
        check_call(ours, theirs, tuple(arguments()), f"{name} {options} {reduction}")


def test_cross_entropy_of_ignored_labels_only() -> None:
    x, y = floats(3, 4), tapegrad.tensor([-100, -100, -100])
    for reduction in ("mean", "sum", "none"):
        check_call(F.cross_entropy, TF.cross_entropy, (x, y), "ignored", reduction=reduction)


def test_cross_entropy_of_infinite_logits() -> None:
    x = tapegrad.tensor([[0.0, -math.inf, 1.0], [1e4, 0.0, -1e4]]).double().requires_grad_()
    check_call(F.cross_entropy, TF.cross_entropy, (x, tapegrad.tensor([0, 0])), "infinite")


def test_losses_at_their_limits() -> None:
    p = tapegrad.tensor([0.0, 1.0, 0.0, 1.0]).double().requires_grad_()
    t = tapegrad.tensor([0.0, 1.0, 1.0, 0.0]).double()
    q = to_torch(p)
    F.binary_cross_entropy(p, t, reduction="sum").backward()
    TF.binary_cross_entropy(q, to_torch(t), reduction="sum").backward()
    # The smallest denominator is a float32 number in PyTorch.
    np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-7)
    x = tapegrad.tensor([-1e4, 1e4, -100.0, 100.0]).double().requires_grad_()
    check_call(
        F.binary_cross_entropy_with_logits, TF.binary_cross_entropy_with_logits, (x, t), "logits"
    )


# -- functions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("widths", [(1, 2), (2, 0, 1, 1)])
def test_pad(mode: str, widths: Any) -> None:
    # PyTorch pads with copies only the last dimensions of a batch.
    shape = (2, 3, 4, 5) if len(widths) == 4 else (2, 3, 5)
    check_call(F.pad, TF.pad, (floats(*shape), widths, mode), f"pad {mode} {widths}")


def test_pad_with_a_value_and_with_cuts() -> None:
    check_call(F.pad, TF.pad, (floats(3, 4), (1, 2, 0, 1), "constant", 2.5), "value")
    check_call(F.pad, TF.pad, (floats(3, 4), (-1, 2, 0, -1)), "cuts")
    check_call(F.pad, TF.pad, (floats(3, 4), ()), "nothing")


def test_one_hot() -> None:
    x = labels(2, 3, classes=4)
    assert_same(F.one_hot(x, 6), TF.one_hot(to_torch(x), 6), "one_hot")
    assert_same(F.one_hot(x), TF.one_hot(to_torch(x)), "one_hot")


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, math.inf])
def test_normalize(p: float) -> None:
    check_call(F.normalize, TF.normalize, (floats(3, 4, 2),), f"normalize {p}", p=p, dim=1)
    zero = tapegrad.zeros(2, 3, dtype=tapegrad.float64)
    check_call(F.normalize, TF.normalize, (zero,), f"normalize {p}", p=p)


MASK = tapegrad.tensor(RNG.random((3, 5)) > 0.4) | tapegrad.tensor([True] + [False] * 4)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"scale": 0.2},
        {"is_causal": True},
        {"attn_mask": MASK},
        {"attn_mask": tapegrad.tensor(RNG.normal(size=(2, 1, 3, 5))).requires_grad_()},
        {"attn_mask": tapegrad.tensor(RNG.normal(size=(3, 5)))},
    ],
    ids=["plain", "scale", "causal", "bool mask", "trained mask", "float mask"],
)
def test_attention(options: dict[str, Any]) -> None:
    q, k, v = floats(2, 4, 3, 6), floats(2, 4, 5, 6), floats(2, 4, 5, 2)
    function = "scaled_dot_product_attention"
    check_call(getattr(F, function), getattr(TF, function), (q, k, v), str(options), **options)


def test_attention_with_shared_heads_and_without_batch() -> None:
    q, k, v = floats(2, 6, 3, 4), floats(2, 2, 5, 4), floats(2, 2, 5, 4)
    function = "scaled_dot_product_attention"
    check_call(getattr(F, function), getattr(TF, function), (q, k, v), "gqa", enable_gqa=True)
    check_call(
        getattr(F, function),
        getattr(TF, function),
        (floats(3, 4), floats(5, 4), floats(5, 2)),
        "2d",
    )


def test_attention_to_nothing() -> None:
    """A query that may attend to no key gets zeros, and no gradient."""
    q, k, v = floats(1, 3, 4), floats(1, 5, 4), floats(1, 5, 2)
    mask = tapegrad.tensor([[True] * 5, [False] * 5, [True, False] * 2 + [False]])
    function = "scaled_dot_product_attention"
    check_call(getattr(F, function), getattr(TF, function), (q, k, v), "masked", attn_mask=mask)
