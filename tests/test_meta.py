"""The device "meta": tensors with a shape and a dtype, and no values."""

import copy

import pytest

import tapegrad as tg
from tapegrad import nn


def test_shapes_and_dtypes_are_known_and_values_are_not():
    x = tg.empty(3, 4, device="meta")
    assert (x.device, x.is_meta, x.shape, x.dtype) == (tg.device("meta"), True, (3, 4), tg.float32)
    assert not tg.ones(2).is_meta
    assert repr(x) == "tensor(..., device='meta', size=(3, 4), dtype=tapegrad.float32)"
    for y, shape, dtype in (
        (x + 1, (3, 4), tg.float32),
        (x @ tg.ones(4, 2), (3, 2), tg.float32),
        (x.double().sum(0), (4,), tg.float64),
        (x > 0, (3, 4), tg.bool),
        (x[0, 1:], (3,), tg.float32),
        (x.t().reshape(2, 6), (2, 6), tg.float32),
        (tg.cat([x, x]), (6, 4), tg.float32),
        (nn.functional.softmax(x, -1), (3, 4), tg.float32),
        (tg.zeros_like(x, dtype=tg.int64), (3, 4), tg.int64),
        (x.new_zeros(2), (2,), tg.float32),
        (x.detach(), (3, 4), tg.float32),
        (x.data, (3, 4), tg.float32),
    ):
        assert (y.device.type, y.shape, y.dtype) == ("meta", shape, dtype)
    assert [part.device.type for part in x.split(2)] == ["meta", "meta"]
    for read in (
        lambda: x.item(),
        lambda: x.tolist(),
        lambda: x.numpy(),
        lambda: bool(x.sum()),
        lambda: float(x.sum()),
        lambda: x.cpu(),
        lambda: x.to("cpu"),
        lambda: x.to(tg.ones(1)),
    ):
        with pytest.raises(NotImplementedError, match=r"meta"):
            read()


def test_no_memory_is_used_and_large_results_are_refused():
    huge = tg.empty(1 << 20, 1 << 20, device="meta")
    assert huge.numel() == 1 << 40
    assert huge.view(1 << 10, -1).shape == (1 << 10, 1 << 30)
    assert huge.zero_() is huge
    with pytest.raises(NotImplementedError, match="matmul"):
        huge @ huge
    with pytest.raises(NotImplementedError, match="a name only"):
        tg.empty(2, device="mps")


def test_modules_are_built_and_get_their_memory_later():
    with tg.device("meta"):
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Embedding(5, 3))
        frequencies = 1.0 / (10.0 ** (tg.arange(0, 8, 2).float() / 8))
        assert {t.device.type for t in (frequencies, tg.randn(2), tg.tensor([1.0]))} == {"meta"}
    assert tg.ones(1).device.type == "cpu"
    tensors = [*model.parameters(), *model.buffers()]
    assert {t.device.type for t in tensors} == {"meta"}
    assert all(isinstance(p, nn.Parameter) and p.requires_grad for p in model.parameters())
    assert copy.deepcopy(model)[0].weight.device.type == "meta"
    with pytest.raises(NotImplementedError, match="to_empty"):
        model.to("cpu")

    real = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Embedding(5, 3))
    model.load_state_dict(real.state_dict(), assign=True)
    assert type(model[0].weight) is nn.Parameter
    assert (model[0].weight == real[0].weight).all()
    kind = type(nn.Linear(2, 3, device="meta").weight)
    assert type(kind(tg.ones(2), requires_grad=False)) is nn.Parameter
    layer = nn.Linear(2, 3, device="meta").to_empty(device="cpu")
    assert type(layer.weight) is nn.Parameter
    assert (layer.weight.device.type, layer.weight.requires_grad) == ("cpu", True)
    nn.init.ones_(layer.weight)
    layer(tg.ones(1, 2)).sum().backward()
    assert layer.weight.grad.tolist() == [[1, 1]] * 3
    gone = layer.to("meta")
    assert gone.weight.is_meta
    assert gone(tg.ones(5, 2, device="meta")).shape == (5, 3)
