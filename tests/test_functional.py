"""Activations, dropout, bags of embeddings and distances: behaviour, compiled calls, errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from replaying import callbacks, close, randn, replayed

import tapegrad as tg
from tapegrad import Tensor, nn

F = nn.functional


# -- activations -------------------------------------------------------------------------------

IN_PLACE: dict[str, tuple[Any, ...]] = {
    "relu": (),
    "elu": (0.7,),
    "celu": (0.6,),
    "selu": (),
    "leaky_relu": (0.2,),
    "threshold": (0.1, -3.0),
    "hardtanh": (-0.5, 0.8),
    "rrelu": (0.1, 0.3),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_names_with_an_underscore_change_their_input(name: str) -> None:
    options = IN_PLACE[name]
    x = randn(3, 4)
    leaf = x.clone().requires_grad_()
    expected = getattr(F, name)(leaf, *options)
    (wanted,) = tg.autograd.grad(expected.square().sum(), [leaf])
    inner = leaf * 1
    out = getattr(F, f"{name}_")(inner, *options)
    assert out is inner
    close(inner, expected)
    close(tg.autograd.grad(inner.square().sum(), [leaf])[0], wanted)
    with pytest.raises(RuntimeError):
        getattr(F, f"{name}_")(leaf, *options)
    close(leaf, x)


def test_random_slopes() -> None:
    tg.manual_seed(0)
    x = -tg.ones(20000)
    layer = nn.RReLU(0.2, 0.6)
    slopes = -layer(x).numpy()
    assert 0.2 <= slopes.min() < slopes.max() < 0.6
    assert abs(slopes.mean() - 0.4) < 0.005
    assert abs(slopes.std() - 0.4 / math.sqrt(12)) < 0.005
    layer.eval()
    close(layer(x), x * 0.4)
    assert repr(layer) == "RReLU(lower=0.2, upper=0.6)"
    leaf = randn(50).requires_grad_()
    out = F.rrelu(leaf, 0.2, 0.6, training=True)
    (g,) = tg.autograd.grad(out.sum(), [leaf])
    close(g, out.detach() / leaf.detach())


def test_draws_of_gumbel_softmax() -> None:
    tg.manual_seed(0)
    logits = tg.tensor([0.0, 1.0, 2.0]).expand(20000, 3).requires_grad_()
    hard = F.gumbel_softmax(logits, hard=True)
    assert ((hard - hard.round()).abs() < 1e-6).all()
    close(hard.sum(1), tg.ones(20000))
    shares = hard.mean(0).detach().numpy()
    np.testing.assert_allclose(shares, tg.tensor([0.0, 1.0, 2.0]).softmax(0).numpy(), atol=0.015)
    soft = F.gumbel_softmax(logits, tau=0.7)
    close(soft.sum(1), tg.ones(20000))
    assert np.isfinite(soft.detach().numpy()).all()
    tg.manual_seed(3)
    (g,) = tg.autograd.grad((F.gumbel_softmax(logits, hard=True)[:, 0]).sum(), [logits])
    tg.manual_seed(3)
    (h,) = tg.autograd.grad((F.gumbel_softmax(logits)[:, 0]).sum(), [logits])
    close(g, h)


def test_softmax_without_a_dimension_is_warned_of() -> None:
    for shape, dim in (((4,), 0), ((3, 4), 1), ((2, 3, 4), 0), ((2, 3, 2, 2), 1)):
        x = randn(*shape)
        for name in ("softmax", "log_softmax", "softmin"):
            with pytest.warns(UserWarning, match=f"takes dim={dim}"):
                got = getattr(F, name)(x)
            close(got, getattr(F, name)(x, dim))
    with pytest.warns(UserWarning, match="softmax without dim"):
        nn.Softmax()(randn(3, 4))
    assert F.softmax(randn(2, 2), 1, dtype=tg.float64).dtype is tg.float64


def test_older_names_of_limits() -> None:
    with pytest.warns(FutureWarning, match="min_val"):
        layer = nn.Hardtanh(min_value=-0.5, max_value=2.0)
    assert (layer.min_val, layer.max_val) == (-0.5, 2.0)


# -- dropout -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [nn.AlphaDropout, nn.FeatureAlphaDropout])
def test_alpha_dropout_keeps_mean_and_variance(kind: Any) -> None:
    tg.manual_seed(0)
    layer = kind(0.3)
    x = tg.randn(200, 500)
    out = layer(x)
    assert abs(out.mean().item()) < 0.02
    assert abs(out.std().item() - 1) < 0.02
    layer.eval()
    assert layer(x) is x
    assert not kind(1.0)(x).any()


def test_dropout_of_channels() -> None:
    tg.manual_seed(0)
    x = tg.ones(30, 40, 2, 3, 4)
    out = nn.Dropout3d(0.4)(x).numpy().reshape(30, 40, -1)
    assert (out == out[..., :1]).all()
    assert 0.35 < (out[..., 0] == 0).mean() < 0.45
    out = F.feature_alpha_dropout(x, 0.4, True).numpy().reshape(30, 40, -1)
    assert (out == out[..., :1]).all()
    assert len(np.unique(out)) == 2
    single = F.dropout3d(tg.ones(40, 2, 2, 2), 0.5).numpy().reshape(40, -1)
    assert (single == single[:, :1]).all()
    assert len(np.unique(single)) == 2


# -- compiled ----------------------------------------------------------------------------------

LAYERS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "RReLU": (lambda: nn.RReLU(0.1, 0.4), (6, 4)),
    "Dropout3d": (lambda: nn.Dropout3d(0.3), (4, 3, 2, 2, 2)),
    "AlphaDropout": (lambda: nn.AlphaDropout(0.3), (6, 4)),
    "FeatureAlphaDropout": (lambda: nn.FeatureAlphaDropout(0.3), (6, 4, 2)),
    "gumbel": (lambda: lambda x: F.gumbel_softmax(x, 0.7), (6, 4)),
    "hard gumbel": (lambda: lambda x: F.gumbel_softmax(x, 0.7, hard=True), (6, 4)),
    "pdist": (lambda: lambda x: F.pdist(x, 3.0), (6, 4)),
    "cdist": (lambda: lambda x: tg.cdist(x, x.detach() + 1), (30, 4)),
    "largest": (lambda: lambda x: tg.cdist(x, x.detach() + 1, math.inf), (6, 4)),
    "elu_": (lambda: lambda x: F.elu_(x * 1, 0.7), (6, 4)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_compiled(name: str) -> None:
    pytest.importorskip("llvmlite")
    make, shape = LAYERS[name]
    layer = make()

    def step(x: Any) -> Any:
        out = layer(x)
        return out, *tg.autograd.grad(out.square().sum(), [x])

    fast = tg.compile(step)
    for seed in range(5):
        x = randn(*shape, seed=seed).requires_grad_()
        tg.manual_seed(seed)
        expected = step(x)
        tg.manual_seed(seed)
        for a, b in zip(fast(x), expected, strict=True):
            close(a, b)
    assert replayed(fast) == 3
    assert not callbacks(fast)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("flat", [True, False])
def test_compiled_bags(mode: str, flat: bool) -> None:
    pytest.importorskip("llvmlite")
    tg.manual_seed(0)
    layer = nn.EmbeddingBag(7, 3, mode=mode, padding_idx=2)

    def step(tokens: Any, offsets: Any) -> Any:
        out = layer(tokens, offsets if flat else None)
        return out, *tg.autograd.grad(out.square().sum(), layer.parameters())

    fast = tg.compile(step)
    for seed in range(5):
        rng = np.random.default_rng(seed)
        tokens = tg.tensor(rng.integers(0, 7, 12 if flat else (4, 3)))
        offsets = tg.tensor(np.sort(np.r_[0, rng.integers(0, 13, 4)]))
        for a, b in zip(fast(tokens, offsets), step(tokens, offsets), strict=True):
            close(a, b)
    assert replayed(fast) == 3
    # Stretches of any length have no native maximum.
    assert callbacks(fast) == (["bag_winners"] if flat and mode == "max" else [])


# -- bags and distances ------------------------------------------------------------------------


def test_bags_are_sums_means_and_maxima_of_rows() -> None:
    weight = tg.arange(12).reshape(4, 3).float()
    tokens, offsets = tg.tensor([0, 3, 1, 1, 2]), tg.tensor([0, 2, 2])
    picked = [[0, 3], [], [1, 1, 2]]
    for mode in ("sum", "mean", "max"):
        out = F.embedding_bag(tokens, weight, offsets, mode=mode)
        for row, rows in zip(out, picked, strict=True):
            found = weight[tg.tensor(rows)] if rows else tg.zeros(1, 3)
            expected = found.amax(0) if mode == "max" else getattr(found, mode)(0)
            close(row, expected)
    ended = F.embedding_bag(
        tokens, weight, tg.tensor([0, 2, 4]), mode="sum", include_last_offset=True
    )
    close(ended, tg.stack([weight[0] + weight[3], weight[1] * 2]))


def test_gradients_of_frequent_tokens_are_divided_by_their_number() -> None:
    tokens = tg.tensor([0, 3, 3, 1, 3, 0])
    weight = randn(4, 3).requires_grad_()
    out = F.embedding_bag(tokens, weight, tg.tensor([0, 4]), mode="sum", scale_grad_by_freq=True)
    (g,) = tg.autograd.grad(out.sum(), [weight])
    close(g, tg.tensor([1.0, 1.0, 0.0, 1.0]).unsqueeze(1).expand(4, 3))


def test_pretrained_bags() -> None:
    rows = randn(4, 3)
    bag = nn.EmbeddingBag.from_pretrained(rows, mode="sum", padding_idx=-1)
    assert not bag.weight.requires_grad
    assert bag.padding_idx == 3
    close(bag(tg.tensor([[0, 3]]))[0], rows[0])
    assert nn.EmbeddingBag.from_pretrained(rows, freeze=False).weight.requires_grad
    assert repr(nn.EmbeddingBag(4, 3, 1.0, mode="max", padding_idx=1)) == (
        "EmbeddingBag(4, 3, max_norm=1.0, mode='max', padding_idx=1)"
    )
    assert not nn.EmbeddingBag(4, 3, padding_idx=1).weight[1].any()


def test_distances_of_few_rows() -> None:
    assert F.pdist(tg.ones(1, 3)).shape == (0,)
    assert F.pdist(tg.ones(0, 3)).shape == (0,)
    assert F.pdist(tg.ones(3, 0)).tolist() == [0.0, 0.0, 0.0]
    assert tg.cdist(tg.ones(0, 4), tg.ones(5, 4)).shape == (0, 5)


def test_distances_of_equal_rows_have_no_gradient() -> None:
    for count in (3, 40):  # loops, and products of matrices
        x = tg.ones(count, 2, dtype=tg.float64, requires_grad=True)
        tg.cdist(x, x).sum().backward()
        assert not x.grad.any()


def test_an_empty_batch_changes_no_statistics() -> None:
    layer = nn.BatchNorm1d(3)
    out = layer(tg.ones(0, 3))
    assert out.shape == (0, 3)
    out.sum().backward()
    assert layer.weight.grad is not None
    assert not layer.weight.grad.any()
    assert not layer.running_mean.any()


def test_normalize_into_a_tensor() -> None:
    x, out = randn(3, 4), tg.zeros(3, 4)
    assert F.normalize(x, out=out) is out
    close(out, F.normalize(x))


# -- errors ------------------------------------------------------------------------------------


def ones(*shape: int) -> Tensor:
    return tg.ones(*shape)


def whole(*values: int) -> Tensor:
    return tg.tensor(list(values))


ERRORS: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: F.rrelu(ones(2), 0.5, 0.1), RuntimeError, "at most upper"),
    (lambda: F.alpha_dropout(ones(2), 1.5), ValueError, "between 0 and 1"),
    (lambda: F.feature_alpha_dropout(ones(2), training=True), RuntimeError, "2 dimensions"),
    (lambda: F.dropout3d(ones(2, 2)), UserWarning, "4 or 5 dimensions"),
    (lambda: F.pdist(ones(2)), RuntimeError, "needs a matrix"),
    (lambda: F.pdist(ones(2, 2), -1.0), RuntimeError, "at least 0"),
    (lambda: tg.cdist(ones(2, 3), ones(2, 4)), RuntimeError, "as many columns"),
    (lambda: tg.cdist(ones(2, 3), ones(2, 3), compute_mode="fast"), ValueError, "compute_mode"),
    (lambda: F.embedding_bag(ones(2), ones(3, 3), whole(0)), RuntimeError, "integer tokens"),
    (lambda: F.embedding_bag(whole(0, 5), ones(3, 3), whole(0)), RuntimeError, "token 5"),
    (lambda: F.embedding_bag(whole(0), ones(3), whole(0)), ValueError, "matrix of rows"),
    (lambda: F.embedding_bag(whole(0), ones(3, 3)), ValueError, "needs offsets"),
    (lambda: F.embedding_bag(whole(0), ones(3, 3), whole(1)), RuntimeError, "begin with 0"),
    (lambda: F.embedding_bag(whole(0), ones(3, 3), whole(0, 2)), RuntimeError, "tokens 1"),
    (
        lambda: F.embedding_bag(whole(0, 1), ones(3, 3), whole(0), mode="median"),
        ValueError,
        "'sum', 'mean' or 'max'",
    ),
    (
        lambda: F.embedding_bag(whole(0, 1).reshape(1, 2), ones(3, 3), whole(0)),
        ValueError,
        "leave offsets out",
    ),
    (
        lambda: F.embedding_bag(whole(0), ones(3, 3), whole(0), per_sample_weights=ones(1)),
        NotImplementedError,
        "mode='sum' only",
    ),
    (
        lambda: F.embedding_bag(whole(0), ones(3, 3), whole(0), per_sample_weights=ones(2)),
        ValueError,
        "shape of the tokens",
    ),
    (
        lambda: F.embedding_bag(whole(0), ones(3, 3), whole(0), padding_idx=3),
        RuntimeError,
        "padding_idx 3",
    ),
    (lambda: nn.EmbeddingBag(3, 2, padding_idx=3), AssertionError, "not a row"),
    (lambda: nn.EmbeddingBag(3, 2, _weight=ones(2, 2)), ValueError, "must have shape"),
    (lambda: nn.EmbeddingBag.from_pretrained(ones(2)), ValueError, "must be a matrix"),
]


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors(number: int) -> None:
    function, kind, message = ERRORS[number]
    with pytest.raises(kind, match=message):
        function()
