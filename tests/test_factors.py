"""Decompositions of matrices: what they satisfy, gradients, bad matrices, empty ones, batches."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import Tensor, linalg
from tapegrad.testing import gradcheck, gradgradcheck


def matrices(*shape: int, seed: int = 0) -> Tensor:
    rng = np.random.default_rng(seed)
    return tg.tensor(rng.standard_normal(shape), requires_grad=True)


def close(got: Any, expected: Any, tolerance: float = 1e-10) -> None:
    got = got.detach().numpy() if isinstance(got, Tensor) else got
    expected = expected.detach().numpy() if isinstance(expected, Tensor) else expected
    np.testing.assert_allclose(got, expected, atol=tolerance)


def symmetric(x: Tensor) -> Tensor:
    return (x + x.mT) / 2


def positive(x: Tensor) -> Tensor:
    n = x.shape[-2]
    return x @ x.mT / n + tg.eye(n, dtype=x.dtype)


# -- what they satisfy -------------------------------------------------------------------------

SHAPES = [(3, 3), (5, 2), (2, 5), (2, 3, 4, 3), (1, 1), (3, 1, 4)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_parts_give_the_matrix(shape: tuple[int, ...]) -> None:
    x = matrices(*shape)
    u, s, vh = linalg.svd(x, full_matrices=False)
    close((u * s.unsqueeze(-2)) @ vh, x)
    close(linalg.svdvals(x), s)
    full = linalg.svd(x)
    assert full.U.shape == (*shape[:-1], shape[-2])
    assert full.Vh.shape == (*shape[:-2], shape[-1], shape[-1])
    close(full.U.mT @ full.U, np.broadcast_to(np.eye(shape[-2]), full.U.shape))
    q, r = linalg.qr(x)
    close(q @ r, x)
    close(r, r.triu())
    close(linalg.qr(x, "r").R, r)
    whole = linalg.qr(x, "complete")
    close(whole.Q @ whole.R, x)
    p, lower, upper = linalg.lu(x)
    close(p @ lower @ upper, x)
    close(x @ linalg.pinv(x) @ x, x)
    older = tg.svd(x)
    close((older.U * older.S.unsqueeze(-2)) @ older.V.mT, x)


@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 4)], ids=str)
def test_square_matrices(shape: tuple[int, ...]) -> None:
    x = matrices(*shape)
    a, b = positive(x), matrices(*shape[:-1], 2, seed=1)
    values, vectors = linalg.eigh(a)
    close(a @ vectors, vectors * values.unsqueeze(-2))
    close(linalg.eigvalsh(a, "U"), values)
    factor = linalg.cholesky(a)
    close(factor @ factor.mT, a)
    solution = linalg.solve(a, b)
    close(a @ solution, b)
    close(tg.cholesky_solve(b, factor), solution)
    close(tg.cholesky_solve(b, factor.mT, upper=True), solution)
    close(tg.cholesky_inverse(factor), linalg.inv(a))
    close(linalg.lu_solve(*linalg.lu_factor(x), b), linalg.solve(x, b), 1e-9)
    close(linalg.lu_solve(*linalg.lu_factor(x), b, adjoint=True), linalg.solve(x.mT, b), 1e-9)
    close(
        linalg.lu_solve(*linalg.lu_factor(x), b.mT, left=False),
        linalg.solve(x, b.mT, left=False),
        1e-9,
    )
    close(linalg.ldl_solve(*linalg.ldl_factor(a.detach()), b.detach()), solution)
    close(linalg.lstsq(x, b).solution, linalg.solve(x, b), 1e-9)
    close(linalg.solve_triangular(factor, b, upper=False), linalg.solve(factor, b))


def test_reflections_make_up_q() -> None:
    x = matrices(2, 4, 3)
    a, tau = tg.geqrf(x.detach())
    q = linalg.householder_product(a, tau)
    close(q, linalg.qr(x).Q)
    b = matrices(2, 4, 2, seed=1)
    whole = linalg.qr(x, "complete").Q
    close(tg.ormqr(a, tau, b), whole @ b)
    close(tg.ormqr(a, tau, b, transpose=True), whole.mT @ b)
    close(tg.ormqr(a, tau, b.mT, left=False), b.mT @ whole)
    close(tg.ormqr(a, tau, b.mT, False, True), b.mT @ whole.mT)
    close(tg.orgqr(a, tau), q)


def test_one_triangle_is_read() -> None:
    a = tg.tensor([[2.0, 9.0], [1.0, 3.0]])
    below, above = tg.tensor([[2.0, 1.0], [1.0, 3.0]]), tg.tensor([[2.0, 9.0], [9.0, 3.0]])
    close(linalg.eigvalsh(a), linalg.eigvalsh(below), 1e-6)
    close(linalg.eigvalsh(a, UPLO="U"), linalg.eigvalsh(above), 1e-6)
    close(linalg.cholesky(a), linalg.cholesky(below), 1e-6)
    lower = tg.tensor([[2.0, 5.0], [1.0, 4.0]])
    close(linalg.solve_triangular(lower, tg.ones(2, 1), upper=False), [[0.5], [0.125]], 1e-6)
    close(
        linalg.solve_triangular(lower, tg.ones(2, 1), upper=False, unitriangular=True),
        [[1.0], [0.0]],
        1e-6,
    )


def test_ranks_and_tolerances() -> None:
    x = tg.diag(tg.tensor([4.0, 2.0, 1e-9, 0.0]))
    assert linalg.matrix_rank(x).item() == 2
    assert linalg.matrix_rank(x, 3).item() == 1
    assert linalg.matrix_rank(x, atol=0.0, rtol=0.0).item() == 3
    assert linalg.matrix_rank(x, hermitian=True, rtol=0.6).item() == 1
    pair = tg.stack([x, x])
    assert linalg.matrix_rank(pair, atol=tg.tensor([1.0, 3.0])).tolist() == [2, 1]
    close(linalg.pinv(x).diag(), [0.25, 0.5, 0.0, 0.0], 1e-6)
    close(linalg.pinv(x, rtol=0.6).diag(), [0.25, 0.0, 0.0, 0.0], 1e-6)
    close(linalg.pinv(x, hermitian=True).diag(), [0.25, 0.5, 0.0, 0.0], 1e-6)
    assert linalg.cond(x, 1).item() == math.inf
    assert linalg.cond(tg.diag(tg.tensor([4.0, 2.0]))).item() == 2.0
    assert linalg.cond(tg.diag(tg.tensor([4.0, 2.0])), -2).item() == 0.5


def test_least_squares_says_what_its_driver_knows() -> None:
    a, b = matrices(4, 2), matrices(4, 3, seed=1)
    for driver in ("gels", "gelsy", "gelsd", "gelss"):
        found = linalg.lstsq(a, b, driver=driver)
        close(found.solution, np.linalg.lstsq(a.detach().numpy(), b.detach().numpy())[0])
        assert (found.residuals.numel() > 0) == (driver != "gelsy")
        assert (found.rank.numel() > 0) == (driver != "gels")
        assert (found.singular_values.numel() > 0) == (driver in ("gelsd", "gelss"))
    assert linalg.lstsq(a, b[:, 0]).solution.shape == (2,)


def test_low_ranks() -> None:
    tg.manual_seed(0)
    x = matrices(6, 2) @ matrices(2, 5, seed=1)
    for y in (x, x.mT, tg.stack([x, 2 * x])):
        u, s, v = tg.svd_lowrank(y, q=2)
        close((u * s.unsqueeze(-2)) @ v.mT, y)
    u, s, v = tg.pca_lowrank(x, q=3)
    centred = x - x.mean(0, keepdim=True)
    close((u * s) @ v.mT, centred)
    a, b = positive(matrices(4, 4)), positive(matrices(4, 4, seed=1))
    values, vectors = tg.lobpcg(a, 2, b)
    close(a @ vectors, b @ vectors * values)
    assert values[0] > values[1]
    small, _ = tg.lobpcg(a, 1, largest=False)
    close(small, linalg.eigvalsh(a)[:1])


# -- gradients ---------------------------------------------------------------------------------


def invariant(u: Tensor, s: Tensor, vh: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Functions of singular vectors that do not depend on their signs."""
    return (u * u).cumsum(-1) * s.unsqueeze(-2), s, (vh * vh) * s.unsqueeze(-1)


DIFFERENTIATED: dict[str, tuple[tuple[int, ...], Callable[..., Any]]] = {
    "svd tall": ((4, 2), lambda x: invariant(*linalg.svd(x, False))),
    "svd wide": ((2, 4), lambda x: invariant(*linalg.svd(x, False))),
    "svd batch": ((2, 3, 3), lambda x: invariant(*linalg.svd(x))),
    "svd full": ((4, 2), lambda x: linalg.svd(x).S),
    "svd U alone": ((4, 2), lambda x: linalg.svd(x, False).U ** 2),
    "svd Vh alone": ((2, 4), lambda x: linalg.svd(x, False).Vh ** 2),
    "svd product": ((3, 2), lambda x: tg.svd(x).U @ tg.svd(x).V.mT),
    "eigh": ((2, 3, 3), lambda x: linalg.eigh(symmetric(x)).eigenvectors ** 2),
    "eigh values": ((3, 3), lambda x: linalg.eigh(symmetric(x)).eigenvalues),
    "eigvalsh": ((3, 3), lambda x: linalg.eigvalsh(symmetric(x))),
    "cholesky": ((2, 3, 3), lambda x: linalg.cholesky(positive(x))),
    "cholesky upper": ((3, 3), lambda x: linalg.cholesky(positive(x), upper=True)),
    "cholesky_solve": ((3, 3), lambda x: tg.cholesky_solve(x, linalg.cholesky(positive(x)))),
    "qr": ((2, 4, 3), lambda x: linalg.qr(x)),
    "qr wide": ((2, 4), lambda x: linalg.qr(x)),
    "qr R wide": ((2, 4), lambda x: linalg.qr(x).R),
    "qr Q wide": ((2, 4), lambda x: linalg.qr(x).Q),
    "qr complete": ((2, 3, 3), lambda x: linalg.qr(x, "complete")),
    "lu": ((2, 3, 3), lambda x: linalg.lu(x)[1:]),
    "lu tall": ((4, 2), lambda x: linalg.lu(x)[1:]),
    "lu wide": ((2, 4), lambda x: linalg.lu(x)[1:]),
    "lu_factor": ((4, 3), lambda x: linalg.lu_factor(x).LU),
    "lu_solve": ((3, 3), lambda x: linalg.lu_solve(*linalg.lu_factor(x), x * 2)),
    "pinv": ((2, 4, 2), lambda x: linalg.pinv(x)),
    "pinv wide": ((2, 4), lambda x: linalg.pinv(x)),
    "pinv hermitian": ((3, 3), lambda x: linalg.pinv(symmetric(x), hermitian=True)),
    "pinv of low rank": ((4, 2), lambda x: linalg.pinv(x @ x.mT, rtol=1e-6)),
    "lstsq": ((4, 2), lambda x: linalg.lstsq(x, x**2).solution),
    "lstsq wide": ((2, 4), lambda x: linalg.lstsq(x, x**2).solution),
    "lstsq residuals": ((4, 2), lambda x: linalg.lstsq(x, x**2, driver="gels")[:2]),
    "inv_ex": ((2, 2, 2), lambda x: linalg.inv_ex(x).inverse),
    "cond": ((3, 3), lambda x: linalg.cond(x, "nuc")),
    "norm 2": ((3, 2), lambda x: linalg.norm(x, 2)),
    "norm nuc": ((2, 3, 2), lambda x: linalg.matrix_norm(x, "nuc")),
    "lobpcg": ((3, 3), lambda x: tg.lobpcg(positive(x), 2, positive(x.mT))[1] ** 2),
}


@pytest.mark.parametrize("name", DIFFERENTIATED)
def test_gradients(name: str) -> None:
    shape, function = DIFFERENTIATED[name]
    x = matrices(*shape, seed=3)
    assert gradcheck(function, x)
    assert gradgradcheck(function, x, atol=1e-4)


def test_what_has_no_gradient_says_so() -> None:
    x = matrices(3, 2)
    for result, hint in (
        (tg.geqrf(x).a, "linalg.qr"),
        (linalg.qr(x, "r").R, "reduced"),
        (linalg.qr(x, "complete").Q, "reduced"),
        (linalg.ldl_factor(positive(x)).LD, "cholesky"),
    ):
        with pytest.raises(RuntimeError, match=hint):
            result.sum().backward()


# -- bad matrices ------------------------------------------------------------------------------


def test_errors_of_lapack_are_one_class() -> None:
    assert issubclass(linalg.LinAlgError, RuntimeError)
    bad = tg.tensor([[1.0, 2.0], [2.0, 4.0]])
    for function in (
        lambda: linalg.inv(bad),
        lambda: linalg.solve(bad, bad),
        lambda: linalg.cholesky(-bad),
        lambda: linalg.cholesky(tg.stack([tg.eye(2), -bad])),
        lambda: linalg.inv_ex(bad, check_errors=True),
        lambda: linalg.cholesky_ex(-bad, check_errors=True),
        lambda: linalg.lu_factor_ex(bad, check_errors=True),
        lambda: linalg.svd(bad * math.nan),
        lambda: linalg.eigh(bad * math.inf),
        lambda: tg.inverse(bad),
        lambda: linalg.tensorinv(bad.reshape(2, 2), ind=1),
    ):
        with pytest.raises(linalg.LinAlgError):
            function()


def test_info_says_where() -> None:
    good, bad = tg.eye(2), tg.tensor([[1.0, 2.0], [2.0, 4.0]])
    both = tg.stack([good, bad])
    assert linalg.inv_ex(both).info.tolist() == [0, 2]
    assert linalg.solve_ex(both, tg.ones(2, 3)).info.tolist() == [0, 2]
    assert linalg.lu_factor_ex(both).info.tolist() == [0, 2]
    assert linalg.cholesky_ex(tg.stack([good, -bad])).info.tolist() == [0, 1]
    close(linalg.inv_ex(both).inverse[0], np.eye(2), 1e-6)
    close(linalg.solve_ex(both, tg.ones(2, 3)).result[0], np.ones((2, 3)), 1e-6)
    assert linalg.inv_ex(both).info.dtype is tg.int32


def test_bad_arguments() -> None:
    x, flat = tg.ones(2, 2), tg.ones(2, 3)
    wrong: list[Callable[[], Any]] = [
        lambda: linalg.eigh(flat),
        lambda: linalg.eigh(x, "X"),
        lambda: linalg.qr(x, "full"),
        lambda: linalg.svd(tg.ones(2)),
        lambda: linalg.svd(x, driver="gesvd"),
        lambda: linalg.svd(x.long()),
        lambda: linalg.lstsq(x, tg.ones(3, 1)),
        lambda: linalg.lstsq(x, x, driver="gel"),
        lambda: linalg.lu_factor(x, pivot=False),
        lambda: linalg.lu_solve(x, tg.ones(2), x),
        lambda: linalg.solve_triangular(x, tg.ones(3, 1), upper=True),
        lambda: linalg.solve(x, x.double()),
        lambda: linalg.householder_product(tg.ones(2, 3), tg.ones(3)),
        lambda: linalg.vander(tg.ones(3), N=1),
        lambda: linalg.tensorinv(tg.ones(2, 3), ind=1),
        lambda: linalg.matrix_norm(x, "nuc", (0, 0)),
        lambda: tg.symeig(x),
        lambda: tg.lobpcg(x, 5),
        lambda: linalg.svd(x.half()),
    ]
    for function in wrong:
        with pytest.raises((RuntimeError, ValueError)):
            function()


def test_a_singular_triangle_gives_infinities() -> None:
    out = linalg.solve_triangular(tg.zeros(2, 2), tg.ones(2, 1), upper=True)
    assert not out.isfinite().all()


# -- empty matrices ----------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(0, 3, 3), (2, 0, 0), (0, 0)], ids=str)
def test_empty_square_matrices(shape: tuple[int, ...]) -> None:
    x = tg.zeros(shape, requires_grad=True)
    n, lead = shape[-1], shape[:-2]
    assert linalg.eigh(x).eigenvalues.shape == (*lead, n)
    assert linalg.cholesky(x).shape == shape
    assert linalg.inv(x).shape == shape
    assert linalg.solve(x, tg.zeros(*lead, n, 2)).shape == (*lead, n, 2)
    assert linalg.solve_triangular(x, tg.zeros(*lead, n, 2), upper=True).shape == (*lead, n, 2)
    assert linalg.lu_factor(x).pivots.shape == (*lead, n)
    assert linalg.det(x).shape == lead
    assert linalg.matrix_rank(x).shape == lead
    assert linalg.ldl_factor(x.detach()).LD.shape == shape
    assert tg.cholesky_inverse(x).shape == shape
    linalg.lu_solve(*linalg.lu_factor(x), tg.zeros(*lead, n, 2)).sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("shape", [(0, 3, 2), (2, 0, 3), (3, 0), (0, 2, 0, 1)], ids=str)
def test_empty_matrices(shape: tuple[int, ...]) -> None:
    x = tg.zeros(shape, requires_grad=True)
    *lead, m, n = shape
    k = min(m, n)
    assert linalg.svd(x, False).S.shape == (*lead, k)
    assert linalg.svd(x).U.shape == (*lead, m, m)
    assert linalg.qr(x).R.shape == (*lead, k, n)
    assert linalg.pinv(x).shape == (*lead, n, m)
    assert linalg.lu(x).L.shape == (*lead, m, k)
    assert linalg.lstsq(x, tg.zeros(*lead, m, 2)).solution.shape == (*lead, n, 2)
    assert tg.geqrf(x.detach()).tau.shape == (*lead, k)
    (linalg.svdvals(x).sum() + linalg.qr(x).Q.sum() + linalg.pinv(x).sum()).backward()


# -- compiled ----------------------------------------------------------------------------------


def test_a_compiled_function_finds_bad_matrices() -> None:
    fast = tg.compile(lambda a: linalg.cholesky(a) * 2)
    good = tg.eye(2) * 4
    for _ in range(3):
        close(fast(good), np.eye(2) * 4, 1e-6)
    with pytest.raises(linalg.LinAlgError, match="positive definite"):
        fast(-good)
    close(fast(good), np.eye(2) * 4, 1e-6)


# -- complex -----------------------------------------------------------------------------------


def complex_matrices(*shape: int) -> Tensor:
    rng = np.random.default_rng(5)
    array = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    return tg.tensor(array, requires_grad=True)


def hermitian(x: Tensor) -> Tensor:
    return (x + x.mH) / 2


def definite(x: Tensor) -> Tensor:
    return x @ x.mH + tg.eye(x.shape[-2], dtype=x.dtype)


def sizes(u: Tensor, s: Tensor, vh: Tensor) -> tuple[Tensor, ...]:
    """Functions of singular vectors that do not depend on their phases."""
    return u.abs(), s, vh.abs(), u @ vh


COMPLEX: dict[str, tuple[tuple[int, ...], Callable[..., Any]]] = {
    "inv": ((2, 2, 2), lambda x: linalg.inv(x)),
    "det": ((3, 3), lambda x: linalg.det(x)),
    "slogdet": ((3, 3), lambda x: linalg.slogdet(x)),
    "solve": ((3, 3), lambda x: linalg.solve(x, x**2)),
    "solve_triangular": ((3, 3), lambda x: linalg.solve_triangular(x, x**2, upper=True)),
    "cholesky": ((3, 3), lambda x: linalg.cholesky(definite(x))),
    "cholesky_solve": ((3, 3), lambda x: tg.cholesky_solve(x, linalg.cholesky(definite(x)))),
    "svd": ((3, 2), lambda x: sizes(*linalg.svd(x, False))),
    "svd wide": ((2, 3), lambda x: sizes(*linalg.svd(x, False))),
    "svdvals": ((3, 2), lambda x: linalg.svdvals(x)),
    "eigh": ((3, 3), lambda x: linalg.eigh(hermitian(x)).eigenvectors.abs()),
    "eigvalsh": ((3, 3), lambda x: linalg.eigvalsh(hermitian(x))),
    "eig": ((3, 3), lambda x: linalg.eig(x).eigenvectors.abs()),
    "eigvals": ((3, 3), lambda x: linalg.eigvals(x)),
    "eig of real ones": ((3, 3), lambda x: linalg.eig(x.real).eigenvectors.abs()),
    "eigvals of real ones": ((3, 3), lambda x: linalg.eigvals(x.real)),
    "qr": ((4, 3), lambda x: linalg.qr(x)),
    "qr wide": ((2, 4), lambda x: linalg.qr(x)),
    "lu": ((3, 3), lambda x: linalg.lu(x)[1:]),
    "lu wide": ((2, 4), lambda x: linalg.lu(x)[1:]),
    "lu_solve": ((3, 3), lambda x: linalg.lu_solve(*linalg.lu_factor(x), x * 2, adjoint=True)),
    "pinv": ((3, 2), lambda x: linalg.pinv(x)),
    "lstsq": ((3, 2), lambda x: linalg.lstsq(x, x**2, driver="gels")[:2]),
    "ormqr": ((3, 2), lambda x: tg.ormqr(x, x[0], x * 2, transpose=True)),
    "matrix_exp": ((2, 2), lambda x: tg.matrix_exp(x)),
    "nuclear norm": ((3, 2), lambda x: linalg.matrix_norm(x, "nuc")),
    "cond": ((3, 3), lambda x: linalg.cond(x)),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_gradients_of_complex_matrices(name: str) -> None:
    shape, function = COMPLEX[name]
    x = complex_matrices(*shape)
    assert gradcheck(function, x)
    assert gradgradcheck(function, x, atol=1e-3)


def test_a_loss_that_depends_on_phases_is_an_error() -> None:
    x = complex_matrices(3, 3)
    for vectors in (linalg.svd(x).U, linalg.eigh(hermitian(x))[1], linalg.eig(x)[1]):
        with pytest.raises(RuntimeError, match="phi"):
            vectors.sum().imag.backward()
