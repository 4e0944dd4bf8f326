"""QR decompositions, and products of Householder reflections.

The signs are LAPACK's, as in PyTorch. Reflections are applied one after another by other
operations, so they can be differentiated and compiled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...core import xp
from ...core.batch_rules import leading
from ...core.complexes import OWN
from ...core.primitive import OPAQUE, Primitive, define
from ..elementwise.complexes import conjugate
from ..families import without_gradient
from ..index.gather import zeros_as
from ..linalg.diagonals import tril_, triu_
from ..linalg.matmul import matmul_
from ..linalg.matrices import adjoint, check_matrix, on_host
from ..precision import check_same_dtype
from ..shape.joining import cat_
from ..shape.padding import padded
from ..shape.reshaping import reshape_
from ..shape.slicing import slice_
from ..table import In, Sample, op
from .spectra import SQUARES, TALL, WIDE, L
from .triangles import identity_like, solve_triangular_

if TYPE_CHECKING:
    from ...core.tensor import Tensor

# -- QR ----------------------------------------------------------------------------------------


def part(x: Any, rows: Any = None, columns: Any = None) -> Any:
    """Some rows and columns of matrices, each (first, end, step) or None for all."""
    return slice_(x, index=(*(None,) * (len(x.shape) - 2), rows, columns))


def _square_qr_gradient(g_q: Any, g_r: Any, q: Any, r: Any) -> Any:
    """(g_Q + Q sym(triu(g_R R' - Q' g_Q))) R'^-1, where sym adds the transpose of the triangle."""
    inner = None
    if g_r is not None:
        inner = matmul_(g_r, adjoint(r))
    if g_q is not None:
        along = matmul_(adjoint(q), g_q)
        inner = -along if inner is None else inner - along
    above, middle = triu_(inner, k=1), tril_(triu_(inner + adjoint(inner), k=0), k=0) * 0.5
    whole = matmul_(q, above + adjoint(above) + middle)
    whole = whole if g_q is None else g_q + whole
    return adjoint(solve_triangular_(r, adjoint(whole), upper=True, unit=False))


def _qr_gradient(g: Any, Q: Any, R: Any, x_shape: Any, mode: str) -> tuple[Any]:
    g_q, g_r = g
    m, n = x_shape[-2:]
    if mode == "complete" and m > n:
        raise RuntimeError(
            "linalg.qr: with mode='complete' and more rows than columns there is no gradient; use "
            "mode='reduced'"
        )
    if m >= n:
        return (_square_qr_gradient(g_q, g_r, Q, R),)
    # R = [U, W]: the first m columns of A are Q U, the others Q W.
    first, rest = part(R, columns=(0, m, 1)), part(R, columns=(m, n, 1))
    g_first = None
    g_rest = zeros_as(rest, shape=tuple(rest.shape))
    if g_r is not None:
        g_first, g_rest = part(g_r, columns=(0, m, 1)), part(g_r, columns=(m, n, 1))
        from_rest = matmul_(matmul_(Q, rest), adjoint(g_rest))
        g_q = from_rest if g_q is None else g_q + from_rest
    left = _square_qr_gradient(g_q, g_first, Q, first)
    return (cat_(left, matmul_(Q, g_rest), dim=len(x_shape) - 1),)


def _qr_abstract(x: Any, *, mode: str) -> Any:
    (*lead, m, n), dtype = x
    k = m if mode == "complete" else min(m, n)
    return ((*lead, m, k), dtype), ((*lead, k, n), dtype)


qr_: Primitive = define(
    "qr",
    lambda x, *, mode: tuple(xp.module(x).linalg.qr(x, mode)),
    kind=OPAQUE,
    outputs=("Q", "R"),
    joint=_qr_gradient,
    abstract=_qr_abstract,
    batch=leading,
    complex=OWN,
)


qr_r_: Primitive = define(
    "qr_r",
    lambda x: xp.module(x).linalg.qr(x, "r"),
    kind=OPAQUE,
    joint=without_gradient("linalg.qr with mode='r'", "mode='reduced'"),
    abstract=lambda x: ((*x[0][:-2], min(x[0][-2:]), x[0][-1]), x[1]),
    batch=leading,
    complex=OWN,
)


class Orthogonal(NamedTuple):
    """Q with orthonormal columns, and the upper triangle R."""

    Q: Tensor
    R: Tensor


@op(
    module=L,
    half=False,
    autocast={"cpu": "full"},
    samples=lambda: [
        Sample(TALL),
        Sample(WIDE),
        Sample(SQUARES, "complete"),
        Sample(In(values=TALL.values, grad=False), "r"),
    ],
)
def qr(A: Tensor, mode: str = "reduced") -> Orthogonal:
    """The QR decomposition of matrices (..., m, n): A = Q @ R.

    With k = min(m, n), Q is (..., m, k) and R (..., k, n). `mode="complete"` gives all m columns
    of Q and has no gradient if m > n; `mode="r"` gives an empty Q and never has a gradient.

    >>> import tapegrad
    >>> q, r = tapegrad.linalg.qr(tapegrad.tensor([[3.0, 1.0], [4.0, 2.0]]))
    >>> (q @ r).round(decimals=4)
    tensor([[3., 1.],
            [4., 2.]])
    """
    check_matrix("linalg.qr", A)
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(f"linalg.qr: mode is 'reduced', 'complete' or 'r', got {mode!r}")
    if mode == "r":
        return Orthogonal(A.new_empty((0,)), qr_r_(A))
    return Orthogonal(*qr_(A, mode=mode))


@op(
    "qr",
    half=False,
    autocast={"cpu": "full"},
    samples=lambda: [Sample(TALL), Sample(SQUARES, False)],
)
def _older_qr(input: Tensor, some: bool = True) -> Orthogonal:
    """The QR decomposition, with all columns of Q if `some=False`; see `linalg.qr`.

    >>> import tapegrad
    >>> tapegrad.qr(tapegrad.tensor([[3.0], [4.0]])).R
    tensor([[-5.]])
    """
    check_matrix("qr", input)
    return Orthogonal(*qr_(input, mode="reduced" if some else "complete"))


# -- reflections -------------------------------------------------------------------------------


@on_host
def _geqrf(x: Any) -> Any:
    k = min(x.shape[-2:])
    if not x.size:
        return x.copy(), np.zeros((*x.shape[:-2], k), x.dtype)
    raw, tau = np.linalg.qr(x, "raw")
    # column-major, as LAPACK expects it
    return np.swapaxes(np.ascontiguousarray(raw), -1, -2), tau


geqrf_: Primitive = define(
    "geqrf",
    _geqrf,
    kind=OPAQUE,
    inputs=("x",),
    outputs=("a", "tau"),
    joint=without_gradient("geqrf", "linalg.qr"),
    abstract=lambda x: (x, ((*x[0][:-2], min(x[0][-2:])), x[1])),
    batch=leading,
    complex=OWN,
)


class Reflections(NamedTuple):
    """`a` with reflection vectors below its diagonal and R on and above it; and factors `tau`."""

    a: Tensor
    tau: Tensor


@op(
    casts=True,
    half=False,
    autocast={"cpu": "full"},
    differentiable=False,
    samples=lambda: [Sample(In(3, 2, grad=False)), Sample(In(2, 2, 3, grad=False))],
)
def geqrf(input: Tensor) -> Reflections:
    """The QR decomposition in LAPACK's form, for `linalg.householder_product`; no gradient.

    >>> import tapegrad
    >>> a, tau = tapegrad.geqrf(tapegrad.tensor([[3.0, 1.0], [4.0, 2.0]]))
    >>> tau
    tensor([1.6000, 0.0000])
    """
    check_matrix("geqrf", input)
    return Reflections(*geqrf_(input))


def _vectors(a: Any, k: int) -> Any:
    """The vectors of k reflections as columns: zeros above the diagonal, ones on it."""
    below = tril_(part(a, columns=(0, k, 1)), k=-1)
    one = identity_like(part(a, rows=(0, k, 1), columns=(0, k, 1)))
    n = len(a.shape)
    return below + padded(one, ((0, 0),) * (n - 2) + ((0, a.shape[-2] - k), (0, 0)))


def _reflected(a: Any, tau: Any, x: Any, reverse: bool) -> Any:
    """Apply the reflections to the columns of x: Q @ x with `reverse`, else Q.mH @ x."""
    k = tau.shape[-1]
    tau = tau if reverse else conjugate(tau)
    v = _vectors(a, k)
    order = range(k - 1, -1, -1) if reverse else range(k)
    for i in order:
        column = part(v, columns=(i, i + 1, 1))
        factor = slice_(tau, index=(*(None,) * (len(tau.shape) - 1), (i, i + 1, 1)))
        factor = reshape_(factor, shape=(*factor.shape, 1))
        x = x - matmul_(column * factor, matmul_(adjoint(column), x))
    return x


_REFLECTIONS = In(values=[[0.5, -0.2], [0.3, 1.1], [-0.4, 0.7]])
_FACTORS = In(values=[1.6, 2 / 1.49])


def _check_reflections(what: str, a: Any, tau: Any, tall: bool) -> None:
    check_matrix(what, a)
    check_same_dtype(what, a, tau=tau)
    m, n = a._array.shape[-2:]
    if tau._array.ndim != a._array.ndim - 1 or tau._array.shape[:-1] != a._array.shape[:-2]:
        raise RuntimeError(
            f"{what}: tau of shape {tuple(tau.shape)} does not fit the input of shape "
            f"{tuple(a.shape)}"
        )
    if (tall and m < n) or tau._array.shape[-1] > min(m, n):
        raise RuntimeError(
            f"{what} needs{' as many rows as columns, and' if tall else ''} no more factors than "
            f"columns; got {tuple(a.shape)} and {tuple(tau.shape)}"
        )


@op(
    casts=True,
    module=L,
    half=False,
    autocast={"cpu": "full"},
    samples=lambda: [
        Sample(_REFLECTIONS, _FACTORS),
        Sample(In(values=[[[0.5], [0.3]], [[0.1], [2.0]]]), In(values=[[2 / 1.09], [0.4]])),
    ],
)
def householder_product(A: Tensor, tau: Tensor) -> Any:
    """The first columns of the product of reflections I - tau * v @ v.mH, in the form of `geqrf`.

    The vector v of each reflection is a column of A below the diagonal, with a one on the diagonal
    and zeros above it.

    >>> import tapegrad
    >>> a, tau = tapegrad.geqrf(tapegrad.tensor([[3.0], [4.0]]))
    >>> tapegrad.linalg.householder_product(a, tau)
    tensor([[-0.6000],
            [-0.8000]])
    """
    _check_reflections("linalg.householder_product", A, tau, tall=True)
    m, n = A._array.shape[-2:]
    square = padded(A, ((0, 0),) * (A._array.ndim - 1) + ((0, m - n),))
    start = part(identity_like(square), columns=(0, n, 1))
    if not tau._array.size:
        return start + tril_(A, k=-m)  # adds zeros, to give the result a history
    return _reflected(A, tau, start, reverse=True)


@op(
    casts=True,
    half=False,
    autocast={"cpu": "full"},
    samples=lambda: [Sample(_REFLECTIONS, _FACTORS)],
)
def orgqr(input: Tensor, tau: Tensor) -> Any:
    """`linalg.householder_product` by PyTorch's older name.

    >>> import tapegrad
    >>> a, tau = tapegrad.geqrf(tapegrad.tensor([[3.0], [4.0]]))
    >>> tapegrad.orgqr(a, tau)
    tensor([[-0.6000],
            [-0.8000]])
    """
    return householder_product(input, tau)


@op(
    half=False,
    autocast={"cpu": "full"},
    samples=lambda: [
        Sample(_REFLECTIONS, _FACTORS, (3, 2)),
        Sample(_REFLECTIONS, _FACTORS, (3, 2), transpose=True),
        Sample(_REFLECTIONS, _FACTORS, (2, 3), left=False),
    ],
)
def ormqr(
    input: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False
) -> Any:
    """Q @ other, where Q is the whole product of reflections (see `linalg.householder_product`).

    With `transpose`, Q.mH @ other; with `left=False`, other @ Q.

    >>> import tapegrad
    >>> x = tapegrad.tensor([[3.0], [4.0]])
    >>> tapegrad.ormqr(*tapegrad.geqrf(x), x, transpose=True).round(decimals=4)
    tensor([[-5.],
            [ 0.]])
    """
    _check_reflections("ormqr", input, tau, tall=False)
    check_matrix("ormqr", other)
    check_same_dtype("ormqr", input, other=other)
    rows = other._array.shape[-2 if left else -1]
    if other._array.shape[:-2] != input._array.shape[:-2] or rows != input._array.shape[-2]:
        raise RuntimeError(
            f"ormqr: an input of shape {tuple(input.shape)} and other of shape "
            f"{tuple(other.shape)} do not fit"
        )
    if not left:
        return adjoint(_reflected(input, tau, adjoint(other), reverse=bool(transpose)))
    return _reflected(input, tau, other, reverse=not transpose)
