"""Matrices: determinants, systems, Cholesky factors, norms; what they refuse."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.ops.linalg.solving import _cheapest
from tapegrad.testing import gradcheck, gradgradcheck


def matrix(*rows: list[float]) -> tg.Tensor:
    return tg.tensor(list(rows), dtype=tg.float64, requires_grad=True)


def test_the_gradient_of_a_singular_determinant() -> None:
    """It is the matrix of cofactors, which exists where the inverse does not."""
    x = matrix([1.0, 2.0], [2.0, 4.0])
    tg.det(x).backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), [[4.0, -2.0], [-2.0, 1.0]], atol=1e-12)
    zero = tg.zeros(3, 3, dtype=tg.float64, requires_grad=True)
    tg.linalg.det(zero).backward()
    assert zero.grad is not None
    assert not zero.grad.any()


def test_an_upper_cholesky_factor() -> None:
    x = matrix([4.0, 2.0], [2.0, 3.0])
    upper = tg.linalg.cholesky(x, upper=True)
    np.testing.assert_allclose((upper.mT @ upper).detach().numpy(), x.detach().numpy())
    assert gradcheck(lambda a: tg.linalg.cholesky((a + a.mT) / 2, upper=True), x)


def test_the_product_of_many_matrices_takes_the_cheap_order() -> None:
    tall, wide = tg.ones(200, 1), tg.ones(1, 200)
    assert tg.linalg.multi_dot([tall, wide, tall]).tolist() == [[200.0]] * 200
    assert _cheapest([200, 1, 200, 1])[0, 2] == 0  # the first times the product of the others
    assert _cheapest([1, 200, 1, 200])[0, 2] == 1


def test_bad_matrices() -> None:
    square, flat = tg.ones(2, 2), tg.ones(2, 3)
    for function in (tg.det, tg.slogdet, tg.linalg.inv, tg.linalg.cholesky):
        with pytest.raises(RuntimeError, match="needs square matrices"):
            function(flat)
    with pytest.raises(RuntimeError, match="needs a floating tensor"):
        tg.det(square.long())
    with pytest.raises(RuntimeError, match="is singular"):
        tg.linalg.solve(square, tg.ones(2))
    with pytest.raises(RuntimeError, match="positive definite"):
        tg.linalg.cholesky(-square)
    with pytest.raises(RuntimeError, match="A has 2 rows"):
        tg.linalg.solve(square, tg.ones(3, 1))
    with pytest.raises(RuntimeError, match="has no order 3"):
        tg.linalg.matrix_norm(square, 3)
    with pytest.raises(RuntimeError, match="needs a vector or a matrix"):
        tg.linalg.norm(tg.ones(2, 2, 2), 1)
    with pytest.raises(RuntimeError, match="at least two tensors"):
        tg.linalg.multi_dot([square])
    with pytest.raises(RuntimeError, match="a dimension of size 3"):
        tg.cross(square, square)
    with pytest.raises(RuntimeError, match="needs matrices"):
        tg.block_diag(tg.ones(2, 2, 2))
    with pytest.raises(RuntimeError, match="equal pieces do not fit"):
        tg.vsplit(square, 3)
    with pytest.raises(RuntimeError, match="its replacement"):
        tg.select_scatter(square, tg.ones(3), 0, 0)


def test_too_few_elements_for_a_mask() -> None:
    mask = tg.tensor([True, False, True])
    with pytest.raises((IndexError, RuntimeError)):
        tg.zeros(3).masked_scatter(mask, tg.ones(1))


# -- tensors that change their own shape ---------------------------------------------------------


def test_movements_in_place() -> None:
    x = tg.arange(6.0).reshape(2, 3).clone()
    same = x
    assert x.t_() is x
    assert x.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert x.unsqueeze_(0).shape == (1, 3, 2)
    assert x.transpose_(0, 2).shape == (2, 3, 1)
    assert x.squeeze_().shape == (2, 3)
    assert same.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_gradients_through_movements_in_place() -> None:
    w = tg.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    y = w * 2
    y.t_()
    y.mul_(tg.tensor([[1.0, 10.0], [100.0, 1000.0]]))
    y.sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [[2.0, 200.0], [20.0, 2000.0]]
    with pytest.raises(RuntimeError, match="leaf"):
        w.t_()
    assert w.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_a_view_that_is_turned_still_writes_to_its_base() -> None:
    base = tg.zeros(2, 2)
    row = base[0]
    row.unsqueeze_(1)
    row.add_(tg.tensor([[1.0], [2.0]], requires_grad=True))
    assert base.tolist() == [[1.0, 2.0], [0.0, 0.0]]
    assert base.requires_grad


def test_an_older_view_of_a_turned_tensor_is_an_error_and_no_wrong_gradient() -> None:
    base = tg.zeros(2, 2)
    row = base[0]
    base.t_()
    base.mul_(tg.ones(2, 2, requires_grad=True))
    with pytest.raises(RuntimeError, match="take the view again"):
        (row * 1).sum()
    assert base[0].requires_grad


def test_movements_in_place_in_a_compiled_function() -> None:
    def f(x: tg.Tensor) -> tg.Tensor:
        y = x * 2
        y.t_()
        return y.unsqueeze_(0) + 1

    fast = tg.compile(f)
    for i in range(4):
        x = tg.arange(6.0).reshape(2, 3) + i
        assert fast(x).tolist() == f(x).tolist()


def test_more_draws_in_place() -> None:
    tg.manual_seed(0)
    whole = tg.empty(1000).random_(3, 7)
    assert sorted(set(whole.tolist())) == [3.0, 4.0, 5.0, 6.0]
    assert set(tg.empty(100, dtype=tg.int64).random_(2).tolist()) == {0, 1}
    assert tg.empty(100).random_().max().item() > 1e6
    tries = tg.empty(20000).geometric_(0.25)
    assert tries.min().item() == 1.0
    assert abs(tries.mean().item() - 4.0) < 0.15
    logs = tg.empty(20000).log_normal_(1.0, 0.5).log()
    assert abs(logs.mean().item() - 1.0) < 0.02
    assert abs(logs.std().item() - 0.5) < 0.02
    heavy = tg.empty(20001).cauchy_(2.0, 0.5)
    assert abs(heavy.median().item() - 2.0) < 0.05


def test_questions_about_tensors() -> None:
    x = tg.tensor([2.0])
    assert x.is_nonzero()
    assert x.pin_memory() is x
    assert (tg.is_nonzero(x), tg.is_signed(x), tg.is_complex(x)) == (True, True, False)
    assert tg.detach(x.requires_grad_()).requires_grad is False
    x = x.detach()
    assert not any((x.is_pinned(), x.is_meta, x.is_quantized, x.is_nested))
    assert tg.isposinf(tg.tensor([math.inf, -math.inf])).tolist() == [True, False]


def test_a_wrapped_diagonal() -> None:
    x = tg.zeros(5, 2).fill_diagonal_(1.0, wrap=True)
    assert x.tolist() == [[1, 0], [0, 1], [0, 0], [1, 0], [0, 1]]
    assert tg.zeros(2, 2, 2).fill_diagonal_(3.0).sum().item() == 6.0
    with pytest.raises(RuntimeError, match="needs a matrix"):
        tg.zeros(3).fill_diagonal_(1.0)


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_gradients_of_matrices_that_are_not_finite(bad: float) -> None:
    """They are NaN, and those of the other matrices of a batch are not."""
    x = tg.eye(3).repeat(2, 1, 1)
    x[1, 0, 2] = bad
    x.requires_grad_()
    tg.linalg.det(x).sum().backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad[0].numpy(), np.eye(3))
    assert bool(x.grad[1].isnan().all())


def test_diag_of_a_matrix_is_a_copy_and_diagonal_a_view() -> None:
    x = tg.ones(2, 2)
    x.diag().add_(1)
    assert x.tolist() == [[1, 1], [1, 1]]
    x.diagonal().add_(1)
    assert x.tolist() == [[2, 1], [1, 2]]
    w = tg.ones(2, 2, requires_grad=True)
    y = w * 1
    y.diag().mul_(5).sum().backward()
    assert w.grad.tolist() == [[5, 0], [0, 5]]


def test_sums_by_lists_of_labels() -> None:
    a, b = tg.arange(6.0).reshape(2, 3), tg.arange(12.0).reshape(3, 4)
    close = np.testing.assert_allclose
    close(tg.einsum(a, [0, 1], b, [1, 2], [0, 2]).numpy(), (a @ b).numpy())
    close(tg.einsum(a, [0, 1], b, [1, 2]).numpy(), (a @ b).numpy())
    close(tg.einsum(a, [..., 5], [5, ...]).numpy(), a.t().numpy())
    with pytest.raises(ValueError, match="labels"):
        tg.einsum(a, [0, 52])
    with pytest.raises(ValueError, match="at least one operand"):
        tg.einsum("", [])
    for equation in ("i1", ". ..", "i...j...", "i-j"):
        with pytest.raises(RuntimeError):
            tg.einsum(equation, a)


def test_products_of_bytes() -> None:
    x = tg.tensor([[100, -128], [127, 1]], dtype=tg.int8)
    got = tg._int_mm(x, x)
    assert got.dtype is tg.int32
    assert got.tolist() == (x.int() @ x.int()).tolist()
    with pytest.raises(RuntimeError, match="int8"):
        tg._int_mm(x.int(), x)


def test_removed_methods_say_what_to_use() -> None:
    x = tg.eye(2)
    for name in ("eig", "lstsq", "solve", "symeig"):
        with pytest.raises(RuntimeError, match="linalg"):
            getattr(x, name)()
        with pytest.raises(RuntimeError, match="linalg"):
            getattr(tg, name)(x)


def test_norms_of_nothing_and_of_nan() -> None:
    empty = tg.zeros(0, 3)
    for order in (math.inf, -1, -math.inf):
        with pytest.raises(RuntimeError, match="no elements"):
            tg.linalg.vector_norm(empty, order)
        assert tg.linalg.vector_norm(empty, order, dim=1).shape == (0,)
    assert tg.linalg.vector_norm(empty).item() == 0.0
    assert tg.linalg.vector_norm(tg.tensor([math.nan, 0.0, 2.0]), 0).item() == 2.0
    assert tg.norm(tg.diag(tg.tensor([3.0, 4.0])), "nuc").item() == pytest.approx(7.0)
    with pytest.raises(RuntimeError, match="two dimensions"):
        tg.norm(tg.ones(3), "nuc")
    with pytest.raises(RuntimeError, match="two dimensions"):
        tg.linalg.norm(tg.ones(3, 3), "fro", 0)
    with pytest.raises(RuntimeError, match="different"):
        tg.linalg.norm(tg.ones(3, 3), "fro", (0, -2))


def test_powers_of_0_have_a_gradient_of_zeros() -> None:
    x = tg.ones(2, 2, requires_grad=True)
    y = tg.matrix_power(x, 0)
    y.sum().backward()
    assert y.tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert x.grad is not None
    assert not x.grad.any()


def test_the_second_derivative_of_a_singular_determinant() -> None:
    """It is a polynomial, and exists where the inverse does not."""
    rng = np.random.default_rng(0)
    for n in (1, 2, 4):
        u, v = (np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(2))
        values = np.arange(n - 1.0, -1.0, -1.0)
        both = np.stack([u * values @ v, rng.standard_normal((n, n))])
        assert gradgradcheck(tg.det, tg.tensor(both, requires_grad=True))


def _second_derivative(x: tg.Tensor, weight: tg.Tensor) -> Any:
    """The gradient of a weighted sum of the gradient of a determinant."""
    value = tg.det(x)
    if x.is_complex():
        value = value.real * 1.3 + value.imag * 0.4
    (first,) = tg.autograd.grad(value, x, create_graph=True)
    total = (first * weight).sum()
    total = total.real if x.is_complex() else total
    return tg.autograd.grad(total, x, create_graph=True)[0]


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize(
    "values",
    [(0.0,), (1.0, 0.0), (2.0, 1.0, 0.0), (1.0, 1.0, 0.0), (0.0,) * 3, (2.0, 2.0, 0.0, 0.0)],
)
def test_derivatives_of_singular_determinants(values: tuple[float, ...], is_complex: bool) -> None:
    """The second and the third, also where singular values are equal."""
    rng = np.random.default_rng(1)
    n = len(values)

    def unitary() -> Any:
        drawn = rng.standard_normal((2, n, n))
        return np.linalg.qr(drawn[0] + 1j * drawn[1] if is_complex else drawn[0])[0]

    x = unitary() * values @ unitary()
    weight, direction = tg.tensor(unitary()), unitary()
    assert gradgradcheck(tg.det, tg.tensor(np.stack([x, unitary()]), requires_grad=True))

    def total(array: Any) -> tuple[Any, tg.Tensor]:
        leaf = tg.tensor(array, requires_grad=True)
        second = _second_derivative(leaf, weight)
        return (second.real if is_complex else second).triu().sum(), leaf

    at, leaf = total(x)
    third = tg.autograd.grad(at, leaf, allow_unused=True, materialize_grads=True)[0]
    slope = (total(x + 1e-5 * direction)[0] - total(x - 1e-5 * direction)[0]).item() / 2e-5
    assert abs(np.vdot(third.numpy(), direction).real - slope) < 1e-3


def test_second_derivatives_of_determinants_inside_of_vmap() -> None:
    x = tg.tensor([[[2.0, 1.0], [0.5, 3.0]], [[1.0, 0.0], [0.0, 4.0]]], dtype=tg.float64)
    whole = tg.vmap(tg.func.hessian(tg.det))(x)
    tg.testing.assert_close(whole[0], tg.func.hessian(tg.det)(x[0]))


@pytest.mark.parametrize("size", [1, 400])
def test_outer_keeps_the_sign_of_zero(size: int) -> None:
    zero, minus = tg.zeros(size), -tg.zeros(size)
    assert tg.signbit(tg.outer(zero, minus)).all()
    assert not tg.signbit(tg.outer(minus, minus)).any()
