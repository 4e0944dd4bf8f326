"""Thinned runs: a pseudo-random sample of the cases of each sweep, a different one for each commit.

`pytest --thin` runs every test, but not every case of a test that is marked as a sweep:

* `@pytest.mark.sweep` on a parametrised test: keeps about one in four of its items
  (`sweep(keep=1 / 8)`: one in eight), and more if needed to keep every value of every parameter. So
  each test checks each operation, each dtype and each mode. `sweep(some="seed")` names a parameter
  whose values need not all be kept: a seed of random cases, or the operation where other tests try
  all operations in the same way.
* `some(samples)` inside a test: keeps some of a list, at least one. Outside of tests, give the list
  a name: `some((2, 4), 1 / 2, of="ranks")`.

Only a seed and the name of the test decide what is kept. The seed is the commit or the SEED of
`--thin=SEED`, and is printed, so that a run can be repeated; later commits try other cases. Without
`--thin` everything runs: a failure of a thinned run also occurs in a plain `pytest` of that test.
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

#: default share of a sweep's cases to keep
KEEP = 0.25

_seed: str | None = None


def set_seed(seed: str | None) -> None:
    """Thin from now on, with this seed; None turns thinning off."""
    global _seed
    _seed = seed


def commit() -> str:
    """The hash of this commit as the seed; without a repository, the week."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "{0.year}-{0.week}".format(datetime.date.today().isocalendar())


def rank(*names: object) -> bytes:
    """A sort key that depends on the names and the seed."""
    return hashlib.blake2b(repr((_seed, *names)).encode(), digest_size=8).digest()


def some(cases: Iterable[Case], keep: float = KEEP, of: str | None = None) -> list[Case]:
    """Some cases, at least one, in their order; all of them if the run is not thinned.

    The choice depends on the current test, or on the name `of`.
    """
    everything = list(cases)
    if _seed is None or not everything:
        return everything
    name = of or os.environ["PYTEST_CURRENT_TEST"].rpartition(" (")[0]
    order = sorted(range(len(everything)), key=lambda i: rank(name, i))
    return [everything[i] for i in sorted(order[: math.ceil(keep * len(everything))])]


def covering(cases: Sequence[tuple[str, Iterable[Hashable]]], keep: float = KEEP) -> list[int]:
    """Which cases of (name, values) to keep: a share, with every value at least once."""
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
    """Remove the items that are not kept from the list, and return them."""
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
        free = options.pop("some", None)
        kept = covering([(item.nodeid, _values(item, free)) for item in group], **options)
        gone |= {id(item) for item in group} - {id(group[i]) for i in kept}
    left_out = [item for item in items if id(item) in gone]
    items[:] = [item for item in items if id(item) not in gone]
    return left_out


def _values(item: Any, without: str | None) -> list[tuple[str, int]]:
    """The parameters of an item with the ids of their values; items share these objects."""
    given = item.callspec.params.items()
    return [(name, id(value)) for name, value in given if name != without]
