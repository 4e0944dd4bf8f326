"""Native products of half precision: layouts, sizes, sums in float32, threads, special values.

Most matrices hold small integers, whose sums are exact in float32: the result must then be exactly
the sum, rounded once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from replaying import callbacks

import tapegrad as tg
import tapegrad.nn.functional as F
from tapegrad.core import numeric
from tapegrad.replay.cpu import gemm, pool, products
from tapegrad.replay.cpu import vectors as processor_facts

pytest.importorskip("llvmlite")

HALF = [tg.bfloat16, tg.float16]
each_half = pytest.mark.parametrize("dtype", HALF, ids=[d.name for d in HALF])
LAYOUTS = list(itertools.product([False, True], repeat=3))
SIZES = [(8, 16, 48), (7, 513, 10), (65, 1031, 33), (1, 300, 500), (300, 500, 1), (9, 41, 47)]
# Several passes, whose sums wait in float32; several blocks of rows and of columns.
SIZES += [(20, 4096, 50), (1035, 1100, 1041)]


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    tg.manual_seed(0)
    before = pool.pool.threads
    yield
    pool.pool.threads = before


@pytest.fixture(params=["this processor", "without bfloat16", "short vectors", "few registers"])
def processor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """As on processors without products of bfloat16, with smaller vectors, and fewer of them."""
    found = {"short vectors": (16, 24), "few registers": (32, 12)}.get(request.param)
    if found is not None:
        monkeypatch.setattr(processor_facts, "registers", lambda: found)
    elif request.param == "without bfloat16":
        monkeypatch.setattr(processor_facts, "multiplies_bfloat16", lambda: False)
    for function in (gemm.multiplication, products.text_of):
        function.cache_clear()
    yield request.param
    for function in (gemm.multiplication, products.text_of):
        function.cache_clear()


def matrix(rows: int, columns: int, turned: bool, padded: bool, dtype: Any) -> Any:
    """Small integers; as such or as the transpose, perhaps as a part of a larger matrix."""
    shape = (columns, rows) if turned else (rows, columns)
    generator = np.random.default_rng(rows + 7 * columns)
    large = generator.integers(-3, 5, (shape[0] + 3, shape[1] + 5)).astype(np.float32)
    whole = tg.from_numpy(large).to(dtype)
    found = whole[1 : shape[0] + 1, 2 : shape[1] + 2] if padded else whole[3:, 5:].contiguous()
    return found.T if turned else found


def compiled(*operands: Any) -> Any:
    """The product of a compiled function, which must run in native code."""
    fast = tg.compile(lambda x, y: x @ y)
    for _ in range(3):
        found = fast(*operands)
    assert callbacks(fast) == []
    return found


def exact(x: Any, y: Any) -> Any:
    """The product in float64, rounded once."""
    return (x.double() @ y.double()).to(x.dtype)


def same(found: Any, expected: Any) -> bool:
    return bool(found.dtype is expected.dtype and found.float().equal(expected.float()))


@each_half
def test_products_of_any_layout(processor: str, dtype: Any) -> None:
    for rows, inner, columns in SIZES:
        for turned_x, turned_y, padded in LAYOUTS:
            x = matrix(rows, inner, turned_x, padded, dtype)
            y = matrix(inner, columns, turned_y, padded, dtype)
            assert same(compiled(x, y), exact(x, y)), (rows, inner, columns, turned_x, turned_y)


@each_half
def test_sizes_around_every_edge_of_a_tile(processor: str, dtype: Any) -> None:
    for n in range(1, 71):
        rows, inner, columns = n, 1 + 11 * n % 70, 1 + 27 * n % 70
        turned_x, turned_y, padded = LAYOUTS[n % 8]
        x = matrix(rows, inner, turned_x, padded, dtype)
        y = matrix(inner, columns, turned_y, padded, dtype)
        assert same(compiled(x, y), exact(x, y)), (rows, inner, columns, turned_x, turned_y)


@each_half
def test_sums_of_long_products_stay_float32(processor: str, dtype: Any) -> None:
    """Ones and a large number: sums that were rounded to half precision would stop growing."""
    x, y = tg.ones(3, 4100).to(dtype), tg.ones(4100, 5).to(dtype)
    y[0] = 1024
    assert compiled(x, y).tolist() == [[float(tg.tensor(5123.0).to(dtype))] * 5] * 3


@each_half
def test_errors_of_random_matrices(processor: str, dtype: Any) -> None:
    """At most half of the last place, and what sums of float32 lose."""
    x, y = tg.randn(70, 1500).to(dtype), tg.randn(1500, 50).to(dtype)
    wanted = x.double() @ y.double()
    half_of_last = wanted.abs() * (2.0**-8 if dtype is tg.bfloat16 else 2.0**-11)
    lost = x.double().abs() @ y.double().abs() * 2.0**-24 * 1500**0.5
    assert ((compiled(x, y).double() - wanted).abs() <= half_of_last + lost).all()


@each_half
def test_batches(processor: str, dtype: Any) -> None:
    x = matrix(6 * 5, 9, False, False, dtype).reshape(6, 5, 9)
    y = matrix(6 * 9, 7, False, False, dtype).reshape(6, 9, 7)
    assert same(compiled(x, y), exact(x, y))
    assert same(compiled(x, y[0]), exact(x, y[0]))
    assert same(compiled(x[0], y), exact(x[0], y))
    turned = y.transpose(1, 2).contiguous().transpose(1, 2)
    assert same(
        compiled(x.reshape(2, 3, 5, 9), turned[:3]),
        exact(x, turned[[0, 1, 2] * 2]).reshape(2, 3, 5, 7),
    )


@each_half
@pytest.mark.parametrize("sizes", [(0, 3, 4), (3, 0, 4), (3, 4, 0), (0, 0, 0)], ids=str)
def test_empty_products(dtype: Any, sizes: tuple[int, int, int]) -> None:
    rows, inner, columns = sizes
    x, y = tg.zeros(rows, inner).to(dtype), tg.zeros(inner, columns).to(dtype)
    assert same(compiled(x, y), tg.zeros(rows, columns).to(dtype))


@each_half
@pytest.mark.parametrize("threads", [2, 3])
def test_a_product_does_not_depend_on_the_threads(processor: str, dtype: Any, threads: int) -> None:
    x, y = tg.randn(131, 1201).to(dtype), tg.randn(90, 1201).to(dtype)
    for operands in ((x, y.T), (x[:5], y.T), (x.T, x)):
        results = []
        for count in (1, threads):
            tg.set_num_threads(count)
            results.append(compiled(*operands).float().numpy().tobytes())
        assert results[0] == results[1]


@each_half
@pytest.mark.parametrize("inner", [20, 21])
def test_an_infinity_stays_in_its_row_and_column(processor: str, dtype: Any, inner: int) -> None:
    """Neither lanes beyond the last column nor what fills up a pair reaches a result."""
    x, y = tg.ones(9, inner).to(dtype), tg.ones(inner, 19).to(dtype)
    x[3, inner - 1] = float("inf")
    y[inner - 1, 18] = float("nan")
    found = compiled(x, y).float().numpy()
    assert np.isinf(found[3, :18]).all()
    assert np.isnan(found[:, 18]).all()
    assert (np.delete(np.delete(found, 3, 0), 18, 1) == inner).all()


def test_results_beyond_the_largest_number_are_infinite(processor: str) -> None:
    x, y = tg.full((2, 3), 300.0).half(), tg.full((3, 4), 300.0).half()
    assert compiled(x, y).isinf().all()
    assert compiled(x.bfloat16() * 1e36, y.bfloat16()).isinf().all()


def test_subnormal_numbers(processor: str) -> None:
    """Instructions for pairs of bfloat16 take them for zero; float16 keeps them everywhere."""
    x, y = tg.full((4, 6), 2.0**-24).half(), tg.eye(6).half()
    assert same(compiled(x, y), x)
    x, y = tg.full((4, 6), 2.0**-130).bfloat16(), tg.eye(6).bfloat16()
    pairs = processor_facts.multiplies_bfloat16()
    assert same(compiled(x, y), x * 0 if pairs else x)
    y *= 2.0**-70
    x = tg.full((4, 6), 2.0**-60).bfloat16()
    assert same(compiled(x, y), tg.full((4, 6), 0.0 if pairs else 2.0**-130).bfloat16())


@each_half
def test_the_processor_decides_about_the_instructions(processor: str, dtype: Any) -> None:
    text = products.text_of(dtype.numpy, 2, False)
    native = processor == "this processor" and processor_facts.multiplies_bfloat16()
    assert ("dpbf16ps" in text) == (native and numeric.is_bfloat16(dtype.numpy))


@each_half
@pytest.mark.parametrize("fast", [False, True], ids=["eager", "compiled"])
def test_gradients_under_autocast(processor: str, dtype: Any, fast: bool) -> None:
    """Those of the rounded operands; a product rounds once."""
    x, w = tg.randn(130, 90, requires_grad=True), tg.randn(70, 90, requires_grad=True)
    b, g = tg.randn(70, requires_grad=True), tg.randn(130, 70).to(dtype)

    def gradients(x: Any, w: Any, b: Any, g: Any) -> Any:
        with tg.autocast("cpu", dtype):
            out = F.linear(x, w, b)
        return out, *tg.autograd.grad(out, (x, w, b), g)

    run = tg.compile(gradients) if fast else gradients
    for _ in range(3):
        out, *found = run(x, w, b, g)
    assert out.dtype is dtype
    wide = [z.detach().to(dtype).double() for z in (x, w, b, g)]
    expected = [wide[3] @ wide[1], wide[3].T @ wide[0], wide[3].sum(0)]
    step = 2.0**-8 if dtype is tg.bfloat16 else 2.0**-11
    for got, wanted in zip(found, expected, strict=True):
        assert got.dtype is tg.float32
        assert ((got - wanted).abs() <= wanted.abs() * step + 1e-4).all()
    wanted = wide[0] @ wide[1].T + wide[2]
    assert ((out.double() - wanted).abs() <= wanted.abs() * step + 40 * step).all()
