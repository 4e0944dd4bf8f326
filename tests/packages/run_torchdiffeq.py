"""torchdiffeq: solvers of fixed and adaptive steps, gradients direct and by the adjoint, events."""

import torch
from common import data, finish, prepared, record, record_step
from torch import nn
from torchdiffeq import odeint, odeint_adjoint, odeint_event


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 3))

    def forward(self, t, y):
        return self.net(y) - t * y


field = prepared(Field())
start, times = data(4, 3), torch.linspace(0, 1, 5, dtype=torch.float64)
for method in ("dopri5", "dopri8", "bosh3", "adaptive_heun", "euler", "midpoint", "rk4",
               "explicit_adams", "implicit_adams"):  # fmt: skip
    record_step(method, field, odeint(field, start, times, method=method, rtol=1e-8, atol=1e-10))
adjoint = odeint_adjoint(field, start, times, rtol=1e-9, atol=1e-11, method="dopri5")
record_step("adjoint", field, adjoint)
moment, states = odeint_event(
    lambda t, y: torch.ones_like(y), torch.zeros(1, dtype=torch.float64),
    torch.tensor(0.0, dtype=torch.float64), event_fn=lambda t, y: (y - 0.7).sum(), rtol=1e-8,
    atol=1e-10,
)  # fmt: skip
record("event", [moment, states])
finish()
