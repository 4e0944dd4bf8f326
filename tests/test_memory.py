"""Memory of tensors: storages, resize_, set_, frombuffer, strides; functions of Python; devices."""

from __future__ import annotations

import struct
import threading
import warnings
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.storage import TypedStorage, UntypedStorage


def test_untyped_storages() -> None:
    x = tg.arange(6, dtype=tg.int16).reshape(2, 3)
    part = x[1:]
    memory = part.untyped_storage()
    assert isinstance(memory, UntypedStorage)
    assert memory.nbytes() == len(memory) == memory.size() == 12
    assert memory.data_ptr() == x.data_ptr() == x.untyped_storage().data_ptr()
    assert memory == x.untyped_storage()
    assert memory._cdata == x.untyped_storage()._cdata
    assert x.clone().untyped_storage() != memory
    assert part.storage_offset() == 3
    assert part.detach().storage_offset() == 3
    assert memory.tolist()[:4] == [0, 0, 1, 0]
    memory[0] = 9
    assert x[0, 0].item() == 9
    memory.fill_(1)
    assert x.flatten().tolist() == [257] * 6
    memory.copy_(tg.arange(6, dtype=tg.int16).untyped_storage())
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
    copied = memory.clone()
    copied.fill_(0)
    assert x[1, 2].item() == 5
    with pytest.raises(RuntimeError, match="12 bytes"):
        memory.copy_(UntypedStorage(4))
    with pytest.raises(RuntimeError, match="cannot grow"):
        memory.resize_(100)
    assert memory.resize_(0).nbytes() == 0
    assert memory.resize_(12).nbytes() == 12
    assert tg.is_storage(memory)
    assert not tg.is_storage(x)


def test_writes_through_a_storage_are_changes() -> None:
    w = tg.ones(2, requires_grad=True)
    x = tg.ones(2)
    loss = (w * x).sum()
    x.untyped_storage().fill_(0)
    with pytest.raises(RuntimeError, match="changed"):
        loss.backward()


def test_typed_storages() -> None:
    x = tg.arange(4.0)
    elements = x[2:].storage()
    assert isinstance(elements, TypedStorage)
    assert elements.tolist() == [0, 1, 2, 3]
    assert (len(elements), elements.size(), elements.element_size()) == (4, 4, 4)
    assert elements.dtype is tg.float32
    elements[1] = 7
    assert x.tolist() == [0, 7, 2, 3]
    assert elements[1] == 7
    assert elements[1:3] == [7, 2]
    assert elements.untyped() == x.untyped_storage()
    made = tg.FloatStorage([1.0, 2.0])
    assert made.tolist() == [1, 2]
    assert tg.LongStorage(3).dtype is tg.int64
    elements.copy_(tg.DoubleStorage([4.0, 3.0, 2.0, 1.0]))
    assert x.tolist() == [4, 3, 2, 1]
    assert tg.tensor([1.5], dtype=tg.bfloat16).storage()[0] == 1.5


def test_set() -> None:
    x = tg.arange(6.0)
    y = tg.empty(0)
    assert y.set_(x) is y
    assert y.is_set_to(x)
    y[0] = 5
    assert x[0].item() == 5
    y.set_(x.untyped_storage(), 1, (2, 2), (2, 1))
    assert y.tolist() == [[1, 2], [3, 4]]
    assert y.storage_offset() == 1
    assert y.stride() == (2, 1)
    y.set_(x.storage(), 2, (3,))
    assert y.tolist() == [2, 3, 4]
    y.set_()
    assert y.shape == (0,)
    with pytest.raises(RuntimeError, match="needs 40 bytes"):
        y.set_(x.untyped_storage(), 0, (10,))
    with pytest.raises(RuntimeError, match="memory of"):
        y.set_(tg.arange(3))
    with pytest.raises(RuntimeError, match="leaf"):
        tg.ones(2, requires_grad=True).set_(x)


def test_resize() -> None:
    x = tg.arange(6.0)
    same = x.detach()
    address = x.data_ptr()
    assert x.resize_(2, 2) is x
    assert x.tolist() == [[0, 1], [2, 3]]
    assert x.data_ptr() == address
    x[0, 0] = 9
    assert same.tolist() == [9, 1, 2, 3, 4, 5]
    x.resize_(6)
    assert x.tolist() == [9, 1, 2, 3, 4, 5]
    x.resize_(2, 5)
    assert x.flatten()[:6].tolist() == [9, 1, 2, 3, 4, 5]
    assert x.resize_as_(tg.zeros(3)).shape == (3,)
    part = tg.arange(6.0)[2:4]
    assert part.resize_(4).tolist() == [2, 3, 4, 5]
    with pytest.raises(RuntimeError, match="requires gradients"):
        tg.ones(2, requires_grad=True).resize_(3)
    with pytest.raises(RuntimeError, match="negative"):
        x.resize_(-1)
    turned = tg.arange(6.0).reshape(2, 3).T
    assert turned.resize_(6).tolist() == [0, 1, 2, 3, 4, 5]


def test_compiled_functions_that_change_memory_run_eagerly() -> None:
    def f(x: Any) -> Any:
        y = x * 2
        y.resize_(2)
        return y + 1

    def g(x: Any, y: Any) -> Any:
        y.set_(x)
        return y * 2

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for function, inputs in ((f, 1), (g, 2)):
            fast = tg.compile(function)
            for i in range(4):
                given = [tg.arange(4.0) + i for _ in range(inputs)]
                again = [tg.arange(4.0) + i for _ in range(inputs)]
                assert fast(*given).tolist() == function(*again).tolist()


def test_frombuffer() -> None:
    memory = bytearray(struct.pack("<4f", 1, 2, 3, 4))
    x = tg.frombuffer(memory, dtype=tg.float32)
    assert x.tolist() == [1, 2, 3, 4]
    x[0] = 9
    assert struct.unpack("<4f", memory)[0] == 9
    assert tg.frombuffer(memory, dtype=tg.float32, offset=4, count=2).tolist() == [2, 3]
    assert tg.frombuffer(bytearray(b"\x80\x3f"), dtype=tg.bfloat16).tolist() == [1]
    with pytest.warns(UserWarning, match="not writable"):
        fixed = tg.frombuffer(b"ab", dtype=tg.uint8)
    with pytest.raises(RuntimeError, match="read-only"):
        fixed.fill_(0)
    with pytest.raises(ValueError, match="object with a buffer"):
        tg.frombuffer([1, 2], dtype=tg.uint8)
    for options in ({"offset": 16}, {"count": 5}, {"count": 0}, {"offset": 1}, {"offset": -1}):
        with pytest.raises(ValueError, match="buffer"):
            tg.frombuffer(memory, dtype=tg.float32, **options)


def test_strided_and_new() -> None:
    x = tg.empty_strided((2, 3), (1, 2))
    assert x.stride() == (1, 2)
    x.copy_(tg.arange(6.0).reshape(2, 3))
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert x.new_empty_strided((2,), (3,), dtype=tg.int64).dtype is tg.int64
    half = tg.ones(1, dtype=tg.float16)
    assert half.new().shape == (0,)
    assert half.new(2, 3).shape == (2, 3)
    assert half.new(x.shape).shape == (2, 3)
    assert half.new([1, 2]).tolist() == [1, 2]
    assert half.new([1, 2]).dtype is tg.float16
    assert half.new(tg.ones(3)).dtype is tg.float16
    assert half.layout is tg.strided


def test_functions_of_python() -> None:
    x = tg.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert x.apply_(lambda v: v * 10) is x
    assert x.tolist() == [[10, 20], [30, 40]]
    x.map_(tg.tensor([1.0, 2.0]), lambda a, b: a + b)
    assert x.tolist() == [[11, 22], [31, 42]]
    x.map2_(tg.ones(2, 2), tg.zeros(2, 2), lambda a, b, c: a - b + c)
    assert x.tolist() == [[10, 21], [30, 41]]
    assert tg.arange(3).apply_(lambda v: v + 0.5).tolist() == [0, 1, 2]
    with pytest.raises(RuntimeError, match="without gradients"):
        tg.ones(2, requires_grad=True).apply_(lambda v: v)


def test_comparing_in_place() -> None:
    x = tg.tensor([1.0, 2.0, 3.0])
    assert x.clone().lt_(2).tolist() == [1, 0, 0]
    assert x.clone().eq_(tg.tensor([1.0, 0.0, 3.0])).tolist() == [1, 0, 1]
    assert x.clone().greater_equal_(2).tolist() == [0, 1, 1]
    assert x.clone().logical_not_().tolist() == [0, 0, 0]
    assert tg.arange(3).ne_(1).tolist() == [1, 0, 1]
    assert x.double().float_power_(2).tolist() == [1, 4, 9]
    assert tg.fix(tg.tensor([1.5, -1.5])).tolist() == [1, -1]


def test_default_device() -> None:
    assert tg.get_default_device() == tg.device("cpu")
    with tg.device("cpu") as device:
        assert device.type == "cpu"
        assert tg.zeros(2).device == device
    tg.set_default_device("cuda")
    try:
        assert tg.get_default_device().type == "cuda"
        seen = []
        thread = threading.Thread(target=lambda: seen.append(tg.get_default_device().type))
        thread.start()
        thread.join()
        assert seen == ["cpu"]
        with tg.device("cpu"):
            assert tg.ones(2).device.type == "cpu"
            assert tg.nn.Linear(2, 1).weight.device.type == "cpu"
        if not tg.cuda.is_available():
            for make in (
                lambda: tg.zeros(2),
                lambda: tg.tensor([1.0]),
                lambda: tg.rand(2),
                lambda: tg.nn.Linear(2, 1),
            ):
                with pytest.raises(RuntimeError, match="device 'cuda'"):
                    make()  # type: ignore[no-untyped-call]
        on_cpu = tg.zeros(2, device="cpu")
        assert tg.ones_like(on_cpu).device.type == "cpu"
        assert on_cpu.new_zeros(2).device.type == "cpu"
        assert (on_cpu + 1).device.type == "cpu"
    finally:
        tg.set_default_device(None)
    assert tg.zeros(2).device.type == "cpu"

    @tg.device("cpu")
    def made() -> Any:
        return tg.get_default_device()

    assert made() == tg.device("cpu")
    assert tg.device(1) == tg.device("cuda", 1)
    assert np.asarray(tg.zeros(1)).tolist() == [0]


def test_asarray() -> None:
    x = tg.arange(3.0)
    array = x.numpy()
    assert tg.asarray(x).data_ptr() == x.data_ptr()
    assert tg.asarray(array, copy=False).data_ptr() == x.data_ptr()
    assert tg.asarray(array, copy=True).data_ptr() != x.data_ptr()
    assert tg.asarray(x, dtype=tg.float64).dtype is tg.float64
    memory = bytearray(8)
    assert tg.asarray(memory, dtype=tg.float32).shape == (2,)
    w = tg.ones(2, requires_grad=True)
    history = w * 2
    assert not tg.asarray(history).requires_grad
    assert tg.asarray(history, requires_grad=True).grad_fn is not None
    assert tg.asarray([1.0], requires_grad=True).is_leaf
    for call, error in (
        (lambda: tg.asarray(x, dtype=tg.float64, copy=False), ValueError),
        (lambda: tg.asarray([1.0], copy=False), ValueError),
        (lambda: tg.asarray(np.float64(1), copy=False), RuntimeError),
    ):
        with pytest.raises(error, match="copy=False"):
            call()  # type: ignore[no-untyped-call]


def test_limits_of_random_integers() -> None:
    x = tg.zeros(100, dtype=tg.uint8)
    for low, high in ((-1, 5), (5, 300)):
        with pytest.raises(RuntimeError, match="out of bounds"):
            x.random_(low, high)
    with pytest.raises(RuntimeError, match="must be larger"):
        x.random_(5, 5)
    assert set(tg.zeros(100, dtype=tg.bool).random_().tolist()) == {True, False}
    with pytest.warns(UserWarning, match="will not be drawn"):
        tg.zeros(2, dtype=tg.float16).random_(0, 5000)


def test_ranges() -> None:
    with pytest.warns(UserWarning, match="use arange"):
        assert tg.range(0, 1, 0.5).tolist() == [0, 0.5, 1]
    x = tg.zeros(2, 3)
    tg.arange(0, 4, out=x[:, 1:])
    assert x.tolist() == [[0, 0, 1], [0, 2, 3]]
    with pytest.raises(RuntimeError, match="standard deviation"):
        tg.normal(0.0, -1.0, (2,))
    assert tg.normal(0.0, 1.0, (2,), dtype=tg.float64).dtype is tg.float64
    with pytest.raises(TypeError, match="sequence of tensors"):
        tg.hstack(x)
    assert tg.zeros(1, dtype=tg.uint8).fill_(-1).item() == 255
