"""Halves: a collective as two primitives, one that begins it and one that waits for it.

Comes in: a kind of collective that groups can run in the background. Goes out: `start`, which gives
a handle, and `wait`, which takes that handle and the operands and gives the result. What is
computed in between runs while the members communicate. Called by the files that define collectives,
for the compiler (`replay/passes/overlap.py`) and for `parallel/`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.primitive import OPAQUE, Primitive, Rule, define
from .group import Group


def start_of(kind: str) -> Primitive:
    """The primitive that begins a collective.

    `in_place`, which only a compiler says, lets the collective use the operand's memory until it
    has ended; a reduction then leaves its result there. `alone`, likewise, says that nothing is
    computed until it is waited for.
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
    """The primitive that waits for a collective: `wait(handle, *inputs)`, with their rules.

    Without rules it is for code that works on gradients.
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
