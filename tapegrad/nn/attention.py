"""MultiheadAttention: the parameters of an attention layer around `ops/nn/multihead.py`.

`sdpa_kernel` is accepted for PyTorch code that chooses an attention kernel; here is only one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from ..core.modes import AUTOCAST, GRAD, STATE
from ..ops.nn.multihead import AttentionWeights, attend
from . import init
from .linear import Linear, new_parameter
from .module import Module
from .parameter import Parameter

if TYPE_CHECKING:
    from ..core.tensor import Tensor
    from ..ops.annotations import DeviceLike, DTypeLike


class NonDynamicallyQuantizableLinear(Linear):
    """The output projection, under the class name that PyTorch shows for it."""


class MultiheadAttention(Module):
    """Attention with several heads over (length, batch, features), or (batch, length, features).

    Masks are True, or -inf, where a key is hidden.

    >>> import tapegrad
    >>> layer = tapegrad.nn.MultiheadAttention(8, num_heads=2, batch_first=True)
    >>> x = tapegrad.ones(3, 5, 8)
    >>> out, weights = layer(x, x, x)
    >>> out.shape, weights.shape
    (Size([3, 5, 8]), Size([3, 5, 5]))
    """

    in_proj_weight: Parameter | None
    q_proj_weight: Parameter | None
    k_proj_weight: Parameter | None
    v_proj_weight: Parameter | None
    in_proj_bias: Parameter | None
    bias_k: Parameter | None
    bias_v: Parameter | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                f"embed_dim and num_heads must be at least 1, got {embed_dim} and {num_heads}"
            )
        if embed_dim % num_heads:
            raise AssertionError(
                f"embed_dim must be a multiple of num_heads, got {embed_dim} and {num_heads}"
            )
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        self.add_zero_attn = add_zero_attn
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        widths = {"q": embed_dim, "k": self.kdim, "v": self.vdim}
        if self._qkv_same_embed_dim:
            self.in_proj_weight = new_parameter(3 * embed_dim, embed_dim, **options)
            for name in widths:
                self.register_parameter(f"{name}_proj_weight", None)
        else:
            for name, width in widths.items():
                weight = new_parameter(embed_dim, width, **options)
                self.register_parameter(f"{name}_proj_weight", weight)
            self.register_parameter("in_proj_weight", None)
        self.register_parameter(
            "in_proj_bias", new_parameter(3 * embed_dim, **options) if bias else None
        )
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias, **options)
        for name in ("bias_k", "bias_v"):
            row = new_parameter(1, 1, embed_dim, **options) if add_bias_kv else None
            self.register_parameter(name, row)
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        """Xavier uniform for input projections, Xavier normal for bias_k and bias_v, else 0."""
        names = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")
        for weight in (getattr(self, name) for name in names):
            if weight is not None:
                init.xavier_uniform_(weight)
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                init.zeros_(bias)
        for row in (self.bias_k, self.bias_v):
            if row is not None:
                init.xavier_normal_(row)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The results of all queries, and the attention weights or None."""
        separate = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        weights = AttentionWeights(
            self.in_proj_weight,
            self.in_proj_bias,
            self.bias_k,
            self.bias_v,
            self.out_proj.weight,
            self.out_proj.bias,
            None if self._qkv_same_embed_dim else separate,
        )
        return attend(
            query,
            key,
            value,
            self.embed_dim,
            self.num_heads,
            weights,
            add_zero_attn=self.add_zero_attn,
            dropout_p=self.dropout if self.training else 0.0,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
            batch_first=self.batch_first and query.ndim == 3,
            unseeing_is_nan=self._is_fast(query, key, value),
        )

    def _is_fast(self, query: Tensor, key: Tensor, value: Tensor) -> bool:
        """Whether PyTorch takes its fast path here, in which a query without keys gets NaN."""
        if self.training or not self.batch_first or query.ndim != 3 or self.num_heads % 2:
            return False
        if query is not key or key is not value or self.in_proj_weight is None:
            return False
        if self.bias_k is not None or self.add_zero_attn or STATE.mode & AUTOCAST:
            return False
        return not (STATE.mode & GRAD and any(t.requires_grad for t in (query, *self.parameters())))


class SDPBackend(IntEnum):
    """Attention kernels of PyTorch."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextmanager
def sdpa_kernel(backends: Any, set_priority: bool = False) -> Iterator[None]:
    """Accept a choice of kernels; without effect, because there is only one here."""
    for backend in backends if isinstance(backends, (list, tuple, set)) else [backends]:
        if not isinstance(backend, SDPBackend):
            raise TypeError(f"sdpa_kernel needs an SDPBackend, got {type(backend).__name__}")
    yield
