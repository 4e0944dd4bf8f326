"""Indexing: reading and writing selected elements.

`x[...]` first applies the basic part of the key (integers, slices, None, Ellipsis) as a view, then
the index tensors, as in PyTorch. Index values are checked here, since CuPy does not check them.
"""

from __future__ import annotations

import operator
import warnings
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from ...core import inplace, numeric, storage, xp
from ...core.complexes import OWN
from ...core.conversion import as_array
from ...core.device import to_device
from ...core.modes import capturing, numbers
from ...core.primitive import ARRAY_SIZE, NO_PARAMS, OPAQUE, Primitive, define
from ...core.tensor import Tensor, not_recorded, own, wrap
from ...core.wrapped import is_wrapped
from ..elementwise import comparison as c
from ..shape.expanding import sum_to
from ..shape.reshaping import reshape_
from ..shape.slicing import slice_
from ..table import In, Sample, attach, op
from .batches import pick_batch, put_add_batch, put_batch, take_batch

if TYPE_CHECKING:
    from ..annotations import Operand

# -- by index tensors --------------------------------------------------------------------------


def _key(indices: Any, dims: tuple[int, ...], ndim: int) -> tuple[Any, ...]:
    """The NumPy index that puts `indices` at `dims` and whole slices elsewhere."""
    key: list[Any] = [slice(None)] * (max(dims) + 1)
    for index, d in zip(indices, dims, strict=True):
        key[d] = index
    return tuple(key)


def _take(x: Any, *indices: Any, dims: tuple[int, ...]) -> Any:
    if len(dims) == 1 and x.__class__ is np.ndarray and x.flags.c_contiguous:
        try:
            return x.take(indices[0], dims[0])  # takes a quarter of the time of x[...]
        except IndexError:
            pass  # raised below
    for index, d in zip(indices, dims, strict=True):
        xp.check_index(index, x.shape[d], "index")
    return xp.contiguous(x[_key(indices, dims, x.ndim)])


def _put_add(x: Any, *indices: Any, dims: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    """Zeros of `shape` with the elements of `x` added at the indices."""
    out = xp.module(x).zeros(shape, x.dtype)
    if len(dims) == 1 and dims[0] == 0 and len(shape) == 2 and isinstance(x, np.ndarray):
        rows = indices[0].reshape(-1)
        _add_rows(out, rows, x.reshape(rows.size, shape[1]))
    else:
        xp.add_at(out, _key(indices, dims, len(shape)), x)
    return out


#: from this number of elements on, rows are sorted before they are added: that takes half as long
#: as np.add.at for 2,048 rows of 64 elements, but six times as long for a few rows
MIN_ELEMENTS_TO_SORT_ROWS = 4096


def _add_rows(out: Any, rows: Any, values: Any) -> None:
    """out[rows] += values, where repeated rows add up; many rows are sorted and added in runs."""
    if values.size < MIN_ELEMENTS_TO_SORT_ROWS:
        np.add.at(out, rows, values)
        return
    rows = np.where(rows < 0, rows + len(out), rows)
    order = np.argsort(rows, kind="stable")
    sorted_rows = rows[order]
    starts = np.flatnonzero(np.r_[True, sorted_rows[1:] != sorted_rows[:-1]])
    out[sorted_rows[starts]] = np.add.reduceat(values[order], starts, axis=0)


def _put_add_in_loops(
    b: Any, out: Any, x: Any, *indices: Any, dims: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    b.fill(out, 0)
    b.add(b.index(out, indices, dims), x)


take_: Primitive = define(
    "index",
    _take,
    kind=OPAQUE,
    lower=lambda b, out, x, *indices, dims: b.copy(out, b.index(x, indices, dims)),
    joint=lambda g, x_shape, indices, dims, needs: (
        put_add_(g, *indices, dims=dims, shape=tuple(x_shape)),
        *[None] * len(indices),
    ),
    batch=take_batch,
    linear=True,
    complex=OWN,
    stores=True,
)
put_add_: Primitive = define(
    "index_put_add",
    _put_add,
    kind=OPAQUE,
    lower=_put_add_in_loops,
    joint=lambda g, indices, dims, needs: (take_(g, *indices, dims=dims), *[None] * len(indices)),
    batch=put_add_batch,
    linear=True,
    complex=OWN,
    stores=True,
)


def _put(x: Any, value: Any, *indices: Any, dims: tuple[int, ...], accumulate: bool) -> Any:
    for index, d in zip(indices, dims, strict=True):
        xp.check_index(index, x.shape[d], "index_put")
    out = x.copy()
    # Of equal indices the last one in C order wins, if they are contiguous.
    key = _key([xp.contiguous(index) for index in indices], dims, x.ndim)
    if accumulate:
        xp.add_at(out, key, value)
    else:
        out[key] = xp.contiguous(value) if hasattr(value, "flags") else value
    return out


def _put_joint(
    g: Any, value_shape: Any, indices: Any, dims: Any, accumulate: bool, needs: Any
) -> tuple[Any, ...]:
    gx = g if accumulate or not needs[0] else put_(g, 0.0, *indices, dims=dims, accumulate=False)
    gv = _sum_to(take_(g, *indices, dims=dims), value_shape) if needs[1] else None
    return (gx, gv, *[None] * len(indices))


def _sum_to(g: Any, shape: Any) -> Any:
    return g if tuple(g.shape) == tuple(shape) else sum_to(g, shape)


def _put_in_loops(
    b: Any, out: Any, x: Any, value: Any, *indices: Any, dims: tuple[int, ...], accumulate: bool
) -> None:
    places = [b.valid(index, x.shape[d]) for index, d in zip(indices, dims, strict=True)]
    b.copy(out, x)
    (b.add if accumulate else b.copy)(b.index(out, places, dims), value)


put_: Primitive = define(
    "index_put",
    _put,
    kind=OPAQUE,
    joint=_put_joint,
    lower=_put_in_loops,
    batch=put_batch,
    linear=True,
    complex=OWN,
    stores=True,
)


# -- by a mask ---------------------------------------------------------------------------------


def _unpick(x: Any, mask: Any, *, shape: tuple[int, ...]) -> Any:
    """Zeros of `shape` with the elements of `x` where the mask is True."""
    out = xp.module(x).zeros(shape, x.dtype)
    out[mask] = x
    return out


def _unknown_shape(*inputs: Any) -> Any:
    raise TypeError("how many elements a mask picks depends on data")


#: the elements where a mask of the first dimensions is True. Programs never contain `pick_` and
#: `unpick_`, because the number of elements depends on data.
pick_: Primitive = define(
    "pick",
    lambda x, mask: xp.contiguous(x[mask]),
    kind=OPAQUE,
    abstract=_unknown_shape,
    vjp=(lambda g, x_shape, mask: unpick_(g, mask, shape=tuple(x_shape)), None),
    batch=pick_batch,
    linear=True,
    complex=OWN,
    stores=True,
)
unpick_: Primitive = define(
    "unpick",
    _unpick,
    kind=OPAQUE,
    vjp=(lambda g, mask: pick_(g, mask), None),
    batch=pick_batch,
    linear=True,
    complex=OWN,
    stores=True,
)


# -- x[...] ------------------------------------------------------------------------------------

_WHOLE = slice(None)
_INT64, _BOOL = np.dtype(np.int64), np.dtype(np.bool_)


def _parse(x: Tensor, key: Any) -> tuple[Any, Any, list[tuple[int, Tensor]]]:
    """Split a key into a static index, the shape after new axes, and (dim, index tensor) pairs."""
    items = list(key) if isinstance(key, tuple) or _stands_for_tuple(key) else [key]
    if x._array.__class__ is not np.ndarray:
        items = [_beside(x, i) for i in items]
    items = [_item(i) for i in items]
    used = 0
    for i in items:
        if isinstance(i, Tensor):
            used += i._array.ndim if numeric.is_boolean(i._array.dtype) else 1
        elif i is not None and i is not Ellipsis and not isinstance(i, bool):
            used += 1
    shape = x._array.shape
    if used > len(shape):
        raise IndexError(f"{used} indices for a tensor of {len(shape)} dimensions {tuple(shape)}")
    missing = [_WHOLE] * (len(shape) - used)
    at = [n for n, i in enumerate(items) if i is Ellipsis]
    if at:  # the first one covers all missing dimensions, others cover none
        later = [i for i in items[at[0] + 1 :] if i is not Ellipsis]
        items = items[: at[0]] + missing + later
    else:
        items = items + missing

    static: list[Any] = []
    after: list[int] = []
    pairs: list[tuple[int, Tensor]] = []
    dim = 0
    for i in items:
        if i is None:
            after.append(1)
        elif isinstance(i, bool):
            first = xp.module(x._array).zeros(1 if i else 0, np.int64)
            pairs.append((len(after), wrap(first)))
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
            for index in as_indices(i, shape, dim):
                pairs.append((len(after), index))
                static.append(None)
                after.append(shape[dim])
                dim += 1
    return tuple(static), tuple(after), pairs


def _stands_for_tuple(key: Any) -> bool:
    """Whether a list is read as a tuple, as in PyTorch: `x[[slice(2), 0]]`."""
    if not isinstance(key, list) or len(key) >= 32:
        return False
    parts = (slice, Tensor, list, tuple, range, np.ndarray)
    return any(i is None or i is Ellipsis or isinstance(i, parts) for i in key)


def _beside(x: Tensor, i: Any) -> Any:
    """A part of a key, with arrays on the device of the indexed tensor."""
    if isinstance(i, (list, range, tuple)):
        return wrap(to_device(as_array(i) if len(i) else np.zeros(0, np.int64), x.device))
    if isinstance(i, np.ndarray):
        return wrap(to_device(i, x.device))
    if isinstance(i, Tensor) and i._array.ndim and i.device != x.device:
        return i.to(x.device)
    return i


def _item(i: Any) -> Any:
    if isinstance(i, (list, range, tuple)):
        i = wrap(as_array(i) if len(i) else np.zeros(0, np.int64))
    if isinstance(i, np.ndarray):
        i = wrap(i)
    if isinstance(i, Tensor):
        if i._array.dtype == np.uint8:
            i = as_mask(i)
        is_mask = numeric.is_boolean(i._array.dtype)
        if is_mask and i._array.ndim == 0:
            return bool(i)
        if not numeric.is_exact(i._array.dtype):
            raise IndexError(f"an index must be a tensor of integers or of bool, got {i.dtype}")
        if i._array.ndim == 0 and not is_mask and not capturing() and not is_wrapped(i):
            return int(i._array)  # a plain integer, except during capture
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
    ends = [None if v is None else operator.index(v) for v in (i.start, i.stop)]
    start, stop, step = slice(ends[0], ends[1], step).indices(size)
    return start, max(stop, start), step


def check_mask_shape(mask: tuple[int, ...], shape: tuple[int, ...], dim: int) -> None:
    """Raise unless the shape of a mask equals the dimensions of a tensor from `dim` on."""
    if mask != shape[dim : dim + len(mask)]:
        raise IndexError(
            f"a mask of shape {tuple(mask)} does not match dimensions {dim} to "
            f"{dim + len(mask) - 1} of a tensor of shape {tuple(shape)}"
        )


def as_mask(index: Tensor) -> Tensor:
    """A uint8 mask, as in older code, as a bool mask; warns."""
    warnings.warn(
        "a mask of uint8 still selects elements, as in PyTorch; convert it with .bool()",
        UserWarning,
        stacklevel=4,
    )
    mask: Tensor = index.bool()
    return mask


def as_indices(index: Tensor, shape: tuple[int, ...], dim: int) -> list[Tensor]:
    """Integer index tensors; a mask becomes the positions where it is True, one per dimension."""
    if index._array.dtype == np.uint8:
        index = as_mask(index)
    if not numeric.is_boolean(index._array.dtype):
        return [index]
    mask = index._array
    check_mask_shape(mask.shape, shape, dim)
    not_recorded(index, "indexing with a mask (use where or masked_fill)")
    return [wrap(i) for i in mask.nonzero()]


def _basic(x: Tensor, static: tuple[Any, ...], after: tuple[int, ...]) -> Tensor:
    if any(i is not None for i in static):
        x = slice_(x, index=static)
    return x if x._array.shape == after else reshape_(x, shape=after)


def _short(key: tuple[Any, ...], shape: tuple[int, ...]) -> tuple[Any, ...] | None:
    """The static index of a key of integers and slices without steps; None for all other keys."""
    if len(key) > len(shape):
        return None
    static: list[Any] = [None] * len(shape)
    for d, i in enumerate(key):
        size = shape[d]
        if i.__class__ is int:
            if not -size <= i < size:
                return None
            static[d] = i if i >= 0 else i + size
        elif i.__class__ is slice and i.step is None:
            start, stop = i.start, i.stop
            if not (start is None or start.__class__ is int):
                return None
            if not (stop is None or stop.__class__ is int):
                return None
            start, stop, _ = i.indices(size)
            if start or stop != size:
                static[d] = (start, max(start, stop), 1)
        else:
            return None
    return tuple(static) if static.count(None) < len(shape) else None


def getitem(self: Tensor, key: Any) -> Any:
    """`x[key]`: basic indices give a view, index tensors a copy."""
    if key.__class__ is int:
        shape = self._array.shape
        if shape and -shape[0] <= key < shape[0]:
            first = key if key >= 0 else key + shape[0]
            return slice_.direct(self, {"index": (first,) + (None,) * (len(shape) - 1)})
    elif key.__class__ is Tensor and key._array.dtype is _INT64:
        shape = self._array.shape
        if shape and key._array.ndim:  # a shortcut of the code below for one index: saves 4 µs
            if key._array.__class__ is not self._array.__class__:
                key = _beside(self, key)
            try:
                return take_.direct(self, key, {"dims": (0,)})
            except IndexError:
                xp.check_index(key._array, shape[0], "index at dimension 0")
                raise
    elif key.__class__ is Tensor and key._array.dtype is _BOOL and key._array.ndim:
        check_mask_shape(key._array.shape, self._array.shape, 0)
        not_recorded(key, "indexing with a mask (use where or masked_fill)")
        if key._array.__class__ is not self._array.__class__:
            key = _beside(self, key)
        return pick_.direct(self, key, NO_PARAMS)
    static = _short(key if key.__class__ is tuple else (key,), self._array.shape)
    if static is not None:
        return slice_.direct(self, {"index": static})
    static, after, pairs = _parse(self, key)
    out = _basic(self, static, after)
    if pairs:
        _check_pairs(pairs, out._array.shape)
        return take_(out, *[i for _, i in pairs], dims=tuple(d for d, _ in pairs))
    return out if out is not self else reshape_(self, shape=self._array.shape)


def _check_pairs(pairs: list[tuple[int, Tensor]], shape: tuple[int, ...]) -> None:
    try:
        if len(pairs) > 1:
            np.broadcast_shapes(*[index._array.shape for _, index in pairs])
    except ValueError:
        shown = ", ".join(str(tuple(index.shape)) for _, index in pairs)
        raise IndexError(f"index tensors of shapes {shown} do not broadcast together") from None
    for d, index in pairs:
        xp.check_index(index._array, shape[d], f"index at dimension {d}")


def setitem(self: Tensor, key: Any, value: Any) -> None:
    """`x[key] = value`, recorded like any other operation."""
    inplace.check_writable(self, "x[...] = ...", whole=False)
    if not isinstance(value, Tensor):
        value = wrap(xp.module(self._array).asarray(value, dtype=self._array.dtype))
    if self._array.__class__ is not np.ndarray:
        value = _beside(self, value)
        key = _beside(self, key) if isinstance(key, Tensor) else key
    if isinstance(key, Tensor) and key._array.dtype == np.uint8:
        key = as_mask(key)
    if isinstance(key, Tensor) and numeric.is_boolean(key._array.dtype) and value._array.ndim == 0:
        _fill(self, key, value)
        return
    static, after, pairs = _parse(self, key)
    view = _basic(self, static, after)
    if view is self and not pairs:
        view = reshape_(self, shape=self._array.shape)
    if pairs:
        _check_pairs(pairs, view._array.shape)
        if value._array.dtype != self._array.dtype:
            masks = isinstance(key, Tensor) and numeric.is_boolean(key._array.dtype)
            if not (masks and value._array.size == 1):
                raise RuntimeError(
                    f"x[...] = ... with index tensors needs a value of dtype {self.dtype}, got "
                    f"{value.dtype}; convert it with .to(...)"
                )
            value = value.to(self.dtype)
        dims = tuple(d for d, _ in pairs)
        indices = [index for _, index in pairs]
        shape = _result_shape(view._array.shape, dims, indices)
        _check_fits(value, shape)
        while value._array.ndim > len(shape):
            value = value.squeeze(0)
        if inplace.is_plain(view, value, *indices):
            _put_into(view, value, indices, dims)
            return
        value = put_(view, value, *indices, dims=dims, accumulate=False)
    else:
        while value._array.ndim > view._array.ndim and value._array.shape[0] == 1:
            value = value.squeeze(0)
    inplace.assign(view, value, "x[...] = ...")


def _put_into(view: Tensor, value: Tensor, indices: list[Tensor], dims: tuple[int, ...]) -> None:
    """Write directly to memory if nothing is recorded, without a copy of the other elements."""
    own(view)
    if 0 in view._array.strides:
        inplace.check_writable(view, "x[...] = ...")  # refuses repeated elements
    target, given = view._array, value._array
    if storage.owner_of(given) is storage.owner_of(target):
        given = given.copy()
    places = [xp.contiguous(index._array) for index in indices]
    target[_key(places, dims, target.ndim)] = xp.contiguous(given)
    storage.note(target)


def _fill(self: Tensor, mask: Tensor, value: Tensor) -> None:
    """`x[mask] = number` by `where`, without the positions of the mask, so that it compiles."""
    started = next(numbers)
    shape, missing = mask._array.shape, self._array.ndim - mask._array.ndim
    check_mask_shape(shape, self._array.shape, 0)
    mask = reshape_(mask, shape=shape + (1,) * missing)
    value = value.to(self.dtype) if value._array.dtype != self._array.dtype else value
    inplace.assign(self, c.where(mask, value, self), "x[...] = ...", started)


def _result_shape(
    shape: tuple[int, ...], dims: tuple[int, ...], indices: list[Tensor]
) -> tuple[int, ...]:
    """The shape of x[...] with index tensors, computed with an array without memory."""
    ghost = np.broadcast_to(np.empty((), bool), shape)
    ghosts = [np.zeros(i._array.shape, np.int64) if min(shape) else i._array for i in indices]
    found: tuple[int, ...] = ghost[_key(ghosts, dims, len(shape))].shape
    return found


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


def _delitem(self: Tensor, key: Any) -> None:
    raise TypeError("elements of a tensor cannot be deleted")


attach(__getitem__=getitem, __setitem__=setitem, __delitem__=_delitem)

# -- masks -------------------------------------------------------------------------------------


def _check_mask(mask: Any, what: str) -> None:
    if not isinstance(mask, Tensor) or not numeric.is_boolean(mask._array.dtype):
        found = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise RuntimeError(f"{what} needs a bool tensor as its mask, got {found}")


def _filled(x: Any, mask: Any, *, value: float) -> Any:
    if x.__class__ is np.ndarray and x.size < ARRAY_SIZE:
        out = x.copy()
        np.putmask(out, mask, value)  # takes half the time of np.where, and a third of x[mask] = 0
        return out
    return c.where(mask, value, x)


#: `where` of a number and a small tensor with a mask of the same shape
filled_: Primitive = define(
    "filled",
    _filled,
    kind=OPAQUE,
    composite=True,
    vjp=(lambda g, mask: c.where(mask, 0.0, g), None),
    native_size=ARRAY_SIZE,
    complex=OWN,
    stores=True,
)


@op(
    apart=True,
    samples=lambda: [
        Sample((3, 4), In(3, 4, kind="bool"), 1.5),
        Sample((3, 4), In(4, kind="bool"), -1.0),
        Sample((3, 4), In(3, 1, kind="bool"), ()),
    ],
    inplace=True,
)
def masked_fill(input: Tensor, mask: Tensor, value: Operand) -> Any:
    """`value` where the mask is True, `input` elsewhere.

    `mask` is a boolean tensor with a shape that broadcasts to that of `input`.

    >>> import tapegrad
    >>> tapegrad.masked_fill(tapegrad.zeros(3), tapegrad.tensor([True, False, True]), 5.0)
    tensor([5., 0., 5.])
    """
    _check_mask(mask, "masked_fill")
    array = input._array
    if (
        value.__class__ is float
        and mask._array.shape == array.shape
        and (array.dtype is xp.F32 or array.dtype is xp.F64)
        and array.size < ARRAY_SIZE
        and array.flags.c_contiguous
    ):
        return filled_.direct(input, mask, {"value": value})
    if isinstance(value, Tensor) and value._array.ndim:
        raise RuntimeError("masked_fill needs a number or a 0-d tensor as its value")
    number = value.to(input.dtype) if isinstance(value, Tensor) else c._of_dtype(value, input.dtype)
    whole = input if input._array.flags.c_contiguous else input.contiguous()
    return c.where(mask, number, whole)


@op(
    apart=True,
    samples=lambda: [Sample((3, 4), In(3, 4, kind="bool")), Sample((3, 4), In(4, kind="bool"))],
)
def masked_select(input: Tensor, mask: Tensor) -> Any:
    """The elements where the mask is True, in one dimension.

    >>> import tapegrad
    >>> x = tapegrad.tensor([[1, 2], [3, 4]])
    >>> tapegrad.masked_select(x, x > 2)
    tensor([3, 4])
    """
    _check_mask(mask, "masked_select")
    shape = np.broadcast_shapes(input._array.shape, mask._array.shape)
    return getitem(input.expand(shape), mask.expand(shape))


@overload
def nonzero(input: Tensor, *, as_tuple: Literal[False] = False) -> Tensor: ...
@overload
def nonzero(input: Tensor, *, as_tuple: Literal[True]) -> tuple[Tensor, ...]: ...
@op(apart=True, samples=lambda: [Sample(In(3, 4, kind="int", low=0, high=2))], differentiable=False)
def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """The indices of nonzero elements, one row each (or with `as_tuple` a tensor per dimension).

    >>> import tapegrad
    >>> tapegrad.nonzero(tapegrad.tensor([[0, 5], [7, 0]]))
    tensor([[0, 1],
            [1, 0]])
    """
    not_recorded(input, "nonzero() (use where)")
    found = input._array.nonzero() if input._array.ndim else np.atleast_1d(input._array).nonzero()
    if as_tuple:
        return tuple(wrap(xp.contiguous(i)) for i in found)
    module = xp.module(input._array)
    if not input._array.ndim:
        return wrap(module.zeros((len(found[0]), 0), np.int64))
    return wrap(module.stack(found).T)  # column-major


@op(samples=lambda: [Sample(In(3, 4, kind="int", low=0, high=2))], differentiable=False)
def argwhere(input: Tensor) -> Any:
    """The indices of nonzero elements, one row each.

    >>> import tapegrad
    >>> tapegrad.argwhere(tapegrad.tensor([[0, 5], [7, 0]]))
    tensor([[0, 1],
            [1, 0]])
    """
    return nonzero(input)
