"""Targets: programs that others than the CPU run, and the border between them and the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import fuzz_replay
import numpy as np
import pytest
from replaying import close, randn, replayed
from sweep import NAMES, TABLE, flat, generator, make_arguments

import tapegrad as tg
from tapegrad import nn
from tapegrad.core.tensor import Tensor
from tapegrad.nn import functional as F
from tapegrad.replay import CaptureError, register_target, unregister_target
from tapegrad.replay.passes.regroup import regroup
from tapegrad.replay.reference.target import Interpreted, NumPyTarget


class Counted(NumPyTarget):
    """A target of the user's own: it counts what it builds and runs."""

    name = "counted"

    def __init__(self, missing: str | None = None) -> None:
        self.built: list[str] = []
        self.runs = 0
        self.why_not = missing

    def missing(self) -> str | None:
        return self.why_not

    def build(self, program: Any, name: str = "a program") -> Any:
        self.built.append(name)
        target = self

        class Counting(Interpreted):
            def attempt(self, arrays: tuple[Any, ...]) -> Exception | None:
                target.runs += 1
                return super().attempt(arrays)

        return Counting(program)


@pytest.fixture
def counted() -> Iterator[Counted]:
    target = Counted()
    register_target(target)
    yield target
    unregister_target("counted")


def test_a_target_of_ones_own_builds_and_runs_programs(counted: Counted) -> None:
    fast = tg.compile(lambda x: (x * 2).sin(), backend="counted")
    for i in range(5):
        x = randn(3, seed=i)
        close(fast(x), (x * 2).sin())
    assert len(counted.built) == 1
    assert (counted.runs, replayed(fast)) == (5, 3)  # recorded calls are replayed as well
    assert "2 primitives, run by NumPy" in fast.explain(full=True)
    assert "3 replays" in fast.explain()


def test_its_programs_are_differentiated(counted: Counted) -> None:
    fast = tg.compile(lambda x, w: (x @ w).tanh(), backend="counted")
    for i in range(4):
        x, w = randn(3, 4, seed=i), randn(4, 2, seed=i + 9).requires_grad_()
        fast(x, w).square().sum().backward()
        other = w.detach().clone().requires_grad_()
        (x @ other).tanh().square().sum().backward()
        close(w.grad, other.grad)
    assert len(counted.built) == 2
    assert "backward pass" in counted.built[1]


def test_a_target_that_is_missing_runs_eagerly_and_says_why(counted: Counted) -> None:
    counted.why_not = "its machine is switched off"
    fast = tg.compile(lambda x: x + 1, backend="counted")
    results = [fast(randn(3, seed=i)) for i in range(2)]
    with pytest.warns(UserWarning, match="switched off"):
        results.append(fast(randn(3, seed=2)))
    results.append(fast(randn(3, seed=3)))
    for i, found in enumerate(results):
        close(found, randn(3, seed=i) + 1)
    assert counted.built == []


def test_names_and_kinds_are_checked() -> None:
    with pytest.raises(ValueError, match=r"backend must be one of .*numpy.*, got 'tpu'"):
        tg.compile(lambda x: x, backend="tpu")
    with pytest.raises(TypeError, match="a target has a name"):
        register_target(object())  # type: ignore[arg-type]
    for name in ("numpy", "native", "eager"):
        target = Counted()
        target.name = name
        with pytest.raises(ValueError, match="exists already"):
            register_target(target)
        with pytest.raises(ValueError, match="was registered"):
            unregister_target(name)


def trained(backend: str) -> list[Any]:
    """A few steps of training with everything that a step may have."""
    tg.manual_seed(3)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
        nn.Dropout(0.2), nn.Linear(4 * 36, 5),
    )  # fmt: skip
    optimizer = tg.optim.AdamW(model.parameters(), lr=0.01)
    schedule = tg.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)

    @tg.compile(backend=backend)
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = []
    for i in range(7):
        y = tg.tensor(np.random.default_rng(i).integers(0, 5, 6))
        losses.append(step(randn(6, 1, 6, 6, seed=i), y))
        schedule.step()
    assert replayed(step) >= 4
    with pytest.raises(IndexError, match="label 9 is out of range"):
        step(randn(6, 1, 6, 6), tg.tensor([0, 1, 2, 3, 4, 9]))
    return [*losses, *(p.detach() for p in model.parameters()), *model.buffers()]


def test_training_is_the_same_on_both_targets() -> None:
    for a, b in zip(trained("native"), trained("numpy"), strict=True):
        close(a, b, 1e-4)


# -- composites ------------------------------------------------------------------------------------


class Whole(NumPyTarget):
    """A target that takes all composites and their rules whole, and shows its programs."""

    name = "whole"

    def __init__(self) -> None:
        self.programs: list[Any] = []

    def takes(self, primitive: Any) -> bool:
        return True

    def build(self, program: Any, name: str = "a program") -> Any:
        self.programs.append(regroup(program, self.takes))
        return super().build(program, name)

    def names(self) -> list[str]:
        return [x.primitive.name for program in self.programs for x in program.applied()]


@pytest.fixture
def whole() -> Iterator[Whole]:
    target = Whole()
    register_target(target)
    yield target
    unregister_target("whole")


def test_composites_are_whole_forward_and_backward(whole: Whole) -> None:
    def f(x: Any, w: Any) -> Any:
        loss = F.gelu(F.layer_norm(x @ w, (5,))).softmax(-1).square().sum()
        return loss, *tg.autograd.grad(loss, (x, w))

    fast = tg.compile(f, backend="whole")
    for i in range(4):
        x, w = (randn(*s, seed=i).requires_grad_() for s in ((3, 4), (4, 5)))
        for a, b in zip(fast(x, w), f(x, w), strict=True):
            close(a, b)
    names = whole.names()
    for name in ("standardize", "gelu", "softmax"):
        assert (names.count(name), names.count(f"{name}_backward")) == (1, 1)
    assert not {"exp", "erf", "sqrt", "tanh"} & set(names)


def test_their_programs_are_split_for_backward_outside(whole: Whole) -> None:
    def f(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    fast = tg.compile(f, backend="whole")
    for i in range(4):
        found = []
        for function in (f, fast):
            given = [randn(1, 2, 6, 4, seed=i + j).requires_grad_() for j in range(3)]
            function(*given).square().sum().backward()
            found.append([x.grad for x in given])
        for a, b in zip(*found, strict=True):
            close(a, b)
    assert any(n.endswith("_backward") for n in whole.names())


def test_parts_that_somebody_else_reads_stay(whole: Whole) -> None:
    fast = tg.compile(lambda x: (x.softmax(-1), x.softmax(-1).log()), backend="whole")
    for i in range(4):
        x = randn(3, 4, seed=i)
        close(fast(x)[0], x.softmax(-1))
        close(fast(x)[1], x.softmax(-1).log())
    assert whole.names().count("softmax") == 2


def compare_operation(name: str, backend: str, dtype: Any, tolerance: float, samples: int) -> None:
    """Run some samples of an operation, with gradients, eagerly and on a target."""
    op = TABLE[name]
    assert op.samples is not None
    fast = tg.compile(op.function, fullgraph=True, backend=backend)

    def run(function: Any, i: int, sample: Any) -> Any:
        args, kwargs = make_arguments(sample, generator(name, i), dtype, True)
        tg.manual_seed(i)
        outs = [o for o in flat(function(*args, **kwargs)) if isinstance(o, Tensor)]
        given = [x for x in flat([args, list(kwargs.values())]) if isinstance(x, Tensor)]
        inputs = [x for x in given if x.requires_grad]
        total = sum((o * o).sum().real for o in outs if o.requires_grad)
        if not inputs or not isinstance(total, Tensor):
            return outs
        found = tg.autograd.grad(total, inputs, allow_unused=True)
        return [*outs, *(g for g in found if g is not None)]

    for sample in op.samples()[:samples]:
        for i in range(3):
            try:
                results = [run(op.function, i, sample), run(fast, i, sample)]
            except CaptureError:
                return
            for a, b in zip(*results, strict=True):
                assert (a.dtype, a.shape) == (b.dtype, b.shape)
                close(a, b, tolerance)


@pytest.mark.sweep(keep=1 / 2, some="name")
@pytest.mark.parametrize("name", NAMES)
def test_every_operation_with_composites_whole(name: str, whole: Whole) -> None:
    compare_operation(name, "whole", tg.float64, 1e-8, samples=1)


@pytest.mark.filterwarnings("ignore:a complex tensor became real")
@pytest.mark.parametrize("seed", range(30))
def test_random_programs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_replay, "BACKEND", "numpy")
    _, outcome, text, _ = fuzz_replay.trial(1_700_000 + seed, "mixed")
    assert outcome not in ("different", "crashed"), text
