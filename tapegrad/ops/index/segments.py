"""Reductions of consecutive runs of elements, and indexing under a mask.

Comes in: data and the lengths or bounds of runs, or index tensors and a mask. Everything consists
of gathers and scatters. Imported at first use (`late.py`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import numeric, xp
from ...core.tensor import Tensor, not_recorded, wrap
from ..elementwise import comparison as c
from ..reduce.cumulative import prod_
from ..reduce.largest import amax_, amin_
from ..reduce.reductions import sum_
from ..shape.dims import normal_dim
from ..table import In, Sample, op
from .indexing import put_, take_

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..annotations import Number

#: by name: how a run is reduced, and the value of an empty one
_REDUCTIONS: dict[str, tuple[Any, float]] = {
    "sum": (sum_, 0.0),
    "mean": (sum_, 0.0),
    "prod": (prod_, 1.0),
    "max": (amax_, -math.inf),
    "min": (amin_, math.inf),
}


def _bounds(data: Any, lengths: Any, offsets: Any, axis: int) -> Any:
    """The bounds of all runs, (rows, runs + 1): `offsets`, or cumulative sums of lengths."""
    given = lengths if offsets is None else offsets
    if given is None:
        raise RuntimeError("_segment_reduce needs lengths or offsets")
    not_recorded(given, "_segment_reduce")
    if not numeric.is_integer(given._array.dtype) or given._array.ndim != axis + 1:
        raise RuntimeError(
            f"_segment_reduce needs integers of {axis + 1} dimensions for axis {axis}, got "
            f"{given.dtype} of shape {tuple(given.shape)}"
        )
    array = np.asarray(given.cpu()._array).reshape(-1, given._array.shape[-1])
    if offsets is None:
        array = np.concatenate([np.zeros_like(array[:, :1]), np.cumsum(array, 1)], 1)
    wrong = (np.diff(array, axis=1) < 0).any() or (array < 0).any()
    if wrong or (array > data._array.shape[axis]).any():
        raise RuntimeError(
            f"_segment_reduce: runs of {array.tolist()} do not lie within the "
            f"{data._array.shape[axis]} elements of axis {axis}"
        )
    return array


@op(
    method=False,
    aliases=("segment_reduce",),
    samples=lambda: [
        Sample((5, 2), "sum", lengths=In(values=[2, 0, 3], kind="int")),
        Sample((5, 2), "mean", lengths=In(values=[2, 3], kind="int")),
        Sample(In(5, distinct=True), "max", offsets=In(values=[0, 1, 5], kind="int")),
        Sample(In(5, distinct=True), "min", lengths=In(values=[2, 3], kind="int"), initial=1.0),
        Sample((2, 4), "prod", lengths=In(values=[[1, 3], [2, 2]], kind="int"), axis=1),
    ],
)
def _segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Number | None = None,
) -> Any:
    """The sum, mean, prod, max or min of consecutive runs of an axis.

    `lengths` of the runs, or `offsets`, the bounds between them, have the dimensions of the data
    up to the axis. An empty run gives `initial`, or by default the reduction of no elements.

    >>> import tapegrad
    >>> data, lengths = tapegrad.tensor([1.0, 2.0, 3.0]), tapegrad.tensor([2, 1])
    >>> tapegrad._segment_reduce(data, "sum", lengths=lengths)
    tensor([3., 3.])
    """
    if indices is not None:
        raise RuntimeError("_segment_reduce takes lengths or offsets, not indices")
    if reduce not in _REDUCTIONS:
        names = ", ".join(_REDUCTIONS)
        raise RuntimeError(f"_segment_reduce: reduce must be one of {names}, got {reduce!r}")
    axis = normal_dim(axis, data._array.ndim)
    bounds = _bounds(data, lengths, offsets, axis)
    fold, nothing = _REDUCTIONS[reduce]
    if initial is not None:
        nothing = float(initial)
    shape = tuple(data._array.shape)
    rows, runs, rest = len(bounds), bounds.shape[1] - 1, shape[axis + 1 :]
    sizes = np.diff(bounds, axis=1)
    width = int(sizes.max(initial=0))
    steps = np.arange(width)
    inside = steps < sizes[..., None]  # (rows, runs, width)
    place = (
        np.where(inside, bounds[:, :-1, None] + steps, 0)
        + shape[axis] * np.arange(rows)[:, None, None]
    )
    module = xp.module(data._array)
    flat = data.reshape(rows * shape[axis], *rest)
    mask = wrap(module.asarray(inside.reshape(*inside.shape, *[1] * len(rest))))
    start = data.new_full((rows, runs, 1, *rest), nothing)
    parts: Any = start
    if width:
        found = take_(flat, wrap(module.asarray(place.astype(np.int64))), dims=(0,))
        blank = 0.0 if reduce in ("sum", "mean") else nothing if reduce in ("max", "min") else 1.0
        parts = c.where(mask, found, blank)
    out = fold(parts, dims=(2,), keepdim=False)
    if width and initial is not None:
        first = data.new_full(tuple(out._array.shape), nothing)
        if reduce in ("max", "min"):
            out = (out.maximum if reduce == "max" else out.minimum)(first)
        else:
            out = out * first if reduce == "prod" else out + first
    if reduce == "mean":
        number = wrap(module.asarray(sizes.reshape(rows, runs, *[1] * len(rest))))
        empty = math.nan if initial is None else nothing
        out = c.where(number > 0, out / number.clamp(min=1).to(data.dtype), empty)
    return out.reshape(*shape[:axis], runs, *rest)


# -- under a mask ------------------------------------------------------------------------------


def _masked_places(x: Any, mask: Any, indices: Any) -> tuple[list[Any], tuple[int, ...]]:
    """Index tensors, set to 0 where the mask is False, and the dimensions that they index."""
    dims = tuple(d for d, index in enumerate(indices) if index is not None)
    places = []
    for d in dims:
        size = x._array.shape[d]
        index = indices[d].clamp(-size, max(size - 1, 0))
        places.append(c.where(mask, index, 0))
    shape = np.broadcast_shapes(*[p._array.shape for p in places])
    return [p.expand(shape) for p in places], dims


_MASK = In(values=[True, False, True], kind="bool")
_PLACES = In(values=[1, 7, 0], kind="int")


@op(
    method=False,
    samples=lambda: [Sample((2, 3), _MASK, [_PLACES, In(values=[2, 0, 1], kind="int")], 0.5)],
    torch=None,
)
def _unsafe_masked_index(
    input: Tensor, mask: Tensor, indices: Sequence[Tensor | None], fill: Number
) -> Any:
    """input[indices] where the mask is True, `fill` elsewhere; indices there may be out of range.

    >>> import tapegrad
    >>> x, mask = tapegrad.tensor([1.0, 2.0]), tapegrad.tensor([True, False])
    >>> tapegrad._unsafe_masked_index(x, mask, [tapegrad.tensor([1, 9])], 0)
    tensor([2., 0.])
    """
    places, dims = _masked_places(input, mask, indices)
    return c.where(mask, take_(input, *places, dims=dims), fill)


@op(
    method=False,
    samples=lambda: [Sample((2, 3), _MASK, [_PLACES, In(values=[2, 0, 1], kind="int")], (3,))],
    torch=None,
)
def _unsafe_masked_index_put_accumulate(
    input: Tensor, mask: Tensor, indices: Sequence[Tensor | None], values: Tensor
) -> Any:
    """`input` with values added at input[indices] where the mask is True.

    >>> import tapegrad
    >>> x, mask = tapegrad.tensor([1.0, 2.0]), tapegrad.tensor([True, False])
    >>> at, values = [tapegrad.tensor([1, 9])], tapegrad.tensor([10.0, 10.0])
    >>> tapegrad._unsafe_masked_index_put_accumulate(x, mask, at, values)
    tensor([ 1., 12.])
    """
    places, dims = _masked_places(input, mask, indices)
    return put_(input, c.where(mask, values, 0), *places, dims=dims, accumulate=True)
