"""Helpers for tests of compiled functions: data, comparisons, a network of plain tensors."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sweep import flat

import tapegrad as tg
from tapegrad.core.tensor import Tensor
from tapegrad.replay import Compiled


def randn(*shape: int, seed: int = 0) -> Tensor:
    return tg.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def close(a: Any, b: Any, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(
        a.detach().numpy(), b.detach().numpy(), rtol=tolerance, atol=tolerance
    )


def replayed(function: Compiled) -> int:
    return sum(replay.count for replay in function.replays)


def recorded(undo: Any, replay: Any, tensors: Any, result: Any, witness: Any) -> None:
    """Replaces `Undo.back`: a recorded call keeps the results of its eager run."""


def callbacks(function: Compiled) -> list[str]:
    """Primitives that run as NumPy callbacks, except collectives, which never are native code."""
    return [
        c.primitive.name
        for replay in function.replays
        if replay.executable is not None
        for c in replay.executable.callbacks
        if not c.primitive.collective
    ]


def same_as_eager(
    function: Callable[..., Any], *shapes: tuple[int, ...], calls: int = 5
) -> Compiled:
    """Compare the compiled and the plain function on new data in each call."""
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
    """A network of plain tensors with a training step."""

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


def random_program(seed: int) -> Callable[..., list[Tensor]]:
    """A random function of tensors: arithmetic, reductions, views, products, in-place changes."""

    def run(*given: Tensor) -> list[Tensor]:
        choose = random.Random(seed)
        values = list(given)

        def like(x: Tensor) -> Tensor:
            return choose.choice([v for v in values if v.shape == x.shape])

        for _ in range(choose.randint(5, 25)):
            x = choose.choice(values)
            d = choose.randrange(x.ndim) if x.ndim else 0
            rows = tg.tensor(
                [choose.randrange(max(len(x), 1)) for _ in range(3)] if x.ndim else [0]
            )
            fitting = [v for v in values if x.ndim == v.ndim == 2 and x.shape[1] == v.shape[0]]
            pure: list[Callable[[], Tensor]] = [
                lambda x=x: x + like(x),
                lambda x=x: x * like(x) - 0.5,
                lambda x=x: tg.where(x > 0, x, x * 0.1).tanh(),
                lambda x=x: (x * 0.1).exp().maximum(like(x)),
                lambda x=x: x.sum() * 0.01,
                lambda x=x: x.clone(),
                lambda x=x: x.detach(),
            ]
            changes: list[Callable[[], Any]] = [
                lambda x=x: x.mul_(0.5),
                lambda x=x: x.add_(like(x) * 0.1),
                lambda x=x: x.copy_(like(x).sigmoid()),
            ]
            if x.ndim:
                pure += [
                    lambda x=x, d=d: x - x.mean(d, keepdim=True),
                    lambda x=x, d=d: x.amax(d),
                    lambda x=x: x.transpose(0, -1),
                    lambda x=x, d=d: x.flip(d).roll(1, d),
                    lambda x=x, d=d: x.narrow(d, 0, (x.shape[d] + 1) // 2),
                    lambda x=x, rows=rows: x[rows],
                    lambda x=x: tg.cat([x, like(x)]),
                    lambda x=x: x.reshape(-1)[::2],
                ]
                changes += [
                    lambda x=x: x.__setitem__(0, 0.25),
                    lambda x=x: x.transpose(0, -1).mul_(0.9),
                    lambda x=x: x[1:].add_(0.1),
                ]
            if fitting:
                y = choose.choice(fitting)
                pure.append(lambda x=x, y=y: x @ y * 0.1)
            if choose.random() < 0.25:
                choose.choice(changes)()
            else:
                made = choose.choice(pure)()
                if made.numel() < 2000:
                    values.append(made)
        return [values[-1], choose.choice(values)]

    return run
