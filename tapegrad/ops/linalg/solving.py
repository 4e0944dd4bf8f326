"""Determinants, products and norms: functions of `tapegrad.linalg` that are not in `factors`.

LAPACK computes determinants, so a compiled function calls NumPy for them; their gradients use
products and inverses. The others are made of other operations.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core import xp
from ...core.batch_rules import leading
from ...core.complexes import OWN
from ...core.modes import capturing
from ...core.primitive import OPAQUE, Primitive, define
from ...core.tensor import Tensor
from ...core.wrapped import Batched
from ..elementwise.complexes import conjugate, imag_, is_complex
from ..precision import check_floating, check_same_dtype
from ..reduce import statistics
from ..reduce.largest import amax, amin
from ..reduce.reductions import sum
from ..shape.dims import normal_dim, normal_dims
from ..shape.reordering import movedim
from ..shape.reshaping import reshape_
from ..table import In, Sample, op
from .matmul import matmul, matmul_
from .matrices import adjoint, check_matrix, inverse, inverse_, real_part
from .products import cross as _cross
from .products import matrix_power as _matrix_power

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..annotations import Dims, DTypeLike, Number

L = "linalg"
_WELL = In(values=[[2.0, 0.5, 0.1], [-0.3, 1.5, 0.2], [0.4, -0.2, 1.8]])
_PAIR = In(values=[[[1.0, 0.2], [0.3, 2.0]], [[-1.0, 0.5], [0.4, 1.5]]])

# -- determinants ------------------------------------------------------------------------------


def _over_matrices(g: Any) -> Any:
    """Gradients of one number per matrix, reshaped to matrices of one element."""
    return reshape_(g, shape=(*g.shape, 1, 1))


def _adjugate(x: Any) -> Any:
    """The determinant times the inverse, from U S V; it exists for singular matrices too."""
    module = xp.module(x)
    # LAPACK may hang on the singular value decomposition of infinities.
    finite = module.isfinite(x).all((-1, -2), keepdims=True)
    u, s, v = module.linalg.svd(module.where(finite, x, module.zeros((), x.dtype)))
    n = x.shape[-1]
    others = module.where(module.eye(n, dtype=bool), 1, s[..., None, :]).prod(-1)
    sign = module.linalg.det(u) * module.linalg.det(v)
    out = (v.swapaxes(-1, -2).conj() * others[..., None, :]) @ u.swapaxes(-1, -2).conj()
    out = module.where(finite, out * sign[..., None, None], module.nan)
    return out.astype(x.dtype, copy=False)


def _is_singular(x: Any) -> bool:
    """Whether a matrix of a batch has no inverse.

    In programs and inside `vmap`, where values cannot be read, all matrices count as regular.
    """
    array = x._array if isinstance(x, Tensor) else x
    if capturing() or isinstance(x, Batched) or not array.size:
        return False
    module = xp.module(array)
    if not module.isfinite(array).all():
        return False
    values = module.linalg.svd(array, compute_uv=False)
    eps = module.finfo(array.dtype).eps * array.shape[-1]
    return bool((values[..., -1] <= eps * values[..., 0]).any())


def _regular_gradient(g: Any, x: Any, out: Any) -> Any:
    inner = adjoint(inverse_(x))
    scale = (g * conjugate(out)).sum((-1, -2))
    return _over_matrices(scale) * inner - matmul_(inner, matmul_(g, adjoint(out)))


def _adjugate_gradient(g: Any, x: Any, out: Any) -> Any:
    if _is_singular(x):
        from ..factors.cofactors import adjugate_gradient  # loaded at first use

        return adjugate_gradient(g, x, lambda g, y: _regular_gradient(g, y, adjugate_(y)))
    return _regular_gradient(g, x, out)


adjugate_: Primitive = define(
    "adjugate",
    _adjugate,
    kind=OPAQUE,
    vjp=_adjugate_gradient,
    abstract=lambda x: x,
    batch=leading,
    complex=OWN,
)
det_: Primitive = define(
    "det",
    lambda x: xp.module(x).linalg.det(x).astype(x.dtype),
    kind=OPAQUE,
    vjp=lambda g, x: _over_matrices(g) * adjoint(adjugate_(x)),
    abstract=lambda x: (x[0][:-2], x[1]),
    batch=leading,
    complex=OWN,
)
log_det_: Primitive = define(
    "log_abs_det",
    lambda x: xp.module(x).linalg.slogdet(x)[1],
    kind=OPAQUE,
    vjp=lambda g, x: _over_matrices(g) * adjoint(inverse_(x)),
    abstract=lambda x: (x[0][:-2], real_part(x[1])),
    batch=leading,
    complex=OWN,
)
sign_det_: Primitive = define(
    "sign_det",
    lambda x: xp.module(x).linalg.slogdet(x)[0].astype(x.dtype),
    kind=OPAQUE,
    abstract=lambda x: (x[0][:-2], x[1]),
    batch=leading,
    complex=OWN,
)


def _phase_gradient(g: Any, x: Any, out: Any) -> Any:
    """-i Im(conj(g) out) times the adjoint of the inverse: the phase turns with Im(tr(x^-1 dx))."""
    return _over_matrices(imag_(conjugate(g) * out)) * adjoint(inverse_(x)) * -1j


phase_det_: Primitive = define(
    "phase_det",
    lambda x: xp.module(x).linalg.slogdet(x)[0],
    kind=OPAQUE,
    vjp=_phase_gradient,
    abstract=lambda x: (x[0][:-2], x[1]),
    batch=leading,
    complex=OWN,
)


@op(half=False, samples=lambda: [Sample(_WELL), Sample(_PAIR)])
def det(input: Tensor) -> Any:
    """The determinant of square matrices: (..., n, n) gives (...).

    >>> import tapegrad
    >>> tapegrad.det(tapegrad.tensor([[2.0, 0.0], [0.0, 3.0]]))
    tensor(6.)
    """
    check_matrix("det", input, square=True)
    return det_(input)


class SignAndLog(NamedTuple):
    """The sign of a determinant, and the logarithm of its absolute value."""

    sign: Tensor
    logabsdet: Tensor


@op(half=False, samples=lambda: [Sample(_WELL), Sample(_PAIR), Sample(In(2, 2, kind="complex"))])
def slogdet(input: Tensor) -> SignAndLog:
    """The sign of the determinant, and the logarithm of its size.

    det(x) = sign * exp(logabsdet), also where the determinant is too large for its dtype.

    >>> import tapegrad
    >>> sign, size = tapegrad.slogdet(tapegrad.tensor([[0.0, 1.0], [1.0, 0.0]]))
    >>> sign
    tensor(-1.)
    >>> size
    tensor(0.)
    """
    check_matrix("slogdet", input, square=True)
    if is_complex(input):
        return SignAndLog(phase_det_(input), log_det_(input))
    return SignAndLog(sign_det_(input.detach()), log_det_(input))


@op(half=False, samples=lambda: [Sample(_WELL)])
def logdet(input: Tensor) -> Any:
    """The logarithm of the determinant; NaN where that is negative.

    >>> import tapegrad
    >>> tapegrad.logdet(tapegrad.tensor([[2.0, 0.0], [0.0, 3.0]]))
    tensor(1.7918)
    """
    sign, size = slogdet(input)
    return size + sign.log()


# -- inverses and products ---------------------------------------------------------------------


@op(module=L, half=False, autocast={"cpu": "full"}, samples=lambda: [Sample(_WELL), Sample(_PAIR)])
def inv(A: Tensor) -> Any:
    """The inverse of square matrices (..., n, n): inv(A) @ A is the identity.

    >>> import tapegrad
    >>> tapegrad.linalg.inv(tapegrad.tensor([[2.0, 0.0], [0.0, 4.0]]))
    tensor([[0.5000, 0.0000],
            [0.0000, 0.2500]])
    """
    return inverse(A)


@op("det", module=L, half=False, samples=lambda: [Sample(_PAIR)])
def _det(A: Tensor) -> Any:
    """The determinant of square matrices: (..., n, n) gives (...).

    >>> import tapegrad
    >>> tapegrad.linalg.det(tapegrad.tensor([[2.0, 0.0], [0.0, 3.0]]))
    tensor(6.)
    """
    return det(A)


@op("slogdet", module=L, half=False, samples=lambda: [Sample(_PAIR)], result="SignAndLog")
def _slogdet(A: Tensor) -> Any:
    """The sign of the determinant, and the logarithm of its size.

    >>> import tapegrad
    >>> sign, size = tapegrad.linalg.slogdet(tapegrad.tensor([[0.0, 1.0], [1.0, 0.0]]))
    >>> sign
    tensor(-1.)
    >>> size
    tensor(0.)
    """
    return slogdet(A)


@op("matmul", module=L, samples=lambda: [Sample((2, 3), (3, 2))], autocast="lower")
def _matmul(input: Tensor, other: Tensor) -> Any:
    """The matrix product, as `tapegrad.matmul`.

    >>> import tapegrad
    >>> a, x = tapegrad.tensor([[1.0, 2.0], [3.0, 4.0]]), tapegrad.tensor([1.0, 1.0])
    >>> tapegrad.linalg.matmul(a, x)
    tensor([3., 7.])
    """
    return matmul(input, other)


@op("matrix_power", module=L, half=None, samples=lambda: [Sample(_WELL, 3), Sample(_WELL, -1)])
def _power(A: Tensor, n: int) -> Any:
    """A square matrix to the power n; a negative power uses the inverse.

    >>> import tapegrad
    >>> tapegrad.linalg.matrix_power(tapegrad.tensor([[1.0, 1.0], [0.0, 1.0]]), 3)
    tensor([[1., 3.],
            [0., 1.]])
    """
    return _matrix_power(A, n)


@op("cross", module=L, samples=lambda: [Sample((2, 3), (2, 3)), Sample((3, 2), (3, 1), dim=0)])
def _cross_product(input: Tensor, other: Tensor, *, dim: int = -1) -> Any:
    """The cross product of vectors of three elements.

    >>> import tapegrad
    >>> tapegrad.linalg.cross(tapegrad.tensor([1.0, 0.0, 0.0]), tapegrad.tensor([0.0, 1.0, 0.0]))
    tensor([0., 0., 1.])
    """
    if input._array.ndim != other._array.ndim:
        raise RuntimeError(
            f"linalg.cross needs tensors of as many dimensions, got {tuple(input.shape)} and "
            f"{tuple(other.shape)}"
        )
    for x in (input, other):
        if x._array.shape[normal_dim(dim, x._array.ndim)] != 3:
            raise RuntimeError(f"linalg.cross needs size 3 along dim {dim}, got {tuple(x.shape)}")
    return _cross(input, other, dim)


@op(
    module=L,
    samples=lambda: [Sample((2, 3), (2, 3)), Sample((3, 2), (3, 1), dim=0)],
    autocast="lower",
)
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Any:
    """The dot products along a dimension, with `x` conjugated.

    >>> import tapegrad
    >>> x, y = tapegrad.tensor([[1.0, 2.0], [3.0, 4.0]]), tapegrad.tensor([1.0, 10.0])
    >>> tapegrad.linalg.vecdot(x, y)
    tensor([21., 43.])
    """
    check_floating(x, "linalg.vecdot", complex=True)
    return sum(conjugate(x) * y, dim)


@op(
    module=L,
    samples=lambda: [
        Sample([In(2, 3), In(3, 4), In(4, 2)]),
        Sample([In(3), In(3, 4), In(4)]),
        Sample([In(2, 3), In(3, 2)]),
    ],
    autocast={"cuda": "lower"},
)
def multi_dot(tensors: Sequence[Tensor]) -> Any:
    """The product of several matrices, in the order that needs the fewest multiplications.

    The first and the last may be vectors.

    >>> import tapegrad
    >>> a, b = tapegrad.tensor([[1.0, 2.0], [3.0, 4.0]]), tapegrad.tensor([[1.0, 1.0], [0.0, 1.0]])
    >>> tapegrad.linalg.multi_dot([a, b, tapegrad.tensor([1.0, 1.0])])
    tensor([ 4., 10.])
    """
    xs = list(tensors)
    if len(xs) < 2:
        raise RuntimeError(f"multi_dot needs at least two tensors, got {len(xs)}")
    for i, x in enumerate(xs):
        if x._array.ndim != 2 and (x._array.ndim != 1 or 0 < i < len(xs) - 1):
            raise RuntimeError(
                f"multi_dot needs matrices, and vectors only at its ends; tensor {i} has shape "
                f"{tuple(x.shape)}"
            )
        check_same_dtype("multi_dot", xs[0], **{f"tensor {i}": x})
    sizes = [tuple(x._array.shape) for x in xs]
    sizes[0] = (1, *sizes[0]) if len(sizes[0]) == 1 else sizes[0]
    sizes[-1] = (*sizes[-1], 1) if len(sizes[-1]) == 1 else sizes[-1]
    rows = [*(s[0] for s in sizes), sizes[-1][-1]]
    cuts = _cheapest(rows)

    def product(i: int, j: int) -> Any:
        if i == j:
            return xs[i]
        k = cuts[i, j]
        return matmul(product(i, k), product(k + 1, j))

    return product(0, len(xs) - 1)


def _cheapest(rows: list[int]) -> dict[tuple[int, int], int]:
    """Where to cut each run of matrices so that its product takes the fewest multiplications."""
    n = len(rows) - 1
    cost = {(i, i): 0 for i in range(n)}
    cuts = {}
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            cost[i, j], cuts[i, j] = min(
                (cost[i, k] + cost[k + 1, j] + rows[i] * rows[k + 1] * rows[j + 1], k)
                for k in range(i, j)
            )
    return cuts


# -- norms -------------------------------------------------------------------------------------


@op(
    module=L,
    samples=lambda: [
        Sample((3, 4)),
        Sample((3, 4), 1, dim=1),
        Sample((3, 4), 3, dim=(0, 1), keepdim=True),
        Sample(In(3, 4, distinct=True), math.inf, 0),
        Sample((3, 4), 0),
    ],
    autocast={"cuda": "full"},
)
def vector_norm(
    x: Tensor,
    ord: Number | str = 2,
    dim: Dims | None = None,
    keepdim: bool = False,
    *,
    dtype: DTypeLike | None = None,
) -> Any:
    """The norm of all elements as one vector, or of vectors along dimensions.

    (sum of |x|^ord)^(1/ord); for inf the largest |x|, for -inf the smallest, for 0 the number of
    elements that are not 0.

    >>> import tapegrad
    >>> tapegrad.linalg.vector_norm(tapegrad.tensor([3.0, -4.0]))
    tensor(5.)
    >>> tapegrad.linalg.vector_norm(tapegrad.tensor([3.0, -4.0]), ord=1)
    tensor(7.)
    """
    if isinstance(ord, str):
        raise RuntimeError(f"linalg.vector_norm has no order {ord!r}; use a number")
    dims = normal_dims(dim, x._array.ndim)
    if (ord < 0 or ord == math.inf) and not math.prod([x._array.shape[d] for d in dims]):
        raise RuntimeError(f"linalg.vector_norm of order {ord} does not exist for no elements")
    if is_complex(x):
        x = (x if dtype is None else x.to(dtype)).abs()
        dtype = None
    return statistics.norm(x, ord, dim, keepdim, dtype)


@op(
    module=L,
    samples=lambda: [
        Sample((3, 4)),
        Sample((2, 3, 4), "fro", [0, 2], True),
        Sample(In(3, 4, distinct=True), 1),
        Sample(In(2, 3, 4, distinct=True), math.inf),
        Sample(In(3, 4, distinct=True), -1),
        Sample(_PAIR, 2),
        Sample(_PAIR, "nuc", [2, 1], True),
        Sample(_PAIR, -2, [2, 0]),
    ],
    half=None,
    autocast={"cuda": "full"},
)
def matrix_norm(
    A: Tensor,
    ord: Number | str = "fro",
    dim: Sequence[int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: DTypeLike | None = None,
) -> Any:
    """The norm of matrices: "fro", or the largest sum of a column (1) or row (inf).

    -1 and -inf give the smallest. 2 and -2 are the largest and the smallest singular value, "nuc"
    is their sum.

    >>> import tapegrad
    >>> tapegrad.linalg.matrix_norm(tapegrad.tensor([[1.0, -2.0], [3.0, 4.0]]), ord=1)
    tensor(6.)
    """
    x = A if dtype is None else A.to(dtype)
    check_floating(x, "linalg.matrix_norm", complex=True)
    if x._array.ndim < 2 or len(dim) != 2:
        raise RuntimeError(f"linalg.matrix_norm needs two dimensions, got {tuple(A.shape)}, {dim}")
    rows, columns = (normal_dim(d, x._array.ndim) for d in dim)
    if rows == columns:
        raise RuntimeError(f"linalg.matrix_norm needs two different dimensions, got {dim}")
    if ord == "fro":
        return vector_norm(x, 2, (rows, columns), keepdim)
    if ord in ("nuc", 2, -2):
        out = _of_singular_values(x, ord, rows, columns)
    elif ord in (1, -1, math.inf, -math.inf):
        inner, outer = (rows, columns) if abs(ord) == 1 else (columns, rows)
        sums = sum(x.abs(), inner, True)
        out = (amax if ord > 0 else amin)(sums, outer, True)
    else:
        raise RuntimeError(
            f"linalg.matrix_norm has no order {ord!r}; there are 'fro', 'nuc', 1, -1, 2, -2, inf "
            "and -inf"
        )
    return out if keepdim else out.squeeze(max(rows, columns)).squeeze(min(rows, columns))


def _of_singular_values(x: Any, ord: Any, rows: int, columns: int) -> Any:
    """A norm from singular values, with both matrix dimensions kept at size 1."""
    from ..factors.spectra import svdvals

    values = svdvals(movedim(x, (rows, columns), (-2, -1)))
    out = sum(values, -1) if ord == "nuc" else (amax if ord > 0 else amin)(values, -1)
    first, second = min(rows, columns), max(rows, columns)
    return out.unsqueeze(first).unsqueeze(second)


@op(
    "norm",
    module=L,
    samples=lambda: [
        Sample((3, 4)),
        Sample((3, 4), 1, 1),
        Sample((4,), 3),
        Sample(In(3, 4, distinct=True), 1),
        Sample((3, 4), "fro"),
        Sample((2, 3, 4), dim=(1, 2)),
    ],
)
def _norm(
    A: Tensor,
    ord: Number | str | None = None,
    dim: Dims | None = None,
    keepdim: bool = False,
    *,
    dtype: DTypeLike | None = None,
) -> Any:
    """The norm of a vector or a matrix: by `ord` and `dim`, `vector_norm` or `matrix_norm`.

    >>> import tapegrad
    >>> tapegrad.linalg.norm(tapegrad.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor(5.)
    >>> tapegrad.linalg.norm(tapegrad.tensor([[3.0, 4.0], [6.0, 8.0]]), dim=1)
    tensor([ 5., 10.])
    """
    if ord is None:
        return vector_norm(A, 2, dim, keepdim, dtype=dtype)
    if isinstance(dim, int) or (dim is not None and len(dim) == 1):
        if isinstance(ord, str):
            raise RuntimeError(f"linalg.norm with ord={ord!r} needs two dimensions, got {dim}")
        return vector_norm(A, ord, dim, keepdim, dtype=dtype)
    if dim is None and A._array.ndim not in (1, 2):
        raise RuntimeError(f"linalg.norm with ord={ord!r} needs a vector or a matrix")
    if dim is None and A._array.ndim == 1 and not isinstance(ord, str):
        return vector_norm(A, ord, 0, keepdim, dtype=dtype)
    return matrix_norm(A, ord, (-2, -1) if dim is None else dim, keepdim, dtype=dtype)
