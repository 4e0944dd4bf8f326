"""entmax: sparse softmaxes and their losses."""

import entmax
import torch
from common import data, finish, record

for dim in (-1, 0):
    for name, function in (
        ("sparsemax", entmax.sparsemax),
        ("entmax15", entmax.entmax15),
        ("sparsemax_k", lambda x, dim: entmax.sparsemax(x, dim=dim, k=3)),
        ("bisect", lambda x, dim: entmax.entmax_bisect(x, alpha=1.3, dim=dim)),
        ("sparse_bisect", lambda x, dim: entmax.sparsemax_bisect(x, dim=dim)),
        ("budget", lambda x, dim: entmax.budget_bisect(x, budget=2, dim=dim)),
        ("normmax", lambda x, dim: entmax.normmax_bisect(x, alpha=2, dim=dim)),
    ):
        x = data(5, 6).requires_grad_()
        y = function(x, dim=dim)
        (y * data(5, 6, seed=1)).sum().backward()
        record(f"{name}.{dim}", [y, x.grad])
alpha = torch.full((5, 1), 1.4, dtype=torch.float64, requires_grad=True)
x = data(5, 6).requires_grad_()
(entmax.entmax_bisect(x, alpha) * data(5, 6, seed=1)).sum().backward()
record("alpha", [alpha.grad, x.grad])
labels = data(5, high=6)
for loss in (
    entmax.SparsemaxLoss(),
    entmax.Entmax15Loss(reduction="sum"),
    entmax.SparsemaxBisectLoss(),
    entmax.EntmaxBisectLoss(alpha=1.6),
):
    x = (data(5, 6) * 2).requires_grad_()
    value = loss(x, labels)
    value.backward()
    record(type(loss).__name__, [value, x.grad])
x = data(3, 4, seed=5).requires_grad_()
record("gradcheck", torch.autograd.gradcheck(lambda x: entmax.entmax15(x, dim=1), (x,)))
layer = torch.nn.Sequential(torch.nn.Linear(6, 4), entmax.Entmax15(dim=1)).double()
record("layer", bool(torch.allclose(layer(data(5, 6)).sum(1), torch.ones(5).double())))
finish()
