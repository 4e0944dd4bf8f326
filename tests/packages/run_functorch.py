"""functorch: the package that comes with PyTorch."""

import functorch
import torch
from common import data, finish, prepared, record
from torch import nn

x, y = data(6, 4), data(6, 2, seed=1)
model = prepared(nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)))
function, params = functorch.make_functional(model)


def loss(params, x, y):
    return (function(params, x) - y).square().mean()


record("grad", list(functorch.grad(loss)(params, x, y)))
record("per_sample", list(functorch.vmap(functorch.grad(loss), (None, 0, 0))(params, x, y)))
record("jacrev", functorch.jacrev(lambda x: function(params, x))(x[0]))
record("jacfwd", functorch.jacfwd(lambda x: function(params, x))(x[0]))
record("hessian", functorch.hessian(lambda x: function(params, x).sum())(x[0]))
value, pull = functorch.vjp(lambda x: function(params, x), x)
record("vjp", [value, *pull(torch.ones_like(value))])
record("jvp", [*functorch.jvp(lambda x: function(params, x), (x,), (torch.ones_like(x),))])
models = [prepared(nn.Linear(4, 2), seed=i) for i in range(3)]
ensemble, stacked, buffers = functorch.combine_state_for_ensemble(models)
record("ensemble", functorch.vmap(ensemble, in_dims=(0, 0, None))(stacked, buffers, x))
finish()
