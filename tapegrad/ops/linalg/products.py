"""Products and combinations made of other operations: Kronecker and cross products, powers of
matrices, block matrices, pairs of elements, covariances.

Everything here differentiates and replays through its parts.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import numeric, xp
from ...core.tensor import Tensor, wrap
from ..checks import checked
from ..creation import CREATION
from ..elementwise.complexes import complex_, conjugate, is_complex
from ..elementwise.extremes import clamp
from ..index.indexing import take_
from ..precision import as_floating, check_floating
from ..reduce.reductions import mean, sum
from ..reduce.statistics import norm
from ..shape.dims import normal_dim
from ..shape.expanding import expand_
from ..shape.joining import cat, stack
from ..shape.padding import padded
from ..shape.reordering import roll
from ..shape.reshaping import reshape_
from ..shape.slicing import narrow
from ..table import In, Sample, op
from .diagonals import diag, tril_
from .matmul import dot, matmul, outer
from .matrices import check_square, inverse

if TYPE_CHECKING:
    from ..annotations import Number

# -- products ----------------------------------------------------------------------------------


@op(casts=True, samples=lambda: [Sample((2, 3), (3, 2)), Sample((2,), (2, 3)), Sample((), (2,))])
def kron(input: Tensor, other: Tensor) -> Any:
    """Every element of the first times the whole second tensor, as blocks.

    Matrices (n, m) and (k, l) give (n * k, m * l).

    >>> import tapegrad
    >>> tapegrad.kron(tapegrad.tensor([1.0, 10.0]), tapegrad.tensor([1.0, 2.0]))
    tensor([ 1.,  2., 10., 20.])
    """
    a, b = tuple(input._array.shape), tuple(other._array.shape)
    n = max(len(a), len(b))
    a, b = (1,) * (n - len(a)) + a, (1,) * (n - len(b)) + b
    left = reshape_(input, shape=tuple(m for size in a for m in (size, 1)))
    right = reshape_(other, shape=tuple(m for size in b for m in (1, size)))
    return (left * right).reshape([p * q for p, q in zip(a, b, strict=True)])


@op(
    apart=True,
    samples=lambda: [Sample((2, 3), (2, 3), 1), Sample((3, 1), (3, 4), 0)],
    autocast={"cuda": "widest"},
)
def cross(input: Tensor, other: Tensor, dim: int | None = None) -> Any:
    """The cross product of vectors of three elements; without a dim, along the first of size 3.

    >>> import tapegrad
    >>> tapegrad.cross(tapegrad.tensor([1.0, 0.0, 0.0]), tapegrad.tensor([0.0, 1.0, 0.0]))
    tensor([0., 0., 1.])
    """
    if input._array.ndim != other._array.ndim:
        raise RuntimeError(
            f"cross needs two tensors of as many dimensions, got the shapes {tuple(input.shape)} "
            f"and {tuple(other.shape)}"
        )
    shape = np.broadcast_shapes(input._array.shape, other._array.shape)
    if dim is None:
        if 3 not in shape:
            raise RuntimeError(f"cross needs a dimension of size 3, got shape {shape}")
        dim = shape.index(3)
    d = normal_dim(dim, len(shape))
    if not shape or shape[d] != 3:
        raise RuntimeError(f"cross needs size 3 along dim {dim}, got shape {shape}")
    a, b = (x.expand(shape) for x in (input, other))
    return roll(a, -1, d) * roll(b, -2, d) - roll(a, -2, d) * roll(b, -1, d)


@op(samples=lambda: [Sample((4,), (4,))], autocast={"cuda": "widest"})
def vdot(input: Tensor, other: Tensor) -> Any:
    """The dot product of two vectors, with the first conjugated.

    >>> import tapegrad
    >>> tapegrad.vdot(tapegrad.tensor([1.0, 2.0]), tapegrad.tensor([3.0, 4.0]))
    tensor(11.)
    """
    return dot(conjugate(input), other)


_TURN = In(values=[[0.8, -0.6], [0.6, 0.9]])


@op(half=None, samples=lambda: [Sample(_TURN, 3), Sample(_TURN, -2), Sample((2, 3, 3), 5)])
def matrix_power(input: Tensor, n: int) -> Any:
    """A square matrix to the power n; a negative power uses the inverse.

    >>> import tapegrad
    >>> tapegrad.matrix_power(tapegrad.tensor([[1.0, 1.0], [0.0, 1.0]]), 3)
    tensor([[1., 3.],
            [0., 1.]])
    """
    check_square("matrix_power", input)
    if n == 0:
        identity = xp.module(input._array).eye(input._array.shape[-1], dtype=input._array.dtype)
        ones = expand_(wrap(identity), shape=tuple(input._array.shape))
        return ones + tril_(input, k=-input._array.shape[-1])  # zeros, with a history
    base, left = (inverse(input), -n) if n < 0 else (input, n)
    out: Any = None
    while left:
        if left & 1:
            out = base if out is None else matmul(out, base)
        left >>= 1
        base = matmul(base, base) if left else base
    return out.clone() if out is input else out


@op(
    samples=lambda: [Sample((3, 4), (3, 4)), Sample((3, 4), (4,), 1)],
    autocast={"cuda": "full"},
)
def dist(input: Tensor, other: Tensor, p: Number = 2) -> Any:
    """The p-norm of the difference: (sum of |input - other|^p)^(1/p).

    >>> import tapegrad
    >>> tapegrad.dist(tapegrad.tensor([0.0, 0.0]), tapegrad.tensor([3.0, 4.0]))
    tensor(5.)
    """
    return norm(input - other, p)


# -- combinations ------------------------------------------------------------------------------


@op(
    method=False, samples=lambda: [Sample((2, 3), (1, 2), (3,)), Sample((2, 2)), Sample((), (2, 1))]
)
def block_diag(*tensors: Tensor) -> Any:
    """Matrices along the diagonal of a larger one, zeros elsewhere; vectors count as rows.

    >>> import tapegrad
    >>> tapegrad.block_diag(tapegrad.tensor([[1.0, 2.0], [3.0, 4.0]]), tapegrad.tensor([5.0]))
    tensor([[1., 2., 0.],
            [3., 4., 0.],
            [0., 0., 5.]])
    """
    if not tensors:
        return CREATION["empty"]((1, 0))
    rows, before, blocks = [], 0, []
    for x in tensors:
        if x._array.ndim > 2:
            raise RuntimeError(f"block_diag needs matrices, got shape {tuple(x.shape)}")
        blocks.append(reshape_(x, shape=(1,) * (2 - x._array.ndim) + tuple(x._array.shape)))
    width = int(np.sum([x._array.shape[1] for x in blocks]))
    for x in blocks:
        own = x._array.shape[1]
        rows.append(padded(x, ((0, 0), (before, width - before - own))))
        before += own
    return cat(rows, 0)


@op(method=False, samples=lambda: [Sample((2,), (3,)), Sample((4,)), Sample((2,), (1,), (2,))])
def cartesian_prod(*tensors: Tensor) -> Any:
    """All choices of one element from each vector, as rows.

    >>> import tapegrad
    >>> tapegrad.cartesian_prod(tapegrad.tensor([1, 2]), tapegrad.tensor([3, 4]))
    tensor([[1, 3],
            [1, 4],
            [2, 3],
            [2, 4]])
    """
    for x in tensors:
        if x._array.ndim != 1:
            raise RuntimeError(f"cartesian_prod needs vectors, got shape {tuple(x.shape)}")
    if len({x._array.dtype for x in tensors}) > 1:
        shown = " and ".join(sorted({str(x.dtype) for x in tensors}))
        raise RuntimeError(f"cartesian_prod expects vectors of one dtype, got {shown}")
    if len(tensors) == 1:
        return tensors[0].clone()
    sizes = [x._array.shape[0] for x in tensors]
    places = np.indices(sizes).reshape(len(sizes), -1)
    return stack([_chosen(x, p) for x, p in zip(tensors, places, strict=True)], 1)


def _chosen(x: Any, places: Any) -> Any:
    index = np.ascontiguousarray(places, np.int64)
    return take_(x, wrap(xp.module(x._array).asarray(index)), dims=(0,))


@op(samples=lambda: [Sample((4,)), Sample((3,), 2, True), Sample((4,), 3)])
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Any:
    """All choices of r elements of a vector, in its order, as rows.

    >>> import tapegrad
    >>> tapegrad.combinations(tapegrad.tensor([1, 2, 3]), r=2)
    tensor([[1, 2],
            [1, 3],
            [2, 3]])
    """
    if input._array.ndim != 1:
        raise RuntimeError(f"combinations needs a vector, got shape {tuple(input.shape)}")
    if r < 0:
        raise RuntimeError(f"combinations: r must not be negative, got {r}")
    if r == 0:
        return input.new_empty(0)  # as in PyTorch, which has no empty choice
    choose: Any = (
        itertools.combinations_with_replacement if with_replacement else itertools.combinations
    )
    places = list(choose(range(input._array.shape[0]), r))
    return _chosen(input, np.array(places, np.int64).reshape(len(places), r))


@op(samples=lambda: [Sample((3,)), Sample((2, 2), 1), Sample((2,), -1)])
def diagflat(input: Tensor, offset: int = 0) -> Any:
    """A matrix with all elements of a tensor on a diagonal.

    >>> import tapegrad
    >>> tapegrad.diagflat(tapegrad.tensor([[1, 2], [3, 4]]))
    tensor([[1, 0, 0, 0],
            [0, 2, 0, 0],
            [0, 0, 3, 0],
            [0, 0, 0, 4]])
    """
    return diag(reshape_(input, shape=(input._array.size,)), offset)


@op(
    aliases=("trapz",),
    method=False,
    samples=lambda: [
        Sample((2, 5)),
        Sample((5, 2), dx=0.5, dim=0),
        Sample((2, 5), In(values=[0.0, 1.0, 1.5, 3.0, 4.0])),
        Sample((2, 5), (2, 5)),
    ],
)
def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Number = 1, dim: int = -1) -> Any:
    """The area under values along a dimension by the trapezoidal rule.

    `x` holds the positions of the values `y`; without it they are `dx` apart.

    >>> import tapegrad
    >>> tapegrad.trapezoid(tapegrad.tensor([1.0, 2.0, 3.0]))
    tensor(4.)
    >>> tapegrad.trapezoid(tapegrad.tensor([1.0, 2.0, 3.0]), tapegrad.tensor([0.0, 2.0, 3.0]))
    tensor(5.5000)
    """
    y = as_floating(y, "trapezoid")
    d = normal_dim(dim, y._array.ndim)
    length = y._array.shape[d] - 1
    if length < 0:
        return sum(y, d)
    heights = (narrow(y, d, 0, length) + narrow(y, d, 1, length)) / 2
    if x is None:
        return sum(heights, d) * dx
    if x._array.ndim == 1:
        x = reshape_(x, shape=tuple(-1 if i == d else 1 for i in range(y._array.ndim)))
    return sum(heights * (narrow(x, d, 1, length) - narrow(x, d, 0, length)), d)


# -- covariances -------------------------------------------------------------------------------

_COUNTS = In(values=[1, 2, 1, 3], kind="int")
_WEIGHTS = In(values=[0.5, 1.0, 0.25, 2.0], grad=False)


@op(
    samples=lambda: [
        Sample((3, 4)),
        Sample((5,)),
        Sample((3, 4), correction=0),
        Sample((3, 4), fweights=_COUNTS, aweights=_WEIGHTS),
    ]
)
def cov(
    input: Tensor,
    *,
    correction: int = 1,
    fweights: Tensor | None = None,
    aweights: Tensor | None = None,
) -> Any:
    """The covariances of variables (rows) over observations (columns).

    Sums of products are divided by n - `correction`. For each column, `fweights` is the number of
    times that the observation counts, and `aweights` its weight.

    >>> import tapegrad
    >>> tapegrad.cov(tapegrad.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    if input._array.ndim > 2:
        raise RuntimeError(f"cov needs at most two dimensions, got shape {tuple(input.shape)}")
    x = as_floating(input, "cov")
    x = reshape_(x, shape=(1, x._array.size)) if x._array.ndim < 2 else x
    fweights = _checked_weights("fweights", fweights, x._array.shape[1])
    aweights = _checked_weights("aweights", aweights, x._array.shape[1])
    weights = fweights
    if aweights is not None:
        check_floating(aweights, "cov with aweights")
        weights = aweights if fweights is None else fweights * aweights
    if weights is None:
        total: Any = x._array.shape[1]
        centred = x - mean(x, 1, True)
        weighted, freedom = centred, float(max(total - correction, 0))
    else:
        total = sum(weights)
        centred = x - sum(x * weights, 1, True) / total
        lost = correction if aweights is None else correction * sum(weights * aweights) / total
        weighted, freedom = centred * weights, clamp(total - lost, 0)
    return _without_ones(matmul(centred, conjugate(weighted).mT) / freedom)


def _checked_weights(name: str, given: Any, count: int) -> Any:
    if given is None:
        return None
    if tuple(given._array.shape) != (count,):
        raise RuntimeError(
            f"cov: {name} needs one number for each of {count} observations, got shape "
            f"{tuple(given.shape)}"
        )
    if name == "fweights" and not numeric.is_integer(given._array.dtype):
        raise RuntimeError(f"cov: fweights counts observations, got {given.dtype}")
    return checked(given, low=0, message=f"cov: {name} must not be negative, got {{}}")


@op(samples=lambda: [Sample((3, 4)), Sample((5,))])
def corrcoef(input: Tensor) -> Any:
    """The correlations of variables (rows) over observations (columns).

    cov[i, j] / sqrt(cov[i, i] * cov[j, j])

    >>> import tapegrad
    >>> tapegrad.corrcoef(tapegrad.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    c = cov(input)
    if not c._array.ndim:
        return c / c
    spread = diag(c).real.sqrt()
    ratio = c / outer(spread, spread)
    if is_complex(ratio):
        return complex_(clamp(ratio.real, -1, 1), clamp(ratio.imag, -1, 1))
    return clamp(ratio, -1, 1)


def _without_ones(x: Tensor) -> Any:
    return reshape_(x, shape=()) if tuple(x._array.shape) == (1, 1) else x
