"""Attention that has the whole square of scores while it runs, as one composite.

In come queries, keys, values and a mask, out comes softmax(q k^T * scale + mask) v. With dropout
comes `kept`, booleans that say which probabilities are not dropped. The square
matrix of probabilities is not kept: backward makes it again from the queries, the keys and the
largest score of each row. It is made in the same way as before, so a compiled step, which has it
still, need not make it again. Causal attention computes the triangles of queries and the keys
before them, and no others. Called by `attention.py`, and for long sequences by
`tiled_attention.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...autograd.engine import unbroadcast
from ...core import numeric, xp
from ...core.primitive import MIXED_SIZE, OPAQUE, define
from ...core.tensor import Tensor
from ..elementwise import comparison as c
from ..elementwise import exponentials as e
from ..elementwise.copies import detach
from ..linalg.triangular import product
from ..precision import rounded, widened
from ..reduce.largest import amax_
from ..reduce.reductions import sum_
from ..shape.reordering import swapped
from .embedding import dropout_


def scores_of(q: Any, k: Any, mask: Any, scale: float, causal: bool) -> Any:
    """How much each query attends to each key, before softmax."""
    scores = product(q, swapped(k), "out" if causal else None) * scale
    if causal:
        raw = scores._array if isinstance(scores, Tensor) else scores
        before = xp.module(raw).tri(scores.shape[-2], scores.shape[-1], dtype=bool)
        scores = c.where(before, scores, -math.inf)
    if mask is None:
        return scores
    raw = mask._array if isinstance(mask, Tensor) else mask
    return c.where(mask, scores, -math.inf) if numeric.is_boolean(raw.dtype) else scores + mask


def powers_of(scores: Any, top: Any) -> Any:
    """exp(scores - top): probabilities, or their multiples."""
    # A row without any key to attend to has probabilities of 0.
    return e.exp(scores - c.where(c.isinf(top), 0.0, top))


def inverse_sums(powers: Any) -> Any:
    total = sum_(powers, dims=(len(powers.shape) - 1,), keepdim=True)
    return 1.0 / c.where(c.equal(total, 0), 1.0, total)


def dropping(kept: Any, dropout: float) -> Callable[[Any], Any]:
    """Dropout of a matrix of probabilities, of which those that are `kept` stay; None keeps all."""
    if kept is None:
        return lambda x: x
    return lambda x: dropout_(x, kept, scale=1.0 / (1.0 - dropout) if dropout < 1 else 0.0)


def _attention(
    q: Any, k: Any, v: Any, mask: Any, kept: Any, *, scale: float, causal: bool, dropout: float
) -> Any:
    wide_q, wide_k, wide_v = widened(q), widened(k), widened(v)
    scores = scores_of(wide_q, wide_k, mask, scale, causal)
    last = (len(scores.shape) - 1,)
    top = amax_(detach(scores), dims=last, keepdim=True)
    powers = powers_of(scores, top)
    attended = product(dropping(kept, dropout)(powers), wide_v, "lower" if causal else None)
    return rounded(attended * inverse_sums(powers), q), top


def attention_gradient(
    g: Any,
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    kept: Any,
    top: Any,
    scale: float,
    causal: bool,
    dropout: float,
    needs: list[bool],
) -> tuple[Any, ...]:
    wide_q, wide_k, wide_v = widened(q), widened(k), widened(v)
    powers = powers_of(scores_of(wide_q, wide_k, mask, scale, causal), detach(top))
    p = powers * inverse_sums(powers)
    wide_g, drop = widened(g[0]), dropping(kept, dropout)
    # No key counts for the queries before it.
    out, lower, upper = ("out", "lower", "upper") if causal else (None, None, None)
    g_v = product(swapped(drop(p)), wide_g, upper) if needs[2] else None
    g_p = drop(product(wide_g, swapped(wide_v), out))
    g_scores = p * (g_p - sum_(g_p * p, dims=(len(p.shape) - 1,), keepdim=True))
    g_product = g_scores * scale
    g_q = product(g_product, wide_k, lower) if needs[0] else None
    g_k = product(swapped(g_product), wide_q, upper) if needs[1] else None
    g_mask = unbroadcast(g_scores, tuple(mask.shape)) if needs[3] else None
    found = ((g_q, q), (g_k, k), (g_v, v), (g_mask, mask))
    return *(None if part is None else rounded(part, x) for part, x in found), None


attention_ = define(
    "attention",
    _attention,
    kind=OPAQUE,
    composite=True,
    native_size=MIXED_SIZE,
    outputs=("out", "top"),
    joint=attention_gradient,
)
