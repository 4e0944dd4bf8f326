"""pytorch-minimize: seven methods, least squares, the optimizer of a network."""

import torch
import torchmin
from common import data, finish, prepared, record

torch.set_default_dtype(torch.float64)


def rosenbrock(x):
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


start = torch.tensor([1.3, 0.7, 0.8, 1.9, 1.2])
for method in ("bfgs", "l-bfgs", "cg", "newton-cg", "newton-exact", "trust-ncg", "trust-exact"):
    found = torchmin.minimize(rosenbrock, start, method=method)
    record(method, [found.x.round(decimals=5), bool(found.success)])
found = torchmin.minimize(rosenbrock, start, method="bfgs", max_iter=4)
record("steps", [found.x, found.fun, found.grad])


x, y = data(20), data(20, seed=1)
found = torchmin.least_squares(lambda w: w[0] * torch.exp(w[1] * x) - y, torch.tensor([1.0, 0.1]))
record("least_squares", found.x)
model = prepared(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)))
optimizer = torchmin.Minimizer(model.parameters(), method="bfgs", max_iter=5)


def closure():
    optimizer.zero_grad()
    return (model(data(8, 3)) - 1).pow(2).mean()


record("optimizer", optimizer.step(closure))
finish()
