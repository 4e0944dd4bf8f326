"""`tapegrad demo pinn`: a network solves Burgers' equation, a wave that steepens into a front.

    u_t + u u_x = ν u_xx    where -1 < x < 1 and 0 < t < 1
    u(x, 0) = -sin(πx)      u(-1, t) = u(1, t) = 0

The network is trained on the equation alone: autograd gives its derivatives by t and x, to second
order, and training differentiates once more. The exact solution (Cole and Hopf) is a ratio of two
integrals.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import autograd, cat, manual_seed, nn, no_grad, ones_like, optim, rand, tensor
from ..core.tensor import Tensor
from .charts import Box, curves, field
from .picture import Picture
from .report import Report
from .training import DemoOptions, Run

DESCRIPTION = "Burgers' equation solved by a network, with second derivatives from autograd"
STEPS = 5000
POINTS = 512  # points per step at which the equation is evaluated
VISCOSITY = 0.1 / math.pi


class Solution(nn.Module):
    """u(x, t), built so that initial and boundary values are exact for any network."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.network = nn.Sequential(
            nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(),
            nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1),
        )  # fmt: skip

    def forward(self, x: Tensor, t: Tensor) -> Any:
        free = self.network(cat([x, t], dim=1))
        return -(math.pi * x).sin() + t * (1 - x**2) * free


def residual(u: Solution, x: Tensor, t: Tensor) -> Any:
    """u_t + u u_x - ν u_xx: zero where the equation holds."""
    x.requires_grad_()
    t.requires_grad_()
    value = u(x, t)
    u_x: Any
    u_xx: Any
    u_x, u_t = autograd.grad(value, (x, t), ones_like(value), create_graph=True)
    (u_xx,) = autograd.grad(u_x, x, ones_like(u_x), create_graph=True)
    return u_t + value * u_x - VISCOSITY * u_xx


def loss_of(u: Solution) -> Any:
    """The mean square of the residual at points drawn anew."""
    x, t = rand(POINTS, 1) * 2 - 1, rand(POINTS, 1)
    return (residual(u, x, t) ** 2).mean()


def exact(x: np.ndarray, t: np.ndarray) -> np.ndarray:
    """The exact solution by Gauss-Hermite quadrature, for arrays of one shape."""
    nodes, weights = np.polynomial.hermite.hermgauss(100)
    y = x[..., None] - np.sqrt(4 * VISCOSITY * t)[..., None] * nodes
    # Scaled by the largest exponent, which cancels in the ratio.
    potential = np.exp(-(np.cos(math.pi * y) + 1) / (2 * math.pi * VISCOSITY)) * weights
    return np.asarray(-(np.sin(math.pi * y) * potential).sum(-1) / potential.sum(-1))


def run(options: DemoOptions, report: Report) -> dict[str, float]:
    """Train, print the error against the exact solution, save both."""
    manual_seed(options.seed)
    u = Solution()
    optimizer = optim.Adam(u.parameters(), lr=5e-3)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)
    report.say(
        f"{POINTS} random points a step, {sum(p.numel() for p in u.parameters())} parameters"
    )

    step = options.step(optimizer, lambda: loss_of(u))
    run = Run()
    with report.progress("pinn", options.steps) as advance:
        for _ in range(options.steps):
            advance(run.step(step))
            schedule.step()
    x, t = np.meshgrid(np.linspace(-1, 1, 129), np.linspace(0, 1, 65))
    flat = [tensor(v.reshape(-1, 1).astype(np.float32)) for v in (x, t)]
    with no_grad():
        found = u(*flat).reshape(*x.shape).numpy()
    truth = exact(x, t)
    error = float(np.linalg.norm(found - truth) / np.linalg.norm(truth))
    worst = float(np.abs(found - truth).max())
    report.headline(
        f"relative error {error:.2e}, largest error {worst:.2e} against the exact solution; "
        f"{options.steps} steps in {run.total:.1f} s"
    )
    path = _draw(run, x[0], found, truth).save(options.output / "pinn.png")
    report.say(f"the solution and its error are drawn in {path}")
    return {"relative error": error, "largest error": worst, "seconds": run.total}


def _draw(run: Run, x: np.ndarray, found: np.ndarray, truth: np.ndarray) -> Picture:
    picture = Picture(1280, 880)
    axes = "x from -1 to 1; t upwards from 0 to 1"
    field(picture, Box(32, 32, 620, 420), "u(x, t) of the network", found, -1, 1, axes)
    worst = max(float(np.abs(found - truth).max()), 1e-12)
    title = "Its error against the exact solution"
    field(picture, Box(680, 32, 1260, 420), title, np.abs(found - truth), 0, worst, axes)
    title = "Mean square of the residual"
    curves(picture, Box(32, 460, 620, 860), title, {"": run.curve()}, "step", log=True)
    moments = {f"t = {i / 64:g}": (x.tolist(), found[i].tolist()) for i in (0, 16, 64)}
    curves(picture, Box(680, 460, 1250, 860), "u(x) at three times", moments, "x")
    return picture
