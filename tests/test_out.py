"""`out=`: results in tensors that exist already; aliasing, sizes, dtypes, gradients, compiled."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sweep import NAMES, array_of, call, some_cases

import tapegrad
from tapegrad import Tensor
from tapegrad.ops import TABLE

#: results whose values are not set, or that belong to all processes of a group
UNCOMPARED = ("distributed",)


def _like(result: Any) -> Any:
    """Tensors for `out=` in the form of a result, or None if it is no tensor."""
    if isinstance(result, Tensor):
        return tapegrad.full_like(result, 1)
    if isinstance(result, (tuple, list)) and all(isinstance(r, Tensor) for r in result):
        return [tapegrad.full_like(r, 1) for r in result]
    return None


@pytest.mark.parametrize("name", [n for n in NAMES if not n.startswith(UNCOMPARED)])
def test_every_operation_takes_out(name: str) -> None:
    if TABLE[name].samples is None or TABLE[name].module == "method":
        pytest.skip("a method")
    for op, sample, arguments in some_cases(name, requires_grad=False):
        expected = call(op, arguments)
        out = _like(expected)
        positional, keywords = arguments
        if out is None:
            continue
        given = call(op, (positional, keywords | {"out": out}))
        if isinstance(out, Tensor):
            assert given is out
        else:
            assert all(a is b for a, b in zip(given, out, strict=True))
            assert type(given) is type(expected)
        for got, value in zip(
            given if isinstance(out, list) else [given],
            expected if isinstance(out, list) else [expected],
            strict=True,
        ):
            np.testing.assert_array_equal(array_of(got), array_of(value), err_msg=f"{sample}")
            assert got.dtype is value.dtype


def test_other_sizes_are_resized_with_a_warning() -> None:
    x = tapegrad.arange(3.0)
    out = tapegrad.empty(2)
    with pytest.warns(UserWarning, match="was resized to"):
        assert tapegrad.add(x, 1, out=out) is out
    assert out.tolist() == [1, 2, 3]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        empty = tapegrad.empty(0)
        tapegrad.add(x, 1, out=empty)
        assert empty.tolist() == [1, 2, 3]
        with_broadcast = tapegrad.empty(0)
        tapegrad.add(x, tapegrad.ones(2, 1), out=with_broadcast)
        assert with_broadcast.shape == (2, 3)


def test_a_smaller_result_stays_in_the_memory() -> None:
    whole = tapegrad.zeros(6)
    with pytest.warns(UserWarning, match="resized"):
        out = tapegrad.add(tapegrad.ones(2), 1, out=whole.detach())
    assert out.shape == (2,)
    assert whole.tolist() == [2, 2, 0, 0, 0, 0]


def test_dtypes() -> None:
    x = tapegrad.arange(3.0)
    with pytest.raises(RuntimeError, match="cannot hold"):
        tapegrad.add(x, x, out=tapegrad.empty(3, dtype=tapegrad.int64))
    wide = tapegrad.add(x, x, out=tapegrad.empty(3, dtype=tapegrad.float64))
    assert wide.dtype is tapegrad.float64
    assert wide.tolist() == [0, 2, 4]
    mask = tapegrad.lt(x, 1, out=tapegrad.empty(3))
    assert mask.tolist() == [1, 0, 0]
    assert mask.dtype is tapegrad.float32
    # A sum computes in the dtype of its output.
    small = tapegrad.tensor([200, 100], dtype=tapegrad.uint8)
    assert tapegrad.sum(small, 0, out=tapegrad.empty((), dtype=tapegrad.uint8)).item() == 44
    total = tapegrad.sum(
        tapegrad.tensor([1.5, 1.5]), 0, out=tapegrad.empty((), dtype=tapegrad.int64)
    )
    assert total.item() == 2
    exact = tapegrad.mean(x, 0, out=tapegrad.empty((), dtype=tapegrad.float64))
    assert exact.dtype is tapegrad.float64


def test_out_may_be_an_input() -> None:
    x = tapegrad.arange(4.0)
    assert tapegrad.add(x, x, out=x) is x
    assert x.tolist() == [0, 2, 4, 6]
    m = tapegrad.arange(4.0).reshape(2, 2)
    tapegrad.matmul(m, m, out=m)
    assert m.tolist() == [[2, 3], [6, 11]]
    tapegrad.cumsum(x, 0, out=x)
    assert x.tolist() == [0, 2, 6, 12]
    parts = tapegrad.tensor([3.0, 1.0, 2.0])
    tapegrad.sort(parts, out=(parts, tapegrad.empty(3, dtype=tapegrad.int64)))
    assert parts.tolist() == [1, 2, 3]


def test_gradients_are_refused() -> None:
    w = tapegrad.ones(3, requires_grad=True)
    x = tapegrad.ones(3)
    out = tapegrad.zeros(3)
    for call_ in (
        lambda: tapegrad.add(w, x, out=out),
        lambda: tapegrad.add(x, x, out=w),
        lambda: tapegrad.cat([x, w], out=tapegrad.empty(0)),
        lambda: tapegrad.where(x > 0, x, w, out=out),
        lambda: tapegrad.zeros(3, out=w),
    ):
        with pytest.raises(RuntimeError, match="gradients have to flow"):
            call_()
    assert out.tolist() == [0, 0, 0]
    assert w.tolist() == [1, 1, 1]
    with tapegrad.no_grad():
        tapegrad.add(w, x, out=out)
        tapegrad.add(x, x, out=w)
    assert out.tolist() == [2, 2, 2]
    assert not out.requires_grad
    assert w.tolist() == [2, 2, 2]
    assert w.requires_grad
    assert w.is_leaf
    # What has no gradient does not refuse.
    assert tapegrad.eq(w, 2, out=tapegrad.empty(0, dtype=tapegrad.bool)).tolist() == [True] * 3
    assert tapegrad.argmax(w, 0, out=tapegrad.empty((), dtype=tapegrad.int64)).item() == 0


def test_a_value_saved_before_is_stale_afterwards() -> None:
    w = tapegrad.ones(3, requires_grad=True)
    saved = tapegrad.ones(3)
    y = (w * saved).sum()
    tapegrad.add(saved, 1, out=saved)
    with pytest.raises(RuntimeError, match="changed"):
        y.backward()


def test_wrong_outputs() -> None:
    x = tapegrad.ones(3)
    with pytest.raises(TypeError, match="must be a Tensor, got tuple"):
        tapegrad.add(x, x, out=(x,))
    with pytest.raises(TypeError, match="must be a Tensor, got int"):
        tapegrad.add(x, x, out=3)
    with pytest.raises(TypeError, match="tuple of 2"):
        tapegrad.sort(x, out=x)
    with pytest.raises(TypeError, match="tuple of 2"):
        tapegrad.max(x, 0, out=(tapegrad.empty(()),))
    with pytest.raises(RuntimeError, match="share one place"):
        tapegrad.add(x, x, out=tapegrad.zeros(1).expand(3))
    values, indices = tapegrad.zeros(3), tapegrad.zeros(3, dtype=tapegrad.bool)
    with pytest.raises(RuntimeError, match="does not match the dtype of out="):
        tapegrad.sort(x, out=(values, indices))
    assert values.tolist() == [0, 0, 0]  # bad input changes nothing
    assert tapegrad.add(x, x, out=None).tolist() == [2, 2, 2]


def test_creation() -> None:
    out = tapegrad.full((3,), 7, dtype=tapegrad.int32)
    assert tapegrad.zeros(3, out=out) is out
    assert out.dtype is tapegrad.int32
    assert out.tolist() == [0, 0, 0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tapegrad.ones((2, 2), out=out).tolist() == [[1, 1], [1, 1]]
    assert tapegrad.arange(3, out=tapegrad.empty(0)).dtype is tapegrad.float32
    assert tapegrad.eye(2, out=out).tolist() == [[1, 0], [0, 1]]
    assert tapegrad.full((2,), 1.5, out=out).tolist() == [1, 1]
    assert tapegrad.linspace(0, 1, 3, out=tapegrad.empty(0)).tolist() == [0, 0.5, 1]
    assert tapegrad.logspace(0, 2, 3, out=tapegrad.empty(0)).tolist() == [1, 10, 100]
    assert sorted(tapegrad.randperm(4, out=tapegrad.empty(0)).tolist()) == [0, 1, 2, 3]
    for draw in (tapegrad.rand, tapegrad.randn):
        tapegrad.manual_seed(3)
        expected = draw(2, 3, dtype=tapegrad.float64)
        tapegrad.manual_seed(3)
        assert draw(2, 3, out=tapegrad.empty(0, dtype=tapegrad.float64)).equal(expected)
    drawn = tapegrad.randint(5, 6, (2,), out=tapegrad.empty(2))
    assert drawn.tolist() == [5, 5]
    assert drawn.dtype is tapegrad.float32
    with pytest.raises(RuntimeError, match="does not match the dtype of out="):
        tapegrad.zeros(3, dtype=tapegrad.float32, out=out)
    assert tapegrad.zeros(2, out=tapegrad.ones(2), requires_grad=True).requires_grad


def test_compiled() -> None:
    def step(x: Tensor, out: Tensor) -> Tensor:
        fresh = tapegrad.empty(0)
        tapegrad.mul(x, 2, out=fresh)
        tapegrad.add(x, fresh, out=out)
        tapegrad.exp(x, out=x)
        values, indices = tapegrad.empty(0), tapegrad.empty(0, dtype=tapegrad.int64)
        tapegrad.sort(out, descending=True, out=(values, indices))
        return values + indices + fresh

    fast = tapegrad.compile(step, fullgraph=True)
    for i in range(4):
        x, y = tapegrad.arange(3.0) + i, tapegrad.arange(3.0) + i
        out, other = tapegrad.zeros(3), tapegrad.zeros(3)
        np.testing.assert_allclose(fast(x, out).numpy(), step(y, other).numpy(), rtol=1e-6)
        np.testing.assert_allclose(out.numpy(), other.numpy())
        np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-6)
    assert "4 recordings" not in fast.explain()


def test_compiled_resizing_of_an_argument_runs_eagerly() -> None:
    fast = tapegrad.compile(lambda x, out: tapegrad.mul(x, 2, out=out))
    for i in range(3):
        out = tapegrad.empty(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fast(tapegrad.ones(2) + i, out)
        assert out.tolist() == [2 + 2 * i] * 2


def test_dtypes_that_must_be_those_of_the_result() -> None:
    x = tapegrad.tensor([[3.0, 1.0], [2.0, 4.0]])
    wide, places = (
        tapegrad.empty(2, dtype=tapegrad.float64),
        tapegrad.empty(2, dtype=tapegrad.int64),
    )
    for refused in (
        lambda: tapegrad.sort(x[0], out=(wide, places)),
        lambda: tapegrad.max(x, 0, out=(wide, places)),
        lambda: tapegrad.max(x, 0, out=(tapegrad.empty(2), tapegrad.empty(2))),
        lambda: tapegrad.mv(x, x[0], out=wide),
        lambda: tapegrad.floor(x[0], out=wide),
        lambda: tapegrad.argmax(x, 0, out=wide),
        lambda: tapegrad.any(x, 0, out=wide),
        lambda: tapegrad.take(x, tapegrad.tensor([0, 1]), out=wide),
        lambda: tapegrad.sum(x, 0, dtype=tapegrad.float32, out=wide),
        lambda: tapegrad.cumsum(x[0], 0, dtype=tapegrad.int64, out=wide),
    ):
        with pytest.raises(RuntimeError, match="does not match the dtype of out="):
            refused()
    assert tapegrad.exp(x[0] * 0, out=wide).tolist() == [1, 1]
    assert tapegrad.add(x[0], 1, out=wide).tolist() == [4, 2]
    assert tapegrad.sum(x, 0, out=wide).tolist() == [5, 5]
    assert tapegrad.cat([x[0], x[1, :0]], out=wide).tolist() == [3, 1]
    small = tapegrad.empty(2, dtype=tapegrad.uint8)
    assert tapegrad.all(x > 1, 0, out=small).tolist() == [1, 0]


def test_memory_that_is_partly_an_input() -> None:
    x = tapegrad.arange(6.0)
    for refused in (
        lambda: tapegrad.exp(x[:5], out=x[1:]),
        lambda: tapegrad.add(x[:5], x[1:], out=x[:5]),
        lambda: tapegrad.pow(2, x[1:], out=x[:5]),
        lambda: tapegrad.gather(x, 0, tapegrad.tensor([0, 1]), out=x[:2]),
        lambda: tapegrad.index_select(x, 0, tapegrad.arange(6), out=x),
        lambda: tapegrad.masked_select(x, x > 2, out=x),
        lambda: x.index_add_(0, tapegrad.tensor([0, 1]), x[:2]),
        lambda: x.scatter_(0, tapegrad.arange(6), x),
        lambda: x.put_(tapegrad.tensor([0]), x[:1]),
    ):
        with pytest.raises(RuntimeError, match="shares memory"):
            refused()
    assert x.tolist() == [0, 1, 2, 3, 4, 5]
    tapegrad.add(x, 1, out=x)
    tapegrad.add(x[:3], x[3:], out=x[:3])
    tapegrad.mul(x[::2], x[1::2], out=x[::2])
    assert x.tolist() == [35, 7, 36, 4, 30, 6]


def test_multinomial_writes_indices_only() -> None:
    out = tapegrad.zeros(1, 2)
    with pytest.raises(RuntimeError, match="must be int64"):
        tapegrad.multinomial(tapegrad.ones(1, 2), 2, out=out)
    assert out.tolist() == [[0.0, 0.0]]
    found = tapegrad.multinomial(
        tapegrad.ones(1, 2), 2, out=tapegrad.zeros(1, 2, dtype=tapegrad.int64)
    )
    assert sorted(found[0].tolist()) == [0, 1]
