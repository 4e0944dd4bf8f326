"""Layers over sequences, images and volumes against PyTorch, from the same state.

Outputs, gradients of inputs and parameters, buffers, names and texts; then functions in the corners
that PyTorch's own samples do not reach.
"""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from test_nn_torch import RNG, check_call, check_module, floats
from torch.nn import functional as TF
from torch_oracle import assert_same, to_torch

import tapegrad
from tapegrad import nn
from tapegrad.nn import functional as F

SHAPES = {1: (9,), 2: (6, 7), 3: (5, 4, 6)}


def volume(dims: int, channels: int = 4, batch: int | None = 2) -> Any:
    lead = (channels,) if batch is None else (batch, channels)
    return floats(*lead, *SHAPES[dims])


# -- convolutions --------------------------------------------------------------------------------

CONVOLUTIONS: list[dict[str, Any]] = [
    {"kernel_size": 3},
    {"kernel_size": 2, "stride": 2, "padding": 1, "groups": 2, "bias": False},
    {"kernel_size": 3, "dilation": 2, "padding": 2},
    {"kernel_size": 3, "padding": "same", "groups": 4},
    {"kernel_size": 3, "padding": 1, "padding_mode": "circular"},
    {"kernel_size": 3, "padding": 2, "padding_mode": "reflect"},
    {"kernel_size": 3, "padding": "same", "padding_mode": "replicate"},
    {"kernel_size": 3, "padding": "valid", "padding_mode": "replicate"},
]

TRANSPOSED: list[dict[str, Any]] = [
    {"kernel_size": 3},
    {"kernel_size": 3, "stride": 2, "padding": 1, "output_padding": 1},
    {"kernel_size": 2, "stride": 3, "groups": 2, "bias": False},
    {"kernel_size": 3, "dilation": 3, "stride": 2, "padding": 2, "output_padding": 2},
    {"kernel_size": 2, "padding": 2},
    {"kernel_size": 1, "stride": 2},
    {"kernel_size": 4, "stride": 3, "padding": 3, "groups": 4},
]


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("number", range(len(CONVOLUTIONS)))
def test_convolutions(dims: int, number: int) -> None:
    def make(n: Any) -> Any:
        return getattr(n, f"Conv{dims}d")(4, 8, **CONVOLUTIONS[number])

    check_module(make, volume(dims))
    check_module(make, volume(dims, batch=None))


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("number", range(len(TRANSPOSED)))
def test_transposed_convolutions(dims: int, number: int) -> None:
    def make(n: Any) -> Any:
        return getattr(n, f"ConvTranspose{dims}d")(4, 8, **TRANSPOSED[number])

    check_module(make, volume(dims))
    check_module(make, volume(dims, batch=None))


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_transposed_convolution_to_a_size(dims: int) -> None:
    torch.manual_seed(0)
    theirs = getattr(torch.nn, f"ConvTranspose{dims}d")(4, 2, 3, 3, 1).double()
    ours = getattr(nn, f"ConvTranspose{dims}d")(4, 2, 3, 3, 1).double()
    ours.load_state_dict({k: tapegrad.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    x = volume(dims)
    least = [(n - 1) * 3 + 1 for n in SHAPES[dims]]
    for more in range(3):
        size = [n + more for n in least]
        check_call(ours, theirs, (x,), f"size {size}", output_size=size)
        check_call(ours, theirs, (x,), f"size {size}", output_size=[2, 2, *size])
    for size in ([n + 3 for n in least], [n - 1 for n in least], [4]):
        if len(size) == dims and size == least:
            continue
        for module, given in ((ours, x), (theirs, to_torch(x))):
            with pytest.raises(ValueError, match="size"):
                module(given, output_size=[*size, 1, 1, 1] if size == [4] else size)


# -- pools ---------------------------------------------------------------------------------------

POOLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("MaxPool", (2,), {}),
    ("MaxPool", (3, 2, 1), {"ceil_mode": True}),
    ("MaxPool", (2, 1), {"dilation": 2, "return_indices": True}),
    ("AvgPool", (2,), {}),
    ("AvgPool", (3, 2, 1), {"ceil_mode": True}),
    ("AvgPool", (3, 1, 1), {"count_include_pad": False}),
    ("AdaptiveAvgPool", (2,), {}),
    ("AdaptiveAvgPool", (1,), {}),
    ("AdaptiveMaxPool", (2,), {}),
    ("AdaptiveMaxPool", (3,), {"return_indices": True}),
    ("LPPool", (2, 2), {}),
    ("LPPool", (3.0, 3, 2), {"ceil_mode": True}),
]


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("number", range(len(POOLS)))
def test_pools(dims: int, number: int) -> None:
    name, args, options = POOLS[number]

    def make(n: Any) -> Any:
        return getattr(n, f"{name}{dims}d")(*args, **options)

    low = 0.5 if name == "LPPool" else -2.0  # norms of negative numbers to the third power are NaN
    check_module(make, floats(2, 3, *SHAPES[dims], low=low))
    check_module(make, floats(3, *SHAPES[dims], low=low))


def test_pools_with_a_divisor_or_kept_sizes() -> None:
    check_module(lambda n: n.AvgPool3d(2, divisor_override=3), volume(3))
    check_module(lambda n: n.AvgPool2d((2, 3), (1, 2), (1, 0)), volume(2))
    check_module(lambda n: n.AdaptiveAvgPool3d((None, 2, 5)), volume(3))
    check_module(lambda n: n.AdaptiveMaxPool2d((4, None)), volume(2))
    check_module(lambda n: n.AdaptiveMaxPool3d((7, 3, 4)), volume(3))
    check_module(lambda n: n.MaxPool3d((1, 2, 3), (2, 1, 1), (0, 1, 1)), volume(3))


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize(("size", "stride"), [(2, None), (3, 2), (2, 3)])
def test_unpooling(dims: int, size: int, stride: int | None) -> None:
    x = floats(2, 3, *[6] * dims)
    pool, unpool = f"max_pool{dims}d", f"MaxUnpool{dims}d"
    out, index = getattr(F, pool)(x.detach(), size, stride, return_indices=True)
    if stride is None:
        check_module(lambda n: getattr(n, unpool)(size, stride), out.requires_grad_(), index)
    ours, theirs = getattr(nn, unpool)(size, stride), getattr(torch.nn, unpool)(size, stride)
    wanted = list(x.shape)
    got = ours(out.detach(), index, output_size=wanted)
    expected = theirs(to_torch(out.detach()), to_torch(index), output_size=wanted)
    assert_same(got, expected, "unpooled")


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("options", [{"output_size": 2}, {"output_ratio": 0.6}], ids=str)
def test_fractional_pools(dims: int, options: dict[str, Any]) -> None:
    samples = RNG.random((2, 4, dims))

    def make(n: Any) -> Any:
        tensor = tapegrad.tensor if n is nn else torch.tensor
        return getattr(n, f"FractionalMaxPool{dims}d")(
            2, **options, return_indices=True, _random_samples=tensor(samples)
        )

    ours, theirs = make(nn), make(torch.nn)
    assert repr(ours) == repr(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    check_call(ours, theirs, (volume(dims),), "fractional")


# -- borders, sizes, channels --------------------------------------------------------------------


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("kind", ["Zero", "Constant", "Reflection", "Replication", "Circular"])
def test_padding_layers(dims: int, kind: str) -> None:
    more = (1.5,) if kind == "Constant" else ()
    name = f"{kind}Pad{dims}d"
    uneven = tuple(range(2 * dims))[::-1] if dims < 3 else (1, 2, 3, 0, 2, 1)
    for widths in (2, uneven):
        check_module(lambda n, w=widths: getattr(n, name)(w, *more), volume(dims))
        check_module(lambda n, w=widths: getattr(n, name)(w, *more), volume(dims, batch=None))


UPSAMPLING: list[tuple[Any, int]] = [
    (lambda n: n.Upsample(scale_factor=2), 1),
    (lambda n: n.Upsample((4, 20)), 2),
    (lambda n: n.Upsample(scale_factor=(2.0, 0.5), mode="bilinear"), 2),
    (lambda n: n.Upsample((9, 3), mode="bilinear", align_corners=True), 2),
    (lambda n: n.Upsample(scale_factor=1.7, mode="bicubic"), 2),
    (lambda n: n.Upsample(scale_factor=1.7, mode="bicubic", recompute_scale_factor=True), 2),
    (lambda n: n.Upsample(scale_factor=3, mode="trilinear"), 3),
    (lambda n: n.Upsample(7, mode="linear"), 1),
    (lambda n: n.Upsample(scale_factor=1, mode="linear"), 1),
    (lambda n: n.Upsample(3, mode="area"), 3),
    (lambda n: n.Upsample(3, mode="nearest-exact"), 3),
    (lambda n: n.UpsamplingNearest2d(scale_factor=3), 2),
    (lambda n: n.UpsamplingBilinear2d(size=(5, 11)), 2),
    (lambda n: n.PixelShuffle(2), 2),
    (lambda n: n.PixelShuffle(1), 2),
    (lambda n: n.ChannelShuffle(2), 2),
    (lambda n: n.ChannelShuffle(4), 3),
    (lambda n: n.LocalResponseNorm(2), 2),
    (lambda n: n.LocalResponseNorm(3, 0.5, 0.6, 2.0), 3),
]


@pytest.mark.parametrize("number", range(len(UPSAMPLING)))
def test_upsampling_and_shuffling(number: int) -> None:
    make, dims = UPSAMPLING[number]
    check_module(make, volume(dims))


def test_pixel_unshuffle() -> None:
    check_module(lambda n: n.PixelUnshuffle(2), floats(2, 3, 4, 6))
    check_module(lambda n: n.PixelUnshuffle(3), floats(1, 3, 6))


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("size", [(3, 4), (13, 15), (1, 1), (6, 20)])
def test_smooth_interpolation(mode: str, corners: bool, size: Any) -> None:
    check_call(
        F.interpolate, TF.interpolate, (volume(2),), mode, size=size, mode=mode,
        align_corners=corners, antialias=True,
    )  # fmt: skip


def test_interpolation_of_bytes() -> None:
    x = tapegrad.tensor(RNG.integers(0, 256, (2, 3, 8, 10)).astype(np.uint8))
    for mode, size, smooth in itertools.product(
        ("bilinear", "bicubic"), [(7, 9), (3, 4), (16, 20)], (False, True)
    ):
        got = F.interpolate(x, size, mode=mode, antialias=smooth)
        expected = TF.interpolate(to_torch(x), size, mode=mode, antialias=smooth)
        assert_same(got, expected, f"{mode} {size} {smooth}")


@pytest.mark.parametrize("factor", [0.3, 0.5, 0.77, 1.3, 2.0, 3.9])
def test_nearest_places_of_many_factors(factor: float) -> None:
    """Places are computed in float32 and would differ by one element otherwise."""
    for n, mode in itertools.product(range(4, 60, 7), ("nearest", "nearest-exact")):
        x = tapegrad.arange(float(n)).reshape(1, 1, n)
        got = F.interpolate(x, scale_factor=factor, mode=mode)
        assert_same(got, TF.interpolate(to_torch(x), scale_factor=factor, mode=mode), f"{n} {mode}")


# -- sampling ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("corners", [False, True])
def test_sampling_at_corners_and_far_out(mode: str, padding: str, corners: bool) -> None:
    """Places exactly on the border have the gradients that PyTorch gives them."""
    places = [-7.3, -1.0, -0.999, 0.0, 0.31, 1.0, 4.4]
    grid = np.array(list(itertools.product(places, places))).reshape(1, 7, 7, 2)
    leaf = tapegrad.tensor(grid).requires_grad_()
    check_call(
        F.grid_sample, TF.grid_sample, (floats(1, 3, 5, 4), leaf), f"{mode} {padding}",
        mode=mode, padding_mode=padding, align_corners=corners,
    )  # fmt: skip


@pytest.mark.parametrize("corners", [False, True])
def test_affine_grids(corners: bool) -> None:
    for theta, size in (((2, 2, 3), (2, 3, 4, 5)), ((1, 3, 4), (1, 2, 3, 2, 4))):
        x = floats(*theta)
        check_call(F.affine_grid, TF.affine_grid, (x, list(size)), "affine", align_corners=corners)
        image = floats(*size)
        warped = F.grid_sample(image, F.affine_grid(x, size, corners), align_corners=corners)
        grid = TF.affine_grid(to_torch(x), list(size), corners)
        assert_same(warped, TF.grid_sample(to_torch(image), grid, align_corners=corners), "warped")


# -- norms and lazy layers -----------------------------------------------------------------------


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("affine", [True, False])
def test_norms_of_volumes(training: bool, affine: bool) -> None:
    x = volume(3)
    check_module(lambda n: n.BatchNorm3d(4, affine=affine), x, calls=2, training=training)
    for tracked in (True, False):
        check_module(
            lambda n, t=tracked: n.InstanceNorm3d(4, affine=affine, track_running_stats=t),
            x, calls=2, training=training,
        )  # fmt: skip


LAZY: list[tuple[Any, int]] = [
    (lambda n: n.LazyLinear(3), 2),
    *((lambda n, d=d: getattr(n, f"LazyConv{d}d")(6, 2, groups=2), d) for d in (1, 2, 3)),
    *((lambda n, d=d: getattr(n, f"LazyConvTranspose{d}d")(6, 2, 2), d) for d in (1, 2, 3)),
    *((lambda n, d=d: getattr(n, f"LazyBatchNorm{d}d")(), d) for d in (1, 2, 3)),
    *((lambda n, d=d: getattr(n, f"LazyInstanceNorm{d}d")(), d) for d in (1, 2, 3)),
    (lambda n: n.LazyConv2d(3, 2, bias=False), 2),
    (lambda n: n.LazyBatchNorm2d(affine=False), 2),
    (lambda n: n.LazyBatchNorm2d(track_running_stats=False), 2),
]


@pytest.mark.parametrize("number", range(len(LAZY)))
def test_lazy_layers(number: int) -> None:
    make, dims = LAZY[number]
    x = volume(dims)
    ours, theirs = make(nn).double(), make(torch.nn).double()
    assert repr(ours) == repr(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert list(map(repr, ours.parameters())) == list(map(repr, theirs.parameters()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch calls lazy layers experimental
        theirs(to_torch(x))
    ours(x)
    assert repr(ours) == repr(theirs)
    assert type(ours).__name__ == type(theirs).__name__
    state = {k: tapegrad.tensor(v.numpy()) for k, v in theirs.state_dict().items()}
    fresh = make(nn).double()
    fresh.load_state_dict(state)
    check_call(fresh, theirs, (x,), repr(theirs))
    assert repr(fresh) == repr(theirs)


@pytest.mark.parametrize("seed", range(8))
def test_maxima_among_ties_infinities_and_nan(seed: int) -> None:
    """The first of equals is found and the last NaN, as PyTorch does it."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-3, 3, (2, 2, 7, 6)).astype(np.float64)
    x[rng.random(x.shape) < 0.1] = np.nan
    x[rng.random(x.shape) < 0.3] = -np.inf
    size = [int(n) for n in rng.integers(1, 7, 2)]
    samples = rng.random((2, 2, 2))
    ours, theirs = tapegrad.tensor(x), torch.tensor(x)
    for name, args, options in (
        ("adaptive_max_pool2d", (size,), {}),
        ("max_pool2d", (3, 2, 1), {}),
        ("fractional_max_pool2d", (2, 3), {"_random_samples": samples}),
    ):
        given = {k: tapegrad.tensor(v) for k, v in options.items()}
        got = getattr(F, name)(ours, *args, return_indices=True, **given)
        wanted = {k: torch.tensor(v) for k, v in options.items()}
        expected = getattr(TF, name)(theirs, *args, return_indices=True, **wanted)
        for a, b in zip(got, expected, strict=True):
            assert_same(a, b, name)
