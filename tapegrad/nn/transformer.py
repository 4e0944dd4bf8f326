"""Transformer, its encoder and decoder, and their layers.

Comes in: sequences of vectors, and masks. Goes out: sequences of vectors. Masks are those of
`MultiheadAttention`: True, or -inf, where a key is hidden.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..core.dtypes import bool_
from ..core.modes import AUTOCAST, GRAD, STATE
from ..ops.creation import CREATION
from ..ops.elementwise.comparison import where_ as where
from . import functional as F
from . import init
from .attention import MultiheadAttention
from .containers import ModuleList
from .embedding import Dropout
from .linear import Linear
from .module import Module
from .norm import LayerNorm

if TYPE_CHECKING:
    from ..core.tensor import Tensor
    from ..ops.annotations import DeviceLike, DTypeLike

Activation = Callable[[Any], Any]

_relu: Activation = F.relu


def _square_mask(size: int, device: Any = None, dtype: Any = None) -> Any:
    """-inf above the diagonal and 0 elsewhere: no position attends to a later one."""
    full = CREATION["full"]((size, size), -math.inf, device=device, dtype=dtype)
    return full.triu(1)


def _activation(given: str | Activation) -> Activation:
    if not isinstance(given, str):
        return given
    if given not in ("relu", "gelu"):
        raise RuntimeError(f"activation must be 'relu', 'gelu' or a function, got {given!r}")
    function: Activation = getattr(F, given)
    return function


def _copies(layer: Module, count: int) -> ModuleList:
    return ModuleList([copy.deepcopy(layer) for _ in range(count)])


class _Layer(Module):
    """Base of the layers of encoders and decoders: attention to itself, and a small network."""

    attends_memory: bool
    norm1: LayerNorm
    norm2: LayerNorm
    norm3: LayerNorm
    dropout1: Dropout
    dropout2: Dropout
    dropout3: Dropout

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Activation = _relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        places: dict[str, Any] = {"device": device, "dtype": dtype}
        heads: dict[str, Any] = {
            "dropout": dropout,
            "bias": bias,
            "batch_first": batch_first,
            **places,
        }
        self.self_attn = MultiheadAttention(d_model, nhead, **heads)
        if self.attends_memory:
            self.multihead_attn = MultiheadAttention(d_model, nhead, **heads)
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **places)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **places)
        self.norm_first = norm_first
        count = 3 if self.attends_memory else 2
        for i in range(1, count + 1):
            norm = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **places)
            self.add_module(f"norm{i}", norm)
        for i in range(1, count + 1):
            self.add_module(f"dropout{i}", Dropout(dropout))
        self.activation = _activation(activation)

    def _sa_block(self, x: Any, attn_mask: Any, padding: Any, is_causal: bool = False) -> Tensor:
        """Self-attention."""
        x = self.self_attn(
            x,
            x,
            x,
            attn_mask=attn_mask,
            key_padding_mask=padding,
            need_weights=False,
            is_causal=is_causal,
        )[0]
        return self.dropout1(x)

    def _network(self, x: Tensor) -> Tensor:
        """The feed-forward network, at each position."""
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


class TransformerEncoderLayer(_Layer):
    """Self-attention, then a feed-forward network, each with a residual connection.

    >>> import tapegrad
    >>> layer = tapegrad.nn.TransformerEncoderLayer(8, nhead=2, batch_first=True)
    >>> layer(tapegrad.ones(3, 5, 8)).shape
    Size([3, 5, 8])
    """

    attends_memory = False

    def _ff_block(self, x: Tensor) -> Tensor:
        return self.dropout2(self._network(x))

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        x = src
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), src_mask, src_key_padding_mask, is_causal)
            return x + self._ff_block(self.norm2(x))
        x = self.norm1(x + self._sa_block(x, src_mask, src_key_padding_mask, is_causal))
        return self.norm2(x + self._ff_block(x))


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to an encoder's results, then a feed-forward network."""

    attends_memory = True

    def _mha_block(
        self, x: Any, mem: Any, attn_mask: Any, padding: Any, is_causal: bool = False
    ) -> Tensor:
        """Attention to the encoder's results."""
        x = self.multihead_attn(
            x,
            mem,
            mem,
            attn_mask=attn_mask,
            key_padding_mask=padding,
            need_weights=False,
            is_causal=is_causal,
        )[0]
        return self.dropout2(x)

    def _ff_block(self, x: Tensor) -> Tensor:
        return self.dropout3(self._network(x))

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        x = tgt
        own = (tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        other = (memory, memory_mask, memory_key_padding_mask, memory_is_causal)
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), *own)
            x = x + self._mha_block(self.norm2(x), *other)
            return x + self._ff_block(self.norm3(x))
        x = self.norm1(x + self._sa_block(x, *own))
        x = self.norm2(x + self._mha_block(x, *other))
        return self.norm3(x + self._ff_block(x))


class TransformerEncoder(Module):
    """Copies of an encoder layer, one after the other, then a norm if one is given.

    In evaluation without gradients, padded positions are 0 wherever PyTorch would use nested
    tensors (`enable_nested_tensor`), which are not needed here. Masks are used as they are, so
    `is_causal` has no effect.
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = _copies(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm
        self.enable_nested_tensor = enable_nested_tensor
        self.use_nested_tensor = enable_nested_tensor and _can_be_nested(encoder_layer)
        self.mask_check = mask_check

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        x = src
        for layer in self.layers:
            x = layer(
                x,
                src_mask=mask,
                is_causal=bool(is_causal),
                src_key_padding_mask=src_key_padding_mask,
            )
        if src_key_padding_mask is not None and mask is None and self._is_nested(src):
            x = _emptied(x, src_key_padding_mask, self.mask_check)
        return x if self.norm is None else self.norm(x)

    def _is_nested(self, src: Tensor) -> bool:
        """Whether PyTorch would use nested tensors here, which have no padded positions."""
        if not self.use_nested_tensor or src.ndim != 3 or STATE.mode & AUTOCAST:
            return False
        layer = self.layers[0]
        grad = STATE.mode & GRAD
        return not layer.training and not (
            grad and any(t.requires_grad for t in (src, *layer.parameters()))
        )


def _emptied(x: Any, padding: Any, mask_check: bool) -> Any:
    """Set padded positions to 0; with `mask_check`, only if all padding is at the ends."""
    hidden = padding if padding.dtype is bool_ else padding == -math.inf
    if mask_check:
        aligned = (hidden[:, 1:] | ~hidden[:, :-1]).all()
        hidden = hidden & aligned
    return where(hidden.unsqueeze(-1), 0.0, x)


def _can_be_nested(layer: Module) -> bool:
    """Whether PyTorch runs a layer on nested tensors."""
    if not isinstance(layer, TransformerEncoderLayer) or layer.norm_first:
        return False
    attention = layer.self_attn
    return (
        attention.batch_first
        and attention._qkv_same_embed_dim
        and attention.in_proj_bias is not None
        and layer.activation in (F.relu, F.gelu)
        and layer.norm1.eps == layer.norm2.eps
        and attention.num_heads % 2 == 0
    )


class TransformerDecoder(Module):
    """Copies of a decoder layer, one after the other, then a norm if one is given."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = _copies(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        x = tgt
        for layer in self.layers:
            x = layer(
                x,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=bool(tgt_is_causal),
                memory_is_causal=memory_is_causal,
            )
        return x if self.norm is None else self.norm(x)


class Transformer(Module):
    """An encoder of one sequence and a decoder of another, which attends to the encoder's results.

    >>> import tapegrad
    >>> model = tapegrad.nn.Transformer(8, 2, 1, 1, 16)
    >>> model(tapegrad.ones(5, 3, 8), tapegrad.ones(4, 3, 8)).shape
    Size([4, 3, 8])
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Activation = _relu,
        custom_encoder: Any = None,
        custom_decoder: Any = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        places: dict[str, Any] = {"device": device, "dtype": dtype}
        options: Any = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps)
        rest: Any = (batch_first, norm_first, bias)

        def norm() -> LayerNorm:
            return LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **places)

        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*options, *rest, **places), num_encoder_layers, norm()
        )
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*options, *rest, **places), num_decoder_layers, norm()
        )
        self._reset_parameters()
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first

    def _reset_parameters(self) -> None:
        """Xavier's uniform for all matrices."""
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Any:
        """-inf above the diagonal and 0 elsewhere: no position attends to a later one."""
        return _square_mask(sz, device, dtype)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        if src.ndim == 3 and tgt.ndim == 3:
            batch = 0 if self.batch_first else 1
            if src.shape[batch] != tgt.shape[batch]:
                raise RuntimeError(
                    f"src and tgt must have the same batch size, got {src.shape[batch]} and "
                    f"{tgt.shape[batch]}"
                )
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise RuntimeError(
                f"src and tgt must have d_model = {self.d_model} features, got {src.shape[-1]} "
                f"and {tgt.shape[-1]}"
            )
        memory = self.encoder(
            src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal
        )
        return self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )
