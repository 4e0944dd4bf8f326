"""x-transformers: decoders, encoders and generation."""

import torch
from common import data, finish, prepared, record, record_step
from x_transformers import (
    AutoregressiveWrapper,
    Decoder,
    Encoder,
    TransformerWrapper,
    ViTransformerWrapper,
)

tokens = data(2, 12, high=20)
VARIANTS = {
    "plain": {},
    "rotary": {"rotary_pos_emb": True},
    "alibi": {"alibi_pos_bias": True},
    "relative": {"rel_pos_bias": True},
    "rms_glu": {"use_rmsnorm": True, "ff_glu": True, "ff_swish": True},
    "flash": {"attn_flash": True},
    "one_kv": {"attn_one_kv_head": True, "attn_qk_norm": True},
}
for name, options in VARIANTS.items():
    layers = Decoder(dim=16, depth=2, heads=2, attn_dim_head=8, **options)
    model = prepared(TransformerWrapper(num_tokens=20, max_seq_len=16, attn_layers=layers)).eval()
    record_step(name, model, model(tokens))
wrapper = AutoregressiveWrapper(model)
loss = wrapper(tokens)
record("loss", loss)
record("generated", wrapper.generate(tokens[:, :3], 6, temperature=0.0))
encoder = ViTransformerWrapper(
    image_size=16, patch_size=4, num_classes=5, attn_layers=Encoder(dim=16, depth=2, heads=2)
)
encoder = prepared(encoder).eval()
record_step("vit", encoder, encoder(data(2, 3, 16, 16)))
assert torch.is_tensor(loss)
finish()
