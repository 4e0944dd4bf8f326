"""The passes in order: a recorded program becomes one that a machine can run.

Comes in: a recorded program and a `Machine`. Goes out: the program after all passes.
`TAPEGRAD_WITHOUT` names passes to skip. Called by `cpu/budget.py` and `cuda/executable.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Set
from functools import partial

from ..ir.program import Program
from ..ir.target import Machine
from .examined import examined
from .fuse import fuse, inline
from .lower import lower
from .overlap import in_place, overlap
from .rematerialize import rematerialize
from .rewrite import rewrite
from .simplify import common, constants, dead
from .sink_writes import sink_writes

Pass = Callable[[Program], Program]


def passes_for(machine: Machine) -> dict[str, Pass]:
    """The passes by name, in order."""
    live = partial(dead, machine=machine)
    return {
        "constants": constants,
        "common": common,
        "dead": live,
        "rewrite": rewrite,
        "overlap": overlap,
        "lower": partial(lower, machine=machine),
        "unread": live,
        "sink_writes": sink_writes,
        "inline": inline,
        "fuse": fuse,
        "rematerialize": partial(rematerialize, machine=machine),
        "examined": examined,
        "trim": live,
        "in_place": in_place,
    }


def skipped_passes() -> set[str]:
    """The names of the passes to leave out."""
    return set(os.environ.get("TAPEGRAD_WITHOUT", "").split(",")) - {""}


def run_passes(
    program: Program,
    machine: Machine,
    after: Callable[[], None],
    without: Set[str] = frozenset(),
) -> Program:
    """Run all passes except those in `without`; call `after` after each.

    TAPEGRAD_WITHOUT=name,name skips more of them, to find a faulty pass.
    """
    passes = {name: change for name, change in passes_for(machine).items() if name not in without}
    skipped = skipped_passes() - without
    unknown = sorted(skipped - passes.keys() | skipped & {"lower"})
    if unknown:
        can = ", ".join(name for name in passes if name != "lower")
        raise ValueError(
            f"TAPEGRAD_WITHOUT names {', '.join(unknown)}; the passes that can be left out: {can}"
        )
    for name, change in passes.items():
        if name not in skipped:
            program = change(program)
            after()
    return program
