"""Convolutions with windows of 3x3 by Winograd's algorithm: values, threads, NaN and infinity."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from replaying import randn
from sweep import flat

import tapegrad as tg
from tapegrad.core.tensor import Tensor
from tapegrad.nn import functional as F
from tapegrad.replay.cpu import winograd

#: batch, channels, filters, size, padding, groups
LAYERS: tuple[tuple[int, int, int, tuple[int, ...], Any, int], ...] = (
    (2, 64, 64, (16, 16), 1, 1),
    (8, 128, 96, (7, 7), 1, 1),
    (3, 40, 72, (33, 19), 1, 1),
    (2, 128, 96, (14, 14), 1, 2),
    (2, 64, 50, (31, 45), 0, 1),
    (2, 64, 49, (20, 30), (2, 1), 1),
    (2, 600, 64, (12, 12), 1, 1),
    (1, 64, 64, (4, 14, 12), 1, 1),
)


def arguments(
    batch: int, channels: int, filters: int, size: tuple[int, ...], padding: Any, groups: int
) -> tuple[list[Tensor], dict[str, Any]]:
    x = randn(batch, channels, *size, seed=1)
    weight = randn(filters, channels // groups, *[3] * len(size), seed=2)
    return [x, weight], {"padding": padding, "groups": groups}


def convolved(x: Tensor, weight: Tensor, **options: Any) -> list[Tensor]:
    """The result, and gradients of a weighted sum of it."""
    x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
    out = (F.conv2d if x.ndim == 4 else F.conv3d)(x, weight, **options)
    g = (tg.arange(out.numel()) * 0.37).cos().reshape(out.shape).to(out.dtype)
    return [out.detach(), *tg.autograd.grad(out, (x, weight), g)]


def compiled(*given: Tensor, **options: Any) -> list[Any]:
    fast = tg.compile(convolved)
    for _ in range(4):
        results = fast(*given, **options)
    return [x.numpy().copy() for x in flat(results)]


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many contractions became kernels of this algorithm is the sum of this list."""
    counted: list[int] = []
    original = winograd.winograd

    def kernels(c: Any, threads: int) -> Any:
        made = original(c, threads)
        counted.append(made is not None)
        return made

    monkeypatch.setattr(winograd, "winograd", kernels)
    monkeypatch.setenv("TAPEGRAD_CACHE", "0")
    return counted


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_results_are_as_exact_as_those_of_plain_sums(layer: Any, count: list[int]) -> None:
    given, options = arguments(*layer)
    found = compiled(*given, **options)
    assert count == [True] * 3
    expected = convolved(*(x.double() for x in given), **options)
    for a, b in zip(found, expected, strict=True):
        exact = b.numpy()
        error = np.sqrt(np.mean((a - exact) ** 2) / np.mean(exact**2))
        assert error < 6e-7  # torch: 1.9e-7 to 2.4e-7


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_bits_do_not_depend_on_threads(layer: Any) -> None:
    given, options = arguments(*layer)
    given[0][0, 0, 3, 3] = float("inf")
    before, found = tg.get_num_threads(), []
    try:
        for threads in (1, 2, 3, 7):
            tg.set_num_threads(threads)
            found.append(compiled(*given, **options))
    finally:
        tg.set_num_threads(before)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_windows_of_nan_and_infinity_alone_are_touched(count: list[int]) -> None:
    x, weight = randn(3, 64, 21, 23, seed=0), randn(65, 64, 3, 3, seed=1)
    x[1, 4, 5, 6], x[2, 19, 20, 22], weight[7, 0, 1, 1] = float("nan"), float("inf"), float("nan")
    fast = tg.compile(lambda: F.conv2d(x, weight, padding=1))
    for _ in range(4):
        out = fast().numpy()
    assert any(count)
    expected = np.zeros(out.shape, bool)
    expected[:, 7] = expected[1, :, 4:7, 5:8] = expected[2, :, 19:21, 21:23] = True
    np.testing.assert_array_equal(~np.isfinite(out), expected)
    np.testing.assert_array_equal(np.isinf(out[2, :7]), expected[2, :7])


def test_it_can_be_switched_off(count: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A large value then costs its neighbours no precision."""
    given, options = arguments(1, 64, 64, (16, 16), 1, 1)
    given[0][...] = 0
    given[0][:, :, 4, 4] = 1e6 / 3
    (mixed, *_), (plain, *_) = [
        monkeypatch.setenv("TAPEGRAD_WINOGRAD", setting) or compiled(*given, **options)
        for setting in ("1", "0")
    ]
    assert sum(count) == 3  # of the first call alone: the result and two gradients
    around = np.ones(plain.shape, bool)
    around[:, :, 3:6, 3:6] = False
    assert not plain[around].any()
    assert np.abs(mixed[around]).max() < 1e6 * 1e-6
    np.testing.assert_allclose(mixed[~around], plain[~around], rtol=1e-3, atol=5)
