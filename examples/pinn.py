"""Poisson's equation on a square, solved by a network that is trained on the equation alone.

-u_xx - u_yy = 2 π² sin(πx) sin(πy), with u = 0 on the boundary; its solution is sin(πx) sin(πy).
"""

import argparse

import tapegrad as torch
from tapegrad import nn

PI = torch.pi


def exact(x, y):
    return torch.sin(PI * x) * torch.sin(PI * y)


def gradient(u, x):
    return torch.autograd.grad(u.sum(), x, create_graph=True)[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1500)
    args = parser.parse_args()

    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(2, 32),
        nn.Tanh(),
        nn.Linear(32, 32),
        nn.Tanh(),
        nn.Linear(32, 1),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.steps)

    @torch.compile
    def train_step(x, y):
        optimizer.zero_grad()
        u = model(torch.cat([x, y], dim=1))
        laplacian = gradient(gradient(u, x), x) + gradient(gradient(u, y), y)
        inside = ((laplacian + 2 * PI**2 * exact(x, y)) ** 2).mean()
        # Each point projected onto each of the four sides.
        sides = [
            torch.cat(pair, dim=1) for i in (0, 1) for pair in ((x * 0 + i, y), (x, y * 0 + i))
        ]
        boundary = (model(torch.cat(sides).detach()) ** 2).mean()
        loss = inside + 100 * boundary
        loss.backward()
        optimizer.step()
        return loss

    for step in range(args.steps):
        x = torch.rand(256, 1, requires_grad=True)
        y = torch.rand(256, 1, requires_grad=True)
        loss = train_step(x, y)
        scheduler.step()
        if step % 100 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")

    with torch.no_grad():
        x, y = torch.rand(2000, 1), torch.rand(2000, 1)
        truth = exact(x, y)
        error = (model(torch.cat([x, y], dim=1)) - truth).norm() / truth.norm()
    print(f"relative error against the exact solution {error.item():.2e}")


if __name__ == "__main__":
    main()
