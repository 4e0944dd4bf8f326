"""A function with its own gradient: training with the straight-through estimator.

The hidden layer of this network outputs only 0 or 1. The derivative of a step function is zero
almost everywhere, so backward uses the derivative of the identity near zero.
"""

import argparse

import tapegrad as torch
import tapegrad.nn.functional as F
from tapegrad import nn


class Binarize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * (x.abs() < 1)


class Cube(torch.autograd.Function):
    """A function with an exact gradient, to show how to check it."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 3 * x * x * grad_output


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=500)
    args = parser.parse_args()

    torch.manual_seed(0)
    point = torch.randn(4, dtype=torch.float64, requires_grad=True)
    print("gradient of Cube is right:", torch.autograd.gradcheck(Cube.apply, (point,)))

    first, second = nn.Linear(2, 32), nn.Linear(32, 2)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.02)
    x = torch.rand(512, 2) * 2 - 1
    y = (x.norm(dim=1) < 0.8).long()

    @torch.compile
    def train_step(x, y):
        optimizer.zero_grad()
        logits = second(Binarize.apply(first(x)))
        loss = F.cross_entropy(logits, y)
        loss.backward()
        optimizer.step()
        return loss, (logits.argmax(dim=1) == y).float().mean()

    for step in range(args.steps):
        loss, accuracy = train_step(x, y)
        if step % 100 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")
    print(f"accuracy with 32 yes-or-no neurons {accuracy.item():.1%}")


if __name__ == "__main__":
    main()
