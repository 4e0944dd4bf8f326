"""The text of tensors: equal to PyTorch's, for thousands of random tensors and all options."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

import tapegrad as tg
from tapegrad.core.naming import shown

DTYPES = [
    *("float32", "float64", "float16", "bfloat16"),
    *("int64", "int32", "int16", "int8", "uint8", "bool"),
    *("complex64", "complex128"),
]
SHAPES = [
    *((), (1,), (2,), (5,), (17,), (40,), (0,), (0, 3), (2, 0, 4), (3, 4), (2, 3, 4)),
    *((1, 1), (7, 9), (2, 2, 2, 3), (30, 40), (1001,), (6, 7, 30), (2, 600), (1200, 1)),
]


@pytest.fixture(autouse=True)
def _names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dtypes as `install_as_torch` shows them: their length decides about new lines."""
    monkeypatch.setattr(shown, "package", "torch")


def text(tensor: Any) -> str:
    return repr(tensor)


def values_of(rng: Any, shape: tuple[int, ...], kind: int) -> Any:
    """Numbers of one of several sorts."""
    x = rng.standard_normal(shape)
    sort = kind % 9
    if sort == 1:
        x = np.round(x * 10)
    elif sort == 2:
        x = x * 10.0 ** rng.integers(-6, 7, shape)
    elif sort == 3:
        x = np.where(rng.random(shape) < 0.3, 0.0, x)
    elif sort == 4:
        special = rng.choice([np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0], shape)
        x = np.where(rng.random(shape) < 0.4, special, x)
    elif sort == 5:
        x = np.round(x * 1e9)
    elif sort == 6:
        x = rng.choice([np.nan, np.inf, -0.0], shape)
    elif sort == 7:
        x = x * 1e-5
    elif sort == 8:
        x = np.round(x * 10) * np.where(rng.random(shape) < 0.1, np.inf, 1.0)
    return np.asarray(x)


def pair_of(values: Any, dtype: str) -> tuple[Any, Any]:
    if dtype.startswith("complex"):
        values = values + 1j * np.roll(values, 1)
    elif not dtype.startswith(("float", "bfloat")):
        values = np.nan_to_num(values, posinf=7, neginf=-7)
        values = np.clip(values, 0 if dtype == "uint8" else -128, 127).astype(np.int64)
    theirs = torch.tensor(values).to(getattr(torch, dtype))
    if dtype in ("float16", "bfloat16"):
        return tg.tensor(values).to(getattr(tg, dtype)), theirs
    return tg.tensor(theirs.numpy()), theirs


@pytest.mark.parametrize("dtype", DTYPES)
def test_random_tensors(dtype: str) -> None:
    rng = np.random.default_rng(sum(map(ord, dtype)))
    count = 0
    for kind, shape in itertools.product(range(18), SHAPES):
        with np.errstate(all="ignore"):
            ours, theirs = pair_of(values_of(rng, shape, kind), dtype)
        assert text(ours) == text(theirs), (kind, shape)
        count += 1
    assert count == 18 * len(SHAPES)


OPTIONS: list[dict[str, Any]] = [
    {"precision": 2},
    {"precision": 0},
    {"precision": 10, "linewidth": 120},
    {"threshold": 5},
    {"threshold": 5, "edgeitems": 1},
    {"threshold": 5, "edgeitems": 0},
    {"edgeitems": 5, "threshold": 20},
    {"linewidth": 30},
    {"linewidth": 10},
    {"linewidth": 200},
    {"sci_mode": True},
    {"sci_mode": False},
    {"profile": "short"},
    {"profile": "full"},
    {"profile": "default"},
    {"profile": "short", "linewidth": 40, "sci_mode": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_options(options: dict[str, Any]) -> None:
    rng = np.random.default_rng(len(str(options)))
    try:
        for library in (tg, torch):
            library.set_printoptions(**options)
        assert tg.get_printoptions() == torch._tensor_str.get_printoptions()
        for dtype in ("float32", "float64", "int64", "bool", "complex64", "bfloat16"):
            for kind, shape in itertools.product(range(9), SHAPES):
                with np.errstate(all="ignore"):
                    ours, theirs = pair_of(values_of(rng, shape, kind), dtype)
                assert text(ours) == text(theirs), (dtype, kind, shape)
    finally:
        for library in (tg, torch):
            library.set_printoptions(profile="default")


def test_the_context() -> None:
    x, y = tg.tensor([1.23456]), torch.tensor([1.23456])
    with tg.printoptions(precision=2):
        assert repr(x) == "tensor([1.23])"
    with torch._tensor_str.printoptions(precision=2):
        assert repr(y) == "tensor([1.23])"
    assert repr(x) == repr(y) == "tensor([1.2346])"


NOTES: dict[str, Any] = {
    "leaf": lambda t: t.ones(2, 3, requires_grad=True),
    "sum": lambda t: t.ones(2, 3, requires_grad=True).sum(),
    "sum of rows": lambda t: t.ones(2, 3, requires_grad=True).sum(0),
    "mean": lambda t: t.ones(2, 3, requires_grad=True).mean(),
    "add": lambda t: t.ones(2, 3, requires_grad=True) + 1,
    "mul": lambda t: t.ones(2, 3, requires_grad=True) * 3,
    "view": lambda t: t.ones(2, 3, requires_grad=True).view(-1),
    "exp": lambda t: t.ones(2, 3, requires_grad=True).exp(),
    "select": lambda t: t.ones(2, 3, requires_grad=True)[0],
    "slice": lambda t: t.ones(2, 3, requires_grad=True)[:1],
    "product": lambda t: t.ones(2, 2, requires_grad=True) @ t.ones(2, 2),
    "softmax": lambda t: t.ones(2, 3, requires_grad=True).softmax(-1),
    "linear": lambda t: t.nn.functional.linear(
        t.ones(2, 3), t.ones(1, 3), t.ones(1, requires_grad=True)
    ),
    "double leaf": lambda t: t.ones(2, 3, dtype=t.float64, requires_grad=True),
    "wide leaf": lambda t: t.arange(12, dtype=t.float64).reshape(1, 12).requires_grad_(),
    "parameter": lambda t: t.nn.Parameter(t.arange(4.0)),
    "frozen parameter": lambda t: t.nn.Parameter(t.arange(4.0), requires_grad=False),
    "empty double": lambda t: t.empty(0, dtype=t.float64),
    "empty int": lambda t: t.empty(0, dtype=t.int64),
    "empty matrix": lambda t: t.empty(0, 3, dtype=t.int32),
    "empty leaf": lambda t: t.empty(0, 3, requires_grad=True),
    "transposed": lambda t: t.arange(6.0).reshape(2, 3).t(),
    "strided": lambda t: t.arange(10.0)[::3],
    "negative zero": lambda t: t.tensor(-0.0),
    "scalar": lambda t: t.tensor(3),
    "scalar nan": lambda t: t.tensor(float("nan")),
    "true": lambda t: t.tensor(True),
    "large int": lambda t: t.tensor([2**62, -1]),
}  # fmt: skip


@pytest.mark.parametrize("name", NOTES)
def test_notes(name: str) -> None:
    assert text(NOTES[name](tg)) == text(NOTES[name](torch))


def test_other_default_dtypes() -> None:
    try:
        for library in (tg, torch):
            library.set_default_dtype(library.float64)
        assert text(tg.ones(2)) == text(torch.ones(2)) == "tensor([1., 1.])"
        assert text(tg.ones(2).float()) == text(torch.ones(2).float())
        assert text(tg.empty(0)) == text(torch.empty(0))
    finally:
        for library in (tg, torch):
            library.set_default_dtype(library.float32)


def test_functions_of_users() -> None:
    shown = []
    for library in (tg, torch):

        class Twice(library.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x * 2

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g * 2

        shown.append(text(Twice.apply(library.ones(1, requires_grad=True))))
    assert shown[0] == shown[1] == "tensor([2.], grad_fn=<TwiceBackward>)"
