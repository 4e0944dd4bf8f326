"""Singular values and eigenvalues: `svd`, `eigh`, and both without vectors.

Comes in: batches of matrices (..., m, n). LAPACK decomposes them, so compiled functions call NumPy.
Gradient rules are those of Wan and Zhang (2019) and Giles (2008): gradients of vectors are correct
for losses that do not depend on the vectors' signs, and infinite where two values are equal.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...core import xp
from ...core.batch_rules import leading
from ...core.complexes import OWN
from ...core.modes import capturing
from ...core.primitive import OPAQUE, Primitive, define
from ...core.tensor import Tensor
from ..elementwise.complexes import imag_, is_complex
from ..elementwise.rounding import zero
from ..linalg.diagonals import diagonal_, tril_, triu_
from ..linalg.matmul import matmul_
from ..linalg.matrices import (
    LinAlgError,
    adjoint,
    check_matrix,
    diagonal_matrix,
    real_part,
    scaled_columns,
    scaled_rows,
)
from ..shape.reshaping import reshape_
from ..shape.slicing import slice_
from ..table import In, Sample, op

L = "linalg"
TALL: In = In(values=[[-1.7, -2.0], [-1.3, 1.3], [0.6, 1.7]])
WIDE: In = In(values=[[1.5, 0.5, -1.0], [-0.3, 0.75, 0.5]])
SQUARES: In = In(values=[[[1.3, -0.9], [-1.9, -1.7]], [[-0.9, -1.5], [1.6, 1.7]]])
SYMMETRIC: In = In(values=[[2.8, 0.45, 0.15], [0.45, 2.1, 0.05], [0.15, 0.05, 0.8]])
SYMMETRIC_PAIR: In = In(values=[[[2.1, -0.55], [-0.55, 1.7]], [[0.9, 0.1], [0.1, 1.9]]])


def lapack(what: str, name: str, x: Any, *rest: Any, **options: Any) -> Any:
    """Call a function of NumPy's linalg on finite values: LAPACK may hang on infinite ones."""
    module = xp.module(x)
    if not module.isfinite(x).all():
        raise LinAlgError(f"{what}: the input has values that are not finite")
    try:
        return getattr(module.linalg, name)(x, *rest, **options)
    except np.linalg.LinAlgError as error:
        raise LinAlgError(f"{what}: {error}") from None


def differences(s: Any) -> Any:
    """s[j] - s[i] for each i and j, and 1 on the diagonal."""
    *lead, n = s.shape
    apart = reshape_(s, shape=(*lead, 1, n)) - reshape_(s, shape=(*lead, n, 1))
    return apart + diagonal_matrix(zero(s) + 1)


def _beside_diagonal(x: Any) -> Any:
    return tril_(x, k=-1) + triu_(x, k=1)


def _skew(x: Any) -> Any:
    return x - adjoint(x)


def diagonal_of(x: Any) -> Any:
    """The diagonals of square matrices."""
    n = len(x.shape)
    return diagonal_(x, offset=0, dim1=n - 2, dim2=n - 1)


def check_phases(what: str, phases: Any) -> None:
    """Raise if a loss depends on the phases of complex vectors, which are arbitrary."""
    array = phases._array if isinstance(phases, Tensor) else phases
    if not capturing() and (abs(array) > 1e-2).any():  # NaN raises no error
        raise RuntimeError(
            f"{what}: complex vectors are determined up to a factor e^(i phi), and the loss "
            "depends on that factor; use a loss that does not"
        )


# -- singular values ---------------------------------------------------------------------------


def _columns(x: Any, k: int) -> Any:
    whole = (None,) * (len(x.shape) - 1)
    return x if x.shape[-1] == k else slice_(x, index=(*whole, (0, k, 1)))


def _rows(x: Any, k: int) -> Any:
    whole = (None,) * (len(x.shape) - 2)
    return x if x.shape[-2] == k else slice_(x, index=(*whole, (0, k, 1), None))


def _svd_gradient(g: Any, U: Any, S: Any, Vh: Any) -> tuple[Any]:
    """U (K S + S H + diag(g_S)) V', plus the parts outside the column spaces of U and V.

    With E = s_j^2 - s_i^2: K = skew(U' g_U) / E and H = skew(V' g_V) / E. Vectors without a
    singular value are not determined by the matrix, and are treated as constants.
    """
    g_u, g_s, g_vh = g
    k = S.shape[-1]
    u, vh = _columns(U, k), _rows(Vh, k)
    if g_u is None and g_vh is None:
        return (matmul_(scaled_columns(u, g_s), vh),)
    apart = differences(S * S)
    inner = None if g_s is None else diagonal_matrix(g_s)
    if is_complex(u):
        inner = _with_phases(inner, g_u, g_vh, u, S, vh, k)
    outside = None
    if g_u is not None:
        g_u = _columns(g_u, k)
        along = matmul_(adjoint(u), g_u)
        turned = scaled_columns(_skew(along) / apart, S)
        inner = turned if inner is None else inner + turned
        if u.shape[-2] > k:
            outside = matmul_(scaled_columns(g_u - matmul_(u, along), 1 / S), vh)
    if g_vh is not None:
        g_vh = _rows(g_vh, k)
        along = matmul_(g_vh, adjoint(vh))
        turned = scaled_rows(S, _skew(adjoint(along)) / apart)
        inner = turned if inner is None else inner + turned
        if vh.shape[-1] > k:
            rest = matmul_(scaled_columns(u, 1 / S), g_vh - matmul_(along, vh))
            outside = rest if outside is None else outside + rest
    whole = matmul_(matmul_(u, inner), vh)
    return (whole if outside is None else whole + outside,)


def _with_phases(inner: Any, g_u: Any, g_vh: Any, u: Any, S: Any, vh: Any, k: int) -> Any:
    """`inner` plus the part from the common phase of each pair of complex vectors."""
    left = None if g_u is None else _skew(matmul_(adjoint(u), _columns(g_u, k)))
    right = None if g_vh is None else _skew(matmul_(vh, adjoint(_rows(g_vh, k))))
    turns = [diagonal_of(x) for x in (left, right) if x is not None]
    check_phases("svd", imag_(turns[0] if len(turns) == 1 else turns[0] + turns[1]))
    if len(turns) < 2:
        return inner
    phases = diagonal_matrix(turns[0] / (2 * S))
    return phases if inner is None else inner + phases


def _svd_abstract(x: Any, *, full: bool) -> Any:
    (*lead, m, n), dtype = x
    k = min(m, n)
    left, right = (m, n) if full else (k, k)
    return ((*lead, m, left), dtype), ((*lead, k), real_part(dtype)), ((*lead, right, n), dtype)


svd_: Primitive = define(
    "svd",
    lambda x, *, full: tuple(lapack("linalg.svd", "svd", x, full_matrices=full)),
    kind=OPAQUE,
    outputs=("U", "S", "Vh"),
    joint=_svd_gradient,
    abstract=_svd_abstract,
    batch=leading,
    complex=OWN,
)


def _values_gradient(g: Any, x: Any) -> Any:
    u, _, vh = svd_(x, full=False)
    return matmul_(scaled_columns(u, g), vh)


svdvals_: Primitive = define(
    "svdvals",
    lambda x: lapack("linalg.svdvals", "svd", x, compute_uv=False),
    kind=OPAQUE,
    vjp=_values_gradient,
    abstract=lambda x: ((*x[0][:-2], min(x[0][-2:])), real_part(x[1])),
    batch=leading,
    complex=OWN,
)


class SingularValues(NamedTuple):
    """U, the singular values S in descending order, and Vh: A = U @ diag(S) @ Vh."""

    U: Tensor
    S: Tensor
    Vh: Tensor


@op(
    module=L,
    half=False,
    autocast={"cpu": "full"},
    samples=lambda: [
        Sample(TALL, full_matrices=False),
        Sample(SQUARES),
    ],
)
def svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None) -> SingularValues:
    """The singular value decomposition of matrices (..., m, n): A = U @ diag(S) @ Vh.

    With k = min(m, n), S is (..., k); U is (..., m, m) and Vh (..., n, n), or with
    `full_matrices=False` (..., m, k) and (..., k, n). `driver` would select an algorithm of
    cuSOLVER and must be None.

    >>> import tapegrad
    >>> u, s, vh = tapegrad.linalg.svd(tapegrad.tensor([[0.0, 2.0], [1.0, 0.0]]))
    >>> s
    tensor([2., 1.])
    """
    check_matrix("linalg.svd", A)
    _check_driver("linalg.svd", driver)
    return SingularValues(*svd_(A, full=bool(full_matrices)))


def _check_driver(what: str, driver: str | None) -> None:
    if driver is not None:
        raise RuntimeError(f"{what}: driver={driver!r} is one of CUDA's; leave it out")


@op(
    module=L,
    half=False,
    autocast={"cpu": "full"},
    samples=lambda: [Sample(TALL), Sample(WIDE), Sample(SQUARES)],
)
def svdvals(A: Tensor, *, driver: str | None = None) -> Any:
    """The singular values of matrices in descending order: (..., m, n) gives (..., min(m, n)).

    >>> import tapegrad
    >>> tapegrad.linalg.svdvals(tapegrad.tensor([[0.0, 2.0], [1.0, 0.0]]))
    tensor([2., 1.])
    """
    check_matrix("linalg.svdvals", A)
    _check_driver("linalg.svdvals", driver)
    return svdvals_(A)


# -- eigenvalues of symmetric matrices ---------------------------------------------------------


def _eigh_gradient(g: Any, L: Any, V: Any) -> tuple[Any]:
    """V (V' g_V / E + diag(g_L)) V' with E = l_j - l_i, made symmetric."""
    g_l, g_v = g
    if g_v is None:
        return (matmul_(scaled_columns(V, g_l), adjoint(V)),)
    along = matmul_(adjoint(V), g_v)
    if is_complex(V):
        check_phases("linalg.eigh", imag_(diagonal_of(along)))
    inner = _beside_diagonal(along / differences(L))
    if g_l is not None:
        inner = inner + diagonal_matrix(g_l)
    whole = matmul_(matmul_(V, inner), adjoint(V))
    return ((whole + adjoint(whole)) * 0.5,)


eigh_: Primitive = define(
    "eigh",
    lambda x, *, uplo: tuple(lapack("linalg.eigh", "eigh", x, uplo)),
    kind=OPAQUE,
    outputs=("L", "V"),
    joint=_eigh_gradient,
    abstract=lambda x, *, uplo: ((x[0][:-1], real_part(x[1])), x),
    batch=leading,
    complex=OWN,
)


def _eigvalsh_gradient(g: Any, x: Any, uplo: str) -> Any:
    _, v = eigh_(x, uplo=uplo)
    return matmul_(scaled_columns(v, g), adjoint(v))


eigvalsh_: Primitive = define(
    "eigvalsh",
    lambda x, *, uplo: lapack("linalg.eigvalsh", "eigvalsh", x, uplo),
    kind=OPAQUE,
    vjp=_eigvalsh_gradient,
    abstract=lambda x, *, uplo: (x[0][:-1], real_part(x[1])),
    batch=leading,
    complex=OWN,
)


def _triangle_of(what: str, UPLO: str) -> str:
    letter = UPLO.upper()
    if letter not in ("L", "U"):
        raise RuntimeError(f"{what}: UPLO is 'L' or 'U', got {UPLO!r}")
    return letter


class Eigenvectors(NamedTuple):
    """Eigenvalues, and eigenvectors as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


@op(
    module=L,
    half=False,
    autocast={"cpu": "full"},
    moves="symmetric",
    samples=lambda: [Sample(SYMMETRIC), Sample(SYMMETRIC_PAIR, "U")],
)
def eigh(A: Tensor, UPLO: str = "L") -> Eigenvectors:
    """Eigenvalues in ascending order, and eigenvectors, of symmetric matrices (..., n, n).

    Only one triangle is read, the lower ("L") or the upper ("U").

    >>> import tapegrad
    >>> values, vectors = tapegrad.linalg.eigh(tapegrad.tensor([[2.0, 0.0], [0.0, 1.0]]))
    >>> values
    tensor([1., 2.])
    """
    check_matrix("linalg.eigh", A, square=True)
    return Eigenvectors(*eigh_(A, uplo=_triangle_of("linalg.eigh", UPLO)))


@op(
    module=L,
    half=False,
    autocast={"cpu": "full"},
    moves="symmetric",
    samples=lambda: [Sample(SYMMETRIC), Sample(SYMMETRIC_PAIR, "U")],
)
def eigvalsh(A: Tensor, UPLO: str = "L") -> Any:
    """The eigenvalues of symmetric matrices in ascending order: (..., n, n) gives (..., n).

    >>> import tapegrad
    >>> tapegrad.linalg.eigvalsh(tapegrad.tensor([[2.0, 0.0], [0.0, 1.0]]))
    tensor([1., 2.])
    """
    check_matrix("linalg.eigvalsh", A, square=True)
    return eigvalsh_(A, uplo=_triangle_of("linalg.eigvalsh", UPLO))
