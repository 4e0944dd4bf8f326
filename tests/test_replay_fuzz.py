"""Random programs replay as they run eagerly; `python tests/fuzz_replay.py` runs many more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from fuzz_replay import trial

from tapegrad.replay.cpu import pool

pytest.importorskip("llvmlite")

#: 33 tests of 10 programs; some 5 % change what backward needs, or what a capture refuses to change
PROGRAMS = 330
EACH = 10
#: the first seeds of programs with Python state that changes and arguments that share memory
SURROUNDED = (112, 122, 132, 240, 250, 260)


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = pool.pool.threads
    yield
    pool.pool.threads = before


@pytest.mark.parametrize("first", range(0, PROGRAMS, EACH))
def test_random_programs(first: int) -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(first, first + EACH):
        _, outcome, story, _ = trial(seed)
        assert not story, story
        outcomes[outcome] += 1
    assert outcomes["same"] >= EACH // 2, outcomes


@pytest.mark.parametrize("first", SURROUNDED)
def test_random_programs_with_surroundings(first: int) -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(first, first + EACH):
        _, outcome, story, _ = trial(seed, "surrounded")
        assert not story, story
        outcomes[outcome] += 1
    assert outcomes["same"] >= EACH // 5, outcomes
