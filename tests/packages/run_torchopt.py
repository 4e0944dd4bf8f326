"""torchopt: functional optimizers, meta-learning through updates, implicit gradients."""

import functorch
import torch
import torchopt
from common import data, finish, prepared, record
from torch import nn
from torch.nn import functional as F

torch.set_default_dtype(torch.float64)
x, y = data(8, 4), data(8, 2, seed=1)


def net():
    return prepared(nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)))


for name, make in (
    ("adam", lambda: torchopt.adam(lr=0.05)),
    ("adamw", lambda: torchopt.adamw(lr=0.05)),
    ("adamax", lambda: torchopt.adamax(lr=0.05)),
    ("adagrad", lambda: torchopt.adagrad(lr=0.05)),
    ("adadelta", lambda: torchopt.adadelta(lr=0.5)),
    ("radam", lambda: torchopt.radam(lr=0.05)),
    ("rmsprop", lambda: torchopt.rmsprop(lr=0.05)),
    ("sgd", lambda: torchopt.sgd(lr=0.05, momentum=0.9)),
    (
        "chain",
        lambda: torchopt.combine.chain(
            torchopt.clip.clip_grad_norm(max_norm=0.5),
            torchopt.sgd(lr=torchopt.schedule.linear_schedule(0.1, 0.01, 5)),
        ),
    ),
):
    model = net()
    function, params = functorch.make_functional(model)
    optimizer = make()
    state = optimizer.init(params)
    for _ in range(3):
        loss = F.mse_loss(function(params, x), y)
        grads = torch.autograd.grad(loss, params)
        updates, state = optimizer.update(grads, state, params=params)
        params = torchopt.apply_updates(params, updates)
    record(f"functional.{name}", list(params))

for name in ("Adam", "AdamW", "SGD", "RMSProp", "RAdam", "AdaGrad"):
    model = net()
    optimizer = getattr(torchopt, name)(model.parameters(), lr=0.05)
    for _ in range(3):
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    record(f"classic.{name}", dict(model.named_parameters()))

model = net()
scale = torch.tensor(1.5, requires_grad=True)
for name, meta in (
    ("sgd", torchopt.MetaSGD(model, lr=0.1, momentum=0.5)),
    ("adam", torchopt.MetaAdam(model, lr=0.1)),
):
    before = torchopt.extract_state_dict(model, by="reference")
    inner = torchopt.extract_state_dict(meta, by="reference")
    for _ in range(3):
        meta.step(scale * F.mse_loss(model(x), y))
    outer = F.mse_loss(model(x), y)
    record(f"meta.{name}", [outer, *torch.autograd.grad(outer, scale)])
    torchopt.recover_state_dict(model, before)
    torchopt.recover_state_dict(meta, inner)


def objective(params, data_):
    return ((params - data_) ** 2).sum() + 0.1 * (params**4).sum()


@torchopt.diff.implicit.custom_root(
    torch.func.grad(objective, argnums=0), argnums=1, solve=torchopt.linear_solve.solve_cg()
)
def solve(params, data_):
    for _ in range(200):
        params = params - 0.1 * torch.func.grad(objective)(params, data_)
    return params


target = data(3, seed=5).requires_grad_()
optimum = solve(torch.zeros(3), target)
optimum.square().sum().backward()
record("implicit", [optimum, target.grad])
finish()
