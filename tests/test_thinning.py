"""Thinned runs are fair, can be repeated, and change from seed to seed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
import thinning

pytest_plugins = ["pytester"]

NAMES = [f"op{i}" for i in range(50)]
CASES = [
    (f"test[{name}-{dtype}-{mode}]", (("name", name), ("dtype", dtype), ("mode", mode)))
    for name, dtype, mode in itertools.product(NAMES, range(3), range(2))
]
SEEDS = [f"{i:x}" for i in range(40)]


@pytest.fixture(autouse=True)
def seed() -> Iterator[None]:
    """The seed of the run that this test is part of comes back."""
    before = thinning._seed
    yield
    thinning.set_seed(before)


@pytest.mark.parametrize("keep", [0.0, 1 / 6, 1 / 4, 1.0])
def test_every_value_of_every_parameter_stays(keep: float) -> None:
    for seed in SEEDS:
        thinning.set_seed(seed)
        kept = [CASES[i] for i in thinning.covering(CASES, keep)]
        assert len(kept) >= keep * len(CASES)
        assert len(kept) <= max(keep * len(CASES) + 1, len(NAMES) + 3 + 2)
        assert {v for _, values in kept for v in values} == {v for _, vs in CASES for v in vs}
        assert [CASES[i] for i in thinning.covering(CASES, keep)] == kept


def test_all_cases_are_tried_in_time() -> None:
    tried: set[int] = set()
    for seed in SEEDS:
        thinning.set_seed(seed)
        tried.update(thinning.covering(CASES, 1 / 6))
    assert len(tried) > 0.99 * len(CASES)


def test_what_stays_does_not_depend_on_order() -> None:
    thinning.set_seed("a")
    kept = {CASES[i][0] for i in thinning.covering(CASES)}
    assert {CASES[::-1][i][0] for i in thinning.covering(CASES[::-1])} == kept


def test_some_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    thinning.set_seed(None)
    assert thinning.some(range(9)) == list(range(9))
    found = set()
    for seed in SEEDS:
        thinning.set_seed(seed)
        chosen = thinning.some(range(9))
        assert len(chosen) == 3
        assert chosen == sorted(chosen) == thinning.some(range(9))
        found.update(chosen)
        assert len(thinning.some(["one"])) == 1
        assert thinning.some([]) == []
        assert thinning.some(range(9), keep=1) == list(range(9))
    assert found == set(range(9))
    thinning.set_seed("a")
    here = [thinning.some(range(100))]
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "tests/other.py::test[x] (call)")
    assert thinning.some(range(100)) not in here, "each test has samples of its own"


def test_a_thinned_run(pytester: pytest.Pytester) -> None:
    here = Path(__file__).parent
    pytester.makeconftest((here / "conftest.py").read_text())
    pytester.makepyfile(thinning=(here / "thinning.py").read_text())
    pytester.makeini("[pytest]\nmarkers =\n    sweep: a sweep\n    cuda: a GPU")
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.sweep
        @pytest.mark.parametrize("a", range(10))
        @pytest.mark.parametrize("b", range(4))
        def test_sweep(a, b):
            pass

        @pytest.mark.parametrize("a", range(5))
        def test_other(a):
            pass

        @pytest.mark.sweep(some="seed")
        @pytest.mark.parametrize("seed", range(20))
        @pytest.mark.parametrize("b", range(2))
        def test_random(seed, b):
            pass
        """
    )
    whole = pytester.runpytest("-p", "no:xdist")
    whole.assert_outcomes(passed=85)
    thinned = pytester.runpytest("-p", "no:xdist", "--thin=abc")
    passed = thinned.parseoutcomes()["passed"]
    assert 10 + 5 + 10 <= passed <= 13 + 5 + 10
    thinned.stdout.fnmatch_lines(
        ["sweeps are thinned; again with the same cases: --thin=abc", f"*{85 - passed} cases left*"]
    )
    again = pytester.runpytest("-n2", "--thin=abc")
    again.assert_outcomes(passed=passed)
    again.stdout.fnmatch_lines([f"*{85 - passed} cases left out*"])
