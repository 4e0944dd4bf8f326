"""Dropout inside of attention in tiles: the same probabilities are dropped as with whole matrices.

Whether one is dropped depends on the state of the generator and on its position alone, so every
way of computing can be compared with every other one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from test_attention import mask_of, numbers, operands, tensors

import tapegrad as tg
from tapegrad.nn import functional as F
from tapegrad.ops import drawing
from tapegrad.ops.nn import attention as public
from tapegrad.ops.nn import tiled_attention as tiled
from tapegrad.replay.cpu import pool
from tapegrad.testing import gradcheck, gradgradcheck

#: batch, heads, queries, keys, features, value features; rows of scores begin inside of blocks
SHAPES = [
    (1, 2, 5, 7, 3, 4),
    (2, 1, 127, 129, 8, 8),
    (1, 3, 520, 131, 16, 33),
    (1, 1, 1, 300, 4, 1),
    (1, 1, 300, 1, 1, 4),
]


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = pool.pool.threads
    yield
    pool.pool.threads = before


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Attention of any length in tiles, or with whole matrices."""

    def choose(in_tiles: bool) -> None:
        monkeypatch.setattr(public, "MIN_SCORES_FOR_TILES", 1 if in_tiles else 1 << 62)
        monkeypatch.setattr(public, "MIN_HEAD_SCORES_FOR_TILES", 1)

    choose(True)
    return choose


def seeded(attend: Any, inputs: list[Any], g: Any) -> list[Any]:
    """The result, the gradients of the inputs and the next random number, as arrays."""
    tg.manual_seed(7)
    tg.rand(3)  # the draw does not begin with the first block
    out = attend(*inputs)
    found = [out, *tg.autograd.grad(out, inputs, g), tg.rand(1)]
    return [x.detach().double().numpy() for x in found]


def eager(attend: Any) -> Any:
    return attend


def replayed(attend: Any) -> Any:
    """`attend` compiled, after enough calls for a replay; all of them draw from the same state."""
    run = tg.compile(attend, fullgraph=True)

    def call(*given: Any) -> Any:
        state = tg.get_rng_state()
        for _ in range(2):
            run(*given)
            tg.set_rng_state(state)
        return run(*given)

    return call


@pytest.mark.sweep(keep=1 / 8)
@pytest.mark.parametrize("way", [eager, replayed])
@pytest.mark.parametrize("mask", ["none", "bool", "padding", "float"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_same_as_whole_matrices(shape: Any, causal: bool, mask: str, way: Any, choose: Any) -> None:
    *arrays, g = operands(shape)
    given = mask_of(mask, shape)
    held = None if given is None else tg.tensor(given)

    def attend(*x: Any) -> Any:
        return F.scaled_dot_product_attention(*x, held, dropout_p=0.3, is_causal=causal)

    choose(False)
    expected = seeded(attend, tensors(arrays), tg.tensor(g))
    choose(True)
    found = seeded(way(attend), tensors(arrays), tg.tensor(g))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-11)
    assert found[-1] == expected[-1]  # the generator has moved on as far


@pytest.mark.sweep
@pytest.mark.parametrize("way", [eager, replayed])
@pytest.mark.parametrize("dtype", [tg.float32, tg.float16, tg.bfloat16])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.999, 1.0])
def test_dtypes_and_chances(p: float, dtype: Any, way: Any, choose: Any) -> None:
    arrays = operands((1, 2, 140, 271, 16, 16), np.float32)
    *inputs, g = (tg.tensor(x).to(dtype).requires_grad_() for x in arrays)

    def attend(*x: Any) -> Any:
        return F.scaled_dot_product_attention(*x, dropout_p=p)

    found = seeded(way(attend), inputs, g.detach())
    choose(False)
    wide = [x.detach().double().requires_grad_() for x in inputs]
    expected = seeded(attend, wide, g.detach().double())
    unit = {tg.float32: 1e-6, tg.float16: 2.0**-10, tg.bfloat16: 2.0**-7}[dtype]
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=unit, atol=8 * unit / (1 - min(p, 0.999)))


@pytest.mark.parametrize("shape", [(2, 3, 6, 11), (1, 1, 300, 5), (5, 3)])
@pytest.mark.parametrize("size", [2, 4, 256])
def test_numbers_of_some_rows(shape: Any, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiled, "TILE", size)
    state = np.array([12345, 77], np.int64)
    whole = drawing.uniform_at(state, shape) >= np.float32(0.4)
    for rows in tiled._spans(shape[-2]):
        found = tiled._kept_rows(state, shape, rows, 0.4)
        np.testing.assert_array_equal(found, whole[..., rows, :])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("batches", [1, 3])
def test_threads_give_equal_bits(batches: int, causal: bool, choose: Any) -> None:
    *arrays, g = operands((1, batches, 400, 650, 8, 8), np.float32)

    def attend(*x: Any) -> Any:
        return F.scaled_dot_product_attention(*x, dropout_p=0.2, is_causal=causal)

    results = []
    for threads in (1, 2):
        pool.pool.threads = threads
        results.append(seeded(replayed(attend), tensors(arrays), tg.tensor(g)))
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)


def test_infinite_values_that_are_dropped_have_no_gradient(choose: Any) -> None:
    *arrays, g = operands((1, 1, 40, 50, 4, 4))
    arrays[2][0, 0, 7, 1] = np.inf

    def attend(*x: Any) -> Any:
        return F.scaled_dot_product_attention(*x, dropout_p=0.5)

    found = {}
    for in_tiles in (False, True):
        choose(in_tiles)
        with np.errstate(all="ignore"):
            found[in_tiles] = seeded(attend, tensors(arrays), tg.tensor(g))
    np.testing.assert_allclose(found[True][0], found[False][0], rtol=0, atol=1e-11)
    np.testing.assert_allclose(found[True][3], found[False][3], rtol=0, atol=1e-11)


def fixed(p: float, causal: bool, mask: Any = None) -> Any:
    """Attention that drops the same probabilities in each call."""
    state = tg.tensor(np.array([3, 5], np.int64))
    options = {"scale": 0.4, "causal": causal, "dropout": p, "safe": True}
    return lambda q, k, v, held=mask: tiled.tiled_attention_(q, k, v, held, state, **options)[0]


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_against_differences(causal: bool) -> None:
    inputs = [*operands((1, 2, 5, 6, 3, 2))[:3], numbers(5, 6, seed=8)]
    assert gradcheck(fixed(0.3, causal), tensors(inputs[:3]))
    assert gradgradcheck(fixed(0.3, causal), tensors(inputs[:3]))
    assert gradcheck(fixed(0.3, causal), tensors(inputs))
    assert gradgradcheck(fixed(0.3, causal), tensors(inputs))


def test_draws_follow_each_other_in_a_compiled_step(choose: Any) -> None:
    *arrays, _ = operands((1, 2, 130, 140, 4, 4))

    def attend(*x: Any) -> Any:
        first, second = (F.scaled_dot_product_attention(*x, dropout_p=0.5) for _ in range(2))
        return first, second, F.dropout(first, 0.5)

    step = tg.compile(attend, fullgraph=True)
    tg.manual_seed(3)
    expected = [attend(*tensors(arrays)) for _ in range(4)]
    tg.manual_seed(3)
    found = [step(*tensors(arrays)) for _ in range(4)]
    for ours, theirs in zip(found, expected, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=0, atol=1e-12)
    assert np.abs(found[0][0].detach().numpy() - found[0][1].detach().numpy()).max() > 0.1


def test_checkpointing_drops_the_same(choose: Any) -> None:
    *arrays, g = operands((1, 2, 130, 140, 4, 4))

    def attend(*x: Any) -> Any:
        return F.scaled_dot_product_attention(*x, dropout_p=0.5)

    def again(*x: Any) -> Any:
        return tg.utils.checkpoint.checkpoint(attend, *x, use_reentrant=False)

    plain = seeded(attend, tensors(arrays), tg.tensor(g))
    for a, b in zip(seeded(again, tensors(arrays), tg.tensor(g)), plain, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("causal", [False, True])
def test_directional_derivatives_against_differences(causal: bool) -> None:
    attend = fixed(0.3, causal)
    points, ways_to_go = (
        [tg.tensor(numbers(*x.shape, seed=s + i)) for i, x in enumerate(operands(SHAPES[0])[:3])]
        for s in (20, 30)
    )
    _, found = tg.func.jvp(attend, tuple(points), tuple(ways_to_go))
    step = 1e-6
    ahead, behind = (
        attend(*(x + sign * step * d for x, d in zip(points, ways_to_go, strict=True)))
        for sign in (1, -1)
    )
    expected = (ahead - behind) / (2 * step)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=0, atol=1e-8)


def test_examples_of_a_batch_may_share_a_draw() -> None:
    q = tg.randn(3, 1, 2, 600, 8, dtype=tg.float64)

    def attend(q: Any) -> Any:
        return F.scaled_dot_product_attention(q, q, q, dropout_p=0.3)

    state = tg.get_rng_state()
    out = tg.vmap(attend, randomness="same")(q)
    for i in range(3):
        tg.set_rng_state(state)
        np.testing.assert_allclose(out[i].numpy(), attend(q[i]).numpy(), rtol=0, atol=1e-12)
    apart = tg.vmap(attend, randomness="different")(q[:1].expand(2, 1, 2, 600, 8))
    assert not (apart[0] == apart[1]).all()
