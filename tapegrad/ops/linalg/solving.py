"""Determinants, linear systems, Cholesky factors, and norms: the functions of `tapegrad.linalg`.

LAPACK computes the first three, so that a compiled function calls NumPy for them; their gradients
are made of products and inverses. Norms are made of other operations.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...core import xp
from ...core.batch_rules import leading
from ...core.primitive import OPAQUE, Primitive, define
from ..precision import check_floating, check_same_dtype, rounded, widened
from ..reduce import statistics
from ..reduce.largest import amax, amin
from ..reduce.reductions import sum
from ..shape.dims import normal_dim
from ..shape.expanding import expand_
from ..shape.reshaping import reshape_
from ..table import In, Sample, op
from .diagonals import tril_
from .matmul import matmul, matmul_
from .matrices import check_square, inverse, inverse_, transposed
from .products import cross as _cross
from .products import matrix_power as _matrix_power

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...core.tensor import Tensor
    from ..annotations import Dims, DTypeLike, Number

L = "linalg"
_WELL = In(values=[[2.0, 0.5, 0.1], [-0.3, 1.5, 0.2], [0.4, -0.2, 1.8]])
_PAIR = In(values=[[[1.0, 0.2], [0.3, 2.0]], [[-1.0, 0.5], [0.4, 1.5]]])

# -- determinants ------------------------------------------------------------------------------


def _check(what: str, x: Any) -> None:
    check_floating(x, what)
    check_square(what, x)


def _over_matrices(g: Any) -> Any:
    """The gradients of one number for each matrix, as matrices of one element."""
    return reshape_(g, shape=(*g.shape, 1, 1))


def _adjugate(x: Any) -> Any:
    """The determinant times the inverse, which singular matrices have too: from U S V."""
    module = xp.module(x)
    # LAPACK does not come back from a singular value decomposition of infinities.
    finite = module.isfinite(x).all((-1, -2), keepdims=True)
    u, s, v = module.linalg.svd(module.where(finite, x, module.zeros((), x.dtype)))
    n = x.shape[-1]
    others = module.where(module.eye(n, dtype=bool), 1, s[..., None, :]).prod(-1)
    sign = module.linalg.det(u) * module.linalg.det(v)
    out = (v.swapaxes(-1, -2) * others[..., None, :]) @ u.swapaxes(-1, -2)
    out = module.where(finite, out * sign[..., None, None], module.nan)
    return out.astype(x.dtype, copy=False)


def _adjugate_gradient(g: Any, x: Any, out: Any) -> Any:
    inner = transposed(inverse_(x))
    scale = (g * out).sum((-1, -2))
    return _over_matrices(scale) * inner - matmul_(inner, matmul_(g, transposed(out)))


adjugate_: Primitive = define(
    "adjugate",
    _adjugate,
    kind=OPAQUE,
    vjp=_adjugate_gradient,
    abstract=lambda x: x,
    batch=leading,
)
det_: Primitive = define(
    "det",
    lambda x: xp.module(x).linalg.det(x).astype(x.dtype),
    kind=OPAQUE,
    vjp=lambda g, x: _over_matrices(g) * transposed(adjugate_(x)),
    abstract=lambda x: (x[0][:-2], x[1]),
    batch=leading,
)
log_det_: Primitive = define(
    "log_abs_det",
    lambda x: xp.module(x).linalg.slogdet(x)[1].astype(x.dtype),
    kind=OPAQUE,
    vjp=lambda g, x: _over_matrices(g) * transposed(inverse_(x)),
    abstract=lambda x: (x[0][:-2], x[1]),
    batch=leading,
)
sign_det_: Primitive = define(
    "sign_det",
    lambda x: xp.module(x).linalg.slogdet(x)[0].astype(x.dtype),
    kind=OPAQUE,
    abstract=lambda x: (x[0][:-2], x[1]),
    batch=leading,
)


@op(samples=lambda: [Sample(_WELL), Sample(_PAIR)])
def det(input: Tensor) -> Any:
    """The determinant of square matrices: (..., n, n) gives (...).

    >>> import tapegrad
    >>> tapegrad.det(tapegrad.tensor([[2.0, 0.0], [0.0, 3.0]]))
    tensor(6.)
    """
    _check("det", input)
    return rounded(det_(widened(input)), input)


class SignAndLog(NamedTuple):
    """The sign of a determinant, and the logarithm of its size."""

    sign: Tensor
    logabsdet: Tensor


@op(samples=lambda: [Sample(_WELL), Sample(_PAIR)])
def slogdet(input: Tensor) -> SignAndLog:
    """The sign of the determinant, and the logarithm of its size.

    det(x) = sign * exp(logabsdet), also where the determinant is too large for its dtype.

    >>> import tapegrad
    >>> sign, size = tapegrad.slogdet(tapegrad.tensor([[0.0, 1.0], [1.0, 0.0]]))
    >>> sign
    tensor(-1.)
    >>> size
    tensor(0.)
    """
    _check("slogdet", input)
    wide = widened(input)
    return SignAndLog(rounded(sign_det_(wide.detach()), input), rounded(log_det_(wide), input))


@op(samples=lambda: [Sample(_WELL)])
def logdet(input: Tensor) -> Any:
    """The logarithm of the determinant; NaN where that is negative.

    >>> import tapegrad
    >>> tapegrad.logdet(tapegrad.tensor([[2.0, 0.0], [0.0, 3.0]]))
    tensor(1.7918)
    """
    sign, size = slogdet(input)
    return size + sign.log()


# -- systems -----------------------------------------------------------------------------------


def _lapack(name: str, *arrays: Any) -> Any:
    try:
        return getattr(xp.module(arrays[0]).linalg, name)(*arrays)
    except np.linalg.LinAlgError as error:
        raise RuntimeError(f"{name}: {error}") from None


def _solve_gradient(g: Any, x: Any, out: Any, needs: Any) -> tuple[Any, Any]:
    right = solve_(transposed(x), g)
    return -matmul_(right, transposed(out)) if needs[0] else None, right


solve_: Primitive = define(
    "solve",
    lambda x, y: _lapack("solve", x, y),
    kind=OPAQUE,
    joint=_solve_gradient,
    abstract=lambda x, y: y,
    batch=leading,
)


def _cholesky_gradient(g: Any, out: Any) -> Any:
    """With P the lower triangle of L'G, its diagonal halved: L'^-1 P L^-1, made symmetric."""
    lower = matmul_(transposed(out), g)
    half = (tril_(lower, k=0) + tril_(lower, k=-1)) * 0.5
    inner = inverse_(out)
    whole = matmul_(transposed(inner), matmul_(half, inner))
    return (whole + transposed(whole)) * 0.5


cholesky_: Primitive = define(
    "cholesky",
    lambda x: _lapack("cholesky", x),
    kind=OPAQUE,
    vjp=_cholesky_gradient,
    abstract=lambda x: x,
    batch=leading,
)


@op(
    module=L,
    samples=lambda: [
        Sample(_WELL, (3, 2)),
        Sample(_WELL, (3,)),
        Sample(_PAIR, (2, 2)),
        Sample(_PAIR, (2, 2, 3)),
        Sample(_WELL, (2, 3, 2)),
        Sample(_WELL, (2, 3), left=False),
    ],
    autocast={"cpu": "full"},
)
def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Any:
    """The X of A @ X = B, or with `left=False` of X @ A = B; B may be of vectors.

    `A` is (..., n, n), `B` (..., n, k) or (..., n); with `left=False`, `B` is (..., k, n).

    >>> import tapegrad
    >>> a, b = tapegrad.tensor([[2.0, 1.0], [0.0, 3.0]]), tapegrad.tensor([7.0, 9.0])
    >>> tapegrad.linalg.solve(a, b)
    tensor([2., 3.])
    """
    _check("linalg.solve", A)
    check_same_dtype("linalg.solve", A, B=B)
    n = A._array.shape[-1]
    vector = B._array.ndim == 1 or (
        B._array.ndim == A._array.ndim - 1 and B._array.shape == A._array.shape[:-1]
    )
    if vector and not left:
        raise RuntimeError("linalg.solve with left=False needs B as matrices")
    right = reshape_(B, shape=(*B._array.shape, 1)) if vector else B
    if not left:
        return transposed(solve(transposed(A), transposed(right)))
    if right._array.shape[-2] != n:
        raise RuntimeError(
            f"linalg.solve: A has {n} rows, B of shape {tuple(B.shape)} has "
            f"{right._array.shape[-2]}"
        )
    lead = np.broadcast_shapes(A._array.shape[:-2], right._array.shape[:-2])
    wide = expand_(widened(A), shape=(*lead, n, n))
    out = solve_(wide, expand_(widened(right), shape=(*lead, *right._array.shape[-2:])))
    return rounded(reshape_(out, shape=tuple(out._array.shape[:-1])) if vector else out, B)


@op(
    module=L,
    samples=lambda: [
        Sample(In(values=[[2.0, 0.5, 0.1], [0.5, 1.5, 0.2], [0.1, 0.2, 1.8]])),
        Sample(In(values=[[[2.0, 0.3], [0.3, 1.0]]] * 2)),
    ],
    autocast={"cpu": "full"},
)
def cholesky(A: Tensor, *, upper: bool = False) -> Any:
    """The lower triangle L with L @ L.T = A, of symmetric positive definite matrices.

    With `upper=True` the result is its transpose, an upper triangle.

    >>> import tapegrad
    >>> tapegrad.linalg.cholesky(tapegrad.tensor([[4.0, 2.0], [2.0, 5.0]]))
    tensor([[2., 0.],
            [1., 2.]])
    """
    _check("linalg.cholesky", A)
    wide = widened(A)
    # Only this form has a gradient that agrees with small changes of single elements.
    out = rounded(cholesky_((wide + transposed(wide)) * 0.5), A)
    return transposed(out) if upper else out


@op(module=L, samples=lambda: [Sample(_WELL), Sample(_PAIR)])
def inv(A: Tensor) -> Any:
    """The inverse of square matrices (..., n, n): inv(A) @ A is the identity.

    >>> import tapegrad
    >>> tapegrad.linalg.inv(tapegrad.tensor([[2.0, 0.0], [0.0, 4.0]]))
    tensor([[0.5000, 0.0000],
            [0.0000, 0.2500]])
    """
    return inverse(A)


@op("det", module=L, samples=lambda: [Sample(_PAIR)])
def _det(A: Tensor) -> Any:
    """The determinant of square matrices: (..., n, n) gives (...).

    >>> import tapegrad
    >>> tapegrad.linalg.det(tapegrad.tensor([[2.0, 0.0], [0.0, 3.0]]))
    tensor(6.)
    """
    return det(A)


@op("slogdet", module=L, samples=lambda: [Sample(_PAIR)], result="SignAndLog")
def _slogdet(A: Tensor) -> Any:
    """The sign of the determinant, and the logarithm of its size.

    >>> import tapegrad
    >>> sign, size = tapegrad.linalg.slogdet(tapegrad.tensor([[0.0, 1.0], [1.0, 0.0]]))
    >>> sign
    tensor(-1.)
    >>> size
    tensor(0.)
    """
    return slogdet(A)


# -- products ----------------------------------------------------------------------------------


@op("matmul", module=L, samples=lambda: [Sample((2, 3), (3, 2))], autocast="lower")
def _matmul(input: Tensor, other: Tensor) -> Any:
    """The matrix product, as `tapegrad.matmul`.

    >>> import tapegrad
    >>> a, x = tapegrad.tensor([[1.0, 2.0], [3.0, 4.0]]), tapegrad.tensor([1.0, 1.0])
    >>> tapegrad.linalg.matmul(a, x)
    tensor([3., 7.])
    """
    return matmul(input, other)


@op("matrix_power", module=L, samples=lambda: [Sample(_WELL, 3), Sample(_WELL, -1)])
def _power(A: Tensor, n: int) -> Any:
    """A square matrix times itself, n times; a negative power is one of the inverse.

    >>> import tapegrad
    >>> tapegrad.linalg.matrix_power(tapegrad.tensor([[1.0, 1.0], [0.0, 1.0]]), 3)
    tensor([[1., 3.],
            [0., 1.]])
    """
    return _matrix_power(A, n)


@op("cross", module=L, samples=lambda: [Sample((2, 3), (2, 3)), Sample((3, 2), (3, 1), dim=0)])
def _cross_product(input: Tensor, other: Tensor, *, dim: int = -1) -> Any:
    """The cross product of vectors of three elements.

    >>> import tapegrad
    >>> tapegrad.linalg.cross(tapegrad.tensor([1.0, 0.0, 0.0]), tapegrad.tensor([0.0, 1.0, 0.0]))
    tensor([0., 0., 1.])
    """
    return _cross(input, other, dim)


@op(
    module=L,
    samples=lambda: [Sample((2, 3), (2, 3)), Sample((3, 2), (3, 1), dim=0)],
    autocast="lower",
)
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Any:
    """The sums of products along a dimension.

    >>> import tapegrad
    >>> x, y = tapegrad.tensor([[1.0, 2.0], [3.0, 4.0]]), tapegrad.tensor([1.0, 10.0])
    >>> tapegrad.linalg.vecdot(x, y)
    tensor([21., 43.])
    """
    check_floating(x, "linalg.vecdot")
    return sum(x * y, dim)


@op(
    module=L,
    samples=lambda: [
        Sample([In(2, 3), In(3, 4), In(4, 2)]),
        Sample([In(3), In(3, 4), In(4)]),
        Sample([In(2, 3), In(3, 2)]),
    ],
    autocast={"cuda": "lower"},
)
def multi_dot(tensors: Sequence[Tensor]) -> Any:
    """The product of several matrices, multiplied in the order that takes the least work.

    The first and the last may be vectors.

    >>> import tapegrad
    >>> a, b = tapegrad.tensor([[1.0, 2.0], [3.0, 4.0]]), tapegrad.tensor([[1.0, 1.0], [0.0, 1.0]])
    >>> tapegrad.linalg.multi_dot([a, b, tapegrad.tensor([1.0, 1.0])])
    tensor([ 4., 10.])
    """
    xs = list(tensors)
    if len(xs) < 2:
        raise RuntimeError(f"multi_dot needs at least two tensors, got {len(xs)}")
    sizes = [tuple(x._array.shape) for x in xs]
    sizes[0] = (1, *sizes[0]) if len(sizes[0]) == 1 else sizes[0]
    sizes[-1] = (*sizes[-1], 1) if len(sizes[-1]) == 1 else sizes[-1]
    rows = [*(s[0] for s in sizes), sizes[-1][-1]]
    cuts = _cheapest(rows)

    def product(i: int, j: int) -> Any:
        if i == j:
            return xs[i]
        k = cuts[i, j]
        return matmul(product(i, k), product(k + 1, j))

    return product(0, len(xs) - 1)


def _cheapest(rows: list[int]) -> dict[tuple[int, int], int]:
    """Where to cut each run of matrices so that its product takes the fewest multiplications."""
    n = len(rows) - 1
    cost = {(i, i): 0 for i in range(n)}
    cuts = {}
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            cost[i, j], cuts[i, j] = min(
                (cost[i, k] + cost[k + 1, j] + rows[i] * rows[k + 1] * rows[j + 1], k)
                for k in range(i, j)
            )
    return cuts


# -- norms -------------------------------------------------------------------------------------


@op(
    module=L,
    samples=lambda: [
        Sample((3, 4)),
        Sample((3, 4), 1, dim=1),
        Sample((3, 4), 3, dim=(0, 1), keepdim=True),
        Sample(In(3, 4, distinct=True), math.inf, 0),
        Sample((3, 4), 0),
    ],
    autocast={"cuda": "full"},
)
def vector_norm(
    x: Tensor,
    ord: Number | str = 2,
    dim: Dims | None = None,
    keepdim: bool = False,
    *,
    dtype: DTypeLike | None = None,
) -> Any:
    """The norm of all elements as one vector, or of vectors along dimensions.

    (sum of |x|^ord)^(1/ord); for inf the largest |x|, for -inf the smallest, for 0 the number of
    elements that are not 0.

    >>> import tapegrad
    >>> tapegrad.linalg.vector_norm(tapegrad.tensor([3.0, -4.0]))
    tensor(5.)
    >>> tapegrad.linalg.vector_norm(tapegrad.tensor([3.0, -4.0]), ord=1)
    tensor(7.)
    """
    return statistics.norm(x, ord, dim, keepdim, dtype)


@op(
    module=L,
    samples=lambda: [
        Sample((3, 4)),
        Sample((2, 3, 4), "fro", [0, 2], True),
        Sample(In(3, 4, distinct=True), 1),
        Sample(In(2, 3, 4, distinct=True), math.inf),
        Sample(In(3, 4, distinct=True), -1),
    ],
    autocast={"cuda": "full"},
)
def matrix_norm(
    A: Tensor,
    ord: Number | str = "fro",
    dim: Sequence[int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: DTypeLike | None = None,
) -> Any:
    """The norm of matrices: "fro", or the largest sum of a column (1) or row (inf).

    -1 and -inf give the smallest.

    >>> import tapegrad
    >>> tapegrad.linalg.matrix_norm(tapegrad.tensor([[1.0, -2.0], [3.0, 4.0]]), ord=1)
    tensor(6.)
    """
    x = A if dtype is None else A.to(dtype)
    check_floating(x, "linalg.matrix_norm")
    if x._array.ndim < 2 or len(dim) != 2:
        raise RuntimeError(f"linalg.matrix_norm needs two dimensions, got {tuple(A.shape)}, {dim}")
    if ord == "fro":
        return statistics.norm(x, 2, dim, keepdim)
    if ord not in (1, -1, math.inf, -math.inf):
        raise RuntimeError(
            f"linalg.matrix_norm of order {ord!r} needs singular values, which are not there; "
            "the others are 'fro', 1, -1, inf and -inf"
        )
    rows, columns = (normal_dim(d, x._array.ndim) for d in dim)
    inner, outer = (rows, columns) if abs(ord) == 1 else (columns, rows)
    sums = sum(x.abs(), inner, True)
    out = (amax if ord > 0 else amin)(sums, outer, True)
    return out if keepdim else out.squeeze(max(rows, columns)).squeeze(min(rows, columns))


@op(
    "norm",
    module=L,
    samples=lambda: [
        Sample((3, 4)),
        Sample((3, 4), 1, 1),
        Sample((4,), 3),
        Sample(In(3, 4, distinct=True), 1),
        Sample((3, 4), "fro"),
        Sample((2, 3, 4), dim=(1, 2)),
    ],
)
def _norm(
    A: Tensor,
    ord: Number | str | None = None,
    dim: Dims | None = None,
    keepdim: bool = False,
    *,
    dtype: DTypeLike | None = None,
) -> Any:
    """The norm of a vector or a matrix: by `ord` and `dim`, `vector_norm` or `matrix_norm`.

    >>> import tapegrad
    >>> tapegrad.linalg.norm(tapegrad.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor(5.)
    >>> tapegrad.linalg.norm(tapegrad.tensor([[3.0, 4.0], [6.0, 8.0]]), dim=1)
    tensor([ 5., 10.])
    """
    if ord is None:
        return vector_norm(A, 2, dim, keepdim, dtype=dtype)
    if isinstance(dim, int) or (dim is not None and len(dim) == 1):
        return vector_norm(A, ord, dim, keepdim, dtype=dtype)
    if dim is None and A._array.ndim not in (1, 2):
        raise RuntimeError(f"linalg.norm with ord={ord!r} needs a vector or a matrix")
    if dim is None and A._array.ndim == 1 and not isinstance(ord, str):
        return vector_norm(A, ord, 0, keepdim, dtype=dtype)
    return matrix_norm(A, ord, (-2, -1) if dim is None else dim, keepdim, dtype=dtype)
