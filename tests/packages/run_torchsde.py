"""torchsde: stochastic differential equations, their adjoint, latent training."""

import torch
import torchsde
from common import data, finish, prepared, record, record_step

torch.set_default_dtype(torch.float64)


class Walk:
    """A Brownian path whose increments come from NumPy."""

    levy_area_approximation = "none"
    dtype, device = torch.float64, torch.device("cpu")

    def __init__(self, shape, steps=64):
        self.shape = shape
        self.path = torch.cat([torch.zeros(1, *shape), data(steps, *shape).cumsum(0) / steps**0.5])
        self.steps = steps

    def at(self, t):
        place = float(t) * self.steps
        low = min(int(place), self.steps - 1)
        part = place - low
        return self.path[low] * (1 - part) + self.path[low + 1] * part

    def __call__(self, ta, tb=None, return_U=False, return_A=False):
        return self.at(tb) - self.at(ta)


class SDE(torch.nn.Module):
    def __init__(self, noise_type, sde_type):
        super().__init__()
        self.noise_type, self.sde_type = noise_type, sde_type
        self.mu = torch.nn.Linear(3, 3)
        self.sigma = torch.nn.Linear(3, 6 if noise_type == "general" else 3)

    def f(self, t, y):
        return torch.tanh(self.mu(y)) * (1 + t)

    def g(self, t, y):
        out = 0.3 * torch.sigmoid(self.sigma(y))
        if self.noise_type == "general":
            return out.view(y.shape[0], 3, 2)
        return out[..., None] if self.noise_type == "scalar" else out

    h = f


y0 = data(4, 3, seed=3)
ts = torch.linspace(0, 1, 5)
for noise, kind, method in (
    ("diagonal", "ito", "euler"),
    ("diagonal", "ito", "milstein"),
    ("diagonal", "stratonovich", "heun"),
    ("diagonal", "stratonovich", "midpoint"),
    ("diagonal", "stratonovich", "reversible_heun"),
    ("general", "stratonovich", "euler_heun"),
    ("general", "ito", "euler"),
):
    sde = prepared(SDE(noise, kind))
    size = (4, 2) if noise == "general" else (4, 3)
    ys = torchsde.sdeint(sde, y0, ts, bm=Walk(size), method=method, dt=1 / 16)
    record_step(f"{noise}.{kind}.{method}", sde, ys)
for method, backward in (("midpoint", "midpoint"), ("reversible_heun", "adjoint_reversible_heun")):
    sde = prepared(SDE("diagonal", "stratonovich"))
    start = y0.clone().requires_grad_()
    ys = torchsde.sdeint_adjoint(
        sde, start, ts, bm=Walk((4, 3)), method=method, adjoint_method=backward, dt=1 / 16
    )
    record_step(f"adjoint.{method}", sde, ys)
    record(f"adjoint.{method}.start", start.grad)
interval = torchsde.BrownianInterval(t0=0.0, t1=1.0, size=(200, 2), entropy=45, dtype=ts.dtype)
whole = interval(0.0, 1.0)
record("interval.shape", tuple(whole.shape))
record("interval.sums", bool(torch.allclose(whole, interval(0.0, 0.4) + interval(0.4, 1.0))))
record("interval.spread", bool(abs(float(whole.std()) - 1) < 0.2))

sde = prepared(SDE("diagonal", "ito"))
optimizer = torch.optim.Adam(sde.parameters(), lr=0.02)
losses = []
for _ in range(5):
    optimizer.zero_grad()
    ys = torchsde.sdeint(sde, y0, ts, bm=Walk((4, 3)), method="euler", dt=1 / 8)
    loss = (ys[-1] - 1).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
record("losses", losses)
finish()
