"""Least squares, pseudo-inverses, ranks and condition numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...core import xp
from ...core.batch_rules import leading
from ...core.complexes import OWN
from ...core.dtypes import finfo, int64
from ...core.primitive import OPAQUE, Primitive, define
from ...core.tensor import Tensor, wrap
from ..elementwise import comparison as c
from ..elementwise.complexes import is_complex
from ..linalg.matmul import matmul_
from ..linalg.matrices import LinAlgError, adjoint, check_matrix, on_host, real_part
from ..linalg.solving import matrix_norm
from ..precision import check_same_dtype
from ..reduce.reductions import sum
from ..shape.expanding import expand_
from ..shape.reshaping import reshape_
from ..table import In, Sample, op
from .spectra import SQUARES, SYMMETRIC, TALL, WIDE, L, eigvalsh_, lapack, svdvals_
from .systems import inverse_ex_
from .triangles import broadcast, matrices, stacked

if TYPE_CHECKING:
    from ..annotations import Number

# -- pseudo-inverses ---------------------------------------------------------------------------


def _pinv(x: Any, atol: Any, rtol: Any, *, hermitian: bool) -> Any:
    *lead, m, n = x.shape
    if not x.size:
        return xp.module(x).zeros((*lead, n, m), x.dtype)
    if hermitian:
        values, v = lapack("linalg.pinv", "eigh", x)
        u, size = v, abs(values)
        largest = size.max(-1, keepdims=True)
    else:
        u, values, vh = lapack("linalg.pinv", "svd", x, full_matrices=False)
        v, size = np.swapaxes(vh, -1, -2).conj(), values
        largest = size[..., :1]
    cutoff = np.maximum(atol[..., None], rtol[..., None] * largest)
    kept = size > cutoff
    inner = np.where(kept, 1 / np.where(kept, values, 1), 0)
    out = (v * inner[..., None, :]) @ np.swapaxes(u, -1, -2).conj()
    return out.astype(x.dtype, copy=False)


def _pinv_gradient(g: Any, x: Any, out: Any) -> Any:
    """-P' g P' + (I - x P) g' P P' + P' P g' (I - P x), after Golub and Pereyra (1973)."""
    p, t = adjoint(out), adjoint(g)
    first = matmul_(t, matmul_(out, p))
    second = matmul_(matmul_(p, out), t)
    whole = first - matmul_(x, matmul_(out, first)) + second - matmul_(matmul_(second, out), x)
    return whole - matmul_(p, matmul_(g, p))


pinv_: Primitive = define(
    "pinv",
    _pinv,
    kind=OPAQUE,
    vjp=(_pinv_gradient, None, None),
    abstract=lambda x, atol, rtol, *, hermitian: (
        (*x[0][:-2], x[0][-1], x[0][-2]),
        x[1],
    ),
    batch=leading,
    complex=OWN,
)


def _tolerances(what: str, x: Any, atol: Any, rtol: Any) -> tuple[Any, Any]:
    """atol and rtol of each matrix as tensors; rtol None is eps * max(m, n), or 0 if atol > 0."""
    lead = tuple(x._array.shape[:-2])
    for name, value in (("atol", atol), ("rtol", rtol)):
        if isinstance(value, Tensor) and value.dtype.is_complex:
            raise RuntimeError(f"{what} needs a real {name}, got {value.dtype}")
    usual = finfo(x.dtype.to_real()).eps * max(x._array.shape[-2:])
    if rtol is None:
        if atol is None:
            rtol = usual
        elif isinstance(atol, Tensor):
            rtol = c.where(c.greater(atol, 0), 0.0, usual)
        else:
            rtol = 0.0 if atol > 0 else usual
    real = np.dtype(np.float64)

    def spread(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.detach().to(wrap(np.empty(0, real)).dtype)
        return wrap(xp.module(x._array).asarray(value, real))

    found = [spread(0.0 if atol is None else atol), spread(rtol)]
    shape = np.broadcast_shapes(lead, *[t._array.shape for t in found])
    return expand_(found[0], shape=shape), expand_(found[1], shape=shape)


@op(
    casts=True,
    module=L,
    half=False,
    samples=lambda: [
        Sample(TALL),
        Sample(WIDE),
        Sample(SQUARES, rtol=0.1),
        Sample(In(values=[[1.0, 2.0], [2.0, 4.0], [0.0, 0.0]], grad=False), 1e-3),
    ],
)
def pinv(
    A: Tensor,
    rcond: Number | Tensor | None = None,
    hermitian: bool = False,
    *,
    atol: Number | Tensor | None = None,
    rtol: Number | Tensor | None = None,
) -> Any:
    """The pseudo-inverse of matrices: (..., m, n) gives (..., n, m).

    Singular values up to max(atol, rtol * the largest) are treated as 0. `rcond` is an older name
    of `rtol`. With `hermitian`, A is taken as Hermitian: only its lower triangle is read.

    >>> import tapegrad
    >>> tapegrad.linalg.pinv(tapegrad.tensor([[2.0, 0.0], [0.0, 0.0]]))
    tensor([[0.5000, 0.0000],
            [0.0000, 0.0000]])
    """
    check_matrix("linalg.pinv", A, square=bool(hermitian))
    if rcond is not None:
        atol, rtol = 0.0 if atol is None else atol, rcond
    low, share = _tolerances("linalg.pinv", A, atol, rtol)
    x = A
    if low._array.shape != A._array.shape[:-2]:
        x = expand_(A, shape=(*low._array.shape, *A._array.shape[-2:]))
    return pinv_(x, low, share, hermitian=bool(hermitian))


@op(half=False, autocast={"cpu": "full"}, samples=lambda: [Sample(TALL), Sample(WIDE, 0.1)])
def pinverse(input: Tensor, rcond: float = 1e-15) -> Any:
    """The pseudo-inverse: PyTorch's older name of `linalg.pinv`, with `rcond` as `rtol`.

    >>> import tapegrad
    >>> tapegrad.pinverse(tapegrad.tensor([[2.0], [0.0]]))
    tensor([[0.5000, 0.0000]])
    """
    return pinv(input, rcond)


# -- ranks and condition numbers ---------------------------------------------------------------


@op(
    casts=True,
    module=L,
    half=False,
    autocast={"cpu": "full"},
    differentiable=False,
    samples=lambda: [
        Sample(TALL),
        Sample(SQUARES, 1.2),
        Sample(SYMMETRIC, hermitian=True, rtol=0.5),
    ],
)
def matrix_rank(
    A: Tensor,
    tol: Number | Tensor | None = None,
    hermitian: bool = False,
    *,
    atol: Number | Tensor | None = None,
    rtol: Number | Tensor | None = None,
) -> Any:
    """The number of singular values above max(atol, rtol * the largest): (..., m, n) gives (...).

    `tol` is an older name of `atol`, with `rtol` 0. With `hermitian`, A is taken as Hermitian: only
    its lower triangle is read, and singular values are the absolute values of eigenvalues.

    >>> import tapegrad
    >>> tapegrad.linalg.matrix_rank(tapegrad.tensor([[1.0, 2.0], [2.0, 4.0]]))
    tensor(1)
    """
    check_matrix("linalg.matrix_rank", A, square=bool(hermitian))
    if tol is not None:
        atol, rtol = tol, 0.0
    x = A.detach()
    low, share = _tolerances("linalg.matrix_rank", A, atol, rtol)
    if not x._array.size:
        return wrap(xp.module(x._array).zeros(low._array.shape, np.int64))
    values = abs(eigvalsh_(x, uplo="L")) if hermitian else svdvals_(x)
    largest = values.amax(-1)
    cutoff = c.where(c.greater(low, share * largest), low, share * largest)
    return sum(c.greater(values, cutoff.unsqueeze(-1)).to(int64), -1)


@op(
    casts=True,
    module=L,
    half=False,
    autocast={"cpu": "full"},
    samples=lambda: [
        Sample(TALL),
        Sample(SQUARES, -2),
        Sample(In(values=SQUARES.values, distinct=True), 1),
        Sample(SQUARES, "fro"),
        Sample(SQUARES, "nuc"),
        Sample(SQUARES, -math.inf),
    ],
)
def cond(A: Tensor, p: Number | str | None = None) -> Any:
    """The condition number of matrices: the norm of A times the norm of its inverse.

    `p` is an order of `matrix_norm`; None means 2. Singular matrices give infinity.

    >>> import tapegrad
    >>> tapegrad.linalg.cond(tapegrad.tensor([[2.0, 0.0], [0.0, 8.0]]))
    tensor(4.)
    """
    check_matrix("linalg.cond", A)
    if p is None or p in (2, -2):
        values = svdvals_(A)
        if not values._array.shape[-1]:
            return wrap(xp.module(values._array).zeros(values._array.shape[:-1], A._array.dtype))
        first, last = values.select(-1, 0), values.select(-1, -1)
        return last / first if p == -2 else first / last
    check_matrix("linalg.cond", A, square=True)
    if not A._array.size:
        matrix_norm(A.new_zeros((1, 1)), p)  # refuses an invalid order
        return wrap(xp.module(A._array).zeros(A._array.shape[:-2], A._array.dtype))
    inner, info = inverse_ex_(A)
    product = matrix_norm(A, p) * matrix_norm(inner, p)
    return c.where(c.equal(info, 0), product, math.inf)


# -- least squares -----------------------------------------------------------------------------


@on_host
def _lstsq(x: Any, y: Any, *, rcond: float, driver: str) -> Any:
    """Solutions, ranks and singular values; zeros if the driver computes no singular values."""
    *lead, m, n = x.shape
    k = min(m, n)
    if not x.size or not y.size:
        shape = (*lead, n, y.shape[-1])
        return (
            np.zeros(shape, x.dtype),
            np.zeros(lead, np.int64),
            np.zeros((*lead, k), x.real.dtype),
        )
    from scipy.linalg import lstsq

    algorithm = "gelsy" if driver == "gels" else driver
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise LinAlgError("linalg.lstsq: the input has values that are not finite")
    done = [lstsq(a, b, rcond, lapack_driver=algorithm) for a, b in matrices(x, y)]
    values = [s if s is not None else 0.0 for _, _, _, s in done]
    return (
        stacked([r[0] for r in done], tuple(lead), (n, y.shape[-1]), x.dtype),
        stacked([r[2] for r in done], tuple(lead), (), np.int64),
        stacked(values, tuple(lead), (k,), x.real.dtype),
    )


def _lstsq_gradient(g: Any, x: Any, y: Any, rcond: float, needs: Any) -> tuple[Any, Any]:
    """The gradient of pinv(x) @ y."""
    g = g[0]
    low, share = _constants(x, rcond)
    inverse = pinv_(x, low, share, hermitian=False)
    right = matmul_(adjoint(inverse), g) if needs[1] else None
    left = _pinv_gradient(matmul_(g, adjoint(y)), x, inverse) if needs[0] else None
    return left, right


def _constants(x: Any, rcond: float) -> Any:
    """atol 0 and rtol `rcond` for each matrix: arrays or Tensors, like `x`."""
    like = x._array if isinstance(x, Tensor) else x
    module = xp.module(like)
    arrays = [module.full(like.shape[:-2], value, np.float64) for value in (0.0, rcond)]
    return [wrap(a) for a in arrays] if isinstance(x, Tensor) else arrays


def _lstsq_abstract(x: Any, y: Any, *, rcond: float, driver: str) -> Any:
    (*lead, m, n), dtype = x
    return (
        ((*lead, n, y[0][-1]), dtype),
        (tuple(lead), np.dtype(np.int64)),
        ((*lead, min(m, n)), real_part(dtype)),
    )


lstsq_: Primitive = define(
    "lstsq",
    _lstsq,
    kind=OPAQUE,
    inputs=("x", "y"),
    outputs=("solution", "rank", "values"),
    joint=_lstsq_gradient,
    abstract=_lstsq_abstract,
    batch=leading,
    complex=OWN,
)


class LeastSquares(NamedTuple):
    """The solution; sums of squared residuals, ranks and singular values, which may be empty."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


@op(
    casts=True,
    module=L,
    half=False,
    autocast={"cpu": "full"},
    samples=lambda: [
        Sample(TALL, (3, 2)),
        Sample(WIDE, (2, 1)),
        Sample(SQUARES, (2, 2, 3), driver="gelsd"),
        Sample(TALL, (3, 2), driver="gels"),
    ],
)
def lstsq(
    A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None
) -> LeastSquares:
    """The X that minimizes |A @ X - B|, the smallest one if there are several.

    `A` is (..., m, n), `B` (..., m, k) or vectors (..., m). `driver` is one of LAPACK's: "gelsy"
    (the default), "gels" (for matrices of full rank), "gelsd" or "gelss". Residuals are returned if
    m > n and all matrices have full rank, but not with "gelsy"; ranks not with "gels"; singular
    values only with the last two.

    >>> import tapegrad
    >>> a, b = tapegrad.tensor([[1.0], [1.0]]), tapegrad.tensor([[1.0], [3.0]])
    >>> tapegrad.linalg.lstsq(a, b).solution.round(decimals=4)
    tensor([[2.]])
    """
    what = "linalg.lstsq"
    check_matrix(what, A)
    check_same_dtype(what, A, B=B)
    name = "gelsy" if driver is None else driver
    if name not in ("gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError(f"{what}: driver is gels, gelsy, gelsd or gelss, got {driver!r}")
    if not B._array.ndim:
        raise RuntimeError(f"{what} needs vectors or matrices B, got a number")
    m, n = A._array.shape[-2:]
    vector = A._array.ndim - 1 == B._array.ndim and B._array.shape == A._array.shape[:-1]
    right = reshape_(B, shape=(*B._array.shape, 1)) if vector or B._array.ndim == 1 else B
    vector = right is not B
    if right._array.shape[-2] != m:
        raise RuntimeError(
            f"{what}: A of shape {tuple(A.shape)} and B of shape {tuple(B.shape)} do not fit"
        )
    a, b = broadcast(A, right)
    cutoff = finfo(A.dtype.to_real()).eps * max(m, n) if rcond is None else float(rcond)
    solution, rank, values = lstsq_(a, b, rcond=cutoff, driver=name)
    residuals = A.new_empty((0,), dtype=A.dtype.to_real())
    # Whether there are residuals depends on data, unless the driver assumes full rank.
    if m > n and (name == "gels" or (name != "gelsy" and bool((rank == n).all()))):
        apart = matmul_(a, solution) - b
        size = apart.abs() if is_complex(apart) else apart
        residuals = sum(size * size, -2)
    if vector:
        solution = reshape_(solution, shape=tuple(solution._array.shape[:-1]))
    return LeastSquares(
        solution,
        residuals,
        A.new_empty((0,), dtype=int64) if name == "gels" else rank,
        values.detach() if name in ("gelsd", "gelss") else residuals.new_empty((0,)),
    )
