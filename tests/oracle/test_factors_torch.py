"""Decompositions of real and complex matrices: values and gradients, as PyTorch computes them.

Vectors are determined up to signs or phases, so that functions of them are compared that do not
depend on these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tapegrad


def positive(t: Any, x: Any) -> Any:
    return x @ x.mH + t.eye(x.shape[-2], dtype=x.dtype)


def symmetric(x: Any) -> Any:
    return (x + x.mH) / 2


def parts(u: Any, s: Any, vh: Any) -> Any:
    return u.abs(), s, vh.abs(), u @ vh


FUNCTIONS: dict[str, tuple[tuple[int, ...], Callable[[Any, Any], Any]]] = {
    "inv": ((2, 3, 3), lambda t, x: t.linalg.inv(x)),
    "inv_ex": ((2, 3, 3), lambda t, x: t.linalg.inv_ex(x)),
    "det": ((2, 3, 3), lambda t, x: t.linalg.det(x)),
    "slogdet": ((2, 3, 3), lambda t, x: t.linalg.slogdet(x)),
    "logdet": ((2, 3, 3), lambda t, x: t.logdet(positive(t, x))),
    "solve": ((2, 3, 3), lambda t, x: t.linalg.solve(x, x * x)),
    "solve from the right": ((3, 3), lambda t, x: t.linalg.solve(x, x * x, left=False)),
    "solve_ex": ((3, 3), lambda t, x: t.linalg.solve_ex(x, x * x)),
    "solve_triangular": (
        (2, 3, 3),
        lambda t, x: t.linalg.solve_triangular(x, x * x, upper=True),
    ),
    "solve_triangular unit": (
        (3, 3),
        lambda t, x: t.linalg.solve_triangular(x, x * x, upper=False, unitriangular=True),
    ),
    "triangular_solve": ((3, 3), lambda t, x: t.triangular_solve(x * x, x, transpose=True)),
    "cholesky": ((2, 3, 3), lambda t, x: t.linalg.cholesky(positive(t, x))),
    "cholesky upper": ((3, 3), lambda t, x: t.linalg.cholesky(positive(t, x), upper=True)),
    "cholesky_ex": ((3, 3), lambda t, x: t.linalg.cholesky_ex(positive(t, x))),
    "cholesky_solve": ((3, 3), lambda t, x: t.cholesky_solve(x, t.cholesky(positive(t, x)))),
    "cholesky_inverse": ((3, 3), lambda t, x: t.cholesky_inverse(t.cholesky(positive(t, x)))),
    "svd": ((4, 2), lambda t, x: parts(*t.linalg.svd(x, full_matrices=False))),
    "svd wide": ((2, 2, 4), lambda t, x: parts(*t.linalg.svd(x, full_matrices=False))),
    "svd U": ((4, 2), lambda t, x: t.linalg.svd(x, full_matrices=False).U.abs()),
    "svdvals": ((2, 4, 3), lambda t, x: t.linalg.svdvals(x)),
    "eigh": ((2, 3, 3), lambda t, x: t.linalg.eigh(symmetric(x)).eigenvectors.abs()),
    "eigvalsh": ((3, 3), lambda t, x: t.linalg.eigvalsh(symmetric(x), "U")),
    "eigvals": ((2, 3, 3), lambda t, x: t.linalg.eigvals(x).abs().sum(-1)),
    "eig": ((3, 3), lambda t, x: t.linalg.eig(x).eigenvectors.abs().sum(-1)),
    "qr": ((2, 4, 3), lambda t, x: t.linalg.qr(x)),
    "qr wide": ((2, 4), lambda t, x: t.linalg.qr(x)),
    "qr complete": ((3, 3), lambda t, x: t.linalg.qr(x, "complete")),
    "lu": ((2, 3, 3), lambda t, x: t.linalg.lu(x)),
    "lu tall": ((4, 2), lambda t, x: t.linalg.lu(x)),
    "lu wide": ((2, 4), lambda t, x: t.linalg.lu(x)),
    "lu_factor": ((2, 4, 3), lambda t, x: t.linalg.lu_factor(x)),
    "lu_solve": ((3, 3), lambda t, x: t.linalg.lu_solve(*t.linalg.lu_factor(x), x * x)),
    "lu_solve adjoint": (
        (2, 3, 3),
        lambda t, x: t.linalg.lu_solve(*t.linalg.lu_factor(x), x * x, adjoint=True),
    ),
    "lu_solve from the right": (
        (3, 3),
        lambda t, x: t.linalg.lu_solve(*t.linalg.lu_factor(x), x * x, left=False),
    ),
    "pinv": ((2, 4, 2), lambda t, x: t.linalg.pinv(x)),
    "pinv hermitian": ((3, 3), lambda t, x: t.linalg.pinv(symmetric(x), hermitian=True)),
    "lstsq": ((2, 4, 2), lambda t, x: t.linalg.lstsq(x, x * x).solution),
    "lstsq gels": ((4, 2), lambda t, x: t.linalg.lstsq(x, x * x, driver="gels")[:2]),
    "matrix_exp": ((2, 3, 3), lambda t, x: t.linalg.matrix_exp(x)),
    "matrix_power": ((3, 3), lambda t, x: t.linalg.matrix_power(x, -2)),
    "householder_product": ((4, 3), lambda t, x: t.linalg.householder_product(*geqrf(t, x))),
    "ormqr": ((4, 3), lambda t, x: t.ormqr(*geqrf(t, x), x)),
    "ormqr adjoint": ((4, 3), lambda t, x: t.ormqr(*geqrf(t, x), x, True, True)),
    "ormqr from the right": ((4, 3), lambda t, x: t.ormqr(*geqrf(t, x), x.mT, False)),
    "norm": ((3, 4), lambda t, x: t.linalg.norm(x)),
    "norm 2": ((3, 4), lambda t, x: t.linalg.norm(x, 2)),
    "norm 1": ((3, 4), lambda t, x: t.linalg.norm(x, 1)),
    "nuclear norm": ((2, 3, 4), lambda t, x: t.linalg.matrix_norm(x, "nuc")),
    "vector_norm": ((3, 4), lambda t, x: t.linalg.vector_norm(x, 3, dim=1)),
    "cond": ((3, 3), lambda t, x: t.linalg.cond(x)),
    "tensorinv": ((2, 2, 4), lambda t, x: t.linalg.tensorinv(x)),
    "tensorsolve": ((2, 2, 4), lambda t, x: t.linalg.tensorsolve(x, x[..., 0])),
    "vander": ((3, 4), lambda t, x: t.linalg.vander(x)),
    "vecdot": ((3, 4), lambda t, x: t.linalg.vecdot(x, x * x)),
    "multi_dot": ((3, 3), lambda t, x: t.linalg.multi_dot([x, x, x])),
    "cross": ((2, 3), lambda t, x: t.linalg.cross(x, x * x)),
    "ldl": (
        (3, 3),
        lambda t, x: t.linalg.ldl_solve(
            *t.linalg.ldl_factor(positive(t, x.detach()), hermitian=True),
            x.detach(),
            hermitian=True,
        ),
    ),
}


def geqrf(t: Any, x: Any) -> Any:
    return t.geqrf(x.detach())


def flat(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


@pytest.mark.parametrize("complex", [False, True], ids=["real", "complex"])
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_values_and_gradients(name: str, complex: bool) -> None:
    shape, function = FUNCTIONS[name]
    rng = np.random.default_rng(7)
    array = rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if complex else 0)
    found = []
    for t in (tapegrad, torch):
        x = t.tensor(array, requires_grad=True)
        results = flat(function(t, x))
        total = 0
        for k, y in enumerate(results):
            if y.requires_grad:
                weights = np.cos(np.arange(y.numel()) + k).reshape(tuple(y.shape))
                total = (
                    total + (y * t.tensor(weights)).sum().real
                    if y.is_complex()
                    else (total + (y * t.tensor(weights)).sum())
                )
        values = [y.detach().resolve_conj().numpy() for y in results]
        if isinstance(total, int):
            found.append((values, None))
            continue
        total.backward()
        found.append((values, x.grad.resolve_conj().numpy()))
    for a, b in zip(found[0][0], found[1][0], strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, atol=1e-9)
    if found[1][1] is not None:
        np.testing.assert_allclose(found[0][1], found[1][1], atol=1e-8)


@pytest.mark.parametrize("name", ["svd", "eigh", "eig"])
def test_losses_that_depend_on_a_phase(name: str) -> None:
    rng = np.random.default_rng(0)
    array = rng.standard_normal((3, 3)) + 1j * rng.standard_normal((3, 3))
    for t in (tapegrad, torch):
        x = t.tensor(array, requires_grad=True)
        vectors = getattr(t.linalg, name)(x)[0 if name == "svd" else 1]
        with pytest.raises(RuntimeError, match=r"phase|phi"):
            vectors.sum().imag.backward()
