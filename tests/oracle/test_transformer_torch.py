"""Attention and transformer layers against PyTorch's from the same state."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as TF
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch_oracle import assert_all_same, assert_same, to_torch

import tapegrad
from tapegrad import Tensor, nn
from tapegrad.nn import functional as F

RNG = np.random.default_rng(5)


def floats(*shape: int) -> Tensor:
    return tapegrad.tensor(RNG.normal(size=shape)).requires_grad_()


def hidden(*shape: int) -> Tensor:
    """A bool mask that hides some keys, and never the first."""
    mask = RNG.random(shape) < 0.4
    mask[..., 0] = False
    return tapegrad.tensor(mask)


def plain(x: Any) -> Any:
    return tapegrad.tensor(RNG.normal(size=x))


def pair(make: Any) -> tuple[Any, Any]:
    """The module that `make(nn)` builds in both libraries, with one state, in float64."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about nested tensors
        theirs = make(torch.nn).double()
    ours = make(nn).double()
    assert repr(ours) == repr(theirs)
    with torch.no_grad():
        for p in theirs.parameters():
            p.add_(torch.tensor(RNG.normal(size=tuple(p.shape)) * 0.1))
    state = {k: tapegrad.tensor(v.numpy()) for k, v in theirs.state_dict().items()}
    assert list(ours.state_dict()) == list(state)
    ours.load_state_dict(state)
    return ours, theirs


def check(ours: Any, theirs: Any, *args: Any, **options: Any) -> None:
    """Results, and gradients of everything."""
    kinds = {k: to_torch(v) for k, v in options.items()}
    made: dict[int, Any] = {}
    given = [made.setdefault(id(a), to_torch(a)) for a in args]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about masks of different types
        expected = theirs(*given, **kinds)
    got = ours(*args, **options)
    what = f"{theirs} {options}"
    pick = lambda x: [y for y in (x if isinstance(x, tuple) else (x,)) if y is not None]  # noqa: E731
    assert_all_same(pick(got), pick(expected), what)
    weights = [RNG.normal(size=tuple(y.shape)) for y in pick(expected)]
    terms = zip(pick(got), pick(expected), weights, strict=True)
    mine, other = 0.0, 0.0
    for a, b, w in terms:
        mine, other = mine + (a * tapegrad.tensor(w)).sum(), other + (b * torch.tensor(w)).sum()
    mine.backward()
    other.backward()
    inputs = zip([*args, *options.values()], [*given, *kinds.values()], strict=True)
    for x, y in inputs:
        if isinstance(x, Tensor) and x.requires_grad:
            assert_same(x.grad, y.grad, f"gradient of an input of {what}", 10.0)
    for x, y in zip([*args, *options.values()], [*given, *kinds.values()], strict=True):
        if isinstance(x, Tensor):
            x.grad = y.grad = None
    for (name, p), q in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        q = q[1]
        assert (p.grad is None) == (q.grad is None), name
        if q.grad is not None:
            assert_same(p.grad, q.grad, f"{name} of {what}", 10.0)
        p.grad = q.grad = None


LAYERS: list[dict[str, Any]] = [
    {},
    {"bias": False},
    {"batch_first": True},
    {"add_bias_kv": True},
    {"add_zero_attn": True},
    {"add_bias_kv": True, "add_zero_attn": True, "batch_first": True, "bias": False},
    {"kdim": 5, "vdim": 3},
    {"kdim": 5, "vdim": 3, "add_bias_kv": True, "batch_first": True},
]


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("options", LAYERS, ids=str)
def test_multihead_attention(options: dict[str, Any], need_weights: bool) -> None:
    ours, theirs = pair(lambda n: n.MultiheadAttention(8, 2, **options))
    widths = (8, ours.kdim, ours.vdim)
    lengths = (4, 6, 6)
    if ours.batch_first:
        given = [floats(3, n, w) for n, w in zip(lengths, widths, strict=True)]
    else:
        given = [floats(n, 3, w) for n, w in zip(lengths, widths, strict=True)]
    for masks in (
        {},
        {"attn_mask": hidden(4, 6)},
        {"attn_mask": hidden(6, 4, 6)},
        {"attn_mask": floats(4, 6), "key_padding_mask": plain((3, 6))},
        {"key_padding_mask": hidden(3, 6)},
        {"key_padding_mask": hidden(3, 6), "attn_mask": hidden(4, 6)},
        {"key_padding_mask": hidden(3, 6), "attn_mask": floats(6, 4, 6)},
        {"average_attn_weights": False, "key_padding_mask": hidden(3, 6)},
    ):
        check(ours, theirs, *given, need_weights=need_weights, **masks)
    alone = [floats(n, w) for n, w in zip(lengths, widths, strict=True)]
    check(ours, theirs, *alone, need_weights=need_weights)
    check(
        *(ours, theirs, *alone),
        need_weights=need_weights,
        attn_mask=hidden(2, 4, 6),
        key_padding_mask=hidden(6),
    )


@pytest.mark.parametrize("batch_first", [True, False])
def test_attention_of_one_tensor(batch_first: bool) -> None:
    ours, theirs = pair(lambda n: n.MultiheadAttention(8, 4, batch_first=batch_first))
    x, memory = floats(3, 5, 8), floats(3, 5, 8)
    size = 5 if batch_first else 3
    mask = nn.Transformer.generate_square_subsequent_mask(size, dtype=tapegrad.float64)
    for options in (
        {},
        {"attn_mask": mask, "is_causal": True, "need_weights": False},
        {"attn_mask": mask, "is_causal": True, "need_weights": True},
        {
            "attn_mask": mask,
            "is_causal": True,
            "need_weights": False,
            "key_padding_mask": hidden(8 - size, size),
        },
    ):
        check(ours, theirs, x, x, x, **options)
        check(ours, theirs, x, memory, memory, **options)


def test_hidden_rows() -> None:
    """Queries without keys: NaN where the weights are wanted, zeros where not, as in PyTorch."""
    ours, theirs = pair(lambda n: n.MultiheadAttention(4, 2))
    x = floats(3, 2, 4)
    padding = tapegrad.tensor([[True] * 3, [False, True, False]])
    for need in (True, False):
        got = ours(x, x, x, padding, need)[0]
        expected = theirs(*[to_torch(x)] * 3, to_torch(padding), need)[0]
        assert_same(got, expected, str(need))
        assert bool(got.isnan().any()) is need


def test_static_keys_and_values() -> None:
    q, k, v = floats(4, 3, 8), floats(6, 3, 8), floats(6, 3, 8)
    weights = [floats(24, 8), floats(24)]
    last = [floats(8, 8), floats(8)]
    function = "multi_head_attention_forward"
    arguments = (q, k, v, 8, 2, *weights, None, None, True, 0.0, *last)
    for options in (
        {"static_k": floats(6, 5, 4), "static_v": floats(6, 5, 4)},
        {
            "static_k": floats(6, 5, 4),
            "static_v": floats(6, 5, 4),
            "key_padding_mask": hidden(3, 5),
        },
        {"training": False, "need_weights": False},
    ):
        got = getattr(F, function)(*arguments, **options)
        expected = getattr(TF, function)(
            *map(to_torch, arguments), **{k: to_torch(v) for k, v in options.items()}
        )
        assert_all_same(
            [x for x in got if x is not None], [x for x in expected if x is not None], ""
        )


def test_a_mask_and_the_causal_flag() -> None:
    """Both hold where PyTorch takes both; float32 masks go with float64 and half precision."""
    q, k, v = (floats(2, 3, 5, 4) for _ in range(3))
    mask = ~hidden(5, 5)
    got = F.scaled_dot_product_attention(q, k, v, mask, is_causal=True)
    given = [to_torch(x) for x in (q, k, v)]
    expected = TF.scaled_dot_product_attention(*given, to_torch(mask), is_causal=True)
    assert_same(got, expected, "both")
    added = tapegrad.tensor(RNG.normal(size=(5, 5)).astype(np.float32))
    got = F.scaled_dot_product_attention(q, k, v, added)
    assert_same(got, TF.scaled_dot_product_attention(*given, to_torch(added)), "float32")
    halves = [x.detach().bfloat16() for x in (q, k, v)]
    got = F.scaled_dot_product_attention(*halves, added)
    expected = TF.scaled_dot_product_attention(*map(to_torch, halves), to_torch(added))
    assert_same(got, expected, "bfloat16")


BLOCKS: list[dict[str, Any]] = [
    {},
    {"norm_first": True},
    {"activation": "gelu", "batch_first": True},
    {"bias": False, "layer_norm_eps": 1e-3, "norm_first": True, "batch_first": True},
]


@pytest.mark.parametrize("options", BLOCKS, ids=str)
def test_encoder(options: dict[str, Any]) -> None:
    def make(n: Any) -> Any:
        layer = n.TransformerEncoderLayer(8, 2, 16, dropout=0.0, **options)
        return n.TransformerEncoder(layer, 2, n.LayerNorm(8))

    ours, theirs = pair(make)
    batch_first = options.get("batch_first", False)
    x = floats(3, 5, 8) if batch_first else floats(5, 3, 8)
    causal = nn.Transformer.generate_square_subsequent_mask(5, dtype=tapegrad.float64)
    for masks in (
        {},
        {"mask": causal},
        {"mask": causal, "is_causal": True},
        {"mask": hidden(5, 5), "src_key_padding_mask": hidden(3, 5)},
        {"src_key_padding_mask": hidden(3, 5)},
    ):
        check(ours, theirs, x, **masks)
    check(ours, theirs, floats(5, 8))
    ours.eval()
    theirs.eval()
    check(ours, theirs, x, mask=causal)


@pytest.mark.parametrize("options", BLOCKS, ids=str)
def test_decoder(options: dict[str, Any]) -> None:
    def make(n: Any) -> Any:
        layer = n.TransformerDecoderLayer(8, 2, 16, dropout=0.0, **options)
        return n.TransformerDecoder(layer, 2)

    ours, theirs = pair(make)
    batch_first = options.get("batch_first", False)
    x = floats(3, 5, 8) if batch_first else floats(5, 3, 8)
    memory = floats(3, 6, 8) if batch_first else floats(6, 3, 8)
    causal = nn.Transformer.generate_square_subsequent_mask(5, dtype=tapegrad.float64)
    for masks in (
        {},
        {"tgt_mask": causal, "tgt_is_causal": True},
        {"memory_mask": hidden(5, 6), "memory_key_padding_mask": hidden(3, 6)},
        {"tgt_key_padding_mask": hidden(3, 5), "tgt_mask": hidden(5, 5)},
    ):
        check(ours, theirs, x, memory, **masks)
    check(ours, theirs, floats(5, 8), floats(6, 8))


@pytest.mark.parametrize("options", BLOCKS, ids=str)
def test_transformer(options: dict[str, Any]) -> None:
    ours, theirs = pair(lambda n: n.Transformer(8, 2, 1, 2, 16, 0.0, **options))
    first = options.get("batch_first", False)
    source = floats(3, 5, 8) if first else floats(5, 3, 8)
    target = floats(3, 4, 8) if first else floats(4, 3, 8)
    causal = nn.Transformer.generate_square_subsequent_mask(4, dtype=tapegrad.float64)
    check(ours, theirs, source, target)
    check(
        *(ours, theirs, source, target),
        tgt_mask=causal,
        src_key_padding_mask=hidden(3, 5),
        memory_key_padding_mask=hidden(3, 5),
    )


def test_square_masks() -> None:
    for size in (1, 4):
        mask = nn.Transformer.generate_square_subsequent_mask(size)
        assert_same(mask, torch.nn.Transformer.generate_square_subsequent_mask(size), "mask")


def test_activations_of_layers() -> None:
    ours, theirs = pair(lambda n: n.TransformerEncoderLayer(8, 2, 16, 0.0, n.SiLU()))
    check(ours, theirs, floats(5, 3, 8))
    mine = nn.TransformerEncoderLayer(8, 2, 16, 0.0, lambda x: x.tanh()).double()
    other = torch.nn.TransformerEncoderLayer(8, 2, 16, 0.0, lambda x: x.tanh()).double()
    mine.load_state_dict({k: tapegrad.tensor(v.numpy()) for k, v in other.state_dict().items()})
    check(mine, other, floats(5, 3, 8))


def test_second_derivatives() -> None:
    ours, theirs = pair(lambda n: n.TransformerEncoderLayer(4, 2, 6, 0.0, "gelu"))
    x = floats(3, 2, 4)
    y = to_torch(x)
    (g,) = tapegrad.autograd.grad(ours(x).pow(3).sum(), x, create_graph=True)
    with sdpa_kernel(SDPBackend.MATH):  # the others have one derivative only
        (h,) = torch.autograd.grad(theirs(y).pow(3).sum(), y, create_graph=True)
    g.pow(2).sum().backward()
    h.pow(2).sum().backward()
    assert_same(x.grad, y.grad, "second derivative", 100.0)
