"""deepxde with its PyTorch backend: equations, gradients of networks, training."""

import os

os.environ["DDE_BACKEND"] = "pytorch"

import deepxde as dde
import numpy as np
import torch
from common import finish, prepared, record

dde.config.set_default_float("float64")
dde.config.set_random_seed(3)


def make(data_, layers, outputs=None):
    net = dde.nn.FNN(layers, "tanh", "Glorot uniform")
    prepared(net)
    if outputs is not None:
        net.apply_output_transform(outputs)
    return dde.Model(data_, net)


geometry = dde.geometry.Interval(-1, 1)


def poisson(x, y):
    return -dde.grad.hessian(y, x) - np.pi**2 * torch.sin(np.pi * x)


condition = dde.icbc.DirichletBC(geometry, lambda x: np.sin(np.pi * x), lambda _, on: on)
problem = dde.data.PDE(
    geometry,
    poisson,
    condition,
    16,
    2,
    solution=lambda x: np.sin(np.pi * x),
    num_test=50,
    train_distribution="uniform",
)
for optimizer in ("adam", "sgd", "rmsprop", "L-BFGS"):
    model = make(problem, [1, 10, 10, 1])
    if optimizer == "L-BFGS":
        options = dde.optimizers.config.LBFGS_options
        options.update(maxiter=8, iter_per_step=8, fun_per_step=10)
        model.compile("L-BFGS")
        history, state = model.train(verbose=0)
    else:
        model.compile(optimizer, lr=0.001, metrics=["l2 relative error"])
        history, state = model.train(iterations=20, display_every=5, verbose=0)
    record(f"{optimizer}.losses", np.array(history.loss_train))
    record(f"{optimizer}.predict", model.predict(np.linspace(-1, 1, 7)[:, None]))
    record(f"{optimizer}.residual", model.predict(np.linspace(-1, 1, 7)[:, None], operator=poisson))

region = dde.geometry.GeometryXTime(geometry, dde.geometry.TimeDomain(0, 1))


def heat(x, y):
    return dde.grad.jacobian(y, x, i=0, j=1) - 0.3 * dde.grad.hessian(y, x, i=0, j=0)


start = dde.icbc.IC(region, lambda x: np.sin(np.pi * x[:, 0:1]), lambda _, on: on)
problem = dde.data.TimePDE(
    region, heat, [start], 20, 4, 6, num_test=20, train_distribution="uniform"
)
model = make(problem, [2, 8, 8, 1], lambda x, y: y * (1 - x[:, 0:1] ** 2))
model.compile("adam", lr=0.01, loss_weights=[1, 2])
history, state = model.train(iterations=20, display_every=10, verbose=0)
record("heat", np.array(history.loss_train))
finish()
