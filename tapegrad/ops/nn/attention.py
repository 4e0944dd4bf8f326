"""Attention: the public function, which chooses how to compute softmax(q k^T * scale + mask) v.

Comes in: the user's tensors; it checks them and makes their leading dimensions equal. Goes out: a
tensor. Long sequences are computed in tiles (`tiled_attention.py`), others with all scores at once
(`whole_attention.py`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core.dtypes import bool_, float32
from ...core.modes import STATE, TRANSFORM
from ...core.tensor import Tensor
from ..checks import constant
from ..drawing import random_array, reserved_state
from ..elementwise.comparison import greater_equal
from ..linalg.matmul import matmul_
from ..precision import check_floating, check_same_dtype, is_half
from ..shape.expanding import expand_
from ..shape.reordering import swapped
from ..shape.reshaping import reshape_
from ..table import In, Sample, op
from .tiled_attention import tiled_attention_
from .whole_attention import attention_

#: fewest scores of all heads for tiles. Backward recomputes the scores of each tile, so there are 7
#: products instead of 6. Tiles are faster if whole matrices do not fit into the caches: on two
#: cores with 32 MB, heads of 64 features take 1.3 times as long in tiles at 2 million scores, as
#: long at 8 million, 0.9 times as long at 16 million; causal ones 1.1, 0.9 and 0.75 times.
MIN_SCORES_FOR_TILES = 1 << 23
#: fewest scores of one head for tiles: a tile has 128 queries, and short sequences fill few tiles
MIN_HEAD_SCORES_FOR_TILES = 1 << 18


def _spread_heads(x: Any, heads: int) -> Any:
    """Repeat each head of keys or values for the group of query heads that shares it."""
    *lead, own, length, size = x._array.shape
    grouped = reshape_(x, shape=(*lead, own, 1, length, size))
    wide = expand_(grouped, shape=(*lead, own, heads // own, length, size))
    return reshape_(wide, shape=(*lead, heads, length, size))


def _check(query: Any, key: Any, value: Any, dropout_p: float) -> None:
    what = "scaled_dot_product_attention"
    check_floating(query, what)
    check_same_dtype(what, query, key=key, value=value)
    shapes = [tuple(x._array.shape) for x in (query, key, value)]
    if min(map(len, shapes)) < 2:
        raise RuntimeError(f"{what} needs tensors (..., length, features), got shapes {shapes}")
    if shapes[0][-1] != shapes[1][-1]:
        raise RuntimeError(f"{what}: query and key have different features: {shapes[:2]}")
    if shapes[1][-2] != shapes[2][-2]:
        raise RuntimeError(f"{what}: key and value have different lengths: {shapes[1:]}")
    if not 0.0 <= dropout_p <= 1.0:
        raise RuntimeError(f"{what}: dropout_p must lie between 0 and 1, got {dropout_p}")


def _fitting(mask: Any, query: Any) -> Any:
    """A mask checked for a dtype that fits the queries: bool, theirs, or float32."""
    if mask is None or mask.dtype in (bool_, query.dtype):
        return mask
    if mask.dtype is not float32:
        raise RuntimeError(
            "scaled_dot_product_attention: attn_mask must be bool, float32 or of the query's dtype "
            f"{query.dtype}, got {mask.dtype}"
        )
    return mask if is_half(query) else mask.to(query.dtype)


@op(
    module="nn.functional",
    samples=lambda: [
        Sample((2, 3, 4), (2, 5, 4), (2, 5, 2)),
        Sample((2, 2, 3, 4), (2, 2, 3, 4), (2, 2, 3, 4), is_causal=True),
        Sample((2, 3, 4), (2, 3, 4), (2, 3, 4), (3, 3), scale=0.3),
        Sample(
            (2, 4, 3),
            (2, 4, 3),
            (2, 4, 3),
            In(
                values=[[True, False, False, True], [True] * 4, [False] * 4, [False, True] * 2],
                kind="bool",
            ),
        ),
        Sample((1, 4, 2, 3), (1, 2, 2, 3), (1, 2, 2, 3), enable_gqa=True),
    ],
    autocast="lower",
)
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """softmax(query @ key^T * scale + mask) @ value.

    `query` is (batch, heads, queries, features), `key` (batch, heads, keys, features), `value`
    (batch, heads, keys, value features), the result (batch, heads, queries, value features).
    `scale` is 1 / sqrt(features) if it is not given.

    A bool mask is True where a query may attend to a key; a floating mask is added to the scores.
    With `is_causal` a query attends to no key after it, in addition to what the mask says. A query
    without any key gets zeros. `enable_gqa` lets several query heads share one head of keys and
    values.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> query = key = tapegrad.zeros(1, 1, 2, 4)
    >>> value = tapegrad.tensor([[[[2.0], [4.0]]]])
    >>> F.scaled_dot_product_attention(query, key, value, is_causal=True)
    tensor([[[[2.],
              [3.]]]])
    """
    _check(query, key, value, dropout_p)
    attn_mask = _fitting(attn_mask, query)
    if enable_gqa:
        key, value = _shared_heads(query, key, value)
    lead = _common_batch(query, key, value)
    q, k, v = (
        x if x._array.shape[:-2] == lead else expand_(x, shape=(*lead, *x._array.shape[-2:]))
        for x in (query, key, value)
    )
    if scale is None:
        factor = 1.0 / math.sqrt(max(q._array.shape[-1], 1))
    else:
        factor = constant(scale, "scaled_dot_product_attention: scale")
    scores = (*lead, q._array.shape[-2], k._array.shape[-2])
    _check_mask(attn_mask, scores)
    if k._array.shape[-2] == 0:
        return matmul_(matmul_(q, swapped(k)), v)  # empty sums
    options = {"scale": factor, "causal": bool(is_causal), "dropout": float(dropout_p)}
    # Tiles draw dropout on the fly, not once per example or once for all as vmap may require.
    if _is_tiled(q, k, v, attn_mask, dropout_p) and not (dropout_p and STATE.mode & TRANSFORM):
        state = reserved_state(math.prod(scores)) if dropout_p else None
        return tiled_attention_(q, k, v, attn_mask, state, **options, safe=True)[0]
    kept = None
    if dropout_p:
        drawn = random_array("uniform", scores, np.float32, device=query.device)
        kept = greater_equal(drawn, float(dropout_p))
    return attention_(q, k, v, attn_mask, kept, **options)[0]


def _is_tiled(q: Any, k: Any, v: Any, mask: Any, dropout: float) -> bool:
    """Whether to compute in tiles; on a GPU, whether a library supports such attention."""
    shapes = [tuple(x._array.shape) for x in (q, k, v)]
    if isinstance(q._array, np.ndarray):
        return tiles_pay(*shapes)
    plain = mask is None and not dropout and q._array.ndim == 4
    features = {shape[-1] for shape in shapes}
    # Other sizes are untested or fail: a step with 8 features and 8 keys ended with an illegal
    # address (cuDNN 9.19), and one with 64 features and 1,024 keys is right.
    known = features in ({64}, {128}) and all(shape[-2] % 128 == 0 for shape in shapes)
    return plain and known and is_half(q) and all(map(math.prod, shapes))


def tile_thresholds() -> tuple[int, int]:
    """The fewest scores of all heads, and of one head, for attention in tiles."""
    return MIN_SCORES_FOR_TILES, MIN_HEAD_SCORES_FOR_TILES


def tiles_pay(q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...]) -> bool:
    """Whether attention of queries, keys and values of these shapes is computed in tiles."""
    scores = q[-2] * k[-2]
    return (
        q[-1] > 0
        and math.prod(v) > 0
        and scores >= MIN_HEAD_SCORES_FOR_TILES
        and scores * math.prod(q[:-2]) >= MIN_SCORES_FOR_TILES
    )


def _shared_heads(query: Any, key: Any, value: Any) -> tuple[Any, Any]:
    if min(x._array.ndim for x in (query, key, value)) < 3:
        raise RuntimeError("enable_gqa needs tensors (..., heads, length, features)")
    heads = query._array.shape[-3]
    for name, x in (("key", key), ("value", value)):
        if heads % x._array.shape[-3]:
            raise RuntimeError(
                f"enable_gqa: the {heads} query heads are no multiple of the {x._array.shape[-3]} "
                f"heads of the {name}"
            )
    return _spread_heads(key, heads), _spread_heads(value, heads)


def _common_batch(*tensors: Any) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*[x._array.shape[:-2] for x in tensors])
    except ValueError:
        shown = ", ".join(str(tuple(x.shape)) for x in tensors)
        raise RuntimeError(
            f"scaled_dot_product_attention: the leading dimensions of {shown} do not broadcast"
        ) from None


def _check_mask(mask: Any, shape: tuple[int, ...]) -> None:
    if mask is None:
        return
    try:
        fits = np.broadcast_shapes(mask._array.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise RuntimeError(
            f"scaled_dot_product_attention: attn_mask of shape {tuple(mask.shape)} does not "
            f"broadcast to the scores {shape}"
        )
