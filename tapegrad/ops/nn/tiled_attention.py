"""Attention in tiles of queries and keys, so that memory grows with the length, not its square.

Comes in: queries, keys, values and a mask of equal leading dimensions. Goes out: the result and,
for backward, `lse`: the log-sum-exp of each row of scores. Forward is an online softmax: it keeps
the largest score so far and rescales its sums when a larger one comes. Backward recomputes each
tile of probabilities from `lse`. For dropout, `state` is the generator's: which probabilities are
dropped depends on the state and their positions, so backward drops the same ones. With `safe`, a
row without any key gets zeros, else NaN, as from the softmax that `attention_rewrite.py` replaces.

The kernels here do in NumPy what native code does (`replay/cpu/attention.py`). On a GPU they use
whole matrices; compiled functions call a library instead (`replay/cuda/cudnn.py`). Called by
`attention.py`. Two cases need all scores at once: the gradient of a mask, and second derivatives.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ... import random
from ...autograd.engine import unbroadcast
from ...core import numeric, xp
from ...core.batch_rules import aligned, has_shape, joined, separated, size_of, spread, with_batch
from ...core.primitive import OPAQUE, PRIMITIVES, define
from ..drawing import uniform_at
from ..elementwise.comparison import greater_equal
from ..elementwise.copies import detach
from ..linalg.matmul import matmul_
from ..linalg.triangular import product, triangular_
from ..precision import rounded, widened
from ..reduce.reductions import sum_
from ..shape.reordering import swapped
from .whole_attention import attention_gradient, dropping, inverse_sums, powers_of, scores_of

#: number of queries, and of keys, in a tile of the NumPy kernels
TILE = 256

Span = slice


# -- kernels ---------------------------------------------------------------------------------------


def _spans(count: int) -> Iterator[Span]:
    return (slice(i, min(i + TILE, count)) for i in range(0, count, TILE))


def _tile_scores(
    q: Any, k: Any, mask: Any, rows: Span, columns: Span, scale: float, causal: bool
) -> Any:
    """The scores of some queries and some keys."""
    scores = matmul_(q[..., rows, :], np.swapaxes(k[..., columns, :], -1, -2)) * scale
    if causal and rows.start == columns.start:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=np.bool_), scores, -math.inf)
    if mask is None:
        return scores.astype(q.dtype, copy=False)
    part = _tile_of(mask, rows, columns)
    known = numeric.is_boolean(mask.dtype)
    scores = np.where(part, scores, -math.inf) if known else scores + part
    return scores.astype(q.dtype, copy=False)


def _tile_of(mask: Any, rows: Span, columns: Span) -> Any:
    return mask[
        ...,
        rows if mask.shape[-2] > 1 else slice(None),
        columns if mask.shape[-1] > 1 else slice(None),
    ]


def _counting(x: Any, y: Any, rows: Span, columns: Span, causal: bool, form: str) -> Any:
    """A product with a tile of probabilities; on the causal diagonal, with its triangle only."""
    if causal and rows.start == columns.start:
        return triangular_(x, y, form=form)
    return matmul_(x, y)


def _kept_rows(state: Any, shape: tuple[int, ...], rows: Span, dropout: float) -> Any:
    """A mask of the scores that dropout keeps, for some queries and all keys; None without it.

    `shape` is that of all scores.
    """
    if state is None:
        return None
    seed, offset = random.pair_of(state)
    *batch, queries, keys = shape
    count = (rows.stop - rows.start) * keys
    found = np.empty((math.prod(batch), count), np.bool_)
    for i, row in enumerate(found):
        block, rest = divmod((i * queries + rows.start) * keys, 8)  # numbers of a block: 4 words
        words = random.words_at(seed, offset + block, -(-(rest + count) // 2))
        row[...] = random.uniform32(words, rest + count)[rest:] >= np.float32(dropout)
    return found.reshape(*batch, -1, keys)


def _dropped(x: Any, kept: Any, columns: Span, dropout: float) -> Any:
    return x if kept is None else dropping(kept[..., columns], dropout)(x)


def _tiled(
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    state: Any,
    *,
    scale: float,
    causal: bool,
    dropout: float,
    safe: bool,
) -> Any:
    if not isinstance(q, np.ndarray):
        _check_plain(mask, state)
        return _whole(q, k, v, scale, causal)
    wide_q, wide_k, wide_v, mask = _two_dimensional(q, k, v, mask)
    queries, keys = q.shape[-2], k.shape[-2]
    out = np.zeros((*q.shape[:-1], v.shape[-1]), wide_q.dtype)
    lse = np.zeros((*q.shape[:-1], 1), wide_q.dtype)
    for rows in _spans(queries):
        top = np.full((*q.shape[:-2], rows.stop - rows.start, 1), -math.inf, wide_q.dtype)
        total, part = np.zeros_like(top), out[..., rows, :]
        kept = _kept_rows(state, (*q.shape[:-1], keys), rows, dropout)
        for columns in _spans(keys):
            if causal and columns.start > rows.start:
                break
            scores = _tile_scores(wide_q, wide_k, mask, rows, columns, scale, causal)
            largest = np.fmax(top, np.fmax.reduce(scores, axis=-1, keepdims=True))
            shift = np.where(np.isinf(largest), 0, largest)
            powers = np.exp(scores - shift)
            factor = np.exp(top - shift)
            total *= factor
            total += powers.sum(-1, keepdims=True)
            powers = _dropped(powers, kept, columns, dropout)
            part *= factor
            part += _counting(powers, wide_v[..., columns, :], rows, columns, causal, "lower")
            top = largest
        total = np.where(total == 0, 1, total)
        part /= total
        lse[..., rows, :] = np.where(np.isinf(top), 0, top) + np.log(total)
        if not safe:
            lse[..., rows, :] = np.where(np.isinf(top), np.nan, lse[..., rows, :])
            part[...] = np.where(np.isinf(top), np.nan, part)
    return rounded(out, q), lse


def _check_plain(mask: Any, state: Any) -> None:
    if mask is not None or state is not None:
        raise RuntimeError("attention in tiles has neither masks nor dropout on a GPU")


def _whole(q: Any, k: Any, v: Any, scale: float, causal: bool) -> Any:
    """The same with all scores at once, without mask and dropout."""
    wide_q, wide_k, wide_v = (widened(x) for x in (q, k, v))
    scores = scores_of(wide_q, wide_k, None, scale, causal)
    top = xp.module(q).max(scores, -1, keepdims=True)
    powers = xp.module(q).exp(scores - top)
    total = powers.sum(-1, keepdims=True)
    found = product(powers / total, wide_v, "lower" if causal else None)
    return rounded(found, q), top + xp.module(q).log(total)


def _whole_gradient(
    received: Any, q: Any, k: Any, v: Any, delta: Any, lse: Any, scale: float, causal: bool
) -> Any:
    wide_q, wide_k, wide_v, wide_g = (widened(x) for x in (q, k, v, received))
    out, lower, upper = ("out", "lower", "upper") if causal else (None, None, None)
    p = xp.module(q).exp(scores_of(wide_q, wide_k, None, scale, causal) - lse)
    slopes = p * (product(wide_g, swapped(wide_v), out) - delta) * scale
    g_q = product(slopes, wide_k, lower)
    g_k, g_v = product(swapped(slopes), wide_q, upper), product(swapped(p), wide_g, upper)
    return rounded(g_q, q), rounded(g_k, k), rounded(g_v, v)


def _tiled_gradient(
    received: Any,
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    state: Any,
    delta: Any,
    lse: Any,
    out: Any,
    *,
    scale: float,
    causal: bool,
    dropout: float,
    safe: bool,
) -> Any:
    if not isinstance(q, np.ndarray):
        _check_plain(mask, state)
        return _whole_gradient(received, q, k, v, delta, lse, scale, causal)
    wide_q, wide_k, wide_v, mask = _two_dimensional(q, k, v, mask)
    wide_g = widened(received)
    g_q, g_k, g_v = (np.zeros(x.shape, x.dtype) for x in (wide_q, wide_k, wide_v))
    for rows in _spans(q.shape[-2]):
        kept = _kept_rows(state, (*q.shape[:-1], k.shape[-2]), rows, dropout)
        for columns in _spans(k.shape[-2]):
            if causal and columns.start > rows.start:
                break
            scores = _tile_scores(wide_q, wide_k, mask, rows, columns, scale, causal)
            p = np.exp(scores - lse[..., rows, :])
            part_g = wide_g[..., rows, :]
            slopes = matmul_(part_g, np.swapaxes(wide_v[..., columns, :], -1, -2))
            slopes = _dropped(slopes, kept, columns, dropout)
            slopes = p * (slopes - delta[..., rows, :]) * scale
            if not safe and mask is not None and numeric.is_boolean(mask.dtype):
                slopes = np.where(_tile_of(mask, rows, columns), slopes, 0)  # removes NaN too
            p = _dropped(p, kept, columns, dropout)
            where = (rows, columns, causal)
            g_v[..., columns, :] += _counting(np.swapaxes(p, -1, -2), part_g, *where, "upper")
            g_q[..., rows, :] += _counting(slopes, wide_k[..., columns, :], *where, "lower")
            g_k[..., columns, :] += _counting(
                np.swapaxes(slopes, -1, -2), wide_q[..., rows, :], *where, "upper"
            )
    return rounded(g_q, q), rounded(g_k, k), rounded(g_v, v)


def _two_dimensional(q: Any, k: Any, v: Any, mask: Any) -> tuple[Any, ...]:
    """Operands in the form for computing; the mask gets rows and columns."""
    if mask is not None:
        mask = mask.reshape((1,) * max(2 - mask.ndim, 0) + mask.shape)
        mask = mask if numeric.is_boolean(mask.dtype) else widened(mask)
    return widened(q), widened(k), widened(v), mask


# -- rules -----------------------------------------------------------------------------------------


def _gradient(
    g: Any,
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    state: Any,
    out: Any,
    lse: Any,
    scale: float,
    causal: bool,
    dropout: float,
    safe: bool,
    needs: list[bool],
) -> tuple[Any, ...]:
    if needs[3]:  # it needs all scores, or sums over them
        kept = _all_kept(state, q, k, dropout)
        return attention_gradient(g, q, k, v, mask, kept, lse, scale, causal, dropout, needs)
    delta = sum_(widened(g[0]) * widened(out), dims=(len(out.shape) - 1,), keepdim=True)
    options = {"scale": scale, "causal": causal, "dropout": dropout, "safe": safe}
    found = tiled_attention_gradient_(g[0], q, k, v, mask, state, delta, lse, out, **options)
    made = (part if need else None for part, need in zip(found, needs, strict=False))
    return *made, None, None


def _all_kept(state: Any, q: Any, k: Any, dropout: float) -> Any:
    """A mask of all probabilities that dropout keeps, as in tiles; None without dropout."""
    if state is None:
        return None
    return greater_equal(uniform_at(state, (*q.shape[:-1], k.shape[-2])), dropout)


def _second_gradient(
    g: Any,
    received: Any,
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    state: Any,
    lse: Any,
    scale: float,
    causal: bool,
    dropout: float,
    needs: list[bool],
) -> tuple[Any, ...]:
    """The gradient of the gradients, with whole matrices.

    `delta`, `lse` and `out` count as what they are, functions of the other inputs, so they receive
    none.
    """
    wide_r, wide_q, wide_k, wide_v = (widened(x) for x in (received, q, k, v))
    a, b, c = (None if part is None else widened(part) for part in g)
    out, lower, upper = ("out", "lower", "upper") if causal else (None, None, None)

    def row_sums(x: Any) -> Any:
        return sum_(x, dims=(len(x.shape) - 1,), keepdim=True)

    powers = powers_of(scores_of(wide_q, wide_k, mask, scale, causal), detach(lse))
    p = powers * inverse_sums(powers)
    drop = dropping(_all_kept(state, q, k, dropout), dropout)
    g_p = drop(product(wide_r, swapped(wide_v), out))
    centred = g_p - row_sums(g_p * p)
    # What reaches the gradient of the scores, by way of those of the queries and of the keys.
    along_q = None if a is None else product(a, swapped(wide_k), out)
    along_k = None if b is None else product(wide_q, swapped(b), out)
    along = _sum(along_q, along_k)
    along = p * 0.0 if along is None else along * scale
    mean = row_sums(along * p)
    reached = drop(p * (along - mean))
    through_p = along * centred - mean * g_p
    if c is not None:
        through_p = through_p + drop(product(wide_r, swapped(c), out))
    g_scores = p * (through_p - row_sums(through_p * p))
    g_product, slopes = g_scores * scale, p * centred * scale
    g_received = product(reached, wide_v, lower)
    g_q, g_k = product(g_product, wide_k, lower), product(swapped(g_product), wide_q, upper)
    if a is not None:
        g_k = g_k + product(swapped(slopes), a, upper)
    if b is not None:
        g_q = g_q + product(slopes, b, lower)
    if c is not None:
        g_received = g_received + product(drop(p), c, lower)
    g_v = product(swapped(reached), wide_r, upper)
    g_mask = unbroadcast(g_scores, tuple(mask.shape)) if needs[4] else None
    found = ((g_received, received), (g_q, q), (g_k, k), (g_v, v), (g_mask, mask))
    made = tuple(None if part is None else rounded(part, x) for part, x in found)
    return *made, None, None, None, None


def _sum(x: Any, y: Any) -> Any:
    return y if x is None else x if y is None else x + y


# -- primitives ------------------------------------------------------------------------------------


def _wide(dtype: Any) -> Any:
    return np.dtype(np.float32) if numeric.is_half(dtype) else dtype


def attention_batch(p: Any, inputs: Any, batched: Any, params: dict[str, Any]) -> Any:
    """Examples are more of the first dimension; a mask is repeated for all that share it."""
    size = size_of(inputs, batched)
    at, query, state = (p.inputs.index(name) for name in ("mask", "q", "state"))
    rank = len(inputs[query].shape) - batched[query]
    given, flags = list(inputs), list(batched)
    if given[at] is not None:
        mask = given[at] if flags[at] else with_batch(given[at], size)
        given[at], flags[at] = aligned(mask, rank), True
        if rank > 2:
            first = inputs[query].shape[int(batched[query])]
            given[at] = PRIMITIVES["expand"](given[at], shape=(size, first, *given[at].shape[2:]))
    kept, given[state] = given[state], None
    whole = spread(given, flags)
    if rank > 2:
        whole = [joined(x) if has_shape(x) else x for x in whole]
    whole[state] = kept
    out = p(*whole, **params)
    return tuple([separated(y, size) for y in out]) if rank > 2 else out


tiled_attention_ = define(
    "tiled_attention",
    _tiled,
    kind=OPAQUE,
    outputs=("out", "lse"),
    joint=_gradient,
    lower=lambda b, outs, q, k, v, mask, state, **options: b.attention(
        outs, (q, k, v), mask, state, **options, backward=False
    ),
    abstract=lambda q, k, v, mask, state, **options: (
        ((*q[0][:-1], v[0][-1]), q[1]),
        ((*q[0][:-1], 1), _wide(q[1])),
    ),
    batch=attention_batch,
)

tiled_attention_gradient_ = define(
    "tiled_attention_gradient",
    _tiled_gradient,
    kind=OPAQUE,
    outputs=("g_q", "g_k", "g_v"),
    joint=_second_gradient,
    lower=lambda b, outs, received, q, k, v, mask, state, delta, lse, out, **options: b.attention(
        outs, (q, k, v, received, lse, delta, out), mask, state, **options, backward=True
    ),
    abstract=lambda received, q, k, v, mask, state, delta, lse, out, **options: (q, k, v),
    batch=attention_batch,
)
