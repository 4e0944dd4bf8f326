"""Matrix products, and operations built on them.

Comes in: matrices, batches of matrices or vectors; the public functions check that sizes fit and
reshape vectors to matrices. Goes out: one product, computed by the primitive `matmul_`. Also
products that are added to a tensor, linear layers, and the operator `@`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import xp
from ...core.batch_rules import aligned, contraction, joined, separated
from ...core.complexes import HOLOMORPHIC
from ...core.primitive import (
    ARRAY_SIZE,
    CONTRACTION,
    NO_PARAMS,
    OPAQUE,
    PRODUCT_SIZE,
    Primitive,
    define,
)
from ...core.tensor import Tensor, wrap
from ..elementwise.blends import number_for
from ..precision import is_half
from ..reduce.reductions import sum_
from ..shape.reordering import swapped
from ..shape.reshaping import reshape_
from ..table import Sample, attach, op

if TYPE_CHECKING:
    from ..annotations import Number

#: fewest multiplications for which NumPy's BLAS wakes its threads, which then spin beside ours
MIN_TO_WAKE_THREADS = 1 << 18
#: longest sum for which operands below `PRODUCT_SIZE` can have so many multiplications
THIN = PRODUCT_SIZE**2 // MIN_TO_WAKE_THREADS


def _matmul(x: Any, y: Any) -> Any:
    if x.dtype.itemsize == 2:
        return np.matmul(x.astype(np.float32), y.astype(np.float32)).astype(x.dtype)
    if x.ndim == y.ndim == 2:
        if y.shape[0] <= THIN and x.shape[0] * y.size >= MIN_TO_WAKE_THREADS:
            return np.einsum("ij,jk->ik", x, y)
        return x.dot(y)  # the same as np.matmul, which takes 0.7 µs longer
    return np.matmul(x, y)


matmul_: Primitive = define(
    "matmul",
    _matmul,
    kind=CONTRACTION,
    promote="same",
    lower=lambda b, out, x, y: b.product(out, x, y),
    vjp=(lambda g, y: matmul_(g, swapped(y)), lambda g, x: matmul_(swapped(x), g)),
)


def _of_vectors(x: Any, y: Any) -> Any:
    """A product with vectors, as a product of matrices, which programs need."""
    if x.__class__ is np.ndarray and y.__class__ is np.ndarray and x.dtype.itemsize != 2:
        return x.dot(y)
    left = x if len(x.shape) == 2 else reshape_(x, shape=(1, *x.shape))
    out = matmul_(left, reshape_(y, shape=(*y.shape, 1)))
    return reshape_(out, shape=tuple(x.shape[:-1]))


mv_: Primitive = define(
    "mv",
    _of_vectors,
    kind=OPAQUE,
    composite=True,
    promote="same",
    native_size=PRODUCT_SIZE,
    vjp=(
        lambda g, y: reshape_(g, shape=(*g.shape, 1)) * y,
        lambda g, x: mv_(swapped(x), g),
    ),
    complex=HOLOMORPHIC,
)
dot_: Primitive = define(
    "dot",
    _of_vectors,
    kind=OPAQUE,
    composite=True,
    promote="same",
    native_size=PRODUCT_SIZE,
    vjp=(lambda g, y: g * y, lambda g, x: g * x),
    complex=HOLOMORPHIC,
)


def _outer(x: Any, y: Any) -> Any:
    # A product of matrices takes half the time, but adds to 0: it loses the sign of -0.
    if xp.is_plain(x) and xp.is_plain(y):
        return x[:, None] * y
    return reshape_(x, shape=(*x.shape, 1)) * y


outer_: Primitive = define(
    "outer",
    _outer,
    kind=OPAQUE,
    composite=True,
    promote="same",
    native_size=ARRAY_SIZE,
    vjp=(lambda g, y: mv_(g, y), lambda g, x: mv_(swapped(g), x)),
    complex=HOLOMORPHIC,
)


def _mismatch(what: str, a: Any, b: Any, need: str) -> RuntimeError:
    return RuntimeError(f"{what}: shapes {tuple(a.shape)} and {tuple(b.shape)} do not fit: {need}")


@op(
    samples=lambda: [
        Sample((3, 4), (4, 2)),
        Sample((4,), (4,)),
        Sample((3, 4), (4,)),
        Sample((4,), (4, 2)),
        Sample((2, 3, 4), (2, 4, 5)),
        Sample((2, 3, 4), (4, 5)),
        Sample((3, 4), (2, 4, 5)),
        Sample((2, 1, 3, 4), (5, 4, 2)),
        Sample((2, 3, 4), (4,)),
        Sample((4,), (2, 4, 3)),
        Sample((0, 4), (4, 2)),
        Sample((3, 0), (0, 2)),
    ],
    autocast="lower",
)
def matmul(input: Tensor, other: Tensor) -> Any:
    """The matrix product, batched over leading dimensions; vectors count as rows or columns.

    out[..., i, j] = sum over k of input[..., i, k] * other[..., k, j]; the leading dimensions
    broadcast. The same as `input @ other`.

    >>> import tapegrad
    >>> a, b = tapegrad.tensor([[1.0, 2.0], [3.0, 4.0]]), tapegrad.tensor([[1.0, 1.0], [0.0, 1.0]])
    >>> tapegrad.matmul(a, b)
    tensor([[1., 3.],
            [3., 7.]])
    """
    return _product(input, other)


def _product(input: Any, other: Any) -> Any:
    a, b = input, other
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        raise TypeError("matmul needs two tensors")
    x, y = a._array, b._array
    n, m = x.ndim, y.ndim
    if m and 0 < n <= 2 and m <= n and x.shape[-1] == y.shape[0] and x.dtype == y.dtype:
        return (matmul_ if m == 2 else mv_ if n == 2 else dot_).direct(a, b, NO_PARAMS)
    if n == 0 or m == 0:
        raise RuntimeError("matmul needs tensors with dimensions; use * for numbers")
    if a._array.shape[-1] != b._array.shape[-2 if m > 1 else 0]:
        raise _mismatch(
            "matmul",
            a,
            b,
            "the last size of the first must equal the second-to-last (or only) size of the second",
        )
    if a._array.dtype != b._array.dtype:
        raise RuntimeError(f"matmul needs tensors of one dtype, got {a.dtype} and {b.dtype}")
    if n == 1:
        a = reshape_.direct(a, {"shape": (1, a._array.shape[0])})
    if m == 1:
        b = reshape_.direct(b, {"shape": (b._array.shape[0], 1)})
    if a._array.shape[:-2] != b._array.shape[:-2]:
        try:
            np.broadcast_shapes(a._array.shape[:-2], b._array.shape[:-2])
        except ValueError:
            raise _mismatch("matmul", input, other, "the batch dimensions must broadcast") from None
    if m <= 2 and a._array.ndim > 2:
        # One large product instead of a batch of small ones.
        lead = a._array.shape[:-1]
        flat = reshape_.direct(a, {"shape": (math.prod(lead), a._array.shape[-1])})
        out = reshape_.direct(
            matmul_.direct(flat, b, NO_PARAMS), {"shape": (*lead, b._array.shape[-1])}
        )
    else:
        out = matmul_.direct(a, b, NO_PARAMS)
    if n > 1 and m > 1:
        return out
    shape = out._array.shape
    left = shape[:-2] if n == 1 else shape[:-1]
    return reshape_.direct(out, {"shape": left if m == 1 else (*left, shape[-1])})


@op(
    samples=lambda: [Sample((3, 4), (4, 2))],
    autocast="lower",
)
def mm(input: Tensor, mat2: Tensor) -> Any:
    """The product of two matrices: (n, k) and (k, m) give (n, m).

    >>> import tapegrad
    >>> a, b = tapegrad.tensor([[1.0, 2.0], [3.0, 4.0]]), tapegrad.tensor([[1.0, 1.0], [0.0, 1.0]])
    >>> tapegrad.mm(a, b)
    tensor([[1., 3.],
            [3., 7.]])
    """
    _check_matrices(input, mat2)
    return _product(input, mat2)


def _check_matrices(x: Any, y: Any) -> None:
    if x._array.ndim != 2 or y._array.ndim != 2:
        raise _mismatch("mm", x, y, "mm needs two matrices")


@op(
    samples=lambda: [Sample((2, 3, 4), (2, 4, 5))],
    autocast="lower",
)
def bmm(input: Tensor, mat2: Tensor) -> Any:
    """The products of two batches of matrices: (b, n, k) and (b, k, m) give (b, n, m).

    >>> import tapegrad
    >>> tapegrad.bmm(tapegrad.ones(2, 1, 3), tapegrad.ones(2, 3, 1)).tolist()
    [[[3.0]], [[3.0]]]
    """
    if input._array.ndim != 3 or mat2._array.ndim != 3 or len(input) != len(mat2):
        raise _mismatch("bmm", input, mat2, "bmm needs two batches of the same size")
    return _product(input, mat2)


@op(
    samples=lambda: [Sample((3, 4), (4,))],
    autocast={"cpu": "keep", "cuda": "lower"},
)
def mv(input: Tensor, vec: Tensor) -> Any:
    """A matrix times a vector: (n, m) and (m,) give (n,).

    >>> import tapegrad
    >>> tapegrad.mv(tapegrad.tensor([[1.0, 2.0], [3.0, 4.0]]), tapegrad.tensor([1.0, 10.0]))
    tensor([21., 43.])
    """
    if input._array.ndim != 2 or vec._array.ndim != 1:
        raise _mismatch("mv", input, vec, "mv needs a matrix and a vector")
    return _product(input, vec)


@op(
    samples=lambda: [Sample((4,), (4,))],
    autocast={"cpu": "keep", "cuda": "widest"},
)
def dot(input: Tensor, tensor: Tensor) -> Any:
    """The dot product of two vectors: the sum of input * tensor.

    >>> import tapegrad
    >>> tapegrad.dot(tapegrad.tensor([1.0, 2.0]), tapegrad.tensor([3.0, 4.0]))
    tensor(11.)
    """
    if input._array.ndim != 1 or tensor._array.ndim != 1:
        raise _mismatch("dot", input, tensor, "dot needs two vectors; use matmul for matrices")
    return _product(input, tensor)


@op(
    casts=True,
    samples=lambda: [Sample((4,), (4,)), Sample((2, 3), (4, 5, 3)), Sample((), (2, 3))],
    autocast={"cpu": "keep"},
)
def inner(input: Tensor, other: Tensor) -> Any:
    """Sums of products over the last dimensions: (n, k) and (m, k) give (n, m).

    >>> import tapegrad
    >>> tapegrad.inner(tapegrad.tensor([[1.0, 2.0], [0.0, 1.0]]), tapegrad.tensor([3.0, 4.0]))
    tensor([11.,  4.])
    """
    a, b = input._array.shape, other._array.shape
    if not a or not b:
        return input * other
    if a[-1] != b[-1]:
        raise _mismatch("inner", input, other, "inner needs last dimensions of one size")
    if len(a) == len(b) == 1:
        return _product(input, other)
    left = reshape_(input, shape=(math.prod(a[:-1]), a[-1]))
    right = reshape_(other, shape=(math.prod(b[:-1]), b[-1]))
    return reshape_(_product(left, right.t()), shape=(*a[:-1], *b[:-1]))


@op(casts=True, samples=lambda: [Sample((3,), (4,))], aliases=("ger",))
def outer(input: Tensor, vec2: Tensor) -> Any:
    """All products of the elements of two vectors: (n,) and (m,) give (n, m).

    >>> import tapegrad
    >>> tapegrad.outer(tapegrad.tensor([1.0, 2.0]), tapegrad.tensor([3.0, 4.0]))
    tensor([[3., 4.],
            [6., 8.]])
    """
    if input._array.ndim != 1 or vec2._array.ndim != 1:
        raise _mismatch("outer", input, vec2, "outer needs two vectors")
    return outer_.direct(input, vec2, NO_PARAMS)


@op(
    samples=lambda: [
        Sample((3, 2), (3, 4), (4, 2)),
        Sample((2,), (3, 4), (4, 2), beta=0.5, alpha=2),
    ],
    inplace=True,
    autocast="lower",
)
def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Any:
    """beta * input + alpha * (mat1 @ mat2).

    >>> import tapegrad
    >>> a, b = tapegrad.tensor([[1.0, 2.0], [3.0, 4.0]]), tapegrad.tensor([[1.0, 1.0], [0.0, 1.0]])
    >>> tapegrad.addmm(tapegrad.ones(2), a, b, beta=0.5)
    tensor([[1.5000, 3.5000],
            [3.5000, 7.5000]])
    """
    _check_matrices(mat1, mat2)
    if input._array.dtype.itemsize == 2 and all(map(is_half, (input, mat1, mat2))):  # rounded once
        found = _blend(input.float(), _product(mat1.float(), mat2.float()), beta, alpha)
        return found.to(input.dtype)
    return _blend(input, _product(mat1, mat2), beta, alpha)


@op(
    samples=lambda: [Sample((2, 3, 5), (2, 3, 4), (2, 4, 5), beta=0.5)],
    inplace=True,
    autocast="lower",
)
def baddbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Any:
    """beta * input + alpha * (batch1 @ batch2).

    >>> import tapegrad
    >>> a, b = tapegrad.ones(1, 2, 3), tapegrad.ones(1, 3, 2)
    >>> tapegrad.baddbmm(tapegrad.ones(1, 2, 2), a, b, alpha=2).tolist()
    [[[7.0, 7.0], [7.0, 7.0]]]
    """
    if input._array.dtype != batch1._array.dtype:
        raise RuntimeError(
            f"baddbmm needs tensors of one dtype, got {input.dtype} and {batch1.dtype}"
        )
    if input._array.dtype.itemsize == 2 and is_half(input) and is_half(batch2):
        found = _blend(input.float(), bmm(batch1.float(), batch2.float()), beta, alpha)
        return found.to(input.dtype)
    return _blend(input, bmm(batch1, batch2), beta, alpha)


@op(
    samples=lambda: [Sample((3,), (3, 4), (4,))],
    inplace=True,
    autocast={"cpu": "keep", "cuda": "lower"},
)
def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Any:
    """beta * input + alpha * (mat @ vec).

    >>> import tapegrad
    >>> a, x = tapegrad.tensor([[1.0, 2.0], [3.0, 4.0]]), tapegrad.tensor([1.0, 1.0])
    >>> tapegrad.addmv(tapegrad.ones(2), a, x)
    tensor([4., 8.])
    """
    return _blend(input, mv(mat, vec), beta, alpha)


def _blend(input: Any, product: Any, beta: Any, alpha: Any) -> Any:
    if alpha == beta == 1:
        return product + input
    alpha, beta = number_for(product, alpha), number_for(input, beta)
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else product + (input if beta == 1 else input * beta)


# -- linear layers -----------------------------------------------------------------------------


def _linear(x: Any, weight: Any, bias: Any) -> Any:
    out = matmul_(x, swapped(weight))
    if bias is None:
        return out
    if isinstance(out, np.ndarray) and bias.dtype == out.dtype:
        out += bias if out.size > xp.FEW_ADDED else xp.spread(bias, out.shape)
        return out
    return out + bias


def _linear_batch(p: Primitive, inputs: Any, batched: Any, params: dict[str, Any]) -> Any:
    """If examples share one weight, merge them into the rows; else one product for each."""
    x, weight, bias = inputs
    if not any(batched[1:]):
        return separated(p(joined(x), weight, bias), x.shape[0])
    out = contraction(matmul_, (x, swapped(weight)), batched[:2], {})
    if bias is None:
        return out
    return out + (aligned(bias, 2) if batched[2] else bias)


linear_: Primitive = define(
    "linear",
    _linear,
    kind=OPAQUE,
    composite=True,
    promote="same",
    native_size=PRODUCT_SIZE,
    vjp=(
        lambda g, weight: matmul_(g, weight),
        lambda g, x: matmul_(swapped(g), x),
        lambda g: sum_(g, dims=(0,), keepdim=False),
    ),
    batch=_linear_batch,
    complex=HOLOMORPHIC,
)


@op(
    module="nn.functional",
    samples=lambda: [
        Sample((3, 4), (2, 4), (2,)),
        Sample((4,), (2, 4), (2,)),
        Sample((2, 3, 4), (5, 4)),
        Sample((0, 4), (2, 4), (2,)),
    ],
    autocast="lower",
)
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    """input @ weight.T + bias.

    `input` is (..., features), `weight` (outputs, features), `bias` (outputs,); a weight of one
    dimension, (features,), gives one number for each row.

    >>> import tapegrad
    >>> weight = tapegrad.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 2.0]])
    >>> tapegrad.nn.functional.linear(tapegrad.tensor([1.0, 2.0]), weight, tapegrad.ones(3))
    tensor([2., 4., 5.])
    """
    shape = input._array.shape
    if weight._array.ndim != 2 or not shape or shape[-1] != weight._array.shape[1]:
        if weight._array.ndim == 1 and shape and shape[-1:] == weight._array.shape:
            out = matmul(input, weight)  # a single output, without its dimension
            return out if bias is None else out + bias
        raise _mismatch(
            "linear",
            input,
            weight,
            "the last size of the input must equal the second of the weight",
        )
    if bias is not None and bias._array.shape != weight._array.shape[:1]:
        raise _mismatch(
            "linear", weight, bias, "the bias needs one value for each row of the weight"
        )
    for x in (weight, bias):
        if x is not None and x._array.dtype != input._array.dtype:
            raise RuntimeError(
                f"linear needs input, weight and bias of one dtype, got {input.dtype} and {x.dtype}"
            )
    if len(shape) == 2:
        return linear_.direct(input, weight, bias, NO_PARAMS)
    flat = reshape_.direct(input, {"shape": (math.prod(shape[:-1]), shape[-1])})
    out = linear_.direct(flat, weight, bias, NO_PARAMS)
    return reshape_.direct(out, {"shape": (*shape[:-1], weight._array.shape[0])})


def _matmul_operator(self: Tensor, other: Tensor | np.ndarray[Any, Any]) -> Any:
    if isinstance(other, Tensor):
        return matmul(self, other)
    return matmul(self, wrap(other)) if isinstance(other, np.ndarray) else NotImplemented


def _reflected_matmul(self: Tensor, other: Tensor | np.ndarray[Any, Any]) -> Any:
    if isinstance(other, Tensor):  # the right operand's class is derived from that of the left
        return matmul(other, self)
    return matmul(wrap(other), self) if isinstance(other, np.ndarray) else NotImplemented


attach(__matmul__=_matmul_operator, __rmatmul__=_reflected_matmul)
