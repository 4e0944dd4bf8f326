"""Rewrites: an operation that takes the place of several instructions of a program.

An operation in `ops/` that computes what other operations compute together registers here how it
finds them. Comes in: a program of recorded primitives. Goes out: an `Edit`, which
`replay/passes/rewrite.py` carries out. So passes need not know any operation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Edit:
    """Instructions that go, by id(), and those that come, by the id() of what they precede."""

    __slots__ = ("added", "dropped")

    def __init__(self) -> None:
        self.dropped: set[int] = set()
        self.added: dict[int, list[Any]] = {}

    def add(self, before: Any, instructions: list[Any]) -> None:
        self.added.setdefault(id(before), []).extend(instructions)


class Rewrite(NamedTuple):
    """How instructions are found, and numbers on which that depends."""

    edit: Callable[[Any], Edit]  # takes a program
    settings: Callable[[], tuple[Any, ...]]


#: by name
REWRITES: dict[str, Rewrite] = {}

#: functions that enter further ones, for whoever needs all of them
LOADERS: list[Callable[[], None]] = []


def all_rewrites() -> dict[str, Rewrite]:
    """Every rewrite by name, those of operations that nobody has used yet too."""
    while LOADERS:
        LOADERS[-1]()
        LOADERS.pop()
    return REWRITES


def settings() -> str:
    """What decides about rewrites besides the program."""
    return repr([(name, rewrite.settings()) for name, rewrite in all_rewrites().items()])
