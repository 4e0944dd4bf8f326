"""Eager operations on a GPU as programs of kernels: when they are used, and what they share.

That they compute the same as the CPU is in `test_cuda.py`.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.core.acceleration import accelerator
from tapegrad.nn import functional as F
from tapegrad.replay.cuda import direct
from tapegrad.replay.cuda.target import CUDA

pytestmark = pytest.mark.usefixtures("gpu")


@pytest.fixture(autouse=True)
def _needs_kernels(gpu: None) -> None:
    if CUDA().missing() is not None:
        pytest.skip("CuPy runs all eager operations here")


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts of all kernels that programs are made of."""
    found: list[str] = []
    emit = direct.emit

    def emitted(*given: Any) -> Any:
        steps = emit(*given)
        found.extend(step.text for step in steps.steps if hasattr(step, "text"))
        return steps

    monkeypatch.setattr(direct, "emit", emitted)
    return found


def forms() -> list[Any]:
    made: Any = accelerator()
    return list(made.forms.values())


def randn(*shape: int) -> tg.Tensor:
    return tg.randn(*shape, device="cuda")


def test_operations_and_rules_are_programs() -> None:
    x, w = randn(8, 16).requires_grad_(), randn(16, 4).requires_grad_()
    (F.gelu(x @ w) * 0.5 + 1.0).sum().backward()
    assert len(forms()) >= 6
    assert None not in forms()


def test_other_numbers_share_a_form() -> None:
    x = randn(5)
    for number in (0.1, 0.25, 3, 1e30):
        np.testing.assert_array_equal((x * number).cpu().numpy(), x.cpu().numpy() * number)
    assert len(forms()) == 1


def test_other_sizes_share_kernels(texts: list[str]) -> None:
    for n in (40, 50, 61):
        x = randn(n, 7).requires_grad_()
        y = F.gelu(x[:, 1:] * 2.5 + x[:, :1])
        (y.sum(1) * y.mean(0).sum()).sum().backward()
        if n == 40:
            before = set(texts)
    assert set(texts) == before


def test_layouts_are_kept() -> None:
    x = randn(3, 4, 5)
    for moved in (x, x.permute(2, 0, 1), x.transpose(0, 2), x[:, ::2].permute(1, 2, 0)):
        like = tg.empty_strided(moved.shape, moved.stride())
        for function in (tg.exp, F.gelu, lambda y: y * 2.0, lambda y: y + y):
            assert function(moved).stride() == function(like).stride()
            expected = function(moved.cpu()).numpy()
            np.testing.assert_allclose(function(moved).cpu().numpy(), expected, rtol=1e-5)


def test_bad_data_raise_as_on_the_cpu() -> None:
    table = randn(10, 3).requires_grad_()
    good, bad = tg.tensor([1, 2]), tg.tensor([1, 10])
    assert F.embedding(good.to("cuda"), table).shape == (2, 3)
    with pytest.raises(IndexError) as on_cpu:
        F.embedding(bad, table.detach().cpu())
    with pytest.raises(IndexError) as on_gpu:
        F.embedding(bad.to("cuda"), table)
    assert str(on_gpu.value) == str(on_cpu.value)
    assert F.embedding(good.to("cuda"), table).shape == (2, 3)


def test_precision_is_part_of_a_form() -> None:
    x = randn(8, 8)
    before = tg.get_float32_matmul_precision()
    try:
        for precision in ("highest", "high", "highest"):
            tg.set_float32_matmul_precision(precision)
            x @ x
        assert len(forms()) == 2
    finally:
        tg.set_float32_matmul_precision(before)


def test_other_threads_run_programs() -> None:
    x = randn(64, 64)
    expected = F.gelu(x @ x).cpu().numpy()
    found: list[Any] = []

    def run() -> None:
        for _ in range(10):
            found.append(F.gelu(x @ x).cpu().numpy())

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 40
    for one in found:
        np.testing.assert_array_equal(one, expected)


def test_gradients_of_one_weight_are_added_up() -> None:
    w = randn(64, 64).requires_grad_()
    x = randn(64, 64)
    y = x
    for _ in range(4):
        y = (y @ w).tanh()
    y.sum().backward()
    on_cpu = w.detach().cpu().requires_grad_()
    y = x.cpu()
    for _ in range(4):
        y = (y @ on_cpu).tanh()
    y.sum().backward()
    assert w.grad is not None
    assert on_cpu.grad is not None
    expected = on_cpu.grad.numpy()
    np.testing.assert_allclose(w.grad.cpu().numpy(), expected, rtol=1e-3, atol=1e-3)
