"""vector-quantize-pytorch, ema-pytorch, torch-ema, lion-pytorch: codes, averages, an optimizer."""

import tempfile
from pathlib import Path

import torch
from common import data, finish, prepared, record, record_step
from ema_pytorch import EMA
from lion_pytorch import Lion
from lion_pytorch.foreach import Lion as ForeachLion
from torch_ema import ExponentialMovingAverage
from vector_quantize_pytorch import (
    FSQ,
    LFQ,
    GroupedResidualVQ,
    LatentQuantize,
    RandomProjectionQuantizer,
    ResidualFSQ,
    ResidualVQ,
    SimVQ,
    VectorQuantize,
)

torch.set_default_dtype(torch.float64)
x = data(1, 20, 8).requires_grad_()


def fill(model):
    """The same codes for both libraries."""
    for i, (_, buffer) in enumerate(sorted(model.named_buffers())):
        if buffer.is_floating_point() and buffer.ndim >= 2:
            buffer.copy_(data(*buffer.shape, seed=i))
    return model


for name, model in (
    ("vq", VectorQuantize(dim=8, codebook_size=16, decay=0.8, commitment_weight=1.0)),
    ("cosine", VectorQuantize(dim=8, codebook_size=16, use_cosine_sim=True)),
    ("lower", VectorQuantize(dim=8, codebook_size=16, codebook_dim=4)),
    ("rotation", VectorQuantize(dim=8, codebook_size=16, rotation_trick=True)),
    ("learned", VectorQuantize(dim=8, codebook_size=16, learnable_codebook=True, ema_update=False)),
    ("heads", VectorQuantize(dim=8, codebook_size=8, heads=2, separate_codebook_per_head=True)),
    ("residual", ResidualVQ(dim=8, codebook_size=16, num_quantizers=3)),
    ("grouped", GroupedResidualVQ(dim=8, num_quantizers=2, groups=2, codebook_size=8)),
):
    model = fill(prepared(model)).train()
    quantized, indices, loss = model(x)
    record(f"{name}.indices", indices)
    record(f"{name}.quantized", quantized)
    record(f"{name}.loss", loss)
    (gradient,) = torch.autograd.grad(quantized.square().sum() + loss.sum(), x)
    record(f"{name}.grad", gradient)
    record(f"{name}.buffers", [b for _, b in sorted(model.named_buffers())])

model = prepared(FSQ(levels=[8, 5, 5, 5], dim=8))
quantized, indices = model(x)
record("fsq", [quantized, indices, model.indices_to_codes(indices)])
record("fsq.grad", torch.autograd.grad(quantized.square().sum(), x))
model = prepared(ResidualFSQ(dim=8, levels=[5, 5, 5], num_quantizers=2))
quantized, indices = model(x)
record("residual.fsq", [quantized, indices])
model = prepared(LFQ(codebook_size=16, dim=8, entropy_loss_weight=0.1, diversity_gamma=1.0))
quantized, indices, loss = model(x)
record("lfq", [quantized, indices, loss])
record("lfq.grad", torch.autograd.grad(quantized.square().sum() + loss, x))
model = prepared(LatentQuantize(levels=[5, 5, 8], dim=8, commitment_loss_weight=0.1,
                                quantization_loss_weight=0.1))  # fmt: skip
quantized, indices, loss = model(data(1, 8, 4, 4))
record("latent", [quantized, indices, loss])
model = fill(prepared(SimVQ(dim=8, codebook_size=16)))
record("simvq", list(model(x)))
model = fill(prepared(RandomProjectionQuantizer(dim=8, num_codebooks=2, codebook_dim=4,
                                                codebook_size=16))).eval()  # fmt: skip
record("random", model(x))


def net():
    return prepared(
        torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.Linear(8, 3))
    )


for kind in (Lion, ForeachLion):
    model = net()
    optimizer = kind(model.parameters(), lr=1e-3, weight_decay=1e-2)
    for _ in range(4):
        optimizer.zero_grad()
        model(data(5, 6)).square().mean().backward()
        optimizer.step()
    record(f"{kind.__module__}", list(model.parameters()))

for options in ({}, {"use_foreach": True}, {"inv_gamma": 0.5, "power": 0.75, "min_value": 0.1}):
    model = net()
    ema = EMA(model, beta=0.99, update_after_step=1, update_every=1, **options)
    for i in range(4):
        with torch.no_grad():
            for p in model.parameters():
                p.add_(data(*p.shape, seed=i))
        ema.update()
    record(f"ema.{'.'.join(options)}", ema(data(5, 6)))
    with tempfile.TemporaryDirectory() as folder:
        torch.save(ema.state_dict(), Path(folder) / "ema.pt")
        again = EMA(net(), beta=0.99, update_after_step=1, update_every=1, **options)
        again.load_state_dict(torch.load(Path(folder) / "ema.pt"))
        record(f"ema.again.{'.'.join(options)}", again(data(5, 6)))

model = net()
average = ExponentialMovingAverage(model.parameters(), decay=0.9)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(data(5, 6)).square().mean().backward()
    optimizer.step()
    average.update()
record("torch_ema.now", model(data(5, 6)))
with average.average_parameters():
    record_step("torch_ema", model, model(data(5, 6)))
state = average.state_dict()
record("torch_ema.state", [state["decay"], state["num_updates"], state["shadow_params"]])
finish()
