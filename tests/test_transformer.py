"""Attention and transformer layers: compiled equals eager, masks, initialisation, errors."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import pytest
from replaying import callbacks, close, randn, replayed

import tapegrad as tg
from tapegrad import nn
from tapegrad.nn import functional as F


def trains_compiled(model: Any, *inputs: Any) -> None:
    """Steps of training, compiled and eager, go the same way, and down."""
    other = copy.deepcopy(model)

    def step(model: Any, optimizer: Any, *inputs: Any) -> Any:
        optimizer.zero_grad()
        out = model(*inputs)
        loss = (out[0] if isinstance(out, tuple) else out).sub(0.3).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    optimizers = [tg.optim.SGD(m.parameters(), 0.05) for m in (model, other)]
    compiled = tg.compile(step)
    losses = []
    for _ in range(5):
        expected = step(model, optimizers[0], *inputs)
        got = compiled(other, optimizers[1], *inputs)
        close(got, expected)
        losses.append(float(got))
    assert losses[-1] < losses[0]
    assert replayed(compiled) == 3
    assert callbacks(compiled) == []
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        close(p, q)


@pytest.mark.parametrize(
    "options",
    [{}, {"batch_first": True, "add_bias_kv": True, "add_zero_attn": True}, {"kdim": 8, "vdim": 6}],
    ids=str,
)
def test_compiled_attention(options: dict[str, Any]) -> None:
    tg.manual_seed(0)
    layer = nn.MultiheadAttention(8, 2, **options)
    trains_compiled(layer, randn(4, 3, 8), randn(4, 3, 8), randn(4, 3, layer.vdim))


@pytest.mark.parametrize("norm_first", [True, False])
def test_compiled_transformer(norm_first: bool) -> None:
    tg.manual_seed(0)
    model = nn.Transformer(8, 2, 1, 1, 16, 0.0, batch_first=True, norm_first=norm_first)
    mask = nn.Transformer.generate_square_subsequent_mask(4)
    trains_compiled(model, randn(3, 5, 8), randn(3, 4, 8), None, mask)


def test_compiled_encoder_with_padding() -> None:
    tg.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, "gelu", batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    padding = tg.tensor([[False] * 5, [False] * 3 + [True] * 2])
    trains_compiled(model, randn(2, 5, 8), None, padding)


def test_hidden_keys_do_not_matter() -> None:
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    q, k = randn(2, 3, 8), randn(2, 5, 8)
    padding = tg.tensor([[False] * 3 + [True] * 2] * 2)
    for need in (True, False):
        got, weights = layer(q, k, k, key_padding_mask=padding, need_weights=need)
        expected, _ = layer(q, k[:, :3], k[:, :3])
        close(got, expected)
        assert (weights is None) is not need
    other = k.clone()
    other[:, 3:] = 100.0
    close(layer(q, other, other, key_padding_mask=padding)[0], expected)


def test_a_causal_encoder_does_not_look_ahead() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 2)
    x = randn(2, 6, 8)
    mask = nn.Transformer.generate_square_subsequent_mask(6)
    close(model(x, mask)[:, :4], model(x[:, :4], mask[:4, :4]))
    close(model(x, mask, is_causal=True), model(x, mask))
    close(model(x, mask.isinf()), model(x, mask))


def test_dropout_of_weights() -> None:
    layer = nn.MultiheadAttention(8, 2, dropout=0.5)
    x = randn(6, 2, 8)
    for need in (True, False):
        tg.manual_seed(0)
        first = layer(x, x, x, need_weights=need)[0]
        assert not tg.equal(first, layer(x, x, x, need_weights=need)[0])
        tg.manual_seed(0)
        assert tg.equal(first, layer(x, x, x, need_weights=need)[0])
    weights = layer(x, x, x, average_attn_weights=False)[1]
    share = float((weights == 0).float().mean())
    assert 0.3 < share < 0.7
    layer.eval()
    close(layer(x, x, x)[0], layer(x, x, x, need_weights=False)[0])
    close(layer(x, x, x)[1].sum(-1), tg.ones(2, 6))


def test_dropout_of_attention_keeps_the_mean() -> None:
    q, k = tg.zeros(1, 1, 4), tg.zeros(1, 400, 4)
    v = tg.ones(1, 400, 64)
    tg.manual_seed(0)
    out = F.scaled_dot_product_attention(q, k, v, dropout_p=0.3)
    assert abs(float(out.mean()) - 1) < 0.15
    assert F.scaled_dot_product_attention(q, k, v, dropout_p=1.0).abs().max() == 0
    half = F.scaled_dot_product_attention(*[x.half() for x in (q, k, v)], dropout_p=0.3)
    assert half.dtype is tg.float16


def test_initialisation() -> None:
    layer = nn.MultiheadAttention(64, 4, add_bias_kv=True)
    bound = math.sqrt(6 / (64 + 192))
    assert 0.99 * bound < float(layer.in_proj_weight.abs().max()) <= bound
    assert float(layer.in_proj_bias.abs().max()) == 0
    assert float(layer.out_proj.bias.abs().max()) == 0
    assert float(layer.out_proj.weight.abs().max()) <= 1 / 8
    assert abs(float(layer.bias_k.std()) - math.sqrt(2 / 128)) < 0.05
    model = nn.Transformer(16, 2, 1, 1, 32)
    bound = math.sqrt(6 / 48)
    assert float(model.encoder.layers[0].linear1.weight.abs().max()) <= bound
    assert float(model.encoder.layers[0].linear1.weight.abs().max()) > 0.97 * bound
    first, second = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2), 2).layers
    assert tg.equal(first.linear1.weight, second.linear1.weight)
    assert first.linear1.weight is not second.linear1.weight


def test_layers_are_copied_and_pickled() -> None:
    model = nn.Transformer(8, 2, 1, 1, 16, 0.0)
    x, y = randn(5, 2, 8), randn(4, 2, 8)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        close(other(x, y), model(x, y))
    other = nn.Transformer(8, 2, 1, 1, 16, 0.0)
    assert str(other.load_state_dict(model.state_dict())) == "<All keys matched successfully>"
    close(other(x, y), model(x, y))


def test_custom_encoder() -> None:
    model = nn.Transformer(
        8,
        2,
        1,
        1,
        16,
        custom_encoder=nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 3),
    )
    assert len(model.encoder.layers) == 3


def test_errors_of_attention() -> None:
    layer, q, k = nn.MultiheadAttention(8, 2), randn(5, 3, 8), randn(7, 3, 8)
    for arguments, options, error, text in (
        ((q, k, q), {}, AssertionError, "must have the same shape"),
        ((q[..., :4], k, k), {}, AssertionError, "8 features, got 4"),
        ((q, k, k), {"attn_mask": tg.zeros(5, 5)}, RuntimeError, r"must have the shape \(5, 7\)"),
        (
            (q, k, k),
            {"attn_mask": tg.zeros(2, 5, 7)},
            RuntimeError,
            r"must have the shape \(6, 5, 7\)",
        ),
        ((q, k, k), {"attn_mask": tg.zeros(1, 1, 5, 7)}, AssertionError, "2 or 3 dimensions"),
        ((q, k, k), {"attn_mask": tg.zeros(5, 7).long()}, AssertionError, "bool or floating"),
        ((q, k, k), {"key_padding_mask": tg.zeros(3, 5).bool()}, AssertionError, "7 columns"),
        (
            (q, k, k),
            {"key_padding_mask": tg.zeros(7).bool()},
            AssertionError,
            "must have 2 dimensions",
        ),
        ((q, k, k), {"is_causal": True}, RuntimeError, "give the mask"),
        ((q[:, 0], k, k), {}, AssertionError, "must have 2 dimensions"),
        ((q[0, 0], k, k), {}, AssertionError, "got 1 dimensions"),
        ((q, k.double(), k.double()), {}, RuntimeError, "one dtype"),
    ):
        with pytest.raises(error, match=text):
            layer(*arguments, **options)
    with pytest.raises(AssertionError, match="a multiple of num_heads"):
        nn.MultiheadAttention(8, 3)
    with pytest.raises(ValueError, match="at least 1"):
        nn.MultiheadAttention(8, 0)
    with pytest.raises(AssertionError, match="k_proj_weight is None"):
        F.multi_head_attention_forward(
            *(q, k, k, 8, 2, None, None, None, None, False, 0.0, tg.ones(8, 8), None),
            use_separate_proj_weight=True,
            q_proj_weight=tg.ones(8, 8),
        )


def test_errors_of_transformers() -> None:
    model, q, k = nn.Transformer(8, 2, 1, 1, 16), randn(5, 3, 8), randn(7, 3, 8)
    with pytest.raises(RuntimeError, match="batch size"):
        model(q, k[:, :2])
    with pytest.raises(RuntimeError, match="features"):
        model(q[..., :4], k)
    with pytest.raises(RuntimeError, match="'relu', 'gelu'"):
        nn.TransformerEncoderLayer(8, 2, 16, activation="tanh")
