"""neuraloperator: Fourier neural operators and their losses."""

import numpy as np
import torch
from common import data, finish, prepared, record, record_step
from neuralop.layers.channel_mlp import ChannelMLP
from neuralop.layers.embeddings import GridEmbedding2D, SinusoidalEmbedding
from neuralop.layers.fno_block import FNOBlocks
from neuralop.layers.spectral_convolution import SpectralConv
from neuralop.losses import H1Loss, LpLoss
from neuralop.models import FNO, TFNO

x = data(2, 3, 16, 16).float()


def prepared_complex(model):
    """Weights from NumPy's generator, complex ones too."""
    rng = np.random.default_rng(3)
    with torch.no_grad():
        for _, p in sorted(model.named_parameters(), key=lambda item: item[0]):
            values = rng.uniform(-0.3, 0.3, tuple(p.shape))
            if p.is_complex():
                values = values + 1j * rng.uniform(-0.3, 0.3, tuple(p.shape))
            p.copy_(torch.from_numpy(values))
    return model


for name, make, size in (
    (
        "fno2d",
        lambda: FNO(n_modes=(6, 6), in_channels=3, out_channels=1, hidden_channels=8, n_layers=2),
        x,
    ),
    (
        "fno1d",
        lambda: FNO(n_modes=(6,), in_channels=3, out_channels=2, hidden_channels=8, n_layers=2),
        x[..., 0],
    ),
    (
        "tucker",
        lambda: TFNO(
            n_modes=(6, 6),
            in_channels=3,
            out_channels=1,
            hidden_channels=8,
            n_layers=1,
            factorization="tucker",
            implementation="factorized",
            rank=0.3,
        ),
        x,
    ),
    (
        "norm",
        lambda: FNO(
            n_modes=(6, 6),
            in_channels=3,
            out_channels=1,
            hidden_channels=8,
            n_layers=2,
            norm="group_norm",
            use_channel_mlp=True,
        ),
        x,
    ),
):
    model = prepared_complex(make())
    record_step(name, model, model(size))
conv = prepared_complex(SpectralConv(3, 4, n_modes=(6, 6)))
record_step("conv", conv, conv(x))
block = prepared_complex(FNOBlocks(3, 3, n_modes=(6, 6)))
record_step("block", block, block(x))
mlp = prepared(ChannelMLP(3, 4, hidden_channels=8)).float()
record_step("mlp", mlp, mlp(x))
record("grid", GridEmbedding2D(in_channels=3)(x))
record(
    "sinusoidal",
    SinusoidalEmbedding(in_channels=3, num_frequencies=4)(x.flatten(2).transpose(1, 2)),
)
a, b = data(2, 1, 16, 16).float().requires_grad_(), data(2, 1, 16, 16, seed=1).float()
for name, loss in (("l2", LpLoss(d=2, p=2)), ("h1", H1Loss(d=2))):
    value = loss(a, b)
    (g,) = torch.autograd.grad(value, a)
    record(f"loss.{name}", [value, g])
model = prepared_complex(
    FNO(n_modes=(6, 6), in_channels=3, out_channels=1, hidden_channels=8, n_layers=2)
)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
losses = []
for _ in range(4):
    optimizer.zero_grad()
    loss = LpLoss(d=2, p=2)(model(x), b)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
record("losses", losses)
finish()
