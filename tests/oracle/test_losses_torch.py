"""Losses of margins, alignments and many classes against PyTorch, from the same state."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from test_nn_torch import RNG, check_call, check_loss, check_module, floats, labels
from torch.nn import functional as TF

import tapegrad
from tapegrad import nn
from tapegrad.nn import functional as F

LOSSES: list[tuple[str, Any, dict[str, Any]]] = [
    ("MultiMarginLoss", lambda: [floats(5, 4), labels(5, classes=4)], {}),
    ("MultiMarginLoss", lambda: [floats(5, 4), labels(5, classes=4)],
     {"p": 2, "margin": 0.6, "weight": (4,)}),
    ("MultiMarginLoss", lambda: [floats(4), labels(classes=4)], {}),
    ("MultiLabelMarginLoss", lambda: [floats(5, 4), labels(5, 4, classes=5) - 1], {}),
    ("MultiLabelMarginLoss", lambda: [floats(4), labels(4, classes=5) - 1], {}),
    ("TripletMarginWithDistanceLoss", lambda: [floats(5, 3) for _ in range(3)], {}),
    ("TripletMarginWithDistanceLoss", lambda: [floats(5, 3) for _ in range(3)],
     {"margin": 0.4, "swap": True}),
    ("TripletMarginWithDistanceLoss", lambda: [floats(5, 3) for _ in range(3)],
     {"distance_function": lambda x, y: (x - y).abs().sum(-1)}),
    ("GaussianNLLLoss", lambda: [floats(3, 4), floats(3, 4), floats(3, low=0.1)], {}),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(LOSSES)))
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses(number: int, reduction: str) -> None:
    check_loss(*LOSSES[number], reduction)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("blank", [0, 3])
@pytest.mark.parametrize("zero_infinity", [False, True])
def test_alignments(reduction: str, blank: int, zero_infinity: bool) -> None:
    """Batches with empty targets, equal neighbours, and too few times."""
    for times, rows, counts in [
        ([7, 6, 5], [[1, 2, 2], [2, 4, 0], [1, 1, 1]], [3, 2, 0]),
        ([4, 1, 0], [[1, 1, 1], [1, 2, 4], [2, 2, 2]], [3, 2, 0]),
    ]:
        x = tapegrad.tensor(RNG.normal(size=(7, 3, 5))).log_softmax(2)
        flat = [label for row, n in zip(rows, counts, strict=True) for label in row[:n]]
        for targets in (rows, flat):
            check_call(
                F.ctc_loss,
                TF.ctc_loss,
                (
                    x.detach().requires_grad_(),
                    tapegrad.tensor(targets),
                    tapegrad.tensor(times),
                    tapegrad.tensor(counts),
                ),
                "ctc_loss",
                blank=blank,
                reduction=reduction,
                zero_infinity=zero_infinity,
            )


def test_the_gradient_of_alignments_before_log_softmax() -> None:
    """With the log_softmax in front the gradient is the derivative, in both libraries."""
    x = floats(6, 2, 4)

    def loss(x: Any, library: Any, function: Any) -> Any:
        given = library.tensor([[1, 2], [3, 3]]), library.tensor([6, 5]), library.tensor([2, 2])
        return function.ctc_loss(x.log_softmax(2), *given)

    check_call(
        lambda x: loss(x, tapegrad, F), lambda x: loss(x, torch, TF), (x,), "through log_softmax"
    )
    assert tapegrad.testing.gradcheck(lambda x: loss(x, tapegrad, F), x)


LAYERS: list[tuple[Any, Any]] = [
    (lambda n: n.LinearCrossEntropyLoss(5, 4), lambda: [floats(3, 5), labels(3, classes=4)]),
    (
        lambda n: n.LinearCrossEntropyLoss(
            5, 4, out_features=(2, 3), bias=True, ignore_index=2, label_smoothing=0.1
        ),
        lambda: [floats(3, 5), labels(3, 2, 3, classes=4)],
    ),
    (
        lambda n: n.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 12], div_value=2.0, head_bias=True),
        lambda: [floats(6, 8), tapegrad.tensor([0, 4, 5, 11, 12, 19])],
    ),
    (
        lambda n: n.AdaptiveLogSoftmaxWithLoss(16, 20, [5, 12]),
        lambda: [floats(16), tapegrad.tensor(13)],
    ),
]


@pytest.mark.parametrize("number", range(len(LAYERS)))
def test_layers(number: int) -> None:
    make, arguments = LAYERS[number]
    check_module(make, *arguments())


def test_all_probabilities_of_the_adaptive_softmax() -> None:
    class Full(torch.nn.AdaptiveLogSoftmaxWithLoss):
        def forward(self, x: Any) -> Any:
            return self.log_prob(x)

    class Mine(nn.AdaptiveLogSoftmaxWithLoss):
        def forward(self, x: Any) -> Any:
            return self.log_prob(x)

    Full.__name__ = Mine.__name__ = "Layer"
    check_module(lambda n: (Mine if n is nn else Full)(16, 20, [5, 12]), floats(6, 16))


def test_older_arguments() -> None:
    """Every loss that has them in PyTorch takes them at the same places, with the same meaning."""
    old = [
        name
        for name in dir(TF)
        if not name.startswith("_")
        and callable(getattr(TF, name))
        and "size_average" in str(_signature(getattr(TF, name)))
    ]
    assert len(old) > 12
    for name in old:
        ours = list(inspect.signature(getattr(F, name)).parameters)
        assert ours == list(inspect.signature(getattr(TF, name)).parameters), name
    for name in dir(torch.nn):
        theirs = getattr(torch.nn, name)
        if inspect.isclass(theirs) and "size_average" in str(_signature(theirs)):
            ours = list(inspect.signature(getattr(nn, name)).parameters)
            assert ours == list(inspect.signature(theirs).parameters), name
    x, y = np.ones((2, 3)), np.zeros((2, 3))
    for options in ({"size_average": False}, {"reduce": False}, {"size_average": True}):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = F.l1_loss(tapegrad.tensor(x), tapegrad.tensor(y), **options)
            expected = TF.l1_loss(torch.tensor(x), torch.tensor(y), **options)
        np.testing.assert_array_equal(got.numpy(), expected.numpy())


def _signature(function: Any) -> Any:
    try:
        return inspect.signature(function)
    except ValueError:
        return ""
