"""Reading and writing by any index against PyTorch, also where NumPy means something else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import for_tapegrad, indices, numbered, shapes

from tapegrad.core.tensor import wrap


@st.composite
def indexed(draw: Any) -> tuple[Any, Any]:
    array = numbered(draw(shapes()))
    return array, draw(indices(array.shape))


def for_torch(index: Any) -> Any:
    return tuple(torch.tensor(i) if isinstance(i, np.ndarray) else i for i in index)


def leaves(array: Any) -> tuple[Any, Any]:
    return wrap(array.copy()).requires_grad_(), torch.tensor(array, requires_grad=True)


def weights_for(shape: Any) -> Any:
    return np.cos(np.arange(np.prod(shape, dtype=int))).reshape(tuple(shape))


def assert_same(ours: Any, theirs: Any) -> None:
    assert tuple(ours.shape) == tuple(theirs.shape)
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), atol=1e-12)


@given(indexed())
def test_getitem(case: Any) -> None:
    array, index = case
    x, theirs = leaves(array)
    try:
        expected = theirs[for_torch(index)]
    except IndexError:
        try:
            x[for_tapegrad(index)]
        except IndexError:
            return
        raise
    got = x[for_tapegrad(index)]
    assert_same(got, expected)
    w = weights_for(expected.shape)
    (got * wrap(w)).sum().backward()
    (expected * torch.tensor(w)).sum().backward()
    assert_same(x.grad, theirs.grad)


@given(indexed(), st.data())
def test_setitem(case: Any, data: Any) -> None:
    array, index = case
    x, theirs = leaves(array)
    try:
        part = theirs[for_torch(index)]
    except IndexError:
        return
    named = torch.arange(array.size).reshape(array.shape)[for_torch(index)]
    if named.unique().numel() < named.numel():
        return  # which of several values stays is left open
    shape = tuple(part.shape)[data.draw(st.integers(0, part.ndim)) :]
    shape = tuple(data.draw(st.sampled_from([1, n])) if n else n for n in shape)
    shape = (1,) * data.draw(st.integers(0, 1)) + shape
    v, value = leaves(-numbered(shape))
    y, expected = x.clone(), theirs.clone()
    try:
        expected[for_torch(index)] = value
    except (RuntimeError, IndexError):
        try:
            y[for_tapegrad(index)] = v
        except (RuntimeError, IndexError):
            return
        raise
    y[for_tapegrad(index)] = v
    assert_same(y, expected)
    w = weights_for(array.shape)
    (y * wrap(w)).sum().backward()
    (expected * torch.tensor(w)).sum().backward()
    assert_same(x.grad, theirs.grad)
    if value.grad is None:
        assert v.grad is None or not v.grad.any()
    else:
        assert_same(v.grad, value.grad)


@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
@pytest.mark.parametrize(
    "key",
    [
        [slice(0, 2), slice(1, 3)],
        [Ellipsis, 0],
        [None, 0],
        [[0, 1], [1, 2]],
        [0, slice(1, 3)],
        [0, 2],
        [[0, 2]],
        [(0, 1), 1],
    ],
    ids=str,
)
def test_lists_that_stand_for_tuples(key: Any) -> None:
    values = np.arange(12.0).reshape(3, 4)
    assert wrap(values)[key].tolist() == torch.tensor(values)[key].tolist()
