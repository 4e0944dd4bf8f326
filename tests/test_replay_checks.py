"""What eager refuses a replay refuses too: bad data in compiled training steps.

Each case is a loss of parameters and data. A compiled step gets good data, then bad data: it must
raise what eager raises, leave what eager leaves, and go on as eager does with good data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from replaying import replayed

import tapegrad as tg
from tapegrad import nn
from tapegrad.core.tensor import Tensor
from tapegrad.nn import functional as F
from tapegrad.replay import register_target, unregister_target
from tapegrad.replay.cuda.simulation import SimulatedGPU

ROWS, CLASSES = 6, 5


def labels(*shape: int, high: int = CLASSES, low: int = 0) -> Callable[[Any], Any]:
    return lambda rng: rng.integers(low, high, shape)


def with_one(value: Any, *shape: int, high: int = CLASSES) -> Callable[[Any], Any]:
    """Good integers, one of which is replaced."""

    def make(rng: Any) -> Any:
        data = rng.integers(0, high, shape)
        data.reshape(-1)[-1] = value
        return data

    return make


def given(*values: Any) -> Callable[[Any], Any]:
    return lambda rng: np.array(values)


def chances(*shape: int, worst: float | None = None) -> Callable[[Any], Any]:
    def make(rng: Any) -> Any:
        data = rng.random(shape).astype(np.float32)
        if worst is not None:
            data.reshape(-1)[-1] = worst
        return data

    return make


def grid(w: Any) -> Any:
    """Scores (6, 5) of parameters."""
    return w[:ROWS, :CLASSES]


Case = tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]

CASES: dict[str, Case] = {
    "cross_entropy -1": (
        lambda w, y: F.cross_entropy(grid(w), y), (labels(ROWS),), (with_one(-1, ROWS),)
    ),
    "cross_entropy 5": (
        lambda w, y: F.cross_entropy(grid(w), y), (labels(ROWS),), (with_one(5, ROWS),)
    ),
    "cross_entropy smooth": (
        lambda w, y: F.cross_entropy(grid(w), y, label_smoothing=0.1),
        (with_one(-100, ROWS),), (with_one(-99, ROWS),)
    ),
    "cross_entropy ignored": (
        lambda w, y: F.cross_entropy(grid(w), y, ignore_index=2),
        (labels(ROWS),), (with_one(-1, ROWS),)
    ),
    "cross_entropy weighted": (
        lambda w, y: F.cross_entropy(grid(w), y, weight=tg.arange(5.0) + 1),
        (labels(ROWS),), (with_one(-2, ROWS),)
    ),
    "cross_entropy bytes": (
        lambda w, y: F.cross_entropy(grid(w), y.byte()), (labels(ROWS),), (with_one(9, ROWS),)
    ),
    "nll_loss": (
        lambda w, y: F.nll_loss(grid(w).log_softmax(1), y), (labels(ROWS),), (with_one(-1, ROWS),)
    ),
    "NLLLoss2d": (
        lambda w, y: nn.NLLLoss()(grid(w)[None, :, :, None].expand(1, 6, 5, 2), y),
        (labels(1, 5, 2, high=6),), (with_one(-3, 1, 5, 2),)
    ),
    "embedding": (lambda w, y: F.embedding(y, w).square().sum(), (labels(4),), (with_one(-1, 4),)),
    "embedding high": (
        lambda w, y: F.embedding(y, w).square().sum(), (labels(4),), (with_one(8, 4),)
    ),
    "embedding padded": (
        lambda w, y: F.embedding(y, w, padding_idx=0).square().sum(),
        (labels(4),), (with_one(-8, 4),)
    ),
    "embedding_bag": (
        lambda w, y: F.embedding_bag(y, w, mode="sum").square().sum(),
        (labels(2, 3),), (with_one(-1, 2, 3),)
    ),
    "embedding_bag first": (
        lambda w, y: F.embedding_bag(tg.arange(5), w, y, mode="sum").square().sum(),
        (given(0, 2, 4),), (given(1, 2, 4),)
    ),
    "embedding_bag falling": (
        lambda w, y: F.embedding_bag(tg.arange(5), w, y, mode="mean").square().sum(),
        (given(0, 2, 4),), (given(0, 3, 2),)
    ),
    "embedding_bag beyond": (
        lambda w, y: F.embedding_bag(tg.arange(5), w, y, mode="sum").square().sum(),
        (given(0, 2, 4),), (given(0, 2, 6),)
    ),
    "one_hot -1": (
        lambda w, y: (F.one_hot(y, 5) * grid(w)).sum(), (labels(ROWS),), (with_one(-1, ROWS),)
    ),
    "one_hot 5": (
        lambda w, y: (F.one_hot(y, 5) * grid(w)).sum(), (labels(ROWS),), (with_one(5, ROWS),)
    ),
    "gather": (
        lambda w, y: w.gather(1, y).square().sum(), (labels(8, 2),), (with_one(9, 8, 2),)
    ),
    "gather low": (
        lambda w, y: w.gather(1, y).square().sum(), (labels(8, 2),), (with_one(-9, 8, 2),)
    ),
    "scatter": (
        lambda w, y: w.scatter(1, y, 2.0).square().sum(), (labels(8, 2),), (with_one(9, 8, 2),)
    ),
    "scatter_add": (
        lambda w, y: w.scatter_add(1, y, w).square().sum(), (labels(8, 2),), (with_one(9, 8, 2),)
    ),
    "scatter_reduce": (
        lambda w, y: w.scatter_reduce(1, y, w, "amax").square().sum(),
        (labels(8, 2),), (with_one(9, 8, 2),)
    ),
    "index_select": (
        lambda w, y: w.index_select(0, y).square().sum(), (labels(3),), (with_one(8, 3),)
    ),
    "index_add": (
        lambda w, y: w.index_add(0, y, w[:3]).square().sum(), (labels(3),), (with_one(8, 3),)
    ),
    "index_copy": (
        lambda w, y: w.index_copy(0, y, w[:3]).square().sum(), (labels(3),), (with_one(8, 3),)
    ),
    "index_fill": (
        lambda w, y: w.index_fill(0, y, 2.0).square().sum(), (labels(3),), (with_one(8, 3),)
    ),
    "index_put": (
        lambda w, y: w.index_put((y,), w[:3]).square().sum(), (labels(3),), (with_one(8, 3),)
    ),
    "index_put added": (
        lambda w, y: w.index_put((y,), w[:3], accumulate=True).square().sum(),
        (labels(3),), (with_one(8, 3),)
    ),
    "x[i]": (lambda w, y: w[y].square().sum(), (labels(3),), (with_one(-9, 3),)),
    "x[i] 0-d": (lambda w, y: w[y].square().sum(), (labels(),), (with_one(8),)),
    "x[:, i]": (lambda w, y: w[:, y, None].square().sum(), (labels(3),), (with_one(9, 3),)),
    "take": (lambda w, y: w.take(y).square().sum(), (labels(3),), (with_one(99, 3),)),
    "take_along_dim": (
        lambda w, y: w.take_along_dim(y, 1).square().sum(), (labels(8, 2),), (with_one(9, 8, 2),)
    ),
    "multi_margin_loss": (
        lambda w, y: F.multi_margin_loss(grid(w), y), (labels(ROWS),), (with_one(7, ROWS),)
    ),
    "multilabel_margin_loss": (
        lambda w, y: F.multilabel_margin_loss(grid(w), y),
        (labels(6, 5, low=-1),), (with_one(-2, 6, 5),)
    ),
    "multilabel_margin_loss high": (
        lambda w, y: F.multilabel_margin_loss(grid(w), y),
        (labels(6, 5, low=-1),), (with_one(5, 6, 5),)
    ),
    "max_unpool": (
        lambda w, y: F.max_unpool1d(grid(w)[:2, :3], y, 2).square().sum(),
        (given([0, 2, 4], [1, 3, 5]),), (given([0, 2, 4], [1, 3, 6]),)
    ),
    "ctc input length": (
        lambda w, n, y: F.ctc_loss(w[:, :5].log_softmax(1)[:, None], y[None], n, tg.tensor([2])),
        (given(7), given(1, 2)), (given(9), given(1, 2))
    ),
    "ctc target length": (
        lambda w, n: F.ctc_loss(
            w[:, :5].log_softmax(1)[:, None], tg.tensor([[1, 2]]), tg.tensor([7]), n
        ),
        (given(2),), (given(-1),)
    ),
    "ctc targets in a row": (
        lambda w, n: F.ctc_loss(
            w[:, None, :5].expand(8, 2, 5).log_softmax(2), tg.tensor([1, 2, 3]),
            tg.tensor([7, 6]), n,
        ),
        (given(2, 1),), (given(2, 2),)
    ),
    "ctc targets": (
        lambda w, y: F.ctc_loss(
            w[:, :5].log_softmax(1)[:, None], y[None], tg.tensor([7]), tg.tensor([2])
        ),
        (given(1, 2),), (given(1, 7),)
    ),
    "binary_cross_entropy": (
        lambda w, p: F.binary_cross_entropy(p * w.sigmoid(), p.detach() * 0 + 1),
        (chances(8, 6),), (chances(8, 6, worst=-0.5),)
    ),
    "binary_cross_entropy nan": (
        lambda w, p: F.binary_cross_entropy(p * w.sigmoid(), p.detach() * 0 + 1),
        (chances(8, 6),), (chances(8, 6, worst=np.nan),)
    ),
    "gaussian_nll_loss": (
        lambda w, v: F.gaussian_nll_loss(w, w.detach() * 0, v),
        (chances(8, 6),), (chances(8, 6, worst=-0.1),)
    ),
    "bernoulli": (
        lambda w, p: (tg.bernoulli(p) * w).sum(), (chances(8, 6),), (chances(8, 6, worst=1.5),)
    ),
    "bernoulli nan": (
        lambda w, p: (tg.bernoulli(p) * w).sum(), (chances(8, 6),), (chances(8, 6, worst=np.nan),)
    ),
    "quantile": (
        lambda w, q: w.quantile(q).sum(), (chances(3),), (chances(3, worst=-0.5),)
    ),
    "floor_divide": (
        lambda w, y: (w * (7 // y)).sum(), (labels(6, low=1),), (with_one(0, 6, high=1),)
    ),
    "remainder": (
        lambda w, y: (w * (7 % y)).sum(), (labels(6, low=1),), (with_one(0, 6, high=1),)
    ),
    "fmod": (
        lambda w, y: (w * tg.fmod(tg.full_like(y, 7), y)).sum(),
        (labels(6, low=1),), (with_one(0, 6, high=1),)
    ),
}  # fmt: skip


class Trained:
    """A parameter, a layer with buffers, an optimizer, and the step of a case."""

    def __init__(self, loss: Callable[..., Any]) -> None:
        tg.manual_seed(3)
        self.loss = loss
        self.weight = nn.Parameter(tg.randn(8, 6))
        self.norm = nn.BatchNorm1d(6)
        self.optimizer = tg.optim.SGD([self.weight, *self.norm.parameters()], lr=0.01, momentum=0.9)

    def step(self, *data: Tensor) -> Any:
        self.optimizer.zero_grad()
        # A draw and changed buffers come before the check.
        noise = tg.rand(8, 6) * 0.01
        loss = self.loss(self.norm(self.weight + noise), *data)
        loss.backward()
        self.optimizer.step()
        return loss

    def grads(self) -> list[Any]:
        return [p.grad for p in (self.weight, *self.norm.parameters())]

    def state(self) -> list[Any]:
        """Everything that a step may change, but for gradients."""
        tensors = [self.weight, *self.norm.parameters(), *self.norm.buffers()]
        for state in self.optimizer.state.values():
            tensors += [v for v in state.values() if isinstance(v, Tensor)]
        return [*(t._array.copy() for t in tensors), np.array(tg.get_rng_state())]


@pytest.mark.parametrize("name", CASES)
def test_bad_data_in_a_compiled_step(name: str) -> None:
    loss, good, bad = CASES[name]

    def data(makers: Any, seed: int) -> list[Tensor]:
        rng = np.random.default_rng(seed)
        return [tg.tensor(make(rng)) for make in makers]

    def run(compiled: bool) -> tuple[list[Any], type[BaseException]]:
        trained = Trained(loss)
        step = tg.compile(trained.step) if compiled else trained.step
        seen: list[Any] = [step(*data(good, seed)) for seed in range(5)]
        with pytest.raises((RuntimeError, IndexError, ValueError)) as caught:
            step(*data(bad, 9))
        # The step begins with zero_grad.
        assert trained.grads() == [None] * 3
        if compiled:
            assert replayed(step) >= 2  # type: ignore[arg-type]
        failed = trained.state()
        seen += [step(*data(good, seed)) for seed in (10, 11)]
        grads = [g._array for g in trained.grads()]
        return [*(t.detach()._array for t in seen), *failed, *grads, *trained.state()], caught.type

    expected, eager_error = run(compiled=False)
    found, error = run(compiled=True)
    assert error is eager_error
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


def test_bad_data_leaves_accumulated_gradients() -> None:
    weight = nn.Parameter(tg.randn(8, 6))

    @tg.compile
    def step(y: Any) -> Any:
        loss = F.cross_entropy(weight, y)
        loss.backward()
        return loss

    for _ in range(4):
        step(tg.arange(8) % 6)
    assert replayed(step) >= 1
    assert weight.grad is not None
    before = weight.grad.numpy().copy()
    with pytest.raises(IndexError, match="cross_entropy: label -1 is out of range for 6 classes"):
        step(tg.arange(8) - 1)
    np.testing.assert_array_equal(weight.grad.numpy(), before)


def test_bad_labels_in_a_function_that_is_differentiated_outside() -> None:
    weight = nn.Parameter(tg.randn(8, 6))
    table = nn.Parameter(tg.randn(5, 6))

    @tg.compile
    def loss_of(tokens: Any, y: Any) -> Any:
        return F.cross_entropy(F.embedding(tokens, table) @ weight.T, y)

    tokens, y = tg.arange(4), tg.arange(4)
    for _ in range(4):
        loss_of(tokens, y).backward()
    assert replayed(loss_of) >= 1
    assert weight.grad is not None
    before = weight.grad.numpy().copy()
    for bad in ((tokens - 1, y), (tokens, y - 1), (tokens + 2, y), (tokens, y + 5)):
        with pytest.raises(IndexError, match="out of range"):
            loss_of(*bad)
    np.testing.assert_array_equal(weight.grad.numpy(), before)
    loss_of(tokens, y).backward()
    np.testing.assert_allclose(weight.grad.numpy(), before * 1.25, rtol=1e-4, atol=1e-6)


def test_gradients_that_are_not_finite_in_a_compiled_step() -> None:
    weight = nn.Parameter(tg.ones(4))
    optimizer = tg.optim.SGD([weight], lr=0.1, momentum=0.9)

    @tg.compile
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        (weight * x).sum().backward()
        total = nn.utils.clip_grad_norm_([weight], 1.0, error_if_nonfinite=True)
        optimizer.step()
        return total

    for i in range(4):
        assert step(tg.ones(4) * (i + 1)).item() == 2.0 * (i + 1)
    assert replayed(step) >= 1
    before = weight.detach().numpy().copy()
    with pytest.raises(RuntimeError, match="the norm of the gradients is not finite"):
        step(tg.tensor([1.0, np.inf, 1.0, 1.0]))
    np.testing.assert_array_equal(weight.detach().numpy(), before)


def test_the_error_is_that_of_eager() -> None:
    @tg.compile
    def looked_up(table: Any, tokens: Any, scale: Any) -> Any:
        doubled = scale * 2
        return F.embedding(tokens, table) * doubled  # here

    table, scale = tg.randn(5, 3), tg.ones(1)
    for _ in range(3):
        looked_up(table, tg.arange(5), scale)
    with pytest.raises(IndexError, match="embedding: token 5 is out of range for 5 rows"):
        looked_up(table, tg.arange(5) + 1, scale)


LOOKUPS: dict[str, Callable[[Any, Any], Any]] = {
    "gather": lambda w, i: w.gather(1, i[:, None]).sin().sum(),
    "scatter_add": lambda w, i: w.scatter_add(1, i[:, None], w[:, :1].sin()).sin().sum(),
    "scatter": lambda w, i: w.scatter(1, i[:, None], w[:, :1].sin()).sin().sum(),
    "index_put": lambda w, i: w.index_put((i,), w[:, :1].sin(), accumulate=True).sin().sum(),
    "index_add": lambda w, i: w.index_add(0, i, w.sin()).sin().sum(),
    "index": lambda w, i: w[i].sin().sum(),
    "embedding": lambda w, i: F.embedding(i, w).sin().sum(),
    "cross_entropy": lambda w, i: F.cross_entropy(w, i),
    "take_along_dim": lambda w, i: w.take_along_dim(i[:, None], 1).sin().sum(),
}


@pytest.mark.parametrize("backend", ["native", "simulated"])
@pytest.mark.parametrize("bad", [40, 10**9, -(10**9), 2**62, -(2**62)])
@pytest.mark.parametrize("name", LOOKUPS)
def test_an_index_far_out_of_range_reads_and_writes_nothing_there(
    name: str, bad: int, backend: str
) -> None:
    """What comes after the check may still run: it must stay inside of the memory."""
    register_target(SimulatedGPU())
    try:
        w = tg.randn(40, 40, requires_grad=True)

        def step(i: Any) -> Any:
            w.grad = None
            loss = LOOKUPS[name](w, i)
            loss.backward()
            with tg.no_grad():
                w.sub_(0.01 * w.grad)
            return loss.detach()

        fast = tg.compile(step, fullgraph=True, backend=backend)
        good = tg.arange(40)
        for _ in range(4):
            fast(good)
        before, wrong = w.detach().clone(), good.clone()
        wrong[3] = bad
        with pytest.raises((IndexError, RuntimeError)):
            fast(wrong)
        assert tg.equal(w.detach(), before)
        assert math.isfinite(fast(good).item())
    finally:
        unregister_target("simulated")
