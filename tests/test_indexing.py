"""Reading and writing by any index, and broadcasting, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from strategies import for_tapegrad, has_arrays, has_repeats, indices, is_plain, numbered, shapes

import tapegrad
from tapegrad.core.tensor import wrap


@st.composite
def indexed(draw: Any) -> tuple[Any, Any]:
    """An array and an index for it that NumPy accepts and reads as PyTorch does."""
    array = numbered(draw(shapes()))
    index = draw(indices(array.shape))
    assume(is_plain(index))
    try:
        array[index]
    except IndexError:  # index arrays and a mask that do not broadcast
        assume(False)
    return array, index


@given(indexed())
def test_getitem(case: Any) -> None:
    array, index = case
    x = wrap(array).requires_grad_()
    y = x[for_tapegrad(index)]
    expected = array[index]
    np.testing.assert_array_equal(y.detach().numpy(), expected)
    if has_arrays(index):
        assert y._view is None
    else:
        assert y._view is not None or not y.numel()
        assert not y.numel() or np.shares_memory(y._array, array)
    weights = np.cos(np.arange(expected.size)).reshape(expected.shape)
    (y * wrap(np.asarray(weights))).sum().backward()
    gradient = np.zeros_like(array)
    np.add.at(gradient, index, weights)
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), gradient, atol=1e-12)


@given(indexed(), st.data())
def test_setitem(case: Any, data: Any) -> None:
    array, index = case
    assume(not has_repeats(array, index))
    target = array[index]
    shape = target.shape[data.draw(st.integers(0, target.ndim)) :]
    shape = tuple(data.draw(st.sampled_from([1, n])) if n else n for n in shape)
    value = -numbered(shape)
    x, v = wrap(array.copy()).requires_grad_(), wrap(value).requires_grad_()
    y = x.clone()
    y[for_tapegrad(index)] = v
    expected = array.copy()
    expected[index] = value
    np.testing.assert_array_equal(y.detach().numpy(), expected)
    np.testing.assert_array_equal(x.detach().numpy(), array)
    weights = np.cos(np.arange(array.size)).reshape(array.shape)
    (y * wrap(np.asarray(weights))).sum().backward()
    rest = weights.copy()
    rest[index] = 0
    assert x.grad is not None
    assert v.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), rest)
    written = np.zeros(target.shape)
    written[...] = weights[index]
    extra = target.ndim - len(shape)
    dims = tuple(range(extra)) + tuple(
        i + extra for i, n in enumerate(shape) if n == 1 and target.shape[i + extra] != 1
    )
    summed = written.sum(axis=dims).reshape(shape)
    np.testing.assert_allclose(v.grad.numpy(), summed, atol=1e-12)


@given(indexed())
def test_setitem_of_a_number(case: Any) -> None:
    array, index = case
    y = wrap(array.copy())
    y[for_tapegrad(index)] = 7
    expected = array.copy()
    expected[index] = 7
    np.testing.assert_array_equal(y.numpy(), expected)


@given(indexed(), st.data())
def test_views_of_views_write_into_their_base(case: Any, data: Any) -> None:
    array, index = case
    assume(not has_arrays(index))
    # NumPy copies for an array without dimensions, and for an element without an ellipsis.
    index = tuple(int(i) if isinstance(i, np.ndarray) else i for i in index)
    if Ellipsis not in index:
        index = (*index, Ellipsis)
    inner = data.draw(indices(array[index].shape))
    assume(is_plain(inner))
    expected = array.copy()
    try:
        expected[index][inner] = 0.0
    except IndexError:
        assume(False)
    base = wrap(array.copy()).requires_grad_()
    y = base * 1
    y[for_tapegrad(index)][for_tapegrad(inner)] = 0.0
    np.testing.assert_array_equal(y.detach().numpy(), expected)
    y.sum().backward()
    assert base.grad is not None
    np.testing.assert_array_equal(base.grad.numpy(), (expected != 0) * 1.0)


@pytest.mark.parametrize(
    ("key", "shape"),
    [
        ((True,), (1, 2, 3)),
        ((False,), (0, 2, 3)),
        ((None, True), (1, 1, 2, 3)),
        ([0, 1, 0], (3, 3)),
        (([0, 1], [2, 2]), (2,)),
        (range(2), (2, 3)),
        ([], (0, 3)),
        (np.array([True, False]), (1, 3)),
        (np.int64(1), (3,)),
        ((slice(None), [2, 0]), (2, 2)),
        ((..., 1), (2,)),
        ((), (2, 3)),
    ],
    ids=str,
)
def test_kinds_of_keys(key: Any, shape: tuple[int, ...]) -> None:
    array = numbered((2, 3))
    got = wrap(array)[key]
    assert tuple(got.shape) == shape
    np.testing.assert_array_equal(got.numpy(), array[list(key) if isinstance(key, range) else key])


def test_uint8_and_int32_tensors_are_indices() -> None:
    x = tapegrad.arange(5)
    for dtype in (tapegrad.int8, tapegrad.int16, tapegrad.int32, tapegrad.int64):
        assert x[tapegrad.tensor([3, 1], dtype=dtype)].tolist() == [3, 1]
    assert x[tapegrad.tensor(2)].tolist() == 2
    assert x[tapegrad.tensor(2) :].tolist() == [2, 3, 4]


def test_masks_of_bytes_and_deleting() -> None:
    x = tapegrad.arange(3)
    mask = tapegrad.tensor([1, 0, 1], dtype=tapegrad.uint8)
    with pytest.warns(UserWarning, match="mask of uint8"):
        assert x[mask].tolist() == [0, 2]
    with pytest.warns(UserWarning, match="mask of uint8"):
        x[mask] = 5
    assert x.tolist() == [5, 1, 5]
    with pytest.warns(UserWarning, match="mask of uint8"):
        x.index_put_((mask,), tapegrad.tensor([1, 1]), accumulate=True)
    assert x.tolist() == [6, 1, 6]
    with pytest.raises(TypeError, match="deleted"):
        del x[0]


# -- broadcasting ------------------------------------------------------------------------------


@given(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=4, max_side=4, min_side=0))
def test_binary_operations_broadcast(case: Any) -> None:
    first, second = case.input_shapes
    a, b = numbered(first), numbered(second) + 0.5
    x, y = wrap(a).requires_grad_(), wrap(b).requires_grad_()
    for out, expected in ((x * y, a * b), (x - y, a - b), (x / y, a / b)):
        np.testing.assert_allclose(out.detach().numpy(), expected, rtol=1e-14)
    (x * y).sum().backward()
    assert x.grad is not None
    assert y.grad is not None
    ones = np.ones(case.result_shape)
    np.testing.assert_allclose(x.grad.numpy(), _summed(ones * b, first), rtol=1e-12)
    np.testing.assert_allclose(y.grad.numpy(), _summed(ones * a, second), rtol=1e-12)


def _summed(array: Any, shape: tuple[int, ...]) -> Any:
    """Sum over what was repeated to broadcast `shape`."""
    extra = array.ndim - len(shape)
    array = array.sum(axis=tuple(range(extra)))
    dims = tuple(i for i, n in enumerate(shape) if n == 1 and array.shape[i] != 1)
    return array.sum(axis=dims, keepdims=True)


@given(st.data())
def test_shapes_that_do_not_broadcast(data: Any) -> None:
    first, second = data.draw(shapes(1)), data.draw(shapes(1))
    try:
        np.broadcast_shapes(first, second)
    except ValueError:
        with pytest.raises(RuntimeError, match="do not broadcast"):
            tapegrad.zeros(first) + tapegrad.zeros(second)


@given(shapes(), st.data())
def test_reductions(shape: tuple[int, ...], data: Any) -> None:
    array = numbered(shape) / 7
    n = len(shape)
    dims = data.draw(
        st.none() | st.sets(st.integers(0, max(n - 1, 0)), min_size=1, max_size=n or 1)
    )
    keepdim = data.draw(st.booleans())
    axis = None if dims is None or not n else tuple(dims)
    signed = None if axis is None else [data.draw(st.sampled_from([d, d - n])) for d in axis]
    x = wrap(array).requires_grad_()
    for name in ("sum", "mean", "amax", "amin"):
        counted = np.prod([shape[d] for d in (range(n) if axis is None else axis)], dtype=int)
        if not counted and name != "sum":
            continue
        got = (
            getattr(x, name)(signed, keepdim=keepdim)
            if signed
            else getattr(x, name)(tuple(range(n)), keepdim=keepdim)
        )
        expected = getattr(np, name)(array, axis=axis, keepdims=keepdim)
        np.testing.assert_allclose(got.detach().numpy(), expected, rtol=1e-13)
        (gradient,) = tapegrad.autograd.grad(got.sum(), x)
        assert gradient is not None
        assert gradient.shape == x.shape
        if name in ("sum", "mean"):
            np.testing.assert_allclose(gradient.numpy(), 1 / (counted if name == "mean" else 1))
        else:
            assert np.isclose(gradient.numpy().sum(), expected.size)


@st.composite
def factors(draw: Any) -> tuple[Any, Any]:
    """Shapes of two operands of matmul, in all ranks."""
    inner = draw(st.integers(0, 4))
    batches = draw(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=2, max_side=3))
    first = (draw(st.integers(0, 3)), inner)
    second = (inner, draw(st.integers(0, 3)))
    kind = draw(st.sampled_from(["both", "left vector", "right vector", "vectors"]))
    left = (inner,) if kind in ("left vector", "vectors") else batches.input_shapes[0] + first
    right = (inner,) if kind in ("right vector", "vectors") else batches.input_shapes[1] + second
    return left, right


@given(factors())
def test_matmul_in_all_ranks(case: Any) -> None:
    a, b = (numbered(s) / 10 for s in case)
    x, y = wrap(a).requires_grad_(), wrap(b).requires_grad_()
    out = x @ y
    expected = np.matmul(a, b)
    np.testing.assert_allclose(out.detach().numpy(), expected, rtol=1e-12)
    weights = np.cos(np.arange(expected.size)).reshape(expected.shape)
    (out * wrap(np.asarray(weights))).sum().backward()
    assert x.grad is not None
    assert y.grad is not None
    # The product is linear in each factor, so gradient times factor is the weighted result.
    total = (weights * expected).sum()
    np.testing.assert_allclose((x.grad.numpy() * a).sum(), total, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose((y.grad.numpy() * b).sum(), total, rtol=1e-9, atol=1e-12)


def test_a_number_where_a_mask_holds() -> None:
    x = tapegrad.arange(6.0).reshape(2, 3).requires_grad_()
    number = tapegrad.tensor(7.0, requires_grad=True)
    y = x * 2
    y[x > 3] = number
    y[tapegrad.tensor([True, False])] = 1
    assert y.tolist() == [[1, 1, 1], [6, 7, 7]]
    y.sum().backward()
    assert x.grad.tolist() == [[0, 0, 0], [2, 0, 0]]
    assert number.grad.item() == 2
    part = y.detach()[:, 1:]
    part[part > 5] = 0
    assert part.tolist() == [[1, 1], [0, 0]]
    with pytest.raises(IndexError, match="mask of shape"):
        y[tapegrad.tensor([True, False, True])] = 0


@pytest.mark.parametrize("shape", [(3, 4), (0, 4)])
def test_scattering_nothing_copies(shape: tuple[int, ...]) -> None:
    x = tapegrad.ones(shape, requires_grad=True)
    index = tapegrad.zeros((0, 2), dtype=tapegrad.int64)
    source = tapegrad.ones(2, 2)
    for y in (
        x.scatter(0, index, 5.0),
        x.scatter(0, index, source),
        x.scatter(0, index, source, reduce="add"),
        x.scatter_reduce(0, index, source, "amax"),
    ):
        assert y is not x
        assert y.tolist() == x.tolist()
        assert tapegrad.autograd.grad(y.sum(), x)[0].tolist() == x.tolist()
