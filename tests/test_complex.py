"""Complex tensors: dtypes, promotion, parts as views, gradients in PyTorch's convention."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import nn, optim
from tapegrad.testing import gradcheck, gradgradcheck


def randn(*shape: int, seed: int = 0, requires_grad: bool = False) -> tg.Tensor:
    rng = np.random.default_rng(seed)
    array = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    return tg.tensor(np.asarray(array), requires_grad=requires_grad)


# -- dtypes ------------------------------------------------------------------------------------


def test_names() -> None:
    assert tg.cfloat is tg.complex64
    assert tg.cdouble is tg.complex128
    assert tg.chalf is tg.complex32
    assert tg.complex64.is_complex
    assert not tg.complex64.is_floating_point
    assert (tg.complex64.itemsize, tg.complex128.itemsize) == (8, 16)
    assert tg.complex64.to_real() is tg.float32
    assert tg.float64.to_complex() is tg.complex128
    assert tg.float32.to_real() is tg.float32
    assert tg.complex128.is_signed
    assert pickle.loads(pickle.dumps(tg.complex64)) is tg.complex64
    with pytest.raises(TypeError, match="complex32"):
        tg.zeros(2, dtype=tg.complex32)


def test_creation() -> None:
    assert tg.tensor(1j).dtype is tg.complex64
    assert tg.tensor([1.0, 2j]).dtype is tg.complex64
    assert tg.tensor(np.array([1j])).dtype is tg.complex128
    assert tg.tensor([1.0, 2.0], dtype=tg.complex128).tolist() == [1 + 0j, 2 + 0j]
    assert tg.full((2,), 1j).dtype is tg.complex64
    assert tg.zeros(2, dtype=complex).dtype is tg.complex64
    assert tg.ones(2, dtype=tg.cdouble).sum().item() == 2 + 0j
    assert tg.from_numpy(np.zeros(2, np.complex64)).dtype is tg.complex64
    before = tg.get_default_dtype()
    tg.set_default_dtype(tg.float64)
    try:
        assert tg.tensor(1j).dtype is tg.complex128
    finally:
        tg.set_default_dtype(before)


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        (tg.float32, 1j, tg.complex64),
        (tg.float64, 1j, tg.complex128),
        (tg.int64, 1j, tg.complex64),
        (tg.bool, 1j, tg.complex64),
        (tg.bfloat16, 1j, tg.complex64),
        (tg.complex64, 2.5, tg.complex64),
        (tg.complex128, 3, tg.complex128),
        (tg.complex64, tg.float64, tg.complex128),
        (tg.complex64, tg.complex128, tg.complex128),
        (tg.complex64, tg.int64, tg.complex64),
    ],
)
def test_promotion(x: Any, y: Any, expected: Any) -> None:
    a = tg.ones(2, dtype=x)
    b = tg.ones(2, dtype=y) if isinstance(y, tg.dtype) else y
    assert (a + b).dtype is (b + a).dtype is expected
    assert (a * b).dtype is expected


def test_promotion_of_numbers_in_tensors() -> None:
    assert (tg.ones(2) * tg.tensor(1j, dtype=tg.complex128)).dtype is tg.complex64
    assert (tg.ones(2, dtype=tg.int32) * tg.tensor(1j, dtype=tg.complex128)).dtype is tg.complex128
    assert (tg.ones(2, dtype=tg.complex64) * tg.tensor(1.0, dtype=tg.float64)).dtype is tg.complex64
    assert tg.promote_types(tg.complex64, tg.float64) is tg.complex128
    assert tg.promote_types(tg.float16, tg.complex64) is tg.complex64


def test_python_numbers() -> None:
    x = tg.tensor(3 + 0j)
    assert (int(x), float(x), complex(x), bool(x)) == (3, 3.0, 3 + 0j, True)
    assert complex(tg.tensor(1 + 2j)) == 1 + 2j
    with pytest.raises(RuntimeError, match="imaginary"):
        float(tg.tensor(1j))
    assert tg.tensor([1 + 2j]).tolist() == [1 + 2j]
    assert tg.tensor([1 + 2j]).numpy().dtype == np.complex64
    assert bool(tg.tensor(1j))


def test_printing() -> None:
    assert repr(tg.tensor([1 + 2j, 3 - 4j])) == "tensor([1.+2.j, 3.-4.j])"
    assert repr(tg.tensor([1.5 + 2j])) == "tensor([1.5000+2.j])"
    assert (
        repr(tg.tensor([1j], dtype=tg.complex128)) == "tensor([0.+1.j], dtype=tapegrad.complex128)"
    )


def test_casts() -> None:
    x = randn(3, requires_grad=True)
    y = x.to(tg.complex64)
    assert y.dtype is tg.complex64
    y.abs().sum().backward()
    assert x.grad is not None
    assert x.grad.dtype is tg.complex128
    r = tg.ones(3, dtype=tg.float64, requires_grad=True)
    (r.cdouble() * (2 + 3j)).sum().backward(tg.tensor(1 + 1j, dtype=tg.complex128))
    assert r.grad is not None
    assert r.grad.tolist() == [5.0] * 3  # the real part of (1 + i) (2 - 3i)
    assert tg.tensor([0j, 1j]).bool().tolist() == [False, True]
    assert tg.tensor([1.5 + 2j]).real.int().tolist() == [1]


# -- gradients ---------------------------------------------------------------------------------


def test_convention() -> None:
    """The gradient of a real loss is dL/dx + i dL/dy: it points uphill."""
    z = tg.tensor(3 + 4j, requires_grad=True)
    (z * z.conj()).real.backward()
    assert z.grad is not None
    assert z.grad.item() == 6 + 8j
    z = tg.tensor(1 + 2j, requires_grad=True)
    ((2 - 1j) * z).real.backward()
    assert z.grad is not None
    assert z.grad.item() == 2 + 1j


def test_backward_needs_a_real_number_or_a_complex_gradient() -> None:
    x = randn(requires_grad=True)
    with pytest.raises(RuntimeError, match="real"):
        (x * 2).backward()
    with pytest.raises(RuntimeError, match="complex"):
        (x * 2).backward(tg.tensor(1.0, dtype=tg.float64))
    with pytest.raises(RuntimeError, match="complex"):
        (x * 2).abs().backward(tg.tensor(1j, dtype=tg.complex128))
    (x * 2).backward(tg.tensor(1j, dtype=tg.complex128))
    assert x.grad is not None
    assert x.grad.item() == 2j


def test_real_inputs_get_real_gradients() -> None:
    x = tg.ones(3, requires_grad=True)
    w = tg.tensor([1 + 2j, 3j, 4.0], requires_grad=True)
    (x * w).abs().sum().backward()
    assert x.grad is not None
    assert w.grad is not None
    assert (x.grad.dtype, w.grad.dtype) == (tg.float32, tg.complex64)
    np.testing.assert_allclose(x.grad.numpy(), np.abs([1 + 2j, 3j, 4.0]), rtol=1e-6)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x @ y,
        lambda x, y: (x * y.t()).exp().sum(0),
        lambda x, y: tg.einsum("ij,jk->k", x, y),
        lambda x, y: (x / (y.t() + 3)).real,
        lambda x, y: x.abs() + y.t().angle(),
        lambda x, y: x.sgn() * y.t().abs(),
        lambda x, y: (x**2 + y.t() ** 1.5).imag,
        lambda x, y: x.conj() * y.t() * y.real.t(),
        lambda x, y: tg.view_as_real(x).pow(2).sum(-1) * y.t(),
        lambda x, y: tg.polar(x.abs(), y.t().angle()),
        lambda x, y: (x.mH @ x).diagonal() + y.sum(),
        lambda x, y: tg.complex(x.real, y.t().imag).cumprod(1),
        lambda x, y: x[:, [0, 1]].var(0) + y.std(),
    ],
)
def test_gradcheck(function: Any) -> None:
    x, y = randn(3, 4, requires_grad=True), randn(4, 3, seed=1, requires_grad=True)
    assert gradcheck(function, (x, y))
    assert gradgradcheck(function, (x, y))
    assert gradcheck(function, (x, y), fast_mode=True)


def test_gradcheck_finds_a_missing_conjugate() -> None:
    class Wrong(tg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2 * ctx.saved_tensors[0]

    class Right(Wrong):
        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2 * ctx.saved_tensors[0].conj()

    x = randn(3, requires_grad=True)
    assert gradcheck(Right.apply, x)
    assert gradgradcheck(Right.apply, x)
    with pytest.raises(RuntimeError, match="is not what differences give"):
        gradcheck(Wrong.apply, x)


def test_large_tensors_take_the_same_way() -> None:
    """Those that native code would run if they were real."""
    x = randn(300, 300, requires_grad=True)
    y = (x * x + x.exp() * 0.1).abs()
    y.sum().backward()
    assert x.grad is not None
    a = x.detach().numpy()
    inner = a * a + np.exp(a) * 0.1
    expected = inner / np.abs(inner) * np.conj(2 * a + np.exp(a) * 0.1)
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-10)


def test_hooks_and_retained_gradients() -> None:
    x = randn(3, requires_grad=True)
    y = x * 2j
    y.retain_grad()
    seen = []
    y.register_hook(lambda g: seen.append(g.clone()))
    y.abs().sum().backward()
    assert y.grad is not None
    assert x.grad is not None
    np.testing.assert_allclose(seen[0].numpy(), y.detach().sgn().numpy())
    np.testing.assert_allclose(x.grad.numpy(), (y.grad * -2j).numpy())


def test_anomaly_mode_and_saved_tensor_hooks() -> None:
    x = randn(3, requires_grad=True)
    with tg.autograd.detect_anomaly():
        (x * x).abs().sum().backward()
    first = x.grad
    x.grad = None
    with tg.autograd.graph.saved_tensors_hooks(lambda t: t * 1, lambda t: t):
        y = (x * x).abs().sum()
    y.backward()
    assert first is not None
    assert x.grad is not None
    np.testing.assert_allclose(first.numpy(), x.grad.numpy())


# -- views -------------------------------------------------------------------------------------


def test_parts_share_memory() -> None:
    x = randn(3, 4)
    a = x.numpy()
    x.real[0] = 1.0
    x.imag.mul_(2)
    tg.view_as_real(x)[1, :, 1] = 7.0
    assert (a[0].real == 1).all()
    assert (a[1].imag == 7).all()
    x.t().real.zero_()
    assert (a.real == 0).all()
    x.real = tg.ones(3, 4)
    x.imag = 2.0
    assert (a == 1 + 2j).all()
    pairs = tg.zeros(3, 2)
    z = tg.view_as_complex(pairs)
    z += 1 + 2j
    assert pairs.tolist() == [[1.0, 2.0]] * 3
    assert tg.view_as_real(x)._base is x
    r = tg.ones(2)
    assert r.real is r
    with pytest.raises(RuntimeError, match="imag"):
        r.imag  # noqa: B018
    with pytest.raises(RuntimeError, match="size 2"):
        tg.view_as_complex(tg.ones(3))
    with pytest.raises(RuntimeError, match="float32"):
        tg.view_as_complex(tg.ones(2, dtype=tg.int64))
    with pytest.raises(RuntimeError, match="contiguous"):
        tg.view_as_complex(tg.ones(2, 3).t())


def _written(x: Any, v: Any) -> Any:
    y = x.clone()
    y.real.mul_(v)
    y.imag[0] = v.sum()
    tg.view_as_real(y)[..., 1].add_(v * v)
    return y * y


def test_writes_to_parts_have_gradients() -> None:
    x = randn(3, requires_grad=True)
    v = tg.tensor([1.0, 2.0, 3.0], dtype=tg.float64, requires_grad=True)
    assert gradcheck(_written, (x, v))
    assert gradgradcheck(_written, (x, v))


def test_a_view_sees_what_is_written_to_its_base() -> None:
    x = randn(3, requires_grad=True)
    y = x * 1
    part = y.imag
    y.mul_(1j)
    part.sum().backward()  # the imaginary part of i x is the real part of x
    assert x.grad is not None
    assert x.grad.tolist() == [1 + 0j] * 3


def test_in_place() -> None:
    x = randn(3)
    y = x.clone()
    y.mul_(2j).add_(1).div_(1 + 1j)
    np.testing.assert_allclose(y.numpy(), (x.numpy() * 2j + 1) / (1 + 1j))
    y.conj_physical_()
    y[0] = 1j
    assert y[0].item() == 1j
    y.fill_(2j)
    assert y.tolist() == [2j] * 3
    with pytest.raises(RuntimeError, match="complex"):
        y.abs_()
    with pytest.raises(RuntimeError):
        tg.ones(3).mul_(1j)
    with pytest.raises(RuntimeError):
        tg.ones(3).add_(y)


# -- whole programs ----------------------------------------------------------------------------


def _loss(x: Any, w: Any) -> Any:
    y = (x @ w).tanh()
    z = y.real.exp().sum() + (y.imag * y.abs()).sum()
    return z + y.conj().angle().cos().mean()


def test_compiled_functions() -> None:
    @tg.compile
    def step(x: Any, w: Any) -> Any:
        loss = _loss(x, w)
        return loss, *tg.autograd.grad(loss, (x, w))

    for i in range(4):
        x, w = randn(3, 4, seed=i, requires_grad=True), randn(4, 2, seed=9, requires_grad=True)
        expected = _loss(x, w)
        gradients = tg.autograd.grad(expected, (x, w))
        got = step(x, w)
        for a, b in zip(got, (expected, *gradients), strict=True):
            assert a.dtype is b.dtype
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-10)
    assert "callback matmul" in step.explain()


def test_compiled_functions_whose_gradients_flow_out() -> None:
    fast = tg.compile(_loss)
    for i in range(4):
        x, w = randn(3, 4, seed=i, requires_grad=True), randn(4, 2, seed=9, requires_grad=True)
        theirs = tg.autograd.grad(_loss(x, w), (x, w))
        ours = tg.autograd.grad(fast(x, w), (x, w))
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-10)


def test_compiled_writes_to_parts() -> None:
    fast = tg.compile(_written)
    for i in range(4):
        x = randn(3, seed=i, requires_grad=True)
        v = tg.tensor([1.0, 2.0, 3.0 + i], dtype=tg.float64, requires_grad=True)
        a, b = fast(x, v), _written(x, v)
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy())
        first, second = (tg.autograd.grad(y.abs().sum(), (x, v)) for y in (a, b))
        for g, h in zip(first, second, strict=True):
            np.testing.assert_allclose(g.numpy(), h.numpy())


def test_compiled_functions_change_captured_parts() -> None:
    state = randn(4)
    expected = state.clone()

    @tg.compile
    def step(x: Any) -> Any:
        state.real.add_(x)
        state.mul_(1j)
        return state.abs().sum()

    for i in range(4):
        got = step(tg.full((4,), float(i), dtype=tg.float64))
        expected.real.add_(float(i))
        expected.mul_(1j)
        np.testing.assert_allclose(state.numpy(), expected.numpy())
        np.testing.assert_allclose(got.item(), expected.abs().sum().item())


OPTIMIZERS = {
    "SGD": {"lr": 0.1, "momentum": 0.9},
    "Adam": {"lr": 0.1, "amsgrad": True},
    "AdamW": {"lr": 0.1},
    "Adagrad": {"lr": 0.1},
    "Adadelta": {"lr": 0.1},
    "RMSprop": {"lr": 0.1, "centered": True, "momentum": 0.5},
    "Rprop": {"lr": 0.1},
    "ASGD": {"lr": 0.1},
    "Adamax": {"lr": 0.1},
    "NAdam": {"lr": 0.1},
    "RAdam": {"lr": 0.1},
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_see_complex_parameters_as_pairs(name: str) -> None:
    z = nn.Parameter(randn(3, 2))
    pairs = nn.Parameter(tg.view_as_real(z.detach()).clone())
    first, second = (getattr(optim, name)([p], **OPTIMIZERS[name]) for p in (z, pairs))
    target = randn(3, 2, seed=3)
    for _ in range(5):
        for optimizer, value in ((first, z), (second, None)):
            optimizer.zero_grad()
            value = tg.view_as_complex(pairs) if value is None else value
            (value - target).abs().pow(2).sum().backward()
            optimizer.step()
    assert z.dtype is tg.complex128
    np.testing.assert_allclose(tg.view_as_real(z.detach()).numpy(), pairs.detach().numpy())


def test_modules() -> None:
    layer = nn.Linear(3, 2, dtype=tg.complex64)
    assert layer.weight.dtype is tg.complex64
    out = layer(tg.ones(4, 3, dtype=tg.complex64))
    out.abs().sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.dtype is tg.complex64
    assert nn.Linear(3, 2).to(tg.complex64).weight.dtype is tg.complex64
    total = nn.utils.clip_grad_norm_(layer.parameters(), 1e-3)
    assert not total.is_complex()


def test_saving_and_copies(tmp_path: Any) -> None:
    x = randn(3, 4, requires_grad=True)
    tg.save({"x": x, "half": x.to(tg.complex64)}, tmp_path / "x.pt")
    back = tg.load(tmp_path / "x.pt")
    assert back["x"].dtype is tg.complex128
    assert back["half"].dtype is tg.complex64
    np.testing.assert_array_equal(back["x"].detach().numpy(), x.detach().numpy())
    again = pickle.load(io.BytesIO(pickle.dumps(x.detach())))
    np.testing.assert_array_equal(again.numpy(), x.detach().numpy())
    assert copy.deepcopy(x).dtype is tg.complex128


def test_checkpoint_and_tape() -> None:
    x = randn(3, requires_grad=True)
    tg.checkpoint(lambda z: (z * z).exp(), x).abs().sum().backward()
    first = x.grad
    x.grad = None
    with tg.Tape() as tape:
        loss = (x * x).exp().abs().sum()
    tape.backward(loss)
    assert first is not None
    assert x.grad is not None
    np.testing.assert_allclose(first.numpy(), x.grad.numpy())


def test_transforms() -> None:
    x = randn(4, 3)
    per_row = tg.func.vmap(tg.func.grad(lambda z: (z * z).exp().abs().sum()))(x)
    for row, z in zip(per_row, x, strict=True):
        z = z.clone().requires_grad_()
        (g,) = tg.autograd.grad((z * z).exp().abs().sum(), z)
        np.testing.assert_allclose(row.numpy(), g.numpy())
    value, tangent = tg.func.jvp(lambda z: z * z, (x,), (x,))
    np.testing.assert_allclose(tangent.numpy(), 2 * value.numpy())


def test_comparisons() -> None:
    x, y = tg.tensor([1 + 1j, 2.0]), tg.tensor([1 + 1j, 3.0])
    assert (x == y).tolist() == [True, False]
    assert (x != 2).tolist() == [True, False]
    assert tg.allclose(x, x + 1e-9)
    assert tg.equal(x, x)
    for compare in (tg.lt, tg.le, tg.gt, tg.ge, tg.maximum, tg.minimum):
        with pytest.raises(RuntimeError, match="complex"):
            compare(x, y)
    with pytest.raises(RuntimeError, match="complex"):
        x < 1  # noqa: B015
    with pytest.raises(RuntimeError, match="complex"):
        x.max()
    tg.testing.assert_close(x, x.clone())
    with pytest.raises(AssertionError):
        tg.testing.assert_close(x, y)


def test_random_numbers_have_both_parts() -> None:
    tg.manual_seed(0)
    n = 20_000
    for x in (
        tg.randn(n, dtype=tg.complex64),
        tg.empty(n, dtype=tg.complex64).normal_(),
        tg.randn_like(tg.zeros(n, dtype=tg.complex64)),
        tg.normal(tg.zeros(n, dtype=tg.complex64), 1.0),
    ):
        assert x.dtype is tg.complex64
        assert x._base is None
        for part in (x.real, x.imag):
            assert abs(part.std().item() - 0.5**0.5) < 0.02
            assert abs(part.mean().item()) < 0.02
    for x in (tg.rand(n, dtype=tg.complex128), tg.empty(n, dtype=tg.complex128).uniform_(1, 3)):
        low, high = (0.0, 1.0) if x.real.max() < 1 else (1.0, 3.0)
        for part in (x.real, x.imag):
            assert low <= part.min().item() <= low + 0.01 * (high - low)
            assert high >= part.max().item() >= high - 0.01 * (high - low)
    for name in ("exponential_", "cauchy_", "log_normal_", "bernoulli_", "random_"):
        with pytest.raises(RuntimeError, match="complex"):
            getattr(tg.zeros(2, dtype=tg.complex64), name)()
    assert tg.nn.Linear(3, 4, dtype=tg.complex64).weight.imag.abs().min() > 0


def test_imaginary_parts_are_not_lost_silently() -> None:
    x = tg.zeros(2)
    for call in (
        lambda: x.fill_(1j),
        lambda: tg.full((2,), 1j, dtype=tg.float32),
        lambda: tg.full_like(x, 1j),
        lambda: x.masked_fill(x == 0, 1j),
        lambda: x.index_fill(0, tg.tensor([0]), 1j),
        lambda: x.__setitem__(0, 1j),
        lambda: tg.add(x, x, alpha=1j),
    ):
        with pytest.raises((RuntimeError, TypeError)):
            call()
    with pytest.warns(UserWarning, match="imaginary part is lost"):
        assert tg.tensor([1 + 2j]).to(tg.float32).tolist() == [1.0]
    assert x.tolist() == [0.0, 0.0]
