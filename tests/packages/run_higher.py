"""higher: differentiating through inner loops of optimization."""

import higher
import torch
from common import data, finish, prepared, record
from torch import nn
from torch.nn import functional as F

x, y = data(8, 4), data(8, 2, seed=1)
for name, make in (
    ("SGD", lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
    ("Adam", lambda p: torch.optim.Adam(p, lr=0.1)),
    ("RMSprop", lambda p: torch.optim.RMSprop(p, lr=0.1)),
    ("Adagrad", lambda p: torch.optim.Adagrad(p, lr=0.1)),
    ("Adamax", lambda p: torch.optim.Adamax(p, lr=0.1)),
    ("Rprop", lambda p: torch.optim.Rprop(p, lr=0.1)),
):
    model = prepared(
        nn.Sequential(nn.Linear(4, 6, bias=False), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 2))
    )
    optimizer = make(model.parameters())
    with higher.innerloop_ctx(model, optimizer, copy_initial_weights=False) as (fast, inner):
        for _ in range(3):
            inner.step(F.mse_loss(fast(x), y))
        loss = F.mse_loss(fast(x), y)
        loss.backward()
    record(f"{name}.loss", loss)
    record(f"{name}.grads", {n: p.grad for n, p in model.named_parameters()})
    record(f"{name}.fast", list(fast.parameters()))

model = prepared(nn.LSTM(4, 3, batch_first=True))
rate = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
track = {"lr": [rate]}
with higher.innerloop_ctx(model, optimizer, override=track, track_higher_grads=True) as (f, inner):
    for _ in range(2):
        inner.step(f(x[None])[0].square().sum())
    f(x[None])[0].square().sum().backward()
record("rate", rate.grad)

functional = higher.monkeypatch(prepared(nn.Linear(4, 2)))
parameters = [data(2, 4, seed=7), data(2, seed=8)]
record("patched", functional(x, params=parameters))
higher.patch.make_functional(prepared(nn.Linear(4, 2)))
finish()
