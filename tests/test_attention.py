"""Attention in tiles: against PyTorch, against whole matrices, in NumPy and in native code.

Lengths lie around the borders of tiles. `ways` runs a function eagerly and compiled; both have
attention of any length in tiles here.
"""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from replaying import callbacks

import tapegrad as tg
from tapegrad.nn import functional as F
from tapegrad.ops.nn import attention as public
from tapegrad.ops.nn import tiled_attention as tiled
from tapegrad.ops.nn.whole_attention import attention_
from tapegrad.replay.cpu import attention as native
from tapegrad.replay.cpu import gemm, pool, vectors
from tapegrad.testing import gradcheck, gradgradcheck


def in_tiles(q: Any, k: Any, v: Any, mask: Any, scale: float, causal: bool) -> Any:
    """The primitive without dropout, called as `attention_` is."""
    options = {"scale": scale, "causal": causal, "dropout": 0.0, "safe": True}
    return tiled.tiled_attention_(q, k, v, mask, None, **options)


def whole(q: Any, k: Any, v: Any, mask: Any, scale: float, causal: bool) -> Any:
    """Attention with all scores at once."""
    return attention_(q, k, v, mask, None, scale=scale, causal=causal, dropout=0.0)


#: batch, heads, queries, keys, features, value features
SHAPES = [
    (1, 2, 5, 7, 3, 4),
    (2, 1, 127, 129, 8, 8),
    (1, 1, 129, 513, 17, 5),
    (1, 3, 520, 130, 16, 33),
    (2, 2, 256, 256, 64, 64),
    (1, 1, 1, 300, 4, 1),
    (1, 1, 300, 1, 1, 4),
]
MASKS = ["none", "bool", "padding", "float", "rows", "nowhere"]


@pytest.fixture(autouse=True)
def _always_in_tiles(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(public, "MIN_SCORES_FOR_TILES", 1)
    monkeypatch.setattr(public, "MIN_HEAD_SCORES_FOR_TILES", 1)
    threads = pool.pool.threads
    yield
    pool.pool.threads = threads


def numbers(*shape: int, seed: int = 0, dtype: Any = np.float64) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def operands(shape: tuple[int, ...], dtype: Any = np.float64) -> list[Any]:
    """Arrays of queries, keys, values, and the gradient of the result."""
    b, h, queries, keys, features, value_features = shape
    return [
        numbers(b, h, queries, features, seed=1, dtype=dtype),
        numbers(b, h, keys, features, seed=2, dtype=dtype),
        numbers(b, h, keys, value_features, seed=3, dtype=dtype),
        numbers(b, h, queries, value_features, seed=4, dtype=dtype),
    ]


def mask_of(kind: str, shape: tuple[int, ...], dtype: Any = np.float64) -> Any:
    b, _, queries, keys, _, _ = shape
    rng = np.random.default_rng(5)
    if kind == "bool":
        found: Any = rng.random((b, 1, queries, keys)) > 0.3
        found[0, 0, 0] = False  # a query without any key
        return found
    if kind == "padding":
        return rng.random((b, 1, 1, keys)) > 0.3
    if kind == "nowhere":
        return np.zeros((queries, keys), bool)
    if kind == "float":
        found = rng.standard_normal((queries, keys)).astype(dtype)
        found[-1] = -np.inf
        return found
    return rng.standard_normal((queries, 1)).astype(dtype) if kind == "rows" else None


def tensors(arrays: list[Any]) -> list[Any]:
    return [tg.tensor(x).requires_grad_() for x in arrays]


def with_gradients(attend: Any, arrays: list[Any], *rest: Any, **options: Any) -> list[Any]:
    """The result and the gradients of queries, keys and values, as arrays."""
    q, k, v = tensors(arrays[:3])
    out = attend(q, k, v, *rest, **options)
    found = [out, *tg.autograd.grad(out, (q, k, v), tg.tensor(arrays[3]))]
    return [x.detach().numpy() for x in found]


def ways() -> list[Callable[[Any], Any]]:
    def compiled(function: Any) -> Any:
        made = tg.compile(function, fullgraph=True)

        def run(*given: Any, **options: Any) -> Any:
            for _ in range(2):
                made(*given, **options)
            out = made(*given, **options)
            assert callbacks(made) == []
            return out

        return run

    return [lambda function: function, compiled]


def torch_results(arrays: list[Any], mask: Any, causal: bool) -> list[Any]:
    torch = pytest.importorskip("torch")
    q, k, v, g = (torch.tensor(x, requires_grad=True) for x in arrays)
    given = None if mask is None else torch.tensor(mask)
    if causal and mask is not None:
        before = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()
        booleans = given.dtype is torch.bool
        given = given & before if booleans else given.masked_fill(~before, -np.inf)
        causal = False
    attend = torch.nn.functional.scaled_dot_product_attention
    out = attend(q, k, v, given, is_causal=causal)
    found = [out, *torch.autograd.grad(out, (q, k, v), g)]
    return [x.detach().numpy() for x in found]


# -- values and first gradients --------------------------------------------------------------------


@pytest.mark.oracle
@pytest.mark.sweep(keep=1 / 8)
@pytest.mark.parametrize("way", ways(), ids=["eager", "compiled"])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_same_as_torch(shape: Any, causal: bool, mask: str, way: Any) -> None:
    arrays, given = operands(shape), mask_of(mask, shape)
    expected = torch_results(arrays, given, causal)
    held = None if given is None else tg.tensor(given)
    attend = way(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, held, is_causal=causal))
    for a, b in zip(with_gradients(attend, arrays), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-10)


@pytest.mark.sweep
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [4, 64])
def test_numpy_kernels(
    shape: Any, causal: bool, mask: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiled, "TILE", size if max(shape) < 200 else 64)
    q, k, v, g = operands(shape)
    given = mask_of(mask, shape)
    options = {"scale": 0.7, "causal": causal}
    tiles = {**options, "dropout": 0.0, "safe": True}
    out, lse = tiled.tiled_attention_.kernel(q, k, v, given, None, **tiles)
    delta = (g * out).sum(-1, keepdims=True)
    saved = (q, k, v, given, None, delta, lse, out)
    found = tiled.tiled_attention_gradient_.kernel(g, *saved, **tiles)
    held = None if given is None else tg.tensor(given)
    expected = with_gradients(lambda *x: whole(*x, held, **options)[0], [q, k, v, g])
    for a, b in zip((out, *found), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-10)


@pytest.mark.sweep
@pytest.mark.parametrize("way", ways(), ids=["eager", "compiled"])
@pytest.mark.parametrize("mask", ["none", "bool", "float"])
@pytest.mark.parametrize("causal", [False, True])
def test_float32_is_accurate(causal: bool, mask: str, way: Any) -> None:
    shape = (1, 2, 300, 300, 64, 64)
    given = mask_of(mask, shape, np.float32)
    held = None if given is None else tg.tensor(given)
    options = {"scale": 0.125, "causal": causal}
    attend = way(lambda q, k, v: in_tiles(q, k, v, held, **options)[0])
    found = with_gradients(attend, operands(shape, np.float32))
    wide = None if given is None else tg.tensor(mask_of(mask, shape, np.float32)).double()
    wide = held if mask == "bool" else wide
    exact = with_gradients(lambda *x: whole(*x, wide, **options)[0], operands(shape))
    for a, b in zip(found, exact, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=3e-6)


@pytest.mark.parametrize("dtype", [tg.float16, tg.bfloat16])
@pytest.mark.parametrize("way", ways(), ids=["eager", "compiled"])
def test_half_precision_is_computed_in_float32(dtype: Any, way: Any) -> None:
    arrays = operands((1, 2, 140, 270, 16, 16), np.float32)
    narrow = [tg.tensor(x).to(dtype) for x in arrays]
    q, k, v = (x.detach().requires_grad_() for x in narrow[:3])
    attend = way(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True))
    out = attend(q, k, v)
    found = [out, *tg.autograd.grad(out, (q, k, v), narrow[3])]
    exact = with_gradients(
        lambda *x: whole(*x, None, scale=0.25, causal=True)[0],
        [x.double().numpy() for x in narrow],
    )
    unit = 2.0**-10 if dtype is tg.float16 else 2.0**-7
    for a, b in zip(found, exact, strict=True):
        assert a.dtype is dtype
        np.testing.assert_allclose(a.detach().double().numpy(), b, rtol=unit, atol=4 * unit)


# -- threads, layouts, processors ------------------------------------------------------------------


@pytest.mark.sweep
@pytest.mark.parametrize("threads", [1, 2, 3, 5])
@pytest.mark.parametrize("batches", [1, 2, 7])
@pytest.mark.parametrize("causal", [False, True])
def test_any_number_of_threads(threads: int, batches: int, causal: bool) -> None:
    pool.pool.threads = threads
    arrays = operands((1, batches, 400, 650, 8, 8))
    options = {"scale": 0.3, "causal": causal}
    found = with_gradients(lambda *x: in_tiles(*x, None, **options)[0], arrays)
    expected = with_gradients(lambda *x: whole(*x, None, **options)[0], arrays)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-11)


@pytest.fixture(params=[(16, 24), (32, 12)], ids=["short vectors", "few registers"])
def registers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As on processors with smaller vectors, and fewer of them."""
    caches = (gemm.multiplication, native._product_text, native.text_of)
    monkeypatch.setattr(vectors, "registers", lambda: request.param)
    for function in caches:
        function.cache_clear()
    yield
    for function in caches:
        function.cache_clear()


@pytest.mark.usefixtures("registers")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_other_processors(dtype: Any) -> None:
    arrays = operands((1, 2, 200, 333, 9, 20), dtype)
    options = {"scale": 0.3, "causal": True}
    attend = ways()[1](lambda *x: in_tiles(*x, None, **options)[0])
    found = with_gradients(attend, arrays)
    expected = with_gradients(lambda *x: whole(*x, None, **options)[0], arrays)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 if dtype is np.float32 else 1e-11)


@pytest.mark.parametrize("way", ways(), ids=["eager", "compiled"])
def test_heads_beside_each_other_in_memory(way: Any) -> None:
    """As in nanoGPT: one product makes queries, keys and values of all heads."""
    batch, length, heads, size = 2, 270, 3, 10

    def attend(joint: Any, choose: Any) -> Any:
        parts = joint.split(heads * size, dim=2)
        q, k, v = (x.view(batch, length, heads, size).transpose(1, 2) for x in parts)
        out = choose(q, k, v).transpose(1, 2).contiguous().view(batch, length, heads * size)
        return (out * out).sum()

    def long(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def at_once(q: Any, k: Any, v: Any) -> Any:
        return whole(q, k, v, None, scale=size**-0.5, causal=True)[0]

    x = tg.tensor(numbers(batch, length, 3 * heads * size)).requires_grad_()
    run = way(lambda x: attend(x, long))
    (found,) = tg.autograd.grad(run(x), x)
    (expected,) = tg.autograd.grad(attend(x, at_once), x)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=0, atol=1e-11)


@pytest.mark.parametrize("way", ways(), ids=["eager", "compiled"])
def test_any_strides(way: Any) -> None:
    q = tg.tensor(numbers(2, 3, 16, 200)).transpose(-1, -2)  # features lie apart
    k = tg.tensor(numbers(3, 260, 16)).flip(1)[None].expand(2, 3, 260, 16)
    v = tg.tensor(numbers(2, 3, 520, 10))[:, :, ::2]
    mask = tg.tensor(numbers(260, 200) > 0).T
    expected = whole(q, k, v, mask, scale=0.25, causal=False)[0]
    attend = way(lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, mask))
    np.testing.assert_allclose(attend(q, k, v, mask).numpy(), expected.numpy(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("way", ways(), ids=["eager", "compiled"])
def test_shared_heads_and_a_gradient_that_is_broadcast(way: Any) -> None:
    arrays = [numbers(1, 4, 140, 8), numbers(1, 2, 150, 8, seed=1), numbers(1, 2, 150, 8, seed=2)]

    def loss(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=True).sum()

    q, k, v = tensors(arrays)
    found = tg.autograd.grad(way(loss)(q, k, v), (q, k, v))
    spread = [x.repeat_interleave(2, 1) for x in (k, v)]
    expected = whole(q, *spread, None, scale=8**-0.5, causal=False)[0]
    for a, b in zip(found, tg.autograd.grad(expected.sum(), (q, k, v)), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=0, atol=1e-12)


# -- numbers that are none -------------------------------------------------------------------------


BAD = list(itertools.product(("q", "k", "v"), (np.nan, np.inf, -np.inf)))


@pytest.mark.oracle
@pytest.mark.sweep(keep=1 / 8)
@pytest.mark.parametrize(("where", "number"), BAD)
@pytest.mark.parametrize("mask", ["none", "bool", "float"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("way", ways(), ids=["eager", "compiled"])
def test_nan_and_infinity(where: str, number: float, mask: str, causal: bool, way: Any) -> None:
    """As with whole matrices: in causal attention, bad keys reach no query before them.

    PyTorch multiplies them by 0 there, so it has NaN in more rows; elsewhere the two agree.
    """
    shape = (1, 1, 270, 270, 8, 8)
    arrays = operands(shape)
    arrays["qkv".index(where)][0, 0, 133, 3] = number
    given = mask_of(mask, shape)
    held = None if given is None else tg.tensor(given)
    attend = way(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, held, is_causal=causal))
    options = {"scale": 8**-0.5, "causal": causal}
    with np.errstate(all="ignore"):
        found = with_gradients(attend, arrays)
        expected = with_gradients(lambda *x: whole(*x, held, **options)[0], arrays)
        theirs = torch_results(arrays, given, causal)
    np.testing.assert_allclose(found[0], expected[0], rtol=0, atol=1e-10)
    for a, b in zip(found, theirs, strict=True):
        known = np.isfinite(b)
        np.testing.assert_allclose(a[known], b[known], rtol=0, atol=1e-10)


# -- further derivatives ---------------------------------------------------------------------------


@pytest.mark.parametrize("mask", ["none", "bool", "float"])
@pytest.mark.parametrize("causal", [False, True])
def test_second_gradients(causal: bool, mask: str) -> None:
    shape = (1, 2, 40, 50, 3, 4)
    given = mask_of(mask, shape)
    held = None if given is None else tg.tensor(given)
    weights = [tg.tensor(numbers(*x.shape, seed=9)) for x in operands(shape)]

    def second(attend: Any) -> list[Any]:
        q, k, v, g = tensors(operands(shape))
        out = attend(q, k, v, held, scale=0.4, causal=causal)[0]
        first = tg.autograd.grad(out, (q, k, v), g, create_graph=True)
        total = sum((w * x).sum() for w, x in zip(weights, first, strict=False))
        return [x.numpy() for x in tg.autograd.grad(total, (q, k, v, g))]

    for a, b in zip(second(in_tiles), second(whole), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-10)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_second_gradients_of_one_first_gradient(which: int) -> None:
    shape = (1, 1, 20, 30, 3, 4)

    def second(attend: Any) -> list[Any]:
        inputs = tensors(operands(shape)[:3])
        out = attend(*inputs, None, scale=0.4, causal=True)[0]
        (first,) = tg.autograd.grad((out * out).sum(), inputs[which], create_graph=True)
        return [x.numpy() for x in tg.autograd.grad((first * first).sum(), inputs)]

    for a, b in zip(second(in_tiles), second(whole), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-10)


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_against_differences(causal: bool) -> None:
    inputs = tensors(operands((1, 1, 5, 6, 3, 2))[:3])

    def attend(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    assert gradcheck(attend, inputs)
    assert gradgradcheck(attend, inputs)


def test_third_gradient() -> None:
    def third(attend: Any) -> Any:
        q, k, v = tensors(operands((1, 1, 6, 7, 3, 2))[:3])
        value = (attend(q, k, v, None, scale=0.4, causal=True)[0] ** 2).sum()
        for _ in range(3):
            (slope,) = tg.autograd.grad(value, k, create_graph=True)
            value = (slope * slope).sum()
        return value.item()

    np.testing.assert_allclose(third(in_tiles), third(whole), rtol=1e-9)


@pytest.mark.parametrize("way", ways(), ids=["eager", "compiled"])
def test_gradient_of_a_mask(way: Any) -> None:
    arrays = [*operands((1, 2, 140, 150, 8, 8))[:3], numbers(140, 150, seed=7)]

    def gradients(attend: Any) -> list[Any]:
        inputs = tensors(arrays)
        found = tg.autograd.grad((attend(*inputs) ** 2).sum(), inputs)
        return [x.numpy() for x in found]

    found = gradients(way(F.scaled_dot_product_attention))
    expected = gradients(lambda *x: whole(*x, scale=8**-0.5, causal=False)[0])
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-10)


# -- memory ----------------------------------------------------------------------------------------


def _step(q: Any, k: Any, v: Any, dropout: float) -> Any:
    out = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
    return tg.autograd.grad(out.sum(), (q, k, v))


def _arena(length: int, dropout: float) -> int:
    """Bytes that a compiled step takes for values in between and for its threads."""
    step = tg.compile(lambda *x: _step(*x, dropout), fullgraph=True)
    given = tensors([numbers(1, 8, length, 16, dtype=np.float32)] * 3)
    for _ in range(3):
        step(*given)
    (replay,) = [replay for replay in step.replays if replay.executable is not None]
    return int(replay.executable.plan.arena + replay.executable.emitted.scratch)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_memory_of_a_compiled_step_grows_with_the_length(dropout: float) -> None:
    short, middle, long = (_arena(length, dropout) for length in (512, 1024, 2048))
    assert long - middle <= 2.1 * (middle - short)
    assert long < 8 * 2048**2  # a quarter of the scores of 8 heads


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_memory_of_eager_attention_grows_with_the_length(dropout: float) -> None:
    def peak(length: int) -> int:
        given = tensors([numbers(1, 1, length, 8, dtype=np.float32)] * 3)
        _step(*given, dropout)
        tracemalloc.start()
        _step(*given, dropout)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    assert peak(4096) < 2.2 * peak(2048)


def test_short_sequences_have_whole_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for heads, length, expected in ((2, 64, "attention"), (8, 1024, "tiled_attention")):
        q = tg.zeros(1, heads, length, 1, requires_grad=True)
        entry = F.scaled_dot_product_attention(q, q, q, is_causal=True).grad_fn
        assert entry is not None
        assert entry.primitive.name == expected
