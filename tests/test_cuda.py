"""The op table on a GPU: every operation gives what it gives on the CPU, forward and backward.

Where there is no GPU, these tests run on a stand-in for CuPy (`stand_in_cupy.py`).
"""

import numpy as np
import pytest
import sweep

import tapegrad as tg

pytestmark = pytest.mark.usefixtures("gpu")

#: operations whose result lives on the CPU by definition, or that only look at shapes
ON_CPU = {"allclose", "equal", "isclose", "has_nan", "has_inf"}

TOLERANCE = {tg.float64: {"rtol": 1e-7, "atol": 1e-9}, tg.float32: {"rtol": 2e-3, "atol": 2e-3}}


def on_gpu(x):
    return x.detach().to("cuda").requires_grad_(x.requires_grad)


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", [tg.float64, tg.float32], ids=str)
@pytest.mark.parametrize("name", [n for n in sweep.NAMES if n not in ON_CPU])
def test_same_as_on_the_cpu(name, dtype):
    close = TOLERANCE[dtype]
    for op, sample, arguments in sweep.some_cases(name, dtype):
        moved = sweep.mapped(on_gpu, arguments)
        expected, got = sweep.call(op, arguments), sweep.call(op, moved)
        if not sweep.tensors(arguments):
            continue  # made from numbers, on the CPU
        for a, b in zip(sweep.tensors(got), sweep.tensors(expected), strict=True):
            assert a.is_cuda, f"{name}{sample}: the result left the GPU"
            assert a.dtype is b.dtype
            np.testing.assert_allclose(
                a.detach().cpu().numpy(), b.detach().numpy(), **close, err_msg=f"{name}{sample}"
            )
        check_gradients(got, expected, moved, arguments, close, f"{name}{sample}")


def check_gradients(got, expected, moved, arguments, close, what):
    outs = [
        (a, b)
        for a, b in zip(sweep.tensors(got), sweep.tensors(expected), strict=True)
        if b.requires_grad
    ]
    inputs = sweep.differentiated(arguments)
    if not outs or not inputs:
        return
    starts = [_start(b) for _, b in outs]
    theirs = tg.autograd.grad(
        [b for _, b in outs],
        inputs,
        [tg.tensor(s).to(b) for s, (_, b) in zip(starts, outs, strict=True)],
        allow_unused=True,
    )
    mine = tg.autograd.grad(
        [a for a, _ in outs],
        sweep.differentiated(moved),
        [tg.tensor(s).to(a) for s, (a, _) in zip(starts, outs, strict=True)],
        allow_unused=True,
    )
    for a, b in zip(mine, theirs, strict=True):
        if b is None:
            assert a is None
            continue
        assert a.is_cuda
        np.testing.assert_allclose(
            a.cpu().numpy(), b.numpy(), **close, err_msg=f"gradient of {what}"
        )


def _start(x):
    rng = np.random.default_rng(1)
    start = rng.standard_normal(x.shape)
    return start + 1j * rng.standard_normal(x.shape) if x.dtype.is_complex else start


def test_moving():
    x = tg.ones(3, requires_grad=True)
    y = x.cuda() * 2
    assert y.device == tg.device("cuda:0")
    y.sum().backward()
    assert not x.grad.is_cuda
    assert x.grad.tolist() == [2, 2, 2]
    assert y.detach().cpu().tolist() == [2, 2, 2]
    assert "device='cuda:0'" in repr(y)


def test_what_a_gpu_is():
    about = tg.cuda.get_device_properties(0)
    assert (about.name, about.major) == (
        tg.cuda.get_device_name(),
        tg.cuda.get_device_capability("cuda:0")[0],
    )
    assert about.total_memory > 0
    tg.cuda.set_device("cuda:0")
    with tg.cuda.device(0):
        assert tg.cuda.current_device() == 0
    assert tg.cuda.is_initialized()


def test_mixing_devices_is_an_error_but_numbers_may_join():
    a, b = tg.ones(3), tg.ones(3, device="cuda")
    with pytest.raises(RuntimeError, match="cpu and cuda:0"):
        a + b
    assert (b * tg.tensor(2.0)).tolist() == [2, 2, 2]


def test_in_place_and_versions():
    x = tg.ones(4, device="cuda", requires_grad=True)
    y = x * 2
    y[1:3] = 5.0
    y.mul_(3)
    y.sum().backward()
    assert x.grad.tolist() == [6, 0, 0, 6]
    z = x * 2
    w = (z * z).sum()
    z.add_(1)
    with pytest.raises(RuntimeError, match="changed in place"):
        w.backward()


def test_index_out_of_range_is_an_error():
    x = tg.ones(3, device="cuda")
    with pytest.raises(IndexError):
        x[tg.tensor([5], device="cuda")]


def test_training_step():
    rng = np.random.default_rng(0)
    model = tg.nn.Sequential(tg.nn.Linear(8, 16), tg.nn.ReLU(), tg.nn.Linear(16, 3))
    x = tg.tensor(rng.standard_normal((32, 8)).astype(np.float32), device="cuda")
    y = tg.tensor(rng.integers(0, 3, 32), device="cuda")
    model.to("cuda")
    optimizer = tg.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = tg.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]


def test_indices_and_values_from_the_host():
    x = tg.arange(6.0, device="cuda").reshape(3, 2)
    keys = [
        [0, 2], np.array([1]), tg.tensor([0, 1]), tg.tensor([True, False, True]), x.sum() > 0,
        ([0, 1], [1, 1]), (slice(None), [1]), (tg.tensor([2]), None), True, tg.tensor(1),
    ]  # fmt: skip
    for key in keys:
        on_cpu = key.cpu() if isinstance(key, tg.Tensor) else key
        found = x[key]
        assert found.is_cuda
        assert found.tolist() == x.cpu()[on_cpu].tolist()
        changed, expected = x.clone(), x.cpu().clone()
        changed[key], expected[on_cpu] = 9.0, 9.0
        assert changed.tolist() == expected.tolist()
    x[0] = tg.tensor([7.0, 8.0])
    x[[1]] = tg.tensor([[5.0, 6.0]])
    assert x.tolist() == [[7, 8], [5, 6], [4, 5]]
    assert x.clone().fill_diagonal_(x[0, 0]).tolist() == [[7, 8], [5, 7], [4, 5]]


def test_changes_in_place():
    x = tg.ones(3, device="cuda")
    assert x.fill_(2).tolist() == [2, 2, 2]
    assert x.fill_(tg.tensor(4.0)).tolist() == [4, 4, 4]
    assert x.apply_(lambda v: v + 1).tolist() == [5, 5, 5]
    assert x.zero_().tolist() == [0, 0, 0]
    with pytest.raises(RuntimeError, match="share"):
        tg.ones(1, device="cuda").expand(3).add_(1)


def test_bad_values_are_named():
    logits = tg.zeros(2, 3, device="cuda")
    with pytest.raises(IndexError, match="label 7 is out of range"):
        tg.nn.functional.cross_entropy(logits, tg.tensor([1, 7], device="cuda"))
    with pytest.raises(IndexError, match="token 5 is out of range"):
        tg.nn.functional.embedding(tg.tensor([5], device="cuda"), tg.zeros(3, 2, device="cuda"))
