"""The rules of primitives with sparse operands, by the names of the primitives.

Comes in: the operands of a primitive, at least one of which is sparse, and its parameters. Goes
out: a sparse tensor, or a dense one if all elements would be stored. Elements that are not stored
are 0, so only functions that map 0 to 0 have a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core import dtypes
from ...core.primitive import PRIMITIVES
from ...core.sparse import RULES, refusal
from ...core.tensor import Tensor, wrap
from ..index.indexing import put_, put_add_, take_
from ..shape.joining import cat
from .tensor import SparseTensor, flat_keys, made, rows_of

Rule = Callable[..., Any]


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register `function(*inputs, **params)` as the rule of primitives with these names."""

    def enter(function: Rule) -> Rule:
        for name in names:
            RULES[name] = lambda inputs, params: function(*inputs, **params)
        return function

    return enter


def like(x: SparseTensor, elements: Tensor) -> SparseTensor:
    """A sparse tensor with the coordinates of `x` and other elements."""
    return made(x.parts.coordinates, elements, x._array.shape, x._array.unique)


def same_dtype(*operands: Any) -> list[Any]:
    """Tensors cast to their common dtype."""
    found = [(t.dtype, 2 if t.ndim else 1) for t in operands]
    target = dtypes.result_type(*found)
    return [t.to(target) for t in operands]


def check_shapes(what: str, x: Any, y: Any) -> None:
    """Raise unless shapes are equal, because sparse tensors do not broadcast."""
    if x._array.shape != y._array.shape:
        raise RuntimeError(
            f"{what}: sparse tensors do not broadcast, and shapes {tuple(x.shape)} and "
            f"{tuple(y.shape)} differ"
        )


# -- sums --------------------------------------------------------------------------------------


@rule("add")
def _add(x: Any, y: Any) -> Any:
    return total(x, y)


@rule("sub")
def _sub(x: Any, y: Any) -> Any:
    return total(x, -y)


def total(x: Any, y: Any) -> Any:
    """x + y: dense if x is, and sparse if both are."""
    if not isinstance(x, SparseTensor):
        if not isinstance(x, Tensor):
            raise _not_dense()
        return added_to(x, y)
    if not isinstance(y, SparseTensor):
        raise _not_dense()
    check_shapes("add", x, y)
    if x.sparse_dim() != y.sparse_dim():
        raise RuntimeError(
            f"add: one tensor has {x.sparse_dim()} sparse dimensions and the other "
            f"{y.sparse_dim()}; use to_dense() on one of them"
        )
    a, b = x.parts, y.parts
    first, second = same_dtype(a.elements, b.elements)
    unique = a.unique and b.unique
    if a.coordinates is b.coordinates or np.array_equal(a.coordinates._array, b.coordinates._array):
        return made(a.coordinates, first + second, a.shape, unique)
    coordinates = np.concatenate([a.coordinates._array, b.coordinates._array], 1)
    out = made(wrap(coordinates), cat([first, second]), a.shape, False)
    return out.coalesce() if unique or out._nnz() > out._array.size else out


def _not_dense() -> RuntimeError:
    return RuntimeError(
        "a dense tensor or a number cannot be added to a sparse one; add the sparse one to the "
        "dense one, or use to_dense()"
    )


def added_to(dense: Tensor, x: SparseTensor) -> Any:
    """A dense tensor with the elements of a sparse one added."""
    check_shapes("add", dense, x)
    if not x.sparse_dim():
        return dense + x.to_dense()
    whole, elements = same_dtype(dense, x.parts.elements)
    dims = tuple(range(x.sparse_dim()))
    return put_(whole, elements, *rows_of(x.parts), dims=dims, accumulate=True)


# -- products ----------------------------------------------------------------------------------


@rule("mul")
def _mul(x: Any, y: Any) -> Any:
    if not isinstance(x, SparseTensor):
        x, y = y, x
    if not isinstance(y, Tensor) or (not isinstance(y, SparseTensor) and not y.ndim):
        return like(x, x.parts.elements * y)
    if isinstance(y, SparseTensor):
        return _both(x, y)
    return like(x, x.parts.elements * picked(y.expand(x.shape), x))


def picked(dense: Tensor, x: SparseTensor) -> Any:
    """The elements of a dense tensor at the coordinates of a sparse one."""
    if not x.sparse_dim():
        return dense.unsqueeze(0).expand(x.parts.elements.shape)
    return take_(dense, *rows_of(x.parts), dims=tuple(range(x.sparse_dim())))


def _both(x: SparseTensor, y: SparseTensor) -> Any:
    """The product, at the coordinates that both store."""
    check_shapes("mul", x, y)
    if x.sparse_dim() != y.sparse_dim():
        raise refusal("mul of tensors with other numbers of sparse dimensions")
    a, b = x.coalesce().parts, y.coalesce().parts
    key, other = (flat_keys(part.coordinates._array, part.shape) for part in (a, b))
    _, first, second = np.intersect1d(key, other, assume_unique=True, return_indices=True)
    found = [take_(part.elements, wrap(at), dims=(0,)) for part, at in ((a, first), (b, second))]
    return made(wrap(a.coordinates._array[:, first]), found[0] * found[1], a.shape, True)


@rule("div")
def _div(x: Any, y: Any) -> Any:
    if not isinstance(x, SparseTensor) or (isinstance(y, Tensor) and (y.ndim or y.is_sparse)):
        raise RuntimeError(
            "a sparse tensor can be divided by a number or a tensor without dimensions; use "
            "to_dense() for other quotients"
        )
    return like(x, x.parts.elements / y)


def _rounded_division(name: str) -> None:
    def divide(inputs: Sequence[Any], params: dict[str, Any]) -> Any:
        x, y = inputs
        if not isinstance(x, SparseTensor) or (isinstance(y, Tensor) and y.ndim):
            raise refusal(name)
        x = x.coalesce()  # round the quotient of a sum, not those of its terms
        return like(x, PRIMITIVES[name](x.parts.elements, y, **params))

    RULES[name] = divide


for _name in ("div_floor", "div_trunc", "floor_divide"):
    _rounded_division(_name)


# -- elementwise functions ---------------------------------------------------------------------


@rule("neg")
def _neg(x: Any) -> Any:
    return like(x, -x.parts.elements)


@rule("clone")
def _clone(x: Any) -> Any:
    return x.clone()


@rule("cast")
def _cast(x: Any, dtype: Any) -> Any:
    return like(x, x.parts.elements.to(dtype))


@rule("to_device")
def _moved(x: Any, target: Any, source: Any) -> Any:
    return made(x.parts.coordinates.to(target), x.parts.elements.to(target), *x._about())


def _on_elements(name: str) -> None:
    def apply(inputs: Sequence[Any], params: dict[str, Any]) -> Any:
        x = inputs[0].coalesce()  # in general f(a + b) is not f(a) + f(b)
        return like(x, PRIMITIVES[name](x.parts.elements, *inputs[1:], **params))

    RULES[name] = apply


#: functions of one argument with f(0) = 0
for _name in (
    *("abs", "asin", "asinh", "atan", "atanh", "ceil", "deg2rad", "erf", "erfinv", "expm1"),
    *("floor", "isinf", "isnan", "log1p", "positive", "rad2deg", "relu", "round", "sgn", "sign"),
    *("sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc"),
):
    _on_elements(_name)


@rule("pow")
def _pow(x: Any, y: Any) -> Any:
    if isinstance(y, Tensor) or not isinstance(x, SparseTensor) or not y > 0:
        raise refusal("pow with another exponent than a number above 0")
    x = x.coalesce()
    return like(x, x.parts.elements**y)


# -- reductions --------------------------------------------------------------------------------


@rule("sum")
def _sum(x: Any, dims: Any, keepdim: bool) -> Any:
    if keepdim:
        raise refusal("sum with keepdim=True")
    parts, sparse = x.parts, x.sparse_dim()
    inner = tuple(d - sparse + 1 for d in dims if d >= sparse)
    elements = parts.elements
    kept = [d for d in range(sparse) if d not in dims]
    gone = (0, *inner) if not kept else inner
    if gone:
        elements = elements.sum(gone)
    if not kept:
        return elements
    shape = tuple(n for d, n in enumerate(parts.shape) if d not in dims)
    return made(wrap(parts.coordinates._array[kept]), elements, shape, False).coalesce()


@rule("any")
def _any(x: Any, dims: Any = None, keepdim: bool = False) -> Any:
    if keepdim or (dims is not None and len(dims) != x.ndim):
        raise refusal("any along dimensions")
    return x.coalesce().parts.elements.any()


@rule("norm2")
def _norm2(x: Any, dims: Any, keepdim: bool) -> Any:
    return _norm(x, 2.0, dims, keepdim)


@rule("norm")
def _norm(x: Any, p: float, dims: Any, keepdim: bool) -> Any:
    if keepdim or len(dims) != x.ndim:
        raise RuntimeError(
            "norm of a sparse tensor goes over all of its dimensions, without keepdim; use "
            "to_dense() for others"
        )
    return x.coalesce().parts.elements.norm(p)


@rule("amax")
def _amax(x: Any, dims: Any, keepdim: bool) -> Any:
    """The largest element of a tensor without negative elements, for norms."""
    elements = x.coalesce().parts.elements
    if keepdim or len(dims) != x.ndim or (elements._array < 0).any():
        raise refusal("amax")
    return elements.amax() if elements._array.size else elements.sum()


# -- dimensions --------------------------------------------------------------------------------


@rule("permute")
def _permute(x: Any, dims: Any) -> Any:
    sparse = x.sparse_dim()
    if tuple(dims[sparse:]) != tuple(range(sparse, len(dims))):
        raise RuntimeError(
            "transpose of a sparse tensor moves sparse dimensions among each other, and "
            f"{sparse} of {x.ndim} are sparse; use to_dense() first"
        )
    parts = x.parts
    shape = tuple(parts.shape[d] for d in dims)
    return made(wrap(parts.coordinates._array[list(dims[:sparse])]), parts.elements, shape, False)


@rule("cat")
def _cat(*tensors: Any, dim: int) -> Any:
    first = tensors[0]
    if not all(isinstance(t, SparseTensor) for t in tensors) or dim >= first.sparse_dim():
        raise refusal("cat with dense tensors, or along a dense dimension,")
    if any(t.sparse_dim() != first.sparse_dim() for t in tensors):
        raise refusal("cat of tensors with other numbers of sparse dimensions")
    coordinates, start = [], 0
    for t in tensors:
        moved = t.parts.coordinates._array.copy()
        moved[dim] += start
        start += t._array.shape[dim]
        coordinates.append(moved)
    shape = list(first._array.shape)
    shape[dim] = start
    elements = cat(same_dtype(*[t.parts.elements for t in tensors]))
    return made(wrap(np.concatenate(coordinates, 1)), elements, tuple(shape), False)


# -- products of matrices ----------------------------------------------------------------------


@rule("matmul")
def _matmul(x: Any, y: Any) -> Any:
    for t in (x, y):
        if isinstance(t, SparseTensor) and (t.sparse_dim(), t.dense_dim()) != (2, 0):
            raise refusal("matmul with other than two sparse dimensions")
    if x.ndim != 2 or y.ndim != 2:
        raise refusal("matmul of more than matrices")
    if x.is_sparse and y.is_sparse:
        return _sparse_product(x, y)
    if x.is_sparse:
        row, column = rows_of(x.parts)
        taken = take_(y, column, dims=(0,)) * x.parts.elements.unsqueeze(1)
        return put_add_(taken, row, dims=(0,), shape=(x._array.shape[0], y._array.shape[1]))
    row, column = rows_of(y.parts)
    taken = take_(x, row, dims=(1,)) * y.parts.elements
    return put_add_(taken, column, dims=(1,), shape=(x._array.shape[0], y._array.shape[1]))


def _sparse_product(x: SparseTensor, y: SparseTensor) -> Any:
    """Each element in column k of x times each element in row k of y."""
    a, b = x.parts, y.coalesce().parts
    row, inner = a.coordinates._array
    begins, column = b.coordinates._array
    first = np.searchsorted(begins, inner)
    counts = np.searchsorted(begins, inner, side="right") - first
    left = np.repeat(np.arange(len(inner)), counts)
    # The elements of a row of y are adjacent: count from the first of them.
    right = np.arange(len(left)) + np.repeat(first - np.cumsum(counts) + counts, counts)
    products = take_(a.elements, wrap(left), dims=(0,)) * take_(b.elements, wrap(right), dims=(0,))
    coordinates = wrap(np.stack([row[left], column[right]]))
    return made(coordinates, products, (a.shape[0], b.shape[1]), False).coalesce()


@rule("mv")
def _mv(x: Any, y: Any) -> Any:
    if y.is_sparse:
        raise refusal("mv with a sparse vector")
    return _matmul(x, y.unsqueeze(1)).squeeze(1)
