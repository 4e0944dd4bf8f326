"""`compile(memory=...)`: replays keep to a budget, and compute the same as without one."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import fuzz_replay
import numpy as np
import pytest

import tapegrad as tg
from tapegrad import nn
from tapegrad.core import amounts
from tapegrad.replay.cpu import tuning
from tapegrad.replay.cpu.executable import NativeProgram
from tapegrad.replay.passes.recompute import work_of
from tapegrad.utils.checkpoint import checkpoint

pytest.importorskip("llvmlite")

F = nn.functional
Step = Callable[[], tg.Tensor]


def _mlp(regions: bool = False) -> tuple[nn.Module, Step]:
    """Layers with dropout, norms and an activation, and Adam; blocks under checkpoint if asked."""
    blocks = [
        nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU(), nn.Dropout(0.1))
        for _ in range(8)
    ]
    model = nn.Sequential(*blocks)
    optimizer = tg.optim.Adam(model.parameters(), lr=1e-2)
    x = tg.randn(256, 64)

    def step() -> tg.Tensor:
        optimizer.zero_grad()
        y = x
        for block in blocks:
            y = checkpoint(block, y, use_reentrant=False) if regions else block(y)
        loss = (y * y).mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def _cnn() -> tuple[nn.Module, Step]:
    """Convolutions and batch norm, whose running statistics are written while the step runs.

    Values of SiLU cost enough to be kept; those of ReLU are computed again without a budget.
    """
    layers: list[nn.Module] = []
    for inside, outside in ((3, 16), (16, 16), (16, 16), (16, 16)):
        layers += [nn.Conv2d(inside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.SiLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
    optimizer = tg.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x, y = tg.randn(8, 3, 16, 16), tg.randint(0, 10, (8,))

    def step() -> tg.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def _attention() -> tuple[nn.Module, Step]:
    """An embedding, whose bad indices are errors, attention, and a clipped norm."""
    model = nn.ModuleDict(
        {
            "tokens": nn.Embedding(50, 32),
            "blocks": nn.ModuleList(
                [nn.TransformerEncoderLayer(32, 4, 64, batch_first=True) for _ in range(3)]
            ),
            "head": nn.Linear(32, 50),
        }
    )
    optimizer = tg.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    tokens = tg.randint(0, 50, (4, 33))

    def step() -> tg.Tensor:
        optimizer.zero_grad()
        x = model["tokens"](tokens[:, :-1])
        for block in model["blocks"]:
            x = block(x)
        loss = F.cross_entropy(model["head"](x).reshape(-1, 50), tokens[:, 1:].reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return model, step


def _recurrent() -> tuple[nn.Module, Step]:
    model = nn.LSTM(16, 32, num_layers=2, batch_first=True)
    optimizer = tg.optim.RMSprop(model.parameters(), lr=1e-3)
    x = tg.randn(8, 24, 16)

    def step() -> tg.Tensor:
        optimizer.zero_grad()
        loss: tg.Tensor = (model(x)[0] ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


MODELS = {"mlp": _mlp, "cnn": _cnn, "attention": _attention, "recurrent": _recurrent}


def _trained(
    make: Callable[[], tuple[nn.Module, Step]], memory: int | str | None, steps: int = 5
) -> tuple[list[Any], NativeProgram, str]:
    """The losses and all parameters and buffers after some steps, and what ran them."""
    tg.manual_seed(0)
    tg.set_default_dtype(tg.float64)
    try:
        model, step = make()
    finally:
        tg.set_default_dtype(tg.float32)
    compiled = tg.compile(step, memory=memory)
    losses = [compiled().item() for _ in range(steps)]
    (replay,) = compiled.replays
    assert replay.count >= 2
    assert isinstance(replay.executable, NativeProgram)
    state = [t.numpy().copy() for t in model.state_dict().values()]
    return [np.array(losses), *state], replay.executable, compiled.explain(full=True)


def _assert_same(found: list[Any], expected: list[Any]) -> None:
    """Equal up to rounding of float64, which five steps of an optimizer make larger."""
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", MODELS)
def test_a_budget_is_kept_and_changes_no_result(name: str) -> None:
    expected, plain, _ = _trained(MODELS[name], None)
    met = 1.0
    for share in (0.9, 0.75, 0.6, 0.33, 0.1):
        budget = int(share * plain.scratch)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found, executable, said = _trained(MODELS[name], budget)
        _assert_same(found, expected)
        over = any("is not enough" in str(w.message) for w in caught)
        assert over == (executable.scratch > budget)
        assert executable.scratch < plain.scratch
        met = met if over else share
        again = len(executable.program.instructions) - len(plain.program.instructions)
        told = re.search(
            r"memory: .* if all were kept\): (\d+) kernels run again, (.*)% more", said
        )
        assert again == (0 if told is None else int(told[1]))
        assert told is None or float(told[2]) > 0
        assert "memory: " in said
    # The gates of all steps of an LSTM lie in one value, which is not computed again.
    assert met <= {"mlp": 0.33, "cnn": 0.75, "attention": 0.6, "recurrent": 1.0}[name]
    assert again


@pytest.mark.sweep(some="first")
@pytest.mark.parametrize("first", range(0, 120, 10))
def test_random_programs_on_the_smallest_budget(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuzz_replay, "MEMORY", 1)
    for seed in range(first, first + 10):
        _, _, story, _ = fuzz_replay.trial(seed)
        assert not story, story


@pytest.mark.parametrize("name", ["mlp", "cnn", "attention"])
def test_large_programs_save_memory_without_a_budget(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAPEGRAD_CACHE", "0")  # programs on disk do not know these settings
    expected, plain, _ = _trained(MODELS[name], None)
    monkeypatch.setattr(tuning, "MIN_ARENA_BYTES_TO_SAVE", 1)
    monkeypatch.setattr(tuning, "WANTED_SHARE_OF_ARENA", 0.8)
    monkeypatch.setattr(tuning, "MAX_SHARE_OF_WORK_TO_SAVE_MEMORY", 0.2)
    found, executable, said = _trained(MODELS[name], None)
    _assert_same(found, expected)
    assert executable.plan.arena < plain.plan.arena
    assert "memory: " not in said
    work = [sum(map(work_of, one.program.instructions)) for one in (executable, plain)]
    assert work[0] <= 1.2 * work[1]


def test_a_budget_that_is_large_enough_costs_nothing() -> None:
    expected, plain, _ = _trained(_mlp, None)
    found, executable, said = _trained(_mlp, plain.scratch)
    _assert_same(found, expected)
    assert executable.scratch == plain.scratch
    assert len(executable.program.instructions) == len(plain.program.instructions)
    assert "kernels run again" not in said


def test_half_of_an_mlp_costs_less_than_a_second_forward_pass() -> None:
    _, plain, _ = _trained(_mlp, None)
    _, executable, said = _trained(_mlp, plain.scratch // 2)
    assert executable.scratch <= plain.scratch // 2
    told = re.search(r"([\d.]+)% more work", said)
    assert told is not None
    assert float(told[1]) < 100 / 3


def test_checkpointed_functions_run_again_only_as_far_as_the_budget_asks() -> None:
    expected, plain, _ = _trained(_mlp, None)
    regions, twice, _ = _trained(lambda: _mlp(regions=True), None)
    ample, once, _ = _trained(lambda: _mlp(regions=True), "1GB")
    small, less, _ = _trained(lambda: _mlp(regions=True), twice.scratch)
    for results in (regions, ample, small):
        _assert_same(results, expected)
    assert len(once.program.instructions) <= len(plain.program.instructions)
    assert less.scratch <= twice.scratch < plain.scratch


def test_a_budget_that_cannot_be_met_says_what_is_needed() -> None:
    expected, _, _ = _trained(_mlp, None)
    with pytest.warns(UserWarning, match=r"memory='1 KB' is not enough for step: .* MB") as caught:
        found, executable, _ = _trained(_mlp, "1KB")
    assert caught[0].filename == __file__
    _assert_same(found, expected)
    needed = executable.scratch
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, executable, _ = _trained(_mlp, needed)
    assert executable.scratch <= needed


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Threads keep partial sums of their own, which a budget has to hold as well."""
    before = tg.get_num_threads()
    tg.set_num_threads(1)
    yield
    tg.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
def test_each_size_of_a_batch_keeps_to_the_budget() -> None:
    layers = nn.Sequential(*[m for _ in range(6) for m in (nn.Linear(32, 32), nn.Tanh())])

    def step(x: tg.Tensor) -> tg.Tensor:
        layers.zero_grad()
        loss: tg.Tensor = (layers(x) ** 2).sum()
        loss.backward()
        return loss

    compiled = tg.compile(step, memory="600KB")
    for rows in (100, 700, 100, 900):
        for _ in range(3):
            compiled(tg.ones(rows, 32))
    built = [r.executable for r in compiled.replays]
    sizes = [one.scratch for one in built if isinstance(one, NativeProgram)]
    assert len(sizes) == 3
    assert max(sizes) <= 600_000


def test_inputs_that_were_overwritten_are_not_read_again() -> None:
    """What a buffer held before it was changed cannot be computed with again later."""
    state = tg.ones(1000)

    def step(x: tg.Tensor) -> tg.Tensor:
        y = x * state.clone()
        state.mul_(2.0).add_(y.detach())
        z = (y.exp() + (y * 2).exp() + (y * 3).exp()).cumsum(0)
        z.sum().backward()
        return z

    results = []
    for memory in (None, 12_000):
        state.data.fill_(1.0)
        x = tg.linspace(0, 1e-3, 1000).requires_grad_()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled = tg.compile(step, memory=memory)
            z = [compiled(x) for _ in range(4)][-1]
        assert x.grad is not None
        results.append([a.detach().numpy().copy() for a in (state, z, x.grad)])
    _assert_same(results[1], results[0])


@pytest.mark.parametrize(
    ("memory", "error"),
    [
        ("2", ValueError),
        ("-1GB", ValueError),
        ("two GB", ValueError),
        ("0MB", ValueError),
        (0, ValueError),
        (-5, ValueError),
        (True, TypeError),
        (1.5, TypeError),
        ([], TypeError),
    ],
)
def test_amounts_that_are_none(memory: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="memory must be"):
        tg.compile(lambda: None, memory=memory)


def test_amounts_in_words() -> None:
    assert amounts.parsed("2GB", "x") == 2 * 10**9
    assert amounts.parsed(" 1.5 gib ", "x") == 3 << 29
    assert amounts.parsed(".5MB", "x") == 500_000
    assert amounts.parsed("10B", "x") == amounts.parsed(10, "x") == 10
    assert amounts.shown(86_000_384) == "86 MB"
    assert amounts.shown(999.7) == "1 KB"
    assert amounts.shown(3e15) == "3e+03 TB"


def test_modules_can_have_a_budget() -> None:
    model = tg.compile(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), memory="1MB")
    x = tg.randn(4, 8)
    assert all(model(x).shape == (4, 8) for _ in range(4))
