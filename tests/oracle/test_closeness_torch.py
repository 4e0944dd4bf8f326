"""`testing.assert_close` passes and fails where PyTorch's does."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest
import torch

import tapegrad as tg

INF, NAN = float("inf"), float("nan")
VALUES = [
    *(0.0, 1.0, 1.000001, 1.00001, 1.001, 1.02, 2.0, INF, -INF, NAN, 1e-6, 2e-5, 1 + 5e-8),
]
DTYPES = ["float16", "bfloat16", "float32", "float64", "int64"]


def accepts(lib: Any, *given: Any, **options: Any) -> bool:
    try:
        lib.testing.assert_close(*given, **options)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", [{}, {"equal_nan": True}, {"rtol": 1e-2, "atol": 1e-3}])
def test_tensors(dtype: str, options: dict[str, Any]) -> None:
    values = [v for v in VALUES if dtype != "int64" or np.isfinite(v)]
    for a, b in itertools.product(values, repeat=2):
        answers = [
            accepts(
                lib,
                lib.tensor([0.0, a]).to(getattr(lib, dtype)),
                lib.tensor([0.0, b]).to(getattr(lib, dtype)),
                **options,
            )
            for lib in (tg, torch)
        ]
        assert answers[0] == answers[1], (a, b)


@pytest.mark.parametrize("pair", list(itertools.product(DTYPES, repeat=2)))
def test_two_dtypes(pair: tuple[str, str]) -> None:
    for change in (0.0, 1e-6, 1e-3, 2e-2):
        answers = [
            accepts(
                lib,
                lib.tensor([1.0 + change]).to(getattr(lib, pair[0])),
                lib.tensor([1.0]).to(getattr(lib, pair[1])),
                check_dtype=False,
            )
            for lib in (tg, torch)
        ]
        assert answers[0] == answers[1], change


@pytest.mark.parametrize(
    ("x", "y"),
    [
        *[(1, 1), (1, 1.0), (1.0, 1 + 1e-8), (1.0, 1 + 1e-6), (True, True), (NAN, NAN)],
        *[(INF, INF), (INF, -INF), (INF, 1.0), (2**53, 2**53 + 1), (1j, 1j + 1e-9), (0.0, 1e-8)],
        *[([1, 2], [1, 2]), ([1, 2], (1, 2)), ([], []), ({"a": [1.0]}, {"a": [1.0]})],
        *[({"a": 1}, {"a": 1, "b": 2}), ([1], [1, 2]), (np.ones(2), np.ones(2))],
        *[(np.ones(2), np.ones(2, np.float32)), (np.ones((2, 1)), np.ones(2))],
    ],
)
def test_numbers_and_structures(x: Any, y: Any) -> None:
    for options in ({}, {"check_dtype": False}, {"equal_nan": True}):
        assert accepts(tg, x, y, **options) == accepts(torch, x, y, **options), options


# -- messages --------------------------------------------------------------------------------------


def outcome(lib: Any, *given: Any, **options: Any) -> str:
    """The kind of the error, and what its text says."""
    try:
        lib.testing.assert_close(*given, **options)
    except (AssertionError, TypeError, ValueError) as error:
        return f"{type(error).__name__}: {' '.join(facts(str(error)))}"
    return "passed"


def facts(text: str) -> list[str]:
    """The numbers, places, keys and classes that a text names; its words are our own."""
    text = (
        re.sub(r"(rtol|atol)\b.*", "", text) if " go together" in text or "Both" in text else text
    )
    return re.findall(
        r"-?\b(?:\d[\d.]*(?:e[-+]?\d+)?|nan|inf)\b|\[[^]]*\]|<class '\w+'>|mine|before", text
    )


_T = [1.0, 2.0, NAN]
CALLS: dict[str, Any] = {
    "tensors": lambda t: (t.tensor([1.0, 2.0, 3.0]), t.tensor([1.0, 2.5, 3.1])),
    "float64": lambda t: (t.tensor([[1.0, 2.0]]).double(), t.tensor([[1.1, 2.5]]).double()),
    "half": lambda t: (t.tensor([1.0, 2.0]).half(), t.tensor([1.1, 2.5]).half()),
    "bfloat16": lambda t: (t.tensor([1.0, 2.0]).bfloat16(), t.tensor([1.1, 2.5]).bfloat16()),
    "zero": lambda t: (t.tensor([1.0, 2.0]), t.tensor([0.0, 2.5])),
    "nan": lambda t: (t.tensor(_T), t.tensor([1.0, NAN, 5.0])),
    "inf": lambda t: (t.tensor([INF, 1.0]), t.tensor([-INF, 1.0])),
    "integers": lambda t: (t.tensor([1, 2, 30]), t.tensor([1, 7, 40])),
    "booleans in tensors": lambda t: (t.tensor([True, False]), t.tensor([True, True])),
    "bytes": lambda t: (t.tensor([250]).byte(), t.tensor([3]).byte()),
    "complex": lambda t: (t.tensor([1 + 1j, 2j]), t.tensor([1 + 2j, 2j])),
    "scalars in tensors": lambda t: (t.tensor(1.0), t.tensor(2.0)),
    "integer scalars in tensors": lambda t: (t.tensor(1), t.tensor(2)),
    "shapes": lambda t: (t.ones(2), t.ones(2, 1)),
    "dtypes": lambda t: (t.ones(2), t.ones(2).double()),
    "strides": lambda t: (t.ones(2, 2), t.ones(2, 2).t()),
    "numbers": lambda t: (1.0, 1.5),
    "integers and zero": lambda t: (3, 0),
    "types of numbers": lambda t: (1, 1.0),
    "complex numbers": lambda t: (1j, 2j),
    "bools": lambda t: (True, False),
    "bools in a list": lambda t: ([True], [False]),
    "None": lambda t: (None, 1),
    "lists": lambda t: ([1, 2], [1, 3]),
    "lengths": lambda t: ([1, 2], [1]),
    "nested": lambda t: ({"a": [t.ones(2), t.zeros(1)]}, {"a": [t.ones(2), t.ones(1)]}),
    "keys": lambda t: ({"a": 1, "c": 2}, {"b": 1}),
    "strings": lambda t: ("a", "b"),
    "number and list": lambda t: (1, [1]),
    "arrays": lambda t: (np.ones(2), np.zeros(2)),
    "objects": lambda t: (object, object),
    "structure before values": lambda t: ([1, [2]], [3, [2, 3]]),
    "tuples": lambda t: ((1.0, 2.0), [1.0, 2.0]),
}


@pytest.mark.parametrize("name", CALLS)
def test_messages(name: str) -> None:
    for options in (
        *({}, {"rtol": 0, "atol": 0}, {"rtol": 1e-3, "atol": 0.2}, {"equal_nan": True}),
        *({"check_dtype": False}, {"check_stride": True}, {"rtol": 1e-3}, {"atol": 1}),
        *({"msg": "mine"}, {"msg": lambda text: f"before {text}"}, {"allow_subclasses": False}),
    ):
        found = outcome(tg, *CALLS[name](tg), **options)
        assert found == outcome(torch, *CALLS[name](torch), **options), options


def test_random_messages() -> None:
    rng = np.random.default_rng(0)
    for i in range(300):
        dtype = ["float16", "bfloat16", "float32", "float64", "int64", "int8"][i % 6]
        shape = [(3,), (2, 3), (1, 1, 4)][i % 3]
        a = np.round(rng.standard_normal(shape) * 20, 2)
        b = a + rng.standard_normal(shape) * 10.0 ** rng.integers(-7, 2) * rng.integers(0, 2, shape)
        outcomes = [
            outcome(lib, *(lib.tensor(v).to(getattr(lib, dtype)) for v in (a, b)))
            for lib in (tg, torch)
        ]
        assert outcomes[0] == outcomes[1], (i, a, b)
