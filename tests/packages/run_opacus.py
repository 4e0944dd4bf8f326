"""opacus: gradients of single examples, private training without noise."""

import torch
from common import data, finish, prepared, record
from opacus import PrivacyEngine
from opacus.accountants import RDPAccountant
from opacus.grad_sample import GradSampleModule
from opacus.validators import ModuleValidator
from torch import nn

x, y = data(8, 1, 6, 6), data(8, high=3)


def net():
    return prepared(
        nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)
        )
    )


for mode in ("hooks",):
    model = GradSampleModule(net())
    nn.functional.cross_entropy(model(x), y).backward()
    record(f"samples.{mode}", {n: p.grad_sample for n, p in model.named_parameters()})
sequence = GradSampleModule(prepared(nn.Sequential(nn.Embedding(9, 4), nn.LayerNorm(4))))
sequence(data(3, 5, high=9)).square().sum().backward()
record("sequence", {n: p.grad_sample for n, p in sequence.named_parameters()})
record(
    "valid",
    [len(ModuleValidator.validate(nn.BatchNorm2d(3))), len(ModuleValidator.validate(net()))],
)
model = net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=4)
model, optimizer, loader = PrivacyEngine().make_private(
    module=model,
    optimizer=optimizer,
    data_loader=loader,
    noise_multiplier=0.0,
    max_grad_norm=0.5,
    poisson_sampling=False,
)
losses = []
for _ in range(2):
    for a, b in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(a), b)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
record("losses", losses)
record("weights", dict(model.named_parameters()))
accountant = RDPAccountant()
for _ in range(10):
    accountant.step(noise_multiplier=1.1, sample_rate=0.01)
record("epsilon", accountant.get_epsilon(delta=1e-5))
finish()
