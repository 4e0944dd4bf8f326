"""Layers, losses and gradient utilities without PyTorch: behaviour, training, errors."""

from __future__ import annotations

import inspect
import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sweep import NAMES, assert_close, call, differentiated, flat, gradients, some_cases

import tapegrad
from tapegrad import Tape, Tensor, nn
from tapegrad.nn import functional as F
from tapegrad.ops import TABLE
from tapegrad.ops.window import convolution_primitives
from tapegrad.testing import gradcheck, gradgradcheck

# -- layers ------------------------------------------------------------------------------------


def test_linear_takes_both_spellings() -> None:
    layer = nn.Linear(input_size=784, output_size=256)
    assert (layer.in_features, layer.out_features) == (784, 256)
    assert "input_size" not in inspect.signature(nn.Linear).parameters
    with pytest.raises(TypeError, match="'in_features'"):
        nn.Linear(output_size=3)
    with pytest.raises(TypeError, match="both in_features and input_size"):
        nn.Linear(in_features=3, input_size=3, out_features=2)
    with pytest.raises(ValueError, match="out_features must be an integer"):
        nn.Linear(3, -1)


def test_dropout_is_scaled_and_off_in_evaluation() -> None:
    tapegrad.manual_seed(0)
    layer = nn.Dropout(0.25)
    x = tapegrad.ones(400, 50, requires_grad=True)
    out = layer(x)
    values = out.detach().numpy()
    assert set(np.unique(values)) == {0.0, np.float32(1 / 0.75)}
    assert abs((values == 0).mean() - 0.25) < 0.01
    out.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), values)
    tapegrad.manual_seed(0)
    np.testing.assert_array_equal(layer(x).detach().numpy(), values)
    assert layer.eval()(x) is x
    channels = F.dropout2d(tapegrad.ones(30, 20, 4, 4), 0.5).numpy()
    assert (channels.min((2, 3)) == channels.max((2, 3))).all()
    assert not F.dropout(x.detach(), 1.0).any()
    with pytest.raises(ValueError, match="between 0 and 1"):
        nn.Dropout(1.5)
    with pytest.raises(ValueError, match="between 0 and 1"):
        F.dropout(x, -0.1)


def test_in_place_options_change_the_tensor() -> None:
    x = tapegrad.randn(5)
    y = x.clone()
    assert F.leaky_relu(y, 0.1, inplace=True) is y
    np.testing.assert_allclose(y.numpy(), F.leaky_relu(x, 0.1).numpy())
    with pytest.raises(RuntimeError, match="leaf"):
        F.silu(tapegrad.ones(2, requires_grad=True), inplace=True)


def test_batch_norm_keeps_running_statistics() -> None:
    norm = nn.BatchNorm1d(2, momentum=0.5)
    x = tapegrad.tensor([[1.0, 10.0], [3.0, 30.0], [5.0, 20.0]])
    out = norm(x)
    np.testing.assert_allclose(out.detach().numpy().mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(norm.running_mean.numpy(), [1.5, 10.0])
    np.testing.assert_allclose(norm.running_var.numpy(), [0.5 + 2.0, 0.5 + 50.0])
    assert norm.num_batches_tracked.item() == 1
    norm.eval()
    before = norm.running_mean.numpy().copy()
    norm(x)
    np.testing.assert_array_equal(norm.running_mean.numpy(), before)
    norm.train()
    with pytest.raises(ValueError, match="more than 1 value for each channel"):
        norm(x[:1])
    with pytest.raises(ValueError, match="expects an input of 2 or 3 dimensions"):
        norm(tapegrad.ones(2, 2, 2, 2))
    with pytest.raises(RuntimeError, match="one value for each of the 3 channels"):
        norm(tapegrad.ones(4, 3))
    np.testing.assert_array_equal(norm.running_mean.numpy(), before)
    assert norm.num_batches_tracked.item() == 1


def test_embedding() -> None:
    table = nn.Embedding(5, 3, padding_idx=1)
    assert not table.weight[1].any()
    table(tapegrad.tensor([0, 1, 1, 4, 4])).sum().backward()
    assert table.weight.grad.sum(1).tolist() == [3.0, 0.0, 0.0, 0.0, 6.0]
    fixed = nn.Embedding.from_pretrained(tapegrad.ones(3, 2))
    assert not fixed.weight.requires_grad
    assert fixed(tapegrad.tensor(2)).tolist() == [1.0, 1.0]
    for bad in ([-1], [5], [0, 7]):
        with pytest.raises(IndexError, match=r"out of range for 5 rows"):
            table(tapegrad.tensor(bad))


def test_convolution_does_not_depend_on_how_it_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    x, w, b = (
        tapegrad.tensor(rng.normal(size=s)).requires_grad_()
        for s in ((5, 4, 6, 7), (6, 2, 3, 2), (6,))
    )
    weights = tapegrad.tensor(rng.normal(size=(5, 6, 4, 3)))

    def run() -> list[Any]:
        out = F.conv2d(x, w, b, stride=(1, 2), padding=(0, 0), groups=2)
        return [out, *tapegrad.autograd.grad((out * weights).sum(), [x, w, b])]

    whole = run()
    monkeypatch.setattr(convolution_primitives, "_CHUNK", 1)
    for a, b_ in zip(whole, run(), strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b_.detach().numpy(), rtol=1e-12)


def test_numpy_names_of_dimensions() -> None:
    x = tapegrad.randn(2, 3)
    np.testing.assert_array_equal(x.softmax(axis=1).numpy(), x.softmax(dim=1).numpy())
    np.testing.assert_array_equal(F.log_softmax(x, axis=0).numpy(), x.log_softmax(0).numpy())


# -- derivatives that the sweeps do not see ----------------------------------------------------


def test_second_derivatives_behind_something_curved() -> None:
    rng = np.random.default_rng(3)
    x = tapegrad.tensor(rng.permutation(72).reshape(2, 1, 6, 6) / 7.0).requires_grad_()
    for function in (
        lambda x: F.max_pool2d(x, 2) ** 2,
        lambda x: F.max_pool2d(x, 3, 2, 1) ** 2,
        lambda x: F.avg_pool2d(x, 3, 2, 1) ** 2,
        lambda x: F.adaptive_avg_pool2d(x, 4) ** 2,
        lambda x: F.unfold(x, 2) ** 2,
        lambda x: F.pad(x, (1, 2), "reflect") ** 2,
    ):
        assert gradgradcheck(function, x, fast_mode=True)


def test_gradient_of_pos_weight() -> None:
    rng = np.random.default_rng(4)
    x, t, w = (tapegrad.tensor(rng.uniform(0.1, 0.9, s)) for s in ((3, 4), (3, 4), (4,)))
    inputs = [v.requires_grad_() for v in (x, t, w)]

    def loss(x: Tensor, t: Tensor, w: Tensor) -> Any:
        return F.binary_cross_entropy_with_logits(x, t, pos_weight=w)

    assert gradcheck(loss, inputs)
    assert gradgradcheck(loss, inputs)


def test_third_derivatives() -> None:
    x = tapegrad.tensor([0.3, -0.8]).double().requires_grad_()
    for function, third in (
        (lambda x: F.softplus(x), lambda s: s * (1 - s) * (1 - 2 * s)),
        (lambda x: F.logsigmoid(x), lambda s: -s * (1 - s) * (1 - 2 * s)),
    ):
        y = function(x).sum()
        for _ in range(3):
            (y,) = tapegrad.autograd.grad(y.sum(), x, create_graph=True)
        s = 1 / (1 + np.exp(-x.detach().numpy()))
        np.testing.assert_allclose(y.detach().numpy(), third(s), rtol=1e-10)


class Inlining(Tape):
    """A tape that logs what is inside composites, as capture does."""

    captures = True


COMPOSED = [name for name in NAMES if TABLE[name].module == "nn.functional" or name in F.SHARED]


@pytest.mark.parametrize("name", COMPOSED)
def test_composites_inlined_equal_their_own_rules(name: str) -> None:
    for op, sample, arguments in some_cases(name):
        inputs = differentiated(arguments)
        expected = call(op, arguments)
        with Inlining():
            got = call(op, arguments)
            ours = gradients(got, inputs)
        for a, b in zip(flat(got), flat(expected), strict=True):
            assert_close(a, b, 1e-12, 1e-12, f"{name}{sample}")
        for g, h in zip(ours, gradients(expected, inputs), strict=True):
            if g is None or h is None:
                assert g is None or not g.any()
                assert h is None or not h.any()
            else:
                assert_close(g, h, 1e-10, 1e-10, f"{name}{sample}")


def test_embedding_inlined_knows_of_padding() -> None:
    index = tapegrad.tensor([[0, 2, 2], [1, 4, 0]])
    weight = tapegrad.randn(5, 3, requires_grad=True)
    for options in ({"padding_idx": 2}, {"padding_idx": 0, "scale_grad_by_freq": True}):
        (expected,) = tapegrad.autograd.grad(F.embedding(index, weight, **options).sum(), weight)
        with Inlining():
            (got,) = tapegrad.autograd.grad(F.embedding(index, weight, **options).sum(), weight)
        np.testing.assert_allclose(got.numpy(), expected.numpy())


# -- training ----------------------------------------------------------------------------------


def descend(
    net: nn.Module, x: Tensor, y: Tensor, loss: Any, steps: int, rate: float
) -> list[float]:
    """Losses of plain gradient descent."""
    seen = []
    for _ in range(steps):
        value = loss(net(x), y)
        net.zero_grad()
        value.backward()
        with tapegrad.no_grad():
            for p in net.parameters():
                p -= rate * p.grad
        seen.append(value.item())
    return seen


def test_a_perceptron_learns_a_circle() -> None:
    tapegrad.manual_seed(1)
    rng = np.random.default_rng(1)
    points = rng.uniform(-1, 1, (200, 2)).astype(np.float32)
    inside = (np.square(points).sum(1) < 0.5).astype(np.int64)
    net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))
    x, y = tapegrad.tensor(points), tapegrad.tensor(inside)
    losses = descend(net, x, y, nn.CrossEntropyLoss(), 400, 1.0)
    assert losses[-1] < 0.5 * losses[0]
    assert (net(x).argmax(1) == y).float().mean().item() > 0.9


def test_a_convolutional_network_learns_stripes() -> None:
    tapegrad.manual_seed(2)
    rng = np.random.default_rng(2)
    kinds = rng.integers(0, 2, 48)
    images = rng.normal(0, 0.3, (48, 1, 8, 8)).astype(np.float32)
    for image, kind in zip(images[:, 0], kinds, strict=True):
        (image if kind else image.T)[::2] += 1
    net = nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2),
        nn.Dropout(0.1), nn.Conv2d(6, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(8, 2),
    )  # fmt: skip
    x, y = tapegrad.tensor(images), tapegrad.tensor(kinds)
    losses = descend(net, x, y, F.cross_entropy, 60, 0.2)
    assert losses[-1] < 0.3 * losses[0]
    net.eval()
    assert (net(x).argmax(1) == y).all()


def test_one_hot_targets_equal_labels() -> None:
    x = tapegrad.randn(5, 4, requires_grad=True)
    y = tapegrad.tensor([0, 3, 1, 1, 2])
    (by_label,) = tapegrad.autograd.grad(F.cross_entropy(x, y), x)
    (by_vector,) = tapegrad.autograd.grad(F.cross_entropy(x, F.one_hot(y, 4).float()), x)
    np.testing.assert_allclose(by_label.numpy(), by_vector.numpy(), rtol=1e-5, atol=1e-7)


# -- gradients and vectors ---------------------------------------------------------------------


def test_clipping() -> None:
    a = nn.Parameter(tapegrad.zeros(2))
    b = nn.Parameter(tapegrad.zeros(1))
    unused = nn.Parameter(tapegrad.zeros(1))
    a.grad, b.grad = tapegrad.tensor([3.0, 0.0]), tapegrad.tensor([4.0])
    total = nn.utils.clip_grad_norm_([a, b, unused], max_norm=1.0)
    assert total.item() == pytest.approx(5.0)
    np.testing.assert_allclose(a.grad.numpy(), [0.6, 0.0], rtol=1e-5)
    np.testing.assert_allclose(b.grad.numpy(), [0.8], rtol=1e-5)
    assert nn.utils.clip_grad_norm_([a, b], max_norm=9.0).item() == pytest.approx(1.0, rel=1e-5)
    np.testing.assert_allclose(b.grad.numpy(), [0.8], rtol=1e-5)
    nn.utils.clip_grad_value_(a, 0.5)
    np.testing.assert_allclose(a.grad.numpy(), [0.5, 0.0])
    assert nn.utils.clip_grad_norm_([unused], 1.0).item() == 0.0
    a.grad = tapegrad.tensor([math.nan, 1.0])
    with pytest.raises(RuntimeError, match="nothing was changed"):
        nn.utils.clip_grad_norm_([a, b], 0.1, error_if_nonfinite=True)
    np.testing.assert_allclose(b.grad.numpy(), [0.8], rtol=1e-5)


def test_norm_of_a_mapping_of_gradients() -> None:
    x = tapegrad.tensor([3.0, 4.0], requires_grad=True)
    gradients = (x * x).sum().backward()
    assert gradients.norm().item() == pytest.approx(10.0)
    assert nn.utils.total_norm([], 2.0).item() == 0.0


def test_vectors_of_parameters() -> None:
    net = nn.Linear(2, 2)
    vector = nn.utils.parameters_to_vector(net.parameters())
    assert vector.shape == (6,)
    assert vector.requires_grad
    nn.utils.vector_to_parameters(tapegrad.arange(6).float(), net.parameters())
    assert net.weight.tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert net.bias.tolist() == [4.0, 5.0]
    with pytest.raises(RuntimeError, match="6 elements"):
        nn.utils.vector_to_parameters(tapegrad.ones(5), net.parameters())


# -- errors ------------------------------------------------------------------------------------


def ones(*shape: int) -> Tensor:
    return tapegrad.ones(*shape)


def whole(*values: int) -> Tensor:
    return tapegrad.tensor(list(values))


ERRORS: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: ones(2, 2).softmax(), TypeError, "needs dim"),
    (lambda: F.softmax(ones(2, 2), 5), IndexError, "dim 5 is out of range"),
    (lambda: F.gelu(whole(1, 2)), RuntimeError, "gelu needs a floating tensor"),
    (lambda: F.gelu(ones(2), approximate="cos"), RuntimeError, "'none' or 'tanh'"),
    (lambda: F.relu([1.0]), TypeError, "expected a Tensor, got list"),
    (lambda: F.prelu(ones(2, 3), ones(2)), RuntimeError, "each of the 3 channels"),
    (lambda: F.glu(ones(3)), RuntimeError, "must be even"),
    (lambda: F.linear(ones(2, 3), ones(4, 5)), RuntimeError, "linear"),
    (lambda: F.conv2d(ones(1, 3, 4, 4), ones(2, 2, 3, 3)), RuntimeError, "with 2 channels, got 3"),
    (lambda: F.conv2d(ones(1, 2, 2, 2), ones(2, 2, 3, 3)), RuntimeError, "does not fit"),
    (lambda: F.conv2d(ones(4, 4), ones(2, 2, 3, 3)), RuntimeError, "4 dimensions"),
    (lambda: F.conv2d(ones(1, 2, 4, 4), ones(2, 2, 3)), RuntimeError, "weight of 4 dimensions"),
    (
        lambda: F.conv2d(ones(1, 2, 4, 4), ones(2, 2, 3, 3), ones(3)),
        RuntimeError,
        "each of the 2 out channels",
    ),
    (
        lambda: F.conv2d(ones(1, 2, 4, 4), ones(2, 2, 3, 3), stride=0),
        RuntimeError,
        "stride must be one or two integers of at least 1",
    ),
    (
        lambda: F.conv2d(ones(1, 2, 4, 4), ones(2, 2, 3, 3), padding="full"),
        RuntimeError,
        "'same', 'valid'",
    ),
    (
        lambda: F.conv2d(ones(1, 2, 4, 4), ones(2, 2, 3, 3), stride=2, padding="same"),
        RuntimeError,
        "needs stride 1",
    ),
    (
        lambda: F.conv2d(ones(1, 2, 4, 4), ones(2, 2, 3, 3).double()),
        RuntimeError,
        "one dtype: the input is tapegrad.float32 but the weight is tapegrad.float64",
    ),
    (lambda: F.conv2d(ones(1, 2, 4, 4), ones(3, 1, 3, 3), groups=2), RuntimeError, "divide the 3"),
    (lambda: F.max_pool2d(ones(1, 1, 4, 4), 2, padding=2), RuntimeError, "at most half"),
    (lambda: F.max_pool2d(ones(4), 2), RuntimeError, "4 dimensions"),
    (lambda: F.max_pool2d(ones(1, 1, 2, 2), 3), RuntimeError, "does not fit"),
    (lambda: F.avg_pool2d(ones(1, 1, 4, 4), (2, 2, 2)), RuntimeError, "one or two integers"),
    (lambda: F.avg_pool2d(ones(1, 1, 4, 4), 2.5), TypeError, "must be an integer"),
    (lambda: F.adaptive_avg_pool2d(ones(1, 1, 4, 4), -1), RuntimeError, "not negative"),
    (lambda: F.layer_norm(ones(2, 3), [4]), RuntimeError, "does not end in"),
    (lambda: F.layer_norm(ones(2, 3), [3], ones(2)), RuntimeError, "the weight must have"),
    (lambda: F.group_norm(ones(2, 3, 4), 2), RuntimeError, "divide the 3"),
    (lambda: F.batch_norm(ones(4, 3), None, None), RuntimeError, "needs running_mean"),
    (lambda: F.batch_norm(ones(4), None, None, training=True), RuntimeError, "batch, channels"),
    (lambda: F.instance_norm(ones(2, 3, 1)), ValueError, "more than 1 place"),
    (lambda: F.embedding(ones(2), ones(3, 3)), RuntimeError, "integer tokens"),
    (lambda: F.embedding(whole(0), ones(3)), RuntimeError, "matrix of rows"),
    (lambda: F.embedding(whole(0), ones(3, 3), 3), RuntimeError, "padding_idx 3"),
    (lambda: F.one_hot(whole(0, 4), 3), RuntimeError, "label 4 is out of range"),
    (lambda: F.one_hot(ones(2)), RuntimeError, "integer labels"),
    (lambda: F.pad(ones(2, 2), (1,)), RuntimeError, "two widths"),
    (lambda: F.pad(ones(2, 2), (1, 1), "mirror"), RuntimeError, "mode must be"),
    (lambda: F.pad(ones(2, 2), (2, 0), "reflect"), RuntimeError, "at most 1"),
    (lambda: F.pad(ones(2, 2), (-3, 0)), RuntimeError, "cut more"),
    (lambda: F.mse_loss(ones(2), ones(3)), RuntimeError, "do not fit"),
    (lambda: F.mse_loss(ones(2), ones(2), reduction="average"), ValueError, "'none', 'mean'"),
    (lambda: F.mse_loss(ones(2), [1.0, 1.0]), TypeError, "needs tensors, got list"),
    (lambda: F.cross_entropy(ones(2, 3), whole(0, 3)), IndexError, "label 3 is out of range"),
    (lambda: F.cross_entropy(ones(2, 3), whole(0, -1)), IndexError, "label -1 is out of range"),
    (lambda: F.cross_entropy(ones(2, 3), whole(0, 1, 2)), ValueError, r"of shape \(2,\), got"),
    (lambda: F.cross_entropy(ones(2, 3), ones(2)), RuntimeError, "integer labels"),
    (lambda: F.cross_entropy(ones(2, 3), ones(2, 2)), RuntimeError, "class probabilities"),
    (lambda: F.cross_entropy(ones(2, 3), whole(0, 1), ones(2)), RuntimeError, "each of the 3"),
    (
        lambda: F.cross_entropy(ones(2, 3), whole(0, 1), label_smoothing=2.0),
        RuntimeError,
        "between 0 and 1",
    ),
    (lambda: F.nll_loss(ones(2, 3), whole(5, 0)), IndexError, "label 5"),
    (lambda: F.binary_cross_entropy(ones(2) * 2, ones(2)), RuntimeError, "with_logits"),
    (lambda: F.binary_cross_entropy(ones(2), ones(3)), ValueError, "shape of the input"),
    (lambda: F.huber_loss(ones(2), ones(2), delta=0.0), RuntimeError, "above 0"),
    (
        lambda: F.scaled_dot_product_attention(ones(2, 3), ones(2, 4), ones(2, 4)),
        RuntimeError,
        "different features",
    ),
    (
        lambda: F.scaled_dot_product_attention(
            ones(2, 3), ones(2, 3), ones(2, 3), ones(2, 2).double()
        ),
        RuntimeError,
        "attn_mask must be bool, float32 or of the query's dtype",
    ),
    (
        lambda: F.scaled_dot_product_attention(ones(2, 3), ones(2, 3), ones(2, 3), dropout_p=1.5),
        RuntimeError,
        "dropout_p must lie between 0 and 1",
    ),
    (
        lambda: F.scaled_dot_product_attention(ones(2, 3), ones(4, 3), ones(4, 3), ones(3, 3)),
        RuntimeError,
        "does not broadcast to the scores",
    ),
    (lambda: F.bilinear(ones(2, 3), ones(2, 4), ones(5, 4, 3)), RuntimeError, "do not fit"),
    (lambda: F.cosine_similarity(ones(2, 3), ones(2, 4)), RuntimeError, "do not broadcast"),
    (lambda: F.nothing, AttributeError, "no attribute 'nothing'"),
    (lambda: nn.init.xavier_uniform_(ones(3)), ValueError, "at least 2 dimensions"),
    (lambda: nn.init.calculate_gain("step"), ValueError, "unknown nonlinearity"),
    (lambda: nn.Conv2d(3, 4, 3, groups=2), ValueError, "must divide"),
    (lambda: nn.Conv2d(3, 4, 3, padding_mode="odd"), ValueError, "padding_mode must be"),
    (lambda: nn.GroupNorm(2, 3), ValueError, "must divide"),
    (lambda: nn.CrossEntropyLoss(reduction="total"), ValueError, "'none', 'mean'"),
]


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors(number: int) -> None:
    function, kind, message = ERRORS[number]
    with pytest.raises(kind, match=message):
        function()


def test_a_failing_operation_leaves_the_tape_as_it_was() -> None:
    x = tapegrad.randn(2, 3, requires_grad=True)
    with Tape() as tape:
        y = x * 2
        with pytest.raises(IndexError):
            F.cross_entropy(y, whole(0, 9))
        with pytest.raises(RuntimeError):
            F.conv2d(y, x)
    assert len(tape) == 1


def test_a_target_that_broadcasts_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="seldom meant"):
        F.mse_loss(ones(4, 1), ones(4))


# -- import ------------------------------------------------------------------------------------


def test_import_loads_nothing_heavy() -> None:
    code = (
        "import sys, tapegrad; assert 'tapegrad.nn' not in sys.modules; tapegrad.nn.Linear(2, 2);"
        "assert not {'scipy', 'llvmlite', 'cupy', 'ml_dtypes'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
