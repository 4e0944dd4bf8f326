"""Blueprints: a compiled program without addresses, as it is stored on disk.

Comes in: a plan and what was emitted for it. Goes out: arrays of integers, indices of kernels, and
constants: all that a run needs. `executable.py` makes blueprints and fills in addresses;
`stored.py` keeps them for later processes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.source import Location
from ..ir.program import Callback
from ..native.plan import Plan
from .emit import Emitted, Pointer, Segment

#: words of a step: its kind, its kernel (-1: none), the kernel's extent and grain, where its table
#: begins, and its number of parts
STEP_WORDS = 6
#: words of a pointer: a position in the tables, a buffer, and an offset in bytes
PATCH_WORDS = 3


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of a segment, as numbers; see `driver_layout.py` for what they mean."""

    steps: Any  # int64, (steps, STEP_WORDS)
    tables: Any  # int64: the tables of all kernels
    patches: Any  # int64, (pointers, PATCH_WORDS): the pointers in the tables


@dataclass(frozen=True, slots=True)
class Blueprint:
    """A compiled program without addresses."""

    segments: tuple[Steps | Callback, ...]
    constants: tuple[Any, ...]
    failures: tuple[tuple[str, Location | None], ...]  # the meaning of status word i, if it is set
    arena: int  # bytes
    scratch: int  # bytes
    work: int  # as `tuning.py` defines it, to decide how many threads pay


def texts_of(emitted: Emitted) -> list[str]:
    """The different kernels of a program, in the order of their indices in a blueprint."""
    steps = (step for s in emitted.segments if isinstance(s, Segment) for step in s.steps)
    return list(dict.fromkeys(step.text for step in steps if step.text is not None))


def blueprint_of(plan: Plan, emitted: Emitted) -> Blueprint:
    """All that a run of a program needs, apart from its kernels."""
    kernels: dict[str | None, int] = {text: i for i, text in enumerate(texts_of(emitted))}
    kernels[None] = -1
    return Blueprint(
        tuple(
            s if isinstance(s, Callback) else _without_addresses(s, kernels)
            for s in emitted.segments
        ),
        tuple(np.ascontiguousarray(array) for _, array in plan.program.constants),
        emitted.failures,
        plan.arena,
        emitted.scratch,
        emitted.work,
    )


def _without_addresses(segment: Segment, kernels: dict[str | None, int]) -> Steps:
    steps: list[tuple[int, ...]] = []
    tables: list[int] = []
    patches: list[tuple[int, ...]] = []
    for step in segment.steps:
        steps.append(
            (step.what, kernels[step.text], step.extent, step.grain, len(tables), step.parts)
        )
        for entry in step.table:
            if isinstance(entry, Pointer):
                patches.append((len(tables), entry.buffer, entry.offset))
                tables.append(0)
            else:
                tables.append(entry)
    return Steps(
        _words(steps, STEP_WORDS), np.array(tables, np.int64), _words(patches, PATCH_WORDS)
    )


def _words(rows: Iterable[tuple[int, ...]], width: int) -> Any:
    return np.array(rows, np.int64).reshape(-1, width)
