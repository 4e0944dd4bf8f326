"""Attention in other forms: layers of eight packages, their gradients and training steps."""

import torch
from adan_pytorch import Adan
from axial_attention import AxialAttention, AxialImageTransformer
from common import data, finish, prepared, record, record_step
from egnn_pytorch import EGNN, EGNN_Network
from linear_attention_transformer import LinearAttentionTransformerLM
from linformer import Linformer, LinformerSelfAttention
from mlp_mixer_pytorch import MLPMixer
from nystrom_attention import NystromAttention, Nystromformer
from perceiver_pytorch import Perceiver, PerceiverIO
from siren_pytorch import SirenNet, SirenWrapper

torch.set_default_dtype(torch.float64)
for name, model, shape in (
    ("axial", AxialAttention(dim=8, dim_index=1, heads=2, num_dimensions=2), (1, 8, 6, 5)),
    ("axial_image", AxialImageTransformer(dim=8, depth=2, heads=2, reversible=False), (1, 8, 6, 6)),
    ("linformer", Linformer(dim=16, seq_len=12, depth=2, heads=2, k=4), (2, 12, 16)),
    ("linformer_one", LinformerSelfAttention(dim=16, seq_len=12, heads=2, k=4), (2, 12, 16)),
    (
        "mixer",
        MLPMixer(image_size=16, channels=3, patch_size=4, dim=16, depth=2, num_classes=5),
        (2, 3, 16, 16),
    ),
    (
        "nystrom",
        NystromAttention(dim=16, dim_head=8, heads=2, num_landmarks=4, pinv_iterations=6),
        (2, 10, 16),
    ),
    (
        "nystromformer",
        Nystromformer(dim=16, dim_head=8, heads=2, depth=2, num_landmarks=4),
        (2, 10, 16),
    ),
    (
        "perceiver",
        Perceiver(
            input_channels=3,
            input_axis=2,
            num_freq_bands=2,
            max_freq=4.0,
            depth=2,
            num_latents=4,
            latent_dim=8,
            cross_dim_head=8,
            latent_dim_head=8,
            latent_heads=2,
            num_classes=5,
        ),
        (2, 6, 6, 3),
    ),
    ("siren", SirenNet(dim_in=2, dim_hidden=12, dim_out=3, num_layers=3, w0_initial=30.0), (7, 2)),
):
    model = prepared(model)
    record_step(name, model, model(data(*shape)))

model = prepared(
    LinearAttentionTransformerLM(
        num_tokens=20,
        dim=16,
        heads=2,
        depth=2,
        max_seq_len=16,
        causal=True,
        blindspot_size=4,
        n_local_attn_heads=1,
        local_attn_window_size=4,
        attend_axially=False,
    )
)
record_step("linear", model, model(data(2, 16, high=20)))
model = prepared(
    PerceiverIO(
        dim=8,
        queries_dim=6,
        logits_dim=5,
        depth=2,
        num_latents=4,
        latent_dim=8,
        cross_heads=1,
        latent_heads=2,
        cross_dim_head=8,
        latent_dim_head=8,
    )
)
record_step("perceiver_io", model, model(data(2, 9, 8), queries=data(2, 4, 6)))

layer = prepared(EGNN(dim=8, edge_dim=2, m_dim=6, num_nearest_neighbors=3, norm_coors=True))
features, places = layer(
    data(1, 6, 8), data(1, 6, 3), data(1, 6, 6, 2), mask=torch.ones(1, 6).bool()
)
record("egnn.places", places)
record_step("egnn", layer, features)
network = prepared(
    EGNN_Network(num_tokens=10, num_positions=6, dim=8, depth=2, num_nearest_neighbors=3)
)
features, places = network(data(1, 6, high=10), data(1, 6, 3))
record("egnn_network.places", places)
record_step("egnn_network", network, features)

wrapper = SirenWrapper(
    prepared(SirenNet(dim_in=2, dim_hidden=8, dim_out=3, num_layers=2)),
    image_width=5,
    image_height=4,
)
optimizer = Adan(wrapper.parameters(), lr=1e-2, betas=(0.02, 0.08, 0.01), weight_decay=0.02)
image, losses = data(1, 3, 4, 5), []
for _ in range(4):
    optimizer.zero_grad()
    loss = wrapper(image)
    loss.backward()
    optimizer.step()
    losses.append(loss)
record("adan", [*losses, wrapper()])
finish()
