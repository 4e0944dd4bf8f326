"""Optimizers of single packages: some steps each, with their state saved and loaded between."""

import io

import torch
from adabelief_pytorch import AdaBelief
from common import data, finish, prepared, record
from dadaptation import DAdaptAdaGrad, DAdaptAdam, DAdaptAdan, DAdaptLion, DAdaptSGD
from ema_pytorch import EMA
from lion_pytorch import Lion
from madgrad import MADGRAD, MirrorMADGRAD
from muon import SingleDeviceMuon, SingleDeviceMuonWithAuxAdam
from prodigyopt import Prodigy
from pytorch_ranger import Ranger
from schedulefree import AdamWScheduleFree, RAdamScheduleFree, SGDScheduleFree
from torch import nn
from torch_ema import ExponentialMovingAverage

x, y = data(8, 4), data(8, 2, seed=1)


def net():
    return prepared(nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)))


def matrices(model):
    return [p for p in model.parameters() if p.ndim == 2]


def groups(model):
    return [
        {"params": matrices(model), "use_muon": True, "lr": 0.02},
        {"params": [p for p in model.parameters() if p.ndim < 2], "use_muon": False, "lr": 0.01},
    ]


for name, make in (
    ("AdaBelief", lambda m: AdaBelief(m.parameters(), lr=0.05, eps=1e-12, print_change_log=False)),
    ("MADGRAD", lambda m: MADGRAD(m.parameters(), lr=0.05)),
    ("MirrorMADGRAD", lambda m: MirrorMADGRAD(m.parameters(), lr=0.05)),
    ("Lion", lambda m: Lion(m.parameters(), lr=0.01, weight_decay=0.1)),
    ("Prodigy", lambda m: Prodigy(m.parameters(), lr=1.0)),
    ("DAdaptAdam", lambda m: DAdaptAdam(m.parameters(), lr=1.0)),
    ("DAdaptSGD", lambda m: DAdaptSGD(m.parameters(), lr=1.0)),
    ("DAdaptAdaGrad", lambda m: DAdaptAdaGrad(m.parameters(), lr=1.0)),
    ("DAdaptAdan", lambda m: DAdaptAdan(m.parameters(), lr=1.0)),
    ("DAdaptLion", lambda m: DAdaptLion(m.parameters(), lr=1.0)),
    ("Ranger", lambda m: Ranger(m.parameters(), lr=0.05)),
    ("AdamWScheduleFree", lambda m: AdamWScheduleFree(m.parameters(), lr=0.05)),
    ("SGDScheduleFree", lambda m: SGDScheduleFree(m.parameters(), lr=0.05)),
    ("RAdamScheduleFree", lambda m: RAdamScheduleFree(m.parameters(), lr=0.05)),
    ("Muon", lambda m: SingleDeviceMuon(matrices(m), lr=0.02)),
    ("MuonWithAdam", lambda m: SingleDeviceMuonWithAuxAdam(groups(m))),
):
    model = net()
    optimizer = make(model)
    averages = ExponentialMovingAverage(model.parameters(), decay=0.9)
    losses = []
    for step in range(5):
        if step == 3:
            file = io.BytesIO()
            torch.save(optimizer.state_dict(), file)
            file.seek(0)
            optimizer.load_state_dict(torch.load(file, weights_only=False))
        if hasattr(optimizer, "train"):
            optimizer.train()
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        averages.update()
        losses.append(loss.item())
    if hasattr(optimizer, "eval"):
        optimizer.eval()
    record(f"{name}.losses", losses)
    record(f"{name}.weights", [p.detach() for p in model.parameters()])
    with averages.average_parameters():
        record(f"{name}.average", [p.detach().clone() for p in model.parameters()])

model = net()
average = EMA(model, beta=0.9, update_after_step=1, update_every=1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    optimizer.zero_grad()
    (model(x) - y).square().mean().backward()
    optimizer.step()
    average.update()
record("ema", [average(x), dict(average.ema_model.state_dict())])
finish()
