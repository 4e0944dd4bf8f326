"""Embedding bags: look up rows and sum, average or maximise them per bag.

Bags are either the rows of a matrix of tokens, or segments of one row of tokens that begin at given
offsets. Both become a lookup by `looked_up`, whose gradient rule handles padding and frequencies,
and a reduction over the bags.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core import numeric, xp
from ...core.batch_rules import joined, separated, size_of, spread
from ...core.primitive import OPAQUE, define
from ...core.tensor import Tensor, wrap
from ..checks import checked
from ..elementwise import comparison as c
from ..elementwise import extremes
from ..elementwise.copies import cast
from ..index.gather import gather_
from ..index.indexing import put_add_
from ..precision import check_floating, check_same_dtype, rounded, widened
from ..reduce.cumulative import cumsum_
from ..reduce.reductions import sum_
from ..shape.reshaping import reshape_
from ..table import In, Sample, op
from .embedding import check_padding, check_tokens, limit_rows, looked_up

MODES = ("sum", "mean", "max")


def _winners(rows: Any, bags: Any, *, count: int) -> Any:
    """For each bag and column, the row with the largest element; 0 for empty bags."""
    module = xp.module(rows)
    out = module.zeros((count, rows.shape[1]), np.int64)
    ends = module.searchsorted(bags, module.arange(count), side="right").tolist()
    for bag, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        if end > start:
            out[bag] = start + rows[start:end].argmax(0)
    return out


def _winners_batch(p: Any, inputs: Any, batched: Any, params: dict[str, Any]) -> Any:
    """The batch rule: give each example its own bag numbers; row numbers are per example."""
    size, count = size_of(inputs, batched), params["count"]
    rows, bags = spread(inputs, batched)
    first = np.arange(size).reshape(size, 1)
    each = wrap(first) if isinstance(rows, Tensor) or isinstance(bags, Tensor) else first
    found = p(joined(rows), joined(bags + each * count), count=size * count)
    here = separated(found, size) - reshape_(each * rows.shape[1], shape=(size, 1, 1))
    return extremes.clamp_low(here, 0)  # for empty bags


winners_ = define(
    "bag_winners",
    _winners,
    kind=OPAQUE,
    batch=_winners_batch,
)


def _ids(offsets: Any, tokens: int, count: int) -> Any:
    """The bag number of each token; tokens after the last bag get `count`."""
    ones = c.equal(offsets, offsets).to(offsets.dtype)
    begun = put_add_(ones, offsets, dims=(0,), shape=(tokens + 1,))
    return cumsum_(begun, dim=0, reverse=False)[:tokens] - 1


def _in_bags(rows: Any, offsets: Any, count: int, mode: str) -> Any:
    """Reduce rows over segments that begin at offsets."""
    tokens, size = rows._array.shape
    bags = _ids(offsets, tokens, count)
    if mode == "max":
        winners = winners_(rows.detach(), bags, count=count + 1)
        return gather_(rows, winners[:count], dim=0) if tokens else rows.new_zeros(count, size)
    return put_add_(rows, bags, dims=(0,), shape=(count + 1, size))[:count]


def _in_rows(rows: Any, mode: str) -> Any:
    """Reduce (bags, tokens, features) over the tokens."""
    bags, tokens, size = rows._array.shape
    if mode == "max":
        if not tokens:
            return rows.new_zeros(bags, size)
        winners = rows.detach().argmax(1, keepdim=True)
        return reshape_(gather_(rows, winners, dim=1), shape=(bags, size))
    return sum_(rows, dims=(1,), keepdim=False)


_ROW = In(values=[0, 2, 2, 1, 4], kind="int")
_GRID = In(values=[[0, 2], [2, 1], [4, 0]], kind="int")
_OFFSETS = In(values=[0, 3], kind="int")
_EMPTY = In(values=[0, 0, 4, 5], kind="int")


@op(
    "embedding_bag",
    module="nn.functional",
    samples=lambda: [
        Sample(_ROW, In(5, 3, distinct=True), _OFFSETS),
        Sample(_ROW, In(5, 3, distinct=True), _EMPTY, mode="max", include_last_offset=True),
        Sample(_GRID, In(5, 3, distinct=True), mode="sum", per_sample_weights=In(3, 2)),
        Sample(_GRID, In(5, 3, distinct=True), mode="max"),
        # With padding or counts, gradients by design differ from the derivative.
        Sample(_ROW, In(5, 3, grad=False), _EMPTY, mode="mean", padding_idx=2),
        Sample(_ROW, In(5, 3, grad=False), _OFFSETS, mode="sum", scale_grad_by_freq=True),
    ],
)
def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:
    """The sum, mean or maximum of the rows of `weight` that the tokens of each bag name.

    `input` is (bags, tokens), or one row of tokens whose bags begin at `offsets`. Tokens equal to
    `padding_idx` do not count. With `sparse`, the gradient of a leaf is a sparse tensor.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> table = tapegrad.tensor([[0.0, 0.0], [1.0, 2.0], [3.0, 4.0]])
    >>> F.embedding_bag(tapegrad.tensor([[0, 1], [1, 2]]), table, mode="sum")
    tensor([[1., 2.],
            [4., 6.]])
    """
    if not numeric.is_floating(weight._array.dtype) and numeric.is_floating(input._array.dtype):
        input, weight = weight, input  # PyTorch's old order, which it still accepts
    check_floating(weight, "embedding_bag")
    _check_bags(input, weight, offsets, mode, sparse, per_sample_weights, scale_grad_by_freq)
    rows = weight._array.shape[0]
    padding = check_padding("embedding_bag", padding_idx, rows)
    input = check_tokens("embedding_bag", input, rows, RuntimeError)
    count, begins = len(input._array), None
    if offsets is not None:
        begins = _check_offsets(offsets, input._array.size, include_last_offset)
        count = len(begins._array) - bool(include_last_offset)
        if include_last_offset and (padding is not None or mode == "max"):
            begins = begins[:-1]  # as in PyTorch, the last bag takes all remaining tokens
    if max_norm is not None:
        limit_rows(input, weight, float(max_norm), norm_type)
    by_count = bool(scale_grad_by_freq)
    found = widened(looked_up(weight, input, padding, by_count, bool(sparse)))
    if per_sample_weights is not None:
        found = found * per_sample_weights.unsqueeze(-1)
    column = (*input._array.shape, 1)
    counted = None if padding is None else reshape_(c.not_equal(input, padding), shape=column)
    if counted is not None:
        found = c.where(counted, found, -math.inf if mode == "max" else 0.0)

    def reduce(x: Any, how: str) -> Any:
        return _in_rows(x, how) if begins is None else _in_bags(x, begins, count, how)

    out = reduce(found, mode)
    if mode != "sum":
        if counted is None:
            counted = reshape_(c.equal(input, input), shape=column)
        number = reduce(cast(counted, dtype=found.dtype), "sum")
        if mode == "mean":
            out = out / extremes.clamp_numbers(number, low=1.0, high=math.inf)
        else:
            out = c.where(c.greater(number, 0), out, 0.0)
    return rounded(out, weight)


def _check_bags(
    input: Any, weight: Any, offsets: Any, mode: str, sparse: bool, scales: Any, by_count: bool
) -> None:
    what = "embedding_bag"
    if not isinstance(input, Tensor) or not numeric.is_integer(input._array.dtype):
        found = input.dtype if isinstance(input, Tensor) else type(input).__name__
        raise RuntimeError(f"{what} needs integer tokens, got {found}; use .long()")
    if mode not in MODES:
        raise ValueError(f"{what}: mode is 'sum', 'mean' or 'max', got {mode!r}")
    if mode == "max" and sparse:
        raise ValueError(f"{what}: sparse=True does not go with mode='max'")
    if mode == "max" and by_count:
        raise ValueError(f"{what}: scale_grad_by_freq does not go with mode='max'")
    if weight._array.ndim != 2:
        raise ValueError(f"{what} needs a matrix of rows, got shape {tuple(weight.shape)}")
    if input._array.ndim not in (1, 2):
        raise ValueError(f"{what} needs tokens of 1 or 2 dimensions, got {tuple(input.shape)}")
    if input._array.ndim == 2 and offsets is not None:
        raise ValueError(f"{what}: each row of tokens is a bag; leave offsets out")
    if input._array.ndim == 1 and (not isinstance(offsets, Tensor) or offsets._array.ndim != 1):
        raise ValueError(f"{what}: one row of tokens needs offsets, a tensor of 1 dimension")
    if scales is not None:
        if scales._array.shape != input._array.shape:
            raise ValueError(
                f"{what}: per_sample_weights must have the shape of the tokens "
                f"{tuple(input.shape)}, got {tuple(scales.shape)}"
            )
        if mode != "sum":
            raise NotImplementedError(f"{what}: per_sample_weights go with mode='sum' only")
        check_same_dtype(what, weight, per_sample_weights=scales)


def _check_offsets(offsets: Any, tokens: int, with_last: bool) -> Any:
    """The offsets, checked to begin at 0, not to decrease and to stay within the tokens."""
    what = "embedding_bag"
    size = len(offsets._array)
    if not numeric.is_integer(offsets._array.dtype):
        raise RuntimeError(f"{what} needs integer offsets, got {offsets.dtype}")
    if with_last and not size:
        raise RuntimeError(f"{what}: include_last_offset needs at least one offset")
    if not size:
        return offsets
    message = f"{what}: offsets must begin with 0, got {{}}"
    offsets = checked(offsets, offsets[:1], low=0, high=0, message=message)
    message = f"{what}: offsets must not decrease or exceed the number of tokens {tokens}"
    offsets = checked(offsets, high=tokens, message=message)
    if size == 1:
        return offsets
    steps = (offsets[1:] - offsets[:-1]).amin()
    return checked(offsets, steps, low=0, message=message)
