"""Native matrix products: sizes around every edge of a tile, layouts, vectors, threads."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from replaying import callbacks

import tapegrad as tg
from tapegrad.ops.linalg.triangular import triangular_
from tapegrad.replay.cpu import gemm as matrices
from tapegrad.replay.cpu import pool, products, tuning
from tapegrad.replay.cpu import vectors as registers_of
from tapegrad.replay.cpu.driver_layout import MAX_THREADS

pytest.importorskip("llvmlite")

SIZES = [(1, 1, 1), (3, 5, 7), (8, 16, 48), (7, 513, 10), (65, 1030, 33), (13, 15, 130)]
SIZES += [(100, 3, 200), (1, 300, 500), (300, 500, 1), (33, 17, 16), (9, 40, 47), (2, 100, 49)]
# Large enough for rows of x to be packed, in more than one piece, and panels of y.
SIZES += [(1035, 700, 201)]


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
    monkeypatch.setattr(registers_of, "registers", lambda: found)
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


@pytest.mark.parametrize("transposed", [False, True])
def test_a_product_in_blocks_of_rows_and_columns(
    transposed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAPEGRAD_CACHE", "0")  # what is on disk was divided otherwise
    monkeypatch.setattr(tuning, "MIN_OPERATIONS_FOR_BLOCKS", 1)
    monkeypatch.setattr(tuning, "OPERATIONS_PER_SECTION", 0)
    blocks = []
    choose = products._in_blocks
    monkeypatch.setattr(products, "_in_blocks", lambda *a: blocks.append(choose(*a)) or blocks[-1])
    x, y = tg.randn(205, 64), tg.randn(64, 310)
    y = y.T.contiguous().T if transposed else y
    total = tg.randn(205, 310)
    results = []
    for threads in (1, 4, 6, 16):
        tg.set_num_threads(threads)
        # What comes before and after goes by rows: threads wait for each other.
        fast = tg.compile(lambda x, y, total: (2 * x) @ y + total)
        for _ in range(3):
            found = fast(x, y, total)
        results.append(found.numpy().tobytes())
        assert (blocks[-1] is None) == (threads == 1)
    assert len(set(results)) == 1
    expected = 2 * x.numpy() @ y.numpy() + total.numpy()
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("threads", [4, 6, 16])
def test_a_product_in_more_blocks_than_threads(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAPEGRAD_CACHE", "0")
    monkeypatch.setattr(tuning, "MIN_OPERATIONS_FOR_BLOCKS", 1)
    monkeypatch.setattr(tuning, "OPERATIONS_PER_SECTION", 0)
    monkeypatch.setattr(tuning, "MIN_OPERATIONS_OF_BLOCK", 1)
    monkeypatch.setattr(tuning, "OPERATIONS_PER_PACKED_ELEMENT", 0)
    counts = []
    choose = products._in_blocks

    def spied(*arguments: Any) -> Any:
        found = choose(*arguments)
        counts.append(0 if found is None else found.down * found.across)
        return found

    monkeypatch.setattr(products, "_in_blocks", spied)
    x, y = tg.randn(384, 70), tg.randn(70, 512)
    results = []
    for many in (1, threads):
        tg.set_num_threads(many)
        fast = tg.compile(lambda x, y: (2 * x) @ y + 1)
        for _ in range(40):  # which thread has which block changes from call to call
            results.append(fast(x, y).numpy().tobytes())
    assert len(set(results)) == 1
    assert threads < counts[-1] <= MAX_THREADS
    np.testing.assert_allclose(fast(x, y).numpy(), 2 * x.numpy() @ y.numpy() + 1, atol=1e-3)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("rows", "inner", "columns", "parts"),
    [
        (64, 4096, 64, 8),
        (16, 4096, 1024, 8),
        (1, 65536, 64, 128),
        (100, 8192, 30, 16),
        (64, 8688, 64, 0),  # passes of different lengths
        (64, 512, 64, 0),  # one pass
        (300, 4096, 300, 0),  # enough results to divide
    ],
)
def test_long_sums_in_parts(rows: int, inner: int, columns: int, parts: int, dtype: str) -> None:
    """Threads divide the sums, and add the parts in the order in which one thread would."""
    generator = np.random.default_rng(0)
    for turned_x, turned_y in itertools.product((False, True), repeat=2):
        x = generator.standard_normal((inner, rows) if turned_x else (rows, inner)).astype(dtype)
        y = generator.standard_normal((columns, inner) if turned_y else (inner, columns)).astype(
            dtype
        )
        x, y = x.T if turned_x else x, y.T if turned_y else y
        found = []
        for threads in (1, 4):
            tg.set_num_threads(threads)
            fast = tg.compile(lambda x, y: x @ y + 1)
            for _ in range(3):
                out = fast(tg.from_numpy(x), tg.from_numpy(y))
            found.append(out.numpy().copy())
        steps = products.steps_of_part(rows, inner, columns, False, threads=4)
        assert steps == (inner // parts if parts else 0)
        assert np.array_equal(*found)
        exact = x.astype("float64") @ y.astype("float64") + 1
        np.testing.assert_allclose(found[0], exact, rtol=1e-3, atol=4 * inner * np.finfo(dtype).eps)


def test_gradients_of_weights_in_parts() -> None:
    """A large batch through a small layer: its weight's gradient is a long sum."""
    weight = tg.randn(32, 48, requires_grad=True)
    x = tg.randn(8192, 48)

    @tg.compile
    def step(x: tg.Tensor) -> tg.Tensor:
        weight.grad = None
        (x @ weight.T).tanh().sum().backward()
        return weight.grad

    found = []
    for threads in (1, 4):
        tg.set_num_threads(threads)
        for _ in range(3):
            out = step(x)
        found.append(out.numpy().copy())
    assert products.steps_of_part(32, 8192, 48, False, threads=4) == 512
    assert np.array_equal(*found)
    weight.grad = None
    (x.double() @ weight.double().T).tanh().sum().backward()
    assert weight.grad is not None
    np.testing.assert_allclose(found[0], weight.grad.numpy(), rtol=1e-4, atol=1e-3)


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


#: what counts of x, and of the result
FORMS = {
    "out": (np.asarray, np.tril),
    "lower": (np.tril, np.asarray),
    "upper": (np.triu, np.asarray),
}
TRIANGLES = [(1, 1, 1), (5, 5, 3), (9, 9, 40), (64, 64, 32), (65, 70, 33), (70, 65, 50)]
TRIANGLES += [(3, 1, 7), (130, 600, 20), (530, 530, 20), (20, 10, 530)]


@pytest.mark.usefixtures("vectors")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_triangles_of_any_layout(form: str, dtype: str) -> None:
    of_x, of_result = FORMS[form]
    for rows, inner, columns in TRIANGLES:
        for turned_x, turned_y in itertools.product([False, True], repeat=2):
            x = matrix(rows, inner, turned_x, True, dtype)
            y = matrix(inner, columns, turned_y, True, dtype)
            fast = tg.compile(lambda x, y: triangular_(x, y, form=form))
            expected = of_result(of_x(x).astype(np.float64) @ y)
            for _ in range(3):
                found = fast(tg.from_numpy(x), tg.from_numpy(y)).numpy()
            tolerance = 30 * np.finfo(dtype).eps * np.sqrt(inner)
            for result in (found, triangular_.kernel(x, y, form=form)):
                np.testing.assert_allclose(result, expected, tolerance, tolerance)
            assert callbacks(fast) == []


@pytest.mark.parametrize("form", FORMS)
def test_triangles_do_not_depend_on_the_threads(form: str) -> None:
    for lead in ((), (5,)):
        x, y = tg.randn(*lead, 131, 140), tg.randn(*lead, 140, 60)
        results = []
        for threads in (1, 2, 3):
            tg.set_num_threads(threads)
            fast = tg.compile(lambda x, y: triangular_(x, y, form=form))
            for _ in range(3):
                found = fast(x, y)
            results.append(found.numpy().tobytes())
        assert len(set(results)) == 1


@pytest.mark.parametrize("form", ["lower", "upper"])
@pytest.mark.parametrize("size", [6, 70])
def test_what_is_beside_a_triangle_is_not_looked_at(form: str, size: int) -> None:
    x, y = np.ones((size, size), np.float32), np.ones((size, 5), np.float32)
    x[np.triu_indices(size, 1)] = np.inf
    y[4] = np.nan
    rows = np.arange(size)
    x, spoilt, counts = (
        (x, rows >= 4, rows + 1) if form == "lower" else (x.T, rows <= 4, size - rows)
    )
    fast = tg.compile(lambda x, y: triangular_(x, y, form=form))
    for _ in range(3):
        found = fast(tg.from_numpy(x), tg.from_numpy(y)).numpy()
    for result in (found, triangular_.kernel(x, y, form=form)):
        assert np.isnan(result[spoilt]).all()
        np.testing.assert_array_equal(result[~spoilt, 0], counts[~spoilt])


@pytest.mark.parametrize("form", FORMS)
def test_gradients_of_triangles(form: str) -> None:
    def f(x: Any, y: Any) -> Any:
        return triangular_(x, y, form=form).sin()

    x, y = (tg.randn(2, *shape, dtype=tg.float64).requires_grad_() for shape in ((4, 3), (3, 5)))
    assert tg.autograd.gradcheck(f, (x, y))
    assert tg.autograd.gradgradcheck(f, (x, y))
    gradients = tg.compile(lambda x, y: tg.autograd.grad(f(x, y).sum(), (x, y)))
    for _ in range(3):
        found = gradients(x, y)
    tg.testing.assert_close(found, tg.autograd.grad(f(x, y).sum(), (x, y)))


@pytest.mark.parametrize("size", [6, 70])
def test_causal_attention_does_not_look_ahead(size: int) -> None:
    """Keys and values that come later may be NaN: the queries before them do not notice."""
    attend = tg.nn.functional.scaled_dot_product_attention

    def step(q: Any, k: Any, v: Any) -> Any:
        out = attend(q, k, v, is_causal=True)
        return out, *tg.autograd.grad(out[..., :5, :].square().sum(), q)

    q, k, v = (tg.randn(2, size, 20) for _ in range(3))
    expected = step(q.requires_grad_(), k, v)
    k[:, 5], v[:, 5] = float("nan"), float("nan")
    fast = tg.compile(step)
    for _ in range(4):
        found = fast(q, k, v)
    for results in (found, step(q, k, v)):
        for x, y in zip(results, expected, strict=True):
            tg.testing.assert_close(x[:, :5], y[:, :5])
        assert results[0][:, 5].isnan().all()


@pytest.mark.parametrize("dtype", [tg.float32, tg.float64])
@pytest.mark.parametrize(
    ("rows", "inner", "columns", "transposed"),
    [
        (1100, 257, 70, True),  # columns of x lie a page apart: packed, eight tiles at a time
        (1089, 250, 65, True),  # with rows that fill no tile
        (17, 300, 1100, False),  # rows of y lie a page apart: packed for two tiles
        (603, 40, 1100, False),  # a result that is larger than the cache, asked for early
        (131, 33, 517, True),  # all panels are packed at once
        (70, 64, 2100, False),  # panels are packed in groups
        (300, 700, 200, False),  # all panels of a pass, in two passes
    ],
)
def test_operands_and_results_with_rows_far_apart(
    rows: int, inner: int, columns: int, transposed: bool, dtype: Any
) -> None:
    x = tg.randn(inner, rows, dtype=dtype).T if transposed else tg.randn(rows, inner, dtype=dtype)
    y = tg.randn(inner, columns, dtype=dtype)
    results = []
    for threads in (1, 3, 16):
        tg.set_num_threads(threads)
        fast = tg.compile(lambda x, y: x @ y)
        for _ in range(3):
            found = fast(x, y)
        results.append(found.numpy().tobytes())
    assert len(set(results)) == 1
    limit = 1e-3 if dtype is tg.float32 else 1e-10
    np.testing.assert_allclose(found.numpy(), x.numpy() @ y.numpy(), rtol=0, atol=limit)


@pytest.mark.sweep(keep=1 / 2)
@pytest.mark.usefixtures("vectors")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_many_small_products_ask_for_the_next(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPEGRAD_CACHE", "0")
    asked: list[Any] = []
    choose = products._following
    monkeypatch.setattr(products, "_following", lambda *a: asked.append(choose(*a)) or asked[-1])
    generator = np.random.default_rng(0)
    for batch, rows, inner, columns in (
        (5, 32, 32, 32),
        (3, 17, 9, 50),
        (4, 8, 1, 3),
        (2, 1, 7, 1),
    ):
        for turned_x, turned_y, padded in itertools.product([False, True], repeat=3):
            pair = []
            for height, width, turned in ((rows, inner, turned_x), (inner, columns, turned_y)):
                shape = (width, height) if turned else (height, width)
                full = generator.standard_normal((batch, shape[0], shape[1] + 3 * padded))
                part = full.astype(dtype)[:, :, : shape[1]]
                pair.append(part.swapaxes(1, 2) if turned else part)
            tg.set_num_threads(1 + padded)
            fast = tg.compile(lambda x, y: x @ y)
            for _ in range(3):
                found = fast(*map(tg.from_numpy, pair)).numpy()
            tolerance = 100 * np.finfo(dtype).eps
            np.testing.assert_allclose(found, pair[0] @ pair[1], rtol=tolerance, atol=tolerance)
            if batch == 5:
                ways = (rows * inner, inner * columns, rows * columns)
                assert asked[-1] == ((0, 0, 0) if padded else ways)
