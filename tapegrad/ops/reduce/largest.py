"""The largest and the smallest elements, and their indices.

Comes in: a tensor and the dimensions to reduce. Goes out: values, indices or both (`Extreme`). If
several elements are extreme, `amax` and `amin` share the gradient among them. Used by softmax,
norms and running extremes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from ...core import numeric, xp
from ...core.batch_rules import adapted, shifted
from ...core.operands import BOOL
from ...core.primitive import ARRAY_SIZE, OPAQUE, REDUCE, Primitive, define
from ...core.tensor import Tensor, wrap
from ..elementwise import comparison as c
from ..elementwise import extremes
from ..index.gather import gather_, scatter_add_, zeros_as
from ..precision import check_numbers
from ..shape.dims import normal_dim, normal_dims
from ..shape.reshaping import reshape_
from ..table import In, Sample, op
from .reductions import count, reduction_samples, spread, sum_

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..annotations import Dims


def _not_empty(
    x: Any, dims: tuple[int, ...], what: str, error: type[Exception] = IndexError
) -> None:
    if x._array.size == 0 and count(x._array.shape, dims) == 0:
        raise error(
            f"{what} of no elements has no value: a tensor of shape {tuple(x.shape)} is empty "
            f"along {dims}"
        )


def _share_ties(g: Any, x: Any, out: Any, dims: tuple[int, ...], keepdim: bool) -> Any:
    """Send the gradient to the extreme element, or in equal parts to several."""
    hit = c.equal(x, spread(out, x.shape, dims, keepdim))
    shares = c.where(hit, spread(g * 0 + 1, x.shape, dims, keepdim), 0.0)
    each = shares / sum_(shares, dims=dims, keepdim=True)
    return spread(g, x.shape, dims, keepdim) * each


def _amax(x: Any, *, dims: tuple[int, ...], keepdim: bool) -> Any:
    if x.__class__ is not np.ndarray:
        return xp.contiguous(x.max(axis=dims, keepdims=keepdim))
    if len(dims) == x.ndim and not keepdim and x.size and numeric.is_numpy_float(x.dtype):
        return x.ravel()[x.argmax()]  # for few elements, a fifth of the time of `max`
    return xp.reduced(np.maximum, x, dims, keepdim)


def _amin(x: Any, *, dims: tuple[int, ...], keepdim: bool) -> Any:
    if x.__class__ is not np.ndarray:
        return xp.contiguous(x.min(axis=dims, keepdims=keepdim))
    if len(dims) == x.ndim and not keepdim and x.size and numeric.is_numpy_float(x.dtype):
        return x.ravel()[x.argmin()]
    return xp.reduced(np.minimum, x, dims, keepdim)


amax_: Primitive = define(
    "amax",
    _amax,
    kind=REDUCE,
    vjp=_share_ties,
    expression="maximum(a, x)",
    families=True,
)
amin_: Primitive = define(
    "amin",
    _amin,
    kind=REDUCE,
    vjp=_share_ties,
    expression="minimum(a, x)",
    families=True,
)


def _share_with_nan(g: Any, x: Any, out: Any, dims: tuple[int, ...], keepdim: bool) -> Any:
    """The same, but if the extreme is NaN, to the elements that are NaN."""
    hit = c.logical_or(c.isnan(x), c.equal(x, spread(out, x.shape, dims, keepdim)))
    shares = c.where(hit, spread(g * 0 + 1, x.shape, dims, keepdim), 0.0)
    return spread(g, x.shape, dims, keepdim) * (shares / sum_(shares, dims=dims, keepdim=True))


max_: Primitive = define(
    "max", amax_.kernel, kind=REDUCE, vjp=_share_with_nan, expression="maximum(a, x)", families=True
)
min_: Primitive = define(
    "min", amin_.kernel, kind=REDUCE, vjp=_share_with_nan, expression="minimum(a, x)", families=True
)


def _extreme_samples() -> list[Sample]:
    return reduction_samples(distinct=True)


@op(samples=_extreme_samples)
def amax(input: Tensor, dim: Dims = (), keepdim: bool = False) -> Any:
    """The largest element of all, or along dimensions; ties share the gradient.

    >>> import tapegrad
    >>> tapegrad.amax(tapegrad.tensor([[1.0, 5.0], [3.0, 4.0]]), dim=1)
    tensor([5., 4.])
    """
    dims = normal_dims(dim, input._array.ndim)
    _not_empty(input, dims, "amax")
    return amax_.direct(input, {"dims": dims, "keepdim": bool(keepdim)})


@op(samples=_extreme_samples)
def amin(input: Tensor, dim: Dims = (), keepdim: bool = False) -> Any:
    """The smallest element of all, or along dimensions; ties share the gradient.

    >>> import tapegrad
    >>> tapegrad.amin(tapegrad.tensor([[1.0, 5.0], [3.0, 4.0]]), dim=1)
    tensor([1., 3.])
    """
    dims = normal_dims(dim, input._array.ndim)
    _not_empty(input, dims, "amin")
    return amin_.direct(input, {"dims": dims, "keepdim": bool(keepdim)})


def _arg(extreme: Any) -> Any:
    def kernel(x: Any, *, dim: int | None, keepdim: bool) -> Any:
        if numeric.is_boolean(x.dtype):
            x = x.astype(np.uint8)
        out = extreme(x, axis=dim, keepdims=keepdim)
        return (
            out
            if isinstance(out, np.ndarray) or not isinstance(out, np.generic)
            else np.asarray(out)
        )

    return kernel


def _arg_in_loops(extreme: str) -> Any:
    """Find the extreme value, then the first index that has it; NaN is extreme."""

    def lower(b: Any, out: Any, x: Any, *, dim: int | None, keepdim: bool) -> None:
        n = x.ndim
        dims = tuple(range(n)) if dim is None else (dim,)
        one = tuple(1 if d in dims else size for d, size in enumerate(x.shape))
        best = b.new(one, np.uint8 if x.dtype == np.bool_ else b.widest(x.dtype))
        body = b.over(x.shape)
        value = body.compute("cast(x)", best.dtype, x=body.read(x))
        body.fold(best, value, f"{extreme}(a, x)", dims)
        body = b.over(x.shape)
        value = body.compute("cast(x)", best.dtype, x=body.read(x))
        flat = [math.prod(x.shape[d + 1 :]) if dim is None else int(d == dim) for d in range(n)]
        place = body.compute(
            f"where(x == best or x != x, place, {x.size})",
            np.int64,
            x=value,
            best=body.read(best),
            place=body.position(tuple(flat)),
        )
        body.fold(out.reshape(one), place, "minimum(a, x)", dims)

    return lower


def _arg_batch(p: Primitive, inputs: Any, batched: Any, params: dict[str, Any]) -> Any:
    """The batch rule: reduce along a dimension, or over a whole example."""
    (x,), dim, keepdim = inputs, params["dim"], params["keepdim"]
    if dim is not None:
        return p(x, dim=dim + 1, keepdim=keepdim)
    size, rank = x.shape[0], len(x.shape) - 1
    found = p(reshape_(x, shape=(size, math.prod(x.shape[1:]))), dim=1, keepdim=False)
    return reshape_(found, shape=(size, *[1] * rank)) if keepdim else found


argmax_: Primitive = define(
    "argmax",
    _arg(np.argmax),
    kind=OPAQUE,
    inputs=("x",),
    lower=_arg_in_loops("maximum"),
    batch=_arg_batch,
)
argmin_: Primitive = define(
    "argmin",
    _arg(np.argmin),
    kind=OPAQUE,
    inputs=("x",),
    lower=_arg_in_loops("minimum"),
    batch=_arg_batch,
)


def _arg_op(primitive: Any, what: str, input: Any, dim: Any, keepdim: bool) -> Any:
    if input._array.dtype is BOOL:
        check_numbers(input, what)
    if dim is None:
        _not_empty(input, tuple(range(input._array.ndim)), what)
        return primitive(input, dim=None, keepdim=bool(keepdim))
    n = input._array.ndim
    d = normal_dim(dim, n)
    if n == 0:
        return primitive(input, dim=None, keepdim=False)
    _not_empty(input, (d,), what)
    return primitive(input, dim=d, keepdim=bool(keepdim))


def _arg_samples() -> list[Sample]:
    return [
        Sample(In(3, 4, distinct=True)),
        Sample(In(3, 4, distinct=True), 0),
        Sample(In(3, 4, distinct=True), -1, True),
        Sample(In()),
    ]


@op(samples=_arg_samples, differentiable=False)
def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The index of the largest element; without `dim`, in the flattened tensor.

    >>> import tapegrad
    >>> tapegrad.argmax(tapegrad.tensor([[1.0, 5.0], [3.0, 2.0]]), dim=1)
    tensor([1, 0])
    """
    return _arg_op(argmax_, "argmax", input, dim, keepdim)


@op(samples=_arg_samples, differentiable=False)
def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The index of the smallest element; without `dim`, in the flattened tensor.

    >>> import tapegrad
    >>> tapegrad.argmin(tapegrad.tensor([[1.0, 5.0], [3.0, 2.0]]), dim=1)
    tensor([0, 1])
    """
    return _arg_op(argmin_, "argmin", input, dim, keepdim)


class Extreme(NamedTuple):
    """Extreme elements and their indices."""

    values: Tensor
    indices: Tensor


def along(input: Any, indices: Any, dim: int) -> Any:
    """The elements at `indices` along a dimension."""
    return gather_(input, indices, dim=dim)


def _along_gradient(
    g: Any, x_shape: Any, indices: Any, dim: int, keepdim: bool, needs: Any
) -> tuple[Any]:
    """Send the gradient to the selected element."""
    kept = (*x_shape[:dim], 1, *x_shape[dim + 1 :])
    values, index = reshape_(g[0], shape=kept), reshape_(indices, shape=kept)
    return (scatter_add_(zeros_as(values, shape=tuple(x_shape)), index, values, dim=dim),)


def _with_places(name: str, arg: Primitive, ufunc: Any, method: Any) -> Primitive:
    """A composite for the extreme elements along a dimension and their indices."""

    def kernel(x: Any, *, dim: int, keepdim: bool) -> Any:
        if xp.is_plain(x):
            return xp.reduced(ufunc, x, (dim,), keepdim), method(x, dim, keepdims=keepdim)
        indices = arg(x, dim=dim, keepdim=True)
        values = along(x, indices, dim)
        if keepdim:
            return values, indices
        shape = (*x.shape[:dim], *x.shape[dim + 1 :])
        return reshape_(values, shape=shape), reshape_(indices, shape=shape)

    return define(
        name,
        kernel,
        kind=OPAQUE,
        composite=True,
        native_size=ARRAY_SIZE,
        outputs=("out", "indices"),
        joint=_along_gradient,
        batch=adapted(dim=shifted),
    )


max_along_ = _with_places("max_along", argmax_, np.maximum, np.ndarray.argmax)
min_along_ = _with_places("min_along", argmin_, np.minimum, np.ndarray.argmin)


def _extreme(primitive: Primitive, input: Any, dim: Any, keepdim: bool, what: str) -> Any:
    n = input._array.ndim
    d = normal_dim(dim, n)
    if n == 0:
        return Extreme(input.clone(), wrap(xp.module(input._array).zeros((), np.int64)))
    _not_empty(input, (d,), what)
    return Extreme(*primitive.direct(input, {"dim": d, "keepdim": bool(keepdim)}))


@overload
def max(input: Tensor, dim: None = None, keepdim: bool = False) -> Tensor: ...
@overload
def max(input: Tensor, dim: int, keepdim: bool = False) -> Extreme: ...
@overload
def max(input: Tensor, dim: Tensor | Sequence[int], keepdim: bool = False) -> Tensor: ...
@op(
    samples=lambda: [
        Sample(In(3, 4, distinct=True)),
        Sample(In(3, 4, distinct=True), 1),
        Sample(In(3, 4, distinct=True), 0, True),
        Sample(In(3, 4, distinct=True), In(4, distinct=True)),
        Sample(In()),
    ]
)
def max(input: Tensor, dim: Dims | Tensor | None = None, keepdim: bool = False) -> Any:
    """The largest element; with `dim`, values and indices; with a tensor, the larger one.

    >>> import tapegrad
    >>> values, indices = tapegrad.max(tapegrad.tensor([[1.0, 5.0], [3.0, 4.0]]), dim=1)
    >>> values, indices
    (tensor([5., 4.]), tensor([1, 1]))
    """
    if isinstance(dim, Tensor):
        return extremes.maximum(input, dim)
    if dim is None:
        dims = tuple(range(input._array.ndim))
        _not_empty(input, dims, "max", RuntimeError)
        return max_.direct(input, {"dims": dims, "keepdim": False})
    if isinstance(dim, (tuple, list)):
        return amax(input, dim, keepdim)
    return _extreme(max_along_, input, dim, keepdim, "max")


@overload
def min(input: Tensor, dim: None = None, keepdim: bool = False) -> Tensor: ...
@overload
def min(input: Tensor, dim: int, keepdim: bool = False) -> Extreme: ...
@overload
def min(input: Tensor, dim: Tensor | Sequence[int], keepdim: bool = False) -> Tensor: ...
@op(
    samples=lambda: [
        Sample(In(3, 4, distinct=True)),
        Sample(In(3, 4, distinct=True), 1),
        Sample(In(3, 4, distinct=True), 0, True),
        Sample(In(3, 4, distinct=True), In(4, distinct=True)),
    ]
)
def min(input: Tensor, dim: Dims | Tensor | None = None, keepdim: bool = False) -> Any:
    """The smallest element; with `dim`, values and indices; with a tensor, the smaller one.

    >>> import tapegrad
    >>> values, indices = tapegrad.min(tapegrad.tensor([[1.0, 5.0], [3.0, 4.0]]), dim=1)
    >>> values, indices
    (tensor([1., 3.]), tensor([0, 0]))
    """
    if isinstance(dim, Tensor):
        return extremes.minimum(input, dim)
    if dim is None:
        dims = tuple(range(input._array.ndim))
        _not_empty(input, dims, "min", RuntimeError)
        return min_.direct(input, {"dims": dims, "keepdim": False})
    if isinstance(dim, (tuple, list)):
        return amin(input, dim, keepdim)
    return _extreme(min_along_, input, dim, keepdim, "min")
