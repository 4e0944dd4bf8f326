"""pytorch-optimizer: all its optimizers that draw no random numbers, some steps each."""

import pytorch_optimizer
import torch
from common import data, finish, prepared, record
from torch import nn

#: these draw random numbers, or need more than one process or a closure; some compute in bfloat16,
#: or with eigenvectors of equal eigenvalues, which are arbitrary
SKIPPED = {
    *("dash", "scion", "scionlight", "soap", "splus"),
    *("adahessian", "alice", "demo", "gravity", "kron", "magma", "sophiah"),
    *("adalomo", "alig", "distributedmuon", "lomo"),
}
x, y = data(8, 4), data(8, 2, seed=1)
record("names", sorted(pytorch_optimizer.get_supported_optimizers()))
for name in sorted(pytorch_optimizer.get_supported_optimizers()):
    if name in SKIPPED:
        continue
    kind = pytorch_optimizer.load_optimizer(name)
    model = prepared(nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)))
    try:
        optimizer = kind(model.parameters(), lr=0.01)
    except Exception as error:
        record(f"{name}.error", type(error).__name__)
        continue
    losses = []
    try:
        for _ in range(3):
            if hasattr(optimizer, "train"):
                optimizer.train()
            optimizer.zero_grad()
            loss = (model(x) - y).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    except Exception as error:
        record(f"{name}.step.error", type(error).__name__)
        continue
    record(f"{name}.losses", losses)
    record(f"{name}.weights", [p.detach() for p in model.parameters()])
for name in ("sam", "lookahead"):
    model = prepared(nn.Linear(4, 2))
    if name == "sam":
        optimizer = pytorch_optimizer.SAM(model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
        for _ in range(3):
            (model(x) - y).square().mean().backward()
            optimizer.first_step(zero_grad=True)
            (model(x) - y).square().mean().backward()
            optimizer.second_step(zero_grad=True)
    elif name == "lookahead":
        optimizer = pytorch_optimizer.Lookahead(torch.optim.SGD(model.parameters(), lr=0.1), k=2)
        for _ in range(4):
            optimizer.zero_grad()
            (model(x) - y).square().mean().backward()
            optimizer.step()
    record(f"wrapped.{name}", dict(model.named_parameters()))
finish()
