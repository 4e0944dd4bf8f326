"""Histograms, the most frequent value, writing and reducing by index, copies of views."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.testing import gradcheck, gradgradcheck


def test_products_by_index_are_exact_at_zeros_in_all_orders() -> None:
    x = tg.tensor([[1.0, 0.0, 0.0], [2.0, 3.0, 0.0]], dtype=tg.float64, requires_grad=True)
    src = tg.tensor([[2.0, 0.0], [3.0, 0.0]], dtype=tg.float64, requires_grad=True)
    index = tg.tensor([[0, 0], [2, 2]])
    for include_self in (True, False):

        def product(x: Any, src: Any, include_self: bool = include_self) -> Any:
            return x.scatter_reduce(1, index, src, "prod", include_self=include_self)

        assert gradcheck(product, (x, src))
        assert gradgradcheck(product, (x, src))
    rows = tg.tensor([1, 1])
    assert gradgradcheck(lambda x, s: x.index_reduce(1, rows, s, "prod"), (x, src))


def test_products_by_fewer_indices_than_elements() -> None:
    x = tg.full((3, 4), 2.0)
    out = x.scatter_reduce(1, tg.tensor([[0, 0], [1, 3]]), tg.full((2, 2), 3.0), "prod")
    assert out.tolist() == [[18, 2, 2, 2], [2, 6, 2, 6], [2, 2, 2, 2]]
    alone = x.scatter_reduce(
        1, tg.tensor([[0, 0], [1, 3]]), tg.full((2, 2), 3.0), "prod", include_self=False
    )
    assert alone.tolist() == [[9, 2, 2, 2], [2, 3, 2, 3], [2, 2, 2, 2]]


def test_gradients_of_mode_and_as_strided_scatter() -> None:
    x = tg.tensor([3.0, 1.0, 3.0, 2.0], dtype=tg.float64, requires_grad=True)
    x.mode().values.backward()
    assert x.grad.tolist() == [0, 0, 1, 0]
    base = tg.randn(3, 4, dtype=tg.float64).requires_grad_()
    src = tg.randn(2, 2, dtype=tg.float64).requires_grad_()
    assert gradcheck(lambda b, s: tg.as_strided_scatter(b, s, [2, 2], [4, 1], 1), (base, src))


def test_histograms_equal_numpys() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 2))
    w = rng.uniform(size=50)
    for density in (False, True):
        hist, edges = tg.histogram(tg.tensor(x[:, 0]), 7, weight=tg.tensor(w), density=density)
        expected = np.histogram(x[:, 0], 7, weights=w, density=density)
        np.testing.assert_allclose(hist.numpy(), expected[0])
        np.testing.assert_allclose(edges.numpy(), expected[1])
        found = tg.histogramdd(tg.tensor(x), [3, 4], weight=tg.tensor(w), density=density)
        counts, bounds = np.histogramdd(x, [3, 4], weights=w, density=density)
        np.testing.assert_allclose(found.hist.numpy(), counts)
        for ours, theirs in zip(found.bin_edges, bounds, strict=True):
            np.testing.assert_allclose(ours.numpy(), theirs)


def test_errors() -> None:
    x = tg.tensor([1.0, 2.0])
    for call, error, message in (
        (lambda: tg.histc(x, 0), RuntimeError, "bins must be at least 1"),
        (lambda: tg.histc(x, 3, 2, 1), RuntimeError, "max must be larger"),
        (lambda: tg.histc(tg.tensor([1.0, float("nan")]), 3), RuntimeError, "not finite"),
        (lambda: tg.histc(x, 3, 0, float("inf")), RuntimeError, "not finite"),
        (lambda: tg.histc(tg.arange(3), 3), NotImplementedError, "floating"),
        (lambda: tg.histogram(x, 3, weight=tg.ones(3)), RuntimeError, "weight for each point"),
        (lambda: tg.histogramdd(x, 3), RuntimeError, "at least 2 dimensions"),
        (lambda: tg.histogramdd(tg.ones(3, 2), [3]), RuntimeError, "each of 2 dimensions"),
        (lambda: tg.mode(tg.zeros(0, 3), 0), IndexError, "is empty"),
        (lambda: x.put(tg.tensor([0, 5]), x), IndexError, "out of"),
        (lambda: x.put(tg.tensor([0]), x), IndexError, "as many values"),
        (lambda: x.put(tg.tensor([0]), tg.tensor([1])), RuntimeError, "put"),
        (lambda: x.index_reduce(0, tg.tensor([0]), x[:1], "sum"), RuntimeError, "'prod', 'mean'"),
    ):
        with pytest.raises(error, match=message):
            call()  # type: ignore[no-untyped-call]


def test_compiled_histograms_follow_the_data() -> None:
    def f(x: Any) -> Any:
        hist, edges = tg.histogram(x, 3)
        return hist, edges, tg.histc(x, 4), x.mode().values

    fast = tg.compile(f, fullgraph=True)
    for i in range(4):
        x = tg.arange(5.0) * (i + 1)
        for got, expected in zip(fast(x), f(x), strict=True):
            np.testing.assert_allclose(got.numpy(), expected.numpy())
    with pytest.raises(RuntimeError, match="not finite"):
        fast(tg.tensor([1.0, float("nan"), 2.0, 3.0, 4.0]))


def test_copies_of_views_are_none() -> None:
    x = tg.arange(6.0).reshape(2, 3)
    for copy in (
        tg.alias_copy(x),
        tg.select_copy(x, 0, 0),
        tg.slice_copy(x, 0, 0, 1),
        tg.unbind_copy(x)[0],
        tg.view_copy(x, (6,)),
        tg.unsqueeze_copy(x, 0),
    ):
        copy.fill_(9)
        assert copy._base is None
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
