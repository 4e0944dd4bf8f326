"""The compiler: passes, native code, every operation and random programs, compared with eager."""

from __future__ import annotations

import itertools
import math
import os
import pathlib
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from replaying import Mlp, batches, callbacks, close, randn, same_as_eager

import tapegrad as tg
from tapegrad import nn
from tapegrad.replay.cpu import jit, pool
from tapegrad.replay.cpu.machine import CPUMachine
from tapegrad.replay.native.plan import plan
from tapegrad.replay.passes.pipeline import passes_for

F = nn.functional

pytest.importorskip("llvmlite")


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = pool.pool.threads
    yield
    pool.pool.threads = before


# -- plain functions -----------------------------------------------------------------------------


def test_elementwise_chain_is_one_kernel() -> None:
    f = same_as_eager(lambda x, y: ((x * y + x).exp() - 1).tanh() * 0.5, (5, 7), (5, 7))
    (replay,) = f.replays
    assert replay.executable is not None
    assert len(replay.executable.emitted.kernels) == 1
    assert callbacks(f) == []


def test_broadcasting_and_views() -> None:
    same_as_eager(
        lambda x, y: x * y.unsqueeze(1) + y.reshape(2, 2, 1).sum(0).mean(), (4, 4, 3), (4, 1)
    )
    same_as_eager(lambda x: x.T.reshape(-1)[1:9:2] * 2, (3, 4))
    same_as_eager(lambda x: x.permute(2, 0, 1).contiguous() + 1, (2, 3, 4))
    same_as_eager(lambda x: x.flip(0) + x.roll((1, -1), (0, 1)), (3, 4))
    same_as_eager(lambda x, y: tg.cat([x, y], 0) @ tg.stack([y, x]).sum(0).T, (3, 4), (3, 4))


def test_a_single_element_at_an_index_is_read_inside_a_loop() -> None:
    last = tg.tensor([-1])
    same_as_eager(lambda x, y: x * (y * 2)[last, None], (2, 3, 4), (5,))


@pytest.mark.parametrize("dims", [(), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)])
def test_reductions(dims: tuple[int, ...]) -> None:
    def f(x: Any) -> Any:
        y = x * 2 + 1
        return y.sum(dims), y.amax(dims), y.amin(dims, keepdim=True), (y > 0).any(), y.mean(dims)

    assert callbacks(same_as_eager(f, (3, 5, 4))) == []


def test_large_sums_are_accurate() -> None:
    f = tg.compile(lambda x: x.sum())
    x = tg.tensor(np.random.default_rng(0).random(1_000_003).astype(np.float32))
    exact = float(x.numpy().astype(np.float64).sum())
    for _ in range(3):
        assert abs(f(x).item() / exact - 1) < 1e-6


def test_softmax_gelu_and_layer_norm_have_no_callback() -> None:
    for f in (
        lambda x: F.softmax(x, 1),
        lambda x: F.log_softmax(x, 0),
        F.gelu,
        lambda x: F.gelu(x, approximate="tanh"),
        lambda x: F.layer_norm(x, (8,)),
        lambda x: x.var(1) + x.std(),
    ):
        assert callbacks(same_as_eager(f, (6, 8))) == []


def test_results_and_arguments_in_structures() -> None:
    @tg.compile
    def f(batch: dict[str, Any], scale: float, *rest: Any) -> Any:
        x, y = batch["pair"]
        return {"sum": x + y, "parts": [x * scale, *rest], "name": "kept"}

    for i in range(4):
        x, y, z = (randn(3, seed=10 * i + j) for j in range(3))
        out = f({"pair": (x, y)}, 2.0, z)
        close(out["sum"], x + y)
        close(out["parts"][0], x * 2)
        assert out["parts"][1] is z
        assert out["name"] == "kept"


def test_integers_and_booleans() -> None:
    @tg.compile
    def f(x: Any, i: Any) -> Any:
        return x * 2 + i, (x > 3) & (i < 2), (x == i).sum(), x.to(tg.float32) / 2

    for k in range(4):
        x, i = tg.arange(6) + k, tg.tensor([0, 1, 2, 3, 4, 5])
        for a, b in zip(f(x, i), f.function(x, i), strict=True):
            assert a.dtype is b.dtype
            assert a.tolist() == b.tolist()


def test_nan_and_infinity_propagate() -> None:
    values = tg.tensor([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0])

    def f(x: Any) -> Any:
        return x.exp(), x.log(), x.tanh(), x.relu(), x.maximum(x * 0), x.sum(), x.amax(), x * 0

    compiled = tg.compile(f)
    for _ in range(3):
        found = compiled(values)
    for a, b in zip(f(values), found, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6)


def test_empty_tensors() -> None:
    same_as_eager(lambda x: (x * 2).sum(1) + 1, (3, 0))
    same_as_eager(lambda x: x @ x.T + x.sum(), (0, 4))


def test_layouts_are_part_of_the_signature() -> None:
    f = tg.compile(lambda x: x * 2 + x.sum(0))
    for i in range(6):
        x = randn(4, 4, seed=i)
        x = x.T if i % 2 else x
        close(f(x), x * 2 + x.sum(0))
    assert len(f._signatures) == 2


# -- being told ----------------------------------------------------------------------------------


def test_explain_and_programs_read_like_code() -> None:
    network = Mlp(24, 8, 5)
    step = tg.compile(network.step)
    for x, y in batches(4):
        step(x, y)
    text = step.explain(full=True)
    for part in (
        "float32[16,24], int64[16]",
        "recorded 2 time(s) because it is new",
        "replayed 2 time(s)",
        "0 callbacks",
        "arena",
        "compiled in",
        "replaying.py:",
    ):
        assert part in text
    (replay,) = step.replays
    recorded = str(replay.recording.program)
    assert "matmul(" in recorded
    assert "write tensor" in recorded
    assert replay.executable is not None
    lowered = str(replay.executable.program)
    assert "loop [16, 8]:" in lowered
    assert "product(" in lowered


def test_explain_shows_the_code_of_each_kernel() -> None:
    network = Mlp(24, 8, 5)
    step = tg.compile(lambda x, y: network.loss(x, y))
    for x, y in batches(4):
        loss = step(x, y)
        assert "define" not in step.explain(full=True)
        loss.backward()
    llvm, assembly = step.explain(code="llvm"), step.explain(code="assembly")
    (replay,) = step.replays
    assert replay.vjp is not None
    ((backward, _, _),) = replay.vjp.programs.values()
    for executable in (replay.executable, backward):
        assert executable is not None
        for function in executable.functions.values():
            assert f"@{function.name}(" in llvm
            assert f"{function.name}:" in assembly
    for text, comment in ((llvm, ";"), (assembly, "#")):
        assert "replayed 2 time(s)" in text
        assert f"\n{comment} kernel 0: " in text
        assert f"\n{comment} backward for 4 gradients: kernel 0: " in text
        assert "@NAME" not in text
        kernels = {t for t, _ in replay.executable.emitted.kernels}  # type: ignore[union-attr]
        assert text.count(f"\n{comment} kernel ") == len(kernels)
    with pytest.raises(ValueError, match="llvm, assembly, got 'c'"):
        step.explain(code="c")


def test_callbacks_are_visible() -> None:
    f = same_as_eager(lambda x: (x * 2).argsort(0) + 1, (4, 3))
    assert callbacks(f) == ["argsort"]
    assert "callback argsort" in f.explain()


@pytest.mark.parametrize("skipped", sorted(passes_for(CPUMachine()).keys() - {"lower"}))
def test_every_pass_can_be_left_out(skipped: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPEGRAD_WITHOUT", skipped)
    eager, compiled = Mlp(24, 8, 5), Mlp(24, 8, 5)
    step = tg.compile(compiled.step)
    for x, y in batches(5):
        close(eager.step(x, y), step(x, y))
    for p, q in zip(eager.parameters, compiled.parameters, strict=True):
        close(p, q)


@pytest.mark.parametrize("name", ["fuze", "lower"])
def test_a_pass_that_cannot_be_left_out_is_named(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAPEGRAD_WITHOUT", f"fuse,{name}")
    f = tg.compile(lambda x: x * 2 + len(name))
    with pytest.raises(ValueError, match=f"{name}; the passes that can be left out: constants"):
        f(randn(3))


def test_equal_constants_are_one() -> None:
    # Both layers, forward and backward, make the same mask; so backward finds the forward's powers.
    def step(q: Any, k: Any, v: Any) -> Any:
        for _ in range(2):
            v = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return tg.autograd.grad(v.square().sum(), (q, k))

    given = [randn(1, 2, 6, 4).requires_grad_() for _ in range(3)]
    compiled = tg.compile(step)
    for _ in range(4):
        found = compiled(*given)
    for x, y in zip(found, step(*given), strict=True):
        close(x, y)
    kernels = [line for line in compiled.explain(full=True).splitlines() if " kernel " in line]
    assert sum(" exp " in line for line in kernels) == 1


def stored(f: Any) -> list[str]:
    """What the loops of a compiled function write, apart from folds."""
    (replay,) = f.replays
    lines = str(replay.executable.program).splitlines()
    return [line.strip() for line in lines if re.search(r"\] \+?= x\d+$", line)]


def test_what_is_quickly_computed_is_not_kept() -> None:
    def centered(x: Any) -> Any:
        d = x - x.mean(1, keepdim=True)
        return d / (d * d).mean(1, keepdim=True).sqrt()

    f = same_as_eager(centered, (6, 40))
    assert sum("i1" in line for line in stored(f)) == 1  # the result; not d


@pytest.mark.parametrize("scale", [1.0, 3e4])
def test_what_is_computed_again_has_the_same_bits(scale: float) -> None:
    # The gradient of a maximum goes to the elements that equal it.
    def gradients(x: Any, y: Any) -> Any:
        z = (x - 0.1) * y
        top = (z * 1.7 + y).amax(1)
        return tg.autograd.grad((top * top).sum() + z.amax(0).sum(), (x, y))

    x, y = ((randn(40, 30, seed=s) * scale).requires_grad_() for s in (1, 2))
    compiled = tg.compile(gradients)
    for _ in range(4):
        found = compiled(x, y)
    for a, b in zip(found, gradients(x, y), strict=True):
        close(a, b)


def test_what_is_computed_again_is_rounded_first() -> None:
    """The largest of some products minus each of them is never below 0, and 0 for itself."""
    f = same_as_eager(
        lambda x, y: ((x * y).amax(1, keepdim=True) - x * y).sqrt(), (50, 40), (50, 40)
    )
    found = f(randn(50, 40), randn(50, 40, seed=3))
    assert not found.isnan().any()
    assert bool((found.amin(1) == 0).all())
    same_as_eager(lambda x: (x * 0.2 - (x * 0.2).mean(1, keepdim=True)) == 0, (30, 1))


def test_what_changes_is_not_read_again() -> None:
    def step(x: Any, total: Any) -> Any:
        y = x * 2
        total.add_(y.sum())
        x.copy_(x.cumsum(0))
        first = y.sum(1, keepdim=True)
        x.add_(1)
        return (y - first).exp(), x * y

    given = [(randn(5, 7), tg.zeros(())) for _ in range(2)]
    compiled = tg.compile(step)
    for _ in range(5):
        for a, b in zip(compiled(*given[0]), step(*given[1]), strict=True):
            close(a, b)
        for a, b in zip(*given, strict=True):
            close(a, b)


def test_compilation_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPEGRAD_COMPILE", "0")
    f = tg.compile(lambda x: float(x.sum()))
    assert [f(tg.ones(2)) for _ in range(4)] == [2.0] * 4
    assert "TAPEGRAD_COMPILE=0" in f.explain()


def test_without_llvmlite_it_runs_eagerly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "available", lambda: False)
    f = tg.compile(lambda x: x * 2)
    f(tg.ones(2))
    f(tg.ones(2))
    with pytest.warns(UserWarning, match="llvmlite is not installed"):
        assert f(tg.ones(2)).tolist() == [2, 2]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert f(tg.ones(2)).tolist() == [2, 2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_replay_after_a_fork() -> None:
    code = """
import os, numpy as np, tapegrad as tg
from tapegrad.replay import set_num_threads
set_num_threads(2)
f = tg.compile(lambda x: (x @ x.T).sum())
x = tg.ones(300, 300)
for _ in range(4):
    f(x)
child = os.fork()
ok = f(x).item() == 300.0**3
if child == 0:
    os._exit(0 if ok else 1)
assert ok
assert os.waitpid(child, 0)[1] == 0
"""
    root = pathlib.Path(__file__).parent.parent
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONWARNINGS": "ignore"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=120)


# -- scalar functions ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "low", "high", "ulps"),
    [
        ("exp", -104, 89, 1.0),
        ("exp2", -150, 129, 1.0),
        ("expm1", -20, 89, 1.75),
        ("log", 0, 100, 1.0),
        ("log1p", -1, 100, 1.75),
        ("tanh", -10, 10, 1.5),
        ("sigmoid", -20, 20, 2.5),
        ("erf", -5, 5, 1.5),
    ],
)
def test_functions_are_accurate(name: str, low: float, high: float, ulps: float) -> None:
    import scipy.special

    rng = np.random.default_rng(0)
    spread = rng.uniform(low, high, 200_000)
    near = np.exp(rng.uniform(-30, 2, 50_000)) * rng.choice([1, -1] if low < 0 else [1], 50_000)
    x = np.concatenate([spread, near]).astype(np.float32)
    function = tg.compile(getattr(tg, name))
    for _ in range(3):
        found = function(tg.from_numpy(x)).numpy()
    reference = {"erf": scipy.special.erf, "sigmoid": scipy.special.expit}.get(name)
    reference = reference or getattr(np, name)
    with np.errstate(invalid="ignore", over="ignore"):
        exact = reference(x.astype(np.float64))
        rounded = exact.astype(np.float32)
    finite = np.isfinite(rounded)
    np.testing.assert_array_equal(found[~finite], rounded[~finite])
    error = np.abs(found[finite] - exact[finite]) / np.spacing(np.abs(rounded[finite]))
    assert error.max() <= ulps


def test_gelu_is_accurate() -> None:
    from scipy.special import ndtr

    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-14, 14, 200_000), rng.normal(size=200_000)]).astype(np.float32)
    t = tg.from_numpy(x).requires_grad_()
    gelu = tg.compile(tg.nn.functional.gelu)
    for _ in range(3):
        found = gelu(t)
        (slope,) = tg.autograd.grad(found.sum(), t)
    exact = x.astype(np.float64)
    density = np.exp(-0.5 * exact * exact) / math.sqrt(2 * math.pi)
    error = np.abs(found.detach().numpy() - exact * ndtr(exact))
    unit = 2.0**-24
    assert (error <= 2.5 * unit * np.maximum(np.abs(exact), unit)).all()
    # Digits of small results are there too, which 1 + erf(x) would lose.
    left = (x < 0) & (x > -5.5)
    assert (error[left] <= 2.5e-6 * np.abs(exact * ndtr(exact))[left]).all()
    assert np.abs(slope.numpy() - (ndtr(exact) + exact * density)).max() <= 4 * unit


def test_gelu_at_the_ends_of_its_range() -> None:
    ends = np.array([np.inf, 3e38, 1e20, 15, 0.0, -0.0, -15, -1e20, -3e38], np.float32)
    gelu = tg.compile(tg.nn.functional.gelu)
    for _ in range(3):
        found = gelu(tg.from_numpy(ends)).numpy()
        outside = gelu(tg.tensor([-np.inf, np.nan])).numpy()
    np.testing.assert_array_equal(found, np.maximum(ends, 0))
    assert np.isnan(outside).all()


@pytest.mark.parametrize("name", ["erf", "exp", "exp2", "expm1", "log", "log1p", "sigmoid", "tanh"])
def test_functions_at_the_ends_of_their_range(name: str) -> None:
    import scipy.special

    ends = [0.0, -0.0, np.inf, -np.inf, 1e-45, -1e-45, 3.4e38, -3.4e38, 88.72283, 88.72284, -1.0]
    not_numbers = np.array([0x7FC00000, 0x7FC00003, 0xFFC00007], np.uint32).view(np.float32)
    x = np.concatenate([np.array(ends, np.float32), not_numbers])
    function = tg.compile(getattr(tg, name))
    for _ in range(3):
        found = function(tg.from_numpy(x)).numpy()
    reference = {"erf": scipy.special.erf, "sigmoid": scipy.special.expit}.get(name)
    with np.errstate(all="ignore"):
        expected = (reference or getattr(np, name))(x.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(found, expected, rtol=3e-7, atol=0)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found[numbers]), np.signbit(expected[numbers]))


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(
    "shape", [(64, 16, 30), (17, 3, 5, 7), (4, 200, 9), (2, 5, 40), (33, 1, 40)]
)
def test_sums_over_batch_and_space(shape: tuple[int, ...], threads: int) -> None:
    """What is kept lies in the middle: threads share the batch, or the channels of a small one."""
    dims = (0, *range(2, len(shape)))

    def statistics(x: Any) -> Any:
        y = x.relu()
        wide = [1, -1] + [1] * (len(shape) - 2)
        scaled = (y - y.mean(dims).reshape(wide)) * y.var(dims).reshape(wide)
        return scaled, y.sum(dims), y.amax(dims), (y > 0.5).sum(dims)

    before = tg.get_num_threads()
    tg.set_num_threads(threads)
    try:
        same_as_eager(statistics, shape)
    finally:
        tg.set_num_threads(before)


def test_threads_keep_their_memory() -> None:
    """Places for different sizes do not overlap where that is worth the memory it takes."""
    weights = [randn(a, b, seed=a) * 0.05 for a, b in ((80, 100), (100, 90), (90, 80))]

    def chain(x: Any, y: Any) -> Any:
        kept = y.exp()
        for _ in range(6):
            for w in weights:
                x = x @ w
        return x, kept.mean(1) + kept.amax(1) + (x.mean(1) * kept.T).mean(0)

    f = same_as_eager(chain, (300, 80), (300, 300))
    (replay,) = f.replays
    program = replay.executable.program
    one, two = plan(program, 1), plan(program, 2)

    def slots(found: Any) -> set[tuple[int, int]]:
        places = [p for p in found.allocations.values() if p.kind == "arena" and p.size >= 1 << 15]
        return {(p.index, p.size) for p in places}

    def overlapping(found: Any) -> int:
        pairs = itertools.combinations(slots(found), 2)
        return sum(a < b + m and b < a + n for (a, n), (b, m) in pairs)

    assert overlapping(one) > 0
    assert overlapping(two) == 0
    assert one.arena <= two.arena <= 1.3 * one.arena
