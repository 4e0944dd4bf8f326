"""Streams, events, figures of memory and pinned memory: PyTorch's names on a GPU or a stand-in."""

from __future__ import annotations

import gc
from collections import OrderedDict, defaultdict, namedtuple
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import backends
from tapegrad.core.device import cupy
from tapegrad.cuda import memory
from tapegrad.data import DataLoader, TensorDataset

pytestmark = pytest.mark.usefixtures("gpu")

Pair = namedtuple("Pair", "first second")


@pytest.fixture(autouse=True)
def _default_stream(gpu: None) -> Any:
    yield
    tg.cuda.set_stream(tg.cuda.default_stream())


def test_operations_go_into_the_current_stream() -> None:
    x = tg.ones(1000, device="cuda")
    before = tg.cuda.current_stream()
    assert before == tg.cuda.default_stream()
    mine = tg.cuda.Stream()
    assert mine != before
    mine.wait_stream(before)
    with tg.cuda.stream(mine):
        assert tg.cuda.current_stream() == mine
        assert cupy().cuda.get_current_stream().ptr == mine.cuda_stream
        y = x * 2 + 1
        with tg.cuda.stream(None):
            assert tg.cuda.current_stream() == mine
    assert tg.cuda.current_stream() == before
    before.wait_stream(mine)
    y.record_stream(before)
    assert (y * 2).sum().item() == 6000
    mine.synchronize()
    assert mine.query()


def test_streams_nest_and_survive_errors() -> None:
    a, b = tg.cuda.Stream(), tg.cuda.Stream()
    before = tg.cuda.current_stream()

    def fail() -> None:
        with a:
            with b:
                assert tg.cuda.current_stream() == b
            assert tg.cuda.current_stream() == a
            raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        fail()
    assert tg.cuda.current_stream() == before
    assert tg.cuda.ExternalStream(a.cuda_stream) == a
    assert len({a, b, tg.cuda.ExternalStream(a.cuda_stream)}) == 2


def test_a_compiled_function_in_several_streams() -> None:
    """Its memory is that of one run at a time."""

    @tg.compile
    def step(x: tg.Tensor) -> tg.Tensor:
        return (x @ x).exp().sum(0) / 3

    x = tg.rand(64, 64, device="cuda") / 64
    expected = step(x).cpu().numpy()
    streams = [tg.cuda.Stream() for _ in range(3)]
    found = []
    for i in range(30):
        which = streams[i % 3]
        which.wait_stream(tg.cuda.default_stream())
        with tg.cuda.stream(which):
            found.append(step(x))
    tg.cuda.synchronize()
    for y in found:
        np.testing.assert_allclose(y.cpu().numpy(), expected, rtol=1e-5)


def test_events_tell_the_time() -> None:
    start, end = tg.cuda.Event(enable_timing=True), tg.cuda.Event(enable_timing=True)
    with pytest.raises(ValueError, match="recorded"):
        start.elapsed_time(end)
    start.record()
    for _ in range(10):
        tg.ones(100, 100, device="cuda") @ tg.ones(100, 100, device="cuda")
    end.record()
    end.synchronize()
    assert end.query()
    assert start.elapsed_time(end) > 0
    with pytest.raises(ValueError, match="enable_timing"):
        start.elapsed_time(tg.cuda.Event())
    never = tg.cuda.Event()
    assert never.query()
    never.wait()
    never.synchronize()


def test_record_stream_is_for_gpus() -> None:
    with pytest.raises(RuntimeError, match="on a GPU"):
        tg.ones(3).record_stream(tg.cuda.current_stream())


def test_figures_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_peaks", memory._Peaks())
    assert tg.cuda.max_memory_allocated() >= tg.cuda.memory_allocated() > 0
    assert tg.cuda.memory_reserved() >= tg.cuda.memory_allocated()
    tg.cuda.reset_peak_memory_stats()
    before = tg.cuda.memory_allocated()
    assert tg.cuda.max_memory_allocated() == before
    hook = memory._peaks._hook
    if not hasattr(hook, "active"):
        x = tg.ones(1 << 20, device="cuda")
        del x
        gc.collect()
    else:  # the stand-in's pool does not count
        pool = cupy().get_default_memory_pool()
        monkeypatch.setattr(pool, "used", before + (4 << 20))
        hook.malloc_postprocess(mem_size=4 << 20)
        monkeypatch.setattr(pool, "used", before)
        hook.free_postprocess(mem_size=4 << 20)
    assert tg.cuda.memory_allocated() == before
    assert tg.cuda.max_memory_allocated() >= before + (4 << 20)
    stats = tg.cuda.memory_stats()
    assert stats["allocated_bytes.all.peak"] == tg.cuda.max_memory_allocated()
    assert "allocated_bytes.all.peak" in tg.cuda.memory_summary()
    free, total = tg.cuda.mem_get_info()
    assert 0 < free <= total
    tg.cuda.reset_peak_memory_stats()
    assert tg.cuda.max_memory_allocated() == before


def test_no_memory_left_names_the_largest_tensors() -> None:
    weight = tg.ones(700, 1000, device="cuda", requires_grad=True)
    middle = (weight * 2).exp()  # its value is saved for backward
    total = middle.sum()
    shown = weight.view(-1)
    with pytest.raises(tg.cuda.OutOfMemoryError) as raised:
        cupy().cuda.get_allocator()(1 << 56)
    words = str(raised.value)
    assert words.startswith("the GPU has no 7.21e+04 TB left: ")
    assert "2.8 MB: 700x1000 float32, a leaf" in words
    assert "2.8 MB: 700x1000 float32, exp, at " in words
    assert "test_cuda_streams.py:" in words
    assert "view, at" not in words
    assert isinstance(raised.value, RuntimeError)
    del middle
    with pytest.raises(tg.cuda.OutOfMemoryError, match="saved for the gradient of exp, at "):
        cupy().cuda.get_allocator()(1 << 56)
    assert (total.item(), shown.numel()) == (pytest.approx(700_000 * np.exp(2), rel=1e-4), 700_000)


@pytest.mark.parametrize("dtype", ["float32", "bool", "int64"])
def test_pinned_memory(dtype: str) -> None:
    x = tg.arange(24).reshape(2, 3, 4).permute(2, 0, 1).to(getattr(tg, dtype))
    y = x.pin_memory()
    assert y.is_pinned()
    assert not x.is_pinned()
    assert y.pin_memory() is y
    assert y[1:].is_pinned()
    assert not (y.clone()).is_pinned()
    assert (y.stride(), y.dtype) == (x.stride(), x.dtype)
    for blocking in (False, True):
        moved = y.to("cuda", non_blocking=blocking)
        np.testing.assert_array_equal(moved.cpu().numpy(), x.numpy())
    np.testing.assert_array_equal(y.to("cuda", None, True).cpu().numpy(), x.numpy())
    assert tg.ones(0).pin_memory().shape == (0,)
    with pytest.raises(RuntimeError, match="only memory of the CPU"):
        x.to("cuda").pin_memory()
    assert not x.to("cuda").is_pinned()


def test_pinned_memory_of_storages_and_packed_sequences() -> None:
    x = tg.ones(3).pin_memory()
    assert x.untyped_storage().is_pinned()
    assert not x.clone().untyped_storage().is_pinned()
    packed = tg.nn.utils.rnn.pack_sequence([tg.ones(3, 2), tg.ones(1, 2)])
    assert not packed.is_pinned()
    pinned = packed.pin_memory()
    assert pinned.is_pinned()
    assert pinned.data.tolist() == packed.data.tolist()
    assert pinned.batch_sizes.tolist() == packed.batch_sizes.tolist()


def test_gradients_go_through_a_copy_that_nobody_waits_for() -> None:
    x = tg.ones(3).pin_memory().requires_grad_()
    (x.to("cuda", non_blocking=True) * 3).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3, 3, 3]


class Own:
    def pin_memory(self) -> str:
        return "pinned itself"


@pytest.mark.parametrize("workers", [0, 1])
def test_loaders_pin_batches(workers: int) -> None:
    data = TensorDataset(tg.arange(6), tg.ones(6))
    for x, y in DataLoader(data, batch_size=3, pin_memory=True, num_workers=workers):
        assert x.is_pinned()
        assert y.is_pinned()
        assert x.to("cuda", non_blocking=True).sum().item() in (3, 12)


def test_loaders_pin_whatever_batches_are_made_of() -> None:
    one = tg.ones(1)
    given = defaultdict(list, {"a": one, "b": [one, ("word", b"bytes", 3, None)]})
    batch = OrderedDict(pair=Pair(one, given), own=Own())
    (found,) = DataLoader([batch], batch_size=None, pin_memory=True, collate_fn=lambda x: x)
    assert type(found) is OrderedDict
    assert found["own"] == "pinned itself"
    assert type(found["pair"]) is Pair
    assert found["pair"].first.is_pinned()
    inner = found["pair"].second
    assert type(inner) is defaultdict
    assert inner["a"].is_pinned()
    assert inner["b"][0].is_pinned()
    assert inner["b"][1] == ("word", b"bytes", 3, None)
    assert not one.is_pinned()


def test_tf32_is_one_switch() -> None:
    before = tg.get_float32_matmul_precision()
    try:
        backends.cuda.matmul.allow_tf32 = True
        assert tg.get_float32_matmul_precision() == "high"
        tg.set_float32_matmul_precision("highest")
        assert backends.cuda.matmul.allow_tf32 is False
    finally:
        tg.set_float32_matmul_precision(before)
