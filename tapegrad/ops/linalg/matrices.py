"""Functions of whole matrices: the inverse and the exponential, for batches of square matrices.

LAPACK computes them, so that a compiled function calls NumPy for them. Their gradients are made of
products and of the functions themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import xp
from ...core.batch_rules import leading
from ...core.primitive import OPAQUE, Primitive, define
from ..index.gather import zeros_as
from ..precision import check_floating, rounded, widened
from ..shape.joining import cat_
from ..shape.reordering import permute_
from ..shape.slicing import slice_
from ..table import In, Sample, op
from .matmul import matmul_

if TYPE_CHECKING:
    from ...core.tensor import Tensor


def transposed(x: Any) -> Any:
    """Matrices with rows and columns exchanged."""
    n = len(x.shape)
    return permute_(x, dims=(*range(n - 2), n - 1, n - 2))


def _inverse(x: Any) -> Any:
    try:
        return xp.module(x).linalg.inv(x)
    except np.linalg.LinAlgError:
        raise RuntimeError(f"inverse: a matrix of shape {x.shape[-2:]} is singular") from None


def _inverse_gradient(g: Any, out: Any) -> Any:
    left = transposed(out)
    return -matmul_(matmul_(left, g), left)


inverse_: Primitive = define(
    "inverse",
    _inverse,
    kind=OPAQUE,
    vjp=_inverse_gradient,
    abstract=lambda x: x,
    batch=leading,
)


def _exponential(x: Any) -> Any:
    if not x.size:
        return x.copy()
    from scipy.linalg import expm

    module = xp.module(x)
    array = x if module is np else x.get()
    return module.asarray(expm(array).astype(x.dtype, copy=False))


def _exponential_gradient(g: Any, x: Any) -> Any:
    """The corner of the exponential of a matrix of twice the size: [[x', g], [0, x']]."""
    block = transposed(x)
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
    vjp=_exponential_gradient,
    abstract=lambda x: x,
    batch=leading,
)


def check_square(what: str, x: Any) -> None:
    """Raise unless `x` is a square matrix or a batch of them."""
    shape = tuple(x._array.shape)
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise RuntimeError(f"{what} needs square matrices, got shape {shape}")


_WELL = In(values=[[2.0, 0.5, 0.1], [-0.3, 1.5, 0.2], [0.4, -0.2, 1.8]])


# PyTorch has no inverse of half precision, and its exponential of it is infinite.
@op(
    samples=lambda: [Sample(_WELL), Sample(In(values=[[[1.0, 0.2], [0.3, 2.0]]] * 3))],
    torch=None,
    autocast={"cpu": "full"},
)
def inverse(input: Tensor) -> Any:
    """The inverse of square matrices (..., n, n): inverse(x) @ x is the identity.

    >>> import tapegrad
    >>> tapegrad.inverse(tapegrad.tensor([[2.0, 0.0], [0.0, 4.0]]))
    tensor([[0.5000, 0.0000],
            [0.0000, 0.2500]])
    """
    check_floating(input, "inverse")
    check_square("inverse", input)
    return rounded(inverse_(widened(input)), input)


@op(samples=lambda: [Sample(_WELL), Sample(In(2, 3, 3, low=-1.0, high=1.0))], torch=None)
def matrix_exp(input: Tensor) -> Any:
    """The exponential of square matrices: I + x + x @ x / 2 + ...

    >>> import tapegrad
    >>> tapegrad.matrix_exp(tapegrad.tensor([[0.0, 1.0], [0.0, 0.0]]))
    tensor([[1., 1.],
            [0., 1.]])
    """
    check_floating(input, "matrix_exp")
    check_square("matrix_exp", input)
    return rounded(matrix_exp_(widened(input)), input)
