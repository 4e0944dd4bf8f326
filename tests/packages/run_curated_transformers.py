"""curated-transformers: encoders and decoders of its own families, caches, generation."""

import torch
from common import data, finish, prepared, record, record_step
from curated_transformers.layers import AttentionMask
from curated_transformers.models import (
    ALBERTConfig,
    ALBERTEncoder,
    BERTConfig,
    BERTEncoder,
    GPTNeoXCausalLM,
    GPTNeoXConfig,
    LlamaCausalLM,
    LlamaConfig,
    RoBERTaConfig,
    RoBERTaEncoder,
)

torch.set_default_dtype(torch.float64)
ids = data(2, 6, high=40)
mask = torch.ones(2, 6, dtype=torch.bool)
mask[1, 4:] = False
small = {
    "hidden_width": 16,
    "intermediate_width": 32,
    "n_hidden_layers": 2,
    "n_pieces": 40,
    "dtype": torch.float64,
}
encoder = {**small, "n_attention_heads": 4, "n_positions": 32}
encoder |= {"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}
for kind, config in (
    (BERTEncoder, BERTConfig(embedding_width=16, **encoder)),
    (RoBERTaEncoder, RoBERTaConfig(embedding_width=16, padding_id=1, **encoder)),
    (ALBERTEncoder, ALBERTConfig(embedding_width=8, n_hidden_groups=1, **encoder)),
):
    model = prepared(kind(config)).eval()
    output = model(ids, AttentionMask(mask))
    record(f"{kind.__name__}.all", output.all_outputs)
    record_step(kind.__name__, model, output.last_hidden_layer_state)

decoder = {**small, "attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}
rotary = {"rotary_embedding_base": 10000, "rotary_embedding_fraction": 1.0}
for kind, config in (
    (
        LlamaCausalLM,
        LlamaConfig(n_query_heads=4, n_key_value_heads=2, rms_norm_eps=1e-5, **rotary, **decoder),
    ),
    (
        GPTNeoXCausalLM,
        GPTNeoXConfig(n_attention_heads=4, layer_norm_eps=1e-5, **rotary, **decoder),
    ),
):
    model = prepared(kind(config)).eval()
    output = model(ids, AttentionMask(mask))
    record_step(kind.__name__, model, output.logits)
    first = model(ids[:, :4], AttentionMask(mask[:, :4]), store_cache=True)
    rest = model(ids[:, 4:], AttentionMask(mask), cache=first.cache)
    record(f"{kind.__name__}.cached", rest.logits)
finish()
