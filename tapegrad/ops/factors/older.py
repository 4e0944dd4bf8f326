"""Older names of PyTorch's, outside `linalg`: `svd`, `lu`, `addbmm` and others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ..linalg.matmul import blend, matmul, outer
from ..linalg.matrices import adjoint as _adjoint
from ..linalg.matrices import check_matrix
from ..linalg.solving import matrix_norm, multi_dot
from ..precision import as_floating
from ..reduce.cumulative import cumsum
from ..reduce.statistics import norm
from ..shape.dims import normal_dim
from ..shape.reordering import permute_
from ..shape.reshaping import reshape_
from ..shape.slicing import narrow
from ..table import In, Sample, op
from .lu import LUFactors, LUFactorsWithInfo, lu_factor_ex
from .lu import lu_solve as _lu_solve
from .spectra import SQUARES, TALL, svdvals_
from .spectra import svd as _svd

if TYPE_CHECKING:
    from ...core.tensor import Tensor
    from ..annotations import Dims, Number

# -- factors -----------------------------------------------------------------------------------


class OlderSingularValues(NamedTuple):
    """U, the singular values S, and V: input = U @ diag(S) @ V.T."""

    U: Tensor
    S: Tensor
    V: Tensor


@op(half=False, autocast={"cpu": "full"}, samples=lambda: [Sample(TALL), Sample(SQUARES, False)])
def svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> OlderSingularValues:
    """The singular value decomposition with V, where `linalg.svd` has its transpose.

    With `some` there are as many vectors as singular values; without `compute_uv` they are zeros.

    >>> import tapegrad
    >>> tapegrad.svd(tapegrad.tensor([[0.0, 2.0], [1.0, 0.0]])).S
    tensor([2., 1.])
    """
    check_matrix("svd", input)
    if not compute_uv:
        *lead, m, n = input._array.shape
        return OlderSingularValues(
            input.new_zeros((*lead, m, m)), svdvals_(input), input.new_zeros((*lead, n, n))
        )
    u, s, vh = _svd(input, not some)
    return OlderSingularValues(u, s, _adjoint(vh))


@op(half=False, samples=lambda: [Sample(SQUARES), Sample(SQUARES, get_infos=True)], torch=None)
def lu(input: Tensor, pivot: bool = True, get_infos: bool = False) -> LUFactors | LUFactorsWithInfo:
    """LU factors in one tensor and the pivots, as `linalg.lu_factor`; with `get_infos`, its info.

    >>> import tapegrad
    >>> factors, pivots = tapegrad.lu(tapegrad.tensor([[0.0, 2.0], [3.0, 4.0]]))
    >>> pivots
    tensor([2, 2], dtype=tapegrad.int32)
    """
    factors, pivots, info = lu_factor_ex(input, pivot=pivot, check_errors=not get_infos)
    if get_infos:
        return LUFactorsWithInfo(factors, pivots, info)
    return LUFactors(factors, pivots)


@op(
    half=False,
    autocast={"cpu": "full"},
    samples=lambda: [
        Sample((2, 3), SQUARES, In(values=[[1, 2], [2, 2]], kind="int32")),
        Sample((2, 2, 1), SQUARES, In(values=[[1, 2], [2, 2]], kind="int32")),
    ],
)
def lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Any:
    """`linalg.lu_solve` with the right side first.

    >>> import tapegrad
    >>> factors = tapegrad.linalg.lu_factor(tapegrad.tensor([[0.0, 2.0], [3.0, 4.0]]))
    >>> tapegrad.lu_solve(tapegrad.tensor([[2.0], [7.0]]), *factors)
    tensor([[1.],
            [1.]])
    """
    return _lu_solve(LU_data, LU_pivots, b)


# -- products and norms ------------------------------------------------------------------------


@op(method=False, samples=lambda: [Sample((2, 3), (3, 4), (4, 2)), Sample((2, 3))])
def chain_matmul(*matrices: Tensor) -> Any:
    """The product of matrices, in the order that takes the least work: see `linalg.multi_dot`.

    >>> import tapegrad
    >>> a = tapegrad.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> tapegrad.chain_matmul(a, a)
    tensor([[ 7., 10.],
            [15., 22.]])
    """
    given = matrices[0] if len(matrices) == 1 and isinstance(matrices[0], list) else matrices
    return given[0].clone() if len(given) == 1 else multi_dot(list(given))


@op(
    samples=lambda: [
        Sample((2, 4), (3, 2, 3), (3, 3, 4)),
        Sample((2, 4), (3, 2, 3), (3, 3, 4), beta=0.5, alpha=2),
    ],
    inplace=True,
    autocast="lower",
)
def addbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Any:
    """beta * input + alpha * the sum of the products of a batch of matrices.

    >>> import tapegrad
    >>> x = tapegrad.ones(3, 2, 2)
    >>> tapegrad.addbmm(tapegrad.zeros(2, 2), x, x)
    tensor([[6., 6.],
            [6., 6.]])
    """
    if batch1._array.ndim != 3 or batch2._array.ndim != 3:
        raise RuntimeError(
            f"addbmm needs batches of matrices, got shapes {tuple(batch1.shape)} and "
            f"{tuple(batch2.shape)}"
        )
    if batch1._array.shape[::2] != batch2._array.shape[:2]:
        raise RuntimeError(f"addbmm: {tuple(batch1.shape)} and {tuple(batch2.shape)} do not fit")
    count, rows, inner = batch1._array.shape
    left = reshape_(permute_(batch1, dims=(1, 0, 2)), shape=(rows, count * inner))
    product = matmul(left, reshape_(batch2, shape=(count * inner, batch2._array.shape[2])))
    return blend(input.expand(product.shape), product, beta, alpha)


@op(
    samples=lambda: [Sample((2, 3), (2,), (3,)), Sample((3,), (2,), (3,), beta=0.5, alpha=2)],
    inplace=True,
    autocast={"cuda": "lower"},
)
def addr(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Any:
    """beta * input + alpha * the outer product of two vectors.

    >>> import tapegrad
    >>> tapegrad.addr(tapegrad.zeros(1, 2), tapegrad.ones(1), tapegrad.tensor([1.0, 2.0]))
    tensor([[1., 2.]])
    """
    if vec1._array.ndim != 1 or vec2._array.ndim != 1:
        raise RuntimeError(
            f"addr needs vectors, got shapes {tuple(vec1.shape)} and {tuple(vec2.shape)}"
        )
    for name, factor in (("beta", beta), ("alpha", alpha)):
        if isinstance(factor, float) and not input.dtype.is_floating_point:
            raise RuntimeError(f"addr of {input.dtype} needs a whole {name}, got {factor}")
    product = outer(vec1, vec2)
    return blend(input.expand(product.shape), product, beta, alpha)


@op(
    method=False,
    samples=lambda: [
        Sample((2, 5)),
        Sample((5, 2), dx=0.5, dim=0),
        Sample((2, 5), In(values=[0.0, 1.0, 1.5, 3.0, 4.0])),
    ],
)
def cumulative_trapezoid(
    y: Tensor, x: Tensor | None = None, *, dx: Number = 1, dim: int = -1
) -> Any:
    """The area under values up to each of them, by the trapezoidal rule: one fewer than values.

    >>> import tapegrad
    >>> tapegrad.cumulative_trapezoid(tapegrad.tensor([1.0, 2.0, 3.0]))
    tensor([1.5000, 4.0000])
    """
    y = as_floating(y, "cumulative_trapezoid")
    d = normal_dim(dim, y._array.ndim)
    length = max(y._array.shape[d] - 1, 0)
    heights = (narrow(y, d, 0, length) + narrow(y, d, y._array.shape[d] - length, length)) / 2
    if x is None:
        return cumsum(heights, d) * dx
    if x._array.ndim == 1:
        x = reshape_(x, shape=tuple(-1 if i == d else 1 for i in range(y._array.ndim)))
    along = x._array.ndim - y._array.ndim + d
    widths = narrow(x, along, 1, length) - narrow(x, along, 0, length)
    return cumsum(heights * widths, d)


@op(method=False, samples=lambda: [Sample((3, 4), 1), Sample((3, 4), [0, 1], True)])
def frobenius_norm(input: Tensor, dim: Dims = (), keepdim: bool = False) -> Any:
    """The root of the sum of squares along dimensions; `linalg.norm` is the newer name.

    >>> import tapegrad
    >>> tapegrad.frobenius_norm(tapegrad.tensor([[3.0, 4.0]]), dim=1)
    tensor([5.])
    """
    return norm(input, 2, dim, keepdim)


@op(method=False, half=False, samples=lambda: [Sample(TALL), Sample(SQUARES, [1, 2], True)])
def nuclear_norm(input: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    """The sum of the singular values of matrices; `linalg.matrix_norm` is the newer name.

    >>> import tapegrad
    >>> tapegrad.nuclear_norm(tapegrad.tensor([[3.0, 0.0], [0.0, 4.0]]))
    tensor(7.)
    """
    if isinstance(dim, bool):
        dim, keepdim = None, dim
    return matrix_norm(input, "nuc", (-2, -1) if dim is None else dim, keepdim)


# -- names that PyTorch has and that only say what to use --------------------------------------


def _removed(name: str, instead: str) -> Callable[..., Any]:
    def removed(*args: Any, **options: Any) -> Any:
        raise RuntimeError(f"{name} was removed from PyTorch; use {instead}")

    removed.__name__ = removed.__qualname__ = name
    removed.__doc__ = f"Raises an error that names `{instead}`, as PyTorch's does."
    return removed


REMOVED = {
    name: _removed(name, instead)
    for name, instead in {
        "eig": "tapegrad.linalg.eig",
        "lstsq": "tapegrad.linalg.lstsq, with the arguments exchanged",
        "matrix_rank": "tapegrad.linalg.matrix_rank",
        "solve": "tapegrad.linalg.solve, with the arguments exchanged",
        "symeig": "tapegrad.linalg.eigh or eigvalsh",
    }.items()
}
