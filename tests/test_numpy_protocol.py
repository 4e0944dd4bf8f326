"""NumPy's functions on tensors: universal ones, reductions, and the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import Tensor

X = [[0.5, 1.5], [2.5, 0.25]]


@pytest.mark.parametrize(
    "name",
    [
        *("exp", "log", "sqrt", "sin", "arcsin", "arctan", "tanh", "absolute", "negative"),
        *("square", "reciprocal", "floor", "ceil", "trunc", "rint", "sign", "isnan", "isfinite"),
        *("logical_not", "expm1", "log1p", "deg2rad", "degrees", "positive", "cosh", "exp2"),
    ],
)
def test_universal_functions_of_one_tensor(name: str) -> None:
    values = np.array(X) / 3
    made = getattr(np, name)(tg.tensor(values))
    assert type(made) is Tensor
    np.testing.assert_allclose(made.numpy(), getattr(np, name)(values), rtol=1e-12)


@pytest.mark.parametrize(
    "name",
    [
        *("add", "subtract", "multiply", "divide", "power", "maximum", "minimum", "fmax", "fmin"),
        *("arctan2", "hypot", "logaddexp", "copysign", "greater", "less_equal", "equal"),
        *("not_equal", "floor_divide", "remainder", "fmod", "logical_and", "float_power"),
    ],
)
def test_universal_functions_of_two(name: str) -> None:
    values = np.array(X)
    function = getattr(np, name)
    for a, b in ((values, values.T), (values, values[0]), (values, 2.0), (1.5, values)):
        given = [tg.tensor(x) if isinstance(x, np.ndarray) else x for x in (a, b)]
        mixed = [given[0], b] if isinstance(given[0], Tensor) else [a, given[1]]
        for operands in (given, mixed):
            made = function(*operands)
            assert type(made) is Tensor
            np.testing.assert_allclose(made.numpy(), function(a, b), rtol=1e-12)


def test_gradients_flow_through_numpys_functions() -> None:
    w = tg.tensor([1.0, 2.0], dtype=tg.float64, requires_grad=True)
    loss = np.sum(np.exp(w) * np.array([1.0, 3.0])) + np.mean(np.stack([w, np.square(w)]))
    loss.backward()
    expected = np.exp([1.0, 2.0]) * [1, 3] + (1 + 2 * np.array([1.0, 2.0])) / 4
    np.testing.assert_allclose(w.grad.numpy(), expected)
    assert np.concatenate([w, w]).requires_grad
    assert np.where(w > 1, w, 0.0).requires_grad
    with pytest.raises(RuntimeError, match="requires gradients"):
        np.median(w)


def test_operators_with_arrays() -> None:
    t, a = tg.tensor([1.0, 2.0]), np.array([3.0, 4.0])
    for made in (a + t, t + a, a * t, a - t, a / t, a**t, a < t, a == t, np.float64(2) * t):
        assert type(made) is Tensor
    assert (a - t).tolist() == [2, 2]
    assert (np.float64(2) * t).dtype is tg.float32
    b = a.copy()
    b += t
    assert type(b) is np.ndarray
    assert b.tolist() == [4, 6]


def test_reductions_and_shapes_give_tensors() -> None:
    x = np.array(X)
    t = tg.tensor(x)
    for call in (
        lambda v: np.mean(v),
        lambda v: np.mean(v, axis=0),
        lambda v: np.sum(v, axis=1, keepdims=True),
        lambda v: np.max(v),
        lambda v: np.min(v, axis=1),
        lambda v: np.argmax(v, axis=0),
        lambda v: np.prod(v),
        lambda v: np.std(v),
        lambda v: np.var(v, axis=0, ddof=1),
        lambda v: np.cumsum(v),
        lambda v: np.cumsum(v, axis=1),
        lambda v: np.any(v > 2),
        lambda v: np.all(v > 0, axis=0),
        lambda v: np.reshape(v, (4,)),
        lambda v: np.transpose(v),
        lambda v: np.clip(v, 0.5, 1.0),
        lambda v: np.squeeze(v[:, :1]),
        lambda v: np.take(v, [1, 0], axis=1),
        lambda v: np.take(v, 3),
        lambda v: np.round(v),
    ):
        made = call(t)  # type: ignore[no-untyped-call]
        assert type(made) is Tensor
        np.testing.assert_allclose(made.numpy(), call(x))  # type: ignore[no-untyped-call]


def test_other_functions_give_what_numpy_gives() -> None:
    t = tg.tensor(X)
    for made in (np.stack([t, t]), np.concatenate([t, t]), np.sort(t), np.zeros_like(t)):
        assert type(made) is np.ndarray
    assert np.array_equal(t, t)
    assert np.allclose(t, t)
    assert np.shape(t) == (2, 2)
    assert np.median(t) == pytest.approx(1.0)
    assert np.linalg.norm(t) == pytest.approx(float(t.norm()))
    assert type(np.asarray(t)) is np.ndarray


def test_outputs_and_other_methods() -> None:
    t = tg.tensor([1.0, 2.0], dtype=tg.float64)
    out = np.zeros(2)
    assert np.add(t, t, out=out) is out
    assert out.tolist() == [2, 4]
    target = tg.zeros(2, dtype=tg.float64)
    assert np.add(t, 1, out=target) is target
    assert target.tolist() == [2, 3]
    assert np.add.reduce(t).item() == 3
    assert np.multiply.outer(t, t).tolist() == [[1, 2], [2, 4]]
    quotient, rest = np.divmod(t, 2)
    assert (quotient.tolist(), rest.tolist()) == ([0, 1], [1, 0])
    w = tg.ones(2, dtype=tg.float64, requires_grad=True)
    saved = tg.ones(2, dtype=tg.float64)
    loss = (w * saved).sum()
    np.add(saved, 1, out=saved)
    with pytest.raises(RuntimeError, match="changed"):
        loss.backward()


def test_compiled() -> None:
    def f(x: Any) -> Any:
        return np.mean(np.exp(x)) + np.stack([x, x]).sum() + (np.ones(3, np.float32) * x).sum()

    fast = tg.compile(f, fullgraph=True)
    for i in range(4):
        x = tg.arange(3.0) * i
        expected = np.exp(x.numpy()).mean() + 3 * x.numpy().sum()
        assert float(fast(x)) == pytest.approx(float(expected), rel=1e-6)
