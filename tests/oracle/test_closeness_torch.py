"""`testing.assert_close` passes and fails where PyTorch's does."""

from __future__ import annotations

import itertools
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
