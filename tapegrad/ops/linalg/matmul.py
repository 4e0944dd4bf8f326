"""Matrix products and what is made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import xp
from ...core.primitive import CONTRACTION, MOVEMENT, NO_PARAMS, OPAQUE, Primitive, define
from ...core.tensor import Tensor, wrap
from ..elementwise.blends import number_for
from ..reduce.reductions import sum, sum_
from ..shape.movement import normal_dim, permute_, reshape_, swapped
from ..table import Sample, attach, op

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..annotations import Number


def _matmul(x: Any, y: Any) -> Any:
    if x.dtype.itemsize == 2:
        return np.matmul(x.astype(np.float32), y.astype(np.float32)).astype(x.dtype)
    return np.matmul(x, y)


matmul_: Primitive = define(
    "matmul",
    _matmul,
    kind=CONTRACTION,
    promote="same",
    lower=lambda b, out, x, y: b.product(out, x, y),
    vjp=(lambda g, y: matmul_(g, swapped(y)), lambda g, x: matmul_(swapped(x), g)),
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
    a, b = input, other
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        raise TypeError("matmul needs two tensors")
    n, m = a._array.ndim, b._array.ndim
    if n == m == 2 and a._array.shape[1] == b._array.shape[0] and a._array.dtype == b._array.dtype:
        return matmul_.direct(a, b, NO_PARAMS)
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
        a = reshape_(a, shape=(1, a._array.shape[0]))
    if m == 1:
        b = reshape_(b, shape=(b._array.shape[0], 1))
    if a._array.ndim > 2 or b._array.ndim > 2:
        try:
            np.broadcast_shapes(a._array.shape[:-2], b._array.shape[:-2])
        except ValueError:
            raise _mismatch("matmul", input, other, "the batch dimensions must broadcast") from None
    if m <= 2 and a._array.ndim > 2:
        # One large product instead of a batch of small ones.
        lead = a._array.shape[:-1]
        flat = reshape_(a, shape=(_size(lead), a._array.shape[-1]))
        out = reshape_(matmul_(flat, b), shape=(*lead, b._array.shape[-1]))
    else:
        out = matmul_(a, b)
    if n == 1:
        out = out.squeeze(-2)
    return out.squeeze(-1) if m == 1 else out


def _size(shape: Any) -> int:
    total = 1
    for n in shape:
        total *= n
    return total


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
    if input._array.ndim != 2 or mat2._array.ndim != 2:
        raise _mismatch("mm", input, mat2, "mm needs two matrices")
    return matmul(input, mat2)


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
    return matmul(input, mat2)


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
    return matmul(input, vec)


@op(
    samples=lambda: [Sample((4,), (4,))],
    aliases=("inner",),
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
    return matmul(input, tensor)


@op(samples=lambda: [Sample((3,), (4,))], aliases=("ger",))
def outer(input: Tensor, vec2: Tensor) -> Any:
    """All products of the elements of two vectors: (n,) and (m,) give (n, m).

    >>> import tapegrad
    >>> tapegrad.outer(tapegrad.tensor([1.0, 2.0]), tapegrad.tensor([3.0, 4.0]))
    tensor([[3., 4.],
            [6., 8.]])
    """
    if input._array.ndim != 1 or vec2._array.ndim != 1:
        raise _mismatch("outer", input, vec2, "outer needs two vectors")
    return input.unsqueeze(1) * vec2


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
    return _blend(input, mm(mat1, mat2), beta, alpha)


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
    alpha, beta = number_for(product, alpha), number_for(input, beta)
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else product + (input if beta == 1 else input * beta)


# -- linear layers -----------------------------------------------------------------------------


def _linear(x: Any, weight: Any, bias: Any) -> Any:
    out = matmul_(x, swapped(weight))
    if bias is None:
        return out
    if isinstance(out, np.ndarray) and bias.dtype == out.dtype:
        out += bias
        return out
    return out + bias


linear_: Primitive = define(
    "linear",
    _linear,
    kind=OPAQUE,
    composite=True,
    promote="same",
    vjp=(
        lambda g, weight: matmul_(g, weight),
        lambda g, x: matmul_(swapped(g), x),
        lambda g: sum_(g, dims=(0,), keepdim=False),
    ),
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

    `input` is (..., features), `weight` (outputs, features), `bias` (outputs,).

    >>> import tapegrad
    >>> weight = tapegrad.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 2.0]])
    >>> tapegrad.nn.functional.linear(tapegrad.tensor([1.0, 2.0]), weight, tapegrad.ones(3))
    tensor([2., 4., 5.])
    """
    shape = input._array.shape
    if weight._array.ndim != 2 or not shape or shape[-1] != weight._array.shape[1]:
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
        return linear_(input, weight, bias)
    flat = reshape_(input, shape=(_size(shape[:-1]), shape[-1]))
    out = linear_(flat, weight, bias)
    return reshape_(out, shape=(*shape[:-1], weight._array.shape[0]))


# -- einsum ------------------------------------------------------------------------------------


def _parse_einsum(equation: str, operands: list[Any]) -> tuple[list[str], str]:
    equation = equation.replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        raise RuntimeError(f"einsum {equation!r} names {len(terms)} operands, got {len(operands)}")
    names = [chr(c) for c in range(0x1F00, 0x1F80)]
    dots = 0
    for term, x in zip(terms, operands, strict=True):
        if "..." in term:
            dots = max(dots, x._array.ndim - len(term) + 3)
    batch = "".join(names[:dots])
    full = []
    for term, x in zip(terms, operands, strict=True):
        if "..." in term:
            n = x._array.ndim - len(term) + 3
            term = term.replace("...", batch[dots - n :])
        if len(term) != x._array.ndim:
            raise RuntimeError(
                f"einsum {equation!r}: operand of shape {tuple(x.shape)} has {x._array.ndim} "
                f"dimensions but {len(term)} subscripts"
            )
        full.append(term)
    if arrow:
        out = right.replace("...", batch)
    else:
        letters = "".join(full)
        out = batch + "".join(
            sorted(c for c in set(letters) if letters.count(c) == 1 and c not in batch)
        )
    return full, out


@op(
    method=False,
    samples=lambda: [
        Sample("ij,jk->ik", (3, 4), (4, 2)),
        Sample("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
        Sample("i,j->ij", (3,), (4,)),
        Sample("ij->ji", (3, 4)),
        Sample("ii->i", (3, 3)),
        Sample("ii", (3, 3)),
        Sample("ij,ij->", (3, 4), (3, 4)),
        Sample("...ij,...jk->...ik", (2, 3, 4), (4, 5)),
        Sample("bhqd,bhkd->bhqk", (2, 2, 3, 4), (2, 2, 5, 4)),
        Sample("ij,jk,kl->il", (2, 3), (3, 4), (4, 2)),
        Sample("ij->j", (3, 4)),
    ],
    autocast={"cuda": "lower"},
)
def einsum(equation: str, *operands: Tensor | Sequence[Tensor]) -> Any:
    """Sums of products by Einstein's notation.

    A letter names a dimension. Letters that are not right of "->" are summed over; without "->"
    the result has the letters that stand once, in alphabetic order. "..." stands for dimensions
    that broadcast.

    >>> import tapegrad
    >>> a, b = tapegrad.tensor([[1.0, 2.0], [3.0, 4.0]]), tapegrad.tensor([[1.0, 1.0], [0.0, 1.0]])
    >>> tapegrad.einsum("ij,jk->ik", a, b)
    tensor([[1., 3.],
            [3., 7.]])
    """
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    tensors: list[Any] = list(operands)
    terms, out = _parse_einsum(equation, tensors)
    sizes: dict[str, int] = {}
    for term, x in zip(terms, tensors, strict=True):
        for c, n in zip(term, x._array.shape, strict=True):
            if sizes.setdefault(c, n) != n and n != 1:
                if sizes[c] != 1:
                    raise RuntimeError(
                        f"einsum {equation!r}: subscript {c!r} has sizes {sizes[c]} and {n}"
                    )
                sizes[c] = n
    for c in out:
        if c not in sizes or out.count(c) > 1:
            raise RuntimeError(f"einsum {equation!r}: bad output subscript {c!r}")
    term, x = _without_repeats(terms[0], tensors[0])
    for k in range(1, len(tensors)):
        other_term, y = _without_repeats(terms[k], tensors[k])
        later = set(out).union(*terms[k + 1 :])
        term, x = _contract(term, x, other_term, y, later)
    gone = tuple(i for i, c in enumerate(term) if c not in out)
    if gone:
        x = sum(x, gone)
        term = "".join(c for c in term if c in out)
    order = tuple(term.index(c) for c in out)
    return permute_(x, dims=order) if order != tuple(range(len(order))) else x


def _without_repeats(term: str, x: Any) -> tuple[str, Any]:
    """Take the diagonal where a subscript stands twice in one operand."""
    for c in dict.fromkeys(term):
        while term.count(c) > 1:
            i = term.index(c)
            j = term.index(c, i + 1)
            x = diagonal(x, 0, i, j)
            term = term[:i] + term[i + 1 : j] + term[j + 1 :] + c
    return term, x


def _contract(a: str, x: Any, b: str, y: Any, later: set[str]) -> tuple[str, Any]:
    """Two operands to one, as a batched matrix product; sums over subscripts not needed later."""
    only = [c for c in a if c not in b and c not in later]
    if only:
        x = sum(x, tuple(a.index(c) for c in only))
        a = "".join(c for c in a if c not in only)
    only = [c for c in b if c not in a and c not in later]
    if only:
        y = sum(y, tuple(b.index(c) for c in only))
        b = "".join(c for c in b if c not in only)
    shared = [c for c in a if c in b]
    batch = [c for c in shared if c in later]
    inner = [c for c in shared if c not in later]
    left = [c for c in a if c not in b]
    right = [c for c in b if c not in a]
    n: dict[str, int] = {}
    for term, v in ((a, x), (b, y)):
        for c, wide in zip(term, v._array.shape, strict=True):
            n[c] = wide if n.get(c, 1) == 1 else n[c]

    def arranged(term: str, v: Any, order: list[str]) -> Any:
        v = v.expand([n[c] for c in term])
        return permute_(v, dims=tuple(term.index(c) for c in order))

    def size(group: list[str]) -> int:
        return _size([n[c] for c in group])

    p = reshape_(arranged(a, x, batch + left + inner), shape=(size(batch), size(left), size(inner)))
    q = reshape_(
        arranged(b, y, batch + inner + right), shape=(size(batch), size(inner), size(right))
    )
    names = batch + left + right
    # For autocast it is a product of matrices where it sums, and a multiplication elsewhere.
    product = bmm if inner else matmul_
    return "".join(names), reshape_(product(p, q), shape=tuple(n[c] for c in names))


@op(
    samples=lambda: [
        Sample((2, 3, 4), (3, 4, 5)),
        Sample((2, 3, 4), (4, 5), 1),
        Sample((2, 3, 4), (4, 5, 2), dims=([0, 2], [2, 0])),
    ],
    method=False,
    autocast={"cpu": "lower", "cuda": "widest"},
)
def tensordot(a: Tensor, b: Tensor, dims: int | Sequence[Sequence[int]] = 2) -> Any:
    """Sums of products over `dims` last dimensions of `a` and first of `b`, or over named pairs.

    >>> import tapegrad
    >>> a, b = tapegrad.ones(2, 3, 4), tapegrad.ones(4, 5)
    >>> tapegrad.tensordot(a, b, dims=1).shape
    Size([2, 3, 5])
    >>> tapegrad.tensordot(a, tapegrad.ones(5, 2), dims=([0], [1])).shape
    Size([3, 4, 5])
    """
    if isinstance(dims, int):
        n = a._array.ndim
        pairs = [list(range(n - dims, n)), list(range(dims))]
    else:
        pairs = [
            [dims[0]] if isinstance(dims[0], int) else list(dims[0]),
            [dims[1]] if isinstance(dims[1], int) else list(dims[1]),
        ]
    first = [normal_dim(d, a._array.ndim) for d in pairs[0]]
    second = [normal_dim(d, b._array.ndim) for d in pairs[1]]
    letters = [chr(97 + i) for i in range(a._array.ndim + b._array.ndim)]
    left = letters[: a._array.ndim]
    right = letters[a._array.ndim :]
    for i, j in zip(first, second, strict=True):
        right[j] = left[i]
    out = [c for i, c in enumerate(left) if i not in first]
    out += [c for j, c in enumerate(right) if j not in second]
    return einsum(f"{''.join(left)},{''.join(right)}->{''.join(out)}", a, b)


# -- triangles and diagonals -------------------------------------------------------------------


def _triangle_in_loops(b: Any, out: Any, x: Any, k: int, relation: str) -> None:
    """Elements where `column relation row + k`, zeros elsewhere."""
    body = b.over(out.shape)
    row, column = body.along(-2), body.along(-1)
    text = f"where(column {relation} row + {k}, x, 0)"
    body.store(out, body.compute(text, out.dtype, column=column, row=row, x=body.read(x)))
    body.done()


tril_: Primitive = define(
    "tril",
    lambda x, *, k: xp.contiguous(np.tril(x, k)),
    kind=OPAQUE,
    lower=lambda b, out, x, *, k: _triangle_in_loops(b, out, x, k, "<="),
    vjp=lambda g, k: tril_(g, k=k),
)
triu_: Primitive = define(
    "triu",
    lambda x, *, k: xp.contiguous(np.triu(x, k)),
    kind=OPAQUE,
    lower=lambda b, out, x, *, k: _triangle_in_loops(b, out, x, k, ">="),
    vjp=lambda g, k: triu_(g, k=k),
)


def _matrix(x: Any, what: str) -> None:
    if x._array.ndim < 2:
        raise RuntimeError(f"{what} needs at least 2 dimensions, got shape {tuple(x.shape)}")


@op(samples=lambda: [Sample((3, 4)), Sample((2, 3, 3), 1), Sample((3, 3), -1)], inplace=True)
def tril(input: Tensor, diagonal: int = 0) -> Any:
    """The lower triangle; zeros above the diagonal.

    `diagonal` moves the border: positive ones keep more, negative ones less.

    >>> import tapegrad
    >>> tapegrad.tril(tapegrad.ones(3, 3))
    tensor([[1., 0., 0.],
            [1., 1., 0.],
            [1., 1., 1.]])
    """
    _matrix(input, "tril")
    return tril_(input, k=int(diagonal))


@op(samples=lambda: [Sample((3, 4)), Sample((2, 3, 3), 1), Sample((3, 3), -1)], inplace=True)
def triu(input: Tensor, diagonal: int = 0) -> Any:
    """The upper triangle; zeros below the diagonal.

    `diagonal` moves the border: positive ones keep less, negative ones more.

    >>> import tapegrad
    >>> tapegrad.triu(tapegrad.ones(3, 3), diagonal=1)
    tensor([[0., 1., 1.],
            [0., 0., 1.],
            [0., 0., 0.]])
    """
    _matrix(input, "triu")
    return triu_(input, k=int(diagonal))


def _diagonal(x: Any, *, offset: int, dim1: int, dim2: int) -> Any:
    out = x.diagonal(offset, dim1, dim2)
    if isinstance(out, np.ndarray) and x.flags.writeable:
        out.flags.writeable = True  # NumPy shows diagonals read-only
    return out


def _undiagonal(x: Any, *, shape: Any, offset: int, dim1: int, dim2: int) -> Any:
    out = xp.module(x).zeros(shape, x.dtype)
    n = x.shape[-1]
    rows = np.arange(n) + max(-offset, 0)
    columns = np.arange(n) + max(offset, 0)
    moved = np.moveaxis(out, (dim1, dim2), (-2, -1))
    moved[..., rows, columns] = x
    return out


def _undiagonal_in_loops(
    b: Any, out: Any, x: Any, *, shape: Any, offset: int, dim1: int, dim2: int
) -> None:
    b.fill(out, 0)
    b.copy(out.diagonal(offset, dim1, dim2), x)


diagonal_: Primitive = define(
    "diagonal",
    _diagonal,
    kind=MOVEMENT,
    view=True,
    vjp=lambda g, x_shape, offset, dim1, dim2: undiagonal_(
        g, shape=tuple(x_shape), offset=offset, dim1=dim1, dim2=dim2
    ),
)
undiagonal_: Primitive = define(
    "undiagonal",
    _undiagonal,
    kind=OPAQUE,
    lower=_undiagonal_in_loops,
    vjp=lambda g, offset, dim1, dim2: diagonal_(g, offset=offset, dim1=dim1, dim2=dim2),
)


@op(samples=lambda: [Sample((3, 4)), Sample((3, 4), 1), Sample((2, 3, 4), -1, 0, 2)])
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """The diagonal of two dimensions, as the last dimension: a view.

    `offset` is above the main diagonal if positive, below it if negative.

    >>> import tapegrad
    >>> tapegrad.diagonal(tapegrad.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([1., 4.])
    """
    n = input._array.ndim
    first, second = normal_dim(dim1, n), normal_dim(dim2, n)
    if first == second:
        raise RuntimeError("diagonal needs two different dims")
    return diagonal_(input, offset=int(offset), dim1=first, dim2=second)


@op(samples=lambda: [Sample((3,)), Sample((3,), 1), Sample((3, 4)), Sample((3, 4), -1)])
def diag(input: Tensor, diagonal: int = 0) -> Any:
    """A matrix with this vector on a diagonal, or the diagonal of a matrix.

    >>> import tapegrad
    >>> tapegrad.diag(tapegrad.tensor([1.0, 2.0]))
    tensor([[1., 0.],
            [0., 2.]])
    >>> tapegrad.diag(tapegrad.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([1., 4.])
    """
    if input._array.ndim == 2:
        return diagonal_(input, offset=int(diagonal), dim1=0, dim2=1).clone()
    if input._array.ndim != 1:
        raise RuntimeError(f"diag needs a vector or a matrix, got shape {tuple(input.shape)}")
    return diag_embed(input, diagonal)


@op(samples=lambda: [Sample((3,)), Sample((2, 3), 1)])
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    """Matrices with the last dimension on their diagonals: (..., n) gives (..., n, n).

    >>> import tapegrad
    >>> tapegrad.diag_embed(tapegrad.tensor([[1.0, 2.0], [3.0, 4.0]]))[1]
    tensor([[3., 0.],
            [0., 4.]])
    """
    n = input._array.ndim + 1
    size = input._array.shape[-1] + abs(offset)
    first, second = normal_dim(dim1, n), normal_dim(dim2, n)
    shape = list(input._array.shape[:-1])
    for d in sorted((first, second)):
        shape.insert(d, size)
    return undiagonal_(input, shape=tuple(shape), offset=int(offset), dim1=first, dim2=second)


@op(
    samples=lambda: [Sample((3, 3)), Sample((3, 4))],
    autocast={"cpu": "full"},
)
def trace(input: Tensor) -> Any:
    """The sum of the diagonal of a matrix.

    >>> import tapegrad
    >>> tapegrad.trace(tapegrad.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor(5.)
    """
    if input._array.ndim != 2:
        raise RuntimeError(f"trace needs a matrix, got shape {tuple(input.shape)}")
    return diagonal(input).sum()


def _operand(x: Any) -> Any:
    return wrap(x) if isinstance(x, np.ndarray) else x


def _matmul_operator(self: Tensor, other: Tensor | np.ndarray[Any, Any]) -> Any:
    return matmul(self, _operand(other))


def _reflected_matmul(self: Tensor, other: Tensor | np.ndarray[Any, Any]) -> Any:
    return matmul(_operand(other), self)


attach(__matmul__=_matmul_operator, __rmatmul__=_reflected_matmul)
