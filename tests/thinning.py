"""A thinned run: some of the cases of each sweep, fairly chosen, and other ones for each commit.

`pytest --thin` runs every test, but not every case of those that are marked as a sweep:

* `@pytest.mark.sweep` on a parametrised test: of its items about one in four stays
  (`sweep(keep=1 / 8)`: one in eight), and as many more as it takes that every value of every
  parameter stays. So each operation, each dtype and each mode is checked by each test. Values of a
  parameter that is the seed of random cases need not all stay: `sweep(seeds="seed")`.
* `some(samples)` inside a test: some of a list, at least one. Outside of tests the list is named:
  `some((2, 4), 1 / 2, of="ranks")`.

What stays follows from a seed and the name of the test alone. The seed is the commit, or what
`--thin=SEED` says, and is printed; so a run can be repeated, and later commits try other cases.
Without `--thin` everything runs: what a thinned run finds, a plain `pytest` of that test finds too.
Used by `conftest.py` and by the sweeps.
"""

from __future__ import annotations

import collections
import datetime
import hashlib
import math
import os
import subprocess
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

Case = TypeVar("Case")

#: how much of a sweep stays, unless its mark says otherwise
KEEP = 0.25

_seed: str | None = None


def set_seed(seed: str | None) -> None:
    """Thin from now on, with this seed; not at all if None."""
    global _seed
    _seed = seed


def commit() -> str:
    """The seed of this commit; that of this week where there is no repository."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "{0.year}-{0.week}".format(datetime.date.today().isocalendar())


def rank(*names: object) -> bytes:
    """Where something stands among its like: another order for each seed."""
    return hashlib.blake2b(repr((_seed, *names)).encode(), digest_size=8).digest()


def some(cases: Iterable[Case], keep: float = KEEP, of: str | None = None) -> list[Case]:
    """Some cases of the current test or `of` a name, in their order, at least one.

    In a whole run these are all.
    """
    everything = list(cases)
    if _seed is None or not everything:
        return everything
    name = of or os.environ["PYTEST_CURRENT_TEST"].rpartition(" (")[0]
    order = sorted(range(len(everything)), key=lambda i: rank(name, i))
    return [everything[i] for i in sorted(order[: math.ceil(keep * len(everything))])]


def covering(cases: Sequence[tuple[str, Iterable[Hashable]]], keep: float = KEEP) -> list[int]:
    """The cases that stay, of (name, values): a share, and every value at least once."""
    order = sorted(range(len(cases)), key=lambda i: rank(cases[i][0]))
    seen: set[Hashable] = set()
    kept: list[int] = []
    for i in order:
        values = set(cases[i][1])
        if not values <= seen:
            seen |= values
            kept.append(i)
    rest = [i for i in order if i not in set(kept)]
    wanted = math.ceil(keep * len(cases)) - len(kept)
    return sorted([*kept, *rest[: max(0, wanted)]])


def thin(items: list[pytest.Item]) -> list[pytest.Item]:
    """Take the items that do not stay out of the list, and return them."""
    if _seed is None:
        return []
    groups: dict[str, list[pytest.Item]] = collections.defaultdict(list)
    for item in items:
        if item.get_closest_marker("sweep") is not None:
            groups[item.nodeid.partition("[")[0]].append(item)
    gone: set[int] = set()
    for group in groups.values():
        mark = group[0].get_closest_marker("sweep")
        assert mark is not None
        options = dict(mark.kwargs)
        seeds = options.pop("seeds", None)
        kept = covering([(item.nodeid, _values(item, seeds)) for item in group], **options)
        gone |= {id(item) for item in group} - {id(group[i]) for i in kept}
    left_out = [item for item in items if id(item) in gone]
    items[:] = [item for item in items if id(item) not in gone]
    return left_out


def _values(item: Any, without: str | None) -> list[tuple[str, int]]:
    """The parameters of an item with the identities of their values, which items share."""
    given = item.callspec.params.items()
    return [(name, id(value)) for name, value in given if name != without]
