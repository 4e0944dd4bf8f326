"""torch_optimizer: its optimizers, some steps each, and their state saved and loaded."""

import io

import torch
import torch_optimizer
from common import data, finish, prepared, record

x, y = data(8, 4), data(8, 2, seed=1)


def net():
    return prepared(
        torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2))
    )


skipped = {"Optimizer", "Shampoo"}
for name in sorted(torch_optimizer.__all__):
    kind = getattr(torch_optimizer, name)
    if not isinstance(kind, type) or name in skipped or name == "Lookahead":
        continue
    model = net()
    rate = {} if name.startswith("A2Grad") else {"lr": 0.05}
    optimizer = kind(model.parameters(), **rate)
    losses = []
    for step in range(4):
        if step == 2:
            file = io.BytesIO()
            torch.save(optimizer.state_dict(), file)
            file.seek(0)
            optimizer.load_state_dict(torch.load(file, weights_only=False))

        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward(create_graph=name == "Adahessian")
        optimizer.step()
        losses.append(loss.item())
    if name == "Adahessian":  # draws random numbers
        continue
    record(f"{name}.losses", losses)
    record(f"{name}.weights", [p.detach() for p in model.parameters()])

model = net()
optimizer = torch_optimizer.Lookahead(torch_optimizer.Yogi(model.parameters(), lr=0.05), k=2)
for _ in range(4):
    optimizer.zero_grad()
    (model(x) - y).square().mean().backward()
    optimizer.step()
record("Lookahead", [p.detach() for p in model.parameters()])
model = net()
optimizer = torch_optimizer.Shampoo(model.parameters(), lr=0.05)
for _ in range(3):
    optimizer.zero_grad()
    (model(x) - y).square().mean().backward()
    optimizer.step()
record("Shampoo", [p.detach() for p in model.parameters()])
finish()
