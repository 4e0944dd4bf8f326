"""LU and LDL factors of matrices, to solve several systems with one factorization.

Pivots of LU count from 1, as in LAPACK and PyTorch: row i was exchanged with row pivots[i] - 1.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...core import numeric
from ...core.batch_rules import leading
from ...core.complexes import OWN
from ...core.primitive import OPAQUE, Primitive, define
from ..checks import checked
from ..families import without_gradient
from ..index.gather import gather_
from ..linalg.diagonals import tril_, triu_
from ..linalg.matmul import matmul_
from ..linalg.matrices import adjoint, check_matrix, on_host
from ..precision import check_same_dtype
from ..ranges import eye
from ..shape.expanding import expand_
from ..shape.joining import cat_
from ..shape.reshaping import reshape_
from ..table import In, Sample, op
from .orthogonal import part
from .spectra import SQUARES, SYMMETRIC, SYMMETRIC_PAIR, TALL, WIDE, L
from .triangles import (
    broadcast,
    matrices,
    solve_triangular_,
    stacked,
    verified,
)

if TYPE_CHECKING:
    from ...core.tensor import Tensor

# -- permutations ------------------------------------------------------------------------------


@on_host
def _rows_of_pivots(pivots: Any, *, size: int, inverse: bool) -> Any:
    """The row that the exchanges move to each position; with `inverse` the position of each row."""
    flat = pivots.reshape((math.prod(pivots.shape[:-1]), pivots.shape[-1]))
    out = np.empty((len(flat), size), np.int64)
    for row, exchanged in zip(out, flat, strict=True):
        order = np.arange(size)
        for i, j in enumerate(exchanged - 1):
            order[[i, j]] = order[[j, i]]
        row[:] = np.argsort(order) if inverse else order
    return out.reshape(*pivots.shape[:-1], size)


pivot_rows_: Primitive = define(
    "pivot_rows",
    _rows_of_pivots,
    kind=OPAQUE,
    inputs=("pivots",),
    abstract=lambda pivots, *, size, inverse: ((*pivots[0][:-1], size), np.dtype(np.int64)),
    batch=leading,
    complex=OWN,
)


def permuted(x: Any, pivots: Any, inverse: bool) -> Any:
    """Matrices with their rows exchanged by the pivots; `inverse` undoes the exchanges."""
    order = pivot_rows_(pivots, size=x.shape[-2], inverse=inverse)
    index = expand_(reshape_(order, shape=(*order.shape, 1)), shape=tuple(x.shape))
    return gather_(x, index, dim=len(x.shape) - 2)


# -- LU ----------------------------------------------------------------------------------------


@on_host
def _lu_factor(x: Any) -> Any:
    from scipy.linalg import get_lapack_funcs

    *lead, m, n = x.shape
    k = min(m, n)
    if not x.size:
        empty = np.broadcast_to(np.arange(1, k + 1, dtype=np.int32), (*lead, k)).copy()
        return x.copy(), empty, np.zeros(lead, np.int32)
    (factor,) = get_lapack_funcs(("getrf",), (x,))
    done = [factor(a) for (a,) in matrices(x)]
    factors = stacked([lu for lu, _, _ in done], tuple(lead), (m, n), x.dtype)
    pivots = stacked([p + 1 for _, p, _ in done], tuple(lead), (k,), np.int32)
    return factors, pivots, stacked([info for _, _, info in done], tuple(lead), (), np.int32)


def _lower(lu: Any, k: int) -> Any:
    """L of m rows and k columns, without its unit diagonal."""
    return tril_(part(lu, columns=(0, k, 1)), k=-1)


def _lu_gradient(g: Any, LU: Any, pivots: Any) -> tuple[Any]:
    """P L'^-1 (tril(L' g_L) + triu(g_U U')) U'^-1 of the square part; systems give the rest."""
    g = g[0]
    m, n = LU.shape[-2:]
    k = min(m, n)
    square = LU if m == n else part(LU, rows=(0, k, 1), columns=(0, k, 1))
    own = g if m == n else part(g, rows=(0, k, 1), columns=(0, k, 1))
    g_lower, g_upper = tril_(own, k=-1), triu_(own, k=0)
    rest = None
    if m > n:  # rows below the square part: A2 = L2 U
        low, g_low = (part(x, rows=(k, m, 1)) for x in (LU, g))
        rest = adjoint(solve_triangular_(square, adjoint(g_low), upper=True, unit=False))
        g_upper = g_upper - triu_(matmul_(adjoint(low), rest), k=0)
    elif n > m:  # columns right of it: A2 = L U2
        right, g_right = (part(x, columns=(k, n, 1)) for x in (LU, g))
        rest = solve_triangular_(adjoint(square), g_right, upper=True, unit=True)
        g_lower = g_lower - tril_(matmul_(rest, adjoint(right)), k=-1)
    # L' g_L, where L has a unit diagonal, which gets no gradient
    along = matmul_(adjoint(tril_(square, k=-1)), g_lower) + g_lower
    inner = tril_(along, k=-1) + triu_(matmul_(g_upper, adjoint(triu_(square, k=0))), k=0)
    left = solve_triangular_(adjoint(square), inner, upper=True, unit=True)
    out = adjoint(solve_triangular_(square, adjoint(left), upper=True, unit=False))
    if rest is not None:
        out = cat_(out, rest, dim=len(LU.shape) - (2 if m > n else 1))
    return (permuted(out, pivots, inverse=True),)


lu_factor_: Primitive = define(
    "lu_factor",
    _lu_factor,
    kind=OPAQUE,
    inputs=("x",),
    outputs=("LU", "pivots", "info"),
    joint=_lu_gradient,
    abstract=lambda x: (
        x,
        ((*x[0][:-2], min(x[0][-2:])), np.dtype(np.int32)),
        (x[0][:-2], np.dtype(np.int32)),
    ),
    batch=leading,
    complex=OWN,
)


class LUFactors(NamedTuple):
    """L below the diagonal (its own diagonal is ones), U on and above it; and the pivots."""

    LU: Tensor
    pivots: Tensor


class LUFactorsWithInfo(NamedTuple):
    """LU factors and pivots; and for each matrix 0, or where U's diagonal is 0, counted from 1."""

    LU: Tensor
    pivots: Tensor
    info: Tensor


class LUParts(NamedTuple):
    """A permutation P, a lower triangular L and an upper triangular U: A = P @ L @ U."""

    P: Tensor
    L: Tensor
    U: Tensor


def _factors(what: str, A: Any, pivot: bool) -> tuple[Any, Any, Any]:
    check_matrix(what, A)
    if not pivot:
        raise RuntimeError(f"{what}: factors without pivots are not computed on the CPU")
    out: tuple[Any, Any, Any] = lu_factor_(A)
    return out


def _factor_samples() -> list[Sample]:
    return [Sample(SQUARES), Sample(TALL), Sample(WIDE)]


@op(module=L, half=False, samples=_factor_samples)
def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> LUFactorsWithInfo:
    """LU factors of matrices in one tensor, the pivots, and whether U has a zero on its diagonal.

    >>> import tapegrad
    >>> lu, pivots, info = tapegrad.linalg.lu_factor_ex(tapegrad.tensor([[0.0, 2.0], [3.0, 4.0]]))
    >>> pivots, info
    (tensor([2, 2], dtype=tapegrad.int32), tensor(0, dtype=tapegrad.int32))
    """
    lu, pivots, info = _factors("linalg.lu_factor_ex", A, pivot)
    if check_errors:
        lu = verified(
            lu, info, "linalg.lu_factor_ex: number {} of U's diagonal is zero, counted from 1"
        )
    return LUFactorsWithInfo(lu, pivots, info)


@op(module=L, half=False, samples=_factor_samples)
def lu_factor(A: Tensor, *, pivot: bool = True) -> LUFactors:
    """LU factors of matrices in one tensor, and the pivots, for `lu_solve`.

    >>> import tapegrad
    >>> a = tapegrad.tensor([[0.0, 2.0], [3.0, 4.0]])
    >>> tapegrad.linalg.lu_solve(*tapegrad.linalg.lu_factor(a), tapegrad.tensor([[2.0], [7.0]]))
    tensor([[1.],
            [1.]])
    """
    lu, pivots, _ = _factors("linalg.lu_factor", A, pivot)
    return LUFactors(lu, pivots)


def _unpacked(lu: Any, pivots: Any, data: bool, permutation: bool) -> LUParts:
    *lead, m, n = lu._array.shape
    k = min(m, n)
    empty = lu.new_empty((0,))
    lower, upper, p = empty, empty, empty
    if data:
        lower = _lower(lu, k) + _ones_on_diagonal(lu, m, k)
        upper = triu_(part(lu, rows=(0, k, 1)), k=0)
    if permutation:
        square = expand_(_ones_on_diagonal(lu, m, m), shape=(*lead, m, m))
        p = permuted(square, pivots, inverse=True)
    return LUParts(p, lower, upper)


def _ones_on_diagonal(like: Any, rows: int, columns: int) -> Any:
    return eye(rows, columns, dtype=like.dtype, device=like.device)


@op(
    module=L,
    half=False,
    samples=lambda: [Sample(SQUARES), Sample(TALL), Sample(WIDE)],
)
def lu(A: Tensor, *, pivot: bool = True) -> LUParts:
    """The LU decomposition of matrices (..., m, n): A = P @ L @ U with a permutation P.

    >>> import tapegrad
    >>> p, l, u = tapegrad.linalg.lu(tapegrad.tensor([[0.0, 2.0], [3.0, 4.0]]))
    >>> u
    tensor([[3., 4.],
            [0., 2.]])
    """
    factors, pivots, _ = _factors("linalg.lu", A, pivot)
    return _unpacked(factors, pivots, True, True)


@op(
    method=False,
    samples=lambda: [
        Sample(SQUARES, In(values=[[1, 2], [2, 2]], kind="int32")),
        Sample(TALL, In(values=[2, 2], kind="int32")),
    ],
)
def lu_unpack(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> LUParts:
    """P, L and U from the result of `linalg.lu_factor`; those not requested are empty.

    >>> import tapegrad
    >>> a = tapegrad.tensor([[0.0, 2.0], [3.0, 4.0]])
    >>> tapegrad.lu_unpack(*tapegrad.linalg.lu_factor(a)).P
    tensor([[0., 1.],
            [1., 0.]])
    """
    pivots = _checked_pivots("lu_unpack", LU_data, LU_pivots) if unpack_pivots else LU_pivots
    return _unpacked(LU_data, pivots, bool(unpack_data), bool(unpack_pivots))


turned = adjoint  # for `lu_solve`, which has a parameter of that name


def _checked_pivots(what: str, lu: Any, pivots: Any) -> Any:
    """The pivots, checked to be int32 and rows of the factors, counted from 1."""
    if pivots._array.dtype != np.int32:
        raise RuntimeError(f"{what} needs pivots of int32, got {pivots.dtype}")
    rows = lu._array.shape[-2]
    message = f"{what}: pivots lie between 1 and the {rows} rows of the factors, got {{}}"
    return checked(pivots, low=1, high=rows, message=message)


def _check_pivots(what: str, lu: Any, pivots: Any) -> Any:
    check_matrix(what, lu, square=True)
    if tuple(pivots._array.shape) != tuple(lu._array.shape[:-1]):
        raise RuntimeError(
            f"{what}: pivots of shape {tuple(pivots.shape)} do not fit factors of shape "
            f"{tuple(lu.shape)}"
        )
    return _checked_pivots(what, lu, pivots)


@op(
    module=L,
    half=False,
    samples=lambda: [
        Sample(SQUARES, In(values=[[1, 2], [2, 2]], kind="int32"), (2, 3)),
        Sample(SQUARES, In(values=[[1, 2], [2, 2]], kind="int32"), (2, 2, 1), adjoint=True),
        Sample(SQUARES, In(values=[[1, 2], [2, 2]], kind="int32"), (3, 2), left=False),
    ],
)
def lu_solve(
    LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False
) -> Any:
    """The X of A @ X = B, from the factors of A by `lu_factor`.

    With `adjoint`, the X of A.mH @ X = B; with `left=False`, of X @ A = B.

    >>> import tapegrad
    >>> factors = tapegrad.linalg.lu_factor(tapegrad.tensor([[0.0, 2.0], [3.0, 4.0]]))
    >>> tapegrad.linalg.lu_solve(*factors, tapegrad.tensor([[2.0], [7.0]]))
    tensor([[1.],
            [1.]])
    """
    what = "linalg.lu_solve"
    pivots = _check_pivots(what, LU, pivots)
    check_matrix(what, B)
    check_same_dtype(what, LU, B=B)
    if not left:
        return turned(lu_solve(LU, pivots, turned(B), adjoint=not adjoint))
    if B._array.shape[-2] != LU._array.shape[-1]:
        raise RuntimeError(
            f"{what}: factors of shape {tuple(LU.shape)} and B of shape {tuple(B.shape)} do not fit"
        )
    factors, b = broadcast(LU, B)
    order = expand_(pivots, shape=(*tuple(factors._array.shape[:-2]), pivots._array.shape[-1]))
    if adjoint:
        other = turned(factors)
        half = solve_triangular_(other, b, upper=False, unit=False)
        half = solve_triangular_(other, half, upper=True, unit=True)
        return permuted(half, order, inverse=True)
    half = solve_triangular_(factors, permuted(b, order, False), upper=False, unit=True)
    return solve_triangular_(factors, half, upper=True, unit=False)


# -- LDL ---------------------------------------------------------------------------------------


@on_host
def _ldl_factor(x: Any, *, hermitian: bool) -> Any:
    from scipy.linalg import get_lapack_funcs

    lead, n = x.shape[:-2], x.shape[-1]
    if not x.size:
        return x.copy(), np.zeros((*lead, n), np.int32), np.zeros(lead, np.int32)
    (factor,) = get_lapack_funcs((_routine("trf", x, hermitian),), (x,))
    done = [factor(a, lower=True) for (a,) in matrices(x)]
    pivots = stacked([p for _, p, _ in done], lead, (n,), np.int32)
    info = stacked([i for _, _, i in done], lead, (), np.int32)
    return stacked([np.tril(a) for a, _, _ in done], lead, (n, n), x.dtype), pivots, info


def _routine(name: str, x: Any, hermitian: bool) -> str:
    """The name of a LAPACK function for symmetric, or for complex Hermitian, matrices."""
    return f"{'he' if hermitian and numeric.is_complex(x.dtype) else 'sy'}{name}"


ldl_factor_: Primitive = define(
    "ldl_factor",
    _ldl_factor,
    kind=OPAQUE,
    inputs=("x",),
    outputs=("LD", "pivots", "info"),
    joint=without_gradient("linalg.ldl_factor", "linalg.lu_factor or linalg.cholesky"),
    abstract=lambda x, *, hermitian: (
        x,
        (x[0][:-1], np.dtype(np.int32)),
        (x[0][:-2], np.dtype(np.int32)),
    ),
    batch=leading,
    complex=OWN,
)


class LDLFactors(NamedTuple):
    """LAPACK's L and D in one matrix, and its pivots."""

    LD: Tensor
    pivots: Tensor


class LDLFactorsWithInfo(NamedTuple):
    """LDL factors and pivots; and for each matrix 0, or where D is 0, counted from 1."""

    LD: Tensor
    pivots: Tensor
    info: Tensor


_FLAT = In(values=SYMMETRIC.values, grad=False)
_FLAT_PAIR = In(values=SYMMETRIC_PAIR.values, grad=False)


@op(
    module=L,
    half=False,
    differentiable=False,
    samples=lambda: [Sample(_FLAT), Sample(_FLAT_PAIR)],
)
def ldl_factor_ex(
    A: Tensor, *, hermitian: bool = False, check_errors: bool = False
) -> LDLFactorsWithInfo:
    """LDL factors of symmetric matrices in LAPACK's form, and whether D is singular; no gradient.

    >>> import tapegrad
    >>> tapegrad.linalg.ldl_factor_ex(tapegrad.tensor([[2.0, 1.0], [1.0, 3.0]])).info
    tensor(0, dtype=tapegrad.int32)
    """
    check_matrix("linalg.ldl_factor_ex", A, square=True)
    ld, pivots, info = ldl_factor_(A, hermitian=bool(hermitian))
    if check_errors:
        ld = verified(ld, info, "linalg.ldl_factor_ex: number {} of D is zero, counted from 1")
    return LDLFactorsWithInfo(ld, pivots, info)


@op(
    module=L,
    half=False,
    differentiable=False,
    samples=lambda: [Sample(_FLAT), Sample(_FLAT_PAIR)],
)
def ldl_factor(A: Tensor, *, hermitian: bool = False) -> LDLFactors:
    """LDL factors of symmetric matrices in LAPACK's form, for `ldl_solve`; no gradient.

    >>> import tapegrad
    >>> factors = tapegrad.linalg.ldl_factor(tapegrad.tensor([[2.0, 0.0], [0.0, 4.0]]))
    >>> tapegrad.linalg.ldl_solve(*factors, tapegrad.tensor([[2.0], [2.0]]))
    tensor([[1.0000],
            [0.5000]])
    """
    ld, pivots, _ = ldl_factor_ex(A, hermitian=hermitian)
    return LDLFactors(ld, pivots)


@on_host
def _ldl_solve(x: Any, pivots: Any, y: Any, *, hermitian: bool) -> Any:
    from scipy.linalg import get_lapack_funcs

    if not y.size:
        return y.copy()
    (solve,) = get_lapack_funcs((_routine("trs", x, hermitian),), (x, y))
    order = pivots.reshape(*pivots.shape, 1)
    done = [solve(a, p[:, 0], b, lower=True)[0] for a, p, b in matrices(x, order, y)]
    return stacked(done, y.shape[:-2], y.shape[-2:], y.dtype)


ldl_solve_: Primitive = define(
    "ldl_solve",
    _ldl_solve,
    kind=OPAQUE,
    inputs=("x", "pivots", "y"),
    joint=without_gradient("linalg.ldl_solve", "linalg.lu_solve or cholesky_solve"),
    abstract=lambda x, pivots, y, *, hermitian: y,
    batch=leading,
    complex=OWN,
)


@op(
    module=L,
    half=False,
    differentiable=False,
    samples=lambda: [Sample(_FLAT, In(values=[1, 2, 3], kind="int32"), In(3, 2, grad=False))],
)
def ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False) -> Any:
    """The X of A @ X = B, from the factors of A by `ldl_factor`; no gradient.

    >>> import tapegrad
    >>> factors = tapegrad.linalg.ldl_factor(tapegrad.tensor([[2.0, 0.0], [0.0, 4.0]]))
    >>> tapegrad.linalg.ldl_solve(*factors, tapegrad.tensor([[2.0], [2.0]]))
    tensor([[1.0000],
            [0.5000]])
    """
    what = "linalg.ldl_solve"
    check_matrix(what, LD, square=True)
    check_matrix(what, B)
    check_same_dtype(what, LD, B=B)
    if pivots._array.shape != LD._array.shape[:-1] or LD._array.shape[-1] != B._array.shape[-2]:
        raise RuntimeError(
            f"{what}: factors of shape {tuple(LD.shape)}, pivots of {tuple(pivots.shape)} and B of "
            f"{tuple(B.shape)} do not fit"
        )
    factors, b = broadcast(LD, B)
    order = expand_(pivots, shape=tuple(factors._array.shape[:-1]))
    return ldl_solve_(factors, order, b, hermitian=bool(hermitian))
