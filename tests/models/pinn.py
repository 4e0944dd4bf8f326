"""A network trained to satisfy the heat equation: derivatives of derivatives of its output."""

import torch
import torch.nn as nn
from torch.autograd import grad


class PINN(nn.Module):
    def __init__(self, layers=(2, 16, 16, 1)):
        super().__init__()
        self.activation = nn.Tanh()
        self.linears = nn.ModuleList(
            [nn.Linear(layers[i], layers[i + 1]) for i in range(len(layers) - 1)]
        )
        self.diffusivity = nn.Parameter(torch.tensor([0.5]))
        for m in self.linears:
            nn.init.xavier_normal_(m.weight.data, gain=1.0)
            nn.init.zeros_(m.bias.data)

    def forward(self, x, t):
        a = torch.cat([x, t], dim=1)
        for linear in self.linears[:-1]:
            a = self.activation(linear(a))
        return self.linears[-1](a)

    def residual(self, x, t):
        x = x.clone().requires_grad_(True)
        t = t.clone().requires_grad_(True)
        u = self(x, t)
        ones = torch.ones_like(u)
        u_t = grad(u, t, ones, create_graph=True)[0]
        u_x = grad(u, x, grad_outputs=ones, create_graph=True, retain_graph=True)[0]
        u_xx = grad(u_x, x, grad_outputs=torch.ones_like(u_x), create_graph=True)[0]
        return u_t - self.diffusivity * u_xx


class Trainer:
    def __init__(self):
        self.model = PINN()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=100, gamma=0.9)
        self.mse = nn.MSELoss()

    def step(self, x, t):
        self.optimizer.zero_grad()
        zero = torch.zeros_like(t)
        initial = self.mse(self.model(x, zero), torch.sin(torch.pi * x))
        boundary = self.model(zero, t).pow(2).mean() + self.model(zero + 1, t).pow(2).mean()
        loss = initial + boundary + (self.model.residual(x, t) ** 2).mean()
        loss.backward()
        self.optimizer.step()
        return loss

    def evaluate(self, x, t):
        return self.model(x, t)


def batch(rng):
    return rng.random((20, 1)).astype("float32"), rng.random((20, 1)).astype("float32")
