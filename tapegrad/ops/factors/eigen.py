"""Eigenvalues of general square matrices: `eig` and `eigvals`, whose results are complex."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import numeric
from ...core.batch_rules import leading
from ...core.complexes import OWN
from ...core.primitive import OPAQUE, Primitive, define
from ..elementwise.complexes import conjugate, imag_, is_complex, real_
from ..linalg.matmul import matmul_
from ..linalg.matrices import adjoint, check_matrix, diagonal_matrix, scaled_columns, scaled_rows
from ..table import In, Sample, op
from .spectra import Eigenvectors, L, check_phases, diagonal_of, differences, lapack
from .systems import solve_

if TYPE_CHECKING:
    from ...core.tensor import Tensor

_SQUARE = In(values=[[1.3, -0.9], [1.9, -1.7]])
_SQUARES = In(values=[[[1.3, 0.9], [1.9, -1.7]], [[-0.9, -1.5], [1.6, 1.7]]])


def _eig(x: Any) -> Any:
    values, vectors = lapack("linalg.eig", "eig", x)
    dtype = np.result_type(x.dtype, np.complex64)
    return values.astype(dtype), vectors.astype(dtype)


def _eig_gradient(g: Any, L: Any, V: Any, x_dtype: Any) -> tuple[Any]:
    """V'^-1 ((V' g_V - V' V diag(Re(V' g_V))) / conj(E) + diag(g_L)) V' with E = l_j - l_i."""
    g_l, g_v = g
    inner = None if g_l is None else diagonal_matrix(g_l)
    if g_v is not None:
        along = matmul_(adjoint(V), g_v)
        check_phases("linalg.eig", imag_(diagonal_of(along)))
        lengths = real_(diagonal_of(along))  # the length of eigenvectors is fixed
        turned = along - scaled_columns(matmul_(adjoint(V), V), lengths)
        turned = turned / conjugate(differences(L))
        inner = turned if inner is None else inner + turned
    out = solve_(adjoint(V), matmul_(inner, adjoint(V)))[0]
    return (out if numeric.is_complex(x_dtype) else real_(out),)


eig_: Primitive = define(
    "eig",
    _eig,
    kind=OPAQUE,
    outputs=("L", "V"),
    joint=_eig_gradient,
    abstract=lambda x: (
        (x[0][:-1], np.result_type(x[1], np.complex64)),
        (x[0], np.result_type(x[1], np.complex64)),
    ),
    batch=leading,
    complex=OWN,
)


def _eigvals(x: Any) -> Any:
    out = lapack("linalg.eigvals", "eigvals", x)
    return out.astype(np.result_type(x.dtype, np.complex64))


def _eigvals_gradient(g: Any, x: Any) -> Any:
    _, v = eig_(x)
    out = solve_(adjoint(v), scaled_rows(g, adjoint(v)))[0]
    return out if is_complex(x) else real_(out)


eigvals_: Primitive = define(
    "eigvals",
    _eigvals,
    kind=OPAQUE,
    vjp=_eigvals_gradient,
    abstract=lambda x: (x[0][:-1], np.result_type(x[1], np.complex64)),
    batch=leading,
    complex=OWN,
)


@op(module=L, half=False, autocast={"cpu": "full"}, samples=lambda: [Sample(_SQUARES)])
def eigvals(A: Tensor) -> Any:
    """The complex eigenvalues of square matrices, in no order: (..., n, n) gives (..., n).

    >>> import tapegrad
    >>> tapegrad.linalg.eigvals(tapegrad.tensor([[0.0, -1.0], [1.0, 0.0]]))
    tensor([0.+1.j, 0.-1.j])
    """
    check_matrix("linalg.eigvals", A, square=True)
    return eigvals_(A)


@op(
    module=L,
    half=False,
    autocast={"cpu": "full"},
    samples=lambda: [Sample(In(values=_SQUARE.values, grad=False))],
)
def eig(A: Tensor) -> Eigenvectors:
    """The complex eigenvalues and eigenvectors of square matrices, in no order.

    Each vector has length 1 and an arbitrary phase, so a gradient exists only if the loss does not
    depend on the phases.

    >>> import tapegrad
    >>> values, vectors = tapegrad.linalg.eig(tapegrad.tensor([[0.0, -1.0], [1.0, 0.0]]))
    >>> values
    tensor([0.+1.j, 0.-1.j])
    """
    check_matrix("linalg.eig", A, square=True)
    return Eigenvectors(*eig_(A))
