"""Attention with several heads: projections, masks and biases around softmax(q k^T) v.

`multi_head_attention_forward` is PyTorch's function with all its arguments; `attend` is the same
for tensors whose batch may come first, and `nn.MultiheadAttention` calls it. Masks here are True,
or -inf, where a key is hidden: the opposite of `scaled_dot_product_attention`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...core.dtypes import bool_
from ..creation import CREATION
from ..elementwise import comparison as c
from ..linalg.matmul import linear, matmul
from ..precision import check_floating
from ..shape.joining import cat
from ..shape.padding import padded
from ..shape.reordering import permute_, swapped
from ..shape.reshaping import reshape_
from ..shape.slicing import narrow
from ..table import In, Sample, op
from .attention import scaled_dot_product_attention
from .embedding import dropout
from .softmax import softmax

if TYPE_CHECKING:
    from ...core.tensor import Tensor


@dataclass(slots=True)
class AttentionWeights:
    """The projections of queries, keys, values and results, and additions to keys and values."""

    in_proj_weight: Any
    in_proj_bias: Any
    bias_k: Any
    bias_v: Any
    out_proj_weight: Any
    out_proj_bias: Any
    #: separate weights of queries, keys and values, or None
    separate: tuple[Any, Any, Any] | None
    #: already projected keys and values, used as they are
    static_k: Any = None
    static_v: Any = None


# -- checks ------------------------------------------------------------------------------------


def _require(holds: bool, message: str) -> None:
    """Raise AssertionError, as PyTorch does for these checks."""
    if not holds:
        raise AssertionError(message)


def _check_ranks(
    query: Any, key: Any, value: Any, key_padding_mask: Any, attn_mask: Any, num_heads: int
) -> bool:
    """Whether there is a batch; raises unless all tensors agree on that."""
    rank = query._array.ndim
    _require(
        rank in (2, 3),
        f"the query must be (length, features) or a batch of that, got {rank} dimensions",
    )
    kind = "batched (3-D)" if rank == 3 else "unbatched (2-D)"
    _require(
        key._array.ndim == rank and value._array.ndim == rank,
        f"key and value must have {rank} dimensions like the {kind} query, got {key._array.ndim} "
        f"and {value._array.ndim}",
    )
    if key_padding_mask is not None:
        found = key_padding_mask._array.ndim
        _require(
            found == rank - 1,
            f"key_padding_mask must have {rank - 1} dimensions for a {kind} query, got {found}",
        )
    if attn_mask is not None:
        found = attn_mask._array.ndim
        _require(
            found in (2, 3),
            f"attn_mask must have 2 or 3 dimensions, got {found}",
        )
        if rank == 2 and found == 3:
            expected = (num_heads, query._array.shape[0], key._array.shape[0])
            _require(
                attn_mask._array.shape == expected,
                f"attn_mask must have the shape {expected}, got {tuple(attn_mask.shape)}",
            )
    return bool(rank == 3)


def _check_sizes(query: Any, key: Any, value: Any, size: int, heads: int, separate: bool) -> None:
    width = query._array.shape[-1]
    check_floating(query, "multi_head_attention_forward")
    _require(width == size, f"the query must have {size} features, got {width}")
    _require(size % heads == 0, f"embed_dim {size} not divisible by num_heads {heads}")
    k, v = key._array.shape, value._array.shape
    if separate:
        _require(k[:2] == v[:2], f"key's lengths {k[:2]} do not match value's {v[:2]}")
    else:
        _require(k == v, f"key and value must have the same shape, got {tuple(k)} and {tuple(v)}")


# -- masks -------------------------------------------------------------------------------------


def _check_mask(mask: Any, name: str) -> None:
    if mask is not None:
        _require(
            mask.dtype is bool_ or mask.dtype.is_floating_point,
            f"{name} must be a bool or floating tensor, got {mask.dtype}",
        )


def _additive(mask: Any, dtype: Any) -> Any:
    """A mask as numbers to add to scores."""
    if mask.dtype is bool_:
        zeros = CREATION["zeros"]((), dtype=dtype, device=mask.device)
        return c.where(mask, -math.inf, zeros)
    return mask if mask.dtype is dtype else mask.to(dtype)


def _joint_mask(attn_mask: Any, padding: Any, dtype: Any) -> Any:
    """Both masks in one: bool if both are."""
    if padding is None or attn_mask is None:
        return attn_mask if padding is None else padding
    if attn_mask.dtype is bool_ and padding.dtype is bool_:
        return c.logical_or(attn_mask, padding)
    return _additive(attn_mask, dtype) + _additive(padding, dtype)


def _widened(mask: Any, columns: int) -> Any:
    """A mask extended by keys that every query may attend to."""
    return padded(mask, (*[(0, 0)] * (mask._array.ndim - 1), (0, columns)))


def _attention_mask(mask: Any, batch: int, heads: int, queries: int, keys: int) -> Any:
    """A mask (queries, keys) or (batch * heads, queries, keys), reshaped to fit the scores."""
    shape = tuple(mask._array.shape)
    expected = (queries, keys) if len(shape) == 2 else (batch * heads, queries, keys)
    if shape != expected:
        raise RuntimeError(f"attn_mask must have the shape {expected}, got {shape}")
    return mask if len(shape) == 2 else reshape_(mask, shape=(batch, heads, queries, keys))


def _padding_mask(mask: Any, batch: int, keys: int) -> Any:
    shape = mask._array.shape
    _require(shape[0] == batch, f"key_padding_mask must have {batch} rows, got {shape[0]}")
    _require(shape[1] == keys, f"key_padding_mask must have {keys} columns, got {shape[1]}")
    return reshape_(mask, shape=(batch, 1, 1, keys))


# -- projections -------------------------------------------------------------------------------


def _projected(query: Any, key: Any, value: Any, weights: AttentionWeights) -> list[Any]:
    """Queries, keys and values: products are shared where the tensors are the same."""
    bias, size = weights.in_proj_bias, query._array.shape[-1]
    if weights.separate is not None:
        biases = [None] * 3 if bias is None else _thirds(bias, size)
        given = zip((query, key, value), weights.separate, biases, strict=True)
        return [linear(x, w, b) for x, w, b in given]
    weight = weights.in_proj_weight
    if query is key and key is value:
        return _last_parts(linear(query, weight, bias), size)
    first, rest = narrow(weight, 0, 0, size), narrow(weight, 0, size, 2 * size)
    b_first = None if bias is None else narrow(bias, 0, 0, size)
    b_rest = None if bias is None else narrow(bias, 0, size, 2 * size)
    q = linear(query, first, b_first)
    if key is value:
        return [q, *_last_parts(linear(key, rest, b_rest), size)]
    _, w_k, w_v = _thirds(weight, size)
    _, b_k, b_v = [None] * 3 if bias is None else _thirds(bias, size)
    return [q, linear(key, w_k, b_k), linear(value, w_v, b_v)]


def _thirds(x: Any, size: int) -> list[Any]:
    return [narrow(x, 0, i * size, size) for i in range(3)]


def _last_parts(x: Any, size: int) -> list[Any]:
    return [narrow(x, -1, start, size) for start in range(0, x._array.shape[-1], size)]


def _in_heads(x: Any, heads: int, batch_first: bool) -> Any:
    """(length, batch, features) as (batch, heads, length, features of a head)."""
    a, b, size = x._array.shape
    parts = reshape_(x, shape=(a, b, heads, size // heads))
    return permute_(parts, dims=(0, 2, 1, 3) if batch_first else (1, 2, 0, 3))


def _given_heads(x: Any, name: str, batch: int, heads: int, size: int) -> Any:
    """Projected keys or values that came as (batch * heads, length, features of a head)."""
    shape = x._array.shape
    _require(
        shape[0] == batch * heads and shape[2] == size,
        f"expecting {name} of shape ({batch * heads}, length, {size}), but got {tuple(shape)}",
    )
    return reshape_(x, shape=(batch, heads, shape[1], size))


def _with_bias(x: Any, bias: Any, batch_first: bool) -> Any:
    """One more key or value, the same for all sequences."""
    batch = x._array.shape[0 if batch_first else 1]
    row = bias.expand(batch, 1, -1) if batch_first else bias.expand(1, batch, -1)
    return cat([x, row], 1 if batch_first else 0)


def _with_zeros(x: Any) -> Any:
    """One more key or value of zeros, at the end."""
    return padded(x, ((0, 0), (0, 0), (0, 1), (0, 0)))


# -- attention ---------------------------------------------------------------------------------


def attend(
    query: Any,
    key: Any,
    value: Any,
    embed_dim: int,
    num_heads: int,
    weights: AttentionWeights,
    *,
    add_zero_attn: bool = False,
    dropout_p: float = 0.0,
    key_padding_mask: Any = None,
    need_weights: bool = True,
    attn_mask: Any = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
    batch_first: bool = False,
    unseeing_is_nan: bool = False,
) -> tuple[Any, Any]:
    """The results of all queries, and the attention weights or None.

    A query that sees no key gets 0 from `scaled_dot_product_attention`, and NaN from softmax; with
    `unseeing_is_nan`, always NaN.
    """
    batched = _check_ranks(query, key, value, key_padding_mask, attn_mask, num_heads)
    if not batched:
        query, key, value = _all_with_batch((query, key, value), 0 if batch_first else 1)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    _check_mask(key_padding_mask, "key_padding_mask")
    _check_mask(attn_mask, "attn_mask")
    if is_causal and attn_mask is None:
        raise RuntimeError(
            "is_causal says what attn_mask holds, so give the mask too: "
            "Transformer.generate_square_subsequent_mask makes it"
        )
    # The hint replaces the mask only if no padding is masked and no weights are returned.
    hinted = is_causal and key_padding_mask is None and not need_weights
    separate = weights.separate is not None
    _check_sizes(query, key, value, embed_dim, num_heads, separate)
    length, batch = query._array.shape[:2][:: -1 if batch_first else 1]
    keys = key._array.shape[1 if batch_first else 0]

    q, k, v = _projected(query, key, value, weights)
    extra = 0
    if weights.bias_k is not None and weights.bias_v is not None:
        _require(
            weights.static_k is None and weights.static_v is None,
            "static_k and static_v leave no room for bias_k and bias_v",
        )
        k = _with_bias(k, weights.bias_k, batch_first)
        v = _with_bias(v, weights.bias_v, batch_first)
        extra += 1
    q = _in_heads(q, num_heads, batch_first)
    size = q._array.shape[-1]
    if weights.static_k is None:
        k = _in_heads(k, num_heads, batch_first)
    else:
        k = _given_heads(weights.static_k, "static_k", batch, num_heads, size)
    if weights.static_v is None:
        v = _in_heads(v, num_heads, batch_first)
    else:
        v = _given_heads(weights.static_v, "static_v", batch, num_heads, size)
    if add_zero_attn:
        k, v = _with_zeros(k), _with_zeros(v)
        extra += 1

    mask = None
    if attn_mask is not None and not hinted:
        mask = _attention_mask(attn_mask, batch, num_heads, length, keys)
        mask = _widened(mask, extra) if extra else mask
    if key_padding_mask is not None:
        # There may be another number of static keys.
        padding = _padding_mask(key_padding_mask, batch, k._array.shape[2] - extra)
        padding = _widened(padding, extra) if extra else padding
        mask = _joint_mask(mask, padding, query.dtype)

    if need_weights:
        out, seen = _attention_with_weights(q, k, v, mask, dropout_p)
        seen = seen.mean(dim=1) if average_attn_weights else seen
    else:
        visible = c.logical_not(mask) if mask is not None and mask.dtype is bool_ else mask
        if visible is not None and visible.dtype is not bool_:
            visible = _additive(visible, query.dtype)
        out = scaled_dot_product_attention(q, k, v, visible, dropout_p, hinted)
        seen = None
    order = (0, 2, 1, 3) if batch_first else (2, 0, 1, 3)
    lead = (batch, length) if batch_first else (length, batch)
    joined = reshape_(permute_(out, dims=order), shape=(*lead, embed_dim))
    result = linear(joined, weights.out_proj_weight, weights.out_proj_bias)
    if unseeing_is_nan and seen is None and mask is not None and mask.dtype is bool_:
        unseeing = mask.all(-1)
        unseeing = unseeing.any(1) if unseeing.ndim == 3 else unseeing  # in one of the heads
        result = c.where(unseeing.unsqueeze(-1), math.nan, result)
    if not batched:
        result = result.squeeze(0 if batch_first else 1)
        seen = None if seen is None else seen.squeeze(0)
    return result, seen


def _all_with_batch(tensors: tuple[Any, ...], dim: int) -> list[Any]:
    """Tensors with a batch of one; identical objects stay identical."""
    made = {id(x): x.unsqueeze(dim) for x in tensors}
    return [made[id(x)] for x in tensors]


def _attention_with_weights(q: Any, k: Any, v: Any, mask: Any, dropout_p: float) -> Any:
    scores = matmul(q * math.sqrt(1.0 / q._array.shape[-1]), swapped(k))
    if mask is not None:
        scores = scores + _additive(mask, scores.dtype)
    seen = softmax(scores, -1)
    seen = dropout(seen, dropout_p) if dropout_p > 0 else seen
    return matmul(seen, v), seen


def _small(*shape: int) -> In:
    return In(*shape, low=-0.6, high=0.6)


def _samples() -> list[Sample]:
    sizes, joint = (4, 2), (_small(12, 4), _small(12))
    last = (False, 0.0, _small(4, 4), _small(4))
    hidden = In(values=[[False, True, False], [False] * 3], kind="bool")
    return [
        Sample((3, 2, 4), (3, 2, 4), (3, 2, 4), *sizes, *joint, None, None, *last),
        Sample(
            *((2, 2, 4), (3, 2, 4), (3, 2, 4), *sizes, *joint, _small(1, 1, 4), _small(1, 1, 4)),
            *(True, *last[1:]),
            key_padding_mask=In(2, 3),
            attn_mask=In(2, 3),
            average_attn_weights=False,
        ),
        Sample(
            *((2, 4), (3, 5), (3, 3), *sizes, None, None, None, None, *last),
            use_separate_proj_weight=True,
            q_proj_weight=_small(4, 4),
            k_proj_weight=_small(4, 5),
            v_proj_weight=_small(4, 3),
            attn_mask=hidden,
        ),
        Sample(
            *((2, 2, 4), (3, 2, 4), (3, 2, 4), *sizes, *joint, None, None, *last),
            training=False,
            static_k=In(4, 3, 2),
            static_v=In(4, 3, 2),
            key_padding_mask=hidden,
        ),
    ]


@op(module="nn.functional", samples=_samples)
def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention of (length, batch, features) with several heads: (results, weights or None).

    `in_proj_weight` is (3 * features, features): the projections of queries, keys and values, in
    this order; `out_proj_weight` is (features, features). `attn_mask` is (queries, keys) or
    (batch * heads, queries, keys), `key_padding_mask` (batch, keys). Masks are True, or -inf, where
    a key is hidden. The weights are (batch, queries, keys), the mean over heads, or without
    `average_attn_weights` (batch, heads, queries, keys).

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> x, project, out = tapegrad.ones(5, 3, 4), tapegrad.ones(12, 4), tapegrad.ones(4, 4)
    >>> result, weights = F.multi_head_attention_forward(
    ...     x, x, x, 4, 2, project, None, None, None, False, 0.0, out, None
    ... )
    >>> result.shape, weights.shape
    (Size([5, 3, 4]), Size([3, 5, 5]))
    """
    separate = (q_proj_weight, k_proj_weight, v_proj_weight)
    for x, name in zip(separate, "qkv", strict=True):
        _require(
            x is not None or not use_separate_proj_weight,
            f"use_separate_proj_weight is True but {name}_proj_weight is None",
        )
    _require(
        use_separate_proj_weight or in_proj_weight is not None,
        "in_proj_weight is missing; without it, use_separate_proj_weight=True needs "
        "q_proj_weight, k_proj_weight and v_proj_weight",
    )
    weights = AttentionWeights(
        in_proj_weight,
        in_proj_bias,
        bias_k,
        bias_v,
        out_proj_weight,
        out_proj_bias,
        separate if use_separate_proj_weight else None,
        static_k,
        static_v,
    )
    return attend(
        query,
        key,
        value,
        embed_dim_to_check,
        num_heads,
        weights,
        add_zero_attn=add_zero_attn,
        dropout_p=dropout_p if training else 0.0,
        key_padding_mask=key_padding_mask,
        need_weights=need_weights,
        attn_mask=attn_mask,
        average_attn_weights=average_attn_weights,
        is_causal=is_causal,
    )
