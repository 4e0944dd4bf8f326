"""Hooks against PyTorch: when they run, in which order, and what they see of other gradients."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

import tapegrad

LEAVES = 5


def numbers(gradient: Any) -> list[float]:
    return [round(float(v), 3) for v in gradient.detach().tolist()]


def observed(library: Any, seed: int) -> list[Any]:
    """What hooks of a random program see, in the order in which they run."""
    rng, values = random.Random(seed), np.random.default_rng(seed)
    log: list[Any] = []
    leaves = [
        library.tensor(values.normal(size=3).astype("f"), requires_grad=True) for _ in range(LEAVES)
    ]

    def after(i: int) -> Any:
        def hook(leaf: Any) -> None:
            log.append((f"after {i}", numbers(leaf.grad), [x.grad is not None for x in leaves]))

        return hook

    def before(name: str) -> Any:
        return lambda g: log.append((name, [x.grad is not None for x in leaves]))

    for i, leaf in enumerate(leaves):
        which = rng.random()
        if which < 0.5:
            leaf.register_post_accumulate_grad_hook(after(i))
        if which > 0.3:
            leaf.register_hook(before(f"before {i}"))
    made = list(leaves)
    for j in range(rng.randrange(3, 14)):
        a, b = rng.choice(made), rng.choice(made)
        kind = rng.choice(("mul", "add", "sub", "sin", "cat", "unbind"))
        if kind == "sin":
            made.append(library.sin(a))
        elif kind == "cat":
            made.append(library.cat([a, b])[1:4])
        elif kind == "unbind":
            first, second = library.stack([a, b]).unbind(0)
            made.append(first * second)
        else:
            made.append(getattr(library, kind)(a, b))
        if rng.random() < 0.2:
            made[-1].register_hook(before(f"between {j}"))
    loss = (made[-1] * made[-2]).sum()
    for _ in range(rng.choice((1, 1, 2))):
        options = {}
        if rng.random() < 0.2:
            options["inputs"] = [leaf for leaf in leaves if rng.random() < 0.6] or leaves[:1]
        try:
            loss.backward(retain_graph=True, **options)
        except RuntimeError:
            log.append("refused")
    return log


@pytest.mark.parametrize("seed", range(150))
def test_hooks_run_when_and_where_they_do_in_pytorch(seed: int) -> None:
    assert observed(tapegrad, seed) == observed(torch, seed)
