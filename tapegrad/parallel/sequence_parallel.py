"""Sequence parallelism: attention over a sequence of which each rank has a piece.

Rank r has piece r of queries, keys and values, (..., heads, length / ranks, features), and gets
piece r of the result of `scaled_dot_product_attention` for the whole sequence. Each rank has the
loss of its piece, and the objective is the sum of the losses.

`ring_attention` passes blocks of keys and values around a ring of ranks, so that no rank ever has
all of them, and passes them around again in backward. `all_to_all_attention` gives each rank the
whole sequence for some of the heads, computes there, and sends the results back.
"""

from __future__ import annotations

import math
from typing import Any, cast

from ..autograd.function import Function
from ..core.dtypes import float32
from ..core.tensor import Tensor
from ..nn import functional as functions
from ..ops.collective.moving import all_to_all, permute_ranks
from ..ops.creation import CREATION
from ..ops.shape.joining import cat
from .members import group_or_self, piece_size

F: Any = functions


def ring_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    is_causal: bool = False,
    scale: float | None = None,
    group: Any = None,
) -> Tensor:
    """Attention of this rank's queries to the keys of all ranks, block by block.

    Each rank works on one block of keys and values at a time and combines the results of blocks by
    their log-sum-exp, in float32 for half precision. Only tensors of this rank are saved for
    backward. With `is_causal`, blocks after this rank's are passed on without computation, so the
    first ranks wait for the last ones.
    """
    _check_pieces(query, key, value, is_causal)
    factor = 1.0 / math.sqrt(max(query.shape[-1], 1)) if scale is None else float(scale)
    wide = [x if x.dtype.itemsize >= 4 else x.to(float32) for x in (query, key, value)]
    out, _ = _Ring.apply(*wide, factor, is_causal, group_or_self(group))
    return out.to(query.dtype)  # type: ignore[no-any-return]


def _check_pieces(query: Tensor, key: Tensor, value: Tensor, is_causal: bool) -> None:
    shapes = [tuple(x.shape) for x in (query, key, value)]
    fits = shapes[0][:-2] == shapes[1][:-2] == shapes[2][:-2]
    if not fits or shapes[1][-2] != shapes[2][-2] or shapes[0][-1] != shapes[1][-1]:
        raise ValueError(f"attention needs tensors (..., length, features) that fit, got {shapes}")
    if is_causal and shapes[0][-2] != shapes[1][-2]:
        raise ValueError(f"causal attention needs as many queries as keys, got {shapes}")


def _is_used(step: int, is_causal: bool, group: Any) -> bool:
    """Whether this rank attends to the block that it has after `step` steps."""
    return not is_causal or step <= group.rank


def _scores(query: Any, key: Any, scale: float, is_diagonal: bool) -> Any:
    scores = query @ key.transpose(-1, -2) * scale
    if not is_diagonal:
        return scores
    length = scores.shape[-1]
    later = CREATION["ones"](length, length, dtype=scores.dtype).triu(1).to(bool)
    return scores.masked_fill(later, -math.inf)


def _passed_on(block: Any, group: Any) -> Any:
    """Send a block to the next rank; returns the block of the previous one."""
    ring = tuple((r + 1) % group.size for r in range(group.size))
    return permute_ranks(block, ring, group)


def _nothing(block: Any) -> Any:
    """A zero that depends on a block, so that all ranks send the block's gradient back."""
    return block[..., :0, :].sum()


class _Ring(Function):
    """Attention around the ring: the result, and the log-sum-exp of the scores."""

    @staticmethod
    def forward(
        ctx: Any, query: Any, key: Any, value: Any, scale: float, is_causal: bool, group: Any
    ) -> Any:
        block, width = cat([key, value], -1), key.shape[-1]
        out = sums = None
        for step in range(group.size):
            if step:
                block = _passed_on(block, group)
            if not _is_used(step, is_causal, group):
                continue
            scores = _scores(query, block[..., :width], scale, is_causal and step == 0)
            found = scores.logsumexp(-1, True)
            part = (scores - found).exp() @ block[..., width:]
            if out is None:
                out, sums = part, found
            else:
                both = F.softplus(-(sums - found).abs()) + _larger(sums, found)
                out = out * (sums - both).exp() + part * (found - both).exp()
                sums = both
        ctx.save_for_backward(query, key, value, out, sums)
        ctx.settings = (scale, is_causal, group)
        return out, sums

    @staticmethod
    def backward(ctx: Any, g: Any, g_sums: Any) -> Any:
        query, key, value, out, sums = ctx.saved_tensors
        scale, is_causal, group = ctx.settings
        width, end = key.shape[-1], key.shape[-1] + value.shape[-1]
        inner = (g * out).sum(-1, keepdim=True)
        if g_sums is not None:
            inner = inner - g_sums
        g_query = CREATION["zeros_like"](query)
        # Gradients travel with their block, and are back at its rank after a full round.
        block, found = cat([key, value], -1), cast("Any", None)
        for step in range(group.size):
            if step:
                together = _passed_on(cat([block, found], -1), group)
                block, found = together[..., :end], together[..., end:]
            if not _is_used(step, is_causal, group):
                g_query = g_query + _nothing(block)
                continue
            k, v = block[..., :width], block[..., width:]
            powers = (_scores(query, k, scale, is_causal and step == 0) - sums).exp()
            g_scores = powers * (g @ v.transpose(-1, -2) - inner) * scale
            g_query = g_query + g_scores @ k
            g_key = g_scores.transpose(-1, -2) @ query
            more = cat([g_key, powers.transpose(-1, -2) @ g], -1)
            found = more if found is None else found + more
        if group.size > 1:
            found = _passed_on(found, group)
        return g_query, found[..., :width], found[..., width:], None, None, None


def _larger(x: Any, y: Any) -> Any:
    return F.relu(x - y) + y


def all_to_all_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    is_causal: bool = False,
    scale: float | None = None,
    group: Any = None,
) -> Tensor:
    """Attention of (batch, heads, length / ranks, features), computed with the heads divided.

    The number of heads must be a multiple of the number of ranks. There are four exchanges:
    queries, keys and values before, results after.
    """
    group = group_or_self(group)
    _check_pieces(query, key, value, is_causal)
    for x in (query, key, value):
        piece_size(x.shape[-3], group, "heads")
    q, k, v = (heads_to_ranks(x, group) for x in (query, key, value))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=is_causal, scale=scale)
    return sequence_to_ranks(out, group)


def heads_to_ranks(x: Tensor, group: Any = None) -> Tensor:
    """From all heads of a piece of the sequence to a piece of the heads of the whole sequence.

    (..., heads, length / ranks, features) to (..., heads / ranks, length, features).
    """
    group = group_or_self(group)
    parts: Any = x.unflatten(-3, (group.size, -1)).movedim(-4, 0).contiguous()
    received: Any = all_to_all(parts, group=group)
    return received.movedim(0, -3).flatten(-3, -2)  # type: ignore[no-any-return]


def sequence_to_ranks(x: Tensor, group: Any = None) -> Tensor:
    """The inverse: (..., heads / ranks, length, features) to (..., heads, length / ranks, ...)."""
    group = group_or_self(group)
    parts: Any = x.unflatten(-2, (group.size, -1)).movedim(-3, 0).contiguous()
    received: Any = all_to_all(parts, group=group)
    return received.movedim(0, -4).flatten(-4, -3)  # type: ignore[no-any-return]
