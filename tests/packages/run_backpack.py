"""backpack: gradients of single examples, second-order quantities and their use."""

import torch
from backpack import backpack, extend, extensions
from common import data, finish, prepared, record
from torch import nn

x, y = data(6, 1, 8, 8), data(6, high=3)


def net():
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1),
        nn.Sigmoid(),
        nn.MaxPool2d(2),
        nn.Conv2d(3, 4, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16, 5),
        nn.Tanh(),
        nn.Linear(5, 3),
    )


for name, extension in (
    ("grad_batch", extensions.BatchGrad()),
    ("grad_batch_l2", extensions.BatchL2Grad()),
    ("sum_grad_squared", extensions.SumGradSquared()),
    ("variance", extensions.Variance()),
    ("diag_ggn_exact", extensions.DiagGGNExact()),
    ("diag_ggn_exact_batch", extensions.BatchDiagGGNExact()),
    ("kflr", extensions.KFLR()),
    ("kfra", extensions.KFRA()),
    ("diag_h", extensions.DiagHessian()),
):
    # KFRA is defined for layers without convolutions only.
    layers = net() if name != "kfra" else nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    model = extend(prepared(layers))
    loss = extend(nn.CrossEntropyLoss())(model(x), y)
    with backpack(extension):
        loss.backward()
    attribute = extension.savefield
    found = {key: getattr(p, attribute) for key, p in model.named_parameters()}
    record(name, found)
    record(f"{name}.grad", {key: p.grad for key, p in model.named_parameters()})

recurrent = extend(prepared(nn.LSTM(4, 3, batch_first=True)))
with backpack(extensions.BatchGrad()):
    recurrent(data(5, 6, 4))[0].square().sum().backward()
record("lstm", {key: p.grad_batch for key, p in recurrent.named_parameters()})
torch.manual_seed(0)
model = extend(prepared(nn.Sequential(nn.Flatten(), nn.Linear(64, 3))))
loss = extend(nn.MSELoss())(model(x), data(6, 3))
with backpack(extensions.KFAC(mc_samples=2)):
    loss.backward()
record("kfac.input", model[1].weight.kfac[1])
finish()
