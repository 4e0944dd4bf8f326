"""Linear systems and inverses of matrices and tensors; Vandermonde matrices."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...core import numeric
from ...core.batch_rules import leading
from ...core.complexes import OWN
from ...core.primitive import OPAQUE, Primitive, define
from ...core.tensor import Tensor
from ..linalg.diagonals import diagonal as _diagonal
from ..linalg.matmul import matmul_
from ..linalg.matrices import adjoint, check_matrix, on_host, transposed
from ..precision import check_same_dtype
from ..reduce.cumulative import cumprod
from ..shape.expanding import expand_
from ..shape.joining import cat
from ..shape.reordering import permute_
from ..shape.reshaping import reshape_
from ..table import In, Sample, op
from .spectra import SQUARES, L
from .triangles import broadcast, matrices, stacked, verified

if TYPE_CHECKING:
    from collections.abc import Sequence

WELL = In(values=[[2.0, 0.5, 0.1], [-0.3, 1.5, 0.2], [0.4, -0.2, 1.8]])

# -- systems -----------------------------------------------------------------------------------


@on_host
def _solve(x: Any, y: Any) -> Any:
    """The solutions, and for each matrix 0 or the position of a zero pivot, counted from 1."""
    info = np.zeros(x.shape[:-2], np.int32)
    try:
        return np.linalg.solve(x, y), info
    except np.linalg.LinAlgError:
        pass
    from scipy.linalg import get_lapack_funcs

    (solve,) = get_lapack_funcs(("gesv",), (x, y))
    done = [solve(a, b) for a, b in matrices(x, y)]
    info.reshape(-1)[...] = [number for _, _, _, number in done]
    return stacked([out for _, _, out, _ in done], y.shape[:-2], y.shape[-2:], y.dtype), info


def _solve_gradient(g: Any, x: Any, out: Any, needs: Any) -> tuple[Any, Any]:
    right = solve_(adjoint(x), g[0])[0]
    return -matmul_(right, adjoint(out)) if needs[0] else None, right


solve_: Primitive = define(
    "solve",
    _solve,
    kind=OPAQUE,
    inputs=("x", "y"),
    outputs=("out", "info"),
    joint=_solve_gradient,
    abstract=lambda x, y: (y, (x[0][:-2], np.dtype(np.int32))),
    batch=leading,
    complex=OWN,
)


class SolutionWithInfo(NamedTuple):
    """The solution, and for each matrix 0 or the position of a zero pivot, counted from 1."""

    result: Tensor
    info: Tensor


def _solved(what: str, A: Any, B: Any, left: bool, check: bool) -> tuple[Any, Any]:
    check_matrix(what, A, square=True)
    check_same_dtype(what, A, B=B)
    n = A._array.shape[-1]
    vector = B._array.ndim == 1 or (
        B._array.ndim == A._array.ndim - 1 and B._array.shape == A._array.shape[:-1]
    )
    if vector and not left:
        raise RuntimeError(f"{what} with left=False needs B as matrices")
    right = reshape_(B, shape=(*B._array.shape, 1)) if vector else B
    if right._array.ndim < 2:
        raise RuntimeError(f"{what} needs vectors or matrices B, got shape {tuple(B.shape)}")
    if not left:
        out, info = _solved(what, transposed(A), transposed(right), True, check)
        return transposed(out), info
    if right._array.shape[-2] != n:
        raise RuntimeError(
            f"{what}: A has {n} rows, B of shape {tuple(B.shape)} has {right._array.shape[-2]}"
        )
    out, info = solve_(*broadcast(A, right))
    if check:
        out = verified(out, info, f"{what}: a matrix is singular (its pivot {{}} is zero)")
    return (reshape_(out, shape=tuple(out._array.shape[:-1])) if vector else out), info


@op(
    module=L,
    half=False,
    samples=lambda: [
        Sample(WELL, (3, 2)),
        Sample(WELL, (3,)),
        Sample(SQUARES, (2, 2)),
        Sample(SQUARES, (2, 2, 3)),
        Sample(WELL, (2, 3, 2)),
        Sample(WELL, (2, 3), left=False),
    ],
    autocast={"cpu": "full"},
)
def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Any:
    """The X of A @ X = B, or with `left=False` of X @ A = B; B may hold vectors.

    `A` is (..., n, n), `B` (..., n, k) or (..., n); with `left=False`, `B` is (..., k, n).

    >>> import tapegrad
    >>> a, b = tapegrad.tensor([[2.0, 1.0], [0.0, 3.0]]), tapegrad.tensor([7.0, 9.0])
    >>> tapegrad.linalg.solve(a, b)
    tensor([2., 3.])
    """
    return _solved("linalg.solve", A, B, left, True)[0]


@op(module=L, half=False, samples=lambda: [Sample(WELL, (3, 2)), Sample(SQUARES, (2, 2))])
def solve_ex(
    A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False
) -> SolutionWithInfo:
    """`solve`, and whether a matrix is singular; this raises only with `check_errors`.

    >>> import tapegrad
    >>> tapegrad.linalg.solve_ex(tapegrad.zeros(2, 2), tapegrad.ones(2)).info
    tensor(1, dtype=tapegrad.int32)
    """
    return SolutionWithInfo(*_solved("linalg.solve_ex", A, B, left, check_errors))


# -- inverses ----------------------------------------------------------------------------------


@on_host
def _inverse(x: Any) -> Any:
    """The inverses, and for each matrix 0 or the position of a zero pivot, counted from 1."""
    info = np.zeros(x.shape[:-2], np.int32)
    try:
        return np.linalg.inv(x), info
    except np.linalg.LinAlgError:
        pass
    from scipy.linalg import get_lapack_funcs

    factor, invert = get_lapack_funcs(("getrf", "getri"), (x,))
    done, numbers = [], []
    for (a,) in matrices(x):
        factors, pivots, number = factor(a)
        done.append(factors if number else invert(factors, pivots)[0])
        numbers.append(number)
    info.reshape(-1)[...] = numbers
    return stacked(done, x.shape[:-2], x.shape[-2:], x.dtype), info


def _inverse_gradient(g: Any, inverse: Any) -> tuple[Any]:
    left = adjoint(inverse)
    return (-matmul_(matmul_(left, g[0]), left),)


inverse_ex_: Primitive = define(
    "inverse_ex",
    _inverse,
    kind=OPAQUE,
    inputs=("x",),
    outputs=("inverse", "info"),
    joint=_inverse_gradient,
    abstract=lambda x: (x, (x[0][:-2], np.dtype(np.int32))),
    batch=leading,
    complex=OWN,
)


class InverseWithInfo(NamedTuple):
    """The inverse, and for each matrix 0 or the position of a zero pivot, counted from 1."""

    inverse: Tensor
    info: Tensor


@op(module=L, half=False, autocast={"cpu": "full"}, samples=lambda: [Sample(WELL), Sample(SQUARES)])
def inv_ex(A: Tensor, *, check_errors: bool = False) -> InverseWithInfo:
    """The inverse of matrices, and `info`, which is 0 where the inverse exists.

    >>> import tapegrad
    >>> tapegrad.linalg.inv_ex(tapegrad.zeros(2, 2)).info
    tensor(1, dtype=tapegrad.int32)
    """
    check_matrix("linalg.inv_ex", A, square=True)
    out, info = inverse_ex_(A)
    if check_errors:
        out = verified(out, info, "linalg.inv_ex: a matrix is singular (its pivot {} is zero)")
    return InverseWithInfo(out, info)


@op(
    casts=True,
    module=L,
    half=False,
    autocast={"cpu": "full"},
    samples=lambda: [Sample(In(2, 3, 6)), Sample(In(6, 3, 2), 1)],
)
def tensorinv(A: Tensor, ind: int = 2) -> Any:
    """The inverse of a tensor as a map between its first `ind` dimensions and the others.

    >>> import tapegrad
    >>> tuple(tapegrad.linalg.tensorinv(tapegrad.eye(4).reshape(2, 2, 4)).shape)
    (4, 2, 2)
    """
    check_matrix("linalg.tensorinv", A)
    if ind <= 0:
        raise RuntimeError(f"linalg.tensorinv: ind must be positive, got {ind}")
    shape = tuple(A._array.shape)
    rows, columns = math.prod(shape[:ind]), math.prod(shape[ind:])
    if rows != columns:
        raise RuntimeError(
            f"linalg.tensorinv: the first {ind} sizes of {shape} have the product {rows}, the "
            f"others {columns}"
        )
    out, info = inverse_ex_(reshape_(A, shape=(rows, rows)))
    out = verified(out, info, "linalg.tensorinv: the tensor is singular (its pivot {} is zero)")
    return reshape_(out, shape=(*shape[ind:], *shape[:ind]))


@op(
    casts=True,
    module=L,
    half=False,
    autocast={"cpu": "full"},
    samples=lambda: [Sample(In(2, 3, 6), (2, 3)), Sample(In(4, 2, 2), (4,))],
)
def tensorsolve(A: Tensor, B: Tensor, dims: Sequence[int] | None = None) -> Any:
    """The X of tensordot(A, X, X.ndim) = B; `dims` of A are first moved to its end.

    >>> import tapegrad
    >>> a = tapegrad.eye(4).reshape(2, 2, 4)
    >>> tapegrad.linalg.tensorsolve(a, tapegrad.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([1., 2., 3., 4.])
    """
    what = "linalg.tensorsolve"
    check_matrix(what, A)
    check_same_dtype(what, A, B=B)
    n = A._array.ndim
    if dims is not None:
        last = [d % n for d in dims]
        A = permute_(A, dims=(*[d for d in range(n) if d not in last], *last))
    shape = tuple(A._array.shape[B._array.ndim :])
    size = math.prod(shape)
    if size != B._array.size or A._array.size != size * size:
        raise RuntimeError(
            f"{what}: A of shape {tuple(A.shape)} and B of shape {tuple(B.shape)} do not fit"
        )
    out = solve(reshape_(A, shape=(size, size)), reshape_(B, shape=(size,)))
    return reshape_(out, shape=shape)


# -- others ------------------------------------------------------------------------------------


def _powers(what: str, x: Any, N: int | None) -> Any:
    count = (x._array.shape[-1] if x._array.ndim else 1) if N is None else N
    if count < 0:
        raise RuntimeError(f"{what}: N is too small, got {N}")
    x = x if x._array.ndim else reshape_(x, shape=(1,))
    shape = tuple(x._array.shape)
    one = x.new_ones((*shape, 1))
    if not count:
        return x.new_empty((*shape, 0))
    rest = expand_(reshape_(x, shape=(*shape, 1)), shape=(*shape, count - 1))
    return cat([one, cumprod(rest, -1)], -1)


@op("vander", module=L, half=False, samples=lambda: [Sample((3,)), Sample((2, 3), N=4)])
def _vander(x: Tensor, *, N: int | None = None) -> Any:
    """Matrices of the powers 0 to N - 1 of vectors; N is the number of elements by default.

    >>> import tapegrad
    >>> tapegrad.linalg.vander(tapegrad.tensor([2, 3]), N=3)
    tensor([[1, 2, 4],
            [1, 3, 9]])
    """
    dtype = x._array.dtype
    if numeric.is_half(dtype) or numeric.is_boolean(dtype):
        raise RuntimeError(f"linalg.vander does not exist for {x.dtype}; use .float() first")
    if N is not None and N <= 1:
        raise RuntimeError(f"linalg.vander: N must be at least 2, got {N}")
    return _powers("linalg.vander", x, N)


@op(method=False, samples=lambda: [Sample((3,)), Sample((3,), 4, True)])
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Any:
    """The matrix of the powers of a vector, in descending order unless `increasing`.

    >>> import tapegrad
    >>> tapegrad.vander(tapegrad.tensor([2, 3]), N=3)
    tensor([[4, 2, 1],
            [9, 3, 1]])
    """
    if x._array.ndim != 1:
        raise RuntimeError(f"vander needs a vector, got shape {tuple(x.shape)}")
    out = _powers("vander", x, N)
    return out if increasing else out.flip(-1)


@op("diagonal", module=L, samples=lambda: [Sample((2, 3, 4)), Sample((2, 3, 4), offset=1, dim1=0)])
def _matrix_diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    """The diagonal of matrices, as a view.

    >>> import tapegrad
    >>> tapegrad.linalg.diagonal(tapegrad.tensor([[1, 2], [3, 4]]))
    tensor([1, 4])
    """
    return _diagonal(A, offset, dim1, dim2)
