"""PyTorch's older names outside `linalg`: `svd`, `lu`, `chain_matmul` and others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..linalg.matrices import adjoint as _adjoint
from ..linalg.matrices import check_matrix
from ..linalg.solving import matrix_norm, multi_dot
from ..reduce.statistics import norm
from ..table import In, Sample, op
from .lu import LUFactors, LUFactorsWithInfo, lu_factor_ex
from .lu import lu_solve as _lu_solve
from .spectra import SQUARES, TALL, svdvals_
from .spectra import svd as _svd

if TYPE_CHECKING:
    from ...core.tensor import Tensor
    from ..annotations import Dims

# -- factors -----------------------------------------------------------------------------------


class OlderSingularValues(NamedTuple):
    """U, the singular values S, and V: input = U @ diag(S) @ V.mH."""

    U: Tensor
    S: Tensor
    V: Tensor


@op(half=False, autocast={"cpu": "full"}, samples=lambda: [Sample(TALL), Sample(SQUARES, False)])
def svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> OlderSingularValues:
    """The singular value decomposition with V, where `linalg.svd` returns Vh = V.mH.

    With `some`, U and V have as many columns as there are singular values; without `compute_uv`
    they are zeros.

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
    """LU factors in one tensor and the pivots, as `linalg.lu_factor`; with `get_infos` also info.

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
    """`linalg.lu_solve` with the right-hand side first.

    >>> import tapegrad
    >>> factors = tapegrad.linalg.lu_factor(tapegrad.tensor([[0.0, 2.0], [3.0, 4.0]]))
    >>> tapegrad.lu_solve(tapegrad.tensor([[2.0], [7.0]]), *factors)
    tensor([[1.],
            [1.]])
    """
    return _lu_solve(LU_data, LU_pivots, b)


# -- products and norms ------------------------------------------------------------------------


@op(
    casts=True,
    method=False,
    autocast={"cuda": "lower"},
    samples=lambda: [Sample((2, 3), (3, 4), (4, 2)), Sample((2, 3))],
)
def chain_matmul(*matrices: Tensor) -> Any:
    """The product of matrices in the cheapest order: see `linalg.multi_dot`.

    >>> import tapegrad
    >>> a = tapegrad.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> tapegrad.chain_matmul(a, a)
    tensor([[ 7., 10.],
            [15., 22.]])
    """
    given = matrices[0] if len(matrices) == 1 and isinstance(matrices[0], list) else matrices
    if not given:
        raise RuntimeError("chain_matmul needs at least one matrix")
    for x in given:
        if x._array.ndim != 2:
            raise RuntimeError(f"chain_matmul needs matrices, got shape {tuple(x.shape)}")
    return given[0].clone() if len(given) == 1 else multi_dot(list(given))


@op(
    method=False,
    autocast={"cuda": "full"},
    samples=lambda: [Sample((3, 4), 1), Sample((3, 4), [0, 1], True)],
)
def frobenius_norm(input: Tensor, dim: Dims = (), keepdim: bool = False) -> Any:
    """The root of the sum of squares along dimensions; `linalg.norm` is the newer name.

    >>> import tapegrad
    >>> tapegrad.frobenius_norm(tapegrad.tensor([[3.0, 4.0]]), dim=1)
    tensor([5.])
    """
    return norm(input, 2, dim, keepdim)


@op(
    method=False,
    half=False,
    autocast={"cuda": "full"},
    samples=lambda: [Sample(TALL), Sample(SQUARES, [1, 2], True)],
)
def nuclear_norm(input: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    """The sum of the singular values of matrices; `linalg.matrix_norm` is the newer name.

    >>> import tapegrad
    >>> tapegrad.nuclear_norm(tapegrad.tensor([[3.0, 0.0], [0.0, 4.0]]))
    tensor(7.)
    """
    if isinstance(dim, bool):
        dim, keepdim = None, dim
    if input._array.ndim < 2 or (dim is not None and (isinstance(dim, int) or len(dim) != 2)):
        raise RuntimeError(
            f"the nuclear norm needs two dimensions, got shape {tuple(input.shape)} and dim={dim}"
        )
    return matrix_norm(input, "nuc", (-2, -1) if dim is None else dim, keepdim)
