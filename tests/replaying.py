"""What the tests of compiled functions share: data, comparisons, a network of plain tensors."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sweep import flat

import tapegrad as tg
from tapegrad.replay import Compiled
from tapegrad.tensor import Tensor


def randn(*shape: int, seed: int = 0) -> Tensor:
    return tg.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def close(a: Any, b: Any, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(
        a.detach().numpy(), b.detach().numpy(), rtol=tolerance, atol=tolerance
    )


def replayed(function: Compiled) -> int:
    return sum(replay.count for replay in function.replays)


def callbacks(function: Compiled) -> list[str]:
    return [
        c.primitive.name
        for replay in function.replays
        if replay.executable is not None
        for c in replay.executable.callbacks
    ]


def same_as_eager(
    function: Callable[..., Any], *shapes: tuple[int, ...], calls: int = 5
) -> Compiled:
    """Call the compiled and the plain function on fresh data, and compare."""
    compiled: Compiled = tg.compile(function)
    for i in range(calls):
        given = [randn(*shape, seed=100 * i + j) for j, shape in enumerate(shapes)]
        for a, b in zip(flat(function(*given)), flat(compiled(*given)), strict=True):
            assert a.dtype is b.dtype
            assert a.shape == b.shape
            close(a, b)
    assert replayed(compiled) == calls - 2
    return compiled


class Mlp:
    """A network of plain tensors with its training step."""

    def __init__(self, *sizes: int, rate: float = 0.1) -> None:
        rng = np.random.default_rng(0)
        self.rate = rate
        self.parameters: list[Tensor] = []
        for a, b in itertools.pairwise(sizes):
            w = (rng.standard_normal((b, a)) / a**0.5).astype(np.float32)
            self.parameters += [
                tg.tensor(w, requires_grad=True),
                tg.zeros(b, requires_grad=True),
            ]

    def loss(self, x: Any, y: Any) -> Any:
        w1, b1, w2, b2 = self.parameters
        z = (x @ w1.T + b1).relu() @ w2.T + b2
        top = z.detach().amax(1, keepdim=True)
        total = (z - top).exp().sum(1, keepdim=True).log() + top
        return -(z - total).gather(1, y.unsqueeze(1)).mean()

    def step(self, x: Any, y: Any) -> Any:
        for p in self.parameters:
            p.grad = None
        loss = self.loss(x, y)
        loss.backward()
        with tg.no_grad():
            for p in self.parameters:
                p -= self.rate * p.grad
        return loss


def batches(count: int, rows: int = 16, width: int = 24, classes: int = 5) -> Iterator[Any]:
    rng = np.random.default_rng(1)
    for _ in range(count):
        yield (
            tg.tensor(rng.standard_normal((rows, width)).astype(np.float32)),
            tg.tensor(rng.integers(0, classes, rows)),
        )
