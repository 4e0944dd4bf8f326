"""Halves: a collective as two primitives, one that starts it and one that waits for it.

Comes in: a kind of collective that groups can run in the background. Goes out: `start`, which
returns a handle, and `wait`, which takes the handle and the operands and returns the result.
Computation between the two overlaps with the communication. Called by the files that define
collectives, for the compiler (`replay/passes/overlap.py`) and for `parallel/`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.primitive import OPAQUE, Primitive, Rule, define
from .group import Group


def start_of(kind: str) -> Primitive:
    """The primitive that starts a collective.

    Only the compiler sets `in_place` and `alone`. With `in_place` the collective may use the
    operand's memory until it ends; an `all_reduce` leaves its result there. With `alone` nothing is
    computed between start and wait.
    """

    def start(
        x: Any, *, group: Group, in_place: bool = False, alone: bool = False, **params: Any
    ) -> Any:
        handle = group.begin(kind, x, *params.values(), in_place=in_place, alone=alone)
        return np.array(handle, np.int64)

    return define(
        f"{kind}_start",
        start,
        kind=OPAQUE,
        collective=True,
        half="start",
        abstract=lambda x, **params: ((), np.dtype(np.int64)),
    )


def wait_of(
    name: str, abstract: Any, rules: tuple[Rule | None, ...] = (None,), inputs: str = "x"
) -> Primitive:
    """The primitive that waits for a collective: `wait(handle, *inputs)`.

    `rules` are the vjp rules of the inputs; without them it serves code that works on gradients.
    """

    def wait(handle: Any, *inputs: Any, group: Group, in_place: bool = False) -> Any:
        return group.end(int(handle))

    return define(
        f"{name}_wait",
        wait,
        kind=OPAQUE,
        inputs=("handle", *inputs.split()),
        collective=True,
        half="wait",
        abstract=lambda handle, x, *others, group, in_place=False: abstract(x, group=group),
        vjp=(None, *rules),
    )
