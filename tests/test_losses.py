"""Losses: every class in a compiled step, PyTorch's older arguments, errors and limits."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from replaying import callbacks, close, replayed

import tapegrad as tg
from tapegrad import Tensor, nn
from tapegrad.testing import gradcheck, gradgradcheck

F = nn.functional


def floats(rng: Any, *shape: int, low: float = -2.0, high: float = 2.0) -> Tensor:
    return tg.tensor(rng.uniform(low, high, shape).astype(np.float32))


def chances(rng: Any, *shape: int) -> Tensor:
    return floats(rng, *shape, low=0.05, high=0.95)


def labels(rng: Any, *shape: int, classes: int = 4, low: int = 0) -> Tensor:
    return tg.tensor(rng.integers(low, classes, shape))


def signs(rng: Any, *shape: int) -> Tensor:
    return tg.tensor(rng.choice([-1.0, 1.0], shape).astype(np.float32))


def lengths(rng: Any, low: int, high: int) -> Tensor:
    return tg.tensor(rng.integers(low, high + 1, 3))


#: a loss, and what it is given beside its first argument
CASES: dict[str, tuple[Callable[[], Any], Callable[[Any], list[Any]]]] = {
    "MSELoss": (nn.MSELoss, lambda r: [floats(r, 6, 4)]),
    "L1Loss": (nn.L1Loss, lambda r: [floats(r, 6, 4)]),
    "SmoothL1Loss": (lambda: nn.SmoothL1Loss(beta=0.5), lambda r: [floats(r, 6, 4)]),
    "HuberLoss": (nn.HuberLoss, lambda r: [floats(r, 6, 4)]),
    "CrossEntropyLoss": (
        lambda: nn.CrossEntropyLoss(tg.tensor([1.0, 2.0, 0.5, 1.0]), label_smoothing=0.1),
        lambda r: [labels(r, 6)],
    ),
    "CrossEntropyLoss soft": (nn.CrossEntropyLoss, lambda r: [chances(r, 6, 4)]),
    "NLLLoss": (lambda: nn.NLLLoss(ignore_index=1), lambda r: [labels(r, 6)]),
    "BCEWithLogitsLoss": (
        lambda: nn.BCEWithLogitsLoss(pos_weight=tg.tensor([1.0, 2.0, 0.5, 1.0])),
        lambda r: [chances(r, 6, 4)],
    ),
    "KLDivLoss": (lambda: nn.KLDivLoss(reduction="batchmean"), lambda r: [chances(r, 6, 4)]),
    "SoftMarginLoss": (nn.SoftMarginLoss, lambda r: [signs(r, 6, 4)]),
    "MultiLabelSoftMarginLoss": (nn.MultiLabelSoftMarginLoss, lambda r: [chances(r, 6, 4)]),
    "MultiLabelMarginLoss": (nn.MultiLabelMarginLoss, lambda r: [labels(r, 6, 4, low=-1)]),
    "MultiMarginLoss": (lambda: nn.MultiMarginLoss(2, 0.7), lambda r: [labels(r, 6)]),
    "HingeEmbeddingLoss": (nn.HingeEmbeddingLoss, lambda r: [signs(r, 6, 4)]),
    "MarginRankingLoss": (nn.MarginRankingLoss, lambda r: [floats(r, 6, 4), signs(r, 6, 4)]),
    "CosineEmbeddingLoss": (nn.CosineEmbeddingLoss, lambda r: [floats(r, 6, 4), signs(r, 6)]),
    "TripletMarginLoss": (
        lambda: nn.TripletMarginLoss(swap=True),
        lambda r: [floats(r, 6, 4), floats(r, 6, 4)],
    ),
    "TripletMarginWithDistanceLoss": (
        nn.TripletMarginWithDistanceLoss,
        lambda r: [floats(r, 6, 4), floats(r, 6, 4)],
    ),
    "PoissonNLLLoss": (lambda: nn.PoissonNLLLoss(full=True), lambda r: [floats(r, 6, 4, low=0)]),
    "GaussianNLLLoss": (
        nn.GaussianNLLLoss,
        lambda r: [floats(r, 6, 4), floats(r, 6, 4, low=0.1)],
    ),
    "LinearCrossEntropyLoss": (
        lambda: nn.LinearCrossEntropyLoss(4, 5, bias=True),
        lambda r: [labels(r, 6, classes=5)],
    ),
    "AdaptiveLogSoftmaxWithLoss": (
        lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 12, [3, 7], div_value=2.0),
        lambda r: [labels(r, 6, classes=12)],
    ),
}


def loss_of(result: Any) -> Any:
    return result.loss if hasattr(result, "loss") else result


@pytest.mark.parametrize("name", CASES)
def test_a_compiled_step_gives_the_same_loss_and_gradients(name: str) -> None:
    pytest.importorskip("llvmlite")
    make, arguments = CASES[name]
    tg.manual_seed(0)
    loss = make()

    def step(x: Any, *given: Any) -> Any:
        value = loss_of(loss(x, *given))
        return value, tg.autograd.grad(value, [x, *loss.parameters()])

    fast = tg.compile(step)
    for seed in range(5):
        rng = np.random.default_rng(seed)
        x, given = floats(rng, 6, 4).requires_grad_(), arguments(rng)
        value, found = step(x, *given)
        same, replays = fast(x, *given)
        close(same, value)
        for a, b in zip(replays, found, strict=True):
            close(a, b)
    assert replayed(fast) == 3
    assert not callbacks(fast)


def test_a_compiled_alignment() -> None:
    pytest.importorskip("llvmlite")

    def step(x: Any, *given: Any) -> Any:
        value = F.ctc_loss(x.log_softmax(2), *given, zero_infinity=True)
        return value, *tg.autograd.grad(value, [x])

    fast = tg.compile(step)
    for seed in range(5):
        rng = np.random.default_rng(seed)
        x = floats(rng, 6, 3, 4).requires_grad_()
        given = labels(rng, 3, 4, low=1), lengths(rng, 3, 6), lengths(rng, 0, 4)
        for a, b in zip(fast(x, *given), step(x, *given), strict=True):
            close(a, b)
    assert replayed(fast) == 3
    assert not callbacks(fast)


def test_compiled_probabilities() -> None:
    """The check of the range runs while a step is recorded."""
    pytest.importorskip("llvmlite")
    fast = tg.compile(lambda p, t: F.binary_cross_entropy(p, t))
    for seed in range(4):
        rng = np.random.default_rng(seed)
        p, t = chances(rng, 6, 4), chances(rng, 6, 4)
        close(fast(p, t), F.binary_cross_entropy(p, t))
    assert replayed(fast) == 2


# -- older arguments ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "reduction"),
    [
        ({"size_average": True}, "mean"),
        ({"size_average": False}, "sum"),
        ({"reduce": True}, "mean"),
        ({"reduce": False}, "none"),
        ({"reduce": False, "size_average": False}, "none"),
        ({"reduce": True, "size_average": False}, "sum"),
    ],
)
def test_size_average_and_reduce(options: dict[str, bool], reduction: str) -> None:
    rng = np.random.default_rng(0)
    x, y = floats(rng, 3, 4), floats(rng, 3, 4)
    expected = F.mse_loss(x, y, reduction=reduction)
    with pytest.warns(UserWarning, match=f"use reduction='{reduction}'"):
        assert F.mse_loss(x, y, **options).equal(expected)
    with pytest.warns(UserWarning, match="deprecated"):
        loss = nn.MSELoss(**options)
    assert loss.reduction == reduction
    assert loss(x, y).equal(expected)
    with pytest.warns(UserWarning, match="deprecated"):
        assert nn.KLDivLoss(**options).reduction == reduction


def test_older_arguments_stand_where_pytorch_has_them() -> None:
    rng = np.random.default_rng(0)
    x, y = floats(rng, 3, 4), labels(rng, 3)
    weight = tg.tensor([1.0, 2.0, 3.0, 4.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = F.cross_entropy(x, y, weight, False, 1, True, "none")
        assert got.equal(F.cross_entropy(x, y, weight, ignore_index=1, reduction="sum"))
    assert F.mse_loss(x, x + 1, None, None, "sum").item() == pytest.approx(12.0)
    assert nn.NLLLoss(weight, None, 2, None, "sum").ignore_index == 2


# -- limits ------------------------------------------------------------------------------------


def test_alignments_that_do_not_exist() -> None:
    x = tg.zeros(2, 2, 3).log_softmax(2).detach().requires_grad_()
    given = tg.tensor([[1, 1], [1, 2]]), tg.tensor([2, 2]), tg.tensor([2, 2])
    loss = F.ctc_loss(x, *given, reduction="none")
    assert loss[0].item() == math.inf  # equal labels need a blank between them
    assert loss[1].item() == pytest.approx(-2 * math.log(1 / 3), rel=1e-6)
    tg.autograd.backward(loss.sum())
    assert np.isnan(x.grad[:, 0].numpy()).all()
    assert np.isfinite(x.grad[:, 1].numpy()).all()
    x.grad = None
    F.ctc_loss(x, *given, zero_infinity=True).backward()
    assert not x.grad[:, 0].any()
    assert x.grad[:, 1].any()


ALIGNED: dict[str, tuple[list[list[int]], list[int], list[int]]] = {
    "repeated labels": ([[1, 1], [2, 0]], [5, 4], [2, 1]),
    "longer": ([[1, 2, 1], [2, 3, 1]], [5, 4], [3, 2]),
    "no labels": ([[], []], [5, 3], [0, 0]),
    "labels that do not fit": ([[1, 1, 1], [2, 1, 1]], [2, 5], [3, 1]),
}


@pytest.mark.parametrize("name", ALIGNED)
def test_derivatives_of_alignments(name: str) -> None:
    rows, times, counts = ALIGNED[name]
    x = floats(np.random.default_rng(0), 5, 2, 4).double().requires_grad_()

    def loss(x: tg.Tensor) -> tg.Tensor:
        return F.ctc_loss(
            x.log_softmax(2),
            tg.tensor(rows, dtype=tg.int64),
            tg.tensor(times),
            tg.tensor(counts),
            zero_infinity=True,
        )

    assert gradcheck(loss, x)
    assert gradgradcheck(loss, x)
    if name == "repeated labels":
        slope = lambda x: tg.autograd.grad(loss(x), [x], create_graph=True)[0] ** 2  # noqa: E731
        assert gradgradcheck(slope, x)


def test_lengths_may_be_tuples_and_targets_one_row() -> None:
    rng = np.random.default_rng(0)
    x = floats(rng, 5, 2, 4).log_softmax(2)
    rows = tg.tensor([[1, 2, 3], [3, 0, 0]])
    expected = F.ctc_loss(x, rows, tg.tensor([5, 4]), tg.tensor([3, 1]))
    close(F.ctc_loss(x, rows, (5, 4), (3, 1)), expected)
    close(F.ctc_loss(x, tg.tensor([1, 2, 3, 3]), (5, 4), (3, 1)), expected)
    close(
        F.ctc_loss(x[:, 0], tg.tensor([1, 2, 3]), tg.tensor(5), tg.tensor(3), reduction="none"),
        F.ctc_loss(x, rows, (5, 4), (3, 1), reduction="none")[0],
    )


def test_adaptive_softmax_is_one_distribution() -> None:
    tg.manual_seed(0)
    layer = nn.AdaptiveLogSoftmaxWithLoss(4, 12, [3, 7], div_value=2.0)
    x = tg.randn(5, 4)
    full = layer.log_prob(x)
    close(full.exp().sum(1), tg.ones(5))
    for target in range(12):
        output, loss = layer(x, tg.full((5,), target))
        close(output, full[:, target])
        close(loss, -full[:, target].mean())
    assert layer.predict(x).tolist() == full.argmax(1).tolist()
    single = layer(x[0], tg.tensor(11))
    close(single.output, full[0, 11])


# -- errors ------------------------------------------------------------------------------------


def ones(*shape: int) -> Tensor:
    return tg.ones(*shape)


def whole(*values: int) -> Tensor:
    return tg.tensor(list(values))


PATHS = tg.zeros(3, 2, 4)

ERRORS: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: F.multi_margin_loss(ones(2, 3), whole(0, 1), p=3), ValueError, "p must be 1 or 2"),
    (lambda: F.multi_margin_loss(ones(2, 3), whole(0)), RuntimeError, "needs 2 integer labels"),
    (lambda: F.multi_margin_loss(ones(2, 3), whole(0, 3)), RuntimeError, "index 3 is out of range"),
    (
        lambda: F.multi_margin_loss(ones(2, 3), whole(0, 1), weight=ones(2)),
        ValueError,
        "each of the 3 classes",
    ),
    (lambda: F.multi_margin_loss(ones(1, 2, 3), whole(0)), RuntimeError, "samples, classes"),
    (lambda: F.multilabel_margin_loss(ones(3), whole(0, 1)), RuntimeError, "the input's shape"),
    (lambda: F.multilabel_margin_loss(ones(2), whole(0, -2)), RuntimeError, "at least -1"),
    (lambda: F.multilabel_margin_loss(ones(2), whole(0, 2)), RuntimeError, "out of range"),
    (
        lambda: F.triplet_margin_loss(ones(2), ones(2), ones(2), margin=0.0),
        ValueError,
        "above 0",
    ),
    (
        lambda: F.triplet_margin_with_distance_loss(ones(2, 2), ones(2), ones(2)),
        RuntimeError,
        "as many dimensions",
    ),
    (lambda: nn.TripletMarginWithDistanceLoss(margin=-1.0), ValueError, "above 0"),
    (lambda: F.gaussian_nll_loss(ones(2), ones(2), -ones(2)), ValueError, "at least 0"),
    (lambda: F.gaussian_nll_loss(ones(2, 3), ones(2, 3), ones(3)), ValueError, "do not fit"),
    (
        lambda: F.ctc_loss(PATHS, whole(1, 1), (3, 3), (1, 1), blank=4),
        RuntimeError,
        "blank must lie",
    ),
    (lambda: F.ctc_loss(PATHS, whole(1, 1), (3, 4), (1, 1)), RuntimeError, "between 0 and 3"),
    (lambda: F.ctc_loss(PATHS, whole(1, 1), (3,), (1, 1)), RuntimeError, "each of 2 samples"),
    (lambda: F.ctc_loss(PATHS, whole(1, 1), (3, 3), (1, 2)), RuntimeError, "ask for 3 targets"),
    (lambda: F.ctc_loss(PATHS, whole(1, 9), (3, 3), (1, 1)), RuntimeError, "out of range"),
    (lambda: F.ctc_loss(PATHS, ones(2, 1), (3, 3), (2, 1)), RuntimeError, "between 0 and 1"),
    (
        lambda: F.linear_cross_entropy(ones(2, 3), ones(4, 2), whole(0, 1)),
        RuntimeError,
        "got shapes",
    ),
    (
        lambda: F.linear_cross_entropy(ones(2, 3), ones(4, 3), ones(2, 4), ignore_index=1),
        RuntimeError,
        "no ignore_index",
    ),
    (lambda: nn.MultiMarginLoss(p=3), ValueError, "1 or 2"),
    (lambda: nn.LinearCrossEntropyOptions(acc_policy="best"), ValueError, "acc_policy"),
    (lambda: nn.LinearCrossEntropyOptions(chunking_method="half"), ValueError, "chunking_method"),
    (lambda: nn.LinearCrossEntropyOptions(batch_chunk_size=0), ValueError, "positive"),
    (lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 10, [3, 3]), ValueError, "that increase"),
    (lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 10, []), ValueError, "that increase"),
    (
        lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 10, [3])(ones(2, 4), whole(0, 10)),
        RuntimeError,
        "between 0 and 9",
    ),
]


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors(number: int) -> None:
    function, kind, message = ERRORS[number]
    with pytest.raises(kind, match=message):
        function()
