"""Layers for tables, liquid networks, convolutions over time, LoRA; transforms and distances."""

import geomloss
import roma
import torch
import torch_dct
import torchinterp1d
from common import data, finish, prepared, record, record_step
from loralib import Linear as LoRALinear
from loralib import lora_state_dict, mark_only_lora_as_trainable
from ncps.torch import LTC, CfC
from ncps.wirings import AutoNCP
from pytorch_tcn import TCN
from rtdl_num_embeddings import PeriodicEmbeddings, PiecewiseLinearEmbeddings, compute_bins
from rtdl_revisiting_models import MLP, FTTransformer, ResNet
from soft_moe_pytorch import SoftMoE

torch.set_default_dtype(torch.float64)
model = prepared(MLP(d_in=5, d_out=2, n_blocks=2, d_block=8, dropout=0.0))
record_step("mlp", model, model(data(4, 5)))
model = prepared(
    ResNet(
        d_in=5,
        d_out=2,
        n_blocks=2,
        d_block=8,
        d_hidden=None,
        d_hidden_multiplier=2.0,
        dropout1=0.0,
        dropout2=0.0,
    )
)
record_step("resnet", model, model(data(4, 5)))
model = prepared(
    FTTransformer(
        n_cont_features=5,
        cat_cardinalities=[3, 4],
        d_out=2,
        n_blocks=2,
        d_block=16,
        attention_n_heads=2,
        attention_dropout=0.0,
        ffn_d_hidden=None,
        ffn_d_hidden_multiplier=2,
        ffn_dropout=0.0,
        residual_dropout=0.0,
    )
)
record_step("ft", model, model(data(4, 5), data(4, 2, high=3)))
bins = compute_bins(data(60, 5), n_bins=6)
record("bins", bins)
model = prepared(PiecewiseLinearEmbeddings(bins, 4, activation=False, version="B"))
record_step("piecewise", model, model(data(4, 5)))
model = prepared(PeriodicEmbeddings(5, 4, lite=False))
record_step("periodic", model, model(data(4, 5)))
wiring = AutoNCP(12, 3, seed=1)
for name, model in (
    ("cfc", CfC(5, wiring)),
    ("ltc", LTC(5, wiring)),
    ("cfc_full", CfC(5, 8, proj_size=3)),
):
    model = prepared(model)
    output, state = model(data(2, 6, 5))
    record(f"{name}.state", state)
    record_step(name, model, output)
model = prepared(TCN(num_inputs=4, num_channels=[6, 8], kernel_size=3, dropout=0.0, causal=True))
record_step("tcn", model, model(data(2, 4, 12)))
model = prepared(SoftMoE(dim=8, seq_len=10, num_experts=3))
record_step("moe", model, model(data(2, 10, 8)))
model = prepared(
    torch.nn.Sequential(LoRALinear(6, 8, r=2), torch.nn.ReLU(), LoRALinear(8, 3, r=2, lora_alpha=4))
)
mark_only_lora_as_trainable(model)
record_step("lora", model, model(data(4, 6)))
record("lora.names", sorted(lora_state_dict(model)))
for kind in ("dct", "idct", "dct1", "dct_2d", "idct_2d"):
    x = data(4, 6).requires_grad_()
    y = getattr(torch_dct, kind)(x)
    (y * data(4, 6, seed=1)).sum().backward()
    record(kind, [y, x.grad])
for loss in ("sinkhorn", "energy", "gaussian", "laplacian"):
    x = data(6, 3).requires_grad_()
    value = geomloss.SamplesLoss(loss, p=2, blur=0.1, backend="tensorized")(x, data(5, 3, seed=2))
    value.backward()
    record(loss, [value, x.grad])
v = data(4, 3).requires_grad_()
R = roma.rotvec_to_rotmat(v)
record(
    "roma",
    [
        R,
        roma.rotmat_to_unitquat(R),
        roma.special_procrustes(data(4, 3, 3)),
        roma.rotmat_geodesic_distance(R[:2], R[2:]),
    ],
)
(R * data(4, 3, 3, seed=1)).sum().backward()
record("roma.grad", v.grad)
record(
    "interp",
    torchinterp1d.interp1d(data(2, 6).sort(-1).values, data(2, 6, seed=1), data(2, 4, seed=2)),
)
finish()
