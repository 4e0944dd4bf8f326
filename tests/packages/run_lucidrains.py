"""Small packages of attention and its parts: rotary embeddings, local attention, performer, ViT."""

import torch
import torch.nn.functional as F
from axial_positional_embedding import AxialPositionalEmbedding
from common import data, finish, prepared, record, record_step
from hyper_connections import get_init_and_expand_reduce_stream_functions
from local_attention import LocalAttention, LocalTransformer
from performer_pytorch import Performer, PerformerLM
from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb
from vit_pytorch import ViT
from vit_pytorch.cait import CaiT
from vit_pytorch.deepvit import DeepViT
from vit_pytorch.simple_vit import SimpleViT

torch.set_default_dtype(torch.float64)


def train(name, model, loss, steps=3):
    """A few steps of AdamW; keep the losses."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for i in range(steps):
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        record(f"{name}.train.{i}", value)


# rotary embeddings
rotary = RotaryEmbedding(dim=8).double()
q = data(1, 2, 16, 16).requires_grad_()
record("rotary", rotary.rotate_queries_or_keys(q))
record("rotary.grad", torch.autograd.grad(rotary.rotate_queries_or_keys(q).square().sum(), q))
axial = RotaryEmbedding(dim=8, freqs_for="pixel", max_freq=16).double()
record("rotary.axial", apply_rotary_emb(axial.get_axial_freqs(4, 4), data(1, 4, 4, 32)))
xpos = RotaryEmbedding(dim=8, use_xpos=True).double()
record("rotary.xpos", list(xpos.rotate_queries_and_keys(data(1, 2, 8, 16), data(1, 2, 8, 16))))

# axial positions
axial = prepared(AxialPositionalEmbedding(dim=12, axial_shape=(4, 4)))
record_step("axial", axial, axial(data(1, 16, 12)))

# local attention
local = LocalAttention(dim=8, window_size=4, causal=True, look_backward=1, autopad=True).double()
mask = torch.ones(1, 14).bool()
mask[0, 11:] = False
q, k, v = (data(1, 2, 14, 8, seed=i).requires_grad_() for i in range(3))
out = local(q, k, v, mask=mask)
record("local", out)
record("local.grad", torch.autograd.grad(out.square().sum(), (q, k, v)))
model = LocalTransformer(
    num_tokens=20, dim=16, depth=2, max_seq_len=32, causal=True, local_attn_window_size=8, heads=2,
    dim_head=8,
)  # fmt: skip
model = prepared(model).eval()
tokens = data(2, 17, high=20)
record_step("local.transformer", model, model(tokens[:, :16]))
train("local.transformer", model, lambda: model(tokens, return_loss=True))

# performer
model = PerformerLM(
    num_tokens=20, max_seq_len=16, dim=16, depth=2, heads=2, dim_head=8, causal=False,
    nb_features=8, ff_dropout=0.0,
)  # fmt: skip
model = prepared(model).eval()
for name, buffer in sorted(model.named_buffers()):
    if "projection" in name:
        buffer.copy_(data(*buffer.shape))
record_step("performer", model, model(tokens[:, :16], mask=torch.ones(2, 16).bool()))
model = prepared(Performer(dim=16, depth=1, heads=2, dim_head=8, causal=False, nb_features=8,
                           generalized_attention=True)).eval()  # fmt: skip
for name, buffer in sorted(model.named_buffers()):
    if "projection" in name:
        buffer.copy_(data(*buffer.shape))
record_step("performer.generalized", model, model(data(1, 12, 16)))

# vision
SMALL = {"image_size": 16, "patch_size": 4, "num_classes": 5, "dim": 16, "depth": 2, "heads": 2}
image = data(2, 3, 16, 16)
labels = data(2, high=5)
for name, model in (
    ("vit", ViT(**SMALL, mlp_dim=24)),
    ("vit.mean", ViT(**SMALL, mlp_dim=24, pool="mean")),
    ("simple", SimpleViT(**SMALL, mlp_dim=24)),
    ("deep", DeepViT(**SMALL, mlp_dim=24)),
    ("cait", CaiT(**{**SMALL, "depth": 2}, cls_depth=1, mlp_dim=24)),
):
    model = prepared(model).eval()
    record_step(name, model, model(image))
    train(name, model, lambda model=model: F.cross_entropy(model(image), labels))

# hyper connections
init, expand, reduce = get_init_and_expand_reduce_stream_functions(2, disable=False)
branch = prepared(init(dim=16, branch=torch.nn.Linear(16, 16), layer_index=0))
record_step("hyper", branch, reduce(branch(expand(data(2, 6, 16)))))
finish()
