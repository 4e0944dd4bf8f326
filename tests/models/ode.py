"""A neural ODE: Runge-Kutta steps into unset memory, and gradients by the adjoint equation."""

import torch
import torch.nn as nn


class ODEFunc(nn.Module):
    def __init__(self):
        super(ODEFunc, self).__init__()
        self.net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
        for m in self.net.modules():
            if isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, mean=0, std=0.1)
                nn.init.constant_(m.bias, val=0)

    def forward(self, t, y):
        return self.net(y**3)


def rk4_step(func, t, dt, y):
    k1 = func(t, y)
    k2 = func(t + dt / 3, y + dt * k1 / 3)
    k3 = func(t + dt * 2 / 3, y + dt * (k2 - k1 / 3))
    k4 = func(t + dt, y + dt * (k1 - k2 + k3))
    return (k1 + 3 * (k2 + k3) + k4) * dt * 0.125


def odeint(func, y0, t):
    solution = torch.empty(len(t), *y0.shape, dtype=y0.dtype, device=y0.device)
    solution[0] = y0
    j = 1
    for t0, t1 in zip(t[:-1], t[1:]):
        y1 = y0 + rk4_step(func, t0, t1 - t0, y0)
        solution[j] = y1
        j += 1
        y0 = y1
    return solution


class Adjoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx, func, n, h, y0, *params):
        ctx.func, ctx.n, ctx.h = func, n, h
        with torch.no_grad():
            y = y0
            for _ in range(n):
                y = y + h * func(0, y)
        ctx.save_for_backward(y, *params)
        return y

    @staticmethod
    def backward(ctx, grad_y):
        y, *params = ctx.saved_tensors
        a, gp = grad_y, [torch.zeros_like(p) for p in params]
        for _ in range(ctx.n):
            with torch.enable_grad():
                z = y.detach().requires_grad_(True)
                f = ctx.func(0, z)
                gz, *gs = torch.autograd.grad(f, (z, *params), a, allow_unused=True)
            y = y - ctx.h * f.detach()
            a = a + ctx.h * gz
            gp = [s + ctx.h * g for s, g in zip(gp, gs)]
        return (None, None, None, a, *gp)


class Trainer:
    def __init__(self, adjoint=False):
        self.adjoint = adjoint
        self.model = ODEFunc()
        self.optimizer = torch.optim.RMSprop(self.model.parameters(), lr=1e-2)
        self.t = torch.linspace(0.0, 1.0, 4)

    def step(self, y0, target):
        self.optimizer.zero_grad()
        if self.adjoint:
            y = Adjoint.apply(self.model, 5, 0.2, y0, *self.model.parameters())
            loss = (y - target[-1]).pow(2).mean()
        else:
            loss = torch.mean(torch.abs(odeint(self.model, y0, self.t) - target))
        loss.backward()
        self.optimizer.step()
        return loss

    def evaluate(self, y0, target):
        return odeint(self.model, y0, self.t)


def batch(rng):
    y0 = rng.standard_normal((6, 2)).astype("float32")
    return y0, rng.standard_normal((4, 6, 2)).astype("float32")
