"""What programs on a GPU do besides computing: attention by a library, explaining, bad data.

Where there is no GPU, these tests run on a stand-in for CuPy (`stand_in_cupy.py`).
"""

import math

import fuzz_replay
import numpy as np
import pytest
from test_cuda_compile import array_of, close, numbers, on, replays

import tapegrad as tg
from tapegrad import nn
from tapegrad.replay.cuda.device import HostDevice
from tapegrad.replay.cuda.target import CUDA

pytestmark = pytest.mark.usefixtures("gpu")

F = nn.functional


# -- attention -----------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
def test_attention_of_half_precision(causal):
    """A library computes it, of parts of one tensor, forward and backward."""

    def trained(device, compiled):
        x = on(device, numbers(2, 128, 3, 2, 64)).bfloat16().requires_grad_()

        def step(x):
            x.grad = None
            q, k, v = x.permute(2, 0, 3, 1, 4).unbind(0)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
            loss = (y.float() * y.float()[:1]).sum()
            loss.backward()
            return y.detach()

        function = tg.compile(step, fullgraph=True) if compiled else step
        for _ in range(4):
            out = function(x)
        if compiled and CUDA().missing() is None:
            said = function.explain(full=True)
            assert "2 calls of libraries" in said or CUDA().device(0).without_attention(), said
        return [array_of(t.float()) for t in (out, x.grad)]

    expected = trained("cpu", False)
    for compiled in (False, True):
        for a, b in zip(trained("cuda", compiled), expected, strict=True):
            close(a, b, rtol=5e-2, atol=2e-2)


def test_explaining_times_every_step_and_changes_nothing():
    tg.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3)).to("cuda")
    optimizer = tg.optim.Adam(model.parameters(), lr=0.1)
    x, y = on("cuda", numbers(4, 6))[:, ::2].repeat(1, 2), tg.tensor([0, 1, 2, 0], device="cuda")

    @tg.compile(fullgraph=True)
    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    def state():
        return [array_of(t) for t in (*model.parameters(), x)] + [np.array(tg.get_rng_state())]

    for _ in range(4):
        step(x, y)
    before = state()
    said = step.explain()
    for a, b in zip(state(), before, strict=True):
        np.testing.assert_array_equal(a, b)
    if CUDA().missing() is None:
        assert "one by one" in said
        assert "product of a library matmul" in said
        assert "test_cuda_programs.py" in said
    assert math.isfinite(step(x, y).item())


def test_deterministic_algorithms_are_used_from_the_call_on_that_wants_them():
    """The gradient of a table adds rows at equal indices: with atomic operations, in any order."""
    table = nn.Embedding(5, 4).to("cuda")
    index = tg.tensor([0, 3, 3, 3, 1], device="cuda")

    @tg.compile(fullgraph=True)
    def step(index):
        table.weight.grad = None
        table(index).square().sum().backward()
        return table.weight.grad.clone()

    for _ in range(4):
        expected = step(index)
    executable = step.replays[0].executable
    own = CUDA().missing() is None
    before = executable.grid.emitted if own else None
    try:
        tg.use_deterministic_algorithms(True)
        close(array_of(step(index)), array_of(expected))
        if own:
            texts = [
                {launch.text for launch in emitted.steps if hasattr(launch, "text")}
                for emitted in (before, executable.grid.emitted)
            ]
            assert texts[0] != texts[1]
    finally:
        tg.use_deterministic_algorithms(False)
    close(array_of(step(index)), array_of(expected))


# -- bad data ------------------------------------------------------------------------------------


@pytest.fixture
def unhurried(gpu, monkeypatch):
    """A GPU that Python does not wait for."""
    if isinstance(CUDA().device(0), HostDevice):
        device = type(CUDA().device(0))(is_synchronous=False)
        monkeypatch.setattr(CUDA, "device", lambda target, index: device)


@pytest.mark.parametrize("more", [0, 1, 3, 100])
def test_bad_data_are_told_when_somebody_waits_and_change_nothing(unhurried, more):
    """Neither in memory of the GPU nor in that of the host: step counts, random states."""
    if CUDA().missing() is not None:
        pytest.skip("CuPy waits for each operation that checks data")
    tg.manual_seed(0)
    table = nn.Embedding(7, 4).to("cuda")
    optimizer = tg.optim.Adam(table.parameters(), lr=0.1)

    @tg.compile(fullgraph=True)
    def step(index):
        optimizer.zero_grad()
        loss = F.dropout(table(index), 0.5).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    def state():
        kept = [x for x in optimizer.state[table.weight].values() if isinstance(x, tg.Tensor)]
        found = [x.detach().cpu().numpy().copy() for x in (*table.parameters(), *kept)]
        return [*found, np.array(tg.get_rng_state())]

    good, bad = (tg.tensor(x, device="cuda") for x in ([0, 3, 6], [0, 7, 6]))
    for _ in range(4):
        step(good)
    assert replays(step) >= 1
    before = state()
    raised = []

    def tried(call, *given):
        try:
            return call(*given)
        except IndexError as error:
            raised.append(error)

    tried(step, bad)
    for _ in range(more):
        if not raised:
            tried(step, good)
    if not raised:
        tried(tg.cuda.synchronize)
    assert len(raised) == 1
    assert "out of range" in str(raised[0])
    assert "test_cuda_programs.py" in str(raised[0])
    for a, b in zip(state(), before, strict=True):
        np.testing.assert_array_equal(a, b)
    assert math.isfinite(step(good).item())
    assert any((a != b).any() for a, b in zip(state(), before, strict=True))


@pytest.mark.parametrize("seed", range(30))
def test_random_programs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eager and compiled on a GPU, against eager on the CPU."""
    monkeypatch.setattr(fuzz_replay, "DEVICE", "cuda")
    _, outcome, text, _ = fuzz_replay.trial(4_100_000 + seed, "plain")
    assert outcome not in ("different", "crashed"), text
