"""A replay is never stale and never wrong: compiled functions in worlds that change.

The programs are in `worlds_*.py`, how they are run and compared in `worlds.py`.
"""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest
from worlds import EAGERLY, cases, judge, vec

import tapegrad as tg

pytest.importorskip("llvmlite")


@pytest.mark.parametrize("name", cases())
def test_compiled_equals_eager(name: str) -> None:
    complaint = judge(cases()[name]).complaint
    assert complaint is None, complaint


def reads_a_value(x: Any) -> Any:
    return x * 2 if x.sum() > 0 else x


def draws_a_number(x: Any) -> Any:
    return x * np.random.rand()


def counts(x: Any) -> Any:
    return x * next(counts.numbers)  # type: ignore[attr-defined]


@pytest.mark.parametrize("function", [reads_a_value, draws_a_number, counts])
def test_a_refusal_is_one_warning_that_names_the_line(function: Any) -> None:
    counts.numbers = iter(range(20))  # type: ignore[attr-defined]
    compiled = tg.compile(function)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for i in range(8):
            compiled(vec(i))
    assert [EAGERLY in str(w.message) for w in caught] == [True]
    assert re.search(r"test_worlds\.py:\d+\b", str(caught[0].message))


@pytest.mark.parametrize("function", [reads_a_value, draws_a_number, counts])
def test_fullgraph_raises_instead(function: Any) -> None:
    counts.numbers = iter(range(20))  # type: ignore[attr-defined]
    compiled = tg.compile(function, fullgraph=True)

    def calls() -> None:
        for i in range(8):
            compiled(vec(i))

    with pytest.raises(RuntimeError, match=r"test_worlds\.py:\d+\b"):
        calls()
