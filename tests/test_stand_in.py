"""The stand-in for CuPy is as strict as CuPy, so that code which runs on it runs on a GPU."""

import sys

import numpy as np
import pytest
import stand_in_cupy


@pytest.fixture
def cupy(monkeypatch):
    for name, module in stand_in_cupy.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    return sys.modules["cupy"]


def test_nothing_becomes_a_numpy_array_by_itself(cupy):
    x = cupy.ones(3)
    assert not isinstance(x, np.ndarray)
    assert not hasattr(x, "__array_interface__")
    assert not hasattr(x.flags, "writeable")
    assert x.__cuda_array_interface__["data"] == (x.data.ptr, False)
    for convert in (np.asarray, np.array, lambda x: np.ones(3).__setitem__(slice(None), x)):
        with pytest.raises(TypeError, match="Implicit conversion"):
            convert(x)
    assert isinstance(x.get(), np.ndarray)
    assert isinstance(cupy.asnumpy(x), np.ndarray)


def test_operands_in_host_memory_are_refused(cupy):
    x, y = cupy.ones(3), np.ones(3)
    for run in (
        lambda: x + y,
        lambda: y + x,
        lambda: np.maximum(x, np.asarray(0.0)),
        lambda: np.where(x > 0, x, y),
        lambda: np.stack([x, y]),
        lambda: cupy.exp(y),
        lambda: x.__iadd__(y),
    ):
        with pytest.raises(TypeError):
            run()
    with pytest.raises(ValueError, match="non-scalar"):
        x[...] = y
    assert (x + np.float32(1)).tolist() == [2, 2, 2]
    assert (x < np.asarray(2.0)).all()


def test_numpy_functions_give_arrays_of_the_stand_in(cupy):
    x = cupy.arange(6.0).reshape(2, 3)
    for made in (
        np.exp(x),
        x.sum(),
        np.sum(x),
        np.swapaxes(x, 0, 1),
        x[0, 0],
        np.linalg.inv(x @ x.T),
    ):
        assert type(made) is cupy.ndarray
    assert x.sum().shape == ()
    with pytest.raises(NotImplementedError):
        np.maximum.reduce(x)
    with pytest.raises(TypeError):
        np.insert(x, 0, 1)


def test_views_share_memory_and_lead_to_their_owner(cupy):
    x = cupy.zeros((2, 3))
    part = x[1:].T
    assert part.base is x
    assert part.data.ptr == x.data.ptr + 3 * 8
    part[...] = 5
    assert x.tolist() == [[0, 0, 0], [5, 5, 5]]
    again = cupy.ndarray((3,), x.dtype, x.data + 24)
    assert again.tolist() == [5, 5, 5]
    assert cupy.may_share_memory(x, again)


def test_indices_out_of_range_wrap_around(cupy):
    x = cupy.arange(3)
    assert x[cupy.asarray([1, 3, -4])].tolist() == [1, 0, 2]
    assert np.take(x, cupy.asarray([4])).tolist() == [1]
    x[cupy.asarray([3])] = 10
    assert x.tolist() == [10, 1, 2]
    cupy.add.at(x, cupy.asarray([0, 0]), 1)
    assert x.tolist() == [12, 1, 2]


def test_new_memory_is_not_zero(cupy):
    assert cupy.empty(3).tolist() != [0, 0, 0]
