"""Leaving and entering tapegrad: NumPy, DLPack, dtypes, printing."""

import warnings

import numpy as np
import pytest

import tapegrad as tg


def test_numpy_shares_memory_both_ways():
    a = np.arange(3, dtype=np.float32)
    x = tg.from_numpy(a)
    x.add_(1)
    assert a.tolist() == [1, 2, 3]
    b = x.numpy()
    b[0] = 9
    assert x[0].item() == 9
    copied = tg.tensor(a)
    copied.zero_()
    assert a[0] == 9


def test_array_protocol_refuses_to_lose_gradients():
    x = tg.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="detach"):
        np.asarray(x)
    assert np.asarray(x.detach()).tolist() == [1, 1]
    assert np.array(tg.ones(2), dtype=np.float64).dtype == np.float64


def test_operators_with_numpy_give_tensors():
    x = tg.ones(2, requires_grad=True)
    a = np.array([2.0, 3.0], np.float32)
    for y in (x * a, a * x, a + x, x - a, a / x):
        assert isinstance(y, tg.Tensor)
        assert y.requires_grad
    assert (np.float32(2) * x).tolist() == [2, 2]
    assert (a @ tg.ones(2)).item() == 5


def test_dlpack():
    x = tg.arange(4).float()
    y = np.from_dlpack(x)
    y[0] = 7
    assert x[0].item() == 7
    z = tg.from_dlpack(np.arange(3.0))
    assert z.dtype is tg.float64
    with pytest.raises(BufferError):
        np.from_dlpack(tg.ones(1, requires_grad=True))


def test_default_dtypes():
    assert tg.tensor([1.0]).dtype is tg.float32
    assert tg.tensor([1]).dtype is tg.int64
    assert tg.tensor([True]).dtype is tg.bool
    assert tg.tensor(np.ones(1)).dtype is tg.float64
    assert tg.tensor([]).dtype is tg.float32
    tg.set_default_dtype(tg.float64)
    try:
        assert tg.zeros(1).dtype is tg.float64
        assert tg.tensor([1.0]).dtype is tg.float64
    finally:
        tg.set_default_dtype(tg.float32)
    with pytest.raises(TypeError, match="floating"):
        tg.set_default_dtype(tg.int64)


def test_half_precisions():
    for dtype in (tg.float16, tg.bfloat16):
        x = tg.tensor([1.0, 2.0, 3.0], dtype=dtype, requires_grad=True)
        y = (x * x).sum()
        assert y.dtype is dtype
        y.backward()
        assert x.grad.dtype is dtype
        assert x.grad.tolist() == [2, 4, 6]
        assert (tg.ones(2, 2, dtype=dtype) @ tg.ones(2, 2, dtype=dtype)).dtype is dtype
    many = tg.ones(5000, dtype=tg.float16)
    assert many.sum().item() == 5000, "sums run in float32 and round once"


def test_conversions():
    x = tg.ones(2, requires_grad=True)
    y = x.double() * 2
    assert y.dtype is tg.float64
    y.sum().backward()
    assert x.grad.dtype is tg.float32
    assert x.to(tg.float32) is x
    assert tg.tensor(3.7).int().item() == 3
    assert tg.tensor([0.0, 2.0]).bool().tolist() == [False, True]
    assert x.type() == "tapegrad.FloatTensor"
    assert x.detach().to("cpu").tolist() == [1, 1]


def test_numbers():
    assert float(tg.tensor(2.5)) == 2.5
    assert int(tg.tensor(2)) == 2
    assert [1, 2, 3][tg.tensor(1)] == 2
    assert f"{tg.tensor(1.23456):.2f}" == "1.23"
    assert len(tg.zeros(4, 2)) == 4
    assert [row.tolist() for row in tg.eye(2)] == [[1, 0], [0, 1]]
    with pytest.raises(TypeError):
        len(tg.tensor(1.0))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: tg.tensor([1.0, 2.0]), "tensor([1., 2.])"),
        (lambda: tg.tensor([1.5, -2.25]), "tensor([ 1.5000, -2.2500])"),
        (lambda: tg.tensor(3), "tensor(3)"),
        (lambda: tg.tensor(0.5), "tensor(0.5000)"),
        (lambda: tg.tensor([True, False]), "tensor([ True, False])"),
        (lambda: tg.tensor([1.0], requires_grad=True), "tensor([1.], requires_grad=True)"),
        (lambda: tg.ones(1, requires_grad=True) * 2, "tensor([2.], grad_fn=<MulBackward0>)"),
        (lambda: tg.ones(1, dtype=tg.float64), "tensor([1.], dtype=tapegrad.float64)"),
        (lambda: tg.tensor([1, 2], dtype=tg.int32), "tensor([1, 2], dtype=tapegrad.int32)"),
        (lambda: tg.zeros(0), "tensor([])"),
        (lambda: tg.zeros(0, 3), "tensor([], size=(0, 3))"),
        (lambda: tg.eye(2), "tensor([[1., 0.],\n        [0., 1.]])"),
        (lambda: tg.tensor([float("nan"), float("inf")]), "tensor([nan, inf])"),
    ],
)
def test_printing(make, text):
    assert repr(make()) == text


def test_long_tensors_are_abridged():
    assert "..." in repr(tg.zeros(2000))


def test_import_is_light():
    import subprocess
    import sys

    code = (
        "import sys, tapegrad; heavy = [m for m in "
        "('scipy', 'llvmlite', 'cupy', 'ml_dtypes', 'rich', 'torch') if m in sys.modules]; "
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# -- whose memory ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.asarray, np.asmatrix, lambda a: a[::-1], lambda a: a.T])
def test_tensor_copies_and_as_tensor_shares(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        array = kind(np.arange(6, dtype=np.float32).reshape(2, 3))
    copied, shared, from_array = tg.tensor(array), tg.as_tensor(array), tg.from_numpy(array)
    before = np.array(array)
    array[...] = -1
    assert np.array_equal(copied.numpy(), before)
    assert (shared == -1).all()
    assert (from_array == -1).all()
    again = tg.tensor(from_array)
    from_array.fill_(3)
    assert (again == -1).all()
    assert (np.asarray(array) == 3).all()


def test_tensor_copies_a_file_in_memory(tmp_path):
    array = np.memmap(tmp_path / "numbers", np.float32, "w+", shape=(4,))
    x = tg.tensor(array)
    array[:] = 5
    assert x.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("make", [tg.from_numpy, tg.as_tensor])
def test_flags_of_arrays_are_not_those_of_tensors(make):
    """As in PyTorch: whether an array may be written to is asked when a tensor is made of it."""
    array = np.zeros(3, np.float32)
    x = make(array)
    array.flags.writeable = False
    x.numpy().flags.writeable = False
    add = tg.compile(lambda y: x.add_(y).sum())
    assert [add(tg.ones(3)).item() for _ in range(4)] == [3, 6, 9, 12]
    assert array.tolist() == [4, 4, 4]
