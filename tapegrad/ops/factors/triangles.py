"""Triangular systems and Cholesky factors.

BLAS and LAPACK are called through SciPy, for one matrix at a time. A system with a zero on its
diagonal gives infinities, as in PyTorch; only a factorization that fails raises an error.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...core.batch_rules import leading
from ...core.complexes import OWN
from ...core.primitive import MIXED_SIZE, OPAQUE, Primitive, define
from ..checks import checked
from ..elementwise import comparison as c
from ..linalg.diagonals import tril_, triu_
from ..linalg.matmul import matmul_
from ..linalg.matrices import LinAlgError, adjoint, check_matrix, on_host, transposed
from ..precision import check_same_dtype
from ..ranges import arange, eye
from ..shape.expanding import expand_
from ..shape.reshaping import reshape_
from ..table import In, Sample, op
from .spectra import SYMMETRIC, SYMMETRIC_PAIR, L

if TYPE_CHECKING:
    from ...core.tensor import Tensor

LOWER = In(values=[[1.5, 0.0, 0.0], [0.4, 1.2, 0.0], [-0.3, 0.2, 1.8]])
UPPER_PAIR = In(values=[[[1.5, 0.5], [0.0, 2.0]], [[1.0, -0.4], [0.0, 1.2]]])


def matrices(*arrays: Any) -> Any:
    """An iterator over tuples with one matrix from each of several batches."""
    lead = arrays[0].shape[:-2]
    flat = [a.reshape((math.prod(lead), *a.shape[len(lead) :])) for a in arrays]
    return zip(*flat, strict=True)


def stacked(parts: list[Any], lead: tuple[int, ...], like: tuple[int, ...], dtype: Any) -> Any:
    """Results of single matrices as a batch; `like` is the shape of one result."""
    out = np.empty((len(parts), *like), dtype)
    for i, part in enumerate(parts):
        out[i] = part
    return out.reshape((*lead, *like))


# -- triangular systems ------------------------------------------------------------------------


@on_host
def _solve_triangular(x: Any, y: Any, *, upper: bool, unit: bool) -> Any:
    if not y.size:
        return y.copy()
    from scipy.linalg import get_blas_funcs

    (solve,) = get_blas_funcs(("trsm",), (x, y))
    done = [solve(1.0, a, b, lower=not upper, diag=unit) for a, b in matrices(x, y)]
    return stacked(done, y.shape[:-2], y.shape[-2:], y.dtype)


def _solve_triangular_gradient(
    g: Any, x: Any, out: Any, upper: bool, unit: bool, needs: Any
) -> tuple[Any, Any]:
    right = solve_triangular_(adjoint(x), g, upper=not upper, unit=unit)
    if not needs[0]:
        return None, right
    left = matmul_(right, adjoint(out))
    return -(triu_(left, k=int(unit)) if upper else tril_(left, k=-int(unit))), right


solve_triangular_: Primitive = define(
    "solve_triangular",
    _solve_triangular,
    kind=OPAQUE,
    inputs=("x", "y"),
    joint=_solve_triangular_gradient,
    abstract=lambda x, y, **params: y,
    batch=leading,
    complex=OWN,
)


def broadcast(*tensors: Any) -> list[Any]:
    """Matrices expanded to common leading dimensions."""
    lead = np.broadcast_shapes(*[x._array.shape[:-2] for x in tensors])
    return [
        x if x._array.shape[:-2] == lead else expand_(x, shape=(*lead, *tuple(x._array.shape[-2:])))
        for x in tensors
    ]


@op(
    module=L,
    half=False,
    samples=lambda: [
        Sample(LOWER, (3, 2), upper=False),
        Sample(UPPER_PAIR, (2, 1), upper=True),
        Sample(UPPER_PAIR, (3, 2), upper=True, left=False),
        Sample(LOWER, (2, 3, 2), upper=False, unitriangular=True),
    ],
)
def solve_triangular(
    A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Any:
    """The X of A @ X = B (or with `left=False` of X @ A = B) for a triangular A.

    The other triangle of A is not read; with `unitriangular` its diagonal is taken as ones.

    >>> import tapegrad
    >>> a = tapegrad.tensor([[2.0, 0.0], [1.0, 4.0]])
    >>> tapegrad.linalg.solve_triangular(a, tapegrad.tensor([[2.0], [5.0]]), upper=False)
    tensor([[1.],
            [1.]])
    """
    what = "linalg.solve_triangular"
    check_matrix(what, A, square=True)
    check_matrix(what, B)
    check_same_dtype(what, A, B=B)
    rows = B._array.shape[-2 if left else -1]
    if rows != A._array.shape[-1]:
        raise RuntimeError(
            f"{what}: A of shape {tuple(A.shape)} and B of shape {tuple(B.shape)} do not fit"
        )
    if not left:
        turned = solve_triangular(
            transposed(A), transposed(B), upper=not upper, unitriangular=unitriangular
        )
        return transposed(turned)
    a, b = broadcast(A, B)
    return solve_triangular_(a, b, upper=bool(upper), unit=bool(unitriangular))


class TriangularSolution(NamedTuple):
    """The solution, and the matrix of the system."""

    solution: Tensor
    cloned_coefficient: Tensor


@op(
    half=False,
    autocast={"cpu": "full"},
    samples=lambda: [
        Sample((3, 2), LOWER, upper=False),
        Sample((2, 1), UPPER_PAIR, True, True),
        Sample((2, 2), UPPER_PAIR, unitriangular=True),
    ],
)
def triangular_solve(
    input: Tensor,
    A: Tensor,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> TriangularSolution:
    """The X of A @ X = input, and A; PyTorch's older name of `linalg.solve_triangular`.

    >>> import tapegrad
    >>> a = tapegrad.tensor([[2.0, 0.0], [1.0, 4.0]])
    >>> tapegrad.triangular_solve(tapegrad.tensor([[2.0], [5.0]]), a, upper=False).solution
    tensor([[1.],
            [1.]])
    """
    check_matrix("triangular_solve", A, square=True)
    check_matrix("triangular_solve", input)
    a, b = broadcast(A, input)
    turned = transposed(a) if transpose else a
    options = {"upper": bool(upper) != bool(transpose), "unitriangular": unitriangular}
    return TriangularSolution(solve_triangular(turned, b, **options), a.clone())


# -- Cholesky factors --------------------------------------------------------------------------


@on_host
def _cholesky(x: Any, *, upper: bool) -> Any:
    """The factors, and for each matrix 0 or the order of the first minor that is not positive."""
    info = np.zeros(x.shape[:-2], np.int32)
    try:
        return np.linalg.cholesky(x, upper=upper), info
    except np.linalg.LinAlgError:
        pass
    from scipy.linalg import get_lapack_funcs

    (factor,) = get_lapack_funcs(("potrf",), (x,))
    done = [factor(a, lower=not upper, clean=True) for (a,) in matrices(x)]
    info.reshape(-1)[...] = [number for _, number in done]
    return stacked([out for out, _ in done], x.shape[:-2], x.shape[-2:], x.dtype), info


def _cholesky_gradient(g: Any, L: Any, upper: bool) -> tuple[Any]:
    """L'^-1 P L^-1, made symmetric; P is the lower triangle of L'G with half of its diagonal."""
    g = g[0]
    lower, g = (adjoint(L), adjoint(g)) if upper else (L, g)
    inner = matmul_(adjoint(lower), g)
    half = (tril_(inner, k=0) + tril_(inner, k=-1)) * 0.5
    left = solve_triangular_(adjoint(lower), half, upper=True, unit=False)
    whole = adjoint(solve_triangular_(adjoint(lower), adjoint(left), upper=True, unit=False))
    return ((whole + adjoint(whole)) * 0.5,)


cholesky_: Primitive = define(
    "cholesky",
    _cholesky,
    kind=OPAQUE,
    inputs=("x",),
    outputs=("L", "info"),
    joint=_cholesky_gradient,
    abstract=lambda x, *, upper: (x, (x[0][:-2], np.dtype(np.int32))),
    batch=leading,
    complex=OWN,
)


class FactorWithInfo(NamedTuple):
    """The factor L, and for each matrix 0 or the order of the first minor that is not positive."""

    L: Tensor
    info: Tensor


def verified(out: Any, info: Any, message: str) -> Any:
    """`out`, or a LinAlgError if `info` is not all 0; `{}` in its message is the number found."""
    ones = (1,) * (out._array.ndim - info._array.ndim)
    spread = reshape_(info, shape=(*tuple(info._array.shape), *ones))
    return checked(out, spread, low=0, high=0, message=message, error=LinAlgError)


_NOT_POSITIVE = (
    "linalg.cholesky needs a positive definite matrix; the first {} rows and columns are not one"
)


def _factor(what: str, A: Any, upper: bool, check: bool) -> tuple[Any, Any]:
    check_matrix(what, A, square=True)
    out, info = cholesky_(A, upper=bool(upper))
    return (verified(out, info, _NOT_POSITIVE) if check else out), info


@op(
    module=L,
    half=False,
    autocast={"cpu": "full"},
    moves="symmetric",
    samples=lambda: [Sample(SYMMETRIC), Sample(SYMMETRIC_PAIR, upper=True)],
)
def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False) -> FactorWithInfo:
    """The Cholesky factor of matrices, and `info`, which is 0 where the factor exists.

    A matrix that is not positive definite raises an error only with `check_errors`.

    >>> import tapegrad
    >>> tapegrad.linalg.cholesky_ex(tapegrad.tensor([[4.0, 2.0], [2.0, 0.0]])).info
    tensor(2, dtype=tapegrad.int32)
    """
    return FactorWithInfo(*_factor("linalg.cholesky_ex", A, upper, check_errors))


@op(
    casts=True,
    module=L,
    half=False,
    moves="symmetric",
    samples=lambda: [Sample(SYMMETRIC), Sample(SYMMETRIC_PAIR), Sample(SYMMETRIC, upper=True)],
    autocast={"cpu": "full"},
)
def cholesky(A: Tensor, *, upper: bool = False) -> Any:
    """The lower triangular L with L @ L.T = A, for symmetric positive definite matrices A.

    With `upper=True`, the upper triangular U with U.T @ U = A. Only that triangle of A is read.

    >>> import tapegrad
    >>> tapegrad.linalg.cholesky(tapegrad.tensor([[4.0, 2.0], [2.0, 5.0]]))
    tensor([[2., 0.],
            [1., 2.]])
    """
    return _factor("linalg.cholesky", A, upper, True)[0]


@op(
    "cholesky",
    half=False,
    moves="symmetric",
    samples=lambda: [Sample(SYMMETRIC), Sample(SYMMETRIC, True)],
    autocast={"cpu": "full"},
)
def _older_cholesky(input: Tensor, upper: bool = False) -> Any:
    """The lower triangular L with L @ L.T = input; see `linalg.cholesky`.

    >>> import tapegrad
    >>> tapegrad.cholesky(tapegrad.tensor([[4.0, 2.0], [2.0, 5.0]]))
    tensor([[2., 0.],
            [1., 2.]])
    """
    return _factor("cholesky", input, upper, True)[0]


# As in PyTorch, the triangle of the factor that is not read gets a gradient too.


def _cholesky_solve(x: Any, y: Any) -> Any:
    half = solve_triangular_(x, y, upper=False, unit=False)
    return solve_triangular_(adjoint(x), half, upper=True, unit=False)


def _cholesky_solve_gradient(g: Any, x: Any, out: Any, needs: Any) -> tuple[Any, Any]:
    right = cholesky_solve_(x, g)
    if not needs[0]:
        return None, right
    product = matmul_(right, adjoint(out))
    return -matmul_(product + adjoint(product), x), right


cholesky_solve_: Primitive = define(
    "cholesky_solve",
    _cholesky_solve,
    kind=OPAQUE,
    composite=True,
    native_size=MIXED_SIZE,
    joint=_cholesky_solve_gradient,
    abstract=lambda x, y: y,
    batch=leading,
    complex=OWN,
)


@op(
    casts=True,
    half=False,
    autocast={"cpu": "full"},
    moves="nonzero",
    samples=lambda: [
        Sample((3, 2), LOWER),
        Sample((2, 2), UPPER_PAIR, True),
        Sample((2, 3, 1), LOWER),
    ],
)
def cholesky_solve(B: Tensor, L: Tensor, upper: bool = False) -> Any:
    """The X of A @ X = B, given the Cholesky factor L of A.

    >>> import tapegrad
    >>> factor = tapegrad.tensor([[2.0, 0.0], [1.0, 2.0]])
    >>> tapegrad.cholesky_solve(tapegrad.tensor([[4.0], [2.0]]), factor)
    tensor([[1.],
            [0.]])
    """
    check_matrix("cholesky_solve", L, square=True)
    check_matrix("cholesky_solve", B)
    check_same_dtype("cholesky_solve", B, L=L)
    if B._array.shape[-2] != L._array.shape[-1]:
        raise RuntimeError(
            f"cholesky_solve: B of shape {tuple(B.shape)} and L of shape {tuple(L.shape)} do not "
            "fit"
        )
    factor, b = broadcast(L, B)
    return cholesky_solve_(adjoint(factor) if upper else factor, b)


@op(
    casts=True,
    half=False,
    autocast={"cpu": "full"},
    moves="nonzero",
    samples=lambda: [Sample(LOWER), Sample(UPPER_PAIR, True)],
)
def cholesky_inverse(L: Tensor, upper: bool = False) -> Any:
    """The inverse of a matrix, given its Cholesky factor L.

    >>> import tapegrad
    >>> tapegrad.cholesky_inverse(tapegrad.tensor([[2.0, 0.0], [0.0, 4.0]]))
    tensor([[0.2500, 0.0000],
            [0.0000, 0.0625]])
    """
    check_matrix("cholesky_inverse", L, square=True)
    lower = adjoint(L) if upper else L
    n = L._array.shape[-1]
    zeros = c.where(
        c.equal(lower.diagonal(0, -2, -1).detach(), 0), arange(1, n + 1, device=L.device), 0
    )
    message = "cholesky_inverse: the diagonal element {} is zero, counted from 1"
    lower = checked(lower, zeros.unsqueeze(-2), low=0, high=0, message=message, error=LinAlgError)
    return cholesky_solve_(lower, identity_like(lower))


def identity_like(x: Any) -> Any:
    """Identity matrices with the shape, dtype and device of `x`."""
    n = x._array.shape[-1]
    one = eye(n, dtype=x.dtype, device=x.device)
    return expand_(one, shape=tuple(x._array.shape))
