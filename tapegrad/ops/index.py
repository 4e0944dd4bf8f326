"""Indexing: reading and writing chosen elements.

`x[...]` first takes the basic part (integers, slices, None, Ellipsis) as a view, then the part with
index tensors, as PyTorch does. Index values are checked here, since CuPy does not check them.
"""

from __future__ import annotations

import operator
from collections import namedtuple
from typing import Any

import numpy as np

from .. import inplace, xp
from ..primitive import OPAQUE, define
from ..state import STATE
from ..tensor import Tensor, wrap
from . import elementwise as e
from .movement import expand_, normal_dim, reshape_, slice_
from .table import In, Sample, op

# -- by index tensors --------------------------------------------------------------------------


def _key(indices: Any, dims: tuple[int, ...], ndim: int) -> tuple[Any, ...]:
    """The NumPy index that puts `indices` at `dims` and whole slices elsewhere."""
    key: list[Any] = [slice(None)] * (max(dims) + 1)
    for index, d in zip(indices, dims, strict=True):
        key[d] = index
    return tuple(key)


def _take(x: Any, *indices: Any, dims: tuple[int, ...]) -> Any:
    for index, d in zip(indices, dims, strict=True):
        xp.check_index(index, x.shape[d], "index")
    return x[_key(indices, dims, x.ndim)]


def _put_add(x: Any, *indices: Any, dims: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    """Zeros of `shape` with the elements of `x` added at the indices."""
    out = xp.module(x).zeros(shape, x.dtype)
    if len(dims) == 1 and dims[0] == 0 and len(shape) == 2 and isinstance(x, np.ndarray):
        rows = indices[0].reshape(-1)
        _add_rows(out, rows, x.reshape(rows.size, shape[1]))
    else:
        xp.add_at(out, _key(indices, dims, len(shape)), x)
    return out


def _add_rows(out: Any, rows: Any, values: Any) -> None:
    """out[rows] += values by sorted runs: 20 times faster than np.add.at for embeddings."""
    if rows.size == 0:
        return
    rows = np.where(rows < 0, rows + len(out), rows)
    order = np.argsort(rows, kind="stable")
    sorted_rows = rows[order]
    starts = np.flatnonzero(np.r_[True, sorted_rows[1:] != sorted_rows[:-1]])
    out[sorted_rows[starts]] = np.add.reduceat(values[order], starts, axis=0)


take_ = define(
    "index",
    _take,
    kind=OPAQUE,
    joint=lambda g, x_shape, indices, dims, needs: (
        put_add_(g, *indices, dims=dims, shape=tuple(x_shape)),
        *[None] * len(indices),
    ),
)
put_add_ = define(
    "index_put_add",
    _put_add,
    kind=OPAQUE,
    joint=lambda g, indices, dims, needs: (take_(g, *indices, dims=dims), *[None] * len(indices)),
)


def _put(x: Any, value: Any, *indices: Any, dims: tuple[int, ...], accumulate: bool) -> Any:
    for index, d in zip(indices, dims, strict=True):
        xp.check_index(index, x.shape[d], "index_put")
    out = x.copy()
    key = _key(indices, dims, x.ndim)
    if accumulate:
        xp.add_at(out, key, value)
    else:
        out[key] = value
    return out


def _put_joint(
    g: Any, value_shape: Any, indices: Any, dims: Any, accumulate: bool, needs: Any
) -> tuple[Any, ...]:
    gx = g if accumulate or not needs[0] else put_(g, 0.0, *indices, dims=dims, accumulate=False)
    gv = _sum_to(take_(g, *indices, dims=dims), value_shape) if needs[1] else None
    return (gx, gv, *[None] * len(indices))


def _sum_to(g: Any, shape: Any) -> Any:
    from ..backward import unbroadcast

    return g if tuple(g.shape) == tuple(shape) else unbroadcast(g, shape)


put_ = define("index_put", _put, kind=OPAQUE, joint=_put_joint)


# -- x[...] ------------------------------------------------------------------------------------

_WHOLE = slice(None)


def _parse(x: Tensor, key: Any) -> tuple[Any, Any, list[tuple[int, Tensor]]]:
    """Split a key into a static index, the shape after new axes, and (dim, index tensor) pairs."""
    items = list(key) if isinstance(key, tuple) else [key]
    items = [_item(i) for i in items]
    used = 0
    for i in items:
        if isinstance(i, Tensor):
            used += i._array.ndim if i._array.dtype.kind == "b" else 1
        elif i is not None and i is not Ellipsis and not isinstance(i, bool):
            used += 1
    shape = x._array.shape
    if used > len(shape):
        raise IndexError(f"{used} indices for a tensor of {len(shape)} dimensions {tuple(shape)}")
    missing = [_WHOLE] * (len(shape) - used)
    at = [n for n, i in enumerate(items) if i is Ellipsis]
    if len(at) > 1:
        raise IndexError("an index may have only one Ellipsis (...)")
    items = items[: at[0]] + missing + items[at[0] + 1 :] if at else items + missing

    static: list[Any] = []
    after: list[int] = []
    pairs: list[tuple[int, Tensor]] = []
    dim = 0
    for i in items:
        if i is None:
            after.append(1)
        elif isinstance(i, bool):
            pairs.append((len(after), wrap(np.zeros(1 if i else 0, np.int64))))
            after.append(1)
        elif isinstance(i, int):
            if not -shape[dim] <= i < shape[dim]:
                raise IndexError(
                    f"index {i} is out of range for dimension {dim} of size {shape[dim]}"
                )
            static.append(i % shape[dim])
            dim += 1
        elif isinstance(i, slice):
            start, stop, step = _slice_of(i, shape[dim])
            static.append(
                None if (start, stop, step) == (0, shape[dim], 1) else (start, stop, step)
            )
            after.append(len(range(start, stop, step)))
            dim += 1
        else:
            for index in _as_indices(i, shape, dim):
                pairs.append((len(after), index))
                static.append(None)
                after.append(shape[dim])
                dim += 1
    return tuple(static), tuple(after), pairs


def _item(i: Any) -> Any:
    if isinstance(i, (list, range)):
        i = Tensor(np.asarray(i)) if not isinstance(i, list) or i else Tensor(np.zeros(0, np.int64))
    if isinstance(i, np.ndarray):
        i = wrap(i)
    if isinstance(i, Tensor):
        kind = i._array.dtype.kind
        if kind not in "iub":
            raise IndexError(f"tensors used as indices must be integers or bool, got {i.dtype}")
        if i._array.ndim == 0 and kind != "b" and not any(t.logs_backward for t in STATE.tapes):
            return int(i._array)  # an integer like any other, unless a program is captured
        return i
    if isinstance(i, (bool, np.bool_)):
        return bool(i)
    if i is None or i is Ellipsis or isinstance(i, slice):
        return i
    try:
        return operator.index(i)
    except TypeError:
        raise IndexError(
            "an index must be an integer, a slice, None, Ellipsis, or a tensor of integers or "
            f"bool, got {type(i).__name__}"
        ) from None


def _slice_of(i: slice, size: int) -> tuple[int, int, int]:
    step = 1 if i.step is None else operator.index(i.step)
    if step <= 0:
        raise ValueError("slice steps must be positive; use flip() to reverse")
    start, stop, step = slice(
        *(None if v is None else operator.index(v) for v in (i.start, i.stop)), step
    ).indices(size)
    return start, max(stop, start), step


def _as_indices(index: Tensor, shape: tuple[int, ...], dim: int) -> list[Tensor]:
    """Index tensors of integers; a mask becomes the positions where it holds."""
    if index._array.dtype.kind != "b":
        return [index]
    mask = index._array
    if mask.shape != shape[dim : dim + mask.ndim]:
        raise IndexError(
            f"a mask of shape {tuple(mask.shape)} does not match dimensions {dim} to "
            f"{dim + mask.ndim - 1} of a tensor of shape {tuple(shape)}"
        )
    for tape in STATE.tapes:
        tape.refuse_read(index, "indexing with a mask (use where or masked_fill)")
    return [wrap(i) for i in mask.nonzero()]


def _basic(x: Tensor, static: tuple[Any, ...], after: tuple[int, ...]) -> Tensor:
    if any(i is not None for i in static):
        x = slice_(x, index=static)
    return x if x._array.shape == after else reshape_(x, shape=after)


def getitem(self: Tensor, key: Any) -> Tensor:
    """`x[key]`: basic indices give a view, index tensors a copy."""
    static, after, pairs = _parse(self, key)
    out = _basic(self, static, after)
    if pairs:
        _check_pairs(pairs, out._array.shape)
        indices = _broadcast(pairs)
        return take_(out, *indices, dims=tuple(d for d, _ in pairs))
    return out if out is not self else reshape_(self, shape=self._array.shape)


def _broadcast(pairs: list[tuple[int, Tensor]]) -> list[Tensor]:
    return [index for _, index in pairs]


def _check_pairs(pairs: list[tuple[int, Tensor]], shape: tuple[int, ...]) -> None:
    try:
        np.broadcast_shapes(*[index._array.shape for _, index in pairs])
    except ValueError:
        shown = ", ".join(str(tuple(index.shape)) for _, index in pairs)
        raise IndexError(f"index tensors of shapes {shown} do not broadcast together") from None
    for d, index in pairs:
        xp.check_index(index._array, shape[d], f"index at dimension {d}")


def setitem(self: Tensor, key: Any, value: Any) -> None:
    """`x[key] = value`, recorded like any other operation."""
    inplace.check_writable(self, "x[...] = ...")
    if not isinstance(value, Tensor):
        value = wrap(xp.module(self._array).asarray(value, dtype=self._array.dtype))
    static, after, pairs = _parse(self, key)
    view = _basic(self, static, after)
    if view is self:
        view = reshape_(self, shape=self._array.shape)
    if pairs:
        _check_pairs(pairs, view._array.shape)
        value = value.to(self.dtype) if value._array.dtype != self._array.dtype else value
        dims = tuple(d for d, _ in pairs)
        indices = _broadcast(pairs)
        shape = _result_shape(view._array.shape, dims, indices)
        _check_fits(value, shape)
        while value._array.ndim > len(shape):
            value = value.squeeze(0)
        value = put_(view, value, *indices, dims=dims, accumulate=False)
    else:
        while value._array.ndim > view._array.ndim and value._array.shape[0] == 1:
            value = value.squeeze(0)
    inplace.assign(view, value, "x[...] = ...")


def _result_shape(
    shape: tuple[int, ...], dims: tuple[int, ...], indices: list[Tensor]
) -> tuple[int, ...]:
    """The shape of x[...] with index tensors, worked out on an array without memory."""
    ghost = np.broadcast_to(np.empty((), bool), shape)
    ghosts = [np.zeros(i._array.shape, np.int64) if min(shape) else i._array for i in indices]
    return ghost[_key(ghosts, dims, len(shape))].shape


def _check_fits(value: Tensor, shape: tuple[int, ...]) -> None:
    given = value._array.shape
    while len(given) > len(shape) and given[0] == 1:
        given = given[1:]
    extra = len(shape) - len(given)
    if extra < 0 or any(n not in (1, shape[i + extra]) for i, n in enumerate(given)):
        raise RuntimeError(
            f"a value of shape {tuple(value.shape)} does not fit an index result of shape "
            f"{tuple(shape)}"
        )


Tensor.__getitem__ = getitem  # type: ignore[method-assign,assign,unused-ignore]
Tensor.__setitem__ = setitem  # type: ignore[method-assign,assign,unused-ignore]

# -- gather and scatter ------------------------------------------------------------------------


def _window(x: Any, index: Any, dim: int) -> Any:
    """The part of `x` that an index of that shape can reach."""
    return x[tuple(slice(None) if d == dim else slice(n) for d, n in enumerate(index.shape))]


def _gather(x: Any, index: Any, *, dim: int) -> Any:
    xp.check_index(index, x.shape[dim], "gather", RuntimeError)
    return np.take_along_axis(_window(x, index, dim), index, dim)


def _grid(index: Any, dim: int) -> tuple[Any, ...]:
    """Index arrays that name each element of `index`, with `dim` replaced by its values."""
    module = xp.module(index)
    axes = [
        module.arange(n).reshape([-1 if k == d else 1 for k in range(index.ndim)])
        for d, n in enumerate(index.shape)
    ]
    axes[dim] = index
    return tuple(axes)


def _scatter(x: Any, index: Any, src: Any, *, dim: int) -> Any:
    xp.check_index(index, x.shape[dim], "scatter", RuntimeError)
    out = x.copy()
    source = _window(src, index, -1) if hasattr(src, "ndim") and src.ndim else src
    source = (
        source[tuple(slice(n) for n in index.shape)]
        if hasattr(source, "ndim") and source.ndim
        else source
    )
    out[_grid(index, dim)] = source
    return out


def _scatter_add(x: Any, index: Any, src: Any, *, dim: int) -> Any:
    xp.check_index(index, x.shape[dim], "scatter_add", RuntimeError)
    out = x.copy()
    xp.add_at(out, _grid(index, dim), src[tuple(slice(n) for n in index.shape)])
    return out


def _zeros(g: Any, shape: Any) -> Any:
    return zeros_as(g, shape=tuple(shape))


zeros_as = define(
    "zeros_as",
    lambda x, *, shape: xp.module(x).zeros(shape, x.dtype),
    kind=OPAQUE,
)

gather_ = define(
    "gather",
    _gather,
    kind=OPAQUE,
    vjp=(lambda g, x_shape, index, dim: scatter_add_(_zeros(g, x_shape), index, g, dim=dim), None),
)
scatter_add_ = define(
    "scatter_add",
    _scatter_add,
    kind=OPAQUE,
    vjp=(
        lambda g: g,
        None,
        lambda g, index, src_shape, dim: _fit(gather_(g, index, dim=dim), src_shape),
    ),
)
scatter_ = define(
    "scatter",
    _scatter,
    kind=OPAQUE,
    vjp=(
        lambda g, index, dim: scatter_(g, index, 0.0, dim=dim),
        None,
        lambda g, index, src_shape, dim: _fit(gather_(g, index, dim=dim), src_shape),
    ),
)


def _fit(g: Any, shape: Any) -> Any:
    """Zeros beside a gradient where the source was larger than the index."""
    from .movement import padded

    if tuple(g.shape) == tuple(shape):
        return g
    return padded(g, tuple((0, n - m) for n, m in zip(shape, g.shape, strict=True)))


def _check_index_tensor(index: Any, what: str) -> None:
    if not isinstance(index, Tensor) or index._array.dtype.kind not in "iu":
        found = index.dtype if isinstance(index, Tensor) else type(index).__name__
        raise RuntimeError(f"{what} needs an integer tensor as its index, got {found}")


def _at_least_1d(*tensors: Any) -> list[Any]:
    return [reshape_(t, shape=(1,)) if t._array.ndim == 0 else t for t in tensors]


def _check_gather(x: Any, index: Any, d: int, what: str) -> None:
    _check_index_tensor(index, what)
    xs, ns = x._array.shape, index._array.shape
    if len(xs) != len(ns):
        raise RuntimeError(
            f"{what} needs an index with as many dimensions as the tensor: {tuple(xs)} and "
            f"{tuple(ns)}"
        )
    if any(n > m for i, (n, m) in enumerate(zip(ns, xs, strict=True)) if i != d):
        raise RuntimeError(
            f"{what}: the index of shape {tuple(ns)} is larger than the tensor {tuple(xs)} in a "
            f"dimension other than {d}"
        )


_INDEX = In(values=[[0, 1, 2], [2, 0, 0]], kind="int")


@op(
    samples=lambda: [
        Sample((2, 3), 1, _INDEX),
        Sample((3, 4), 0, _INDEX),
        Sample((4, 3), 1, _INDEX),
        Sample((), 0, In(values=0, kind="int")),
    ]
)
def gather(input: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Any:
    """out[i][j] = input[index[i][j]][j] for dim 0, and so on."""
    d = normal_dim(dim, input._array.ndim)
    _check_gather(input, index, d, "gather")
    if index._array.ndim == 0:
        x, i = _at_least_1d(input, index)
        return reshape_(gather_(x, i, dim=0), shape=())
    return gather_(input, index, dim=d)


@op(
    samples=lambda: [
        Sample((3, 4), 0, _INDEX, (2, 3)),
        Sample((2, 5), 1, _INDEX, (3, 4)),
    ],
    inplace=True,
)
def scatter_add(input: Any, dim: int, index: Any, src: Any) -> Any:
    """`input` with `src` added at the places that `index` names."""
    d = normal_dim(dim, input._array.ndim)
    _check_gather(input, index, d, "scatter_add")
    _check_source(index, src, "scatter_add")
    _check_same_dtype(input, src, "scatter_add")
    return scatter_add_(input, index, src, dim=d)


def _check_source(index: Any, src: Any, what: str) -> None:
    ns, ss = index._array.shape, src._array.shape
    if len(ns) != len(ss) or any(n > m for n, m in zip(ns, ss, strict=True)):
        raise RuntimeError(
            f"{what}: the source of shape {tuple(ss)} is smaller than the index {tuple(ns)}"
        )


def _check_same_dtype(input: Any, src: Any, what: str) -> None:
    if src._array.dtype != input._array.dtype:
        raise RuntimeError(f"{what}: source is {src.dtype} but the tensor is {input.dtype}")


_UNIQUE = In(values=[[0, 1, 2], [2, 0, 1]], kind="int")


@op(
    samples=lambda: [
        Sample((2, 3), 1, _UNIQUE, (2, 3)),
        Sample((2, 5), 1, _UNIQUE, (3, 4)),
        Sample((2, 3), 1, _UNIQUE, 1.5),
    ],
    inplace=True,
)
def scatter(
    input: Any, dim: int, index: Any, src: Any = None, *, value: Any = None, reduce: Any = None
) -> Any:
    """`input` with `src` (a tensor or a number) put at the places that `index` names."""
    d = normal_dim(dim, input._array.ndim)
    _check_gather(input, index, d, "scatter")
    src = value if src is None else src
    if reduce == "add":
        src = src if isinstance(src, Tensor) else input.new_full(index.shape, src)
        return scatter_add(input, d, index, src)
    if reduce is not None:
        raise ValueError(f"scatter supports reduce=None or 'add', got {reduce!r}")
    if isinstance(src, Tensor):
        if src._array.ndim == 0:
            src = src.expand(index._array.shape)
        _check_source(index, src, "scatter")
        _check_same_dtype(input, src, "scatter")
    return scatter_(input, index, src, dim=d)


@op(
    samples=lambda: [
        Sample((3, 4), In(values=[[0], [3], [1]], kind="int"), 1),
        Sample((3, 4), In(values=[3, 0], kind="int")),
    ]
)
def take_along_dim(input: Any, indices: Any, dim: int | None = None) -> Any:
    """Elements named by indices along a dimension, with broadcasting; without dim, of all."""
    _check_index_tensor(indices, "take_along_dim")
    if dim is None:
        return gather_(input.reshape(-1), indices.reshape(-1), dim=0)
    d = normal_dim(dim, input._array.ndim)
    if indices._array.ndim != input._array.ndim:
        raise RuntimeError("take_along_dim needs an index with as many dimensions as the tensor")

    def spread(x: Any, size: int) -> Any:
        shape = list(
            np.broadcast_shapes(
                tuple(1 if i == d else n for i, n in enumerate(input._array.shape)),
                tuple(1 if i == d else n for i, n in enumerate(indices._array.shape)),
            )
        )
        shape[d] = size
        return x if x._array.shape == tuple(shape) else expand_(x, shape=tuple(shape))

    wide = spread(input, input._array.shape[d])
    return gather_(wide, spread(indices, indices._array.shape[d]), dim=d)


_ROWS = In(values=[2, 0, 2], kind="int")


@op(
    samples=lambda: [
        Sample((3, 4), 0, _ROWS),
        Sample((2, 3), 1, _ROWS),
        Sample((2, 3, 2), -2, _ROWS),
    ]
)
def index_select(input: Any, dim: int, index: Any) -> Any:
    """Chosen slices along a dimension."""
    _check_index_tensor(index, "index_select")
    if index._array.ndim > 1:
        raise IndexError(f"index_select needs an index of 1 dimension, got {tuple(index.shape)}")
    d = normal_dim(dim, input._array.ndim)
    (index,) = _at_least_1d(index)
    if input._array.ndim == 0:
        return reshape_(take_(_at_least_1d(input)[0], index, dims=(0,)), shape=())
    xp.check_index(index._array, input._array.shape[d], "index_select")
    return take_(input, index, dims=(d,))


@op(
    samples=lambda: [Sample((3, 4), 0, _ROWS, (3, 4)), Sample((2, 3), 1, _ROWS, (2, 3), alpha=0.5)],
    inplace=True,
)
def index_add(input: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    """`input` with slices of `source` added at chosen places of a dimension."""
    _check_index_tensor(index, "index_add")
    d = normal_dim(dim, input._array.ndim)
    source = source if alpha == 1 else source * e.number_for(source, alpha)
    _check_same_dtype(input, source, "index_add")
    _check_slices(input, d, index, source, "index_add")
    return input + put_add_(source, index, dims=(d,), shape=tuple(input._array.shape))


def _check_slices(input: Any, d: int, index: Any, source: Any, what: str) -> None:
    xp.check_index(index._array, input._array.shape[d], what)
    expected = list(input._array.shape)
    expected[d] = index._array.size
    if tuple(expected) != source._array.shape:
        raise RuntimeError(
            f"{what}: expected a source of shape {tuple(expected)}, got {tuple(source.shape)}"
        )


@op(
    samples=lambda: [Sample((3, 4), 0, In(values=[2, 0], kind="int"), (2, 4))],
    inplace=True,
)
def index_copy(input: Any, dim: int, index: Any, source: Any) -> Any:
    """`input` with slices replaced by those of `source`."""
    _check_index_tensor(index, "index_copy")
    d = normal_dim(dim, input._array.ndim)
    _check_same_dtype(input, source, "index_copy")
    _check_slices(input, d, index, source, "index_copy")
    return put_(input, source, index, dims=(d,), accumulate=False)


@op(samples=lambda: [Sample((3, 4), 0, In(values=[2, 0], kind="int"), 1.5)], inplace=True)
def index_fill(input: Any, dim: int, index: Any, value: Any) -> Any:
    """`input` with slices filled with a number."""
    _check_index_tensor(index, "index_fill")
    d = normal_dim(dim, input._array.ndim)
    value = value if isinstance(value, Tensor) else float(value)
    return put_(input, value, index, dims=(d,), accumulate=False)


@op(
    samples=lambda: [
        Sample((3, 4), [In(values=[0, 2], kind="int"), In(values=[1, 1], kind="int")], (2,)),
        Sample((3, 4), [In(values=[0, 0], kind="int")], (2, 4), True),
    ],
    inplace=True,
)
def index_put(input: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    """`input` with values put (or added) at the elements that the index tensors name."""
    expanded: list[Tensor] = []
    for index in indices:
        expanded.extend(_as_indices(index, input._array.shape, len(expanded)))
    dims = tuple(range(len(expanded)))
    for d, index in zip(dims, expanded, strict=True):
        xp.check_index(index._array, input._array.shape[d], "index_put")
    return put_(input, values, *expanded, dims=dims, accumulate=bool(accumulate))


# -- masks -------------------------------------------------------------------------------------


def _check_mask(mask: Any, what: str) -> None:
    if not isinstance(mask, Tensor) or mask._array.dtype.kind != "b":
        found = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise RuntimeError(f"{what} needs a bool tensor as its mask, got {found}")


@op(
    samples=lambda: [
        Sample((3, 4), In(3, 4, kind="bool"), 1.5),
        Sample((3, 4), In(4, kind="bool"), -1.0),
        Sample((3, 4), In(3, 1, kind="bool"), ()),
    ],
    inplace=True,
)
def masked_fill(input: Any, mask: Any, value: Any) -> Any:
    """`value` where the mask holds."""
    _check_mask(mask, "masked_fill")
    if isinstance(value, Tensor) and value._array.ndim:
        raise RuntimeError("masked_fill needs a number or a 0-d tensor as its value")
    number = value.to(input.dtype) if isinstance(value, Tensor) else e._of_dtype(value, input.dtype)
    return e.where(mask, number, input)


@op(samples=lambda: [Sample((3, 4), In(3, 4, kind="bool")), Sample((3, 4), In(4, kind="bool"))])
def masked_select(input: Any, mask: Any) -> Any:
    """The elements where the mask holds, in one dimension."""
    _check_mask(mask, "masked_select")
    shape = np.broadcast_shapes(input._array.shape, mask._array.shape)
    return getitem(input.expand(shape), mask.expand(shape))


@op(samples=lambda: [Sample(In(3, 4, kind="int", low=0, high=2))], differentiable=False)
def nonzero(input: Any, *, as_tuple: bool = False) -> Any:
    """The indices of elements that are not zero, one row each (or one tensor per dimension)."""
    for tape in STATE.tapes:
        tape.refuse_read(input, "nonzero() (use where)")
    found = input._array.nonzero() if input._array.ndim else np.atleast_1d(input._array).nonzero()
    if as_tuple:
        return tuple(wrap(i) for i in found)
    module = xp.module(input._array)
    if not input._array.ndim:
        return wrap(module.zeros((len(found[0]), 0), np.int64))
    return wrap(module.stack(found, axis=1))


Tensor.argwhere = lambda self: nonzero(self)  # type: ignore[attr-defined,unused-ignore]

# -- order -------------------------------------------------------------------------------------


def _argsort(x: Any, *, dim: int, descending: bool) -> Any:
    if descending:
        order = np.argsort(np.flip(x, dim), axis=dim, kind="stable")
        return np.flip(x.shape[dim] - 1 - order, dim).copy()
    return np.argsort(x, axis=dim, kind="stable")


argsort_ = define("argsort", _argsort, kind=OPAQUE)

Sorted = namedtuple("Sorted", ["values", "indices"])


def _order_samples() -> list[Sample]:
    return [
        Sample(In(3, 4, distinct=True)),
        Sample(In(3, 4, distinct=True), 0),
        Sample(In(3, 4, distinct=True), -1, True),
        Sample(In(), -1),
    ]


@op(samples=_order_samples)
def sort(input: Any, dim: int = -1, descending: bool = False, *, stable: bool = True) -> Any:
    """Values in order along a dimension, and where each came from."""
    indices = argsort(input, dim, descending)
    if input._array.ndim == 0:
        return Sorted(input.clone(), indices)
    d = normal_dim(dim, input._array.ndim)
    return Sorted(gather_(input, indices, dim=d), indices)


@op(samples=_order_samples, differentiable=False)
def argsort(input: Any, dim: int = -1, descending: bool = False, *, stable: bool = True) -> Any:
    """The indices that put a dimension in order."""
    d = normal_dim(dim, input._array.ndim)
    if input._array.ndim == 0:
        return wrap(xp.module(input._array).zeros((), np.int64))
    return argsort_(input, dim=d, descending=bool(descending))


@op(
    samples=lambda: [
        Sample(In(3, 5, distinct=True), 2),
        Sample(In(5, 3, distinct=True), 2, 0),
        Sample(In(3, 5, distinct=True), 2, -1, False),
    ]
)
def topk(input: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """The k largest (or smallest) values along a dimension, in order, and where they are."""
    n = input._array.ndim
    d = normal_dim(dim, n)
    size = input._array.shape[d] if n else 1
    if not 0 <= k <= size:
        raise RuntimeError(f"topk: k = {k} is out of range for a dimension of size {size}")
    values, indices = sort(input, d, largest)
    return Sorted(values.narrow(d, 0, k), indices.narrow(d, 0, k)) if n else Sorted(values, indices)
