"""Native matrix products: sizes around every edge of a tile, layouts, vectors, threads."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from replaying import callbacks

import tapegrad as tg
from tapegrad.replay import matrices, pool, products

pytest.importorskip("llvmlite")

SIZES = [(1, 1, 1), (3, 5, 7), (8, 16, 48), (7, 513, 10), (65, 1030, 33), (13, 15, 130)]
SIZES += [(100, 3, 200), (1, 300, 500), (300, 500, 1), (33, 17, 16), (9, 40, 47), (2, 100, 49)]


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = pool.pool.threads
    yield
    pool.pool.threads = before


@pytest.fixture(params=["this processor", "short vectors", "few registers"])
def vectors(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As on processors with smaller vectors, and fewer of them."""
    found = {"short vectors": (16, 24), "few registers": (32, 12)}.get(request.param)
    caches = (matrices.multiplication, products.text_of)
    if found is None:
        yield
        return
    monkeypatch.setattr(matrices, "registers", lambda: found)
    for function in caches:
        function.cache_clear()
    yield
    for function in caches:
        function.cache_clear()


def matrix(rows: int, columns: int, turned: bool, padded: bool, dtype: Any) -> Any:
    """A matrix, as such or as the transpose of one, perhaps as a part of a larger one."""
    shape = (columns, rows) if turned else (rows, columns)
    generator = np.random.default_rng(rows + 7 * columns)
    large = generator.standard_normal((shape[0] + 3, shape[1] + 5)).astype(dtype)
    found = large[1 : shape[0] + 1, 2 : shape[1] + 2] if padded else large[3:, 5:].copy()
    return found.T if turned else found


@pytest.mark.usefixtures("vectors")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_of_any_layout(dtype: str) -> None:
    for rows, inner, columns in SIZES:
        for turned_x, turned_y, padded in itertools.product([False, True], repeat=3):
            x = matrix(rows, inner, turned_x, padded, dtype)
            y = matrix(inner, columns, turned_y, padded, dtype)
            fast = tg.compile(lambda x, y: x @ y)
            expected = x.astype(np.float64) @ y.astype(np.float64)
            for _ in range(3):
                found = fast(tg.from_numpy(x), tg.from_numpy(y)).numpy()
            scale = np.abs(x).astype(np.float64) @ np.abs(y)
            error = (np.abs(found - expected) / (scale + 1e-300)).max()
            assert error < 4 * np.finfo(dtype).eps * np.sqrt(inner), (rows, inner, columns)
            assert callbacks(fast) == []


def test_a_product_does_not_depend_on_the_threads() -> None:
    x, y = tg.randn(130, 700), tg.randn(90, 700)
    results = []
    for threads in (1, 2, 3):
        tg.set_num_threads(threads)
        fast = tg.compile(lambda x, y: x @ y.T)
        for _ in range(3):
            found = fast(x, y)
        results.append(found.numpy().tobytes())
    assert len(set(results)) == 1


def test_an_infinity_stays_in_its_row_and_column() -> None:
    """Lanes beyond the last column hold nothing that could reach a result."""
    x, y = tg.ones(9, 20), tg.ones(20, 19)
    x[3, 4] = float("inf")
    y[5, 18] = float("nan")
    fast = tg.compile(lambda x, y: x @ y)
    for _ in range(3):
        found = fast(x, y).numpy()
    assert np.isinf(found[3, :18]).all()
    assert np.isnan(found[:, 18]).all()
    clean = np.delete(np.delete(found, 3, 0), 18, 1)
    assert (clean == 20).all()
