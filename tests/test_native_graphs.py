"""Random graphs in eager mode, with native code at every size: the gradients are NumPy's.

Leaves are used many times, by products, views and elementwise operations, so that rules run in
chains and add to what leaves have got already.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import Tensor, nn
from tapegrad.autograd import engine
from tapegrad.core import acceleration, fast
from tapegrad.core.primitive import NEVER, PRIMITIVES, Accelerator
from tapegrad.replay.use import eager

F = nn.functional

pytest.importorskip("llvmlite")

ROWS, COLUMNS = 4, 6

#: of a value, another one, a square matrix and a vector, all leaves or made of them
OPERATIONS: list[Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = [
    lambda x, y, w, b: x * y,
    lambda x, y, w, b: x + y.tanh(),
    lambda x, y, w, b: x - y * 0.5,
    lambda x, y, w, b: F.gelu(x) + x,
    lambda x, y, w, b: x / (y * y + 1),
    lambda x, y, w, b: tg.where(x > y, x, y * 2),
    lambda x, y, w, b: x @ w * 0.3,
    lambda x, y, w, b: (w @ x.T).T * 0.3,
    lambda x, y, w, b: F.linear(x, w, b) * 0.3,
    lambda x, y, w, b: x @ (w.T * 0.3) + (w.T * b).cos().sum(0),
    lambda x, y, w, b: F.batch_norm(x, None, None, b, training=True) + x,
    lambda x, y, w, b: tg.cat(x.chunk(2, 1)[::-1], 1) * b,
    lambda x, y, w, b: x.softmax(1) * y,
    lambda x, y, w, b: x.clone().mul_(0.5).add_(y),
    lambda x, y, w, b: x.T.contiguous().T.sigmoid() * b,
    lambda x, y, w, b: x.sort(1)[0] + y,
]


@pytest.fixture
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Native code at every size, in runs of rules and for sums at leaves too."""
    monkeypatch.setattr(acceleration, "_accelerator", eager.Native())
    for p in PRIMITIVES.values():
        if p.native_size < NEVER:
            monkeypatch.setattr(p, "direct", p._first_direct)
            monkeypatch.setattr(p, "_pull", None)
            if not p.composite:
                monkeypatch.setattr(p, "native_size", 0)
            assert p.pull
            monkeypatch.setattr(p, "native_size", 0)
    monkeypatch.setitem(fast.NAMES, "ARRAY_SIZE", 0)
    for module, name in ((engine, "PRODUCT_SIZE"), (eager, "SMALL_PRODUCT")):
        monkeypatch.setattr(module, name, 0)


def observed(seed: int) -> list[Any]:
    """Values and gradients of a graph: twice, by both ways to ask, with hooks that keep them."""
    draw, rng = random.Random(seed), np.random.default_rng(seed)
    shapes = ((ROWS, COLUMNS), (ROWS, COLUMNS), (COLUMNS, COLUMNS), (COLUMNS,))
    leaves = [tg.tensor(rng.standard_normal(shape)).requires_grad_() for shape in shapes]
    values, kept = leaves[:2], []
    for _ in range(draw.randint(4, 12)):
        x, y = draw.choice(values[-3:]), draw.choice(values)
        values = [*values, draw.choice(OPERATIONS)(x, y, *leaves[2:])]
        if draw.random() < 0.2:
            values[-1].register_hook(kept.append)
    middle = draw.choice(values[2:])
    middle.retain_grad()
    loss = (values[-1] * values[-2]).square().mean() + (middle * 0.1).sum()
    asked = tg.autograd.grad(loss, [*leaves, middle], retain_graph=True, allow_unused=True)
    loss.backward(retain_graph=True)
    first = [leaf.grad for leaf in leaves]
    loss.backward()
    seen = [*values, *asked, *kept, *first, middle.grad, *[leaf.grad for leaf in leaves]]
    return [None if t is None else t.detach().numpy().copy() for t in seen]


@pytest.mark.parametrize("first", range(0, 100, 10))
@pytest.mark.usefixtures("everywhere")
def test_gradients_of_random_graphs(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(first, first + 10):
        # Large gradients are summed by native code, smaller ones by NumPy in the order they have.
        monkeypatch.setattr(engine, "ARRAY_SIZE", NEVER if seed % 2 else 0)
        found = observed(seed)
        with monkeypatch.context() as patch:
            patch.setattr(acceleration, "_accelerator", Accelerator())
            expected = observed(seed)
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            assert (a is None) == (b is None)
            if b is not None:
                scale = max(np.abs(b).max(), 1.0)
                np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * scale, err_msg=f"{seed}")
