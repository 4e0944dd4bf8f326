"""Functional derivatives."""

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import func


def f64(*values):
    return tg.tensor(list(values), dtype=tg.float64)


def test_grad_and_value():
    x = f64(1.0, 2.0)
    value, g = func.value_and_grad(lambda v: (v**3).sum())(x)
    assert value.item() == 9
    assert g.tolist() == [3, 12]
    assert not value.requires_grad
    assert not g.requires_grad
    assert x.grad is None
    assert not x.requires_grad


def test_nesting():
    d = lambda f: func.grad(f)  # noqa: E731
    t = tg.tensor(0.3, dtype=tg.float64)
    th = np.tanh(0.3)
    assert d(d(d(tg.tanh)))(t).item() == pytest.approx(
        -2 * (1 - th**2) * (1 - 3 * th**2), abs=1e-12
    )


def test_argnums_structures_and_aux():
    def loss(params, x, scale):
        return ((x @ params["w"] + params["b"]) * scale).sum(), {"seen": x}

    params = {"w": f64(1.0, 2.0), "b": f64(0.5)}
    x = f64(3.0, 4.0)
    g, aux = func.grad(loss, has_aux=True)(params, x, 2.0)
    assert g["w"].tolist() == [6, 8]
    assert g["b"].tolist() == [2]
    assert aux["seen"] is x
    both = func.grad(lambda a, b: (a * b).sum(), argnums=(0, 1))(x, x + 1)
    assert [t.tolist() for t in both] == [[4, 5], [3, 4]]
    assert func.grad(lambda a, b: (a * b).sum(), argnums=-1)(x, x).tolist() == [3, 4]


def test_errors():
    with pytest.raises(RuntimeError, match="one number"):
        func.grad(lambda v: v * 2)(f64(1.0, 2.0))
    with pytest.raises(RuntimeError, match="int64"):
        func.grad(lambda v: v.sum())(tg.tensor([1, 2]))
    with pytest.raises(RuntimeError, match="argnums"):
        func.grad(lambda v: v.sum(), argnums=3)(f64(1.0))
    with pytest.raises(RuntimeError, match="has_aux"):
        func.grad(lambda v: v.sum(), has_aux=True)(f64(1.0))


def test_unused_inputs_give_zeros():
    assert func.grad(lambda a, b: a.sum(), argnums=1)(f64(1.0), f64(2.0)).tolist() == [0]
    assert func.grad(lambda a: tg.ones(()))(f64(1.0)).tolist() == [0]


def test_vjp_and_jvp():
    x, v = f64(1.0, 2.0), f64(1.0, -1.0)
    out, pull = func.vjp(lambda t: (t**2, t.sum()), x)
    assert out[0].tolist() == [1, 4]
    (g,) = pull((f64(1.0, 1.0), tg.tensor(10.0, dtype=tg.float64)))
    assert g.tolist() == [12, 14]
    value, tangent = func.jvp(lambda t: t**2, (x,), (v,))
    assert value.tolist() == [1, 4]
    assert tangent.tolist() == [2, -4]
    _, tangent = func.jvp(lambda a, b: a * b, (x, x), (v, v))
    assert tangent.tolist() == [2, -4]


def test_jacobians_agree():
    w = tg.randn(3, 4, dtype=tg.float64)
    f = lambda x: (x @ w).tanh()  # noqa: E731
    x = tg.randn(2, 3, dtype=tg.float64)
    a, b = func.jacrev(f)(x), func.jacfwd(f)(x)
    assert a.shape == (2, 4, 2, 3)
    assert a.allclose(b)
    two = func.jacrev(lambda a, b: a * b, argnums=(0, 1))(f64(1.0, 2.0), f64(3.0, 4.0))
    assert two[0].tolist() == [[3, 0], [0, 4]]
    nested = func.jacrev(lambda x: {"a": x**2, "b": x.sum()})(f64(1.0, 2.0))
    assert nested["a"].tolist() == [[2, 0], [0, 4]]
    assert nested["b"].tolist() == [1, 1]


def test_hessian_and_hvp():
    f = lambda x: (x[0] ** 2 * x[1]) + x[1] ** 3  # noqa: E731
    x = f64(2.0, 3.0)
    h = func.hessian(f)(x)
    assert h.tolist() == [[6, 4], [4, 18]]
    v = f64(1.0, -1.0)
    value, product = func.hvp(f, x, v)
    assert value.item() == 39
    assert product.allclose(h @ v)
    assert func.hvp(lambda t: t.sum(), x, v)[1].tolist() == [0, 0]


def test_inputs_that_require_grad_stay_connected():
    x = tg.tensor([1.0, 2.0], dtype=tg.float64, requires_grad=True)
    g = func.grad(lambda v: (v**3).sum())(x)
    (h,) = tg.autograd.grad(g.sum(), x)
    assert h.tolist() == [6, 12]


def test_derivatives_inside_of_no_grad_leave_no_history():
    w, held = f64(1.0, 2.0).requires_grad_(), f64(2.0, 2.0).requires_grad_()

    def cubes(v):
        return v**3 * held

    with tg.no_grad():
        found, value = func.grad_and_value(lambda v: cubes(v).sum())(w)
        output, pull = func.vjp(cubes, w)
        results = [
            *(found, value, output, *pull(f64(1.0, 1.0)), func.jacrev(cubes)(w)),
            *func.jvp(func.grad(lambda v: cubes(v).sum()), (w,), (f64(1.0, 1.0),)),
            tg.vmap(func.grad(lambda v: v**3 * held[0]))(w),
        ]
    assert found.tolist() == [6, 24]
    assert results[-2].tolist() == [12, 24]
    assert not any(x.requires_grad for x in results)


def test_an_outer_derivative_does_not_see_what_no_grad_hides():
    def product(v):
        with tg.no_grad():
            factor = func.grad(lambda u: (u**3).sum())(v)
        return (factor * v).sum()

    assert func.grad(product)(f64(1.0, 2.0)).tolist() == [3, 12]
    # Forward mode goes on inside of no_grad.
    assert func.jvp(product, (f64(1.0, 2.0),), (f64(1.0, 1.0),))[1].item() == 9 + 36


def test_gradients_of_cotangents():
    cotangent = f64(3.0, 4.0).requires_grad_()
    _, pull = func.vjp(lambda v: v**3, f64(1.0, 2.0))
    (found,) = pull(cotangent)
    assert tg.autograd.grad((found**2).sum(), cotangent)[0].tolist() == [54, 1152]
    with tg.no_grad():
        assert not pull(cotangent)[0].requires_grad
