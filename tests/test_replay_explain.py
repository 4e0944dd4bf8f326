"""What compiled functions tell about themselves: summaries, times, layers, warnings."""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from replaying import randn, replayed

import tapegrad as tg
from tapegrad import nn
from tapegrad.core.primitive import OPAQUE, PRIMITIVES, define
from tapegrad.replay.cpu import tuning
from tapegrad.replay.use.undo import Undo

MICROSECONDS = re.compile(r"^ +\d+% +\d+\.\d µs  ")


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 8), nn.Linear(8, 8)])
        self.drop = nn.Dropout(0.5)
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(8, 3))
        self.scale = 1.0

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x).tanh()
        return self.head(self.drop(x)) * self.scale


def training() -> tuple[Model, Callable[[], Any]]:
    """A model, and its compiled step with the data that it is given."""
    tg.manual_seed(0)
    model = Model()
    optimizer = tg.optim.Adam(model.parameters(), lr=0.01)

    @tg.compile
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run = functools.partial(step, randn(16, 6), tg.arange(16) % 3)
    return model, run


def times(text: str) -> list[str]:
    return [line for line in text.splitlines() if MICROSECONDS.match(line)]


def layers_of(compiled: Any) -> set[str]:
    """The paths of all modules that kernels of a compiled function came from."""
    (replay,) = compiled.replays
    return {
        origin.layer
        for _, instruction in replay.executable.emitted.kernels
        for origin in instruction.origins
    }


# -- the summary -----------------------------------------------------------------------------------


def test_a_training_step_is_told_in_a_few_lines() -> None:
    _, run = training()
    step: Any = run.func  # type: ignore[attr-defined]
    assert step.explain().endswith("step: was not called yet")
    for _ in range(8):
        run()
    text = step.explain()
    lines = text.splitlines()
    assert len(lines) <= 14
    assert re.match(r".*step: 3 recordings, 5 replays; a replay takes [\d.]+ [mµ]s$", lines[0])
    assert "(float32[16,6], int64[16]): 1 variant, replayed 5 times" in text
    assert "recorded 3 times: it is new" in text
    assert re.search(r"slowest of \d+ kernels \(measured now, on 1 thread,", text)
    assert len(times(text)) == 10
    assert all("test_replay_explain.py:" in line for line in times(text))
    assert sum(int(line.split("%")[0]) for line in times(text)) <= 102
    full = step.explain(full=True)
    assert len(full.splitlines()) > len(lines)
    assert "arena" in full
    assert "compiled in" in full
    assert step.explain(programs=True).startswith(full)
    assert step.explain(code="llvm").startswith(full)


def test_what_changed_is_named() -> None:
    model, run = training()
    step: Any = run.func  # type: ignore[attr-defined]
    for _ in range(6):
        run()
    model.eval()
    for _ in range(4):
        run()
    model.scale = 2.0
    for _ in range(3):
        run()
    text = step.explain()
    assert "recorded 2 times: model.training was True and is False" in text
    assert re.search(r"recorded 2 times: model.scale was 1.0 and is 2.0 \(read at .*\.py:\d+", text)
    assert "3 variants, replayed 3 + 2 + 1 times" in text
    assert "kernels of the recording that was replayed most" in text
    assert len(text.splitlines()) <= 16


def test_a_function_that_runs_eagerly_says_why() -> None:
    @tg.compile
    def noisy(x: Any) -> Any:
        print("x")
        return x * 2

    noisy(tg.ones(3))
    with pytest.warns(UserWarning, match="noisy runs eagerly: it prints"):
        noisy(tg.ones(3))
    noisy(tg.ones(3))
    text = noisy.explain()
    assert "noisy: runs eagerly, because it prints, at " in text
    assert "test_replay_explain.py:" in text
    assert text.count("it prints") == 1
    assert not times(text)
    assert len(text.splitlines()) <= 4


def test_some_calls_run_eagerly() -> None:
    @tg.compile
    def f(x: Any) -> Any:
        if x.ndim == 2:
            print("x")
        return x * 2

    for _ in range(4):
        f(tg.ones(3))
    f(tg.ones(3, 3))
    with pytest.warns(UserWarning, match="it prints"):
        f(tg.ones(3, 3))
    text = f.explain()
    assert "f: 4 recordings, 2 replays; a replay takes" in text
    assert "some calls run eagerly, because it prints" in text
    assert "some calls run eagerly: it prints, at test_replay_explain.py:" in repr(f)


def test_recordings_that_do_not_agree_are_told() -> None:
    count = iter(range(100))

    @tg.compile
    def f(x: Any) -> Any:
        return x * next(count)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(12):
            f(tg.ones(2))
    assert "runs eagerly, because" in f.explain()
    assert len(f.explain().splitlines()) <= 12


def test_many_signatures_are_counted() -> None:
    f = tg.compile(lambda x: x * 2)
    for n in range(1, 8):
        f(tg.ones(n))
    text = f.explain()
    assert "and 3 more signatures" in text
    assert len(text.splitlines()) <= 14


# -- times -----------------------------------------------------------------------------------------


def test_explaining_changes_nothing() -> None:
    results = []
    for asked in (False, True):
        model, run = training()
        losses = []
        for _ in range(8):
            losses.append(run().item())
            if asked:
                run.func.explain()  # type: ignore[attr-defined]
        grads = [p.grad.numpy() for p in model.parameters()]  # type: ignore[union-attr]
        results.append((losses, [p.detach().numpy() for p in model.parameters()], grads))
    assert results[0][0] == results[1][0]
    for a, b in zip(results[0][1] + results[0][2], results[1][1] + results[1][2], strict=True):
        np.testing.assert_array_equal(a, b)


def test_backward_passes_and_indices_are_measured() -> None:
    embedding = nn.Embedding(5, 4)
    f = tg.compile(lambda i: embedding(i).exp())
    for _ in range(4):
        f(tg.tensor([4, 1, 4])).sum().backward()
    text = f.explain()
    assert re.search(r"a replay takes [\d.]+ µs, its backward pass [\d.]+ µs", text)
    assert any("backward: " in line and "embedding" in line for line in times(text))


def test_callbacks_are_named_and_measured() -> None:
    f = tg.compile(lambda x: (x * 2).argsort(0) + 1)
    for _ in range(4):
        f(randn(40, 3))
    lines = f.explain().splitlines()
    (line,) = [line for line in lines if "callback argsort" in line]
    assert times(line)


def test_callbacks_of_others_are_not_run() -> None:
    calls = []

    def kernel(x: Any) -> Any:
        calls.append(x.shape)
        return x * 2

    counted = define("counted_double", kernel, kind=OPAQUE)
    try:
        f = tg.compile(lambda x: counted(x * 2) + 1)
        for _ in range(4):
            f(tg.ones(3))
        before = len(calls)
        text = f.explain()
        assert len(calls) == before
        assert re.search(r"not measured  callback counted_double \| test_replay_explain.py", text)
        assert "a replay takes" not in text
        assert len(times(text)) == 2
    finally:
        del PRIMITIVES["counted_double"]


def test_what_made_up_arguments_do_not_suit_is_not_measured() -> None:
    table = randn(5)
    f = tg.compile(lambda x: table[(x * 100).long()])
    for _ in range(4):
        f(tg.zeros(3))
    text = f.explain()
    assert "(not measured: made-up arguments do not suit it)" in text
    assert "not measured  " in text
    assert f(tg.zeros(3)).tolist() == [table[0].item()] * 3


def test_too_much_memory_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "MAX_MEASURING_BYTES", 10)
    f = tg.compile(lambda x: x * 2)
    for _ in range(4):
        f(tg.ones(3))
    assert "not measured: that would take 0 GiB more memory" in f.explain()


def test_layouts_of_inputs_are_kept() -> None:
    weight = randn(6, 4).T[1:, ::2]
    f = tg.compile(lambda x: x.T @ weight.T + weight.expand(2, 3, 3).sum())
    for _ in range(4):
        f(randn(3, 5).T.T)
    assert times(f.explain())


# -- layers ----------------------------------------------------------------------------------------


def test_kernels_name_their_layers() -> None:
    _, run = training()
    for _ in range(5):
        run()
    step: Any = run.func  # type: ignore[attr-defined]
    found = layers_of(step)
    assert {"model.layers.0", "model.layers.1", "model.drop", "model.head.1"} <= found
    assert "" in found  # the loss and the optimizer belong to no layer
    backward = [
        apply.layer
        for apply in step.replays[0].program.applied()
        if apply.primitive.name == "matmul"
    ]
    # Forward in order, then backward from the end.
    assert backward[:3] == ["model.layers.0", "model.layers.1", "model.head.1"]
    assert backward[3] == "model.head.1"
    assert backward[-1] == "model.layers.0"
    assert "| model.layers.0" in step.explain(full=True)


def test_layers_of_modules_attributes_and_lists() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.net = nn.Sequential(nn.Linear(3, 3), nn.Tanh())

        def predict(self, x: Any) -> Any:
            return self.net(x)

    trainer = Trainer()
    parts = [nn.Linear(3, 3)]
    module = tg.compile(nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3))))
    predict = tg.compile(trainer.predict)
    listed = tg.compile(lambda x: sum([part(x) for part in parts]))
    for function, names in (
        (module, {"Sequential.0", "Sequential.1.0"}),
        (predict, {"net.0", "net.1"}),
        (listed, {"", "part"}),
    ):
        for _ in range(3):
            function(randn(2, 3))
        assert layers_of(function) == names


def test_a_layer_that_fails_is_left() -> None:
    class Fails(nn.Module):
        def forward(self, x: Any) -> Any:
            raise ValueError("no")

    fails = Fails()

    def f(x: Any) -> Any:
        try:
            fails(x)
        except ValueError:
            return x * 2

    compiled = tg.compile(f)
    for _ in range(3):
        compiled(tg.ones(2))
    assert layers_of(compiled) == {""}


def test_looking_for_names_keeps_nothing_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recorded call is replayed at once only if nobody keeps the tensors of its eager run."""
    original, seen = Undo._can_go_back, []

    def watched(self: Undo, result: Any, witness: Any) -> bool:
        seen.append(original(self, result, witness))
        return seen[-1]

    monkeypatch.setattr(Undo, "_can_go_back", watched)
    _, run = training()
    for _ in range(5):
        run()
    assert seen == [True, True]


# -- one line --------------------------------------------------------------------------------------


def test_repr() -> None:
    def double(x: Any) -> Any:
        return x * 2

    line = double.__code__.co_firstlineno
    f = tg.compile(double)
    where = f"double at test_replay_explain.py:{line}"
    assert f"{where}: 0 recordings, 0 replays, 0 variants>" in repr(f)
    for _ in range(3):
        f(tg.ones(2))
    assert f"{where}: 2 recordings, 1 replay, 1 variant>" in repr(f)
    off = tg.compile(double, backend="eager")
    assert "runs eagerly: backend='eager'>" in repr(off)
    partial = tg.compile(functools.partial(double))
    assert f"test_replay_explain.py:{line}" in repr(partial)
    assert "<compiled function " in repr(tg.compile(np.sum))


# -- warnings --------------------------------------------------------------------------------------


class Noisy(nn.Module):
    def forward(self, x: Any) -> Any:
        print("x")
        return x * 2

    @tg.compile
    def method(self, x: Any) -> Any:
        print("x")
        return x * 2


def in_place() -> Any:
    module = Noisy()
    module.compile()
    return module


def hooked() -> Any:
    module = Noisy()
    module.register_forward_hook(lambda module, args, result: None)
    return tg.compile(module)


NOISY = {
    "function": lambda: tg.compile(lambda x: print("x")),
    "method": lambda: Noisy().method,
    "module": lambda: tg.compile(Noisy()),
    "module in place": in_place,
    "hooked module": hooked,
}


@pytest.mark.parametrize("kind", NOISY)
def test_warnings_point_at_the_call(kind: str) -> None:
    function = NOISY[kind]()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(5):
            function(tg.ones(3))
    (one,) = caught
    assert Path(one.filename).name == "test_replay_explain.py"
    text = Path(one.filename).read_text().splitlines()[one.lineno - 1]
    assert text.strip() == "function(tg.ones(3))"
    assert re.search(r"runs eagerly: it prints, at .*test_replay_explain.py:\d+", str(one.message))


def test_other_reasons_warn_at_the_call_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tapegrad.replay.cpu.jit.available", lambda: False)
    few = tg.compile(lambda x: x * 2, max_signatures=1)
    without = tg.compile(lambda x: x * 2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in (1, 2, 1, 2, 1):
            few(tg.ones(n))
        for _ in range(4):
            without(tg.ones(1))
    assert [Path(one.filename).name for one in caught] == ["test_replay_explain.py"] * 2
    first, second = (str(one.message) for one in caught)
    assert "more than 1 signatures" in first
    assert "llvmlite is not installed" in second
    # Reasons without a line of their own name the function's.
    assert all(
        re.search(r"the function is at .*test_replay_explain.py:\d+", m) for m in (first, second)
    )


def test_each_reason_warns_once() -> None:
    @tg.compile
    def f(x: Any) -> Any:
        if x.ndim == 1:
            print("x")
        else:
            open(__file__).close()
        return x * 2

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(4):
            f(tg.ones(2))
            f(tg.ones(2, 2))
            f(tg.ones(3))
    assert sorted(re.findall("it (?:prints|opens)", " ".join(str(w.message) for w in caught))) == [
        "it opens",
        "it prints",
    ]
    assert replayed(f) == 0
