"""A few singular values or eigenvalues of large matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..drawing import randn
from ..linalg.matmul import matmul
from ..linalg.matrices import adjoint, check_matrix
from ..reduce.reductions import mean
from ..table import Sample, op
from .orthogonal import qr
from .spectra import SYMMETRIC, SYMMETRIC_PAIR, eigh, svd
from .triangles import cholesky, solve_triangular

if TYPE_CHECKING:
    from ...core.tensor import Tensor


class LowRank(NamedTuple):
    """U, S and V of a low-rank approximation U @ diag(S) @ V.mH."""

    U: Tensor
    S: Tensor
    V: Tensor


def _basis(x: Any, count: int, niter: int) -> Any:
    """Orthonormal columns that nearly span the columns of x (Halko et al., 2009, algorithm 4.4)."""
    drawn = randn(x._array.shape[-1], count, dtype=x.dtype, device=x.device)
    q = qr(matmul(x, drawn)).Q
    for _ in range(niter):
        q = qr(matmul(adjoint(x), q)).Q
        q = qr(matmul(x, q)).Q
    return q


@op(
    method=False,
    half=False,
    random=True,
    result="LowRank",
    samples=lambda: [Sample((4, 3), 2), Sample((2, 3, 4), q=1, niter=1)],
)
def svd_lowrank(
    A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None
) -> Any:
    """The approximate `q` largest singular values of A - M and their vectors, by random projection.

    Each of `niter` further iterations improves the approximation.

    >>> import tapegrad
    >>> u, s, v = tapegrad.svd_lowrank(tapegrad.tensor([[3.0, 0.0], [0.0, 4.0]]), q=2)
    >>> s.round(decimals=4)
    tensor([4., 3.])
    """
    check_matrix("svd_lowrank", A)
    x = A if M is None else A - M
    m, n = x._array.shape[-2:]
    count = 6 if q is None else q
    if not 0 <= count <= min(m, n):
        raise ValueError(f"svd_lowrank: q must lie in 0..{min(m, n)}, got {count}")
    wide = m < n
    x = adjoint(x) if wide else x
    basis = _basis(x, count, 2 if niter is None else niter)
    u, s, vh = svd(matmul(adjoint(basis), x), full_matrices=False)
    left, right = matmul(basis, u), adjoint(vh)
    return LowRank(right, s, left) if wide else LowRank(left, s, right)


@op(
    method=False,
    half=False,
    random=True,
    result="LowRank",
    samples=lambda: [Sample((4, 3), 2), Sample((4, 3), 1, False)],
)
def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> Any:
    """The approximate `q` largest principal components of the rows of A, which are centred first.

    >>> import tapegrad
    >>> u, s, v = tapegrad.pca_lowrank(tapegrad.tensor([[1.0, 0.0], [3.0, 0.0]]), q=1)
    >>> s.round(decimals=4)
    tensor([1.4142])
    """
    check_matrix("pca_lowrank", A)
    smaller = min(A._array.shape[-2:])
    count = min(6, smaller) if q is None else q
    if not 0 <= count <= smaller:
        raise ValueError(f"pca_lowrank: q must lie in 0..{smaller}, got {count}")
    if niter < 0:
        raise ValueError(f"pca_lowrank: niter must not be negative, got {niter}")
    return svd_lowrank(A - mean(A, -2, True) if center else A, count, niter)


@op(
    method=False,
    half=False,
    moves="symmetric",
    samples=lambda: [Sample(SYMMETRIC, 1), Sample(SYMMETRIC_PAIR, 1, largest=False)],
    torch=None,  # iterates from random vectors, and its signs are random
)
def lobpcg(
    A: Tensor,
    k: int | None = None,
    B: Tensor | None = None,
    X: Tensor | None = None,
    n: int | None = None,
    iK: Tensor | None = None,
    niter: int | None = None,
    tol: float | None = None,
    largest: bool | None = None,
    method: str | None = None,
    tracker: Any = None,
    ortho_iparams: dict[str, int] | None = None,
    ortho_fparams: dict[str, float] | None = None,
    ortho_bparams: dict[str, bool] | None = None,
) -> tuple[Tensor, Tensor]:
    """The `k` largest eigenvalues (or smallest, with `largest=False`) and vectors of A x = l B x.

    Matrices here are dense, so LAPACK computes all eigenvalues without iteration. The parameters of
    PyTorch's iteration (`X` except for its width, `n`, `iK`, `niter`, `tol`, `method`, `ortho_*`)
    have no effect.

    >>> import tapegrad
    >>> values, vectors = tapegrad.lobpcg(tapegrad.tensor([[2.0, 0.0], [0.0, 5.0]]), k=1)
    >>> values
    tensor([5.])
    """
    check_matrix("lobpcg", A, square=True)
    if tracker is not None:
        raise RuntimeError("lobpcg calls no tracker: it does not iterate; use linalg.eigh")
    if k is None:
        k = 1 if X is None else int(X._array.shape[-1])
    size = A._array.shape[-1]
    if not 0 < k <= size:
        raise ValueError(f"lobpcg: k must lie in 1..{size}, got {k}")
    matrix, factor = A, None
    if B is not None:
        factor = cholesky(B)
        half = solve_triangular(factor, A, upper=False)
        matrix = solve_triangular(factor, adjoint(half), upper=False)
    # Symmetrize, so that both triangles count and get gradients: eigh alone reads only one.
    values, vectors = eigh((matrix + adjoint(matrix)) / 2)
    if largest is None or largest:
        values, vectors = values.flip(-1), vectors.flip(-1)
    values, vectors = values.narrow(-1, 0, k), vectors.narrow(-1, 0, k)
    if factor is not None:
        vectors = solve_triangular(adjoint(factor), vectors, upper=True)
    return values, vectors
