"""The op table on a GPU: every operation gives what it gives on the CPU, forward and backward."""

import numpy as np
import pytest
import sweep

import tapegrad as tg

pytestmark = pytest.mark.cuda

#: operations whose result lives on the CPU by definition, or that only look at shapes
ON_CPU = {"allclose", "equal", "isclose", "has_nan", "has_inf"}


def on_gpu(x):
    return x.detach().to("cuda").requires_grad_(x.requires_grad)


@pytest.mark.parametrize("name", [n for n in sweep.NAMES if n not in ON_CPU])
def test_same_as_on_the_cpu(name):
    for op, sample, arguments in sweep.cases(name, tg.float64):
        if op.random:
            continue
        moved = sweep.mapped(on_gpu, arguments)
        expected, got = sweep.call(op, arguments), sweep.call(op, moved)
        for a, b in zip(sweep.tensors(got), sweep.tensors(expected), strict=True):
            assert a.is_cuda, f"{name}{sample}: the result left the GPU"
            assert a.dtype is b.dtype
            np.testing.assert_allclose(
                a.detach().cpu().numpy(), b.detach().numpy(), rtol=1e-7, atol=1e-9,
                err_msg=f"{name}{sample}",
            )  # fmt: skip
        check_gradients(got, expected, moved, arguments, f"{name}{sample}")


def check_gradients(got, expected, moved, arguments, what):
    outs = [
        (a, b)
        for a, b in zip(sweep.tensors(got), sweep.tensors(expected), strict=True)
        if b.requires_grad
    ]
    inputs = sweep.differentiated(arguments)
    if not outs or not inputs:
        return
    starts = [np.random.default_rng(1).standard_normal(b.shape) for _, b in outs]
    theirs = tg.autograd.grad(
        [b for _, b in outs], inputs, [tg.tensor(s) for s in starts], allow_unused=True
    )
    mine = tg.autograd.grad(
        [a for a, _ in outs],
        sweep.differentiated(moved),
        [tg.tensor(s, device="cuda") for s in starts],
        allow_unused=True,
    )
    for a, b in zip(mine, theirs, strict=True):
        if b is None:
            assert a is None
            continue
        assert a.is_cuda
        np.testing.assert_allclose(
            a.cpu().numpy(), b.numpy(), rtol=1e-7, atol=1e-9, err_msg=f"gradient of {what}"
        )


def test_moving():
    x = tg.ones(3, requires_grad=True)
    y = x.cuda() * 2
    assert y.device == tg.device("cuda:0")
    y.sum().backward()
    assert not x.grad.is_cuda
    assert x.grad.tolist() == [2, 2, 2]
    assert y.detach().cpu().tolist() == [2, 2, 2]
    assert "device='cuda:0'" in repr(y)


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
