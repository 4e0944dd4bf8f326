"""Half precision against PyTorch: gradients of every operation, training, autocast, GradScaler."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sweep import NAMES, call, differentiated, gradients, mapped, some_cases
from torch_oracle import (
    DTYPES,
    arguments_for_torch,
    assert_all_same,
    assert_same_gradients,
    leaves_of,
    to_torch,
    torch_function,
    torch_gradients,
)

import tapegrad
from tapegrad.ops import TABLE

HALF = [tapegrad.bfloat16, tapegrad.float16]
each_half = pytest.mark.parametrize("dtype", HALF, ids=[d.name for d in HALF])
#: PyTorch squares a window of half precision in that precision, and divides by the sum of it
ROUNDED = {"istft"}
DIFFERENTIATED = [
    n
    for n in NAMES
    if TABLE[n].torch is not None and not TABLE[n].random and TABLE[n].differentiable
    if n not in ROUNDED
]

#: PyTorch rounds in the middle: its own gradients have this many times the usual error
LOOSE = {"addbmm": 4.0, "cosine_similarity": 4.0, "conv_transpose3d": 2.0, "corrcoef": 2.0}

#: PyTorch rounds places, which moves some past the edge of a cell: it is asked in float32 here
IN_FLOAT32 = {"grid_sampler", "grid_sampler_2d", "nn.functional.grid_sample"}


@pytest.mark.sweep(keep=1 / 2)
@each_half
@pytest.mark.parametrize("name", DIFFERENTIATED)
def test_values_and_gradients(name: str, dtype: Any) -> None:
    function = torch_function(TABLE[name])
    for op, sample, given in some_cases(name, tapegrad.float32):
        ours = mapped(lambda x: in_half(x, dtype), given)
        wide = name in IN_FLOAT32
        theirs = arguments_for_torch(
            mapped(lambda x: in_half(x, tapegrad.float32), ours) if wide else ours
        )
        try:
            expected = function(*theirs[0], **theirs[1])
            wanted = torch_gradients(expected, leaves_of(theirs))
            if wide:
                expected, *wanted = [x.to(DTYPES[dtype]) for x in (expected, *wanted)]
        except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError):
            continue  # which dtypes are refused is compared in test_ops_torch
        got = call(op, ours)
        scale = LOOSE.get(name, 1.0)
        assert_all_same(got, expected, f"{name}{sample}", scale)
        found = gradients(got, differentiated(ours))
        assert_same_gradients(found, wanted, f"{name}{sample}", scale)


def in_half(x: Any, dtype: Any) -> Any:
    if not x.dtype.is_floating_point:
        return x
    return x.detach().to(dtype).requires_grad_(x.requires_grad)


PRODUCTS = [(64, 64, 64), (70, 33, 50), (128, 4096, 40), (1, 500, 300), (300, 500, 1)]


@each_half
@pytest.mark.parametrize("sizes", PRODUCTS, ids=str)
@pytest.mark.parametrize("fast", [False, True], ids=["eager", "compiled"])
def test_products_of_all_layouts(sizes: tuple[int, int, int], dtype: Any, fast: bool) -> None:
    rows, inner, columns = sizes
    x, y = tapegrad.randn(rows, inner).to(dtype), tapegrad.randn(inner, columns).to(dtype)
    turned = [z.T.contiguous().T for z in (x, y)]
    multiply = tapegrad.compile(lambda x, y: x @ y) if fast else tapegrad.matmul
    for ours in ((x, y), (turned[0], y), (x, turned[1]), tuple(turned)):
        for _ in range(3 if fast else 1):
            found = multiply(*ours)
        assert_all_same(found, to_torch(ours[0]) @ to_torch(ours[1]), f"matmul{sizes}")


@each_half
def test_products_of_numbers_at_the_limits(dtype: Any) -> None:
    """NaN, infinities, overflow; subnormal bfloat16 as the processor's instructions have it."""
    x, y = tapegrad.randn(64, 65).to(dtype), tapegrad.randn(65, 66).to(dtype)
    x[3, 4], x[5, 64], y[6, 7], y[64, 8] = float("nan"), float("inf"), -float("inf"), float("nan")
    if dtype is tapegrad.float16:
        x[9] = 6e4  # sums in float32 stay finite
    else:
        x[9] = 0  # with several infinities of both signs, the order of a sum would decide
        x[9, 10] = 3e38
    # PyTorch's own product makes NaN of the infinity in row 5 on some processors.
    expected = (to_torch(x).float() @ to_torch(y).float()).to(to_torch(x).dtype)
    assert_all_same(x @ y, expected, "special values")
    x, y = tapegrad.zeros(64, 64).to(dtype), tapegrad.eye(64).to(dtype)
    x[:] = 2.0**-24 if dtype is tapegrad.float16 else 2.0**-130
    assert (x @ y).double().tolist() == (to_torch(x) @ to_torch(y)).double().tolist()


@each_half
def test_long_sums_are_not_made_in_half_precision(dtype: Any) -> None:
    x = tapegrad.full((4096,), 0.1).to(dtype)
    rows = tapegrad.full((3, 4096), 0.1).to(dtype)
    assert_all_same(x.sum(), to_torch(x).sum(), "sum")
    assert_all_same(x.mean(), to_torch(x).mean(), "mean")
    assert_all_same(rows @ x, to_torch(rows) @ to_torch(x), "matmul")
    assert_all_same(rows.var(1), to_torch(rows).var(1), "var")
    assert_all_same(rows.softmax(1), to_torch(rows).softmax(1), "softmax")
    assert_all_same(x.norm(), to_torch(x).norm(), "norm")


# -- models, written once for both libraries -----------------------------------------------------


def mlp(tt: Any) -> Any:
    nn = tt.nn
    return nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.LayerNorm(32), nn.Linear(32, 5))


def cnn(tt: Any) -> Any:
    nn = tt.nn
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.GELU(),
        nn.Flatten(),
        nn.Linear(8 * 4 * 4, 5),
    )


def gpt(tt: Any) -> Any:
    nn = tt.nn
    functional = importlib.import_module(f"{tt.__name__}.nn.functional")

    class Block(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(11, 16)
            self.places = nn.Embedding(6, 16)
            self.before, self.after = nn.LayerNorm(16), nn.LayerNorm(16)
            self.project, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
            self.wide, self.narrow = nn.Linear(16, 64), nn.Linear(64, 16)
            self.head = nn.Linear(16, 11, bias=False)

        def forward(self, ids: Any) -> Any:
            n, length = ids.shape
            x = self.words(ids) + self.places.weight
            q, k, v = (
                part.reshape(n, length, 2, 8).transpose(1, 2)
                for part in self.project(self.before(x)).split(16, dim=-1)
            )
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(n, length, 16))
            x = x + self.narrow(functional.gelu(self.wide(self.after(x))))
            return self.head(x).reshape(n * length, 11)

    return Block()


def batches(name: str, number: int = 8) -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(0)
    out = []
    for _ in range(number):
        if name == "gpt":
            ids = rng.integers(0, 11, (4, 7))
            out.append((ids[:, :-1].copy(), ids[:, 1:].reshape(-1).copy()))
            continue
        shape = (16, 12) if name == "mlp" else (16, 1, 8, 8)
        x = rng.standard_normal(shape).astype(np.float32)
        out.append((x, rng.integers(0, 5, 16)))
    return out


MODELS: dict[str, Callable[[Any], Any]] = {"mlp": mlp, "cnn": cnn, "gpt": gpt}


def pair(name: str) -> tuple[Any, Any]:
    """The same model in both libraries, with the same weights."""
    torch.manual_seed(0)
    theirs, ours = MODELS[name](torch), MODELS[name](tapegrad)
    ours.load_state_dict(
        {k: tapegrad.tensor(v.numpy().copy()) for k, v in theirs.state_dict().items()}
    )
    return ours, theirs


def train(
    tt: Any,
    model: Any,
    name: str,
    cast: Any,
    lower: Any,
    scaler: Any = None,
    compiled: bool = False,
) -> tuple[list[float], list[float]]:
    """Losses and scales of a few steps; `cast` is "autocast" or "model"."""
    functional = importlib.import_module(f"{tt.__name__}.nn.functional")
    optimizer = tt.optim.AdamW(model.parameters(), lr=3e-3)
    make = tt.from_numpy

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        with tt.autocast("cpu", lower, enabled=cast == "autocast"):
            loss = functional.cross_entropy(model(x), y)
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            tt.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
        return loss

    run = tapegrad.compile(step) if compiled else step
    losses, scales = [], []
    for x, y in batches(name) * 2:
        given = make(x)
        if cast == "model" and given.is_floating_point():
            given = given.to(lower)
        losses.append(float(run(given, make(y)).detach().float().item()))
        scales.append(1.0 if scaler is None else scaler.get_scale())
    return losses, scales


@each_half
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", MODELS)
def test_training_under_autocast_tracks_pytorch(name: str, dtype: Any, compiled: bool) -> None:
    ours, theirs = pair(name)
    expected, _ = train(torch, theirs, name, "autocast", getattr(torch, dtype.name))
    losses, _ = train(tapegrad, ours, name, "autocast", dtype, compiled=compiled)
    assert expected[-1] < expected[0]
    np.testing.assert_allclose(losses, expected, rtol=0.02 if dtype is tapegrad.bfloat16 else 0.005)
    for p in ours.parameters():
        assert p.dtype is tapegrad.float32
        assert p.grad.dtype is tapegrad.float32


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", MODELS)
def test_training_in_float16_with_a_scaler_tracks_pytorch(name: str, compiled: bool) -> None:
    """The first scale overflows, so the first steps are skipped, as many as in PyTorch."""
    ours, theirs = pair(name)
    options = {"init_scale": 2.0**24, "growth_interval": 4}
    expected, scales = train(
        torch, theirs, name, "autocast", torch.float16, torch.amp.GradScaler("cpu", **options)
    )
    scaler = tapegrad.amp.GradScaler("cpu", **options)
    losses, got = train(tapegrad, ours, name, "autocast", tapegrad.float16, scaler, compiled)
    assert scales[0] < 2.0**24
    assert got == scales
    np.testing.assert_allclose(losses, expected, rtol=0.005)


@each_half
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", MODELS)
def test_training_in_half_precision_tracks_pytorch(name: str, dtype: Any, compiled: bool) -> None:
    """Parameters, states of the optimizer and activations in half precision."""
    ours, theirs = pair(name)
    theirs = theirs.to(getattr(torch, dtype.name))
    ours = ours.to(dtype)
    expected, _ = train(torch, theirs, name, "model", getattr(torch, dtype.name))
    losses, _ = train(tapegrad, ours, name, "model", dtype, compiled=compiled)
    assert {p.dtype for p in ours.parameters()} == {dtype}
    assert {p.grad.dtype for p in ours.parameters()} == {dtype}
    np.testing.assert_allclose(losses, expected, rtol=0.05)


# -- GradScaler --------------------------------------------------------------------------------


def scale_sequence(tt: Any, script: list[float], options: dict[str, Any]) -> list[Any]:
    w = tt.tensor([1.0, 2.0], requires_grad=True)
    b = tt.tensor([0.5], requires_grad=True)
    first, second = tt.optim.SGD([w], lr=0.01, momentum=0.9), tt.optim.Adam([b], lr=0.1)
    scaler = tt.amp.GradScaler("cpu", **options)
    seen: list[Any] = []
    for i, factor in enumerate(script):
        first.zero_grad()
        second.zero_grad()
        loss = (w * w).sum() * (factor if i % 2 else 1.0) + (b * b).sum() * (
            1.0 if i % 2 else factor
        )
        scaler.scale(loss).backward()
        scaler.unscale_(first)
        tt.nn.utils.clip_grad_norm_([w], 1.0)
        scaler.step(first)
        scaler.step(second)
        scaler.update(32.0 if i == 9 else None)
        seen.append((scaler.get_scale(), scaler.state_dict()["_growth_tracker"]))
        seen.append((*w.tolist(), *b.tolist()))
    return seen


@pytest.mark.parametrize(
    "options",
    [
        {"init_scale": 16.0, "growth_interval": 2},
        {"init_scale": 2.0**126, "growth_interval": 1, "growth_factor": 3.0},
        {"init_scale": 3.7, "growth_interval": 3, "growth_factor": 1.3, "backoff_factor": 0.7},
    ],
)
def test_the_scale_follows_pytorch(options: dict[str, Any]) -> None:
    inf, nan = float("inf"), float("nan")
    script = [1.0, 1.0, inf, 1.0, 1.0, 1.0, nan, -inf, 1.0, 1.0, 1.0, 1.0, 1.0, inf, 1.0, 1.0, 1.0]
    ours, theirs = scale_sequence(tapegrad, script, options), scale_sequence(torch, script, options)
    for got, expected in zip(ours[::2], theirs[::2], strict=True):
        assert got == expected
    for got, expected in zip(ours[1::2], theirs[1::2], strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5)
