"""Special functions at the borders of their domains, as PyTorch computes them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import tapegrad

POINTS = [
    *(0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 7.5, -7.5, 30.0, -30.0, 200.0, -200.0),
    *(1e-3, -1e-3, 1e-10, math.inf, -math.inf, math.nan, 0.9999, 3.0, 10.0),
]
UNARY = sorted(
    name
    for name in torch.special.__all__
    if name
    not in {
        *("gammainc", "gammaincc", "log_softmax", "logsumexp", "multigammaln", "polygamma"),
        *("softmax", "xlog1py", "xlogy", "zeta"),
    }
    and "polynomial" not in name
)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", UNARY)
def test_borders(name: str, dtype: Any) -> None:
    x = np.array(POINTS, dtype)
    got = getattr(tapegrad.special, name)(tapegrad.tensor(x)).numpy()
    expected = getattr(torch.special, name)(torch.tensor(x)).numpy()
    exact = 1e-7 if "bessel" in name else 1e-9  # PyTorch's are not exact
    tolerance = 2e-5 if dtype is np.float32 else exact
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


BINARY = ["gammainc", "gammaincc", "xlog1py", "xlogy", "zeta"]


@pytest.mark.parametrize("name", BINARY)
def test_borders_of_two(name: str) -> None:
    x, y = (a.reshape(-1) for a in np.meshgrid(POINTS, POINTS))
    # There PyTorch says 0 or 1 where an argument is NaN, and NaN where zeta has a limit.
    known = ~np.isnan(x + y) if name.startswith("gamma") else np.isfinite(y) | (name != "zeta")
    x, y = x[known], y[known]
    got = getattr(tapegrad.special, name)(tapegrad.tensor(x), tapegrad.tensor(y)).numpy()
    expected = getattr(torch.special, name)(torch.tensor(x), torch.tensor(y)).numpy()
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-12)


POLYNOMIALS = sorted(name for name in torch.special.__all__ if "polynomial" in name)


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials(name: str) -> None:
    points = np.array([-2.0, -1.0, -0.7, 0.0, 0.3, 1.0, 1.5])
    degrees = np.arange(-2.0, 12.0)
    x, n = (a.reshape(-1) for a in np.meshgrid(points, degrees))
    ours, theirs = getattr(tapegrad.special, name), getattr(torch.special, name)
    got = ours(tapegrad.tensor(x), tapegrad.tensor(n)).numpy()
    np.testing.assert_allclose(
        got, theirs(torch.tensor(x), torch.tensor(n)).numpy(), rtol=1e-9, atol=1e-9
    )
    np.testing.assert_allclose(
        ours(tapegrad.tensor(points), 4).numpy(), theirs(torch.tensor(points), 4).numpy(), 1e-9
    )
    whole = tapegrad.tensor([1, 2, 3])
    assert ours(whole, whole).dtype is tapegrad.float32


def test_every_name_is_there() -> None:
    assert set(torch.special.__all__) <= set(tapegrad.special.__all__)


@pytest.mark.parametrize("name", ["i0", "igamma", "igammac", "mvlgamma", "polygamma"])
def test_methods(name: str) -> None:
    rest = {"igamma": (2.0,), "igammac": (2.0,), "mvlgamma": (2,), "polygamma": (1,)}.get(name, ())
    x = np.array([1.5, 2.5])
    for method in (name, f"{name}_"):
        ours = [tapegrad.tensor(np.array(r, np.float64)) if type(r) is float else r for r in rest]
        theirs = [torch.tensor(r, dtype=torch.float64) if type(r) is float else r for r in rest]
        got = getattr(tapegrad.tensor(x), method)(*ours)
        expected = getattr(torch.tensor(x), method)(*theirs)
        np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-8)


def test_orders_below_zero_raise() -> None:
    for library in (tapegrad, torch):
        x = library.tensor([1.0])
        for call in (lambda x=x, tg=library: tg.polygamma(-1, x), lambda x=x: x.polygamma(-1)):
            with pytest.raises(RuntimeError):
                call()
        with pytest.raises(RuntimeError):
            library.mvlgamma(x, 0)
