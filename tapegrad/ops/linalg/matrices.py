"""Functions of whole matrices: the inverse and the exponential, for batches of square matrices.

LAPACK computes them, so a compiled function calls NumPy for them. Their gradients use products and
the functions themselves. The checks that functions of matrices share are here too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import numeric, xp
from ...core.batch_rules import leading
from ...core.complexes import OWN
from ...core.primitive import OPAQUE, Primitive, define
from ..elementwise.complexes import conjugate
from ..index.gather import zeros_as
from ..precision import check_floating, rounded, widened
from ..shape.joining import cat_
from ..shape.reordering import permute_
from ..shape.reshaping import reshape_
from ..shape.slicing import slice_
from ..table import In, Sample, op
from .diagonals import undiagonal_
from .matmul import matmul_

if TYPE_CHECKING:
    from ...core.tensor import Tensor


class LinAlgError(RuntimeError):
    """No result for a matrix that is singular, not positive definite, or not finite."""


def check_square(what: str, x: Any) -> None:
    """Raise unless `x` is a square matrix or a batch of them."""
    shape = tuple(x._array.shape)
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise RuntimeError(f"{what} needs square matrices, got shape {shape}")


def check_matrix(what: str, x: Any, square: bool = False) -> None:
    """Raise unless `x` is a matrix, or a batch of them, of a dtype that LAPACK supports."""
    check_floating(x, what, complex=True)
    if numeric.is_half(x._array.dtype):
        raise RuntimeError(f"{what} does not exist for {x.dtype}; use .float() first")
    if square:
        check_square(what, x)
    elif x._array.ndim < 2:
        raise RuntimeError(f"{what} needs matrices, got shape {tuple(x.shape)}")


def on_host(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """A NumPy kernel that takes CuPy arrays too, by copies to the host and back."""

    @wraps(kernel)
    def run(*arrays: Any, **params: Any) -> Any:
        module = xp.module(arrays[0])
        if module is np:
            return kernel(*arrays, **params)
        out = kernel(*[x.get() for x in arrays], **params)
        if isinstance(out, tuple):
            return tuple(module.asarray(y) for y in out)
        return module.asarray(out)

    return run


def transposed(x: Any) -> Any:
    """Matrices with rows and columns exchanged."""
    n = len(x.shape)
    return permute_(x, dims=(*range(n - 2), n - 1, n - 2))


def adjoint(x: Any) -> Any:
    """The conjugate transpose, which is the transpose of real matrices."""
    return conjugate(transposed(x))


def real_part(spec: Any) -> Any:
    """The real dtype of singular values, norms and the like, from a matrix's dtype."""
    return np.empty(0, spec).real.dtype


def diagonal_matrix(x: Any) -> Any:
    """Matrices with these diagonals (..., n), and zeros elsewhere."""
    *lead, n = x.shape
    return undiagonal_(x, shape=(*lead, n, n), offset=0, dim1=len(lead), dim2=len(lead) + 1)


def scaled_columns(x: Any, s: Any) -> Any:
    """Multiply each column of matrices by one number."""
    return x * reshape_(s, shape=(*s.shape[:-1], 1, s.shape[-1]))


def scaled_rows(s: Any, x: Any) -> Any:
    """Multiply each row of matrices by one number."""
    return x * reshape_(s, shape=(*s.shape, 1))


def _inverse(x: Any) -> Any:
    try:
        return xp.module(x).linalg.inv(x)
    except np.linalg.LinAlgError:
        raise LinAlgError(f"inverse: a matrix of shape {x.shape[-2:]} is singular") from None


def _inverse_gradient(g: Any, out: Any) -> Any:
    left = adjoint(out)
    return -matmul_(matmul_(left, g), left)


inverse_: Primitive = define(
    "inverse",
    _inverse,
    kind=OPAQUE,
    vjp=_inverse_gradient,
    abstract=lambda x: x,
    batch=leading,
    complex=OWN,
)


@on_host
def _exponential(x: Any) -> Any:
    if not x.size:
        return x.copy()
    from scipy.linalg import expm

    # In float32, small elements would lose precision next to large ones.
    return expm(x.astype(np.result_type(x.dtype, np.float64))).astype(x.dtype, copy=False)


def _exponential_gradient(g: Any, x: Any) -> Any:
    """A corner block of the exponential of a matrix of twice the size: [[x', g], [0, x']]."""
    block = adjoint(x)
    dim, n = len(x.shape) - 1, x.shape[-1]
    above = cat_(block, g, dim=dim)
    below = cat_(zeros_as(block, shape=tuple(block.shape)), block, dim=dim)
    both = matrix_exp_(cat_(above, below, dim=dim - 1))
    whole = (None,) * (dim - 1)
    return slice_(both, index=(*whole, (0, n, 1), (n, 2 * n, 1)))


matrix_exp_: Primitive = define(
    "matrix_exp",
    _exponential,
    kind=OPAQUE,
    inputs=("x",),
    vjp=_exponential_gradient,
    abstract=lambda x: x,
    batch=leading,
    complex=OWN,
)

_WELL = In(values=[[2.0, 0.5, 0.1], [-0.3, 1.5, 0.2], [0.4, -0.2, 1.8]])


@op(
    samples=lambda: [Sample(_WELL), Sample(In(values=[[[1.0, 0.2], [0.3, 2.0]]] * 3))],
    half=False,
    autocast={"cpu": "full"},
)
def inverse(input: Tensor) -> Any:
    """The inverse of square matrices (..., n, n): inverse(x) @ x is the identity.

    >>> import tapegrad
    >>> tapegrad.inverse(tapegrad.tensor([[2.0, 0.0], [0.0, 4.0]]))
    tensor([[0.5000, 0.0000],
            [0.0000, 0.2500]])
    """
    check_matrix("inverse", input, square=True)
    return inverse_(input)


# PyTorch's exponential of half precision is infinite.
@op(samples=lambda: [Sample(_WELL), Sample(In(2, 3, 3, low=-1.0, high=1.0))], torch=None)
def matrix_exp(input: Tensor) -> Any:
    """The exponential of square matrices: I + x + x @ x / 2 + ...

    >>> import tapegrad
    >>> tapegrad.matrix_exp(tapegrad.tensor([[0.0, 1.0], [0.0, 0.0]]))
    tensor([[1., 1.],
            [0., 1.]])
    """
    check_floating(input, "matrix_exp", complex=True)
    check_square("matrix_exp", input)
    return rounded(matrix_exp_(widened(input)), input)
