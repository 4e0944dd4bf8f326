"""The extension `linalg` of the standard, based on `tapegrad.linalg`."""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import linalg as ours
from ..core import dtypes
from ..core.dtypes import DType
from ..core.tensor import Tensor
from .operands import as_tensor, axes_of, computed, operation, same_dtype
from .shapes import matmul as matmul
from .shapes import matrix_transpose as matrix_transpose
from .shapes import tensordot as tensordot
from .shapes import vecdot as vecdot


class EigResult(NamedTuple):
    """Eigenvalues in no particular order, and eigenvectors as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class EighResult(NamedTuple):
    """Eigenvalues in ascending order, and eigenvectors as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class QRResult(NamedTuple):
    """An orthogonal and an upper triangular factor."""

    Q: Tensor
    R: Tensor


class SlogdetResult(NamedTuple):
    """The sign of a determinant, and the logarithm of its absolute value."""

    sign: Tensor
    logabsdet: Tensor


class SVDResult(NamedTuple):
    """Singular vectors, and singular values in descending order."""

    U: Tensor
    S: Tensor
    Vh: Tensor


def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """The triangular factor of positive definite matrices."""
    return ours.cholesky(as_tensor(x), upper=upper)


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The cross product of vectors of three elements."""
    a, b = same_dtype(as_tensor(x1), as_tensor(x2))
    if a.shape[axis] != 3 or b.shape[axis] != 3:
        raise ValueError(f"cross needs size 3 along axis {axis}")
    a, b = operation("broadcast_tensors")(a, b)
    return computed("cross", a, b, axis)


def det(x: Tensor, /) -> Tensor:
    """The determinant of square matrices."""
    return ours.det(as_tensor(x))


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """A diagonal of matrices."""
    return as_tensor(x).diagonal(offset, -2, -1)


def eig(x: Tensor, /) -> EigResult:
    """Eigenvalues and eigenvectors of square matrices, as complex numbers."""
    return EigResult(*ours.eig(as_tensor(x)))


def eigvals(x: Tensor, /) -> Tensor:
    """Eigenvalues of square matrices, as complex numbers."""
    return ours.eigvals(as_tensor(x))


def eigh(x: Tensor, /) -> EighResult:
    """Eigenvalues and eigenvectors of symmetric matrices."""
    return EighResult(*ours.eigh(as_tensor(x)))


def eigvalsh(x: Tensor, /) -> Tensor:
    """Eigenvalues of symmetric matrices."""
    return ours.eigvalsh(as_tensor(x))


def inv(x: Tensor, /) -> Tensor:
    """The inverse of square matrices."""
    return ours.inv(as_tensor(x))


def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """A norm of matrices."""
    return ours.matrix_norm(as_tensor(x), ord, (-2, -1), keepdims)


def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """The power `n` of square matrices."""
    return ours.matrix_power(as_tensor(x), n)


def matrix_rank(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """The rank of matrices: the number of singular values above `rtol` times the largest."""
    return ours.matrix_rank(as_tensor(x), rtol=rtol)


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The outer product of two vectors."""
    a, b = same_dtype(as_tensor(x1), as_tensor(x2))
    return computed("outer", a, b)


def pinv(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """The pseudo-inverse of matrices."""
    return ours.pinv(as_tensor(x), rtol=rtol)


def qr(x: Tensor, /, *, mode: str = "reduced") -> QRResult:
    """An orthogonal factor times an upper triangular one."""
    return QRResult(*ours.qr(as_tensor(x), mode=mode))


def slogdet(x: Tensor, /) -> SlogdetResult:
    """The sign of determinants, and the logarithm of their absolute values."""
    return SlogdetResult(*ours.slogdet(as_tensor(x)))


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The solution x of x1 @ x = x2; `x2` is a vector only if it has one dimension."""
    a, b = same_dtype(as_tensor(x1), as_tensor(x2))
    if b.ndim == 1:
        lead = tuple(a.shape[:-1])
        return ours.solve(a, b.expand(lead).unsqueeze(-1)).squeeze(-1)
    lead = tuple(operation("broadcast_shapes")(tuple(a.shape[:-2]), tuple(b.shape[:-2])))
    a = a.expand((*lead, *a.shape[-2:]))
    b = b.expand((*lead, *b.shape[-2:]))
    return ours.solve(a, b)


def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVDResult:
    """Singular vectors and values."""
    return SVDResult(*ours.svd(as_tensor(x), full_matrices=full_matrices))


def svdvals(x: Tensor, /) -> Tensor:
    """Singular values in descending order."""
    return ours.svdvals(as_tensor(x))


def trace(x: Tensor, /, *, offset: int = 0, dtype: DType | None = None) -> Tensor:
    """The sum of a diagonal of matrices."""
    along = diagonal(x, offset=offset)
    if dtype is None:
        dtype = x.dtype if x.dtype.category >= dtypes.FLOAT else dtypes.int64
    return along.to(dtype).sum(-1)


def vector_norm(
    x: Tensor, /, *, axis: Any = None, keepdims: bool = False, ord: float = 2
) -> Tensor:
    """A norm of vectors: of all elements, or along axes."""
    x = as_tensor(x)
    axes = axes_of(axis, x.ndim)
    if not axes:
        size = x.abs()
        return (size != 0).to(size.dtype) if ord == 0 else size
    return ours.vector_norm(x, ord, axes, keepdims)


__all__ = [
    *("cholesky", "cross", "det", "diagonal", "eig", "eigh", "eigvals"),
    *("eigvalsh", "inv", "matmul", "matrix_norm"),
    *("matrix_power", "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet"),
    *("solve", "svd", "svdvals", "tensordot", "trace", "vecdot", "vector_norm"),
]
