"""Layers over sequences, images and volumes: shapes, state, compiled steps, errors."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from replaying import callbacks, close, replayed
from sweep import flat

import tapegrad as tg
from tapegrad import Tensor, nn
from tapegrad.nn import functional as F
from tapegrad.testing import gradcheck, gradgradcheck

Shape = tuple[int, ...]

#: a layer, the shape of its input, that of its output, its state
LAYERS: list[tuple[Callable[[], Any], Shape, Shape, list[str]]] = [
    (lambda: nn.Conv3d(2, 4, 3, 2, 1), (2, 2, 5, 6, 7), (2, 4, 3, 3, 4), ["weight", "bias"]),
    (lambda: nn.Conv3d(2, 4, (1, 2, 3), bias=False), (2, 3, 4, 5), (4, 3, 3, 3), ["weight"]),
    (
        lambda: nn.Conv3d(2, 2, 3, padding="same", padding_mode="circular", groups=2),
        (2, 2, 4, 3, 5),
        (2, 2, 4, 3, 5),
        ["weight", "bias"],
    ),
    (lambda: nn.ConvTranspose1d(3, 2, 4, 2, 1), (2, 3, 5), (2, 2, 10), ["weight", "bias"]),
    (lambda: nn.ConvTranspose2d(3, 2, 2, 2), (2, 3, 4, 5), (2, 2, 8, 10), ["weight", "bias"]),
    (
        lambda: nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, 2, False, 2),
        (4, 3, 3),
        (6, 8, 8),
        ["weight"],
    ),
    (lambda: nn.ConvTranspose3d(2, 3, 2, 3), (1, 2, 2, 3, 2), (1, 3, 5, 8, 5), ["weight", "bias"]),
    (lambda: nn.MaxPool3d(2), (2, 3, 4, 5, 6), (2, 3, 2, 2, 3), []),
    (lambda: nn.AvgPool3d(3, 2, 1), (3, 4, 5, 6), (3, 2, 3, 3), []),
    (lambda: nn.LPPool1d(2, 3), (2, 3, 9), (2, 3, 3), []),
    (lambda: nn.LPPool2d(2, 2), (2, 3, 4, 5), (2, 3, 2, 2), []),
    (lambda: nn.LPPool3d(2, 2, 1), (1, 2, 3, 4, 3), (1, 2, 2, 3, 2), []),
    (lambda: nn.AdaptiveAvgPool3d((2, None, 3)), (2, 3, 5, 4, 7), (2, 3, 2, 4, 3), []),
    (lambda: nn.AdaptiveMaxPool1d(4), (2, 3, 9), (2, 3, 4), []),
    (lambda: nn.AdaptiveMaxPool2d((2, 4)), (3, 4, 5), (3, 2, 4), []),
    (lambda: nn.AdaptiveMaxPool3d(2), (1, 3, 4, 5, 6), (1, 3, 2, 2, 2), []),
    (lambda: nn.FractionalMaxPool2d(2, (3, 4)), (2, 3, 6, 7), (2, 3, 3, 4), []),
    (lambda: nn.FractionalMaxPool3d(2, output_ratio=0.5), (3, 6, 7, 8), (3, 3, 3, 4), []),
    (lambda: nn.Upsample(scale_factor=2, mode="nearest"), (2, 3, 4, 5), (2, 3, 8, 10), []),
    (lambda: nn.Upsample((7, 3), mode="bilinear"), (2, 3, 4, 5), (2, 3, 7, 3), []),
    (lambda: nn.Upsample(scale_factor=1.5, mode="bicubic"), (2, 3, 4, 5), (2, 3, 6, 7), []),
    (lambda: nn.UpsamplingNearest2d(scale_factor=3), (1, 2, 2, 3), (1, 2, 6, 9), []),
    (lambda: nn.UpsamplingBilinear2d((5, 5)), (1, 2, 2, 3), (1, 2, 5, 5), []),
    (lambda: nn.PixelShuffle(2), (2, 8, 3, 4), (2, 2, 6, 8), []),
    (lambda: nn.PixelUnshuffle(2), (2, 2, 6, 8), (2, 8, 3, 4), []),
    (lambda: nn.ChannelShuffle(3), (2, 6, 4, 4), (2, 6, 4, 4), []),
    (lambda: nn.ReflectionPad3d(1), (2, 3, 4, 4, 4), (2, 3, 6, 6, 6), []),
    (lambda: nn.ReplicationPad2d((1, 2, 3, 0)), (3, 4, 5), (3, 7, 8), []),
    (lambda: nn.ZeroPad2d((1, -1, 0, 2)), (2, 3, 4, 5), (2, 3, 6, 5), []),
    (lambda: nn.ConstantPad1d(2, 0.5), (2, 3, 4), (2, 3, 8), []),
    (lambda: nn.CircularPad3d(1), (1, 2, 3, 3, 3), (1, 2, 5, 5, 5), []),
    (lambda: nn.LocalResponseNorm(3), (2, 5, 3, 3), (2, 5, 3, 3), []),
    (lambda: nn.InstanceNorm3d(3), (2, 3, 2, 3, 4), (2, 3, 2, 3, 4), []),
    (
        lambda: nn.BatchNorm3d(3),
        (2, 3, 2, 3, 4),
        (2, 3, 2, 3, 4),
        ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"],
    ),
]


def randn(shape: Shape, seed: int) -> Tensor:
    return tg.tensor(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


@pytest.mark.parametrize("number", range(len(LAYERS)))
def test_a_training_step_of_each_layer(number: int) -> None:
    """Eager and compiled steps agree, and every operation of the step is native."""
    make, shape, expected, state = LAYERS[number]
    layer = make()
    assert list(layer.state_dict()) == state
    other = copy.deepcopy(layer)

    def step(model: Any, x: Tensor) -> list[Any]:
        x = x.detach().requires_grad_()
        out = model(x)
        loss = (out * out.detach().cos()).sum()
        grads = tg.autograd.grad(loss, [x, *model.parameters()])
        with tg.no_grad():
            for p, g in zip(model.parameters(), grads[1:], strict=True):
                p -= 0.01 * g  # small: what differs in rounding should not grow
        return [out.detach(), *grads]

    fast = tg.compile(lambda x: step(other, x))
    for seed in range(4):
        x = randn(shape, seed)
        tg.manual_seed(seed)
        plain = step(layer, x)
        tg.manual_seed(seed)
        for a, b in zip(flat(plain), flat(fast(x)), strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            close(a, b, 1e-4)
        assert tuple(plain[0].shape) == expected
    assert replayed(fast) == 2
    assert callbacks(fast) == []


def test_unpooling_puts_maxima_back() -> None:
    x = randn((2, 3, 4, 6), 0).requires_grad_()
    pool, unpool = nn.MaxPool2d(2, return_indices=True), nn.MaxUnpool2d(2)
    out, index = pool(x)
    back = unpool(out, index)
    assert back.shape == x.shape
    kept = back != 0
    np.testing.assert_array_equal(back.detach()[kept].numpy(), x.detach()[kept].numpy())
    assert int(kept.sum()) == out.numel()
    back.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), kept.numpy().astype(np.float32))
    assert unpool(out, index, output_size=(5, 7)).shape == (2, 3, 5, 7)


def test_a_transposed_convolution_is_the_transpose() -> None:
    """<conv(x), y> = <x, conv_transpose(y)> for the same weight."""
    rng = np.random.default_rng(1)
    for dims, transposed in enumerate(
        (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d), 1
    ):
        convolve = (F.conv1d, F.conv2d, F.conv3d)[dims - 1]
        weight = tg.tensor(rng.normal(size=(4, 3, *[3] * dims)))
        x = tg.tensor(rng.normal(size=(2, 6, *[7] * dims)))
        options = {"stride": 2, "padding": 1, "groups": 2}
        out = convolve(x, weight, **options)
        y = tg.tensor(rng.normal(size=tuple(out.shape)))
        back = transposed(y, weight, **options)
        assert back.shape == x.shape
        np.testing.assert_allclose(float((out * y).sum()), float((back * x).sum()), rtol=1e-12)


def test_second_derivatives() -> None:
    rng = np.random.default_rng(3)
    x = tg.tensor(rng.permutation(96).reshape(1, 2, 4, 4, 3) / 9.0).requires_grad_()
    weight = tg.tensor(rng.normal(size=(2, 1, 2, 3, 2))).requires_grad_()
    for function in (
        lambda x: F.max_pool3d(x, 2) ** 2,
        lambda x: F.avg_pool3d(x, 3, 2, 1) ** 2,
        lambda x: F.adaptive_max_pool3d(x, 3) ** 2,
        lambda x: F.adaptive_avg_pool3d(x, 3) ** 2,
        lambda x: F.interpolate(x, 5, mode="trilinear") ** 2,
        lambda x: F.local_response_norm(x, 2, alpha=0.5),
    ):
        assert gradgradcheck(function, x, fast_mode=True)
    assert gradgradcheck(
        lambda x, w: F.conv_transpose3d(x, w, stride=2, output_padding=1).sin(),
        (x, weight),
        fast_mode=True,
    )
    image = tg.tensor(rng.normal(size=(1, 2, 4, 5))).requires_grad_()
    grid = tg.tensor(rng.uniform(-0.9, 0.9, (1, 3, 2, 2))).requires_grad_()
    for mode in ("bilinear", "bicubic"):
        sample = lambda x, g, m=mode: F.grid_sample(x, g, m, align_corners=False)  # noqa: E731
        assert gradcheck(sample, (image, grid))
        assert gradgradcheck(sample, (image, grid), fast_mode=True)


def test_large_inputs_agree_with_small_ones() -> None:
    """From some size on eager operations run as native code."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(4, 8, 24, 24, 6)).astype(np.float32)
    weight = rng.normal(size=(8, 4, 3, 3, 2)).astype(np.float32)

    def results(x: Any) -> list[Any]:
        x = tg.tensor(x).requires_grad_()
        outs = [
            F.conv_transpose3d(x, tg.tensor(weight), stride=2, padding=1),
            F.max_pool3d(x, 3, 2, 1),
            F.avg_pool3d(x, 3, 2, 1, count_include_pad=False),
            F.adaptive_avg_pool3d(x, (7, 5, 4)),
            F.interpolate(x, scale_factor=(1.3, 0.4, 2.0), mode="trilinear"),
        ]
        return [g for out in outs for g in (out, tg.autograd.grad((out * out).sum(), x)[0])]

    parts = zip(*(results(x[i : i + 1, :, :, :]) for i in range(4)), strict=True)
    for whole, several in zip(results(x), parts, strict=True):
        close(whole, tg.cat([s.detach() for s in several]), 2e-4)


def test_random_windows_stay_inside() -> None:
    tg.manual_seed(0)
    x = randn((2, 5, 9, 8), 0)
    first, index = F.fractional_max_pool2d(x, 3, (4, 3), return_indices=True)
    np.testing.assert_array_equal(
        x.flatten(2).gather(2, index.flatten(2)).numpy(), first.flatten(2).numpy()
    )
    second = F.fractional_max_pool2d(x, 3, (4, 3))
    assert (first != second).any()
    tg.manual_seed(0)
    np.testing.assert_array_equal(F.fractional_max_pool2d(x, 3, (4, 3)).numpy(), first.numpy())


# -- lazy layers ---------------------------------------------------------------------------------


def lazy_network() -> Any:
    return nn.Sequential(
        nn.LazyConv2d(4, 3, padding=1),
        nn.LazyBatchNorm2d(),
        nn.ReLU(),
        nn.LazyConvTranspose2d(3, 2, 2),
        nn.LazyInstanceNorm2d(),
        nn.Flatten(),
        nn.LazyLinear(5),
    )


def test_lazy_layers_learn_their_sizes() -> None:
    net = lazy_network()
    assert repr(net[0].weight) == "<UninitializedParameter>"
    assert repr(net[1].running_mean) == "<UninitializedBuffer>"
    assert net[0].has_uninitialized_params()
    with pytest.raises(RuntimeError, match="no shape yet"):
        _ = net[0].weight.shape
    weight = net[0].weight
    assert net.double()(randn((2, 3, 4, 4), 0).double()).shape == (2, 5)
    assert net[0].weight is weight
    assert type(net[0]) is nn.Conv2d
    assert type(weight) is nn.Parameter
    assert type(net[1]) is nn.BatchNorm2d
    assert type(net[3]) is nn.ConvTranspose2d
    assert [tuple(p.shape) for p in net[6].parameters()] == [(5, 192), (5,)]
    assert {p.dtype for p in net.parameters()} == {tg.float64}
    optimizer = tg.optim.SGD(net.parameters(), lr=0.1)
    net(randn((2, 3, 4, 4), 1).double()).sum().backward()
    optimizer.step()


def test_lazy_layers_load_a_state() -> None:
    net, other, third = lazy_network(), lazy_network(), lazy_network()
    third.load_state_dict(other.state_dict())  # nothing is there yet, on either side
    assert third[0].has_uninitialized_params()
    x = randn((2, 3, 4, 4), 0)
    net(x)
    other.load_state_dict(net.state_dict())
    net.eval()
    other.eval()
    np.testing.assert_array_equal(net(x).detach().numpy(), other(x).detach().numpy())
    with pytest.raises(RuntimeError, match="no values in the state dict of a lazy layer"):
        net.load_state_dict(lazy_network().state_dict())
    with pytest.raises(RuntimeError, match="missing keys"):
        third.load_state_dict({})


# -- errors --------------------------------------------------------------------------------------


def ones(*shape: int) -> Tensor:
    return tg.ones(*shape)


ERRORS: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: F.conv3d(ones(2, 3, 3, 3), ones(1, 1, 2, 2, 2)), RuntimeError, "with 1 channels, got"),
    (lambda: F.conv3d(ones(2, 3), ones(1, 1, 2, 2, 2)), RuntimeError, "5 dimensions"),
    (lambda: F.conv3d(ones(1, 1, 2, 2, 2), ones(1, 1, 3, 2, 2)), RuntimeError, "does not fit"),
    (
        lambda: F.conv3d(ones(1, 1, 2, 2, 2), ones(1, 1, 2, 2, 2), stride=(1, 2)),
        RuntimeError,
        "one or three integers",
    ),
    (lambda: F.conv1d(ones(1, 1, 4), ones(1, 1, 2), stride=0), RuntimeError, "one integer of at"),
    (lambda: F.conv_transpose2d(ones(1, 2, 3, 3), ones(3, 1, 2, 2)), RuntimeError, "3 channels"),
    (lambda: F.conv_transpose2d(ones(1, 2, 3, 3), ones(2, 1, 2)), RuntimeError, "4 dimensions"),
    (
        lambda: F.conv_transpose2d(ones(1, 2, 3, 3), ones(2, 1, 2, 2), ones(2)),
        RuntimeError,
        "each of the 1 out channels",
    ),
    (
        lambda: F.conv_transpose2d(ones(1, 2, 3, 3), ones(2, 1, 2, 2), output_padding=1),
        RuntimeError,
        "must be smaller than the stride",
    ),
    (
        lambda: F.conv_transpose1d(ones(1, 1, 1), ones(1, 1, 2), padding=1),
        RuntimeError,
        r"output of size \(0,\)",
    ),
    (
        lambda: F.conv_transpose1d(ones(1, 3, 2), ones(3, 1, 2), groups=2),
        RuntimeError,
        "divide the 3 in channels",
    ),
    (
        lambda: F.conv_transpose1d(ones(1, 1, 2), ones(1, 1, 2).double()),
        RuntimeError,
        "tensors of one dtype",
    ),
    (lambda: nn.ConvTranspose2d(1, 1, 2, padding_mode="reflect"), ValueError, "'zeros' only"),
    (lambda: nn.ConvTranspose2d(1, 1, 2, padding="same"), ValueError, "padding as sizes"),
    (
        lambda: nn.ConvTranspose2d(1, 1, 2, 2)(ones(1, 1, 3, 3), output_size=(9, 9)),
        ValueError,
        r"from \(6, 6\) to \(7, 7\)",
    ),
    (
        lambda: nn.ConvTranspose2d(1, 1, 2, 2)(ones(1, 1, 3, 3), output_size=(9,)),
        ValueError,
        "2 or 4 sizes",
    ),
    (lambda: F.max_pool3d(ones(3, 3), 2), RuntimeError, "5 dimensions"),
    (lambda: F.max_pool3d(ones(1, 3, 3, 3), 2, padding=2), RuntimeError, "at most half"),
    (lambda: F.avg_pool3d(ones(1, 3, 3, 3), 2, divisor_override=0), RuntimeError, "must not be 0"),
    (lambda: F.adaptive_max_pool2d(ones(1, 3, 3), (1, 2, 3)), RuntimeError, "1 or 2 sizes"),
    (lambda: F.adaptive_avg_pool3d(ones(1, 3, 3, 3), -1), RuntimeError, "not negative"),
    (lambda: F.max_unpool1d(ones(1, 2), ones(1, 2), 2), RuntimeError, "int64 indices"),
    (
        lambda: F.max_unpool1d(ones(1, 2), tg.tensor([[0, 1, 2]]), 2),
        RuntimeError,
        "an index for each element",
    ),
    (lambda: F.max_unpool1d(ones(1, 2), tg.tensor([[0, 4]]), 2), RuntimeError, "out of range"),
    (
        lambda: F.max_unpool1d(ones(1, 2), tg.tensor([[0, 3]]), 2, output_size=(9,)),
        ValueError,
        "too far from",
    ),
    (lambda: F.fractional_max_pool2d(ones(1, 4, 4), 2), ValueError, "output_size or an output_rat"),
    (lambda: F.fractional_max_pool2d(ones(1, 4, 4), 3, 3), RuntimeError, "no room for"),
    (
        lambda: F.fractional_max_pool2d(ones(1, 4, 4), 2, 2, _random_samples=ones(1, 2)),
        RuntimeError,
        r"shape \(1, 1, 2\)",
    ),
    (lambda: nn.FractionalMaxPool2d(2), ValueError, "either output_size or output_ratio"),
    (lambda: nn.FractionalMaxPool2d(2, output_ratio=1.5), ValueError, "between 0 and 1"),
    (lambda: F.interpolate(ones(1, 1, 3)), ValueError, "either size or scale_factor"),
    (lambda: F.interpolate(ones(1, 1, 3), 3, 2.0), ValueError, "either size or scale_factor"),
    (lambda: F.interpolate(ones(1, 1, 3), (3, 3)), ValueError, "needs 1 sizes"),
    (lambda: F.interpolate(ones(1, 3), 3), NotImplementedError, "3, 4 or 5 dimensions"),
    (lambda: F.interpolate(ones(1, 1, 3), 3, mode="bilinear"), NotImplementedError, "4 dimensions"),
    (lambda: F.interpolate(ones(1, 1, 3), 3, mode="cubic"), NotImplementedError, "one of"),
    (lambda: F.interpolate(ones(1, 1, 3), 3, align_corners=True), ValueError, "no align_corners"),
    (lambda: F.interpolate(ones(1, 1, 3), 3, antialias=True), ValueError, "antialias needs"),
    (lambda: F.interpolate(ones(1, 1, 3), scale_factor=0.1), RuntimeError, "at least 1"),
    (
        lambda: F.interpolate(ones(1, 1, 3).long(), 3, mode="linear"),
        RuntimeError,
        "floating tensor",
    ),
    (
        lambda: F.interpolate(ones(1, 1, 3), 3, recompute_scale_factor=True),
        ValueError,
        "needs a scale_factor",
    ),
    (lambda: F.grid_sample(ones(1, 1, 3, 3), ones(1, 2, 2, 3)), RuntimeError, "got shapes"),
    (lambda: F.grid_sample(ones(1, 1, 3, 3), ones(2, 2, 2, 2)), RuntimeError, "same batch"),
    (
        lambda: F.grid_sample(ones(1, 1, 3, 3), ones(1, 2, 2, 2), "cubic"),
        ValueError,
        "mode must be",
    ),
    (
        lambda: F.grid_sample(ones(1, 1, 3, 3), ones(1, 2, 2, 2), padding_mode="wrap"),
        ValueError,
        "padding_mode must be",
    ),
    (
        lambda: F.grid_sample(ones(1, 1, 2, 2, 2), ones(1, 1, 1, 1, 3), "bicubic"),
        RuntimeError,
        "not volumes",
    ),
    (lambda: F.affine_grid(ones(1, 2, 3), (2, 1, 3, 3)), ValueError, "affine_grid needs maps"),
    (lambda: F.affine_grid(ones(1, 2, 3), (1, 1, 0, 3)), ValueError, "at least 1"),
    (lambda: F.pixel_shuffle(ones(1, 3, 2, 2), 2), RuntimeError, "must divide the 3 channels"),
    (lambda: F.pixel_shuffle(ones(2, 2), 2), RuntimeError, "channels, height, width"),
    (lambda: F.pixel_unshuffle(ones(1, 3, 3), 2), RuntimeError, "must divide the height"),
    (lambda: F.pixel_unshuffle(ones(1, 3, 3), 0), RuntimeError, "at least 1"),
    (lambda: F.channel_shuffle(ones(1, 3, 3), 2), RuntimeError, "must divide the 3 channels"),
    (lambda: F.local_response_norm(ones(2, 2), 2), ValueError, "3 or more dimensions"),
    (lambda: nn.ReflectionPad2d((1, 2, 3)), ValueError, "one width or 4"),
    (lambda: nn.ReflectionPad2d(1)(ones(3, 3)), RuntimeError, "4 dimensions"),
    (lambda: nn.ReflectionPad1d(3)(ones(1, 1, 3)), RuntimeError, "at most 2"),
    (lambda: nn.BatchNorm3d(2)(ones(1, 2, 3, 3)), ValueError, "5 dimensions"),
    (lambda: nn.LazyConv2d(2, 3)(ones(3, 3)), RuntimeError, "4 dimensions"),
    (lambda: nn.LazyConv2d(2, 3, groups=2)(ones(1, 3, 4, 4)), ValueError, "must divide"),
]


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors(number: int) -> None:
    function, kind, message = ERRORS[number]
    with pytest.raises(kind, match=message):
        function()


def test_empty_batches() -> None:
    x = ones(0, 2, 20, 6).requires_grad_()
    for function, expected in (
        (lambda x: F.interpolate(x, (2, 4), mode="area"), (0, 2, 2, 4)),
        (lambda x: F.interpolate(x, (2, 40), mode="bilinear"), (0, 2, 2, 40)),
        (lambda x: F.adaptive_max_pool2d(x, (3, 4)), (0, 2, 3, 4)),
        (lambda x: F.conv_transpose2d(x, ones(2, 3, 2, 2), stride=2), (0, 3, 40, 12)),
        (lambda x: F.max_pool2d(x, 2), (0, 2, 10, 3)),
        (lambda x: F.unfold(x, 2), (0, 8, 95)),
        (lambda x: F.pad(x, (1, 1), "reflect"), (0, 2, 20, 8)),
        (lambda x: F.pixel_shuffle(F.pad(x, (0, 0, 0, 0, 1, 1)), 2), (0, 1, 40, 12)),
    ):
        out = function(x)
        assert tuple(out.shape) == expected
        (gradient,) = tg.autograd.grad(out.sum(), x)
        assert gradient.shape == x.shape
        fast = tg.compile(function)
        assert [tuple(fast(x).shape) for _ in range(3)] == [expected] * 3


def pooled_gradient(x: Tensor, *window: Any) -> Tensor:
    x = x.detach().requires_grad_()
    out = F.max_pool2d(x, *window)
    g = (tg.arange(out.numel()) * 0.37).cos().reshape(out.shape)
    return tg.autograd.grad(out, x, g)[0]


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("size", [2, 3, 5, (3, 2)])
def test_gradients_of_maxima_of_any_windows(size: Any, ceil_mode: bool) -> None:
    """Native code gives each place what it has won, whichever windows overlap there."""
    x = tg.randint(-3, 4, (2, 3, 9, 11)).float()
    ways: Any = ((1, 0, 1), (1, 1, 1), (2, 1, 1), (2, 0, 2), (3, 1, 1), ((3, 1), 1, 2))
    for stride, padding, dilation in ways:
        fast = tg.compile(pooled_gradient)
        for _ in range(3):
            found = fast(x, size, stride, padding, dilation, ceil_mode)
        expected = pooled_gradient(x, size, stride, padding, dilation, ceil_mode)
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-6, atol=1e-6)
        assert callbacks(fast) == []


def test_a_list_of_one_number_serves_all_dimensions_of_a_convolution():
    plain = nn.Conv2d(2, 3, 3, stride=2, padding=1, dilation=1)
    listed = nn.Conv2d(2, 3, 3, stride=[2], padding=(1,), dilation=[1])
    listed.load_state_dict(plain.state_dict())
    assert (listed.stride, listed.padding, listed.dilation) == ((2,), (1,), (1,))
    x = tg.randn(1, 2, 7, 7)
    assert tg.equal(listed(x), plain(x))
    with pytest.raises(ValueError, match="kernel_size needs 2 integers"):
        nn.Conv2d(2, 3, [3])
